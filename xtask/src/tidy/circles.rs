//! No circles: neither of files that import one another, nor of the modules of one folder.
//!
//! The modules of a folder are its files and sub-folders and the `mod.rs` of the folder. Two
//! folders can be tied by four files that form no circle themselves. A file or module of a circle
//! is a finding each, so that the list of exceptions does not depend on who else is in the circle.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Finding,
    imports::{File, Imports},
};

/// Members of a circle that a message names.
const NAMED_MAX: usize = 12;

pub(super) fn check(imports: &Imports<'_>, findings: &mut Vec<Finding>) {
    let edges: BTreeSet<(String, String)> = imports
        .edges
        .iter()
        .map(|edge| (path(&imports.files[edge.from]), path(&imports.files[edge.to])))
        .collect();
    let files = circles(&edges);
    report("file-circle", "files that import one another", &files, findings);
    let known: BTreeSet<&String> = files.iter().flatten().collect();
    for edges in folders(imports).values() {
        let mut modules = circles(edges);
        // Where the files are a circle themselves, that has been said.
        modules.retain(|circle| !circle.iter().all(|module| known.contains(module)));
        report("folder-circle", "modules of a folder that import one another", &modules, findings);
    }
}

fn path(file: &File<'_>) -> String {
    file.source.path.clone()
}

fn report(rule: &'static str, what: &str, circles: &[Vec<String>], findings: &mut Vec<Finding>) {
    for circle in circles {
        let mut names = circle[..circle.len().min(NAMED_MAX)].join(", ");
        if circle.len() > NAMED_MAX {
            names.push_str(", ...");
        }
        let message = format!("a circle of {} {what}: {names}", circle.len());
        for member in circle {
            findings.push(Finding::of(rule, member, member, 1, &message));
        }
    }
}

/// For each folder, which of its modules import which. Modules are named by their paths.
fn folders(imports: &Imports<'_>) -> BTreeMap<String, BTreeSet<(String, String)>> {
    let mut folders: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for edge in &imports.edges {
        let (from, to) =
            (&imports.files[edge.from].source.path, &imports.files[edge.to].source.path);
        let same = from.split('/').zip(to.split('/')).take_while(|(a, b)| a == b).count();
        let folder: Vec<&str> = from.split('/').take(same).collect();
        let module = |path: &str| path.split('/').take(same + 1).collect::<Vec<_>>().join("/");
        folders.entry(folder.join("/")).or_default().insert((module(from), module(to)));
    }
    folders
}

/// The strongly connected components with more than one member, each in order.
fn circles(edges: &BTreeSet<(String, String)>) -> Vec<Vec<String>> {
    let mut onward: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut back: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in edges {
        onward.entry(from).or_default().push(to);
        back.entry(to).or_default().push(from);
    }
    // Kosaraju: in the order in which a first search leaves them, a search backwards finds each.
    let mut seen = BTreeSet::new();
    let mut left = Vec::new();
    for start in onward.keys() {
        search(start, &onward, &mut seen, &mut left);
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in left.iter().rev() {
        let mut circle = Vec::new();
        search(start, &back, &mut seen, &mut circle);
        if circle.len() > 1 {
            let mut circle: Vec<String> = circle.into_iter().map(str::to_owned).collect();
            circle.sort();
            found.push(circle);
        }
    }
    found
}

/// Appends what is reached from `start` and was not seen before to `left`, each behind its own.
fn search<'a>(
    start: &'a str,
    edges: &BTreeMap<&'a str, Vec<&'a str>>,
    seen: &mut BTreeSet<&'a str>,
    left: &mut Vec<&'a str>,
) {
    if !seen.insert(start) {
        return;
    }
    for next in edges.get(start).into_iter().flatten() {
        search(next, edges, seen, left);
    }
    left.push(start);
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;

    #[test]
    fn a_circle_of_files_is_found() {
        let files = [
            ("wal/mod.rs", "mod a;\nmod b;\nmod c;\n"),
            ("wal/a.rs", "use super::b::B;\npub struct A;\n"),
            ("wal/b.rs", "pub struct B;\nfn f() { crate::wal::c::f() }\n"),
            ("wal/c.rs", "use crate::wal::{a};\npub fn f(_: a::A) {}\n"),
        ];
        let said = library("mod wal;", &files);
        for file in ["a", "b", "c"] {
            assert_finds(&said, &format!("wal/{file}.rs:1:"), "a circle of 3 files");
        }
        assert!(!said.contains("wal/mod.rs:"), "{said}");
    }

    #[test]
    fn a_child_that_uses_what_its_parent_defines_ties_them() {
        let parent = "mod a;\npub struct P;\nfn f() { a::f(P) }\n";
        let files = [("wal/mod.rs", parent), ("wal/a.rs", "use super::P;\npub fn f(_: P) {}\n")];
        let said = library("mod wal;", &files);
        assert_finds(&said, "wal/mod.rs:1:", "a circle of 2 files");
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_name() {
        let files = [
            ("wal/mod.rs", "mod a;\nmod b;\npub use a::A;\npub use self::b::f as g;\n"),
            ("wal/a.rs", "pub struct A;\n"),
            ("wal/b.rs", "use super::A;\npub fn f(_: A) {}\n"),
        ];
        let said = library("mod wal;", &files);
        assert!(!said.contains("circle"), "{said}");
        let files = [
            ("wal/mod.rs", "mod a;\nmod b;\npub use a::*;\npub use self::b::f as g;\n"),
            ("wal/a.rs", "use super::g;\npub struct A;\n"),
            ("wal/b.rs", "use super::A;\npub fn f(_: A) {}\n"),
        ];
        assert_finds(&library("mod wal;", &files), "wal/a.rs:1:", "a circle of 2 files");
    }

    #[test]
    fn folders_tied_by_files_that_form_no_circle_are_found() {
        let files = [
            ("wal/mod.rs", "mod x;\nmod y;\n"),
            ("wal/x/mod.rs", "pub mod a;\npub mod b;\n"),
            ("wal/x/a.rs", "use crate::wal::y::a::A;\n"),
            ("wal/x/b.rs", "pub struct B;\n"),
            ("wal/y/mod.rs", "pub mod a;\npub mod b;\n"),
            ("wal/y/a.rs", "pub struct A;\n"),
            ("wal/y/b.rs", "use crate::wal::x::b::B;\n"),
        ];
        let said = library("mod wal;", &files);
        assert_finds(&said, "src/wal/x:1:", "a circle of 2 modules of a folder");
        assert!(!said.contains("file-circle"), "{said}");
    }

    #[test]
    fn tests_tie_nothing() {
        let a = "use super::b::B;\npub struct A;\n";
        let files = [
            ("wal/mod.rs", "mod a;\nmod b;\n"),
            ("wal/a.rs", a),
            (
                "wal/b.rs",
                "pub struct B;\n#[cfg(test)]\nuse super::a::A;\n\
                #[cfg(test)]\nmod tests { use crate::wal::a::A; }\n",
            ),
        ];
        let said = library("mod wal;", &files);
        assert!(!said.contains("circle"), "{said}");
    }
}
