//! The public types of the database: handles, batches, options and statistics.
//!
//! Start reading at [`Database`] and [`Table`].

mod batch;
mod check;
pub(crate) mod database;
mod hierarchy;
mod load;
pub(crate) mod options;
mod stats;
mod table;
mod typed;

pub use self::{
    batch::Batch,
    check::CheckLevel,
    database::{Database, TableInfo},
    hierarchy::{Child, ChildKind},
    load::{LoadOptions, SortedLoader},
    options::{
        BATCH_BYTES_MAX, DeleteOptions, Durability, KEY_BYTES_MAX, Options, PutOptions,
        VALUE_BYTES_MAX,
    },
    stats::{DatabaseStats, TableStats},
    table::{Entries, KeyBounds, Table},
    typed::{TypedEntries, TypedTable},
};
