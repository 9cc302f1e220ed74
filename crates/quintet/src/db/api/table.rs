//! Operations on one table.

use std::{borrow::Borrow, ops::ControlFlow, sync::Arc};

use super::{
    key_bounds::KeyBounds,
    session::Session,
    stats::TableStats,
    write_options::{DeleteOptions, PutOptions},
};
use crate::{
    Error, Result,
    contract::{
        self, Cursor, Direction, Engine as _, EngineKind, Hint, KeyRange, MultiGetSink, Op,
        OrderedEngine,
    },
    db::{
        core::condition::Condition,
        encoding::envelope::Envelope,
        limits::{check_key, check_value},
        snapshot::range::SnapshotRange,
        tables::{
            state::TableState,
            value::{Key, Value},
        },
        versions::SnapshotState,
    },
    io::process::ProcessArc,
    util::types::TableTypes,
};

/// A table of an open database. Clones are cheap and share the table; any number of threads may use
/// them.
///
/// A handle stays valid after a rename and after [`Table::clear`]. After the table is dropped,
/// every operation fails with [`Error::StaleTable`]; after the database is closed, with
/// [`Error::Closed`]; in a forked child, with [`Error::Forked`].
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) session: ProcessArc<Session>,
    pub(crate) state: ProcessArc<TableState>,
}

impl Table {
    pub(crate) fn new(session: ProcessArc<Session>, state: Arc<TableState>) -> Self {
        Self { session, state: ProcessArc::new(state) }
    }

    /// Returns the current path, or the last one of a dropped table. Empty in a forked child.
    pub fn name(&self) -> String {
        self.session.core.tables.name_of(&self.state)
    }

    /// Returns the table's engine.
    pub fn kind(&self) -> EngineKind {
        self.state.kind
    }

    /// Returns the types of keys and values, if they are fixed.
    pub fn types(&self) -> Option<TableTypes> {
        self.current().state.types().cloned()
    }

    /// Sets the value of `key` (1 to 65,535 bytes) to `value` (0 to 512 MiB), with the database's
    /// durability.
    ///
    /// Fails with [`Error::Limit`], [`Error::TypeMismatch`], [`Error::OutOfMemory`],
    /// [`Error::DiskFull`], [`Error::ReadOnly`], [`Error::Loading`] or [`Error::Io`]; nothing has
    /// changed then. After [`Error::LogFailed`] or [`Error::TableFailed`] the write may be found
    /// when the database is reopened.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, PutOptions::new()).map(drop)
    }

    /// Sets the value of `key` as `options` say. Returns `false`, and writes nothing, if a
    /// condition does not hold. Fails as [`Table::put`] does.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> Result<bool> {
        let (key, body) = (key.as_ref(), value.as_ref());
        check_key(key)?;
        check_value(body)?;
        let core = &self.session.core;
        let expires_at = options.expiry(|| core.host.clock.now())?;
        let envelope = Envelope { expires_at, type_tag: options.type_tag }.encode();
        let op = Op::Put { key, head: envelope.as_slice(), body };
        let durability = options.durability.unwrap_or(core.durability);
        core.commit_one(&self.state, &op, options.condition, durability)
    }

    /// Returns the value of `key`, or `None` if it is absent or expired. Fails with
    /// [`Error::Limit`] for a key outside its limits, [`Error::Corruption`] or [`Error::Io`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        check_key(key)?;
        if !self.state.is_live() {
            return self.on_successor(|table| table.get(key));
        }
        self.session.core.tables.get(&self.state, key)
    }

    /// Copies the value of `key` into `out` and replaces its content. Returns whether the key has a
    /// value; otherwise, and after an error, `out` is empty. Repeated calls reuse the capacity of
    /// `out`.
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        let key = key.as_ref();
        check_key(key)?;
        if !self.state.is_live() {
            return self.on_successor(|table| table.get_into(key, out));
        }
        let found = self.session.core.tables.get_into(&self.state, key, out);
        if !matches!(found, Ok(true)) {
            out.clear();
        }
        found
    }

    /// Returns the values of `keys` in the same order. It is not a snapshot: values of different
    /// keys may be of different moments. Fails as [`Table::get`] does.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        keys.iter().try_for_each(|key| check_key(key))?;
        let core = &self.session.core;
        if !self.state.is_live() {
            return self.on_successor(|table| table.multi_get(&keys));
        }
        let mut stored = Vec::with_capacity(keys.len());
        self.state.engine.multi_get(&keys, MultiGetSink::Append(&mut stored))?;
        let visible = |(key, stored): (&&[u8], Option<_>)| match stored {
            Some(stored) => core.tables.visible(&self.state, key, stored),
            None => Ok(None),
        };
        keys.iter().zip(stored).map(visible).collect()
    }

    /// Prefetches what gets of `keys` will read, for callers that read them one at a time soon
    /// afterwards. Changes nothing that a caller can observe but the time of these reads.
    ///
    /// `hashlog` and `trie` prefetch index and entry into the processor's caches, so that the cache
    /// misses of the keys overlap; 8 to 32 keys at once are best. `hashlog` and `btree` read what
    /// is not in memory with concurrent requests, and wait for them. `hashlog` keeps copies of such
    /// entries for their next gets, in 1/32 of the memory budget and at most 4 MiB. The other
    /// engines do nothing. Fails with [`Error::Forked`], [`Error::Closed`] or
    /// [`Error::StaleTable`], never because of a key.
    pub fn prefetch(&self, keys: &[&[u8]]) -> Result<()> {
        if !self.state.is_live() {
            return self.on_successor(|table| table.prefetch(keys));
        }
        self.state.engine.prefetch(Hint::Gets(keys));
        Ok(())
    }

    /// Calls `each` once for each key, in any order, with its position in `keys` and its value.
    /// Faster than [`Table::multi_get`] for small values, which it does not copy into values of
    /// their own. `each` borrows the value only for the call.
    pub fn multi_get_each(
        &self,
        keys: &[&[u8]],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let core = &self.session.core;
        if !self.state.is_live() {
            return self.on_successor(|table| table.multi_get_each(keys, each));
        }
        let mut each_stored = |index: usize, stored: Option<&[u8]>| {
            match stored {
                None => each(index, None),
                Some([0, plain @ ..]) => each(index, Some(plain)),
                Some(stored) => {
                    let key = keys.get(index).copied().unwrap_or(&[]);
                    let stored = contract::Value::copy(stored);
                    each(index, core.tables.visible(&self.state, key, stored)?.as_deref());
                }
            }
            // The callback may have forked.
            core.tables.check_process()
        };
        self.state.engine.multi_get(keys, MultiGetSink::Each(&mut each_stored))
    }

    /// Returns whether `key` has a value. Copies no value. Reads the value only if the engine's
    /// index alone cannot tell.
    ///
    /// Cost: at most that of a get without its copy. In `btree`, an entry of more than a quarter of
    /// a page (4 KiB by default) has its value in an extent. The extent is read whole: one checksum
    /// covers the value and its expiry.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        check_key(key)?;
        if !self.state.is_live() {
            return self.on_successor(|table| table.contains(key));
        }
        self.session.core.tables.contains(&self.state, key)
    }

    /// Removes `key`, whether or not it is present. Fails as [`Table::put`] does.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, DeleteOptions::new()).map(drop)
    }

    /// Removes `key` as `options` say. Returns `false`, and writes nothing, if a condition does not
    /// hold.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: DeleteOptions) -> Result<bool> {
        let key = key.as_ref();
        check_key(key)?;
        let core = &self.session.core;
        let durability = options.durability.unwrap_or(core.durability);
        core.commit_one(&self.state, &Op::Delete { key }, options.condition, durability)
    }

    /// Removes all keys of a range as one commit with one log record. No other commit runs
    /// meanwhile. Fails with [`Error::Unordered`] on an engine without key order. An engine error
    /// while the range is removed stops the table ([`Error::TableFailed`]).
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        if let Err(error) = self.check_ordered() {
            return self.follow(error)?.delete_range(range);
        }
        let range = range.into_key_range();
        if range.is_empty() {
            return Ok(());
        }
        let start = range.start.as_deref().unwrap_or(&[]);
        let end = range.end.as_deref().unwrap_or(&[]);
        for bound in [start, end] {
            if !bound.is_empty() {
                check_key(bound)?;
            }
        }
        let core = &self.session.core;
        let op = Op::DeleteRange { start, end };
        core.commit_one(&self.state, &op, Condition::Always, core.durability).map(drop)
    }

    /// Returns the entries of a range in key order, from either end. The iterator shows the table
    /// at the moment of the call, as a [`Snapshot`](crate::Snapshot) does, whatever is written
    /// meanwhile. It ends after an error. Fails with [`Error::Unordered`] on an engine without key
    /// order. The iterator returns [`Error::SnapshotExpired`] if it was kept for too long. In a
    /// forked child, an inherited iterator returns [`Error::Forked`] once and ends.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("users")?;
    /// for entry in table.range("user/".."user0")? {
    ///     let (key, value) = entry?;
    ///     println!("{} bytes at {key:?}", value.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        // In this order: a table that is cleared later can be read in the snapshot.
        let snapshot = ProcessArc::new(Arc::new(self.session.core.take_snapshot()?));
        if let Err(error) = self.check_ordered() {
            return self.follow(error)?.range(range);
        }
        Entries::new(self, &snapshot, range.into_key_range())
    }

    /// Calls `each` with the entries of a range in key order until it returns `Break`. Same as
    /// [`Table::range`], but allocates nothing for each entry that does not expire. On `slm`,
    /// values of 512 bytes or more are borrowed from the block cache.
    ///
    /// `each` may use the table: no lock is held while it runs. What it writes does not change what
    /// it is called with. The block of a borrowed value stays pinned until `each` returns.
    pub fn visit(
        &self,
        range: impl KeyBounds,
        each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        // In this order: a table that is cleared later can be read in the snapshot.
        let snapshot = ProcessArc::new(Arc::new(self.session.core.take_snapshot()?));
        if let Err(error) = self.check_ordered() {
            return self.follow(error)?.visit(range, each);
        }
        self.visit_in(&snapshot, range.into_key_range(), each)
    }

    /// Visits a range as a snapshot shows it.
    pub(crate) fn visit_in(
        &self,
        snapshot: &SnapshotState,
        range: KeyRange,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let core = &self.session.core;
        let visit = |key: &[u8], stored: &[u8]| {
            let (envelope, start) =
                Envelope::decode(stored).ok_or_else(|| core.tables.bad_envelope(&self.state))?;
            let next = if envelope.is_expired(snapshot.time) {
                ControlFlow::Continue(())
            } else {
                each(key, stored.get(start..).unwrap_or(&[]))
            };
            // The callback may have forked: the engine's locks and pins are the parent's then.
            core.tables.check_process().map(|()| next)
        };
        core.snapshot_visit(snapshot, &self.state, range, visit)
    }

    /// Returns an estimate of the number of keys in a range, within a small factor. It includes
    /// expired keys that the sweep has not removed. It is cheap: it reads only the two ends. Fails
    /// with [`Error::Unordered`] on an engine without key order.
    pub fn estimate_count(&self, range: impl KeyBounds) -> Result<u64> {
        if let Err(error) = self.check_ordered() {
            return self.follow(error)?.estimate_count(range);
        }
        self.ordered_engine()?.estimate_count(&range.into_key_range())
    }

    /// Returns about `count` entries (at least 1, if there are any) from `cursor`, and the cursor
    /// of the next page. [`Cursor::START`] begins a scan; the returned cursor equals it at the end.
    /// Works on every engine.
    ///
    /// Every entry that is present throughout a whole scan is returned at least once, and the scan
    /// ends whatever is written meanwhile. An entry may be returned twice. No order is promised. A
    /// page may be empty before the end.
    pub fn scan(
        &self,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let core = &self.session.core;
        if let Err(error) = core.tables.check_usable(&self.state) {
            return self.follow(error)?.scan(cursor, count);
        }
        let (stored, next) = self.state.engine.scan(cursor.borrow(), count.max(1))?;
        let mut entries = Vec::with_capacity(stored.len());
        for entry in stored {
            if let Some(value) = core.tables.visible(&self.state, &entry.key, entry.value)? {
                entries.push((entry.key, value));
            }
        }
        Ok((entries, next))
    }

    /// Checkpoints this table: makes every earlier write durable in the table's files, so that
    /// opening need not replay it. Waits for a checkpoint or compaction under way. Fails with
    /// [`Error::ReadOnly`], [`Error::DiskFull`] or [`Error::Io`]; earlier writes stay in the log.
    pub fn persist(&self) -> Result<()> {
        let core = &self.session.core;
        core.tables.check_writable()?;
        if let Err(error) = core.tables.check_usable(&self.state) {
            return self.follow(error)?.persist();
        }
        let done = core.checkpoints.checkpoint(&core.tables, std::slice::from_ref(&*self.state));
        done.or_else(|error| self.follow(error)?.persist())
    }

    /// Releases the space of deleted, replaced and expired entries, as far as the engine can. May
    /// read and write the whole table. Delays checkpoints of the database meanwhile.
    pub fn compact(&self) -> Result<()> {
        let core = &self.session.core;
        core.tables.check_writable()?;
        if let Err(error) = core.tables.check_usable(&self.state) {
            return self.follow(error)?.compact();
        }
        let done = core.checkpoints.compact(&core.tables, &self.state);
        done.or_else(|error| self.follow(error)?.compact())
    }

    /// Returns counters and sizes. Fails only if the table was dropped or has failed, or the
    /// database was closed.
    pub fn stats(&self) -> Result<TableStats> {
        if let Err(error) = self.session.core.tables.check_usable(&self.state) {
            return self.follow(error)?.stats();
        }
        Ok(self.session.core.table_stats(&self.state))
    }

    /// Fails unless the table takes reads and keeps key order.
    pub(super) fn check_ordered(&self) -> Result<()> {
        self.session.core.tables.check_usable(&self.state)?;
        if self.state.kind.is_ordered() { Ok(()) } else { Err(self.unordered()) }
    }

    /// Returns the engine if it keeps key order, else [`Error::Unordered`].
    fn ordered_engine(&self) -> Result<&dyn OrderedEngine> {
        self.state.engine.ordered().ok_or_else(|| self.unordered())
    }

    fn unordered(&self) -> Error {
        self.session.core.tables.unordered(&self.state)
    }
}

/// Iterator over a range; see [`Table::range`] and [`Snapshot::range`](crate::Snapshot::range).
#[derive(Debug)]
pub struct Entries {
    table: Table,
    stored: SnapshotRange,
    failed: bool,
}

impl Drop for Entries {
    fn drop(&mut self) {
        if self.table.session.core.tables.is_forked() {
            // The engine's iterator holds pins and may lock: it stays as it was at the fork.
            self.stored.forget();
        }
    }
}

impl Entries {
    pub(crate) fn new(
        table: &Table,
        snapshot: &ProcessArc<SnapshotState>,
        range: KeyRange,
    ) -> Result<Self> {
        let stored = table.session.core.snapshot_range(snapshot, &table.state, range)?;
        Ok(Self { table: table.clone(), stored, failed: false })
    }

    fn next_visible(&mut self, direction: Direction) -> Option<Result<(Key, Value)>> {
        if self.failed {
            return None;
        }
        let next = self.try_next(direction);
        self.failed = next.is_err();
        next.transpose()
    }

    fn try_next(&mut self, direction: Direction) -> Result<Option<(Key, Value)>> {
        let (core, state) = (&self.table.session.core, &self.table.state);
        loop {
            core.tables.check_process()?;
            let Some((key, stored)) = self.stored.next(core, state, direction)? else {
                return Ok(None);
            };
            if let Some(value) = core.visible_in(self.stored.snapshot(), state, stored)? {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl Iterator for Entries {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_visible(Direction::Up)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_visible(Direction::Down)
    }
}
