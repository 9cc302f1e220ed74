//! Lookups in the version store: what a key was for a snapshot.

use std::sync::Arc;

use super::{
    loaded_ranges::LoadedRange,
    mutants,
    segment::VersionSegment,
    snapshot_state::SnapshotState,
    store::VersionStore,
    version_key::{VersionKey, end_of_table, key_at, lower_bound, place_of},
};
use crate::{
    contract::{Direction, KeyRange, Value},
    db::tables::state::TableState,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Ordering, read},
    },
};

/// What a key is for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// What the engine has.
    Current,
    /// It had this stored value, or none, and was written since.
    Was(Option<Value>),
}

/// A key with a version for a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct NextVersion {
    /// Where the key is in the order of the table: the key, after the high half of its
    /// position if the engine scans by hashes.
    pub(crate) place: Vec<u8>,
    /// The stored value that the snapshot shows; `None`: it shows none.
    pub(crate) value: Option<Value>,
}

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
    pub(crate) fn find(&self, snapshot: &SnapshotState, table: &TableState, key: &[u8]) -> Earlier {
        if self.may_have(snapshot, table) {
            self.find_version(snapshot, table, key)
        } else {
            Earlier::Current
        }
    }

    fn find_version(&self, snapshot: &SnapshotState, table: &TableState, key: &[u8]) -> Earlier {
        let version = VersionKey::new(table, key, table.hash.hash(key));
        let found = self.oldest_since(&version, snapshot.lsn);
        if let Some(load) = self.load_that_hides(snapshot, table, key)
            && found.as_ref().is_none_or(|(lsn, _)| *lsn >= load.lsn)
        {
            return Earlier::Was(None);
        }
        found.map_or(Earlier::Current, |(_, value)| Earlier::Was(value))
    }

    /// Returns the oldest version of a key that was replaced at `lsn` or later.
    fn oldest_since(&self, key: &VersionKey, lsn: Lsn) -> Option<(Lsn, Option<Value>)> {
        let lsn = mutant!(SnapshotReadsNewestVersion: mutants::newest(self, key, lsn), else lsn);
        // Versions of one key are in segments in the order of its writes.
        let segments = self.segments.load();
        let mut reaching = segments.iter().filter(|segment| segment.reaches(lsn));
        reaching.find_map(|segment| segment.oldest_since(key, lsn))
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
    ) -> Option<NextVersion> {
        if table.last_version() < snapshot.lsn {
            return None;
        }
        let mut start = lower_bound(table, start);
        let mut end = end.map_or_else(|| end_of_table(table), |end| lower_bound(table, end));
        let segments = self.segments.load();
        let reaching = || segments.iter().filter(|segment| segment.reaches(snapshot.lsn));
        loop {
            let bytes = nearest(reaching(), (&start, &end), direction)?;
            let place = place_of(&bytes);
            // A key of a sorted load that has no version is the engine's to return.
            if let Earlier::Was(value) = self.find_version(snapshot, table, key_at(table, place)) {
                return Some(NextVersion { place: place.to_vec(), value });
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
    ) -> bool {
        self.may_have(snapshot, table) && {
            let version = VersionKey::new(table, key, table.hash.hash(key));
            self.has_since(&version, snapshot.lsn) || self.is_hidden(snapshot, table, key)
        }
    }

    /// Returns a key of the range that a commit after the snapshot has written, or that a sorted
    /// load has added. The caller holds all stripes.
    pub(crate) fn changed_key_in(
        &self,
        snapshot: &SnapshotState,
        table: &TableState,
        range: &KeyRange,
    ) -> Option<Vec<u8>> {
        if self.has_loads.load(Ordering::Acquire) {
            let loads = read(&self.loads);
            let is_in = |load: &&LoadedRange| {
                load.table == table.id
                    && load.number > snapshot.number
                    && range.end.as_ref().is_none_or(|end| *end > load.after)
            };
            if let Some(load) = loads.iter().find(is_in) {
                return Some(load.after.clone());
            }
        }
        let bounds = (range.start.as_deref().unwrap_or(&[]), range.end.as_deref());
        let found = self.nearest_between((snapshot, table), bounds, Direction::Up)?;
        Some(key_at(table, &found.place).to_vec())
    }
}

/// Returns the first encoded key of some segments that is not below `start`.
pub(super) fn nearest_front(segments: &[Arc<VersionSegment>], start: &[u8]) -> Option<Vec<u8>> {
    nearest(segments.iter(), (start, &[u8::MAX; 9]), Direction::Up)
}

/// Returns the first or the last encoded key of some segments from `start` to `end`.
fn nearest<'a>(
    segments: impl Iterator<Item = &'a Arc<VersionSegment>>,
    (start, end): (&[u8], &[u8]),
    direction: Direction,
) -> Option<Vec<u8>> {
    let (mut nearest, mut key): (Option<Vec<u8>>, _) = (None, Vec::new());
    for segment in segments {
        let is_found = match direction {
            Direction::Up => segment.first_key(start, &mut key) && *key < *end,
            Direction::Down => segment.last_key(end, &mut key) && *key >= *start,
        };
        let is_nearer = nearest.as_ref().is_none_or(|nearest| match direction {
            Direction::Up => key < *nearest,
            Direction::Down => key > *nearest,
        });
        if is_found && is_nearer {
            std::mem::swap(nearest.get_or_insert_default(), &mut key);
        }
    }
    nearest
}
