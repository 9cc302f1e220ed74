//! The public types of the database: handles, batches, options and statistics. All handles share
//! the [`session`] of their database.
//!
//! Start reading at [`Database`] and [`Table`].

mod atomic;
mod batch;
mod changes;
mod check;
#[cfg(test)]
#[cfg(not(model))]
mod clear_tests;
mod counter;
mod database;
mod hierarchy;
mod key_bounds;
mod load;
mod merge;
mod mount;
mod readable_table;
pub(crate) mod session;
mod snapshot;
mod stats;
mod successor;
mod table;
mod table_contents;
mod table_cursor;
mod table_reads;
mod table_view;
#[cfg(all(test, not(model)))]
mod tests;
mod transaction;
mod typed;
mod typed_atomic;
mod typed_snapshot;
mod write_options;

pub use self::{
    atomic::CasOutcome,
    batch::Batch,
    changes::{Change, ChangeFeed, ChangeFeedOptions, CommittedChanges, TableChange},
    check::CheckLevel,
    database::{Database, TableInfo},
    hierarchy::{Child, ChildKind, check_table_path},
    key_bounds::KeyBounds,
    load::{LoadOptions, SortedLoader},
    mount::{MountInfo, MountOptions},
    readable_table::{ReadableTable, TableIter},
    snapshot::Snapshot,
    stats::{DatabaseStats, TableStats},
    table::{Entries, Table},
    table_cursor::TableCursor,
    table_view::TableView,
    transaction::{
        Isolation, Savepoint, Transaction, TransactionEntries, TransactionOptions,
        TransactionTable, TypedTransactionEntries,
    },
    typed::{TypedEntries, TypedTable},
    typed_snapshot::TypedSnapshot,
    write_options::{DeleteOptions, PutOptions, UpdateOptions},
};
