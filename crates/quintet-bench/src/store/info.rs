//! Descriptions of a store as results name it, and the memory that a run grants it.

use serde::{Deserialize, Serialize};

/// A store with the configuration of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Name on the command line: `hashlog`, `rocksdb`. Variants of one store have different names
    /// (`lmdb`, `lmdb-readahead`).
    pub name: String,
    /// Version of the library.
    pub version: String,
    /// Origin of the store.
    pub family: Family,
    /// Whether the store keeps key order.
    pub is_ordered: bool,
    /// Whether the store keeps files.
    pub is_persistent: bool,
    /// How the guarantee of a returned write differs from Quintet's in this durability mode; empty
    /// if it does not.
    pub promise: String,
    /// Settings, each with its reason.
    pub settings: Vec<Setting>,
}

/// Origin of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// An engine of Quintet.
    Ours,
    /// `floor`, `hashbrown` or `null`: bounds set by the machine and by the harness.
    Reference,
    /// A store of another project.
    Peer,
}

/// One setting of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name in the store's own documentation.
    pub name: String,
    /// Value.
    pub value: String,
    /// Reason for this value.
    pub reason: String,
}

/// Memory of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum MemoryMode {
    /// All data fits: the memory budget of each store exceeds the data size.
    Fits {
        /// Memory budget of each store.
        budget_bytes: u64,
    },
    /// A control group limits the whole process, including its page cache.
    Limited {
        /// Limit of the control group.
        limit_bytes: u64,
        /// Memory budget of each store; `None` is half of the limit, because the page cache and
        /// the rest of the process need the other half.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_bytes: Option<u64>,
    },
    /// Reads bypass the page cache if the store supports it; the store's own cache has this size.
    Direct {
        /// Size of the cache.
        cache_bytes: u64,
    },
}

impl MemoryMode {
    /// Returns the memory budget of each store.
    pub fn budget_bytes(self) -> u64 {
        match self {
            Self::Fits { budget_bytes } => budget_bytes,
            Self::Limited { limit_bytes, budget_bytes } => budget_bytes.unwrap_or(limit_bytes / 2),
            Self::Direct { cache_bytes } => cache_bytes,
        }
    }
}
