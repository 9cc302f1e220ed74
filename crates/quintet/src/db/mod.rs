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

mod batch;
mod catalog;
mod check;
mod commit;
mod core;
mod database;
mod envelope;
mod expiry;
mod hierarchy;
pub mod inspect;
mod jobs;
mod limits;
mod load;
#[cfg(all(test, shuttle))]
mod models;
mod mount;
mod ops;
mod options;
mod persist;
mod recovery;
mod replay;
mod stats;
mod stripes;
mod sweep;
mod table;
#[cfg(all(test, not(model)))]
mod tests;
mod typed;
mod value;

pub use self::{
    batch::Batch,
    check::CheckLevel,
    database::{Database, TableInfo},
    hierarchy::{Child, ChildKind},
    limits::{NAME_BYTES_MAX, NAME_DEPTH_MAX},
    load::{LoadOptions, SortedLoader},
    mount::{MountInfo, MountOptions},
    options::{
        BATCH_BYTES_MAX, DeleteOptions, Durability, KEY_BYTES_MAX, Options, PutOptions,
        VALUE_BYTES_MAX,
    },
    stats::{DatabaseStats, TableStats},
    table::{Entries, KeyBounds, Table},
    typed::{TypedEntries, TypedTable},
    value::{Key, Value},
};
