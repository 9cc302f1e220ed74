//! Every source file is reachable from a crate root by `mod` items: no dead files.

use std::collections::BTreeSet;

use super::{Finding, Tree, source::Source};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut waiting: Vec<&Source> =
        tree.sources.values().filter(|source| is_root(&source.path)).collect();
    while let Some(source) = waiting.pop() {
        if !reached.insert(&source.path) {
            continue;
        }
        for module in source.declared_modules() {
            let folder = source.child_folder();
            let file = format!("{folder}/{}.rs", module.name);
            let index = format!("{folder}/{}/mod.rs", module.name);
            waiting.extend(tree.sources.get(&file).or_else(|| tree.sources.get(&index)));
        }
        waiting.extend(named_paths(source).filter_map(|path| tree.sources.get(&path)));
    }
    for path in tree.sources.keys().filter(|path| !reached.contains(path.as_str())) {
        let message = "no `mod` item leads here: a dead file";
        findings.push(Finding::error(path, 1, message));
    }
}

/// The files that `#[path = "..."]` names, from the root of the repository.
fn named_paths(source: &Source) -> impl Iterator<Item = String> + '_ {
    let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    source.text.lines().filter_map(move |line| {
        let named = line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")?;
        let mut parts: Vec<&str> = folder.split('/').collect();
        for part in named.split('/') {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        Some(parts.join("/"))
    })
}

/// Whether Cargo starts a crate at this file.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [.., "build.rs"]
        | [.., "src", "lib.rs" | "main.rs"]
        | [.., "src", "bin", _]
        | [.., "tests" | "examples" | "benches", _, "main.rs"] => true,
        [before @ .., "tests" | "examples" | "benches" | "fuzz_targets", _] => {
            !before.contains(&"src")
        }
        _ => false,
    }
}
