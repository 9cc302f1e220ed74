//! Checkpoints of the index with the list of runs, and the removal of runs that they leave out.
//!
//! A checkpoint has these steps, each after the one before is done:
//! 1. a run's file is written and synced;
//! 2. the index gets the new values, in the page cache only; both runs' live counts change;
//! 3. the index is checkpointed; the list of runs with their live counts is in it, as the value of
//!    the empty key ([`super::run_list`]);
//! 4. the log is synced past every effect in the checkpoint; the directory of the runs is synced;
//! 5. the redo journal commits the changes as one group: the checkpoint is durable from here on;
//! 6. files of runs that the list lacks are removed.
//!
//! A crash before 5 finds the previous checkpoint, whose files all exist. Opening
//! ([`super::recover`]) removes files that no list names; the log has their entries. A checkpoint
//! may be taken between any two keys of a flush or a merge: its list then has the old and the new
//! runs. One group of the journal holds index, list and counts, so they cannot disagree, and there
//! is no compaction log.

use super::{pool::SlmPool, table::SlmTable};
use crate::{
    Result,
    bptree::checkpoint::CheckpointParticipant as _,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

impl SlmTable {
    /// Takes a checkpoint of the index with the list of runs. Returns the LSN up to which the files
    /// are complete: `up_to`, or the previous one if that is higher. Removes the files of runs that
    /// the checkpoint leaves out.
    pub(super) fn take_checkpoint(&self, up_to: Option<Lsn>) -> Result<Lsn> {
        if let Some(pool) = self.pool.as_ref().filter(|pool| pool.index.is_some()) {
            if self.manifest.has_dead() {
                self.list_in_pool()?;
            }
            let complete = up_to.map_or(pool.complete(), |lsn| pool.set_complete(lsn));
            self.remove_obsolete_runs();
            return Ok(complete);
        }
        let mut checkpointer = lock(&self.paged.checkpointer);
        let complete = checkpointer.complete();
        let lsn = up_to.map_or(complete, |lsn| lsn.max(complete));
        let is_dirty = self.paged.has_pending_changes() || self.manifest.has_dead();
        let outcome = if lsn > complete || is_dirty {
            let stored = self.paged.store_checkpoint(&mut checkpointer, lsn);
            stored.inspect(|()| self.pool.iter().for_each(SlmPool::note_pages))
        } else {
            Ok(())
        };
        let complete = checkpointer.complete();
        drop(checkpointer);
        self.remove_obsolete_runs();
        outcome.map(|()| complete)
    }

    /// Replaces the list of runs in the pool, if the index is there. Every run in the list has a
    /// durable file and name. Runs without live entries leave it and can be removed.
    pub(super) fn list_in_pool(&self) -> Result<()> {
        let Some(index) = self.pool_index() else { return Ok(()) };
        self.finish_index_batch(index)?;
        mutant!(SlmIndexBeforeRun: (), else self.manifest.make_durable()?);
        let mut omitted = Vec::new();
        self.with_pool_space(|| {
            omitted.clear();
            index.replace_list(|| self.manifest.pool_list(&mut omitted))
        })?;
        self.manifest.add_removable(omitted);
        Ok(())
    }

    /// Removes the runs that the newest durable list leaves out from the super version and from
    /// disk. Files that cannot be removed are tried again at the next call.
    pub(super) fn remove_obsolete_runs(&self) {
        let gone = self.manifest.remove_unlisted();
        let mut unremoved_runs = lock(&self.unremoved_runs);
        if !gone.is_empty() {
            let view = self.write_buffer.view.load_full();
            let runs = gone.iter().filter_map(|number| view.version.find(*number));
            self.release_run_memory(runs.map(|run| run.memory_bytes()).sum());
            self.write_buffer.install_version(|runs| runs.without(&gone), &[], self);
            unremoved_runs.extend(gone);
        }
        unremoved_runs.retain(|number| {
            let removed = self.owner.dir.remove(&self.owner.kind.name_of(u64::from(*number)));
            let failed = removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound);
            if failed {
                self.counters.cleanup_failures_total.fetch_add(1, Ordering::Relaxed);
            }
            failed
        });
    }
}
