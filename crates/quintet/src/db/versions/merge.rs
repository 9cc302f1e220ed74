//! Merges: copies the versions that open snapshots need from some runs to others.
//!
//! Versions that were saved for a snapshot that has ended stay as long as an older one is open, if
//! they share its runs. A merge copies what is needed to new segments ([`compaction`]) or to a
//! file ([`spill`]). Of each key that is, for each open snapshot, the oldest version that was
//! replaced at its LSN or later. Versions in earlier runs are not looked up, so a few more may
//! stay.
//!
//! Invariants:
//! - Only runs to which no writer adds are merged. A snapshot that is taken meanwhile has a higher
//!   LSN than all their versions, so it needs none of them.
//! - The versions of one key stay in the order of its writes: they are copied together.
//! - A copy takes the place of the adjacent runs that it was made from, at one moment. So each
//!   version is in exactly one run of each list.
//!
//! Locks: `compaction`, then `open` or `rotation`, each for a moment.
//!
//! [`compaction`]: super::compaction
//! [`spill`]: super::spill

use std::sync::Arc;

use super::{
    cursor::ReplacedValue,
    file::VersionFileWriter,
    run::VersionRun,
    store::VersionStore,
    version_key::{VersionKey, half_of_hash, hash_of_half},
};
use crate::{
    Result,
    util::{codec::Lsn, mutant::mutant, sync::lock},
};

/// Receives the versions that are needed, in the order of keys.
pub(super) trait VersionSink {
    /// Adds a version.
    fn add_version(&mut self, key: &VersionKey, lsn: Lsn, value: Option<&[u8]>) -> Result<()>;
}

impl VersionSink for VersionFileWriter {
    fn add_version(&mut self, key: &VersionKey, lsn: Lsn, value: Option<&[u8]>) -> Result<()> {
        self.add((&key.bytes, half_of_hash(key.hash)), lsn, value)
    }
}

/// The runs to which no writer adds, and the LSNs of the snapshots that may need their versions.
#[derive(Debug)]
pub(super) struct CompleteRuns {
    /// The files, then segments.
    pub(super) runs: Vec<VersionRun>,
    /// In ascending order.
    pub(super) snapshots: Vec<Lsn>,
    /// All commits below are applied.
    pub(super) applied: Lsn,
}

impl CompleteRuns {
    /// Returns the number of files.
    pub(super) fn files(&self) -> usize {
        self.runs.iter().take_while(|run| run.segment().is_none()).count()
    }
}

impl VersionStore {
    /// Returns the complete runs. The caller holds `compaction`.
    pub(super) fn complete_runs(&self) -> CompleteRuns {
        // In this order: a snapshot that is not in the list has an LSN from `applied` on, and the
        // versions of complete segments were replaced before.
        let open = || lock(&self.open).lsns();
        let early: Option<Vec<Lsn>> =
            mutant!(SnapshotCompactsBesideTaking: Some(open()), else None);
        let applied = self.log.applied();
        let all = self.runs.load_full();
        let snapshots = early.unwrap_or_else(open);
        let is_complete = |run: &&VersionRun| {
            let is_last = all.last().is_some_and(|last| last.is_same(run));
            mutant!(SpillTakesIncomplete: !is_last, else run.is_complete(applied))
        };
        let runs = all.iter().take_while(is_complete).cloned().collect();
        CompleteRuns { runs, snapshots, applied }
    }

    /// Replaces adjacent runs by others, unless some have been freed meanwhile. Returns whether it
    /// did.
    pub(super) fn replace(&self, old: &[VersionRun], new: Vec<VersionRun>) -> bool {
        let _rotation = lock(&self.rotation);
        let all = self.runs.load_full();
        let Some(first) = old.first() else { return false };
        let Some(start) = all.iter().position(|run| run.is_same(first)) else { return false };
        let end = start + old.len();
        let now = all.get(start..end).unwrap_or(&[]);
        let is_same =
            now.len() == old.len() && now.iter().zip(old).all(|(now, old)| now.is_same(old));
        if is_same {
            let before = all.iter().take(start).cloned();
            let after = all.iter().skip(end).cloned();
            self.runs.store(Arc::new(before.chain(new).chain(after).collect()));
        }
        is_same
    }
}

/// Copies the versions that snapshots with these LSNs, in ascending order, need.
pub(super) fn copy_needed(
    old: &[VersionRun],
    snapshots: &[Lsn],
    sink: &mut dyn VersionSink,
) -> Result<()> {
    let Some(oldest) = snapshots.first() else { return Ok(()) };
    let mut cursors = old.iter().map(VersionRun::cursor).collect::<Result<Vec<_>>>()?;
    let mut versions: Vec<ReplacedValue> = Vec::new();
    while let Some(bytes) = cursors.iter().filter_map(|cursor| cursor.key()).min() {
        let bytes = bytes.to_vec();
        versions.clear();
        let mut half = 0;
        for cursor in &mut cursors {
            if cursor.key() == Some(&*bytes) {
                half = cursor.take(*oldest, &mut versions)?;
            }
        }
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
                sink.add_version(&key, *lsn, value.as_deref())?;
            }
        }
    }
    Ok(())
}
