//! Every deliberate bug of the library has a site in the code and a row in `docs/testing.md`.

use super::{Finding, LIBRARY, Tree, source::Source};

const DOCUMENT: &str = "docs/testing.md";

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(list) = tree.sources.get(&format!("{LIBRARY}util/mutant.rs")) else { return };
    let table = tree.texts.get(DOCUMENT).map(String::as_str).unwrap_or_default();
    let bugs = bugs(list);
    for (line, variant, name) in &bugs {
        let site = format!("Bug::{variant}");
        let forms = [site.clone(), format!("mutant!({variant}")];
        let has_site =
            tree.library().filter(|(path, _)| *path != "util/mutant.rs").any(|(_, source)| {
                forms.iter().any(|form| source.words(form).any(|offset| !source.is_test(offset)))
            });
        if !has_site {
            let message = format!("no code asks for `{site}`: give the bug a site or remove it");
            findings.push(Finding::error(&list.path, *line, message));
        }
        if !table.contains(&format!("| `{name}` |")) {
            let message = format!("`{name}` has no row in {DOCUMENT}");
            findings.push(Finding::error(&list.path, *line, message));
        }
    }
    for (index, row) in table.lines().enumerate() {
        let Some((name, _)) = row.strip_prefix("| `").and_then(|row| row.split_once("` |")) else {
            continue;
        };
        if !bugs.iter().any(|(_, _, bug)| *bug == name) {
            let message = format!("`{name}` is no bug of {LIBRARY}util/mutant.rs; remove the row");
            findings.push(Finding::error(DOCUMENT, index + 1, message));
        }
    }
}

/// Line, variant and name of each row of the list: `Variant = 7, "name";`.
fn bugs(list: &Source) -> Vec<(usize, &str, &str)> {
    list.text
        .lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let (variant, rest) = line.trim().split_once(" = ")?;
            let (number, name) = rest.split_once(", \"")?;
            number.parse::<u16>().ok()?;
            Some((index + 1, variant, name.strip_suffix("\";")?))
        })
        .collect()
}
