//! The feature `testing` of the library (simulated disk, planted bugs) never reaches a release
//! build. It is no default feature, no other feature enables it, and only dev-dependencies use it.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let manifests = tree.texts.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    // The fuzz targets are a workspace of their own, and nothing but tests.
    for (path, text) in manifests.filter(|(path, _)| !path.starts_with("fuzz/")) {
        let mut section = String::new();
        let mut entry = String::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.starts_with('[') && !entry.contains('=') {
                line.clone_into(&mut section);
                continue;
            }
            // An entry goes on until its brackets are closed.
            entry.push_str(line);
            if is_open(&entry) {
                continue;
            }
            if let Some(message) = objection(&section, &entry) {
                findings.push(Finding::error(path, index + 1, message));
            }
            entry.clear();
        }
    }
}

fn is_open(entry: &str) -> bool {
    let count = |c: char| entry.matches(c).count();
    count('[') > count(']') || count('{') > count('}')
}

fn objection(section: &str, entry: &str) -> Option<&'static str> {
    let (name, value) = entry.split_once('=')?;
    if section == "[features]" && name.trim() != "testing" {
        let turns_on = value.contains("\"testing\"") || value.contains("/testing\"");
        return turns_on
            .then_some("only a test may turn the feature `testing` on, no other feature");
    }
    let is_dependency = section.contains("dependencies") && !section.contains("dev-dependencies");
    let asks = entry.contains("features") && value.contains("\"testing\"");
    (is_dependency && asks).then_some("only dev-dependencies may ask for the feature `testing`")
}
