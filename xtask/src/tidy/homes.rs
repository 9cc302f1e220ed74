//! Where modules live.
//!
//! - A module that only one other module uses lives inside that one: beside it, a reader takes it
//!   for something that several share. Top-level modules are layers and exempt.
//! - A module with sub-modules is `x/mod.rs`; there is no `x.rs` beside `x/`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Finding, Tree,
    imports::{File, Imports},
};

pub(super) fn check(tree: &Tree, imports: &Imports<'_>, findings: &mut Vec<Finding>) {
    check_importers(imports, findings);
    for path in tree.sources.keys().filter(|path| path.contains("/src/")) {
        let Some(folder) = path.strip_suffix(".rs") else { continue };
        let is_beside = tree.sources.range(format!("{folder}/")..).next();
        if is_beside.is_some_and(|(next, _)| next.starts_with(&format!("{folder}/"))) {
            let message = format!("a module with sub-modules is `{folder}/mod.rs`");
            findings.push(Finding::of("mod-file", path, path, 1, &message));
        }
    }
}

fn check_importers(imports: &Imports<'_>, findings: &mut Vec<Finding>) {
    let mut importers: BTreeMap<(&str, &[String]), BTreeSet<usize>> = BTreeMap::new();
    for edge in &imports.edges {
        let (from, to) = (&imports.files[edge.from], &imports.files[edge.to]);
        // A `mod.rs` that passes a name on does not use it; the root of a crate publishes it.
        if edge.is_export && !from.module.is_empty() {
            continue;
        }
        for length in 2..=to.module.len() {
            let module = &to.module[..length];
            if !from.module.starts_with(module) {
                importers.entry((to.root, module)).or_default().insert(edge.from);
            }
        }
    }
    for ((root, module), users) in importers {
        let files: Vec<&File<'_>> = users.iter().map(|user| &imports.files[*user]).collect();
        let user = common(&files);
        // A folder's wrong code stands apart, for however few files.
        if module.last().is_some_and(|name| name == "mutants") {
            continue;
        }
        let parent = &module[..module.len() - 1];
        if parent.starts_with(&user) {
            continue;
        }
        let (name, user) = (module.join("/"), user.join("/"));
        let path = file_of(imports, root, module);
        let message = format!("only `{user}` imports `{name}`; it belongs inside");
        findings.push(Finding::of("one-importer", &format!("{root}{name}"), path, 1, &message));
    }
}

/// The innermost module that holds all `files`.
fn common(files: &[&File<'_>]) -> Vec<String> {
    let Some((first, others)) = files.split_first() else { return Vec::new() };
    let mut module = first.module.clone();
    for file in others {
        let same = module.iter().zip(&file.module).take_while(|(a, b)| a == b).count();
        module.truncate(same);
    }
    module
}

/// The path of a module's file.
fn file_of<'a>(imports: &'a Imports<'_>, root: &str, module: &[String]) -> &'a str {
    let mut files = imports.files.iter();
    let file = files.find(|file| file.root == root && file.module == module);
    file.map_or("", |file| &file.source.path)
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;

    #[test]
    fn a_module_with_one_importer_lives_inside_it() {
        let files = [
            ("wal/mod.rs", "mod a;\nmod b;\nmod c;\nfn f() { a::f(); c::f(); }\n"),
            ("wal/a.rs", "use super::b::f as g;\npub fn f() { g() }\n"),
            ("wal/b.rs", "pub fn f() {}\n"),
            ("wal/c.rs", "pub fn f() {}\n"),
        ];
        let said = library("mod wal;", &files);
        assert_finds(&said, "wal/b.rs:1:", "only `wal/a` imports `wal/b`");
        assert!(!said.contains("wal/a.rs:") && !said.contains("wal/c.rs:"), "{said}");
    }

    #[test]
    fn a_folder_used_by_one_folder_lives_inside_it() {
        let files = [
            ("util/mod.rs", "pub mod a;\n"),
            ("util/a/mod.rs", "pub fn f() {}\n"),
            ("wal/mod.rs", "mod x;\nmod y;\nfn f() { x::f(); y::f(); }\n"),
            ("wal/x.rs", "pub fn f() { crate::util::a::f() }\n"),
            ("wal/y.rs", "use crate::util::a;\npub fn f() { a::f() }\n"),
        ];
        let said = library("mod util;\nmod wal;", &files);
        assert_finds(&said, "util/a/mod.rs:1:", "only `wal` imports `util/a`");
    }

    #[test]
    fn two_importers_or_the_parent_are_sound() {
        let files = [
            ("util/mod.rs", "pub mod a;\n"),
            ("util/a.rs", "pub fn f() {}\n"),
            ("io.rs", "use crate::util::a::f;\n"),
            ("wal.rs", "use crate::util::a::f;\n"),
        ];
        assert_eq!(library("mod util;\nmod io;\nmod wal;", &files), "");
    }

    #[test]
    fn a_module_with_sub_modules_is_a_mod_file() {
        let files = [("wal.rs", "mod a;\n"), ("wal/a.rs", "\n")];
        let said = library("mod wal;", &files);
        assert_finds(&said, "src/wal.rs:1:", "`crates/quintet/src/wal/mod.rs`");
        let files = [("wal/mod.rs", "mod a;\n"), ("wal/a.rs", "\n")];
        assert_eq!(library("mod wal;", &files), "");
    }
}
