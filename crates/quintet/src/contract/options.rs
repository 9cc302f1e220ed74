//! Which engine a table uses, and its options by name.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{Error, Result, util::types::TableTypes};

/// The index structures. Parses from and prints as its lower-case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// A hash table with whole snapshots: the baseline (LogKV's NaiveKV).
    Naive,
    /// Append-only chunks and a hash table in memory (LogKV).
    HashLog,
    /// A memory-mapped lazy-trie over key hashes (CedrusDB).
    Trie,
    /// A concurrent B+-tree over a direct-I/O page cache (ckvs).
    BTree,
    /// One level of sorted runs under a persistent B+-tree index (SLM-DB).
    Slm,
    /// An LSM of two-tier perfect-hash tables (CompassDB).
    Tph,
}

impl EngineKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Naive, Self::HashLog, Self::Trie, Self::BTree, Self::Slm, Self::Tph];
    /// The kinds that this build can open.
    pub const AVAILABLE: &[Self] =
        &[Self::Naive, Self::HashLog, Self::Trie, Self::BTree, Self::Slm, Self::Tph];

    /// Names of the kinds that this build can open, for messages.
    pub fn available() -> String {
        Self::AVAILABLE.iter().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    /// The error for a kind that this build cannot open.
    pub fn unknown(name: &str) -> Error {
        Error::UnknownEngine { name: name.to_owned(), available: Self::available() }
    }

    /// The name.
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

    /// Whether its tables have key order and so ranges.
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

/// The engine of a new table and its options.
///
/// `docs/reference/options.md` lists the options of each engine. The engine checks them when the
/// table is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    kind: EngineKind,
    settings: BTreeMap<String, String>,
    types: Option<TableTypes>,
}

impl TableOptions {
    /// A table of this engine with its default options.
    pub fn new(kind: EngineKind) -> Self {
        Self { kind, settings: BTreeMap::new(), types: None }
    }

    /// Sets an engine option, as `--option name=value` does on the command line.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Fixes the types of keys and values. Writes of other bytes fail with
    /// [`Error::TypeMismatch`]. Without, a table takes any bytes.
    #[must_use]
    pub fn types(mut self, types: TableTypes) -> Self {
        self.types = Some(types);
        self
    }

    /// The types, if they were fixed.
    pub fn table_types(&self) -> Option<&TableTypes> {
        self.types.as_ref()
    }

    /// The engine.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// The options that were set, by name.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Refuses an engine that this build lacks.
    pub(crate) fn check(&self) -> Result<()> {
        if EngineKind::AVAILABLE.contains(&self.kind) {
            return Ok(());
        }
        Err(EngineKind::unknown(self.kind.name()))
    }

    /// Refuses any option that is not in `known`.
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

    /// The value of an option that is one of `words`, the first of them where it was not set.
    pub fn word<'a>(&self, name: &str, words: &[&'a str]) -> Result<&'a str> {
        let text = self.settings.get(name).map(String::as_str);
        let found = text.map_or(words.first(), |text| words.iter().find(|word| **word == text));
        found.copied().ok_or_else(|| Error::InvalidOption {
            name: name.to_owned(),
            what: format!("{:?} is none of: {}", text.unwrap_or_default(), words.join(", ")),
        })
    }

    /// The value of a numeric option within `allowed`, or `default` where it was not set.
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
