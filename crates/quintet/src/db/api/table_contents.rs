//! Changes of many entries of one table: removal of the first or last entry, of all entries, and
//! insertion of many.

use super::{
    batch::Batch,
    load::BATCH_BYTES,
    table::{Entries, Table},
};
use crate::{
    Result,
    contract::{Cursor, Engine as _},
    db::tables::value::{Key, Value},
    util::{codec::to_u64, mutant::mutant},
};

/// Number of entries that [`Table::clear`] reads at a time.
const CLEARED_ENTRIES: usize = 1024;

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

    /// Removes all entries.
    ///
    /// On an ordered engine it is [`Table::delete_range`] over all keys: one commit, during which
    /// no other runs. On the others it deletes the entries that a scan finds, in atomic batches of
    /// 256 KiB. An entry that is written meanwhile may stay, and after an error some entries are
    /// gone.
    ///
    /// Cost: linear in the number of entries. To drop the table and create it again takes constant
    /// time, but ends its handles. Fails as [`Table::put`] does.
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
        if self.kind().is_ordered() {
            return self.delete_range(..);
        }
        let core = &self.session.core;
        core.tables.check_writable()?;
        core.tables.check_takes_writes(&self.state)?;
        let mut batch = Batch::new(self.session.clone());
        let mut cursor = Cursor::START;
        loop {
            let (entries, next) = self.state.engine.scan(&cursor, CLEARED_ENTRIES)?;
            for entry in entries {
                batch.delete(self, &entry.key);
                if batch.bytes() >= BATCH_BYTES {
                    batch.commit()?;
                }
            }
            if next.is_start() {
                return batch.commit();
            }
            cursor = next;
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
