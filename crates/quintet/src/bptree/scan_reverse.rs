//! Descending scans, and estimates of the number of keys in a range.
//!
//! How: each step reads entries of one leaf at one moment, then descends again for the leaf before
//! it. Ascending scans are in [`crate::bptree::scan_forward`].

use super::{
    read::Target,
    scan_forward::{AHEAD_ENTRIES, STEP_BYTES},
    tree::{Attempt, DEPTH_MAX, ROOT, Stop, Tree},
};
use crate::Result;

/// The result of a step of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanStep<E> {
    /// The entries, in the order of the scan.
    pub entries: Vec<E>,
    /// Where to continue: the scan continues below this key. `None` at the end.
    pub next: Option<Vec<u8>>,
}

impl Tree {
    /// Returns at most `limit` entries of one leaf, descending, from the last key below `before`
    /// (`None`: the last key) down to `start` (included). `make` builds a value, as in
    /// [`Tree::get`], and `pair` an entry. If the leaf is not in the cache, `ahead` leaves before
    /// it are read from disk with it.
    pub fn scan_reverse<V, E>(
        &self,
        (before, start): (Option<&[u8]>, Option<&[u8]>),
        (limit, ahead): (usize, isize),
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
        pair: impl Fn(Vec<u8>, V) -> E,
    ) -> Result<ScanStep<E>> {
        self.repeat(|tree| tree.scan_reverse_once((before, start), (limit, ahead), &make, &pair))
    }

    fn scan_reverse_once<V, E>(
        &self,
        (before, start): (Option<&[u8]>, Option<&[u8]>),
        (limit, ahead): (usize, isize),
        make: &impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
        pair: &impl Fn(Vec<u8>, V) -> E,
    ) -> Attempt<ScanStep<E>> {
        let target = before.map_or(Target::Last, Target::Below);
        let (leaf, bounds) = self.bounded_leaf_ahead(target, -ahead)?;
        let mut index = self.with_view(&leaf, |view, fetch| match before {
            None => Some(view.count()),
            Some(before) => view.search(before, fetch).map(|(index, _)| index),
        })?;
        let mut entries: Vec<E> = Vec::with_capacity(limit.min(index));
        let mut bytes = 0;
        let mut next = bounds.lower;
        while index > 0 {
            if entries.len() >= limit || bytes >= STEP_BYTES {
                // The last key of this step.
                next =
                    Some(self.with_view(&leaf, |view, fetch| {
                        view.full_key(&view.slot(index)?, fetch)
                    })?);
                break;
            }
            index -= 1;
            let (key, stored) = self.with_view(&leaf, |view, fetch| {
                view.prefetch_near(index.wrapping_sub(AHEAD_ENTRIES));
                let slot = view.slot(index)?;
                Some((view.full_key(&slot, fetch)?, view.stored_value(&slot)?))
            })?;
            if start.is_some_and(|start| *key < *start) {
                next = None;
                break;
            }
            let value = self.make(&leaf, &stored, make)?;
            bytes += key.len() + stored.length();
            entries.push(pair(key, value));
        }
        if !leaf.is_unchanged() {
            return Err(Stop::Restart);
        }
        // Keys below the start are not wanted.
        let next = next.filter(|next| start.is_none_or(|start| **next > *start));
        Ok(ScanStep { entries, next })
    }

    /// Estimates the number of keys in a range from the positions of its ends in the nodes on their
    /// paths, as if each child held equally many. Reads one path for each end.
    pub fn estimate(&self, start: Option<&[u8]>, end: Option<&[u8]>, keys: u64) -> Result<u64> {
        let share = |key: Option<&[u8]>, unbounded: f64| match key {
            None => Ok(unbounded),
            Some(key) => self.repeat(|tree| tree.position(key)),
        };
        let (from, to) = (share(start, 0.0)?, share(end, 1.0)?);
        Ok(crate::util::codec::scale(keys, (to - from).max(0.0)))
    }

    /// Returns the estimated share of keys below a key, from 0 to 1.
    fn position(&self, key: &[u8]) -> Attempt<f64> {
        let mut node = self.cache.read(ROOT)?;
        let (mut low, mut width) = (0.0, 1.0);
        for _ in 0..DEPTH_MAX {
            let (child, index, count) = self.with_view(&node, |view, fetch| {
                if view.is_leaf() {
                    let (index, _) = view.search(key, fetch)?;
                    return Some((None, index, view.count().max(1)));
                }
                let index = view.child_of(key, fetch)?;
                Some((view.child(index), index, view.count() + 1))
            })?;
            let (index, count) = (u32::try_from(index), u32::try_from(count));
            let (Ok(index), Ok(count)) = (index, count) else { return Err(Stop::Restart) };
            low += width * f64::from(index) / f64::from(count);
            width /= f64::from(count);
            let Some(child) = child else { break };
            node = self.child_of(&node, child)?;
        }
        Ok(low)
    }
}
