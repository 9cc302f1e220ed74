//! Lookups in the version store: what a key was for a snapshot. Those in files may fail.

use super::{
    earlier::{Earlier, NextVersion},
    loaded_ranges::LoadedRange,
    mutants,
    run::VersionRun,
    snapshot_state::SnapshotState,
    store::VersionStore,
    version_key::{VersionKey, end_of_table, key_at, lower_bound, place_of},
};
use crate::{
    Result,
    contract::{Direction, KeyRange, Value},
    db::tables::state::TableState,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Ordering, read},
    },
};

impl VersionStore {
    /// Returns whether a key of the table may have a version for the snapshot. The answer `false`
    /// holds for what the caller has read from the engine before the call.
    #[inline]
    pub(crate) fn may_have(&self, snapshot: &SnapshotState, table: &TableState) -> bool {
        table.last_version() >= snapshot.lsn || self.has_loads.load(Ordering::Acquire)
    }

    /// Returns what a key is for a snapshot. [`Earlier::Current`] holds for what the caller has
    /// read from the engine before the call.
    #[inline]
    pub(crate) fn find(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<Earlier> {
        if self.may_have(snapshot, table) {
            self.find_version(snapshot, table, key)
        } else {
            Ok(Earlier::Current)
        }
    }

    fn find_version(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<Earlier> {
        let version = VersionKey::new(table, key, table.hash.hash(key));
        let found = self.oldest_since(&version, snapshot.lsn)?;
        if let Some(load) = self.load_that_hides(snapshot, table, key)
            && found.as_ref().is_none_or(|(lsn, _)| *lsn >= load.lsn)
        {
            return Ok(Earlier::Was(None));
        }
        Ok(found.map_or(Earlier::Current, |(_, value)| Earlier::Was(value)))
    }

    /// Returns the oldest version of a key that was replaced at `lsn` or later.
    fn oldest_since(&self, key: &VersionKey, lsn: Lsn) -> Result<Option<(Lsn, Option<Value>)>> {
        let lsn = mutant!(SnapshotReadsNewestVersion: mutants::newest(self, key, lsn), else lsn);
        // Versions of one key are in runs in the order of its writes.
        for run in self.runs.load().iter().filter(|run| run.reaches(lsn)) {
            if let Some(found) = run.oldest_since(key, lsn)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns whether a sorted load has added the key after the snapshot. The key has no version
    /// for the snapshot.
    #[inline]
    pub(crate) fn is_hidden(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> bool {
        self.load_that_hides(snapshot, table, key).is_some()
    }

    fn load_that_hides(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Option<LoadedRange> {
        if !self.has_loads.load(Ordering::Acquire) {
            return None;
        }
        let loads = read(&self.loads);
        loads.iter().find(|load| load.hides(table.id, key, snapshot.number)).cloned()
    }

    /// Returns the first key (`Up`) or the last from `start` (included) to `end` (excluded) that
    /// has a version for the snapshot. Both are places in the order of the table; `None` is its
    /// end.
    pub(crate) fn nearest_between(
        &self,
        (snapshot, table): (&SnapshotState, &TableState),
        (start, end): (&[u8], Option<&[u8]>),
        direction: Direction,
    ) -> Result<Option<NextVersion>> {
        if table.last_version() < snapshot.lsn {
            return Ok(None);
        }
        let mut start = lower_bound(table, start);
        let mut end = end.map_or_else(|| end_of_table(table), |end| lower_bound(table, end));
        let runs = self.runs.load();
        let reaching = || runs.iter().filter(|run| run.reaches(snapshot.lsn));
        loop {
            let Some(bytes) = nearest(reaching(), (&start, &end), direction)? else {
                return Ok(None);
            };
            let place = place_of(&bytes);
            // A key of a sorted load that has no version is the engine's to return.
            let key = key_at(table, place);
            if let Earlier::Was(value) = self.find_version(snapshot, table, key)? {
                return Ok(Some(NextVersion { place: place.to_vec(), value }));
            }
            match direction {
                Direction::Up => start = [&*bytes, &[0]].concat(),
                Direction::Down => end = bytes,
            }
        }
    }

    /// Returns whether a commit after the snapshot has written the key. The caller holds the key's
    /// stripe, so no commit is in progress.
    pub(crate) fn is_key_changed(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        key: &[u8],
    ) -> Result<bool> {
        if !self.may_have(snapshot, table) {
            return Ok(false);
        }
        let version = VersionKey::new(table, key, table.hash.hash(key));
        let is_hidden = self.is_hidden(snapshot, table, key);
        Ok(is_hidden || self.has_since(&version, snapshot.lsn)?)
    }

    /// Returns a key of the range that a commit after the snapshot has written, or that a sorted
    /// load has added. The caller holds all stripes.
    pub(crate) fn changed_key_in(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        range: &KeyRange,
    ) -> Result<Option<Vec<u8>>> {
        if self.has_loads.load(Ordering::Acquire) {
            let loads = read(&self.loads);
            let is_in = |load: &&LoadedRange| {
                load.table == table.id
                    && load.number > snapshot.number
                    && range.end.as_ref().is_none_or(|end| *end > load.after)
            };
            if let Some(load) = loads.iter().find(is_in) {
                return Ok(Some(load.after.clone()));
            }
        }
        let bounds = (range.start.as_deref().unwrap_or(&[]), range.end.as_deref());
        let found = self.nearest_between((snapshot, table), bounds, Direction::Up)?;
        Ok(found.map(|found| key_at(table, &found.place).to_vec()))
    }
}

/// Returns the first or the last encoded key of some runs from `start` to `end`.
fn nearest<'a>(
    runs: impl Iterator<Item = &'a VersionRun>,
    (start, end): (&[u8], &[u8]),
    direction: Direction,
) -> Result<Option<Vec<u8>>> {
    let (mut nearest, mut key): (Option<Vec<u8>>, _) = (None, Vec::new());
    for run in runs {
        let is_found = match direction {
            Direction::Up => run.first_key(start, &mut key)? && *key < *end,
            Direction::Down => run.last_key(end, &mut key)? && *key >= *start,
        };
        let is_nearer = nearest.as_ref().is_none_or(|nearest| match direction {
            Direction::Up => key < *nearest,
            Direction::Down => key > *nearest,
        });
        if is_found && is_nearer {
            std::mem::swap(nearest.get_or_insert_default(), &mut key);
        }
    }
    Ok(nearest)
}
