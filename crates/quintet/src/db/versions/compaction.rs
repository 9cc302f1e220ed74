//! Compaction in memory: drops the versions that no open snapshot needs from segments. For when
//! versions cannot move to a file.
//!
//! Locks: `compaction`, then `open` or `rotation`, each for a moment.

use std::sync::Arc;

use super::{
    merge::{VersionSink, copy_needed},
    run::VersionRun,
    segment::{VersionSegment, version_bytes},
    store::VersionStore,
    version_key::VersionKey,
};
use crate::{
    Error, Result,
    util::{
        codec::Lsn,
        sync::{Ordering, lock},
    },
};

/// Segments that replace others.
struct CompactedSegments<'a> {
    store: &'a VersionStore,
    segments: Vec<Arc<VersionSegment>>,
}

impl VersionSink for CompactedSegments<'_> {
    fn add_version(&mut self, key: &VersionKey, lsn: Lsn, value: Option<&[u8]>) -> Result<()> {
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
    /// Returns whether versions have taken more memory since the last compaction than it left.
    fn has_grown(&self) -> bool {
        let left = self.compacted_bytes.load(Ordering::Relaxed);
        self.memory_bytes() > left + (left / 4).max(self.memory_max() / 16)
    }

    /// Drops the versions that no open snapshot needs from all segments but the last. Does nothing
    /// if little has been added since the last time. A failure leaves everything as it was.
    pub(super) fn compact(&self) -> Result<()> {
        let _compaction = lock(&self.compaction);
        if self.has_grown() { self.compact_now() } else { Ok(()) }
    }

    /// As [`VersionStore::compact`]. The caller holds `compaction`.
    pub(crate) fn compact_now(&self) -> Result<()> {
        let complete = self.complete_runs();
        let old = complete.runs.get(complete.files()..).unwrap_or(&[]);
        let mut compacted = CompactedSegments { store: self, segments: Vec::new() };
        copy_needed(old, &complete.snapshots, &mut compacted)?;
        for segment in &compacted.segments {
            segment.seal(complete.applied);
        }
        self.replace(old, compacted.segments.into_iter().map(VersionRun::Memory).collect());
        self.compacted_bytes.store(self.memory_bytes(), Ordering::Relaxed);
        Ok(())
    }
}
