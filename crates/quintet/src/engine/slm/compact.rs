//! Merges runs: copies their live entries to new runs in key order, without dead or expired ones.
//!
//! An entry is live if the index points to it; at most one of the runs has the live entry of a key.
//! The index is updated for a copy only if it still points to the original
//! ([`crate::engine::slm::index_update`]). At the end nothing points to the merged runs. The next
//! checkpoint of the index leaves them out, and their files are removed.
//!
//! A merge takes seconds. It pauses between two of its output runs if a checkpoint is due, because
//! the log that opening must replay grows meanwhile, up to where writers wait. The index has all
//! copies of a paused merge, so dropping the merge loses nothing.
//!
//! Thread rules: one merge at a time (`compacting`). It flushes memtables that become due.

use std::sync::Arc;

use super::{
    index_key::IndexKey,
    index_update::{IndexEdit, IndexUpdates},
    index_value::BlockAddress,
    key_code::KeyBuffer,
    merge_input::{MergeInput, MergeJob, read_bytes, runs_max},
    run::SortedRun,
    run_builder::RunBuilder,
    run_list::DEAD,
    table::SlmTable,
};
use crate::{
    Error, Result,
    lsm::{cursor::merge::SortedCursor as _, rate_limiter::MERGE_DELAY_MAX},
    util::{
        codec::to_u64,
        mutant::mutant,
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Maximum number of runs that a step on a full disk merges.
const SPACE_MERGES: usize = 8;
/// Bytes of entries between two checks of the rate and of due flushes.
const STEP_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };

impl SlmTable {
    /// Runs one step of the background: a due flush, or a scan of the index and a merge.
    pub(super) fn compact_step(&self) -> Result<()> {
        if self.paged.lacks_space() {
            return self.space_step();
        }
        if self.write_buffer.is_flush_due(&self.write_buffer.view.load()) {
            return self.flush_oldest();
        }
        let mut compacting = lock(&self.compacting);
        let job = if let Some(paused) = compacting.take() {
            paused
        } else {
            self.scan_leaves()?;
            // A run that becomes a candidate from here on sets it again.
            self.compaction_wanted.store(false, Ordering::Relaxed);
            let Some(runs) = self.pick() else { return Ok(()) };
            let yields = runs.iter().all(|run| run.reasons() & DEAD == 0);
            let mut job = self.start_merge(runs)?;
            job.input.yields = yields;
            job
        };
        *compacting = self.merge(job, true)?;
        self.wake_compaction();
        self.context.host.wake();
        Ok(())
    }

    /// A step on a full disk. Takes a checkpoint first: it removes the runs that flushes and merges
    /// without the space for one have left. Then merges single runs, the one with the most dead
    /// entries first, each with a checkpoint. So the space of one is there for the next.
    pub(super) fn space_step(&self) -> Result<()> {
        self.take_checkpoint(None)?;
        self.paged.shorten_journal()?;
        if self.write_buffer.is_flush_due(&self.write_buffer.view.load()) {
            self.flush_oldest()?;
            self.take_checkpoint(None)?;
        }
        let mut compacting = lock(&self.compacting);
        *compacting = None;
        for _ in 0..SPACE_MERGES {
            let Some(run) = self.pick_for_space() else { break };
            let job = self.start_merge(vec![run])?;
            self.merge(job, false)?;
        }
        self.paged.note_space(false);
        self.context.host.wake();
        Ok(())
    }

    /// Merges all runs into runs that do not overlap, without dead or expired entries. If memory is
    /// short of a buffer for each run, it merges the smallest ones first.
    pub(super) fn compact_all(&self) -> Result<()> {
        self.flush_all()?;
        {
            let mut compacting = lock(&self.compacting);
            *compacting = None;
            let most = mutant!(SlmCompactsAtOnce: usize::MAX, else
                runs_max(self.context.budget.limit()));
            let mut runs = self.live_runs();
            while runs.len() > most {
                let before = runs.len();
                runs.sort_by_key(|run| run.sst.data_bytes());
                runs.truncate(most);
                let job = self.start_merge(runs)?;
                self.merge(job, false)?;
                runs = self.live_runs();
                if runs.len() >= before {
                    break;
                }
            }
            if runs.is_empty() {
                self.take_checkpoint(None)?;
            } else {
                let job = self.start_merge(runs)?;
                self.merge(job, false)?;
            }
        }
        if self.pool_index().is_some() {
            return Ok(());
        }
        let mut checkpointer = lock(&self.paged.checkpointer);
        self.paged.punch_holes(&mut checkpointer)
    }

    fn live_runs(&self) -> Vec<Arc<SortedRun>> {
        let view = self.write_buffer.view.load_full();
        view.version.iter().filter(|run| run.live() > 0).cloned().collect()
    }

    /// Begins a merge of runs. The caller holds `compacting`.
    fn start_merge(&self, runs: Vec<Arc<SortedRun>>) -> Result<MergeJob> {
        let bytes: u64 = runs.iter().map(|run| run.sst.data_bytes()).sum();
        let counters = &self.counters;
        counters.merges_total.fetch_add(1, Ordering::Relaxed);
        counters.merge_read_bytes_total.fetch_add(bytes, Ordering::Relaxed);
        for (bit, counter) in counters.merges_by_reason.iter().enumerate() {
            if runs.iter().any(|run| run.reasons() & (1 << bit) != 0) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        let entries: u64 = runs.iter().map(|run| run.live()).sum();
        let run_keys = self.settings.run_bytes / (bytes / entries.max(1)).max(1);
        let budget = &self.context.budget;
        let updates = IndexUpdates::memory_bytes(entries, run_keys, budget.limit());
        let read_bytes = read_bytes(budget.limit());
        let memory = budget.reserve_transient(read_bytes.min(bytes) * 2 + updates);
        self.divide_memory();
        let flow = self.queues.flow(&*self.context.env)?;
        let input = MergeInput::new(runs, read_bytes, &flow)?;
        Ok(MergeJob::new(input, memory))
    }

    /// Merges to the end and returns `None`. If `may_pause` and a checkpoint is due, returns the
    /// rest of the merge. The caller holds `compacting`.
    fn merge(&self, mut job: MergeJob, may_pause: bool) -> Result<Option<MergeJob>> {
        let input = &mut job.input;
        let mut has_begun = false;
        let applied = self.apply_edits(&mut || {
            if may_pause && has_begun && self.context.host.is_round_due() {
                return Ok(None);
            }
            has_begun = true;
            self.next_edit(input)
        });
        if matches!(applied, Err(Error::DiskFull { .. })) {
            // Another merge before the next checkpoint would take what a checkpoint needs.
            self.paged.note_space(true);
        }
        applied?;
        if input.merge.key().is_some() {
            return Ok(Some(job));
        }
        let left: u64 = input.runs.iter().map(|run| run.live()).sum();
        self.counters.left_behind_total.fetch_add(left, Ordering::Relaxed);
        input.runs.iter().for_each(|run| run.unmark_candidate());
        self.take_checkpoint(None).map(|_| None)
    }

    /// Writes the next output run; `None` at the end of the merge.
    pub(super) fn next_edit(&self, input: &mut MergeInput) -> Result<Option<IndexEdit>> {
        let mut builder = RunBuilder::new(self);
        while let Some(key) = input.merge.key().filter(|_| !builder.is_full()) {
            let bytes = key.len() + input.merge.value().map_or(0, <[u8]>::len);
            let mut buffer = KeyBuffer::default();
            if let Some(index_key) = self.keys.index_key(key, &mut buffer) {
                let address = self.locate_near(&mut input.finger, index_key)?;
                self.copy_live(input, (key, index_key), address, &mut builder)?;
            }
            input.merge.advance()?;
            input.step_bytes += bytes;
            if input.step_bytes >= STEP_BYTES {
                self.throttle(input);
            }
        }
        if builder.updates.is_empty() { Ok(None) } else { builder.finish().map(Some) }
    }

    /// Copies the live entry of a key if an input run has it; drops it if it has expired.
    fn copy_live(
        &self,
        input: &MergeInput,
        (key, index_key): (&[u8], IndexKey<'_>),
        address: Option<BlockAddress>,
        builder: &mut RunBuilder<'_>,
    ) -> Result<()> {
        let Some(address) = address else { return Ok(()) };
        let Some((cursor, run)) = input.source_of(address) else { return Ok(()) };
        let has = cursor.key() == Some(key) && cursor.block() == address.block;
        let value = cursor.value().filter(|_| has);
        let value = value.ok_or_else(|| run.missing_key(address.block, key))?;
        if self.context.host.is_expired(value) {
            builder.updates.push((self.hash(key), index_key), None, Some(address));
            return Ok(());
        }
        let value = mutant!(SlmCopiesAnyEntry: input.merge.value().unwrap_or(value), else value);
        let admission = run.sst.room_of_copy(address.block, &self.cache);
        let to = builder.add(key, value, admission)?;
        builder.updates.push((self.hash(key), index_key), Some(to), Some(address));
        Ok(())
    }

    /// Limits the merge to its rate, then flushes memtables if due: they fill during a long merge.
    /// The rate is low if the merge yields and gets or ranges read the disk.
    fn throttle(&self, input: &mut MergeInput) {
        let bytes = to_u64(std::mem::take(&mut input.step_bytes));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, of_ranges) =
            (count(&self.counters.reads_total), count(&self.counters.range_reads_total));
        let before = std::mem::replace(&mut input.reads_before, (reads, of_ranges));
        let since = (reads - before.0, of_ranges - before.1);
        let rate = if self.context.host.is_round_due() {
            self.settings.merge_rate
        } else {
            input.rate(self.settings.merge_rate, since)
        };
        if rate > 0 {
            self.merge_limiter.throttle(&*self.context.env, bytes, rate, MERGE_DELAY_MAX);
        }
        if self.write_buffer.is_flush_due(&self.write_buffer.view.load()) {
            // If it fails, the next step of the background fails too and reports the error.
            let _ = self.flush_oldest();
        }
    }
}
