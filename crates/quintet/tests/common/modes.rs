//! The modes of each engine: what every shared suite runs.

use quintet::{EngineKind, TableOptions};

/// Options that give an engine another design.
pub type Mode = &'static [(&'static str, &'static str)];

/// Limit of a pool in these suites. A pool of this size is a small file and has room for the index
/// of every suite.
const POOL: (&str, &str) = ("pmem_bytes", "8388608");

/// Returns the modes of an engine. The first is the default.
pub const fn modes(engine: EngineKind) -> &'static [Mode] {
    match engine {
        EngineKind::Trie => &[
            &[],
            &[("layout", "chain"), ("hash", "none")],
            &[("hash", "none")],
            &[("layout", "chain")],
        ],
        EngineKind::Tph => &[
            &[],
            &[("tiers", "two")],
            &[("tiers", "two"), ("mode", "hash_range")],
            &[("tiers", "two"), ("mode", "one_level")],
        ],
        EngineKind::Slm => &[
            &[],
            &[("medium", "pmem"), POOL],
            &[("memtable", "pmem"), ("index", "pages"), POOL],
            &[("memtable", "dram"), ("index", "pmem"), POOL],
        ],
        EngineKind::Naive | EngineKind::HashLog | EngineKind::BTree => &[&[]],
    }
}

/// Sets the options of a mode.
pub fn with_mode(options: TableOptions, mode: Mode) -> TableOptions {
    mode.iter().fold(options, |options, (name, value)| options.set(*name, *value))
}
