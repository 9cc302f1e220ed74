//! Snapshots: all tables of a database at one moment.

use std::{
    borrow::{Borrow, Cow},
    ops::ControlFlow,
    sync::Arc,
};

use super::{
    key_bounds::KeyBounds,
    session::Session,
    table::{Entries, Table},
};
use crate::{
    Error, Result,
    contract::{self, Cursor},
    db::{
        limits::check_key,
        tables::value::{Key, Value},
        versions::SnapshotState,
    },
    io::process::ProcessArc,
    util::codec::Lsn,
};

/// All tables of a database at one moment between two commits.
/// [`Database::snapshot`](crate::Database::snapshot) takes it.
///
/// Clones are cheap and share the snapshot; any number of threads may use them. The snapshot ends
/// when the last clone and the last iterator over it are dropped, in any order. It keeps the
/// database open as a [`Table`] does.
///
/// Reads show every commit that had returned when the snapshot was taken. They show nothing of a
/// commit that began later. A table that was created later is empty in it. A table that was dropped
/// later can still be read through a handle; its files are removed when the snapshot ends. Whether
/// a value has expired is judged at the moment of the snapshot. Tables behind a mount belong to
/// another database: a read of one fails with [`Error::OtherDatabase`].
///
/// Cost: taking and dropping a snapshot takes less than a microsecond, without I/O. While one is
/// open, the first write of a key after the newest snapshot keeps the earlier value, in memory or
/// in a temporary file. When these values take more than
/// [`snapshot_limit`](crate::Options::snapshot_limit), or a snapshot is older than
/// [`snapshot_max_age`](crate::Options::snapshot_max_age), the oldest snapshot ends: its reads fail
/// with [`Error::SnapshotExpired`] from then on. A read never returns a wrong answer.
///
/// ```no_run
/// # fn main() -> quintet::Result<()> {
/// # let db = quintet::Database::open("data")?;
/// # let accounts = db.table("accounts")?;
/// accounts.put("alice", "100")?;
/// let snapshot = db.snapshot()?;
/// accounts.put("alice", "0")?;
/// assert_eq!(snapshot.get(&accounts, "alice")?.expect("put above"), "100");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    session: ProcessArc<Session>,
    state: ProcessArc<SnapshotState>,
}

impl Snapshot {
    pub(crate) fn new(session: &ProcessArc<Session>) -> Result<Self> {
        let core = &session.core;
        core.tables.check_process()?;
        let state = ProcessArc::new(Arc::new(core.take_snapshot()?));
        Ok(Self { session: session.clone(), state })
    }

    /// Makes a handle of the snapshot that a transaction reads.
    pub(super) fn of_transaction(
        session: ProcessArc<Session>,
        state: ProcessArc<SnapshotState>,
    ) -> Self {
        Self { session, state }
    }

    /// Returns the LSN of the snapshot: the commits below it are in the snapshot.
    pub fn lsn(&self) -> Lsn {
        self.state.lsn
    }

    /// Returns a handle of the table as it was at the snapshot's moment: before or after a clear.
    fn at_moment<'t>(&self, table: &'t Table) -> Result<Cow<'t, Table>> {
        let core = &self.session.core;
        core.tables.check_process()?;
        if !Arc::ptr_eq(core, &table.session.core) {
            return Err(Error::OtherDatabase { table: table.name() });
        }
        let (dropped_at, created_at) = (table.state.dropped_at(), table.state.created_at());
        if dropped_at == 0 && !self.state.precedes(created_at) {
            return Ok(Cow::Borrowed(table));
        }
        let state = table.state.at_moment(|moment| self.state.precedes(moment));
        Ok(Cow::Owned(Table::new(table.session.clone(), state)))
    }

    /// Returns the value of `key`, or `None` if it is absent or had expired. Fails as
    /// [`Table::get`] does, and with [`Error::SnapshotExpired`] or [`Error::OtherDatabase`].
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        check_key(key)?;
        let table = &*self.at_moment(table)?;
        self.session.core.snapshot_get(&self.state, &table.state, key)
    }

    /// Copies the value of `key` into `out` and replaces its content. Returns whether the key has a
    /// value; otherwise, and after an error, `out` is empty. Fails as [`Snapshot::get`] does.
    pub fn get_into(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        out.clear();
        self.get(table, key).map(|value| Value::copy_to(value.as_ref(), out))
    }

    /// Returns the values of `keys` in the same order. Fails as [`Snapshot::get`] does.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        keys.iter().try_for_each(|key| check_key(key))?;
        let table = &*self.at_moment(table)?;
        self.session.core.snapshot_multi_get(&self.state, &table.state, &keys)
    }

    /// Returns whether `key` has a value. Reads the value. Fails as [`Snapshot::get`] does.
    pub fn contains(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(table, key).map(|value| value.is_some())
    }

    /// Returns the entries of a range in key order, from either end. Fails with
    /// [`Error::Unordered`] on an engine without key order, and as [`Snapshot::get`] does.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<Entries> {
        let table = &*self.at_moment(table)?;
        Entries::new(table, &self.state, range.into_key_range())
    }

    /// Calls `each` with the entries of a range in key order until it returns `Break`. Allocates
    /// nothing for an entry that was not written since the snapshot. Fails as [`Snapshot::range`]
    /// does.
    pub fn visit(
        &self,
        table: &Table,
        range: impl KeyBounds,
        each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let table = &*self.at_moment(table)?;
        table.visit_in(&self.state, range.into_key_range(), each)
    }

    /// Returns about `count` entries (at least 1, if there are any) from `cursor`, and the cursor
    /// of the next page. [`Cursor::START`] begins a scan; the returned cursor equals it at the end.
    /// Works on every engine. A whole scan returns each entry of the snapshot exactly once, in no
    /// promised order. A page may be empty before the end. Fails as [`Snapshot::get`] does, and
    /// with [`Error::Limit`] for a cursor of another engine.
    pub fn scan(
        &self,
        table: &Table,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let table = &*self.at_moment(table)?;
        let (core, state) = (&self.session.core, &table.state);
        let count = count.max(1);
        let (stored, next) = core.snapshot_scan(&self.state, state, cursor.borrow(), count)?;
        let visible = |(key, stored): (Key, contract::Value)| {
            let value = core.visible_in(&self.state, state, stored)?;
            Ok(value.map(|value| (key, value)))
        };
        let entries: Result<Vec<_>> = stored.into_iter().map(visible).collect();
        Ok((entries?.into_iter().flatten().collect(), next))
    }
}
