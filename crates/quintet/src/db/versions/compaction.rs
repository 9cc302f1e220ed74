//! Compaction: drops the versions that no open snapshot needs.
//!
//! Versions that were saved for a snapshot that has ended stay as long as an older one is open, if
//! they share its segments. Compaction copies what is needed to new segments. Of each key that is,
//! for each open snapshot, the oldest version that was replaced at its LSN or later.
//!
//! Invariants:
//! - Only segments to which no writer adds are compacted. A snapshot that is taken meanwhile has a
//!   higher LSN than all their versions, so it needs none of them.
//! - The versions of one key stay in the order of its writes: they are copied together.
//!
//! Locks: `compaction`, then `open` or `rotation`, each for a moment.

use std::sync::Arc;

use super::{
    lookup::nearest_front,
    segment::{VersionSegment, version_bytes},
    store::VersionStore,
    version_key::{VersionKey, hash_of_half},
};
use crate::{
    Error, Result,
    contract::Value,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Segments that replace others.
struct CompactedSegments<'a> {
    store: &'a VersionStore,
    segments: Vec<Arc<VersionSegment>>,
}

impl CompactedSegments<'_> {
    fn add(&mut self, key: &VersionKey, lsn: Lsn, value: Option<&[u8]>) -> Result<()> {
        let budget = &self.store.budget;
        budget.reserve_unchecked(version_bytes(key, value));
        if self.segments.last().is_some_and(|segment| segment.insert(key, lsn, value)) {
            return Ok(());
        }
        let next = VersionSegment::new(&self.store.arenas, budget);
        let added = next.map(|next| {
            let is_added = next.insert(key, lsn, value);
            self.segments.push(Arc::new(next));
            is_added
        });
        match added {
            Ok(true) => Ok(()),
            Ok(false) => {
                budget.release(version_bytes(key, value));
                Err(Error::OutOfMemory { budget: budget.limit(), needed: budget.used() })
            }
            Err(error) => {
                budget.release(version_bytes(key, value));
                Err(Error::io("reserve memory for versions", error))
            }
        }
    }
}

impl VersionStore {
    /// Returns whether a compaction may free much memory.
    #[inline]
    pub(crate) fn wants_compaction(&self) -> bool {
        self.version_bytes() > self.limits.bytes / 2 && self.has_grown()
    }

    /// Returns whether versions have taken more memory since the last compaction than it left.
    fn has_grown(&self) -> bool {
        let left = self.compacted_bytes.load(Ordering::Relaxed);
        self.version_bytes() > left + (left / 4).max(self.limits.bytes / 16)
    }

    /// Drops the versions that no open snapshot needs from all segments but the last. Does nothing
    /// if little has been added since the last time. A failure leaves everything as it was.
    pub(crate) fn compact(&self) -> Result<()> {
        let _compaction = lock(&self.compaction);
        if self.has_grown() { self.compact_now() } else { Ok(()) }
    }

    /// As [`VersionStore::compact`]. The caller holds `compaction`.
    pub(crate) fn compact_now(&self) -> Result<()> {
        // In this order: a snapshot that is not in the list has an LSN from `applied` on, and the
        // versions of complete segments were replaced before.
        let open = || lock(&self.open).by_number.values().map(|open| open.lsn).collect();
        let early: Option<Vec<Lsn>> =
            mutant!(SnapshotCompactsBesideTaking: Some(open()), else None);
        let applied = self.log.applied();
        let all = self.segments.load_full();
        let snapshots = early.unwrap_or_else(open);
        let count = all.iter().take_while(|segment| segment.is_complete(applied)).count();
        let old = all.get(..count).unwrap_or(&[]);
        let mut compacted = CompactedSegments { store: self, segments: Vec::new() };
        copy_needed(old, &snapshots, &mut compacted)?;
        for segment in &compacted.segments {
            segment.seal(applied);
        }
        self.replace(old, compacted.segments);
        self.compacted_bytes.store(self.version_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Replaces the first segments by others, unless some have been freed meanwhile.
    fn replace(&self, old: &[Arc<VersionSegment>], new: Vec<Arc<VersionSegment>>) {
        let _rotation = lock(&self.rotation);
        let all = self.segments.load_full();
        let is_same = all.len() >= old.len()
            && all.iter().zip(old).all(|(now, before)| Arc::ptr_eq(now, before));
        if is_same {
            let rest = all.iter().skip(old.len()).cloned();
            self.segments.store(Arc::new(new.into_iter().chain(rest).collect()));
        }
    }
}

/// Copies the versions that snapshots with these LSNs, in ascending order, need.
fn copy_needed(
    old: &[Arc<VersionSegment>],
    snapshots: &[Lsn],
    compacted: &mut CompactedSegments<'_>,
) -> Result<()> {
    let Some(oldest) = snapshots.first() else { return Ok(()) };
    let mut start = Vec::new();
    let mut versions: Vec<(Lsn, Option<Value>)> = Vec::new();
    while let Some(bytes) = nearest_front(old, &start) {
        versions.clear();
        let mut half = 0;
        for segment in old {
            half = segment.versions_since(&bytes, *oldest, &mut versions).unwrap_or(half);
        }
        start.clear();
        start.extend_from_slice(&bytes);
        start.push(0);
        let key = VersionKey { bytes, hash: hash_of_half(half) };
        let mut needing = snapshots.iter().peekable();
        for (lsn, value) in &versions {
            // The snapshots up to this version that no older version serves.
            let mut is_needed = false;
            while needing.next_if(|snapshot| *snapshot <= lsn).is_some() {
                is_needed = true;
            }
            mutant!(SnapshotCompactsTooMuch => is_needed = false);
            if is_needed {
                compacted.add(&key, *lsn, value.as_deref())?;
            }
        }
    }
    Ok(())
}
