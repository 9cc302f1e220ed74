//! Empty ranges: parts of the key space of which a scan found that every key is deleted.
//!
//! A delete leaves a tombstone in a memtable, and in `tph` later in an SST. Without further
//! measures, each scan behind 200,000 deleted keys reads 200,000 tombstones. So a scan that passes
//! many tombstones in a row records the range, and later scans continue behind it. The set
//! describes the contents of a table, not its files: flushes and merges do not change the contents,
//! so they do not touch the set. Only a put can make a recorded range wrong.
//!
//! Puts do not look at the set. A memtable orders its new nodes before a scan reads them
//! ([`crate::lsm::memtable::skiplist`]), and reports the puts among them ([`EmptyRanges::puts`])
//! before the nodes count as ordered. A reported put splits the range around its key.
//!
//! Protocol of a scan that uses the set:
//! 1. It loads a super version and orders the nodes of all its memtables. So each put that returned
//!    before the scan began is reported.
//! 2. It asks for ranges with [`EmptyRanges::skip`].
//!
//! Protocol of a scan that records a range:
//! 1. It begins a [`PutWatch`] at the bound where the range will begin.
//! 2. It checks that the active memtable of its super version is still the table's. So the watch
//!    gets each put that the super version lacks.
//! 3. It opens its cursors at that bound. They see each put that was ordered before. A put that is
//!    ordered later is reported to the watch.
//! 4. At the next key with a value, it records the range. [`PutWatch::record`] cuts it at the
//!    nearest reported put.
//!
//! Invariants:
//! - Each put into a recorded range that a scan must see is reported before the scan asks.
//! - Ranges are disjoint and sorted, at most [`RANGES_MAX`].
//!
//! Threads: any. One lock, a leaf: its holder takes no other lock.

#![deny(clippy::indexing_slicing)]

use std::{cmp, sync::Arc};

use crate::contract::Direction;
use crate::util::{
    budget::Budget,
    codec::to_u64,
    mutant::mutant,
    sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// Maximum number of recorded ranges of a table. A report compares each put with them by binary
/// search. The range that was not used for the longest time makes room.
const RANGES_MAX: usize = 64;
/// Maximum bytes of keys in the set of a table, unless a single range needs more.
const KEY_BYTES_MAX: usize = 256 << 10;
/// Maximum number of scans that watch puts at once. Further scans record nothing.
const WATCHES_MAX: usize = 16;

/// A bound of a scan in one direction. Upwards, the scan continues at this key. Downwards, it
/// continues below this key, or at the last key of all if it is `None`.
pub(crate) type ScanBound = Option<Vec<u8>>;

/// A range without a key that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmptyRange {
    /// First key of the range.
    pub(crate) start: Vec<u8>,
    /// First key past it; `None` is unbounded.
    pub(crate) end: ScanBound,
    /// The tombstones of the range are from here to `last`, both included.
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl EmptyRange {
    fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && self.is_below_end(key)
    }

    fn is_below_end(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    fn key_bytes(&self) -> usize {
        let end = self.end.as_ref().map_or(0, Vec::len);
        self.start.len() + end + self.first.len() + self.last.len()
    }

    /// Returns the part below a key; `None` if that has no tombstone.
    fn below(&self, key: &[u8]) -> Option<Self> {
        let last = cmp::min(key, &self.last).to_vec();
        let has_some = self.start.as_slice() < key && self.first.as_slice() < key;
        has_some.then(|| Self { end: Some(key.to_vec()), last, ..self.clone() })
    }

    /// Returns the part above a key; `None` if that has no tombstone.
    fn above(&self, key: &[u8]) -> Option<Self> {
        let start = successor(key);
        let first = cmp::max(&start, &self.first).clone();
        let has_some = self.is_below_end(&start) && self.last >= start;
        has_some.then(|| Self { start, first, ..self.clone() })
    }

    /// Returns the union with a range that it overlaps or touches.
    fn union(self, other: &Self) -> Self {
        let end = self.end.zip(other.end.clone()).map(|(one, other)| one.max(other));
        Self {
            start: self.start.min(other.start.clone()),
            end,
            first: self.first.min(other.first.clone()),
            last: self.last.max(other.last.clone()),
        }
    }

    /// Returns whether the union with another range has no gap.
    fn touches(&self, other: &Self) -> bool {
        let reaches =
            |one: &Self, other: &Self| one.end.as_ref().is_none_or(|end| *end >= other.start);
        reaches(self, other) && reaches(other, self)
    }
}

/// Returns the first key above `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A recorded range, and when it was used last.
#[derive(Debug)]
struct RecordedRange {
    range: EmptyRange,
    used_at: u64,
}

/// The state of a [`PutWatch`].
#[derive(Debug)]
struct Watch {
    id: u64,
    direction: Direction,
    /// The bound from which the scan looks.
    from: ScanBound,
    /// The key of the nearest put to `from` that was reported in the direction of the scan.
    nearest: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    /// Sorted by start.
    ranges: Vec<RecordedRange>,
    watches: Vec<Watch>,
    /// Number of uses and watches so far.
    clock: u64,
    /// Bytes that are reserved in the budget.
    bytes: u64,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns the index of the last range that starts at or before `key`.
    fn index_at(&self, key: &[u8]) -> Option<usize> {
        self.ranges.partition_point(|one| one.range.start.as_slice() <= key).checked_sub(1)
    }

    /// Adds a range, united with those that it overlaps or touches.
    fn add(&mut self, mut range: EmptyRange) {
        let used_at = self.tick();
        let mut others = Vec::with_capacity(self.ranges.len() + 1);
        for one in self.ranges.drain(..) {
            if one.range.touches(&range) {
                range = range.union(&one.range);
            } else {
                others.push(one);
            }
        }
        let index = others.partition_point(|one| one.range.start < range.start);
        others.insert(index, RecordedRange { range, used_at });
        self.ranges = others;
        self.limit();
    }

    /// Removes ranges that were not used lately, while there are too many.
    fn limit(&mut self) {
        let bytes = |ranges: &[RecordedRange]| -> usize {
            ranges.iter().map(|one| one.range.key_bytes()).sum()
        };
        while self.ranges.len() > RANGES_MAX
            || (self.ranges.len() > 1 && bytes(&self.ranges) > KEY_BYTES_MAX)
        {
            let oldest = self.ranges.iter().enumerate().min_by_key(|(_, one)| one.used_at);
            let Some((index, _)) = oldest else { return };
            self.ranges.remove(index);
        }
    }

    /// Splits the range around a key that has a value, and tells the watches.
    fn put(&mut self, key: &[u8]) {
        for watch in &mut self.watches {
            let from = watch.from.as_deref();
            let nearest = watch.nearest.as_deref();
            let is_nearer = match watch.direction {
                Direction::Up => {
                    from.is_none_or(|from| key >= from)
                        && nearest.is_none_or(|nearest| key < nearest)
                }
                Direction::Down => {
                    from.is_none_or(|from| key < from)
                        && nearest.is_none_or(|nearest| key > nearest)
                }
            };
            if is_nearer {
                watch.nearest = Some(key.to_vec());
            }
        }
        let Some(index) = self.index_at(key) else { return };
        let Some(one) = self.ranges.get(index).filter(|one| one.range.contains(key)) else {
            return;
        };
        let used_at = one.used_at;
        let parts = [one.range.below(key), one.range.above(key)].into_iter().flatten();
        let parts: Vec<_> = parts.map(|range| RecordedRange { range, used_at }).collect();
        self.ranges.splice(index..=index, parts);
        self.limit();
    }
}

/// The empty ranges of a table. See the module head.
#[derive(Debug)]
pub(crate) struct EmptyRanges {
    state: Mutex<State>,
    /// Whether the set may have a range.
    has_ranges: AtomicBool,
    /// Number of tombstones that scans passed.
    passed_total: AtomicU64,
    budget: Arc<Budget>,
}

impl EmptyRanges {
    pub(crate) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            has_ranges: AtomicBool::new(false),
            passed_total: AtomicU64::new(0),
            budget: Arc::clone(budget),
        })
    }

    /// Returns whether [`Self::skip`] may find a range. Scans ask this before they order nodes.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges.load(Ordering::Acquire)
    }

    /// Returns the number of ranges.
    pub(crate) fn count(&self) -> u64 {
        to_u64(lock(&self.state).ranges.len())
    }

    /// Returns the number of tombstones that scans passed since the table was opened.
    pub(crate) fn passed_total(&self) -> u64 {
        self.passed_total.load(Ordering::Relaxed)
    }

    /// Adds to [`Self::passed_total`].
    pub(crate) fn count_passed(&self, tombstones: u64) {
        self.passed_total.fetch_add(tombstones, Ordering::Relaxed);
    }

    /// Returns the bound at which a scan continues behind an empty range: a scan that is at `bound`
    /// or has reached the deleted key `bound`. `None` if no range contains it.
    pub(crate) fn skip(&self, direction: Direction, bound: Option<&[u8]>) -> Option<ScanBound> {
        let mut state = lock(&self.state);
        let used_at = state.tick();
        let index = match (direction, bound) {
            (Direction::Up, key) => state.index_at(key.unwrap_or(&[])),
            (Direction::Down, None) => state.ranges.len().checked_sub(1),
            (Direction::Down, Some(key)) => {
                state.ranges.partition_point(|one| one.range.start.as_slice() < key).checked_sub(1)
            }
        }?;
        let one = state.ranges.get_mut(index)?;
        let range = &one.range;
        let to = match direction {
            Direction::Up => range.is_below_end(bound.unwrap_or(&[])).then(|| range.end.clone()),
            Direction::Down => {
                let reaches = match (bound, range.end.as_deref()) {
                    (_, None) => true,
                    (None, Some(_)) => false,
                    (Some(bound), Some(end)) => bound <= end,
                };
                reaches.then(|| Some(range.start.clone()))
            }
        };
        if to.is_some() {
            one.used_at = used_at;
        }
        to
    }

    /// Begins a watch of the puts from `from` on in the direction of a scan. Returns `None` if too
    /// many scans have one.
    pub(crate) fn watch(
        self: &Arc<Self>,
        direction: Direction,
        from: ScanBound,
    ) -> Option<PutWatch> {
        let mut state = lock(&self.state);
        if state.watches.len() >= WATCHES_MAX {
            return None;
        }
        let id = state.tick();
        let watched_from = from.clone();
        state.watches.push(Watch { id, direction, from: watched_from, nearest: None });
        Some(PutWatch { ranges: Arc::clone(self), id, direction, from })
    }

    /// Begins the report of puts. Returns `None` if nothing in the set depends on puts.
    pub(crate) fn puts(&self) -> Option<PutReport<'_>> {
        let state = lock(&self.state);
        let is_used = !state.ranges.is_empty() || !state.watches.is_empty();
        is_used.then_some(PutReport { ranges: self, state })
    }

    /// Updates what depends on the number and the size of the ranges.
    fn update_size(&self, state: &mut State) {
        let bytes = state
            .ranges
            .iter()
            .map(|one| to_u64(size_of::<RecordedRange>() + one.range.key_bytes()));
        let bytes = bytes.sum();
        let before = std::mem::replace(&mut state.bytes, bytes);
        self.budget.reserve_unchecked(bytes);
        self.budget.release(before);
        self.has_ranges.store(!state.ranges.is_empty(), Ordering::Release);
    }
}

impl Drop for EmptyRanges {
    fn drop(&mut self) {
        self.budget.release(lock(&self.state).bytes);
    }
}

/// A report of puts. It holds the lock of the set.
#[derive(Debug)]
pub(crate) struct PutReport<'e> {
    ranges: &'e EmptyRanges,
    state: MutexGuard<'e, State>,
}

impl PutReport<'_> {
    /// Reports a put.
    pub(crate) fn add(&mut self, key: &[u8]) {
        mutant!(EmptyRangeKeepsPut => return);
        self.state.put(key);
    }
}

impl Drop for PutReport<'_> {
    fn drop(&mut self) {
        self.ranges.update_size(&mut self.state);
    }
}

/// A watch of the puts that a scan may not see. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct PutWatch {
    ranges: Arc<EmptyRanges>,
    id: u64,
    direction: Direction,
    from: ScanBound,
}

impl PutWatch {
    /// Records that the range from the bound of the watch to `to` is empty, except for the puts
    /// that were reported meanwhile. Upwards, `to` is the first key past the range, downwards its
    /// first key. `tombstones` are the first and the last key that the scan passed.
    pub(crate) fn record(self, to: ScanBound, tombstones: (&[u8], &[u8])) {
        let mut state = lock(&self.ranges.state);
        let nearest = state.watches.iter().find(|watch| watch.id == self.id);
        let nearest = nearest.and_then(|watch| watch.nearest.clone());
        let nearest = mutant!(EmptyRangeForgetsWatch: None, else nearest);
        let from = self.from.clone();
        let (one, other) = (tombstones.0.to_vec(), tombstones.1.to_vec());
        let (start, end, first, last) = match self.direction {
            Direction::Up => (from.unwrap_or_default(), to, one, other),
            Direction::Down => (to.unwrap_or_default(), from, other, one),
        };
        let range = EmptyRange { start, end, first, last };
        let range = match (nearest, self.direction) {
            (Some(put), Direction::Up) if range.is_below_end(&put) => range.below(&put),
            (Some(put), Direction::Down) if put >= range.start => range.above(&put),
            _ => Some(range),
        };
        if let Some(range) = range.filter(|range| range.is_below_end(&range.start)) {
            state.add(range);
            self.ranges.update_size(&mut state);
        }
    }
}

impl Drop for PutWatch {
    fn drop(&mut self) {
        lock(&self.ranges.state).watches.retain(|watch| watch.id != self.id);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::mutant::{Bug, finds};

    fn bytes(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    fn ranges() -> (Arc<EmptyRanges>, Arc<Budget>) {
        let budget = Arc::new(Budget::new(1 << 20));
        (EmptyRanges::new(&budget), budget)
    }

    /// Records the range from `start` to `end`, with tombstones from `first` to `last`.
    fn record(
        ranges: &Arc<EmptyRanges>,
        (start, end): (&str, Option<&str>),
        tombstones: [&str; 2],
    ) {
        let watch = ranges.watch(Direction::Up, Some(bytes(start))).unwrap();
        let [first, last] = tombstones.map(str::as_bytes);
        watch.record(end.map(bytes), (first, last));
    }

    fn put(ranges: &EmptyRanges, key: &str) {
        ranges.puts().into_iter().for_each(|mut report| report.add(key.as_bytes()));
    }

    fn up(ranges: &EmptyRanges, key: &str) -> Option<ScanBound> {
        ranges.skip(Direction::Up, Some(key.as_bytes()))
    }

    fn down(ranges: &EmptyRanges, key: Option<&str>) -> Option<ScanBound> {
        ranges.skip(Direction::Down, key.map(str::as_bytes))
    }

    #[test]
    fn scans_skip_ranges_in_both_directions() {
        let (ranges, budget) = ranges();
        assert!(!ranges.has_ranges());
        record(&ranges, ("b", Some("d")), ["b", "c"]);
        assert!(ranges.has_ranges() && budget.used() > 0);
        assert_eq!((up(&ranges, "a"), up(&ranges, "d")), (None, None));
        assert_eq!(
            (up(&ranges, "b"), up(&ranges, "c")),
            (Some(Some(bytes("d"))), Some(Some(bytes("d"))))
        );
        assert_eq!((down(&ranges, Some("b")), down(&ranges, Some("e"))), (None, None));
        assert_eq!(down(&ranges, Some("d")), Some(Some(bytes("b"))));
        assert_eq!(down(&ranges, None), None);
        record(&ranges, ("x", None), ["x", "y"]);
        assert_eq!((up(&ranges, "z"), down(&ranges, None)), (Some(None), Some(Some(bytes("x")))));
        // Ranges that touch are one.
        record(&ranges, ("d", Some("x")), ["e", "f"]);
        assert_eq!((ranges.count(), up(&ranges, "b")), (1, Some(None)));
        drop(ranges);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_put_splits_a_range_into_the_parts_that_have_tombstones() {
        let (ranges, _) = ranges();
        record(&ranges, ("a", None), ["c", "m"]);
        put(&ranges, "b");
        assert_eq!((ranges.count(), up(&ranges, "a")), (1, None));
        put(&ranges, "n");
        assert_eq!((ranges.count(), up(&ranges, "c")), (1, Some(Some(bytes("n")))));
        put(&ranges, "g");
        assert_eq!((ranges.count(), up(&ranges, "c")), (2, Some(Some(bytes("g")))));
        assert_eq!((up(&ranges, "g"), up(&ranges, "h")), (None, Some(Some(bytes("n")))));
        assert_eq!(down(&ranges, Some("n")), Some(Some(bytes("g\0"))));
        record(&ranges, ("g", Some("g\0")), ["g", "g"]);
        assert_eq!((ranges.count(), up(&ranges, "c")), (1, Some(Some(bytes("n")))));
    }

    #[test]
    fn the_range_that_was_not_used_makes_room() {
        let (ranges, _) = ranges();
        for number in 0..RANGES_MAX {
            let (start, end) = (format!("{number:03}a"), format!("{number:03}c"));
            record(&ranges, (&start, Some(&end)), [&start, &start]);
        }
        assert!(up(&ranges, "000a").is_some());
        record(&ranges, ("x", Some("y")), ["x", "x"]);
        assert_eq!(ranges.count(), to_u64(RANGES_MAX));
        assert!(up(&ranges, "000a").is_some() && up(&ranges, "001a").is_none());
        let long = "z".repeat(65_535);
        for number in 0..10 {
            let start = format!("{number}{}", &long[1..]);
            record(&ranges, (&start, Some(&format!("{start}z"))), [&start, &start]);
        }
        assert!(ranges.count() <= 2, "{}", ranges.count());
    }

    /// A put is ordered after the scan has passed its key: the range ends there.
    fn watches_cut_ranges() {
        let (ranges, _) = ranges();
        let watch = ranges.watch(Direction::Up, Some(bytes("b"))).unwrap();
        for key in ["e", "d", "f", "a"] {
            put(&ranges, key);
        }
        watch.record(Some(bytes("h")), (b"b", b"g"));
        assert_eq!(up(&ranges, "b"), Some(Some(bytes("d"))));
        assert_eq!((up(&ranges, "d"), up(&ranges, "f")), (None, None));
        let watch = ranges.watch(Direction::Down, None).unwrap();
        for key in ["p", "r", "q"] {
            put(&ranges, key);
        }
        watch.record(Some(bytes("m")), (b"z", b"m"));
        assert_eq!(down(&ranges, None), Some(Some(bytes("r\0"))));
        assert_eq!(down(&ranges, Some("r")), None);
        // A range that begins with a put is not recorded.
        let watch = ranges.watch(Direction::Up, Some(bytes("i"))).unwrap();
        put(&ranges, "i");
        watch.record(Some(bytes("k")), (b"i", b"j"));
        assert_eq!(up(&ranges, "i"), None);
    }

    #[test]
    fn a_put_during_the_scan_cuts_its_range() {
        watches_cut_ranges();
        finds(Bug::EmptyRangeForgetsWatch, watches_cut_ranges);
    }

    #[test]
    fn few_scans_watch_at_once() {
        let (ranges, _) = ranges();
        let watches: Vec<_> =
            (0..WATCHES_MAX).map(|_| ranges.watch(Direction::Up, None).unwrap()).collect();
        assert!(ranges.watch(Direction::Up, None).is_none());
        drop(watches);
        assert!(ranges.watch(Direction::Up, None).is_some());
    }
}
