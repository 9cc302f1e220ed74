//! Ranges of a snapshot, from both ends, and visits.
//!
//! A range merges the engine's entries with the keys that have a version. When the engine has
//! passed from one key to the next, every key between the two that was removed since the snapshot
//! has a version. So the versions between them are searched then, not before.

use std::{cmp::Ordering, ops::ControlFlow};

use super::peeked_ends::PeekedEnds;
use crate::{
    Result,
    contract::{self, Direction, Engine as _, Entry, EntryIter, KeyRange, Visit},
    db::{
        core::Core,
        tables::{state::TableState, value::Key},
        versions::{NextVersion, SnapshotState},
    },
    io::process::ProcessArc,
    util::mutant::mutant,
};

/// The version nearest to one end of a range, kept while no version is added to the table.
#[derive(Debug, Default)]
struct NearestVersion {
    /// [`TableState::versions_total`] before the search; `None`: not searched.
    searched_at: Option<u64>,
    version: Option<NextVersion>,
}

impl NearestVersion {
    /// Returns the version, or what `search` finds if versions were added since, or if the version
    /// is not `is_in` the range any more.
    fn get(
        &mut self,
        table: &TableState,
        is_in: impl Fn(&[u8]) -> bool,
        search: impl FnOnce() -> Result<Option<NextVersion>>,
    ) -> Result<Option<&NextVersion>> {
        let now = Some(table.versions_total());
        let is_out = self.version.as_ref().is_some_and(|version| !is_in(&version.place));
        if is_out || self.searched_at != now {
            self.version = search()?;
            self.searched_at = now;
        }
        Ok(self.version.as_ref())
    }

    fn take(&mut self) -> Option<NextVersion> {
        self.searched_at = None;
        self.version.take()
    }
}

/// The entries of a range in a snapshot, envelopes included.
pub(crate) struct SnapshotRange {
    stored: PeekedEnds<EntryIter, Entry>,
    snapshot: ProcessArc<SnapshotState>,
    /// The first key that the front may return; empty: any.
    start: Vec<u8>,
    /// The first key that the back may not return; `None`: any may be returned.
    end: Option<Vec<u8>>,
    first_version: NearestVersion,
    last_version: NearestVersion,
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
        let stored = std::mem::replace(self.stored.iterator_mut(), Box::new(std::iter::empty()));
        std::mem::forget(stored);
    }

    /// Returns the snapshot.
    pub(crate) fn snapshot(&self) -> &SnapshotState {
        &self.snapshot
    }

    /// Returns the next entry from the front (`Up`) or from the back. After an error the range must
    /// not be used.
    pub(crate) fn next(
        &mut self,
        core: &Core,
        table: &TableState,
        direction: Direction,
    ) -> Result<Option<StoredEntry>> {
        loop {
            // In this order: a key that was removed before the engine returned this entry has a
            // version now.
            let entry = self.stored.next(direction)?;
            if !core.versions.may_have(&self.snapshot, table) {
                self.snapshot.check()?;
                let Some(entry) = entry else { return Ok(None) };
                self.pass(&entry.key, direction);
                return Ok(Some((entry.key, entry.value)));
            }
            if let Some(entry) = entry {
                self.stored.put_back(direction, entry);
            }
            let version = self.next_version(core, table, direction)?;
            self.snapshot.check()?;
            if let Some(version) = version {
                self.pass(&version.place, direction);
                if let Some(value) = version.value {
                    return Ok(Some((version.place, value)));
                }
                continue;
            }
            let Some(entry) = self.stored.take(direction) else { return Ok(None) };
            self.pass(&entry.key, direction);
            if !core.versions.is_hidden(&self.snapshot, table, &entry.key) {
                return Ok(Some((entry.key, entry.value)));
            }
        }
    }

    /// Takes the next version, if it is not behind the engine's next entry. Takes that entry too if
    /// it has the same key.
    fn next_version(
        &mut self,
        core: &Core,
        table: &TableState,
        direction: Direction,
    ) -> Result<Option<NextVersion>> {
        mutant!(SnapshotRangeMissesDeleted => return Ok(None));
        let (start, end) = (&*self.start, self.end.as_deref());
        let nearest = match direction {
            Direction::Up => &mut self.first_version,
            Direction::Down => &mut self.last_version,
        };
        let is_in = |place: &[u8]| place >= start && end.is_none_or(|end| place < end);
        let of_table = (&*self.snapshot as &SnapshotState, table);
        let search = || core.versions.nearest_between(of_table, (start, end), direction);
        let Some(version) = nearest.get(table, is_in, search)? else { return Ok(None) };
        let order = self.stored.peek(direction)?.map(|entry| version.place.cmp(&entry.key));
        let is_behind = match direction {
            Direction::Up => order == Some(Ordering::Greater),
            Direction::Down => order == Some(Ordering::Less),
        };
        if is_behind {
            return Ok(None);
        }
        if order == Some(Ordering::Equal) {
            self.stored.take(direction);
        }
        Ok(nearest.take())
    }

    /// Leaves the keys up to `key` behind.
    fn pass(&mut self, key: &[u8], direction: Direction) {
        match direction {
            Direction::Up => pass(&mut self.start, key),
            Direction::Down => {
                let end = self.end.get_or_insert_default();
                end.clear();
                end.extend_from_slice(key);
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
        let stored = PeekedEnds::new(ordered.range(range)?);
        let snapshot = snapshot.clone();
        Ok(SnapshotRange {
            stored,
            snapshot,
            start,
            end,
            first_version: NearestVersion::default(),
            last_version: NearestVersion::default(),
        })
    }

    /// Calls `each` with the key and the stored value of each entry of a range in a snapshot, in
    /// key order, until it breaks off. The table is ordered.
    pub(crate) fn snapshot_visit(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        range: KeyRange,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.begin_snapshot_read(snapshot, table)?;
        let ordered = table.engine.ordered().ok_or_else(|| self.tables.unordered(table))?;
        let mut versions = VisitedVersions {
            core: self,
            snapshot,
            table,
            start: range.start.clone().unwrap_or_default(),
            end: range.end.clone(),
            nearest: NearestVersion::default(),
        };
        let mut has_ended = false;
        let mut merged = |key: &[u8], stored: &[u8]| {
            let mut flow = ControlFlow::Continue(());
            let mut is_passed = false;
            if self.versions.may_have(snapshot, table) {
                (flow, is_passed) = versions.visit_up_to(key, &mut each)?;
            }
            if !is_passed && flow.is_continue() {
                snapshot.check()?;
                pass(&mut versions.start, key);
                flow = each(key, stored)?;
            }
            has_ended = flow.is_break();
            Ok(flow)
        };
        ordered.visit(range, &mut merged)?;
        if !has_ended && self.versions.may_have(snapshot, table) {
            versions.visit_rest(&mut each)?;
        }
        snapshot.check()
    }
}

/// What a visit knows of the versions of its table.
struct VisitedVersions<'v> {
    core: &'v Core,
    snapshot: &'v SnapshotState,
    table: &'v TableState,
    /// The first key that the visit has not passed; empty: none was passed.
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    nearest: NearestVersion,
}

impl VisitedVersions<'_> {
    /// Visits the versions up to the engine's next key. Returns what `each` returned last, and
    /// whether the entry of the key is passed: it has a version, or the snapshot has no such key.
    fn visit_up_to(&mut self, key: &[u8], each: Visit<'_>) -> Result<(ControlFlow<()>, bool)> {
        while let Some(version) = self.next(Some(key))? {
            let flow = self.visit_version(&version, each)?;
            if flow.is_break() || version.place == key {
                return Ok((flow, true));
            }
        }
        let is_hidden = self.core.versions.is_hidden(self.snapshot, self.table, key);
        if is_hidden {
            self.snapshot.check()?;
            pass(&mut self.start, key);
        }
        Ok((ControlFlow::Continue(()), is_hidden))
    }

    /// Visits the versions up to the end of the range.
    fn visit_rest(&mut self, each: Visit<'_>) -> Result<()> {
        while let Some(version) = self.next(None)? {
            if self.visit_version(&version, each)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn visit_version(&mut self, version: &NextVersion, each: Visit<'_>) -> Result<ControlFlow<()>> {
        pass(&mut self.start, &version.place);
        self.snapshot.check()?;
        match &version.value {
            Some(value) => each(&version.place, value),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Takes the first version from `start` on, if it is not above `key`; without a key, if it is
    /// below `end`.
    fn next(&mut self, key: Option<&[u8]>) -> Result<Option<NextVersion>> {
        let Self { core, snapshot, table, start, end, nearest } = self;
        let bounds = (&**start, end.as_deref());
        let search = || core.versions.nearest_between((snapshot, table), bounds, Direction::Up);
        let Some(first) = nearest.get(table, |_| true, search)? else { return Ok(None) };
        if key.is_some_and(|key| *first.place > *key) {
            return Ok(None);
        }
        Ok(nearest.take())
    }
}
