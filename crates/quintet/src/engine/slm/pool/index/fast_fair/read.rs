//! Gets and scans, without a lock.

use super::{
    FairTree, Goal, LOW, NOWHERE, Result, SIBLING, SLOTS, pointer_at, prefix_at, record::VALUE,
    slot_at,
};
use crate::{
    Error,
    pmem::target,
    util::{
        mutant::mutant,
        sync::{Ordering, fence},
    },
};

/// The keys and words of a scan, in scan order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanBatch {
    pub(crate) entries: Vec<(Vec<u8>, u64)>,
    /// Where to continue: an inclusive start for upward scans, an exclusive end for downward scans.
    /// `None` if the scan is complete.
    pub(crate) next: Option<Vec<u8>>,
}

impl FairTree {
    /// Repeats `look` until no memory was freed during it.
    pub(super) fn undisturbed<T>(&self, mut look: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let releases = self.releases.load(Ordering::Acquire);
            let seen = look();
            // Orders the loads of `look` before the load below.
            fence(Ordering::Acquire);
            let current = self.releases.load(Ordering::Relaxed);
            if mutant!(FairReadNotValidated: true, else current == releases) {
                return seen;
            }
        }
    }

    /// Returns the word of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.undisturbed(|| {
            let goal = Goal::At(key);
            let mut leaf = self.find_leaf(goal)?;
            let mut steps = 0;
            loop {
                let turn = self.turn(leaf).load(Ordering::Acquire);
                let record = self.find_record(leaf, key, turn % 2 == 1)?;
                if self.turn(leaf).load(Ordering::Acquire) != turn {
                    continue;
                }
                if let Some(record) = record {
                    return Ok(Some(self.pool.load(record + VALUE)));
                }
                // A split may have moved the key after the descent.
                let right = self.move_right(leaf, goal, &mut steps)?;
                if right == leaf {
                    return Ok(None);
                }
                leaf = right;
            }
        })
    }

    /// Returns the record of a key in a leaf, scanned from the left or from the right.
    pub(super) fn find_record(&self, leaf: u64, key: &[u8], backward: bool) -> Result<Option<u64>> {
        let prefix = prefix_at(key, self.head(leaf)?.skip);
        let look = |slot: u64, pointer: u64| {
            let is_it = pointer != NOWHERE
                && self.pool.load(slot_at(leaf, slot)) == prefix
                && self.has_key(target(pointer), key);
            is_it.then(|| target(pointer))
        };
        if backward {
            let end = self.end_of(leaf);
            let pointer = |slot| self.pool.load(pointer_at(leaf, slot));
            return Ok((0..end).rev().find_map(|slot| look(slot, pointer(slot))));
        }
        for slot in 0..SLOTS {
            match self.pool.load(pointer_at(leaf, slot)) {
                0 => break,
                pointer => {
                    if let Some(record) = look(slot, pointer) {
                        return Ok(Some(record));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Counts the current entries of a node.
    pub(super) fn end_of(&self, node: u64) -> u64 {
        let is_end = |slot: &u64| self.pool.load(pointer_at(node, *slot)) == 0;
        (0..SLOTS).find(is_end).unwrap_or(SLOTS)
    }

    /// Returns the keys and words of the leaf at `goal` in ascending order, with the lowest keys of
    /// its range and of the next.
    fn read_leaf(&self, goal: Goal<'_>) -> Result<Leaf> {
        let mut leaf = self.find_leaf(goal)?;
        let mut steps = 0;
        loop {
            let turn = self.turn(leaf).load(Ordering::Acquire);
            let entries = self.copy_entries(leaf, turn % 2 == 1);
            if self.turn(leaf).load(Ordering::Acquire) != turn {
                continue;
            }
            let right = self.move_right(leaf, goal, &mut steps)?;
            if right != leaf {
                leaf = right;
                continue;
            }
            let low_of = |node: u64| match self.follow(node + LOW)? {
                0 => Ok(Vec::new()),
                low => self.read_key(low),
            };
            let high = match self.follow(leaf + SIBLING)? {
                0 => None,
                sibling => Some(low_of(sibling)?),
            };
            let mut entries = entries?;
            // Entries that a split has moved meanwhile belong to the sibling.
            entries.retain(|(key, _)| high.as_ref().is_none_or(|high| key < high));
            return Ok(Leaf { entries, low: low_of(leaf)?, high });
        }
    }

    /// Copies the entries of a leaf, from the left or from the right.
    fn copy_entries(&self, leaf: u64, backward: bool) -> Result<Vec<(Vec<u8>, u64)>> {
        let end = if backward { self.end_of(leaf) } else { SLOTS };
        let mut pointers = Vec::new();
        for step in 0..end {
            let slot = if backward { end - 1 - step } else { step };
            match self.pool.load(pointer_at(leaf, slot)) {
                0 if backward => {}
                0 => break,
                NOWHERE => {}
                pointer if pointers.last() != Some(&pointer) => pointers.push(pointer),
                _ => {}
            }
        }
        if backward {
            pointers.reverse();
        }
        let mut entries: Vec<(Vec<u8>, u64)> = Vec::new();
        for pointer in pointers {
            let key = self.read_key(target(pointer))?;
            // An entry that moved during the copy may occur twice.
            if entries.last().is_none_or(|(last, _)| *last < key) {
                entries.push((key, self.pool.load(target(pointer) + VALUE)));
            }
        }
        Ok(entries)
    }

    /// Returns the error of leaves that do not ascend: a scan would not end.
    #[cold]
    pub(super) fn ranges_out_of_order(&self) -> Error {
        self.pool.damage(self.at, "the ranges of leaves are out of order")
    }

    /// Returns about `limit` entries from `start` (included) up to `end` (excluded).
    pub(crate) fn scan_up(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<ScanBatch> {
        let mut found = ScanBatch::default();
        let mut start = start.to_vec();
        loop {
            let leaf = self.undisturbed(|| self.read_leaf(Goal::At(&start)))?;
            let is_wanted = |key: &[u8]| key >= &*start && end.is_none_or(|end| key < end);
            found.entries.extend(leaf.entries.into_iter().filter(|(key, _)| is_wanted(key)));
            match leaf.high.filter(|high| end.is_none_or(|end| &**high < end)) {
                None => return Ok(found),
                Some(high) if high <= start => return Err(self.ranges_out_of_order()),
                Some(high) if found.entries.len() >= limit => {
                    found.next = Some(high);
                    return Ok(found);
                }
                Some(high) => start = high,
            }
        }
    }

    /// Returns about `limit` entries from `end` (excluded; `None`: from the last) down to `start`
    /// (included).
    pub(crate) fn scan_down(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<ScanBatch> {
        let mut found = ScanBatch::default();
        let mut end = end.map(<[u8]>::to_vec);
        loop {
            let goal = end.as_deref().map_or(Goal::End, Goal::Below);
            let leaf = self.undisturbed(|| self.read_leaf(goal))?;
            let is_wanted = |key: &[u8]| key >= start && end.as_deref().is_none_or(|end| key < end);
            let wanted = leaf.entries.into_iter().rev().filter(|(key, _)| is_wanted(key));
            found.entries.extend(wanted);
            if &*leaf.low <= start {
                return Ok(found);
            }
            if end.as_ref().is_some_and(|end| leaf.low >= *end) {
                return Err(self.ranges_out_of_order());
            }
            if found.entries.len() >= limit {
                found.next = Some(leaf.low);
                return Ok(found);
            }
            end = Some(leaf.low);
        }
    }
}

/// A copy of a leaf.
#[derive(Debug)]
struct Leaf {
    entries: Vec<(Vec<u8>, u64)>,
    low: Vec<u8>,
    /// The lowest key of the next range; `None` if this is the last.
    high: Option<Vec<u8>>,
}
