//! The public types of the database: handles, batches, options and statistics. All handles share
//! the [`session`] of their database.
//!
//! Start reading at [`Database`] and [`Table`].

mod batch;
mod check;
mod database;
mod hierarchy;
mod key_bounds;
mod load;
mod mount;
pub(crate) mod session;
mod snapshot;
mod stats;
mod table;
mod transaction;
mod typed;
mod typed_snapshot;
mod write_options;

pub use self::{
    batch::Batch,
    check::CheckLevel,
    database::{Database, TableInfo},
    hierarchy::{Child, ChildKind, check_table_path},
    key_bounds::KeyBounds,
    load::{LoadOptions, SortedLoader},
    mount::{MountInfo, MountOptions},
    snapshot::Snapshot,
    stats::{DatabaseStats, TableStats},
    table::{Entries, Table},
    transaction::{
        Isolation, Savepoint, Transaction, TransactionEntries, TransactionOptions,
        TransactionTable, TypedTransactionEntries,
    },
    typed::{TypedEntries, TypedTable},
    typed_snapshot::TypedSnapshot,
    write_options::{DeleteOptions, PutOptions},
};
