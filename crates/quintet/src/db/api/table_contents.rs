//! Changes of many entries of one table: removal of the first or last entry, of all entries, and
//! insertion of many.

use super::{
    batch::Batch,
    load::BATCH_BYTES,
    table::{Entries, Table},
};
use crate::{
    Result,
    db::tables::value::{Key, Value},
    util::{codec::to_u64, mutant::mutant},
};

impl Table {
    /// Removes the entry with the least key and returns it. `None`: the table is empty.
    ///
    /// Of several threads, each gets another entry. A lesser key that is inserted while the call
    /// runs may stay. Fails with [`Error::Unordered`](crate::Error::Unordered) on an engine without
    /// key order. Otherwise fails as [`Table::range`] and [`Table::delete`] do.
    ///
    /// Cost: that of the first entry of a range, a get and a delete. Keys that were deleted before
    /// do not slow it down.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let queue = db.table("queue")?;
    /// while let Some((key, job)) = queue.pop_first()? {
    ///     println!("{} bytes at {key:?}", job.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.pop(Iterator::next)
    }

    /// Removes the entry with the greatest key and returns it. Otherwise as [`Table::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.pop(DoubleEndedIterator::next_back)
    }

    fn pop(
        &self,
        mut next: impl FnMut(&mut Entries) -> Option<Result<(Key, Value)>>,
    ) -> Result<Option<(Key, Value)>> {
        loop {
            let mut entries = self.range(..)?;
            let mut is_empty = true;
            while let Some(entry) = next(&mut entries) {
                let (key, value) = entry?;
                is_empty = false;
                mutant!(PopDeletesBlindly => {
                    self.delete(&key)?;
                    return Ok(Some((key, value)));
                });
                // Another thread may have taken or changed it: the value is the one at the delete.
                drop(value);
                if let Some(value) = self.take(&key)? {
                    return Ok(Some((key, value)));
                }
            }
            if is_empty {
                return Ok(None);
            }
        }
    }

    /// Removes all entries in constant time, on every engine. Atomic and durable when it returns:
    /// after a crash the table has all its entries or none.
    ///
    /// An empty table with the same name, options and types takes the place of this one. All
    /// handles go on with it, typed ones included. A background job removes the old files.
    ///
    /// - A write by another thread that has not returned is before or after as a whole.
    /// - Snapshots and iterators that began before show the old entries, through any handle.
    /// - A batch that was filled before and is committed afterwards writes to the empty table.
    /// - A transaction that began before and uses the table fails with
    ///   [`Error::Conflict`](crate::Error::Conflict).
    /// - A cursor of [`Table::scan`] stays valid; it finds entries that were written since.
    /// - A handle keeps the memory and the open files of the table that it was created for,
    ///   until it is dropped. To release them after a clear of a large table, drop all its
    ///   handles and get a new one.
    ///
    /// Cost: a sync of the log, a directory with the first files of a table, and a synced edit of
    /// the catalog: some milliseconds on an SSD. For a few entries, deletes are faster.
    ///
    /// Fails with [`Error::ReadOnly`](crate::Error::ReadOnly),
    /// [`Error::Loading`](crate::Error::Loading), [`Error::DiskFull`](crate::Error::DiskFull) or
    /// [`Error::Io`](crate::Error::Io); nothing has changed then.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let cache = db.table("cache")?;
    /// cache.clear()?;
    /// assert!(cache.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear(&self) -> Result<()> {
        match self.session.core.clear_table(&self.state) {
            Err(error) => self.follow(error)?.clear(),
            cleared => cleared,
        }
    }

    /// Puts entries, in atomic batches of 256 KiB (a larger entry is one batch). Returns their
    /// number. After an error the entries of earlier batches stay.
    ///
    /// Faster than as many puts: a batch is one record of the log. [`Table::load_sorted`] is faster
    /// for sorted entries on `btree`. Fails as [`Table::put`] does.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("squares")?;
    /// table.extend((0..1000_u32).map(|n| (n.to_be_bytes(), (n * n).to_be_bytes())))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn extend<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut batch = Batch::new(self.session.clone());
        let mut count = 0;
        for (key, value) in entries {
            let value = value.as_ref();
            if batch.bytes() + to_u64(value.len()) > BATCH_BYTES {
                batch.commit()?;
            }
            batch.put(self, key, value);
            count += 1;
        }
        batch.commit()?;
        Ok(count)
    }
}
