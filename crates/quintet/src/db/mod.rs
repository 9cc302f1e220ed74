//! What the user holds: databases, tables, batches, values and options.
//!
//! Why here: names, atomicity, durability, expiry and limits are the same for every engine, so
//! they are decided once, above the engines ([`crate::engine`]) and the log ([`crate::wal`]),
//! which do not know each other.
//!
//! A put goes: [`Table::put`] -> `commit` (admit, stripes, condition, log, apply) -> sync if
//! asked. Opening goes: `recovery` (lock, catalog, engines, log) -> `jobs`.
//!
//! Files of a database: `LOCK`; `catalog` (see `catalog`); `log/` (see [`crate::wal`]);
//! `tables/<number>/` (see each engine). Table names never become file names.

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
    load::{LoadOptions, SortedLoader},
    mount::{MountInfo, MountOptions},
    options::{
        BATCH_BYTES_MAX, DeleteOptions, Durability, KEY_BYTES_MAX, NAME_BYTES_MAX, NAME_DEPTH_MAX,
        Options, PutOptions, VALUE_BYTES_MAX,
    },
    stats::{DatabaseStats, TableStats},
    table::{Entries, KeyBounds, Table},
    typed::{TypedEntries, TypedTable},
    value::{Key, Value},
};
