//! Spilling: moves versions from memory to files, and keeps versions within their limits.
//!
//! Problem: versions of a snapshot that is held for long exceed memory. How: when segments take
//! more than half of the memory of versions, the job `versions` merges the complete ones into a
//! file. A file that is less than twice as large as what is merged is merged too. So the sizes of
//! files are a geometric series: a lookup asks few files, and a version is rewritten few times. The
//! merge drops the versions that no open snapshot needs.
//!
//! Memory of versions has an eighth of the budget before it spills, and a quarter at most. The
//! eighth holds the working set of snapshots that live for moments (iterators, transactions), which
//! then never touch the disk. The quarter leaves room for the writes during one spill, and three
//! quarters for the tables. Filters and fences of files are in it.
//!
//! A writer that finds the memory full waits until the job has moved versions. If the job cannot,
//! because a disk is full or the segments are not complete, the oldest snapshot ends. The write
//! itself never fails.
//!
//! Invariants:
//! - Only the job writes files. It holds no stripe and no in-flight slot.
//! - The job waits for no writer, so a writer that holds stripes may wait for it.
//!
//! Locks: `compaction`, then `open` or `rotation`, each for a moment.

use std::{sync::Arc, time::Duration};

use super::{
    merge::{CompleteRuns, copy_needed},
    mutants,
    run::VersionRun,
    spill_state::memory_max,
    store::VersionStore,
};
use crate::{
    Result,
    db::tables::job_handles::JobKind,
    util::{
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Spilling begins when the memory of versions is used up to this fraction (a half).
const SPILL_FRACTION: u64 = 2;
/// A file is merged if it is smaller than what is merged with it times this.
const MERGE_RATIO: u64 = 2;
/// Longest wait of a writer for the job to begin, in pauses. The job begins within a pause unless
/// the machine is overloaded; while it works, the writer waits for its lock.
const PAUSES_MAX: u32 = if cfg!(model) { 1 } else { 50 };
const PAUSE: Duration = Duration::from_millis(1);

impl VersionStore {
    /// Returns the maximum bytes of memory of versions.
    pub(super) fn memory_max(&self) -> u64 {
        memory_max(self.budget.limit(), self.limits.bytes)
    }

    /// Returns whether versions take so much memory that some are to be moved to a file, or more in
    /// all than the limit.
    pub(super) fn wants_spill(&self) -> bool {
        self.memory_bytes() > self.memory_max() / SPILL_FRACTION || self.is_beyond_limit()
    }

    /// Returns whether the memory of versions is full before the last segment is.
    fn is_memory_full(&self) -> bool {
        self.memory_bytes() + self.arenas.capacity() > self.memory_max()
    }

    /// Returns whether memory and files of versions exceed the limit.
    fn is_beyond_limit(&self) -> bool {
        self.pinned_bytes() > self.limits.bytes
    }

    /// Returns the bytes of all versions, in memory and in files.
    fn pinned_bytes(&self) -> u64 {
        self.runs.load().iter().map(|run| run.memory_bytes() + run.file_bytes()).sum()
    }

    /// Makes room in the memory of versions. Ends the oldest snapshots if there is no other way.
    pub(super) fn make_room(&self) -> Result<()> {
        if self.wants_spill() {
            self.host.jobs.wake(JobKind::Versions);
        }
        while self.is_memory_full() {
            if self.await_spill() {
                continue;
            }
            self.compact()?;
            if !self.is_memory_full() || !self.end_oldest(&self.reason_to_end()) {
                break;
            }
        }
        Ok(())
    }

    fn reason_to_end(&self) -> String {
        if let Some(failure) = &*lock(&self.spill.failure) {
            return format!("its versions filled memory and could not be moved to disk: {failure}");
        }
        if self.memory_max() == self.limits.bytes {
            return "snapshots hold more than snapshot_limit".to_owned();
        }
        "its versions filled their share of the memory budget".to_owned()
    }

    /// Waits until the job has moved versions. Returns `false` if it has not.
    fn await_spill(&self) -> bool {
        let before = self.spill.spills_total.load(Ordering::Acquire);
        for _ in 0..PAUSES_MAX {
            let applied = self.log.applied();
            let runs = self.runs.load();
            let can_spill =
                runs.iter().any(|run| run.segment().is_some() && run.is_complete(applied));
            drop(runs);
            if !can_spill || lock(&self.spill.failure).is_some() {
                return false;
            }
            self.env.pause(PAUSE);
            // Waits for the spill in progress.
            drop(lock(&self.compaction));
            if self.spill.spills_total.load(Ordering::Acquire) != before {
                return true;
            }
        }
        false
    }

    /// The job: moves versions to files while they take too much memory, and ends the oldest
    /// snapshots while versions exceed `snapshot_limit`. A failure leaves everything as it was.
    pub(crate) fn keep_to_limits(&self) -> Result<()> {
        let outcome = self.spill_and_merge();
        *lock(&self.spill.failure) = outcome.as_ref().err().map(ToString::to_string);
        outcome
    }

    fn spill_and_merge(&self) -> Result<()> {
        while self.memory_bytes() > self.memory_max() / SPILL_FRACTION {
            if !self.spill_now(false)? {
                break;
            }
        }
        while self.is_beyond_limit() {
            let merged = self.spill.merged_bytes.load(Ordering::Relaxed);
            let has_grown = self.pinned_bytes() > merged + merged / 16;
            if has_grown && self.spill_now(true)? {
                self.spill.merged_bytes.store(self.pinned_bytes(), Ordering::Relaxed);
                continue;
            }
            if !self.end_oldest("snapshots hold more than snapshot_limit") {
                break;
            }
            // The versions that it alone needed can be dropped now.
            self.spill.merged_bytes.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Merges complete segments and small files, or (`all`) all complete runs, into one file.
    /// Returns whether runs were replaced.
    pub(crate) fn spill_now(&self, all: bool) -> Result<bool> {
        let _compaction = lock(&self.compaction);
        let complete = self.complete_runs();
        let start = if all { 0 } else { first_to_merge(&complete) };
        let old = complete.runs.get(start..).unwrap_or(&[]);
        if old.is_empty() || (!all && old.iter().all(|run| run.segment().is_none())) {
            return Ok(false);
        }
        let mut writer = self.files.create(old.iter().map(VersionRun::versions).sum())?;
        copy_needed(old, &complete.snapshots, &mut writer)?;
        let file = writer.finish()?.map(|file| VersionRun::File(Arc::new(file)));
        let new: Vec<_> = file.into_iter().collect();
        let is_replaced = mutant!(
            SpillLeavesGap: mutants::replace_in_two_steps(self, old, new),
            else self.replace(old, new)
        );
        self.compacted_bytes.store(self.memory_bytes(), Ordering::Relaxed);
        if is_replaced {
            self.spill.spills_total.fetch_add(1, Ordering::AcqRel);
        }
        Ok(is_replaced)
    }
}

/// Returns the first run to merge: the first segment, or a file before it that is small compared
/// with what follows.
fn first_to_merge(complete: &CompleteRuns) -> usize {
    let mut start = complete.files();
    let size = |run: &VersionRun| match run {
        VersionRun::Memory(_) => run.memory_bytes(),
        VersionRun::File(_) => run.file_bytes(),
    };
    let mut bytes: u64 = complete.runs.iter().skip(start).map(size).sum();
    while let Some(before) = start.checked_sub(1).and_then(|before| complete.runs.get(before))
        && size(before) < bytes.saturating_mul(MERGE_RATIO)
    {
        bytes += size(before);
        start -= 1;
    }
    start
}
