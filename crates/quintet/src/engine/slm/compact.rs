//! Merging runs: their live entries into fresh runs in key order, without what is dead or expired.
//!
//! An entry is live if the index points to it; where a key is in several of the runs, at most one
//! of them is. What was copied is entered where the index still points to the entry that it is a
//! copy of ([`crate::engine::slm::index_update`]). Then nothing points to the runs that were
//! merged, a cut of the
//! index leaves them out, and their files go.
//!
//! A merge pauses between two of the runs that it makes where a round of persisting is due: it
//! takes seconds, in which the log grows that opening replays, up to where writers wait. What it
//! has copied by then is entered, so a merge that never goes on has lost nothing, and who needs its
//! memory has it ended.
//!
//! Thread rules: one merge at a time (`compacting`). It flushes what waits meanwhile.

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
        cursor::merge::{Ahead, Direction, Merge, SstCursor, Start, Walk as _},
        rate_limiter::MERGE_DELAY_MAX,
    },
    util::{
        budget::Reservation,
        codec::to_u64,
        mutant::{self, Bug},
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Bytes of entries after which a merge looks at its rate, and whether a flush is waiting.
const STEP_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };
/// What all reads of a merge take in memory at most, and one at least; as much again is under way.
const READ_BYTES: u64 = 8 << 20;
const READ_BYTES_MIN: u64 = 64 << 10;

/// Bytes a second that a merge for order alone passes over while gets or ranges read the disk: with
/// reads and writes a twentieth of what a disk does, and 1 GB a minute.
const YIELD_RATE: u64 = 16 << 20;
/// The same while most of these reads are those of ranges that go through too many runs: they are
/// who the merge is for, and each of its bytes spares them reads.
const RANGES_RATE: u64 = 512 << 20;

/// Runs that are merged.
#[derive(Debug)]
pub(super) struct Sources {
    runs: Vec<Arc<Run>>,
    merge: Merge<SstCursor>,
    /// Where the index was asked last.
    near: Finger,
    step_bytes: usize,
    /// The merge is for order alone: it makes way for who reads the disk.
    yields: bool,
    /// Reads of the disk for gets and ranges when that was looked at last, and those of ranges.
    reads_before: (u64, u64),
}

/// A merge that has begun.
#[derive(Debug)]
pub(super) struct Merging {
    sources: Sources,
    _memory: Reservation,
}

impl Sources {
    pub(super) fn new(runs: Vec<Arc<Run>>, flow: &Flow) -> Result<Self> {
        let share = (READ_BYTES / to_u64(runs.len().max(1))).clamp(READ_BYTES_MIN, 1 << 20);
        let ahead = Ahead::bounded(share);
        let start = Start::up(None).with(flow);
        let cursor = |run: &Arc<Run>| SstCursor::new(Arc::clone(&run.piece), start.clone(), ahead);
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

    /// The source that has the next key at this place, and the run whose it is.
    fn source_of(&self, place: Place) -> Option<(&SstCursor, &Arc<Run>)> {
        let index = self.runs.iter().position(|run| run.number == place.run)?;
        Some((self.merge.sources.get(index)?, self.runs.get(index)?))
    }
}

impl Inner {
    /// One step of the background: a flush that waits, or a look at the index and a merge.
    pub(super) fn compact_step(&self) -> Result<()> {
        if self.front.is_flush_due(&self.front.view.load()) {
            return self.flush_some();
        }
        let mut compacting = lock(&self.compacting);
        let merging = if let Some(paused) = compacting.take() {
            paused
        } else {
            self.scan_leaves()?;
            // Whoever becomes a candidate from here on asks anew.
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

    /// Everything into runs that follow one another, without anything dead or expired.
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
        let mut keeper = lock(&self.paged.keeper);
        self.paged.give_back_space(&mut keeper)
    }

    /// Begins a merge of runs. The caller holds `compacting`.
    fn begin_merge(&self, runs: Vec<Arc<Run>>) -> Result<Merging> {
        let bytes: u64 = runs.iter().map(|run| run.piece.data_bytes()).sum();
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

    /// Merges to the end, or until a round of persisting is due: what is left then. The caller
    /// holds `compacting`.
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

    /// The next run of a merge; `None` at its end.
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

    /// Copies the entry of a key that the index points to, if it is one of these runs'.
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
        let room = run.piece.room_of_copy(place.block, &self.cache);
        let to = draft.add(key, value, room)?;
        draft.moves.push((self.hash(key), in_index), Some(to), Some(place));
        Ok(())
    }

    /// Keeps to the rate of merges, which is low while one that is for order alone would keep those
    /// waiting who read the disk, and flushes what waits for it: a merge takes long, and memtables
    /// fill meanwhile.
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
            // Should it fail, so will the next step of the background, which says so.
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
