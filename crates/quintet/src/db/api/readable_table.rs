//! What can be read of one table, written once for everything that shows a table.
//!
//! [`ReadableTable`] has few required methods. The others follow from them. An ordered engine
//! answers them by ranges, an engine without order by a scan.

use std::{borrow::Borrow, iter::FusedIterator, vec};

use super::{key_bounds::KeyBounds, snapshot::Snapshot, table::Table};
use crate::{
    Result,
    contract::{Cursor, EngineKind, KeyRange},
    db::tables::value::{Key, Value},
};

/// Number of entries that an iterator over an engine without order reads at a time.
const PAGE_ENTRIES: usize = 64;

/// Reads of one table: implemented by [`Table`], and by [`TableView`](super::TableView) for a table
/// as a [`Snapshot`] or a [`Transaction`](super::Transaction) shows it.
///
/// `Table` has each method itself, so only code that is generic over its source needs the trait.
///
/// ```no_run
/// use quintet::{ReadableTable, Result};
///
/// fn total_bytes(table: &impl ReadableTable) -> Result<usize> {
///     table.values().map(|value| Ok(value?.len())).sum()
/// }
/// # fn main() -> quintet::Result<()> {
/// # let db = quintet::Database::open("data")?;
/// println!("{} bytes", total_bytes(&db.table("users")?)?);
/// # Ok(())
/// # }
/// ```
pub trait ReadableTable: Sized {
    /// Iterator over a range, from both ends.
    type Range: DoubleEndedIterator<Item = Result<(Key, Value)>>;

    /// Returns the engine.
    fn kind(&self) -> EngineKind;

    /// Returns the value of `key`, or `None` if it is absent or expired.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;

    /// Returns the entries of a range in key order. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    fn range(&self, range: impl KeyBounds) -> Result<Self::Range>;

    /// Returns about `count` entries from `cursor`, and the cursor of the next page. Works on every
    /// engine. See [`Table::scan`](super::Table::scan).
    fn scan(
        &self,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)>;

    /// Returns a snapshot for the iterator over all entries of an engine without order; `None`: it
    /// reads pages by [`ReadableTable::scan`].
    fn snapshot(&self) -> Result<Option<(Snapshot, &Table)>> {
        Ok(None)
    }

    /// Returns whether `key` has a value.
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns all entries: in key order on an ordered engine, in no order on the others. An error
    /// is the last item.
    ///
    /// On an engine without order the iterator reads 64 entries at a time. Of a [`Table`] it reads
    /// a snapshot that it takes at its first step. Iteration from the back ends with
    /// [`Error::Unordered`](crate::Error::Unordered) there.
    fn iter(&self) -> TableIter<'_, Self> {
        TableIter { table: self, source: Source::Unread, snapshot: None }
    }

    /// Returns all keys, as [`ReadableTable::iter`]. Costs as much: values are read too.
    fn keys(&self) -> impl DoubleEndedIterator<Item = Result<Key>> {
        self.iter().map(|entry| Ok(entry?.0))
    }

    /// Returns all values, as [`ReadableTable::iter`].
    fn values(&self) -> impl DoubleEndedIterator<Item = Result<Value>> {
        self.iter().map(|entry| Ok(entry?.1))
    }

    /// Returns the entries whose keys start with `prefix`, in key order. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Self::Range> {
        self.range(KeyRange::prefix(prefix.as_ref()))
    }

    /// Returns the entry with the least key. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    fn first(&self) -> Result<Option<(Key, Value)>> {
        self.range(..)?.next().transpose()
    }

    /// Returns the entry with the greatest key. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    fn last(&self) -> Result<Option<(Key, Value)>> {
        self.range(..)?.next_back().transpose()
    }

    /// Returns the number of entries, without expired ones. Reads the whole table. See
    /// [`Table::len`](super::Table::len).
    fn len(&self) -> Result<u64> {
        self.iter().try_fold(0, |count, entry| entry.map(|_| count + 1))
    }

    /// Returns whether there is no entry. Reads until it finds one that has not expired.
    fn is_empty(&self) -> Result<bool> {
        self.iter().next().transpose().map(|entry| entry.is_none())
    }
}

/// Iterator over all entries; see [`ReadableTable::iter`].
pub struct TableIter<'a, T: ReadableTable> {
    table: &'a T,
    source: Source<T::Range>,
    /// What pages are read from.
    snapshot: Option<(Snapshot, &'a Table)>,
}

enum Source<R> {
    /// Nothing was read yet.
    Unread,
    Range(R),
    Pages {
        page: vec::IntoIter<(Key, Value)>,
        next: Cursor,
    },
    Ended,
}

impl<T: ReadableTable> std::fmt::Debug for TableIter<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableIter").finish_non_exhaustive()
    }
}

impl<T: ReadableTable> TableIter<'_, T> {
    /// Reads the first page, or opens the range. `needs_order`: the caller wants the last entry.
    fn begin(&mut self, needs_order: bool) -> Result<()> {
        self.source = if needs_order || self.table.kind().is_ordered() {
            Source::Range(self.table.range(..)?)
        } else {
            self.snapshot = self.table.snapshot()?;
            self.read_page(&Cursor::START)?
        };
        Ok(())
    }

    fn read_page(&self, cursor: &Cursor) -> Result<Source<T::Range>> {
        let (page, next) = match &self.snapshot {
            Some((snapshot, table)) => snapshot.scan(table, cursor, PAGE_ENTRIES)?,
            None => self.table.scan(cursor, PAGE_ENTRIES)?,
        };
        Ok(Source::Pages { page: page.into_iter(), next })
    }

    fn try_next(&mut self) -> Result<Option<(Key, Value)>> {
        loop {
            match &mut self.source {
                Source::Unread => self.begin(false)?,
                Source::Range(range) => return range.next().transpose(),
                Source::Ended => return Ok(None),
                Source::Pages { page, next } => {
                    if let Some(entry) = page.next() {
                        return Ok(Some(entry));
                    }
                    if next.is_start() {
                        return Ok(None);
                    }
                    let next = std::mem::take(next);
                    self.source = self.read_page(&next)?;
                }
            }
        }
    }

    fn try_next_back(&mut self) -> Result<Option<(Key, Value)>> {
        loop {
            match &mut self.source {
                Source::Unread | Source::Pages { .. } => self.begin(true)?,
                Source::Range(range) => return range.next_back().transpose(),
                Source::Ended => return Ok(None),
            }
        }
    }

    /// Ends the iterator after its last item.
    fn item(&mut self, next: Result<Option<(Key, Value)>>) -> Option<Result<(Key, Value)>> {
        if !matches!(next, Ok(Some(_))) {
            self.source = Source::Ended;
        }
        next.transpose()
    }
}

impl<T: ReadableTable> Iterator for TableIter<'_, T> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.try_next();
        self.item(next)
    }
}

impl<T: ReadableTable> DoubleEndedIterator for TableIter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.try_next_back();
        self.item(next)
    }
}

impl<T: ReadableTable> FusedIterator for TableIter<'_, T> {}
