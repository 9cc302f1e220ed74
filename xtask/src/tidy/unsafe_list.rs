//! `UNSAFE.md` and the code say the same about which modules use `unsafe`, both ways.

use std::collections::BTreeMap;

use super::{Finding, Tree, paths::module_path, source::Source};

const DOCUMENT: &str = "UNSAFE.md";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let listed = tree.texts.get(DOCUMENT).map(|text| rows(text, findings)).unwrap_or_default();
    let mut used = BTreeMap::new();
    for source in tree.sources.values() {
        let Some(module) = module_of(source) else { continue };
        if let Some(offset) = first_use(source) {
            used.insert(module, (source.path.clone(), source.line_of(offset)));
        }
        check_head(source, findings);
    }
    for (module, (path, line)) in &used {
        if !listed.contains_key(module) {
            let message = format!("`{module}` uses `unsafe`; give it a row in {DOCUMENT}");
            findings.push(Finding::error(path, *line, message));
        }
    }
    for (module, line) in &listed {
        if !used.contains_key(module) {
            let message = format!("`{module}` is listed but uses no `unsafe`; remove the row");
            findings.push(Finding::error(DOCUMENT, *line, message));
        }
    }
}

/// The name of a module in the table: `disk::map` in the library, `quintet_cli::main` elsewhere.
fn module_of(source: &Source) -> Option<String> {
    let (package, path) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = module_path(path).join("::");
    Some(if package == "quintet" {
        module
    } else {
        format!("{}::{module}", package.replace('-', "_"))
    })
}

/// Where `unsafe` stands first, or the attribute that lets it in.
fn first_use(source: &Source) -> Option<usize> {
    let lint = ["expect(unsafe_code", "allow(unsafe_code"]
        .into_iter()
        .filter_map(|text| source.code.find(text));
    source.words("unsafe").chain(lint).min()
}

/// The root of the library denies `unsafe`; other crates forbid it, or deny it too.
fn check_head(source: &Source, findings: &mut Vec<Finding>) {
    let is_root = ["/src/lib.rs", "/src/main.rs"].iter().any(|end| source.path.ends_with(end));
    let denies = ["#![deny(unsafe_code)]", "#![forbid(unsafe_code)]"];
    if is_root && !denies.iter().any(|attribute| source.code.contains(attribute)) {
        let message =
            "a crate root says `#![forbid(unsafe_code)]`, or `deny` where UNSAFE.md has rows";
        findings.push(Finding::error(&source.path, 1, message));
    }
}

/// Rows of the table: module and line. A row without a claim or a test is a finding.
fn rows(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<String, usize> {
    let mut listed = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let Some(row) = line.strip_prefix("| `") else { continue };
        let Some((module, rest)) = row.split_once('`') else { continue };
        let cells: Vec<&str> = rest.trim_end().trim_matches('|').split(" | ").collect();
        let filled = cells.iter().filter(|cell| !cell.trim_matches([' ', '|']).is_empty()).count();
        if filled < 2 {
            let message = format!("the row of `{module}` needs a claim and a test");
            findings.push(Finding::error(DOCUMENT, index + 1, message));
        }
        listed.insert(module.to_owned(), index + 1);
    }
    listed
}
