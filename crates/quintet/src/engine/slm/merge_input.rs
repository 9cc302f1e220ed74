//! The input of a merge: a merging cursor over its runs, and the rate at which it may read.

use std::sync::Arc;

use super::{index_value::BlockAddress, run::SortedRun, run_list::RANGES};
use crate::{
    Result,
    bptree::finger::Finger,
    io::Flow,
    lsm::cursor::merge::{Direction, MergeCursor, ReadAheadSizes, ScanStart, SstCursor},
    util::{
        budget::Reservation,
        codec::{to_u64, to_usize},
    },
};

/// Maximum bytes of all read buffers of a merge. Reads in flight double it.
const READ_BYTES: u64 = 8 << 20;
/// Minimum bytes of a read buffer.
const READ_BYTES_MIN: u64 = 64 << 10;
/// Number of runs that one merge may read with the minimum of memory.
const RUNS_MIN: u64 = 16;

/// Returns the maximum bytes of all read buffers of a merge within this budget of memory.
pub(super) fn read_bytes(budget: u64) -> u64 {
    (budget / 8).clamp(RUNS_MIN * READ_BYTES_MIN, READ_BYTES)
}

/// Returns the number of runs of which one merge may hold a buffer each within this budget.
pub(super) fn runs_max(budget: u64) -> usize {
    to_usize((budget / (4 * READ_BYTES_MIN)).max(RUNS_MIN))
}

/// Rate in bytes a second of a merge for order alone while gets or ranges read the disk. Reads and
/// writes of the merge then take about a twentieth of a disk's throughput, and it passes 1 GB a
/// minute.
const YIELD_RATE: u64 = 16 << 20;
/// Rate in bytes a second of such a merge while ranges that go through too many runs cause most of
/// these reads. The merge is for these ranges: each byte that it merges saves them reads.
const RANGES_RATE: u64 = 512 << 20;

/// The input of a merge, read in key order.
#[derive(Debug)]
pub(super) struct MergeInput {
    pub(super) runs: Vec<Arc<SortedRun>>,
    pub(super) merge: MergeCursor<SstCursor>,
    /// The position of the last lookup in the index.
    pub(super) finger: Finger,
    /// Bytes of entries since the last check of the rate.
    pub(super) step_bytes: usize,
    /// Whether the merge yields the disk to gets and ranges: it removes no dead entries.
    pub(super) yields: bool,
    /// Disk reads of gets and ranges at the last check, and those of ranges alone.
    pub(super) reads_before: (u64, u64),
}

/// A merge in progress, with its memory reservation.
#[derive(Debug)]
pub(super) struct MergeJob {
    pub(super) input: MergeInput,
    /// Released when the merge ends or is dropped.
    _memory: Reservation,
}

impl MergeJob {
    pub(super) fn new(input: MergeInput, memory: Reservation) -> Self {
        Self { input, _memory: memory }
    }
}

impl MergeInput {
    /// Opens a merging cursor over all entries of the runs, with buffers of `read_bytes` together.
    pub(super) fn new(runs: Vec<Arc<SortedRun>>, read_bytes: u64, flow: &Flow) -> Result<Self> {
        let share = (read_bytes / to_u64(runs.len().max(1))).clamp(READ_BYTES_MIN, 1 << 20);
        let ahead = ReadAheadSizes::bounded(share);
        let start = ScanStart::up(None).with(flow);
        let cursor =
            |run: &Arc<SortedRun>| SstCursor::new(Arc::clone(&run.sst), start.clone(), ahead);
        let mut merge = MergeCursor::new(runs.iter().map(cursor).collect(), Direction::Up);
        merge.load_first()?;
        Ok(Self {
            runs,
            merge,
            finger: Finger::default(),
            step_bytes: 0,
            yields: false,
            reads_before: (0, 0),
        })
    }

    /// Returns the rate of the merge in bytes a second, at most `most`; 0 is no limit. `reads` are
    /// the disk reads of gets and ranges since the last call, `of_ranges` those of ranges alone.
    pub(super) fn rate(&self, most: u64, (reads, of_ranges): (u64, u64)) -> u64 {
        if !self.yields || reads == 0 {
            return most;
        }
        // A run may have become a candidate for ranges after the merge began.
        let waits = |run: &Arc<SortedRun>| run.reasons() & RANGES != 0;
        let is_theirs = of_ranges * 2 > reads && self.runs.iter().any(waits);
        let gently = if is_theirs { RANGES_RATE } else { YIELD_RATE };
        if most == 0 { gently } else { most.min(gently) }
    }

    /// Returns the cursor and the run of an address; `None` if the run is not an input.
    pub(super) fn source_of(&self, address: BlockAddress) -> Option<(&SstCursor, &Arc<SortedRun>)> {
        let index = self.runs.iter().position(|run| run.number == address.run)?;
        Some((self.merge.sources.get(index)?, self.runs.get(index)?))
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_merge_for_ranges_is_faster_while_ranges_read_the_disk() {
        let engine = crate::engine::slm::tests::of_runs(60, &[10; 4]);
        let table = &engine.table;
        let runs: Vec<_> = table.write_buffer.view.load().version.iter().cloned().collect();
        let flow = table.queues.flow(&*table.context.env).unwrap();
        let mut input = MergeInput::new(runs.clone(), READ_BYTES, &flow).unwrap();
        assert_eq!((input.rate(0, (9, 9)), input.rate(5, (9, 9))), (0, 5));
        input.yields = true;
        assert_eq!((input.rate(0, (0, 0)), input.rate(5, (0, 0))), (0, 5));
        assert_eq!((input.rate(0, (9, 9)), input.rate(5, (9, 9))), (YIELD_RATE, 5));
        runs.last().unwrap().mark_candidate(RANGES);
        assert_eq!((input.rate(0, (9, 9)), input.rate(5, (9, 9))), (RANGES_RATE, 5));
        // Gets cause most reads.
        assert_eq!(input.rate(0, (9, 4)), YIELD_RATE);
    }
}
