//! Point reads of a snapshot.

use super::mutants;
use crate::{
    Result,
    contract::{self, Engine as _, KeyRange, MultiGetSink},
    db::{
        core::Core,
        tables::{
            state::{TableState, TableStatus},
            value::Value,
        },
        versions::{Earlier, SnapshotState},
    },
    util::mutant::mutant,
};

impl Core {
    /// Takes a snapshot of all tables.
    pub(crate) fn take_snapshot(&self) -> Result<SnapshotState> {
        self.tables.check_open()?;
        Ok(self.versions.take())
    }

    /// Begins a read of a table in a snapshot: fails if the table takes no reads, unless it was
    /// dropped after the snapshot was taken. Waits until the snapshot's commits are applied.
    pub(crate) fn begin_snapshot_read(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
    ) -> Result<()> {
        let is_kept = table.status() == TableStatus::Dropped
            && snapshot.precedes(table.dropped_at())
            && !self.tables.is_closed();
        if !is_kept {
            self.tables.check_usable(table)?;
        }
        snapshot.check()?;
        snapshot.settle();
        Ok(())
    }

    /// Returns what a snapshot shows of a stored value: `None` if it had expired.
    pub(crate) fn visible_in(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        stored: contract::Value,
    ) -> Result<Option<Value>> {
        let value = Value::open(stored).ok_or_else(|| self.tables.bad_envelope(table))?;
        let time =
            mutant!(SnapshotJudgesExpiryNow: mutants::now(self, snapshot), else snapshot.time);
        Ok(Some(value).filter(|value| !value.is_expired(time)))
    }

    /// Returns the value of a key in a snapshot.
    pub(crate) fn snapshot_get(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<Option<Value>> {
        self.begin_snapshot_read(snapshot, table)?;
        let stored = match self.versions.find(snapshot, table, key)? {
            Earlier::Was(stored) => stored,
            Earlier::Current => {
                let stored = table.engine.get(key)?;
                self.earlier_than(stored, snapshot, table, key)?
            }
        };
        self.end_snapshot_read(snapshot, table, stored)
    }

    /// Returns the stored value of a key in a snapshot. `current` was read from the engine.
    fn earlier_than(
        &self,
        current: Option<contract::Value>,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<Option<contract::Value>> {
        mutant!(SnapshotAsksEngineLast => return Ok(current));
        Ok(match self.versions.find(snapshot, table, key)? {
            Earlier::Was(stored) => stored,
            Earlier::Current => current,
        })
    }

    fn end_snapshot_read(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        stored: Option<contract::Value>,
    ) -> Result<Option<Value>> {
        snapshot.check()?;
        match stored {
            None => Ok(None),
            Some(stored) => self.visible_in(snapshot, table, stored),
        }
    }

    /// Returns the values of keys in a snapshot, in the order of the keys.
    pub(crate) fn snapshot_multi_get(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Value>>> {
        self.begin_snapshot_read(snapshot, table)?;
        let mut stored = Vec::with_capacity(keys.len());
        table.engine.multi_get(keys, MultiGetSink::Append(&mut stored))?;
        let visible = |(key, stored): (&&[u8], Option<_>)| {
            let stored = self.earlier_than(stored, snapshot, table, key)?;
            self.end_snapshot_read(snapshot, table, stored)
        };
        keys.iter().zip(stored).map(visible).collect()
    }

    /// Returns whether a commit after the snapshot has written the key. Exact, unless a write is in
    /// progress: the caller holds the key's stripe.
    pub(crate) fn is_key_changed(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<bool> {
        let is_changed = self.versions.is_key_changed(snapshot, table, key)?;
        snapshot.check().map(|()| is_changed)
    }

    /// Returns a key of the range that a commit after the snapshot has written; for an engine that
    /// scans by hashes, of the table. The caller holds all stripes.
    pub(crate) fn changed_key_in(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        range: &KeyRange,
    ) -> Result<Option<Vec<u8>>> {
        let whole = KeyRange::default();
        let range = if table.kind.is_ordered() { range } else { &whole };
        let changed = self.versions.changed_key_in(snapshot, table, range)?;
        snapshot.check().map(|()| changed)
    }
}
