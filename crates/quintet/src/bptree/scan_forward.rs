//! Ascending scans, which copy a run of entries at a time.
//!
//! How: [`Tree::scan_forward`] copies entries of one leaf, as they are at one moment, into a
//! reusable [`EntryRun`]. If the leaf has more, the next run continues in it without a descent,
//! provided that the leaf is unchanged.
//!
//! Invariants: between two runs a scan keeps only a key, a page version and no latch, so it blocks
//! nothing. Splits and merges between two runs cannot hide a key that exists throughout the scan.

use super::{
    node::{NodeView, StoredValue},
    page_cache::{PageVersion, ReadGuard},
    read::Target,
    tree::{Attempt, Stop, Tree},
};
use crate::Result;

/// Maximum number of bytes that a step copies, exceeded by at most one entry.
pub(super) const STEP_BYTES: usize = 1 << 20;
/// Number of entries between the one that is prefetched and the one that is read.
pub(super) const AHEAD_ENTRIES: usize = 4;

/// A run of entries copied from a leaf, in key order.
#[derive(Debug, Default)]
pub struct EntryRun {
    bytes: Vec<u8>,
    /// For each entry the end of its key and of its value. A key begins at the end of the previous
    /// entry.
    ends: Vec<(usize, usize)>,
}

impl EntryRun {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns key and value of the entry at `index`.
    #[inline]
    pub fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (middle, end) = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = start.map_or(0, |(_, end)| *end);
        Some((self.bytes.get(start..middle)?, self.bytes.get(middle..end)?))
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Removes all entries but the first `len`.
    fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((middle, self.bytes.len()));
    }

    /// Sets `out` to the smallest key above the last entry.
    fn following(&self, out: &mut Vec<u8>) {
        if let Some((key, _)) = self.len().checked_sub(1).and_then(|last| self.entry(last)) {
            out.clear();
            out.extend_from_slice(key);
            out.push(0);
        }
    }

    /// Reserves memory for `count` entries of a leaf by their mean size, at most that of a page.
    fn reserve(&mut self, view: &NodeView<'_>, count: usize) {
        let count = count.min(view.count());
        self.ends.reserve(count);
        let bytes = view.words().len().saturating_mul(count) / view.count().max(1);
        self.bytes.reserve(bytes);
    }

    /// Copies entries `first..last` of a leaf until `limit` or [`STEP_BYTES`] is reached or an
    /// entry has a part in an extent. Returns the number of the first entry that was not copied.
    fn copy(
        &mut self,
        view: &NodeView<'_>,
        (first, last): (usize, usize),
        limit: usize,
    ) -> Option<usize> {
        let prefix = view.prefix()?;
        self.reserve(view, last.saturating_sub(first).min(limit.saturating_sub(self.len())));
        for index in first..last {
            view.prefetch_near(index + AHEAD_ENTRIES);
            let slot = view.slot(index)?;
            if slot.long || self.len() >= limit || self.bytes.len() >= STEP_BYTES {
                return Some(index);
            }
            let StoredValue::Inline(at, length) = view.stored_value(&slot)? else {
                return Some(index);
            };
            self.bytes.extend_from_slice(&prefix);
            let start = self.bytes.len();
            let slot_bytes = view.push_slot_bytes(&slot, &mut self.bytes)?;
            // The value follows the key.
            self.bytes.resize(start + slot.inline + length, 0);
            let rest = self.bytes.get_mut(start + slot_bytes..)?;
            view.words().copy_to((at + slot_bytes).checked_sub(slot.inline)?, rest)?;
            self.ends.push((start + slot.inline, start + slot.inline + length));
        }
        Some(last)
    }
}

/// The position of an ascending scan.
#[derive(Debug)]
pub struct ForwardScan {
    /// The first key that has not been copied.
    pub start: Vec<u8>,
    /// The end of the range, excluded.
    pub end: Option<Vec<u8>>,
    /// The leaf of the last run, if it has more entries.
    position: Option<LeafPosition>,
    /// Whether the scan has ended.
    pub is_over: bool,
}

#[derive(Debug)]
struct LeafPosition {
    leaf: PageVersion,
    index: usize,
    upper: Option<Vec<u8>>,
}

impl ForwardScan {
    /// Returns a scan of the keys from `start` (included) to `end` (excluded).
    pub fn new(start: Vec<u8>, end: Option<Vec<u8>>) -> Self {
        let is_over = end.as_ref().is_some_and(|end| *end <= start);
        Self { start, end, position: None, is_over }
    }
}

impl Tree {
    /// Replaces the content of `run` with at most `limit` entries of one leaf. If the leaf is not
    /// in the cache, `ahead` leaves after it are read from disk with it. A run may be empty before
    /// the scan ends.
    pub fn scan_forward(
        &self,
        scan: &mut ForwardScan,
        (limit, ahead): (usize, isize),
        run: &mut EntryRun,
    ) -> Result<()> {
        let mut position = scan.position.take();
        self.repeat(|tree| tree.scan_forward_once(scan, position.take(), (limit, ahead), run))
    }

    fn scan_forward_once(
        &self,
        scan: &mut ForwardScan,
        position: Option<LeafPosition>,
        (limit, ahead): (usize, isize),
        run: &mut EntryRun,
    ) -> Attempt<()> {
        run.clear();
        let position =
            position.and_then(|position| Some((self.cache.revalidate(&position.leaf)?, position)));
        let (leaf, first, upper) = match position {
            Some((leaf, position)) => (leaf, position.index, position.upper),
            None => self.first_of(&scan.start, ahead)?,
        };
        let last = self.with_view(&leaf, |view, fetch| match &scan.end {
            Some(end) if upper.as_ref().is_none_or(|upper| upper > end) => {
                Some(view.search(end, fetch)?.0)
            }
            _ => Some(view.count()),
        })?;
        let mut index = first;
        // Entries that were copied while the leaf had not changed. Reads of extents take long, and
        // in a small cache the leaf may be evicted meanwhile: these entries stay, so that a scan
        // beside many others makes progress.
        let mut sound = 0;
        while index < last && run.len() < limit && run.bytes.len() < STEP_BYTES {
            index = self.with_view(&leaf, |view, _| run.copy(view, (index, last), limit))?;
            if index < last && run.len() < limit && run.bytes.len() < STEP_BYTES {
                match self.copy_extents(&leaf, index, run) {
                    Err(Stop::Restart) if sound > 0 => break,
                    outcome => outcome?,
                }
                index += 1;
                if !leaf.is_unchanged() {
                    break;
                }
                sound = run.len();
            }
        }
        if !leaf.is_unchanged() {
            if sound == 0 {
                return Err(Stop::Restart);
            }
            run.truncate(sound);
            run.following(&mut scan.start);
            return Ok(());
        }
        if index < last {
            run.following(&mut scan.start);
            scan.position = Some(LeafPosition { leaf: leaf.page_version(), index, upper });
            return Ok(());
        }
        scan.is_over = match (&upper, &scan.end) {
            (None, _) => true,
            (Some(upper), Some(end)) => upper >= end,
            (Some(_), None) => false,
        };
        if let Some(upper) = upper {
            scan.start = upper;
        }
        Ok(())
    }

    /// Returns the leaf of a key, the number of its first entry not below the key, and its upper
    /// bound.
    fn first_of(
        &self,
        start: &[u8],
        ahead: isize,
    ) -> Attempt<(ReadGuard<'_>, usize, Option<Vec<u8>>)> {
        let (leaf, bounds) = self.bounded_leaf_ahead(Target::Key(start), ahead)?;
        let first = self.with_view(&leaf, |view, fetch| {
            let first = view.search(start, fetch)?.0;
            for near in 0..AHEAD_ENTRIES {
                view.prefetch_near(first + near);
            }
            Some(first)
        })?;
        Ok((leaf, first, bounds.upper))
    }

    /// Copies an entry of which a part is in an extent.
    #[cold]
    fn copy_extents(&self, leaf: &ReadGuard<'_>, index: usize, run: &mut EntryRun) -> Attempt<()> {
        let (key, stored) = self.with_view(leaf, |view, fetch| {
            let slot = view.slot(index)?;
            Some((view.full_key(&slot, fetch)?, view.stored_value(&slot)?))
        })?;
        // A page that has changed yields an arbitrary length.
        if !leaf.is_unchanged() {
            return Err(Stop::Restart);
        }
        run.bytes.extend_from_slice(&key);
        let start = run.bytes.len();
        run.bytes.resize(start + stored.length(), 0);
        let value = run.bytes.get_mut(start..).unwrap_or(&mut []);
        match &stored {
            StoredValue::Inline(at, _) => leaf.words().copy_to(*at, value).ok_or(Stop::Restart)?,
            StoredValue::Extent(extent) => self.read_value(leaf, extent, value)?,
        }
        run.ends.push((start, run.bytes.len()));
        Ok(())
    }
}
