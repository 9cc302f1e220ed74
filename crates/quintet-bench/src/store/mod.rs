//! The interface of measured stores: the traits [`Store`] and [`Stores`].
//!
//! [`Store`] is an open store. [`Stores`] is a set of stores by name. [`crate::builtin`] has the
//! set of this crate: each engine of Quintet, `floor`, `hashbrown` and `null`. Another crate adds
//! stores by implementing both traits and passing its set to [`crate::cli::run_with`] or
//! [`crate::comparison::run`].
//!
//! Thread rules: many threads use one store at the same time through `&self`.

mod callbacks;
pub mod conformance;
mod info;
mod transaction;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use self::{
    callbacks::{ChangeValue, EachEntry, EachFound, NextEntry},
    info::{Family, MemoryMode, Setting, StoreInfo},
    transaction::{
        StoreFeature, StoreTable, StoreTransaction, TransactionBody, TransactionMode,
        TransactionalStore,
    },
};

use crate::failure::{Failure, Outcome};

/// Durability of a returned write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The write survives the end of the process.
    Buffered,
    /// The write survives a power failure.
    Sync,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Buffered => "buffered",
            Self::Sync => "sync",
        })
    }
}

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Directory of the store. It exists, and is empty if the store is new.
    pub dir: PathBuf,
    /// Durability of a returned write. Stores without files ignore it.
    pub durability: Durability,
    /// Maximum number of records, for stores of fixed capacity.
    pub records_max: u64,
    /// Maximum bytes of keys and values that the run writes, for stores that never reuse memory.
    pub bytes_written_max: u64,
    /// Memory of the run; the store uses its own default if `None`.
    pub memory: Option<MemoryMode>,
    /// The store's own options, by name.
    pub settings: Vec<(String, String)>,
}

impl StoreOptions {
    /// Returns the memory budget of the store in bytes, if the run sets one.
    pub fn memory_budget(&self) -> Option<u64> {
        self.memory.map(MemoryMode::budget_bytes)
    }

    /// Returns whether reads bypass the page cache.
    pub fn is_direct(&self) -> bool {
        matches!(self.memory, Some(MemoryMode::Direct { .. }))
    }

    /// Returns the options of the command line or a preset, as settings with their reason.
    pub fn requested_settings(&self) -> impl Iterator<Item = Setting> {
        self.settings.iter().map(|(name, value)| Setting {
            name: name.clone(),
            value: value.clone(),
            reason: "requested by the command line or the preset".to_owned(),
        })
    }

    /// Returns whether a returned write must survive a power failure.
    pub fn is_synced(&self) -> bool {
        self.durability == Durability::Sync
    }
}

/// Statistics of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Live keys; `None` if the store does not count them.
    pub keys: Option<u64>,
    /// Bytes of live keys and values; `None` if the store does not count them.
    pub live_bytes: Option<u64>,
    /// Bytes of memory that the store accounts for; `None` if it does not.
    pub memory_bytes: Option<u64>,
    /// Bytes of `memory_bytes` that locate keys instead of holding records.
    pub index_bytes: Option<u64>,
    /// Further counters, by the store's own names.
    pub details: BTreeMap<String, u64>,
}

/// One open store.
pub trait Store: Send + Sync {
    /// Replaces the content of `value` by the value of `key`; returns false if the key is absent.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool>;
    /// Looks up many keys. Calls `each` once for each key, in any order.
    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        let mut value = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let found = self.get_into(key, &mut value)?;
            each(index, found.then_some(value.as_slice()));
        }
        Ok(())
    }
    /// Sets the value of a key.
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome;
    /// Removes a key, if it is present.
    fn delete(&self, key: &[u8]) -> Outcome;
    /// Sets many values as one atomic write, if the store supports atomic batches.
    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        entries.iter().try_for_each(|(key, value)| self.put(key, value))
    }
    /// Loads entries in ascending key order, all above the keys in the store, through the store's
    /// bulk loader if it has one.
    fn load_sorted(&self, next: &mut NextEntry<'_>) -> Outcome {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            self.put(&key, &value)?;
        }
        Ok(())
    }
    /// Visits up to `limit` entries in key order, from the first key not below `start`. Returns
    /// their count. Only for stores that [`Stores::is_ordered`].
    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize>;
    /// Visits all entries in the store's own order and returns their count.
    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64>;
    /// Replaces the value of a key by the result of `change`, as one atomic operation. `change` may
    /// run more than once. Only for stores with [`StoreFeature::AtomicUpdate`].
    fn atomic_update(&self, _key: &[u8], _change: &mut ChangeValue<'_>) -> Outcome {
        Err(missing(StoreFeature::AtomicUpdate))
    }
    /// Returns the transactions of the store; `None` if it has none.
    fn transactions(&self) -> Option<&dyn TransactionalStore> {
        None
    }
    /// Makes all earlier writes durable. Does nothing in stores without files.
    fn sync(&self) -> Outcome;
    /// Makes all earlier writes durable in the store's own files, so that opening replays no log,
    /// if the store supports that; otherwise the same as [`Store::sync`].
    fn settle(&self) -> Outcome {
        self.sync()
    }
    /// Returns statistics.
    fn stats(&self) -> StoreStats;
    /// Closes the store in order.
    fn close(self: Box<Self>) -> Outcome;
}

/// A set of stores by name.
pub trait Stores: Sync {
    /// Returns the names, in the order of the documentation.
    fn names(&self) -> Vec<&'static str>;
    /// Returns the engine of a store: itself, or for a variant (an engine with options of its own)
    /// the engine, whose options apply to the variant as well.
    fn engine<'a>(&self, name: &'a str) -> &'a str {
        name
    }
    /// Returns the origin of a store.
    fn family(&self, name: &str) -> Family;
    /// Returns whether the store keeps key order.
    fn is_ordered(&self, name: &str) -> bool;
    /// Returns whether the store keeps its entries in files.
    fn is_persistent(&self, name: &str) -> bool;
    /// Returns whether the store has a feature.
    fn has_feature(&self, _name: &str, _feature: StoreFeature) -> bool {
        false
    }
    /// Opens a store. An unknown name is a usage failure.
    fn open(&self, name: &str, options: &StoreOptions) -> Outcome<Box<dyn Store>>;
    /// Describes a store with the settings that `options` give it.
    fn describe(&self, name: &str, options: &StoreOptions) -> StoreInfo;

    /// Fails if the set has no store of this name.
    fn check(&self, name: &str) -> Outcome {
        if self.names().contains(&name) {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "there is no engine {name:?} here; there are: {}",
            self.names().join(", ")
        )))
    }

    /// Fails if the store cannot run on this machine, for example because its library is missing.
    fn check_available(&self, name: &str) -> Outcome {
        self.check(name)
    }
}

/// Returns the failure of an operation that the store does not have.
pub fn missing(feature: StoreFeature) -> Failure {
    Failure::Usage(format!("the store has no {}", feature.title()))
}

/// Returns the failure of a range over a store without key order.
pub(crate) fn unordered(name: &str) -> Failure {
    Failure::Usage(format!("{name} has no key order and so no ranges"))
}
