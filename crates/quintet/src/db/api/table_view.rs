//! One table as a snapshot or a transaction shows it, with the methods of [`ReadableTable`].

use std::{borrow::Borrow, fmt};

use super::{
    key_bounds::KeyBounds,
    readable_table::ReadableTable,
    snapshot::Snapshot,
    table::{Entries, Table},
    transaction::{Transaction, TransactionEntries},
};
use crate::{
    Result,
    contract::{Cursor, EngineKind},
    db::tables::value::{Key, Value},
};

/// A table as a [`Snapshot`] or a [`Transaction`] shows it, for code that is generic over
/// [`ReadableTable`], and for `iter`, `keys`, `first`, `len` and the rest of its methods.
///
/// ```no_run
/// # fn main() -> quintet::Result<()> {
/// # let db = quintet::Database::open("data")?;
/// # let users = db.table("users")?;
/// use quintet::ReadableTable as _;
///
/// let snapshot = db.snapshot()?;
/// println!("{} users", snapshot.table(&users).len()?);
/// let is_empty = db.transaction(|transaction| transaction.table(&users).is_empty())?;
/// # Ok(())
/// # }
/// ```
pub struct TableView<'a, S> {
    source: &'a S,
    table: &'a Table,
}

impl<S> Clone for TableView<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for TableView<'_, S> {}

impl<S> fmt::Debug for TableView<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableView").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Returns a table as the snapshot shows it.
    pub fn table<'a>(&'a self, table: &'a Table) -> TableView<'a, Self> {
        TableView { source: self, table }
    }
}

impl Transaction {
    /// Returns a table as the transaction shows it. What is read through it is validated at commit
    /// as other reads are.
    pub fn table<'a>(&'a self, table: &'a Table) -> TableView<'a, Self> {
        TableView { source: self, table }
    }
}

impl ReadableTable for TableView<'_, Snapshot> {
    type Range = Entries;

    fn kind(&self) -> EngineKind {
        self.table.kind()
    }

    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.source.get(self.table, key)
    }

    fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        self.source.range(self.table, range)
    }

    fn scan(
        &self,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        self.source.scan(self.table, cursor, count)
    }
}

impl<'a> ReadableTable for TableView<'a, Transaction> {
    type Range = TransactionEntries<'a>;

    fn kind(&self) -> EngineKind {
        self.table.kind()
    }

    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.source.get(self.table, key)
    }

    fn range(&self, range: impl KeyBounds) -> Result<TransactionEntries<'a>> {
        self.source.range(self.table, range)
    }

    fn scan(
        &self,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        self.source.scan(self.table, cursor, count)
    }
}
