//! Reads of a whole table: [`ReadableTable`] for [`Table`], and the same as methods of [`Table`].

use std::{borrow::Borrow, ops::ControlFlow};

use super::{
    key_bounds::KeyBounds,
    readable_table::{ReadableTable, TableIter},
    snapshot::Snapshot,
    table::{Entries, Table},
};
use crate::{
    Result,
    contract::{Cursor, EngineKind},
    db::tables::value::{Key, Value},
    util::mutant::mutant,
};

impl ReadableTable for Table {
    type Range = Entries;

    fn kind(&self) -> EngineKind {
        Self::kind(self)
    }

    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Self::get(self, key)
    }

    fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        Self::range(self, range)
    }

    fn scan(
        &self,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        Self::scan(self, cursor, count)
    }

    fn snapshot(&self) -> Result<Option<(Snapshot, &Table)>> {
        Ok(Some((Snapshot::new(&self.session)?, self)))
    }

    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Self::contains(self, key)
    }

    fn len(&self) -> Result<u64> {
        Self::len(self)
    }
}

impl Table {
    /// Returns all entries: in key order on an ordered engine, in no order on the others. An error
    /// is the last item. `for entry in &table` is the same.
    ///
    /// On an ordered engine it is [`Table::range`] over all keys, and works from both ends. On the
    /// others it reads pages of 64 entries of a [`Snapshot`]. So it shows each entry once, and the
    /// table at one moment. Iteration from the back ends with
    /// [`Error::Unordered`](crate::Error::Unordered) there.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("users")?;
    /// for entry in &table {
    ///     let (key, value) = entry?;
    ///     println!("{} bytes at {key:?}", value.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter(&self) -> TableIter<'_, Self> {
        ReadableTable::iter(self)
    }

    /// Returns all keys, as [`Table::iter`]. Costs as much: values are read too.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// let keys: Vec<_> = db.table("users")?.keys().collect::<Result<_, _>>()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = Result<Key>> {
        ReadableTable::keys(self)
    }

    /// Returns all values, as [`Table::iter`].
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// let values: Vec<_> = db.table("users")?.values().collect::<Result<_, _>>()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(&self) -> impl DoubleEndedIterator<Item = Result<Value>> {
        ReadableTable::values(self)
    }

    /// Returns the entries whose keys start with `prefix`, in key order; see [`Table::range`].
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let events = db.table("events")?;
    /// let of_january = events.prefix("2026-01-")?.count();
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries> {
        ReadableTable::prefix(self, prefix)
    }

    /// Returns the entry with the least key. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let events = db.table("events")?;
    /// if let (Some((oldest, _)), Some((newest, _))) = (events.first()?, events.last()?) {
    ///     println!("from {oldest:?} to {newest:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        ReadableTable::first(self)
    }

    /// Returns the entry with the greatest key. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        ReadableTable::last(self)
    }

    /// Returns the number of entries. Expired ones are not counted.
    ///
    /// It is exact: the number at one moment, whatever is written meanwhile.
    ///
    /// Cost: reads the whole table. [`Table::estimate_count`] is cheap. Fails as [`Table::get`]
    /// does.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let users = db.table("users")?;
    /// println!("{} users, empty: {}", users.len()?, users.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn len(&self) -> Result<u64> {
        mutant!(LenCountsExpired => return Ok(self.stats()?.keys));
        let mut count = 0;
        if !self.kind().is_ordered() {
            self.iter().try_for_each(|entry| entry.map(|_| count += 1))?;
            return Ok(count);
        }
        self.visit(.., |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Returns whether the table has no entry. Expired ones do not count. Reads until it finds one:
    /// a few entries, unless many have expired.
    pub fn is_empty(&self) -> Result<bool> {
        ReadableTable::is_empty(self)
    }
}

impl<'a> IntoIterator for &'a Table {
    type Item = Result<(Key, Value)>;
    type IntoIter = TableIter<'a, Table>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
