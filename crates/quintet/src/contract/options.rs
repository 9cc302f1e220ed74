//! The engine of a table, and its options by name.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{Error, Result, util::types::TableTypes};

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

    /// Returns the names of this build's engines, separated by commas.
    pub fn available() -> String {
        Self::AVAILABLE.iter().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// Builds [`Error::UnknownEngine`] for `name`.
    pub fn unknown(name: &str) -> Error {
        Error::UnknownEngine { name: name.to_owned(), available: Self::available() }
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

    /// Returns whether each entry of a table is a heap allocation of its own.
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

/// The engine, engine options and types of a new table.
///
/// Option names: `docs/reference/options.md`.
/// [`Database::create_table`](crate::Database::create_table) checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    kind: EngineKind,
    settings: BTreeMap<String, String>,
    types: Option<TableTypes>,
}

impl TableOptions {
    /// Returns the default options of this engine.
    pub fn new(kind: EngineKind) -> Self {
        Self { kind, settings: BTreeMap::new(), types: None }
    }

    /// Sets an engine option by name, as `--option name=value` does on the command line. Unchecked
    /// until the table is created.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Fixes the types of keys and values. Writes of other bytes fail with [`Error::TypeMismatch`].
    /// Without types, a table accepts any bytes.
    #[must_use]
    pub fn types(mut self, types: TableTypes) -> Self {
        self.types = Some(types);
        self
    }

    /// Returns the types, if they are fixed.
    pub fn table_types(&self) -> Option<&TableTypes> {
        self.types.as_ref()
    }

    /// Returns the engine.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Returns the options that were set, by name.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Fails with [`Error::UnknownEngine`] if this build lacks the engine.
    pub(crate) fn check(&self) -> Result<()> {
        if EngineKind::AVAILABLE.contains(&self.kind) {
            return Ok(());
        }
        Err(EngineKind::unknown(self.kind.name()))
    }

    /// Fails with [`Error::InvalidOption`] if an option is not in `known`.
    pub fn check_names(&self, known: &[&str]) -> Result<()> {
        match self.settings.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Error::InvalidOption {
                name: name.clone(),
                what: format!(
                    "the {} engine has no such option; it has: {}",
                    self.kind,
                    known.join(", ")
                ),
            }),
        }
    }

    /// Returns the option's value, which must be one of `words`; the first of them if it is not
    /// set.
    pub fn word<'a>(&self, name: &str, words: &[&'a str]) -> Result<&'a str> {
        let text = self.settings.get(name).map(String::as_str);
        let found = text.map_or(words.first(), |text| words.iter().find(|word| **word == text));
        found.copied().ok_or_else(|| Error::InvalidOption {
            name: name.to_owned(),
            what: format!("{:?} is none of: {}", text.unwrap_or_default(), words.join(", ")),
        })
    }

    /// Returns the option's value, which must be a whole number in `allowed`; `default` if it is
    /// not set.
    pub fn number(
        &self,
        name: &str,
        default: u64,
        allowed: std::ops::RangeInclusive<u64>,
    ) -> Result<u64> {
        let Some(text) = self.settings.get(name) else { return Ok(default) };
        text.parse().ok().filter(|value| allowed.contains(value)).ok_or_else(|| {
            Error::InvalidOption {
                name: name.to_owned(),
                what: format!(
                    "{text:?} is not a whole number from {} to {}",
                    allowed.start(),
                    allowed.end()
                ),
            }
        })
    }
}
