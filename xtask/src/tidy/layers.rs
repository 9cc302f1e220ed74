//! Layers of the library: the folder list is the architecture.
//!
//! - A file imports only from folders that [`LAYERS`] allows for its own.
//! - Engines do not import one another: none has another in its row.
//! - Only `io` calls the operating system: files, threads, clocks, system calls.
//!
//! Unit tests are free to import what they like.

use super::{
    Finding, Tree,
    imports::{File, Imports},
    paths,
    source::Source,
    tree::LIBRARY,
};

/// Folders below all layers. They may import one another.
const BASE: [&str; 1] = ["util"];

/// What an engine may import.
const BELOW_ENGINES: &[&str] =
    &["record_store", "lsm", "bptree", "pmem", "journal", "contract", "io"];

/// A folder, and the folders that its files may import besides itself and [`BASE`].
///
/// The row with the longest path counts. A folder sees its sub-folders; a sub-folder with a row
/// of its own sees the folder around it only if the row says so.
const LAYERS: [(&str, &[&str]); 16] = [
    ("io", &[]),
    ("contract", &["io"]),
    ("wal", &["io"]),
    ("journal", &["io"]),
    ("pmem", &["journal", "io"]),
    ("bptree", &["journal", "contract", "io"]),
    ("lsm", &["pmem", "contract", "io"]),
    ("record_store", &["io"]),
    ("engine", &["contract", "io"]),
    ("engine/naive", BELOW_ENGINES),
    ("engine/hashlog", BELOW_ENGINES),
    ("engine/trie", BELOW_ENGINES),
    ("engine/btree", BELOW_ENGINES),
    ("engine/slm", BELOW_ENGINES),
    ("engine/tph", BELOW_ENGINES),
    ("db", &["engine", "lsm", "contract", "wal", "io"]),
];

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

pub(super) fn check(tree: &Tree, imports: &Imports<'_>, findings: &mut Vec<Finding>) {
    for (path, source) in tree.library().filter(|(path, _)| *path != "lib.rs") {
        let layer = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        if !BASE.contains(&layer) && row(layer).is_none() {
            let message = format!(
                "`{layer}` is not a known layer; give it a row in xtask/src/tidy/layers.rs"
            );
            findings.push(Finding::error(&source.path, 1, message));
        }
        if layer != "io" {
            check_system(source, findings);
        }
    }
    for edge in &imports.edges {
        let (from, to) = (&imports.files[edge.from], &imports.files[edge.to]);
        if let Some(message) = refusal(from, to).filter(|_| from.root == LIBRARY) {
            let line = from.source.line_of(edge.offset);
            let path = &from.source.path;
            findings.push(Finding::of("layer", path, path, line, &message));
        }
    }
}

/// The row of the table that counts for a module.
fn row(module: &str) -> Option<(&'static str, &'static [&'static str])> {
    let rows = LAYERS.iter().filter(|(folder, _)| is_within(module, folder));
    rows.max_by_key(|(folder, _)| folder.len()).copied()
}

/// Whether `module` is `folder` or in it.
fn is_within(module: &str, folder: &str) -> bool {
    module.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Why a file may not import from another; `None` if it may.
fn refusal(from: &File<'_>, to: &File<'_>) -> Option<String> {
    let target = to.module.join("/");
    let (layer, allowed) = row(&from.module.join("/"))?;
    let (other, _) = row(&target)?;
    // A folder sees what is in it, and `engine/mod.rs` its engines.
    if is_within(other, layer) || allowed.iter().any(|folder| is_within(&target, folder)) {
        return None;
    }
    let list = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
    Some(format!("layer `{layer}` may not import `{target}` (below it: {list})"))
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
