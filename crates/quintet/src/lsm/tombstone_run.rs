//! The run of deleted keys that a scan passes, from one value to the next.
//!
//! A scan that reaches a deleted key in an empty range continues behind that range. A scan that has
//! passed [`RUN_MIN`] deleted keys in a row begins a watch of puts, reads them again, and records
//! an empty range at the next value. [`super::empty_ranges`] states the protocol.
//!
//! So a scan passes at most `2 * RUN_MIN` deleted keys before a value if earlier scans have passed
//! the others. Each deleted key is passed in full by one scan.

use std::sync::Arc;

use super::{
    empty_ranges::{EmptyRanges, PutWatch, ScanBound, successor},
    remaining_range::RemainingRange,
};
use crate::contract::Direction;

/// Number of deleted keys in a row from which on they are recorded. To open the cursors of a scan
/// costs as much as passing about this many.
pub(crate) const RUN_MIN: u32 = 24;

/// Why a cursor pauses.
#[derive(Debug)]
enum Pause {
    /// The scan continues at this bound.
    Skip(ScanBound),
    /// The scan begins a watch.
    Watch,
}

/// A run of deleted keys. See the module head.
#[derive(Debug)]
pub(crate) struct TombstoneRun<'e> {
    ranges: &'e Arc<EmptyRanges>,
    direction: Direction,
    /// Deleted keys since the last value, or since the scan continued elsewhere.
    count: u32,
    /// Deleted keys that the scan has passed.
    passed: u64,
    /// The first deleted key of the run; with a watch also the last.
    first: Vec<u8>,
    last: Vec<u8>,
    /// Whether the run begins at the bound of what remains of the range.
    is_at_bound: bool,
    watch: Option<PutWatch>,
    /// The run cannot be recorded.
    has_given_up: bool,
    pause: Option<Pause>,
}

impl<'e> TombstoneRun<'e> {
    /// Creates an empty run. `is_at_bound`: the scan has found nothing since the bound of what
    /// remains of its range.
    #[inline]
    pub(crate) fn new(
        ranges: &'e Arc<EmptyRanges>,
        direction: Direction,
        is_at_bound: bool,
    ) -> Self {
        Self {
            ranges,
            direction,
            count: 0,
            passed: 0,
            first: Vec::new(),
            last: Vec::new(),
            is_at_bound,
            watch: None,
            has_given_up: false,
            pause: None,
        }
    }

    /// Returns the direction of the scan.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Adds a deleted key. Returns whether the cursor must pause.
    pub(crate) fn pass(&mut self, key: &[u8]) -> bool {
        self.passed += 1;
        self.count = self.count.saturating_add(1);
        if self.count == 1 {
            self.first.clear();
            self.first.extend_from_slice(key);
        }
        if self.watch.is_some() {
            self.last.clear();
            self.last.extend_from_slice(key);
        }
        if self.count % RUN_MIN == 1 && self.ranges.has_ranges() {
            self.pause = self.ranges.skip(self.direction, Some(key)).map(Pause::Skip);
        } else if self.count == RUN_MIN && self.watch.is_none() && !self.has_given_up {
            self.pause = Some(Pause::Watch);
        }
        self.pause.is_some()
    }

    /// Whether the last key was deleted.
    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        self.count > 0
    }

    /// Ends the run at a key that has a value. Without a run, the key is not used.
    #[inline]
    pub(crate) fn end_at(&mut self, key: &[u8]) {
        self.is_at_bound = false;
        if self.is_open() {
            self.end(match self.direction {
                Direction::Up => Some(key.to_vec()),
                Direction::Down => Some(successor(key)),
            });
        }
    }

    /// Ends the run at the end of the range.
    pub(crate) fn end_at_limit(&mut self, remaining: &RemainingRange) {
        if self.is_open() {
            self.end(match self.direction {
                Direction::Up => remaining.end.clone(),
                Direction::Down => Some(remaining.start.clone()),
            });
        }
    }

    fn end(&mut self, to: ScanBound) {
        if let Some(watch) = self.watch.take() {
            watch.record(to, (&self.first, &self.last));
        }
        self.count = 0;
        self.has_given_up = false;
    }

    /// Continues after a pause: moves the bound of what remains, where the scan opens its next
    /// cursor. `is_current` tells whether the scan sees the active memtable of the table. Returns
    /// `false` if nothing remains.
    pub(crate) fn resume(
        &mut self,
        remaining: &mut RemainingRange,
        is_current: impl FnOnce() -> bool,
    ) -> bool {
        match self.pause.take() {
            Some(Pause::Skip(bound)) => {
                if !remaining.continue_at(self.direction, bound) {
                    self.end_at_limit(remaining);
                    return false;
                }
                if self.watch.is_none() {
                    (self.count, self.is_at_bound) = (0, true);
                }
            }
            Some(Pause::Watch) => {
                if !self.is_at_bound {
                    remaining.continue_at(
                        self.direction,
                        Some(match self.direction {
                            Direction::Up => self.first.clone(),
                            Direction::Down => successor(&self.first),
                        }),
                    );
                }
                let from = remaining.bound(self.direction).map(<[u8]>::to_vec);
                self.watch = self.ranges.watch(self.direction, from).filter(|_| is_current());
                self.has_given_up = self.watch.is_none();
                (self.count, self.is_at_bound) = (0, true);
            }
            None => {}
        }
        true
    }
}

impl Drop for TombstoneRun<'_> {
    fn drop(&mut self) {
        if self.passed > 0 {
            self.ranges.count_passed(self.passed);
        }
    }
}
