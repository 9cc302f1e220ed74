//! Quintet: a persistent key-value store in which every table picks its index structure, while all
//! tables share one write-ahead log, one atomic batch and one memory budget.
//!
//! ```
//! # fn main() -> quintet::Result<()> {
//! # let path = std::env::temp_dir().join(format!("quintet-doc-{}", std::process::id()));
//! use quintet::{Database, EngineKind, TableOptions};
//!
//! let db = Database::open(&path)?;
//! let users = db.open_or_create_table("app/users", TableOptions::new(EngineKind::Naive))?;
//! let orders = db.open_or_create_table("app/orders", TableOptions::new(EngineKind::Naive))?;
//! users.put("alice", "Alice")?;
//! let mut batch = db.batch();
//! batch.put(&users, "bob", "Bob").put(&orders, "1", "bob");
//! batch.commit()?; // over both tables: all of it or nothing
//! assert_eq!(users.get("bob")?.unwrap(), "Bob");
//! db.close()?;
//! # std::fs::remove_dir_all(&path).ok();
//! # Ok(())
//! # }
//! ```
//!
//! A returned write survives the death of the process at once, and a power loss after
//! [`Options::sync_interval`] ([`Durability::Buffered`], the default) or at once
//! ([`Durability::Sync`]). Every call may be made from any number of threads. Damage on disk is
//! [`Error::Corruption`], never a wrong answer and never a panic.
//!
//! Start at [`Database`], [`Table`] and [`Batch`]; [`Options`] and [`TableOptions`] say what can
//! be chosen, [`EngineKind`] which index structures there are.
// Under a model checker only the unit tests have a use. They depend on this crate itself, for the
// feature `testing`: it is empty then, which halves the time to build them.
#![cfg(any(test, not(model)))]
#![deny(unsafe_code)]

mod bptree;
mod contract;
mod db;
mod engine;
mod io;
mod journal;
mod lsm;
mod pmem;
mod record_store;
mod util;
mod wal;

pub use crate::db::{
    BATCH_BYTES_MAX, Batch, CasOutcome, Change, ChangeFeed, ChangeFeedOptions, CheckLevel, Child,
    ChildKind, CommittedChanges, Database, DatabaseOption, DatabaseStats, DeleteOptions,
    Durability, Entries, Isolation, KEY_BYTES_MAX, Key, KeyBounds, LoadOptions, MountInfo,
    MountOptions, NAME_BYTES_MAX, NAME_DEPTH_MAX, Options, PutOptions, ReadableTable, Savepoint,
    Snapshot, SortedLoader, Table, TableChange, TableCursor, TableInfo, TableIter, TableStats,
    TableView, Transaction, TransactionEntries, TransactionOptions, TransactionTable, TypedEntries,
    TypedSnapshot, TypedTable, TypedTransactionEntries, UpdateOptions, VALUE_BYTES_MAX, Value,
    check_table_path, database_options, inspect,
};
pub use contract::{
    Compression, Cursor, EngineKind, EngineOption, KeyRange, OptionAudience, OptionDefault,
    OptionValues, TableOptions,
};
pub use engine::{
    btree::options::{BTreeOptions, PageReplacement},
    check_table_options, engine_options,
    hashlog::options::HashLogOptions,
    naive::options::NaiveOptions,
    slm::options::{IndexMedium, KeyCode, Medium, MemtableMedium, SlmOptions},
    tph::options::{LevelMode, PerfectHash, Tiers, TphOptions},
    trie::options::{ListLayout, TrieHash, TrieOptions, TrieProfiling},
};
pub use io::{ThreadCounters, ThreadDetail};
pub use util::codec::Lsn;
pub use util::error::{Error, LockHolder, Result};
pub use util::report::{Finding, Report};
#[cfg(feature = "json")]
pub use util::types::Json;
#[cfg(feature = "postcard")]
pub use util::types::Postcard;
pub use util::types::{
    KEY_PARTS_MAX, KeyPart, KeyPrefix, KeyRef, TableTypes, TypeTag, TypedKey, TypedValue, ValueRef,
};
pub use wal::LogStats;

/// The inside of the crate, for its own tests, benchmarks and fuzz targets. No part of the public
/// surface: release builds do not have the feature.
#[cfg(feature = "testing")]
pub mod testing {
    /// See the module's own head.
    pub mod budget {
        pub use crate::util::budget::*;
    }
    /// See the module's own head.
    pub mod codec {
        pub use crate::util::codec::*;
    }
    /// See the module's own head.
    pub mod disk {
        pub use crate::io::{recorder as record, *};
    }
    /// See the module's own head.
    pub mod engine {
        pub use crate::{contract::*, engine::*, util::format as lines};
    }
    /// See the module's own head.
    pub mod perfect_hash {
        pub use crate::engine::tph::perfect_hash::*;
    }
    /// See the module's own head.
    pub mod report {
        pub use crate::util::report::*;
    }
    /// See the module's own head.
    pub mod seeded {
        pub use crate::util::mutant::*;
    }
    /// See the module's own head.
    pub mod wal {
        pub use crate::wal::*;
    }
}

/// The examples of the README and of the guide, compiled and run as tests.
#[cfg(doctest)]
mod documents {
    macro_rules! pages {
        ($($name:ident $path:literal)*) => {
            $(#[doc = include_str!(concat!("../../../", $path))] struct $name;)*
        };
    }
    pages! {
        Readme "README.md"
        GettingStarted "docs/guide/01-getting-started.md"
        ChoosingAnEngine "docs/guide/02-choosing-an-engine.md"
        TablesAndKeys "docs/guide/03-tables-and-keys.md"
        Batches "docs/guide/04-batches.md"
        Transactions "docs/transactions.md"
        Expiry "docs/guide/05-expiry.md"
        BulkLoading "docs/guide/08-bulk-loading.md"
        ChangeFeeds "docs/guide/13-change-feeds.md"
    }
}
