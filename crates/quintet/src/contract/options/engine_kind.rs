//! The kinds of engines.

use std::{fmt, str::FromStr};

use crate::{Error, Result};

/// The engine of a table. Displays and parses as its lower-case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// Hash table in memory with snapshots of the whole table; the baseline (LogKV's NaiveKV).
    /// Unordered.
    Naive,
    /// Append-only chunks under a hash index in memory (LogKV). Unordered.
    HashLog,
    /// Records found through a lazy-trie over key hashes (CedrusDB). Unordered.
    Trie,
    /// B+-tree over a page cache with direct I/O (ckvs). Ordered.
    BTree,
    /// One level of sorted files under a B+-tree index (SLM-DB). Ordered.
    Slm,
    /// LSM tree whose tables have perfect-hash indexes (CompassDB). Ordered.
    Tph,
}

impl EngineKind {
    /// All engines, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Naive, Self::HashLog, Self::Trie, Self::BTree, Self::Slm, Self::Tph];
    /// The engines of this build.
    pub const AVAILABLE: &[Self] =
        &[Self::Naive, Self::HashLog, Self::Trie, Self::BTree, Self::Slm, Self::Tph];

    /// Builds [`Error::UnknownEngine`] for `name`.
    pub(crate) fn unknown(name: &str) -> Error {
        let available: Vec<_> = Self::AVAILABLE.iter().map(Self::name).collect();
        Error::UnknownEngine { name: name.to_owned(), available: available.join(", ") }
    }

    /// Returns the lower-case name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::HashLog => "hashlog",
            Self::Trie => "trie",
            Self::BTree => "btree",
            Self::Slm => "slm",
            Self::Tph => "tph",
        }
    }

    /// Returns whether each entry of a table is its own heap allocation.
    pub(crate) const fn allocates_per_entry(self) -> bool {
        matches!(self, Self::Naive)
    }

    /// Returns whether tables of this engine keep key order and have ranges.
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::BTree | Self::Slm | Self::Tph)
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| Self::unknown(name))
    }
}
