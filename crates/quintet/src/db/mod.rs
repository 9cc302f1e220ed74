//! Databases, tables, batches, values and options: everything above the engines and the log.
//!
//! Names, atomicity, durability, expiry and limits are the same for every engine. This layer
//! decides them once, above the engines ([`crate::engine`]) and the log ([`crate::wal`]), which do
//! not know each other.
//!
//! Folders, each importing only from those below it:
//!
//! | folder | content |
//! |---|---|
//! | `api` | the public types: [`Database`], [`Table`], [`Batch`], options, statistics |
//! | `api/session` | an open database with its background jobs and its mounts |
//! | `recovery` | opening: options, replay of the log |
//! | `commit` | the commit path: admit, lock, log, apply |
//! | `transaction` | what a transaction has read and written |
//! | `snapshot` | reads of a snapshot: the engines' answers merged with the version store |
//! | `core` | `Core`, which ties the components together; stripes |
//! | `checkpoint`, `expiry`, `versions` | the checkpoint rounds; the index of values that expire; earlier values of keys for snapshots |
//! | `tables` | the registry of open tables, their state, reads, the host that engines call |
//! | `catalog`, `encoding`, `merge` | the file of tables; the bytes of values and of log records; merge operators |
//! | `limits` | limits of names, keys and values |
//!
//! `inspect` prints files and imports `catalog` and `encoding` only. `recovery` and `commit` do not
//! import each other, and neither do `checkpoint` and `expiry`.
//!
//! The path of a put: [`Table::put`] -> `commit` (admit, stripes, condition, log, apply) -> sync if
//! asked. The path of an open: `api/session` -> `recovery` (lock, catalog, engines, log) -> jobs.
//!
//! Files of a database: `LOCK`; `catalog` (see `catalog`); `log/` (see [`crate::wal`]);
//! `tables/<number>/` (see each engine). Table names never become file names.
//!
//! Start reading at `core`, `commit`, `checkpoint` and `recovery`.

mod api;
mod catalog;
mod checkpoint;
mod commit;
mod core;
mod encoding;
mod expiry;
pub mod inspect;
mod limits;
mod merge;
#[cfg(all(test, shuttle))]
mod models;
mod recovery;
mod snapshot;
mod tables;
#[cfg(all(test, not(model)))]
mod tests;
mod transaction;
mod versions;

pub use self::{
    api::{
        Batch, CasOutcome, Change, ChangeFeed, ChangeFeedOptions, CheckLevel, Child, ChildKind,
        CommittedChanges, Database, DatabaseStats, DeleteOptions, Entries, Isolation, KeyBounds,
        LoadOptions, MountInfo, MountOptions, PutOptions, ReadableTable, Savepoint, Snapshot,
        SortedLoader, Table, TableChange, TableCursor, TableInfo, TableIter, TableStats, TableView,
        Transaction, TransactionEntries, TransactionOptions, TransactionTable, TypedEntries,
        TypedSnapshot, TypedTable, TypedTransactionEntries, UpdateOptions, check_table_path,
    },
    core::durability::Durability,
    limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, NAME_DEPTH_MAX, VALUE_BYTES_MAX},
    recovery::options::{DatabaseOption, Options, database_options},
    tables::value::{Key, Value},
};
