//! Layers of the library: the folder list is the architecture.
//!
//! - Imports (`crate::`, `super::`, and paths in code) only name layers that [`LAYERS`] allows.
//! - Engines do not name one another.
//! - Only `io` calls the operating system: files, threads, clocks, system calls.
//!
//! Unit tests are free to import what they like.

use super::{Finding, LIBRARY, Tree, paths, source::Source};

/// Modules below all layers. They may name one another.
const BASE: [&str; 1] = ["util"];

/// A layer and the layers that it may name, besides itself and [`BASE`].
const LAYERS: [(&str, &[&str]); 10] = [
    ("io", &[]),
    ("contract", &["io"]),
    ("wal", &["io"]),
    ("journal", &["io"]),
    ("pmem", &["journal", "io"]),
    ("bptree", &["journal", "contract", "io"]),
    ("lsm", &["contract", "io"]),
    ("engine", &["lsm", "bptree", "journal", "contract", "io"]),
    ("db", &["engine", "contract", "wal", "io"]),
    ("inspect", &["db", "engine", "contract", "wal", "io"]),
];

/// The engines: folders or files of `engine/`.
const ENGINES: [&str; 6] = ["naive", "hashlog", "trie", "btree", "slm", "tph"];

/// Paths that only `io` may name.
const SYSTEM: [&str; 11] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::time::Instant",
    "std::thread::spawn",
    "std::thread::Builder",
    "std::thread::scope",
    "std::thread::sleep",
    "rustix",
    "io_uring",
];

/// What the same look like behind `use std::thread;` and the like. `SystemTime` is also a type of
/// the public surface; only asking for the time is the clock.
const SYSTEM_CALLS: [&str; 6] = [
    "thread::spawn",
    "thread::Builder",
    "thread::scope",
    "thread::sleep",
    "Instant::now",
    "SystemTime::now",
];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let exports = tree.sources.get(&format!("{LIBRARY}lib.rs")).map(root_exports);
    let exports = exports.unwrap_or_default();
    for (path, source) in tree.library() {
        if path == "lib.rs" {
            continue;
        }
        let module = module_path(path);
        check_imports(source, &module, &exports, findings);
        if module.first().is_some_and(|layer| layer != "io") {
            check_system(source, findings);
        }
    }
}

/// `disk/os/file.rs` is `disk::os::file`, `disk/mod.rs` is `disk`.
pub(super) fn module_path(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

/// Names that `lib.rs` re-exports, each with the top module that it comes from.
fn root_exports(source: &Source) -> Vec<(String, String)> {
    let mut exports = Vec::new();
    for (offset, _) in source.code.match_indices("pub use ") {
        let Some(end) = source.code[offset..].find(';') else { continue };
        // Read as a path below `crate`, so that one parser serves.
        let text = format!("crate::{};", &source.code[offset + "pub use ".len()..offset + end]);
        let text = text.replace("crate::self::", "crate::").replace("crate::crate::", "crate::");
        for named in paths::starting_with(&Source::new("lib.rs", text), "crate") {
            if let [_, module, .., name] = named.parts.as_slice() {
                exports.push((name.clone(), module.clone()));
            }
        }
    }
    exports
}

fn check_imports(
    source: &Source,
    module: &[String],
    exports: &[(String, String)],
    findings: &mut Vec<Finding>,
) {
    let Some(layer) = module.first() else { return };
    if !BASE.contains(&layer.as_str()) && !LAYERS.iter().any(|(name, _)| name == layer) {
        findings.push(Finding::error(
            &source.path,
            1,
            format!("`{layer}` is not a known layer; give it a place in xtask/src/tidy/layers.rs"),
        ));
        return;
    }
    let named = ["crate", "super"].into_iter().flat_map(|root| paths::starting_with(source, root));
    for named in named.filter(|named| !source.is_test(named.offset)) {
        let Some(target) = resolve(source, module, &named) else { continue };
        let target = through_exports(target, exports);
        if let Some(why) = refusal(module, &target) {
            let line = source.line_of(named.offset);
            let name = named.parts.join("::");
            findings.push(Finding::error(&source.path, line, format!("`{name}`: {why}")));
        }
    }
}

/// The path from the root of the crate that `named` means, or `None` where it leads nowhere.
fn resolve(source: &Source, module: &[String], named: &paths::Named) -> Option<Vec<String>> {
    let mut here: Vec<String> = Vec::new();
    if named.parts.first()? != "crate" {
        here.extend(module.iter().cloned());
        here.extend(source.inline_modules(named.offset).into_iter().map(str::to_owned));
    }
    for part in &named.parts {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => {
                here.pop()?;
            }
            name => here.push(name.to_owned()),
        }
    }
    Some(here)
}

fn through_exports(mut target: Vec<String>, exports: &[(String, String)]) -> Vec<String> {
    let from = target.first().and_then(|name| exports.iter().find(|(export, _)| export == name));
    if let Some((_, module)) = from {
        target.insert(0, module.clone());
    }
    target
}

/// Why `module` may not name `target`; `None` where it may.
fn refusal(module: &[String], target: &[String]) -> Option<String> {
    let (from, to) = (module.first()?.as_str(), target.first()?.as_str());
    if from == "engine" && to == "engine" {
        return engine_refusal(module, target);
    }
    if from == to || BASE.contains(&to) {
        return None;
    }
    let known = LAYERS.iter().any(|(name, _)| *name == to);
    let allowed =
        LAYERS.iter().find(|(name, _)| *name == from).map_or(&[][..], |(_, allowed)| allowed);
    if !known || allowed.contains(&to) {
        return None;
    }
    let list = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
    Some(format!("layer `{from}` may not import `{to}` (below it: {list})"))
}

fn engine_refusal(module: &[String], target: &[String]) -> Option<String> {
    let engine =
        |path: &[String]| path.get(1).filter(|name| ENGINES.contains(&name.as_str())).cloned();
    let (from, to) = (engine(module)?, engine(target)?);
    (from != to).then(|| {
        format!("engine `{from}` may not import engine `{to}`; what two engines share moves down")
    })
}

fn check_system(source: &Source, findings: &mut Vec<Finding>) {
    let mut refuse = |offset: usize, name: &str| {
        if !source.is_test(offset) {
            let line = source.line_of(offset);
            let message = format!("`{name}`: only `io` calls the operating system");
            findings.push(Finding::error(&source.path, line, message));
        }
    };
    for root in ["std", "rustix", "io_uring"] {
        for named in paths::starting_with(source, root) {
            let name = named.parts.join("::");
            let is_system =
                |system: &&&str| name == **system || name.starts_with(&format!("{system}::"));
            if let Some(system) = SYSTEM.iter().find(is_system) {
                refuse(named.offset, system);
            }
        }
    }
    for call in SYSTEM_CALLS {
        for offset in source.words(call) {
            refuse(offset, call);
        }
    }
}
