//! What the user holds: databases, tables, batches, values and options.
//!
//! Names, atomicity, durability, expiry and limits are the same for every engine. This layer
//! decides them once, above the engines ([`crate::engine`]) and the log ([`crate::wal`]), which do
//! not know each other.
//!
//! The path of a put: [`Table::put`] -> `commit` (admit, stripes, condition, log, apply) -> sync if
//! asked. The path of an open: `recovery` (lock, catalog, engines, log) -> `jobs`.
//!
//! Files of a database: `LOCK`; `catalog` (see `catalog`); `log/` (see [`crate::wal`]);
//! `tables/<number>/` (see each engine). Table names never become file names.
//!
//! Start reading at `commit`, `persist` and `recovery`; the shared state is in `core`.

mod api;
mod catalog;
mod checkpoint;
mod commit;
mod core;
mod encoding;
mod expiry;
pub mod inspect;
mod limits;
#[cfg(all(test, shuttle))]
mod models;
mod recovery;
mod session;
mod tables;
#[cfg(all(test, not(model)))]
mod tests;

pub use self::{
    api::{
        BATCH_BYTES_MAX, Batch, CheckLevel, Child, ChildKind, Database, DatabaseStats,
        DeleteOptions, Durability, Entries, KEY_BYTES_MAX, KeyBounds, LoadOptions, Options,
        PutOptions, SortedLoader, Table, TableInfo, TableStats, TypedEntries, TypedTable,
        VALUE_BYTES_MAX,
    },
    limits::{NAME_BYTES_MAX, NAME_DEPTH_MAX},
    session::{MountInfo, MountOptions},
    tables::value::{Key, Value},
};
