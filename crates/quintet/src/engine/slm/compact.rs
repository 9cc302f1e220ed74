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
    Inner,
    flush::Draft,
    keys::IndexKey,
    runs::{DEAD, Place, RANGES, Run},
};
use crate::{
    Result,
    bptree::finger::Finger,
    engine::slm::{index_update::Batch, key_code::Buffer},
    io::Flow,
    lsm::{
        cursor::merge::{Ahead, Direction, Merge, ScanStart, SortedCursor as _, SstCursor},
        rate_limiter::MERGE_DELAY_MAX,
    },
    util::{
        budget::Reservation,
        codec::to_u64,
        mutant::{self, Bug},
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Bytes of entries between two checks of the rate and of due flushes.
const STEP_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };
/// Maximum bytes of all read buffers of a merge, and minimum of one. Reads in flight double it.
const READ_BYTES: u64 = 8 << 20;
const READ_BYTES_MIN: u64 = 64 << 10;

/// Bytes a second that a merge for order alone passes over while gets or ranges read the disk: with
/// reads and writes a twentieth of what a disk does, and 1 GB a minute.
const YIELD_RATE: u64 = 16 << 20;
/// The same while most of these reads are those of ranges that go through too many runs: they are
/// who the merge is for, and each of its bytes spares them reads.
const RANGES_RATE: u64 = 512 << 20;

/// The input of a merge.
#[derive(Debug)]
pub(super) struct Sources {
    runs: Vec<Arc<Run>>,
    merge: Merge<SstCursor>,
    /// The position of the last lookup in the index.
    near: Finger,
    step_bytes: usize,
    /// No run was chosen for dead entries: the merge yields the disk to gets and ranges.
    yields: bool,
    /// Disk reads of gets and ranges at the last check, and those of ranges alone.
    reads_before: (u64, u64),
}

/// A merge in progress, with its memory reservation.
#[derive(Debug)]
pub(super) struct Merging {
    sources: Sources,
    _memory: Reservation,
}

impl Sources {
    pub(super) fn new(runs: Vec<Arc<Run>>, flow: &Flow) -> Result<Self> {
        let share = (READ_BYTES / to_u64(runs.len().max(1))).clamp(READ_BYTES_MIN, 1 << 20);
        let ahead = Ahead::bounded(share);
        let start = ScanStart::up(None).with(flow);
        let cursor = |run: &Arc<Run>| SstCursor::new(Arc::clone(&run.sst), start.clone(), ahead);
        let mut merge = Merge::new(runs.iter().map(cursor).collect(), Direction::Up);
        merge.settle()?;
        Ok(Self {
            runs,
            merge,
            near: Finger::default(),
            step_bytes: 0,
            yields: false,
            reads_before: (0, 0),
        })
    }

    /// Bytes a second that the merge may pass over after so many reads of the disk, those of ranges
    /// among them, and at most `most`; 0: no limit.
    fn rate(&self, most: u64, (reads, of_ranges): (u64, u64)) -> u64 {
        if !self.yields || reads == 0 {
            return most;
        }
        // Ranges that go through too many runs are who it is for: they may have begun to since it
        // has.
        let waits = |run: &Arc<Run>| run.reasons() & RANGES != 0;
        let is_theirs = of_ranges * 2 > reads && self.runs.iter().any(waits);
        let gently = if is_theirs { RANGES_RATE } else { YIELD_RATE };
        if most == 0 { gently } else { most.min(gently) }
    }

    /// Returns the cursor and the run of a place; `None` if the run is not an input.
    fn source_of(&self, place: Place) -> Option<(&SstCursor, &Arc<Run>)> {
        let index = self.runs.iter().position(|run| run.number == place.run)?;
        Some((self.merge.sources.get(index)?, self.runs.get(index)?))
    }
}

impl Inner {
    /// One step of the background: a due flush, or a scan of the index and a merge.
    pub(super) fn compact_step(&self) -> Result<()> {
        if self.front.is_flush_due(&self.front.view.load()) {
            return self.flush_some();
        }
        let mut compacting = lock(&self.compacting);
        let merging = if let Some(paused) = compacting.take() {
            paused
        } else {
            self.scan_leaves()?;
            // A run that becomes a candidate from here on sets it again.
            self.compaction_wanted.store(false, Ordering::Relaxed);
            let Some(runs) = self.pick() else { return Ok(()) };
            let yields = runs.iter().all(|run| run.reasons() & DEAD == 0);
            let mut merging = self.begin_merge(runs)?;
            merging.sources.yields = yields;
            merging
        };
        *compacting = self.merge(merging, true)?;
        self.is_changed();
        self.context.host.wake();
        Ok(())
    }

    /// Merges all runs into runs that do not overlap, without dead or expired entries.
    pub(super) fn compact_all(&self) -> Result<()> {
        self.flush_all()?;
        {
            let mut compacting = lock(&self.compacting);
            *compacting = None;
            let view = self.front.view.load_full();
            let runs: Vec<_> = view.version.iter().filter(|run| run.live() > 0).cloned().collect();
            drop(view);
            if runs.is_empty() {
                self.cut(None)?;
            } else {
                let merging = self.begin_merge(runs)?;
                self.merge(merging, false)?;
            }
        }
        let mut checkpointer = lock(&self.paged.checkpointer);
        self.paged.punch_holes(&mut checkpointer)
    }

    /// Begins a merge of runs. The caller holds `compacting`.
    fn begin_merge(&self, runs: Vec<Arc<Run>>) -> Result<Merging> {
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
        let moves =
            Self::moves_bytes(entries, self.settings.run_bytes / (bytes / entries.max(1)).max(1));
        let memory = self.context.budget.reserve_transient(READ_BYTES.min(bytes) * 2 + moves);
        self.make_space();
        let sources = Sources::new(runs, &self.queues.flow(&*self.context.env)?)?;
        Ok(Merging { sources, _memory: memory })
    }

    /// Merges to the end and returns `None`. If `may_pause` and a checkpoint is due, returns the
    /// rest of the merge. The caller holds `compacting`.
    fn merge(&self, mut merging: Merging, may_pause: bool) -> Result<Option<Merging>> {
        let sources = &mut merging.sources;
        let mut has_begun = false;
        self.enter_all(&mut || {
            if may_pause && has_begun && self.context.host.is_round_due() {
                return Ok(None);
            }
            has_begun = true;
            self.next_batch(sources)
        })?;
        if sources.merge.key().is_some() {
            return Ok(Some(merging));
        }
        let left: u64 = sources.runs.iter().map(|run| run.live()).sum();
        self.counters.left_behind_total.fetch_add(left, Ordering::Relaxed);
        sources.runs.iter().for_each(|run| run.dismiss());
        self.cut(None).map(|_| None)
    }

    /// Writes the next output run; `None` at the end of the merge.
    pub(super) fn next_batch(&self, sources: &mut Sources) -> Result<Option<Batch>> {
        let mut draft = Draft::new(self);
        while let Some(key) = sources.merge.key().filter(|_| !draft.is_full()) {
            let bytes = key.len() + sources.merge.value().map_or(0, <[u8]>::len);
            let mut buffer = Buffer::default();
            if let Some(in_index) = self.keys.index_key(key, &mut buffer) {
                let place = self.locate_near(&mut sources.near, in_index)?;
                self.take_live(sources, (key, in_index), place, &mut draft)?;
            }
            sources.merge.advance()?;
            sources.step_bytes += bytes;
            if sources.step_bytes >= STEP_BYTES {
                self.rest(sources);
            }
        }
        if draft.moves.is_empty() { Ok(None) } else { draft.finish().map(Some) }
    }

    /// Copies the live entry of a key if an input run has it; drops it if it has expired.
    fn take_live(
        &self,
        sources: &Sources,
        (key, in_index): (&[u8], IndexKey<'_>),
        place: Option<Place>,
        draft: &mut Draft<'_>,
    ) -> Result<()> {
        let Some(place) = place else { return Ok(()) };
        let Some((cursor, run)) = sources.source_of(place) else { return Ok(()) };
        let has = cursor.key() == Some(key) && cursor.block() == place.block;
        let value = cursor.value().filter(|_| has);
        let value = value.ok_or_else(|| super::read::not_there(run, place.block, key))?;
        if self.context.host.is_expired(value) {
            draft.moves.push((self.hash(key), in_index), None, Some(place));
            return Ok(());
        }
        let value = if mutant::active(Bug::SlmCopiesAnyEntry) {
            sources.merge.value().unwrap_or(value)
        } else {
            value
        };
        let room = run.sst.room_of_copy(place.block, &self.cache);
        let to = draft.add(key, value, room)?;
        draft.moves.push((self.hash(key), in_index), Some(to), Some(place));
        Ok(())
    }

    /// Limits the merge to its rate, then flushes memtables if due: they fill during a long merge.
    /// The rate is low if the merge yields and gets or ranges read the disk.
    fn rest(&self, sources: &mut Sources) {
        let bytes = to_u64(std::mem::take(&mut sources.step_bytes));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, of_ranges) =
            (count(&self.counters.reads_total), count(&self.counters.range_reads_total));
        let before = std::mem::replace(&mut sources.reads_before, (reads, of_ranges));
        let since = (reads - before.0, of_ranges - before.1);
        let rate = if self.context.host.is_round_due() {
            self.settings.merge_rate
        } else {
            sources.rate(self.settings.merge_rate, since)
        };
        if rate > 0 {
            self.merge_pace.keep_to(&*self.context.env, bytes, rate, MERGE_DELAY_MAX);
        }
        if self.front.is_flush_due(&self.front.view.load()) {
            // If it fails, the next step of the background fails too and reports the error.
            let _ = self.flush_some();
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_merge_that_ranges_come_to_wait_for_hurries() {
        let engine = crate::engine::slm::tests::of_runs(60, &[10; 4]);
        let inner = &engine.inner;
        let runs: Vec<_> = inner.front.view.load().version.iter().cloned().collect();
        let flow = inner.queues.flow(&*inner.context.env).unwrap();
        let mut sources = Sources::new(runs.clone(), &flow).unwrap();
        assert_eq!((sources.rate(0, (9, 9)), sources.rate(5, (9, 9))), (0, 5));
        sources.yields = true;
        assert_eq!((sources.rate(0, (0, 0)), sources.rate(5, (0, 0))), (0, 5));
        assert_eq!((sources.rate(0, (9, 9)), sources.rate(5, (9, 9))), (YIELD_RATE, 5));
        runs.last().unwrap().nominate(RANGES);
        assert_eq!((sources.rate(0, (9, 9)), sources.rate(5, (9, 9))), (RANGES_RATE, 5));
        // Most of those who read the disk are gets.
        assert_eq!(sources.rate(0, (9, 4)), YIELD_RATE);
    }
}
