//! Ranges of a snapshot, from both ends, and visits.
//!
//! A range merges the engine's entries with the keys that have a version. When the engine has
//! passed from one key to the next, every key between the two that was removed since the snapshot
//! has a version. So the versions between them are searched then, not before.

use std::ops::ControlFlow;

use crate::{
    Result,
    contract::{self, Engine as _, Entry, EntryIter, KeyRange, Visit},
    db::{
        core::Core,
        tables::{state::TableState, value::Key},
        versions::{Earlier, NextVersion, SnapshotState},
    },
    io::process::ProcessArc,
    util::mutant::mutant,
};

/// The entries of a range in a snapshot, envelopes included.
pub(crate) struct SnapshotRange {
    stored: EntryIter,
    snapshot: ProcessArc<SnapshotState>,
    /// The first key that the front may return; empty: any.
    start: Vec<u8>,
    /// The first key that the back may not return; `None`: any may be returned.
    end: Option<Vec<u8>>,
    /// Entries that the engine has returned and that are behind a version.
    front: Option<Entry>,
    back: Option<Entry>,
}

/// An entry in a snapshot: its key, and the stored value.
pub(crate) type StoredEntry = (Key, contract::Value);

impl std::fmt::Debug for SnapshotRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotRange").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}

/// Sets `start` to the first key above `key`.
fn pass(start: &mut Vec<u8>, key: &[u8]) {
    start.clear();
    start.extend_from_slice(key);
    start.push(0);
}

impl SnapshotRange {
    /// Forgets the engine's iterator without dropping it: it belongs to the parent of this forked
    /// process.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.stored, Box::new(std::iter::empty())));
    }

    /// Returns the next entry from the front. `None` after the last, or after an error.
    pub(crate) fn next(&mut self, core: &Core, table: &TableState) -> Option<Result<StoredEntry>> {
        loop {
            let entry = match self.front.take() {
                None => match self.stored.next() {
                    None => self.back.take(),
                    Some(Ok(entry)) => Some(entry),
                    Some(Err(error)) => return Some(Err(error)),
                },
                entry => entry,
            };
            let version = self.version_before(core, table, entry.as_ref());
            if let Err(error) = self.snapshot.check() {
                return Some(Err(error));
            }
            match (version, entry) {
                (None, None) => return None,
                (Some(version), entry) => {
                    pass(&mut self.start, &version.place);
                    self.front = entry.filter(|entry| entry.key != version.place);
                    if let Some(value) = version.value {
                        return Some(Ok((version.place, value)));
                    }
                }
                (None, Some(entry)) => {
                    pass(&mut self.start, &entry.key);
                    match core.versions.find(&self.snapshot, table, &entry.key) {
                        Earlier::Current => return Some(Ok((entry.key, entry.value))),
                        Earlier::Was(Some(value)) => return Some(Ok((entry.key, value))),
                        Earlier::Was(None) => {}
                    }
                }
            }
        }
    }

    /// Returns the first version up to the engine's next entry.
    fn version_before(
        &self,
        core: &Core,
        table: &TableState,
        entry: Option<&Entry>,
    ) -> Option<NextVersion> {
        if !core.versions.may_have(&self.snapshot, table) {
            return None;
        }
        mutant!(SnapshotRangeMissesDeleted => return None);
        let mut after = Vec::new();
        let end = match entry {
            None => self.end.as_deref(),
            Some(entry) => {
                pass(&mut after, &entry.key);
                Some(&*after)
            }
        };
        core.versions.first_between((&self.snapshot, table), &self.start, end)
    }

    /// Returns the next entry from the back. `None` after the last, or after an error.
    pub(crate) fn next_back(
        &mut self,
        core: &Core,
        table: &TableState,
    ) -> Option<Result<StoredEntry>> {
        loop {
            let entry = match self.back.take() {
                None => match self.stored.next_back() {
                    None => self.front.take(),
                    Some(Ok(entry)) => Some(entry),
                    Some(Err(error)) => return Some(Err(error)),
                },
                entry => entry,
            };
            let version = if core.versions.may_have(&self.snapshot, table) {
                let start = entry.as_ref().map_or(&self.start, |entry| &entry.key);
                core.versions.last_between((&self.snapshot, table), start, self.end.as_deref())
            } else {
                None
            };
            if let Err(error) = self.snapshot.check() {
                return Some(Err(error));
            }
            match (version, entry) {
                (None, None) => return None,
                (Some(version), entry) => {
                    self.end = Some(version.place.clone());
                    self.back = entry.filter(|entry| entry.key != version.place);
                    if let Some(value) = version.value {
                        return Some(Ok((version.place, value)));
                    }
                }
                (None, Some(entry)) => {
                    let end = self.end.get_or_insert_default();
                    end.clear();
                    end.extend_from_slice(&entry.key);
                    match core.versions.find(&self.snapshot, table, &entry.key) {
                        Earlier::Current => return Some(Ok((entry.key, entry.value))),
                        Earlier::Was(Some(value)) => return Some(Ok((entry.key, value))),
                        Earlier::Was(None) => {}
                    }
                }
            }
        }
    }
}

impl Core {
    /// Returns the entries of a range in a snapshot. The table is ordered.
    pub(crate) fn snapshot_range(
        &self,
        snapshot: &ProcessArc<SnapshotState>,
        table: &TableState,
        range: KeyRange,
    ) -> Result<SnapshotRange> {
        self.begin_snapshot_read(snapshot, table)?;
        let (start, end) = (range.start.clone().unwrap_or_default(), range.end.clone());
        let ordered = table.engine.ordered().ok_or_else(|| self.tables.unordered(table))?;
        let stored = ordered.range(range)?;
        let snapshot = snapshot.clone();
        Ok(SnapshotRange { stored, snapshot, start, end, front: None, back: None })
    }

    /// Calls `each` with the key and the stored value of each entry of a range in a snapshot, in key
    /// order, until it breaks off. The table is ordered.
    pub(crate) fn snapshot_visit(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        range: KeyRange,
        each: Visit<'_>,
    ) -> Result<()> {
        self.begin_snapshot_read(snapshot, table)?;
        let ordered = table.engine.ordered().ok_or_else(|| self.tables.unordered(table))?;
        let mut start = range.start.clone().unwrap_or_default();
        let end = range.end.clone();
        let mut has_ended = false;
        let mut merged = |key: &[u8], stored: &[u8]| {
            let flow = if self.versions.may_have(snapshot, table) {
                let flow = self.visit_versions((snapshot, table), (&mut start, Some(key)), each)?;
                match (flow, self.versions.find(snapshot, table, key)) {
                    (ControlFlow::Break(()), _) => ControlFlow::Break(()),
                    (_, Earlier::Current) => each(key, stored)?,
                    (_, Earlier::Was(Some(value))) => each(key, &value)?,
                    (flow, Earlier::Was(None)) => flow,
                }
            } else {
                each(key, stored)?
            };
            pass(&mut start, key);
            has_ended = flow.is_break();
            snapshot.check().map(|()| flow)
        };
        ordered.visit(range, &mut merged)?;
        if !has_ended {
            self.visit_versions((snapshot, table), (&mut start, end.as_deref()), each).map(drop)?;
        }
        snapshot.check()
    }

    /// Visits the keys from `start` to `end` that the engine no longer has. Advances `start`.
    fn visit_versions(
        &self,
        (snapshot, table): (&SnapshotState, &TableState),
        (start, end): (&mut Vec<u8>, Option<&[u8]>),
        each: Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        while let Some(version) = self.versions.first_between((snapshot, table), start, end) {
            pass(start, &version.place);
            snapshot.check()?;
            if let Some(value) = version.value
                && each(&version.place, &value)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
