//! Paths of sources and folders in the documents that guide a reader through the code.
//!
//! A path is a code span that ends in `.rs` or `/`. It starts at the root of the repository, at the
//! sources of the library, or at a folder that the same line names before it. In a table that
//! includes the folder in the first column of the row. Links are the business of `documents`.
//!
//! Invariant: a path with a capital letter, such as `engine/NAME/mod.rs`, is a placeholder and is
//! not checked.

use std::{collections::BTreeSet, path::Path};

use super::{Finding, Tree, documents::prose, tree::LIBRARY};

/// The documents with paths of today. Others, such as decisions, state the past.
const DOCUMENTS: [&str; 5] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "UNSAFE.md", "docs/hacking.md", "docs/testing.md"];
/// Folders of further such documents.
const FOLDERS: [&str; 2] = ["docs/engines/", "docs/reference/"];
/// Where the paths of `docs/testing.md` start.
const TESTS: &str = "crates/quintet/tests/";

/// Reports paths that do not exist.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let files: BTreeSet<&str> = tree.names.iter().map(String::as_str).collect();
    for (path, text) in tree.documents() {
        if !DOCUMENTS.contains(&path) && !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for (line, content) in prose(text) {
            let mut bases = vec![String::new(), LIBRARY.to_owned()];
            if path == "docs/testing.md" {
                bases.push(TESTS.to_owned());
            }
            for named in paths(content) {
                let Some(found) = resolve(named, &bases, &files) else {
                    let message = format!("`{named}` does not exist; write the path of today");
                    findings.push(Finding::error(path, line, message));
                    continue;
                };
                let folder = found.rfind('/').map_or("", |end| &found[..=end]).to_owned();
                bases.push(folder);
            }
        }
    }
}

/// The code spans of a line that are paths.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c);
        let is_source = Path::new(span).extension().is_some_and(|extension| extension == "rs");
        (is_source || span.ends_with('/')) && !span.starts_with('/') && span.chars().all(is_path)
    })
}

/// The first place below `bases` where `named` exists, with a `/` at the end of a folder.
fn resolve(named: &str, bases: &[String], files: &BTreeSet<&str>) -> Option<String> {
    let mut candidates = bases.iter().map(|base| format!("{base}{named}"));
    candidates.find(|path| files.contains(path.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_finds, says};

    fn document(text: &str) -> String {
        let text = format!("# Map\n\n{text}\n");
        let files = [
            ("ARCHITECTURE.md", text.as_str()),
            ("fuzz/seeds/.gitkeep", ""),
            ("fuzz", ""),
            ("crates/quintet/src/lib.rs", "#![deny(unsafe_code)]\nmod wal;\n"),
            ("crates/quintet/src/wal", ""),
            ("crates/quintet/src/wal/mod.rs", "mod log;\n"),
            ("crates/quintet/src/wal/log.rs", "\n"),
        ];
        says(&files)
    }

    #[test]
    fn paths_start_at_the_root_the_library_or_a_folder_of_the_line() {
        assert_eq!(document("`crates/quintet/src/wal/log.rs`, `wal/log.rs`, `fuzz/`, `wal/`"), "");
        assert_eq!(document("| folder | file |\n|---|---|\n| `wal/` | `log.rs` |"), "");
        assert_finds(&document("`log.rs` is in `wal/`"), "ARCHITECTURE.md:3:", "`log.rs`");
    }

    #[test]
    fn a_path_that_is_gone_is_found() {
        let said = document("Start at `wal/group.rs`, then `disk/`.");
        assert_finds(&said, "ARCHITECTURE.md:3:", "`wal/group.rs` does not exist");
        assert_finds(&said, "ARCHITECTURE.md:3:", "`disk/` does not exist");
    }

    #[test]
    fn placeholders_and_code_blocks_are_left_out() {
        assert_eq!(document("`engine/NAME/mod.rs` and `engine/NAME/`"), "");
        assert_eq!(document("```\n`wal/group.rs`\n```"), "");
    }

    #[test]
    fn other_documents_may_name_the_past() {
        let said = says(&[("docs/decisions/001-log.md", "# Log\n\n`disk/brake.rs`\n")]);
        assert_eq!(said, "");
    }
}
