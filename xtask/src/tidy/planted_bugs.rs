//! The table of planted bugs in `docs/planted-bugs.md`, generated from the sources.
//!
//! [`render`] reads the list of bugs, finds the file with the site of each bug and the tests that
//! plant it, and writes the table. [`check`] compares the table with the document. A table of 160
//! rows that people maintain goes out of date.
//!
//! Invariants: every bug has a site outside the tests and at least one test; the document is
//! exactly what `render` returns.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{Finding, Tree, source::Source};

/// The source file that lists the bugs.
const LIST: &str = "crates/quintet/src/util/mutant/mod.rs";
/// The generated document.
pub(crate) const DOCUMENT: &str = "docs/planted-bugs.md";
/// Prefix of all paths in the table; the table leaves it out.
const CRATE: &str = "crates/quintet/";

/// One bug: `/// Sentence.`, then `Variant = 7, "name";`.
struct Bug<'a> {
    line: usize,
    variant: &'a str,
    name: &'a str,
    sentence: String,
    /// Heading of its part of the list: the last `// ` comment before it.
    section: &'a str,
    /// Files that contain the wrong code.
    sites: BTreeSet<&'a str>,
    /// Files with tests that plant it.
    tests: BTreeSet<&'a str>,
}

/// The findings of this rule alone.
pub(crate) fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    check(tree, &mut findings);
    findings
}

/// Reports bugs without a site, bugs without a test, and a document that is out of date.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let bugs = bugs(tree);
    if bugs.is_empty() && !tree.texts.contains_key(DOCUMENT) {
        return;
    }
    for bug in &bugs {
        if bug.sites.is_empty() {
            let message = format!("no code asks for `{}`: add a site or remove it", bug.variant);
            findings.push(Finding::error(LIST, bug.line, message));
        }
        if bug.tests.is_empty() {
            let message = format!("no test plants `{}`: add one or remove the bug", bug.variant);
            findings.push(Finding::error(LIST, bug.line, message));
        }
    }
    let document = tree.texts.get(DOCUMENT).map(String::as_str).unwrap_or_default();
    let expected = render(tree);
    if document != expected {
        let same = document.lines().zip(expected.lines()).take_while(|(a, b)| a == b).count();
        let message = "the table is out of date; run `cargo xtask planted-bugs`";
        findings.push(Finding::error(DOCUMENT, same + 1, message));
    }
}

/// The text of the document for the sources in `tree`.
pub(crate) fn render(tree: &Tree) -> String {
    let bugs = bugs(tree);
    let mut text = format!(
        "# Planted bugs\n\n\
         `cargo xtask planted-bugs` generates this file from `{LIST}`; do not edit it.\n\n\
         Each row is a deliberate bug that only builds with the feature `testing` contain. A test \
         plants the bug, runs the\ncode, and fails unless the bug is found. \
         [testing.md](testing.md#planted-bugs) describes the method. Paths start at `{CRATE}`.\n\
         The list has {} bugs.\n",
        bugs.len()
    );
    let mut section = None;
    for bug in &bugs {
        if section != Some(bug.section) {
            section = Some(bug.section);
            let heading = if bug.section.is_empty() { "Bugs" } else { bug.section };
            let _ = write!(
                text,
                "\n## {heading}\n\n| bug | what goes wrong | site | tests |\n|---|---|---|---|\n"
            );
        }
        let sentence = bug.sentence.replace('|', "\\|");
        let _ = writeln!(
            text,
            "| `{}` | {sentence} | {} | {} |",
            bug.name,
            paths(&bug.sites),
            paths(&bug.tests)
        );
    }
    text
}

/// Paths for a cell of the table, without the common prefix.
fn paths(paths: &BTreeSet<&str>) -> String {
    let short = paths.iter().map(|path| format!("`{}`", path.strip_prefix(CRATE).unwrap_or(path)));
    short.collect::<Vec<_>>().join(", ")
}

/// The bugs in the order of the list, with the files that name them.
fn bugs(tree: &Tree) -> Vec<Bug<'_>> {
    let Some(list) = tree.sources.get(LIST) else { return Vec::new() };
    let mut bugs = parse(list);
    for source in tree.sources.values().filter(|source| source.path != LIST) {
        for bug in &mut bugs {
            // The variant alone: some tests name it in a macro, without `Bug::`.
            for offset in source.words(bug.variant) {
                let in_test = source.is_test(offset);
                let files = if in_test { &mut bug.tests } else { &mut bug.sites };
                files.insert(&source.path);
            }
        }
    }
    bugs
}

/// The rows of the list.
fn parse(list: &Source) -> Vec<Bug<'_>> {
    let (mut bugs, mut sentence, mut section) = (Vec::new(), Vec::new(), "");
    for (index, line) in list.text.lines().enumerate() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("/// ") {
            sentence.push(doc);
            continue;
        }
        if let Some((variant, name)) = row(line) {
            bugs.push(Bug {
                line: index + 1,
                variant,
                name,
                sentence: sentence.join(" "),
                section,
                sites: BTreeSet::new(),
                tests: BTreeSet::new(),
            });
        } else if let Some(heading) = line.strip_prefix("// ") {
            section = heading.trim_end_matches('.');
        }
        sentence.clear();
    }
    bugs
}

/// Variant and name of a line `Variant = 7, "name";`.
fn row(line: &str) -> Option<(&str, &str)> {
    let (variant, rest) = line.split_once(" = ")?;
    let (number, name) = rest.split_once(", \"")?;
    number.parse::<u16>().ok()?;
    Some((variant, name.strip_suffix("\";")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "bugs! {\n    // The log.\n    /// A sync reports success\n    \
        /// without a disk.\n    SkipSync = 0, \"skip-sync\";\n}\n";
    const SITE: &str = "fn a() { if active(Bug::SkipSync) {} }\n";
    const TEST: &str = "fn b() { finds(Bug::SkipSync); }\n";

    fn tree(site: &str, test: &str, document: &str) -> Tree {
        Tree::of(&[
            (LIST, LISTED),
            ("crates/quintet/src/wal.rs", site),
            ("crates/quintet/src/wal/tests.rs", test),
            (DOCUMENT, document),
        ])
    }

    fn messages(tree: &Tree) -> String {
        findings(tree).iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_row_names_sentence_site_and_test() {
        let text = render(&tree(SITE, TEST, ""));
        let row = "\n## The log\n\n| bug | what goes wrong | site | tests |\n|---|---|---|---|\n\
            | `skip-sync` | A sync reports success without a disk. | `src/wal.rs` | \
            `src/wal/tests.rs` |\n";
        assert!(text.ends_with(row), "{text}");
        assert_eq!(messages(&tree(SITE, TEST, &text)), "");
    }

    #[test]
    fn a_bug_without_site_or_test_is_found() {
        assert!(messages(&tree("", TEST, "")).contains("mutant/mod.rs:5: error: no code asks for"));
        assert!(messages(&tree(SITE, "", "")).contains("mutant/mod.rs:5: error: no test plants"));
    }

    #[test]
    fn a_document_that_differs_is_found() {
        let text = render(&tree(SITE, TEST, "")).replace("without a disk", "too early");
        let line = text.lines().count();
        let message = format!("{DOCUMENT}:{line}: error: the table is out of date");
        assert!(messages(&tree(SITE, TEST, &text)).contains(&message));
    }
}
