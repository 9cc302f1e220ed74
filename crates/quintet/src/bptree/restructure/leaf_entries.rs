//! Splits of leaves without decoding: entries are copied from old pages to new ones as bytes.
//!
//! How: [`LeafEntries`] holds the entries of a leaf, or of two neighbours, with one entry added or
//! replaced. It computes where to divide them and builds the pages. Why: decoding a leaf of a
//! hundred entries costs two hundred allocations.
//!
//! Invariants: no key is long (leaves with long keys go through [`crate::bptree::restructure`]);
//! the prefix of a page that is built begins with what all keys are known to share.

use std::ops::Range;

use crate::{
    bptree::{
        bounds::Bounds,
        node::{
            EntrySlot, HEAD_BYTES, HINTS, NodeView, SLOT_BYTES, SLOT_KEY_BYTES, TreeShape,
            hint_step, is_plain_better, leaf_header, skip_of,
        },
        page_cache::WriteGuard,
    },
    util::codec::{low_u32, shared_len, to_u64, to_usize},
};

/// A latched leaf without room for an entry.
pub(super) struct FullLeaf<'f> {
    /// Its number among its parent's children.
    pub(super) index: usize,
    pub(super) leaf: &'f WriteGuard<'f>,
    pub(super) bounds: &'f Bounds,
}

/// The entry to add before slot `at`, or in place of that slot's entry if `found`.
pub(super) struct NewEntry<'e> {
    pub(super) at: usize,
    pub(super) found: bool,
    pub(super) key: &'e [u8],
    pub(super) value: [&'e [u8]; 2],
}

/// An entry: ranges of [`LeafEntries::bytes`].
#[derive(Clone, Debug)]
struct EntryRanges {
    /// The entry's first word, as a plain leaf stores it.
    word: u32,
    /// The key after the base.
    key: Range<usize>,
    payload: Range<usize>,
    /// Size in a plain leaf of this entry and all before it, slots included, without a prefix.
    size_end: usize,
}

/// Entries in key order. See the module documentation.
#[derive(Debug)]
pub(super) struct LeafEntries {
    /// The prefix that all keys share; `bytes` omits it.
    base: Vec<u8>,
    /// Images of pages, followed by keys and values that no page holds in one piece.
    bytes: Vec<u8>,
    list: Vec<EntryRanges>,
}

impl LeafEntries {
    /// Returns an empty list. All keys added must begin with `base`.
    pub(super) const fn new(base: Vec<u8>) -> Self {
        Self { base, bytes: Vec::new(), list: Vec::new() }
    }

    /// Adds the entries of a leaf whose image begins at `image`. Returns `None` if the bytes make
    /// no sense or a key is long.
    fn add_range(&mut self, view: &NodeView<'_>, image: usize, range: Range<usize>) -> Option<()> {
        let prefix = view.prefix()?;
        let prefix = prefix.get(self.base.len()..)?;
        let is_whole = prefix.is_empty() && view.packed().is_none();
        for index in range {
            let slot = view.slot(index)?;
            if slot.long {
                return None;
            }
            let (word, payload) = view.payload(&slot)?;
            if payload.end > view.words().len() {
                return None;
            }
            let payload = image + payload.start..image + payload.end;
            let key = if is_whole {
                payload.start.checked_sub(slot.inline)?..payload.start
            } else {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(prefix);
                let slot_bytes = view.push_slot_bytes(&slot, &mut self.bytes)?;
                let rest = payload.start.checked_sub(slot.inline - slot_bytes)?..payload.start;
                self.bytes.extend_from_within(rest);
                start..self.bytes.len()
            };
            self.add(word, key, payload);
        }
        Some(())
    }

    /// Adds the image of a leaf and returns its offset.
    fn add_image(&mut self, view: &NodeView<'_>) -> Option<usize> {
        let image = self.bytes.len();
        self.bytes.extend_from_slice(&view.words().copy(0, view.words().len())?);
        self.list.reserve(view.count() + 1);
        Some(image)
    }

    /// Adds all entries of a leaf. Returns `None` if the bytes make no sense or a key is long.
    pub(super) fn add_leaf(&mut self, view: &NodeView<'_>) -> Option<()> {
        let image = self.add_image(view)?;
        self.add_range(view, image, 0..view.count())
    }

    /// As [`LeafEntries::add_leaf`], with one entry inserted before slot `at`, or replaced if
    /// `found`.
    pub(super) fn add_leaf_with(
        &mut self,
        view: &NodeView<'_>,
        (at, found): (usize, bool),
        key: &[u8],
        value: [&[u8]; 2],
    ) -> Option<()> {
        let image = self.add_image(view)?;
        self.add_range(view, image, 0..at)?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.get(self.base.len()..)?);
        let middle = self.bytes.len();
        for piece in value {
            self.bytes.extend_from_slice(piece);
        }
        let end = self.bytes.len();
        self.add(low_u32(to_u64(end - middle)), start..middle, middle..end);
        self.add_range(view, image, at + usize::from(found)..view.count())
    }

    fn add(&mut self, word: u32, key: Range<usize>, payload: Range<usize>) {
        let size_end = self.size_before(self.list.len());
        let size_end = size_end + key.len() + payload.len() + SLOT_BYTES + 4;
        self.list.push(EntryRanges { word, key, payload, size_end });
    }

    /// Returns the number of entries.
    pub(super) const fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns the size of the first `count` entries in a plain leaf, slots included, without a
    /// prefix.
    fn size_before(&self, count: usize) -> usize {
        let last = count.checked_sub(1).and_then(|last| self.list.get(last));
        last.map_or(0, |last| last.size_end)
    }

    /// Returns the size of all entries in leaves, slots included, without a prefix.
    pub(super) fn size(&self, shape: TreeShape) -> usize {
        let all = 0..self.count();
        let saved = if self.are_even(&all, shape) { self.saved(&all) } else { 0 };
        self.size_before(self.count()) - saved
    }

    /// Returns the number of entries of the next page if the entries from `first` on are divided
    /// into `parts` pages of similar size. No page is empty if there are as many entries as pages.
    pub(super) fn part(&self, first: usize, parts: usize) -> usize {
        let (before, total) = (self.size_before(first), self.size_before(self.count()));
        let rest = self.list.get(first..).unwrap_or(&[]);
        let is_below = |entry: &EntryRanges| (entry.size_end - before) * parts < total - before;
        let (half, rest) = (rest.partition_point(is_below) + 1, rest.len());
        half.clamp(1, rest.saturating_sub(parts - 1).max(1))
    }

    fn key(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(self.list.get(index)?.key.clone())
    }

    /// Returns the shortest key above entry `at - 1` that is not above entry `at`.
    pub(super) fn separator(&self, at: usize) -> Option<Vec<u8>> {
        let (below, above) = (self.key(at.checked_sub(1)?)?, self.key(at)?);
        let shared = shared_len(below, above);
        Some([&*self.base, above.get(..=shared).unwrap_or(above)].concat())
    }

    /// Whether all values in the range have the length of packed leaves.
    fn are_even(&self, range: &Range<usize>, shape: TreeShape) -> bool {
        let is_even = |entry: &EntryRanges| to_usize(u64::from(entry.word)) == shape.value_bytes;
        let entries = self.list.get(range.clone()).unwrap_or(&[]);
        shape.packs(entries.len()) && entries.iter().all(is_even)
    }

    /// Returns the bytes that packing saves, without a prefix.
    fn saved(&self, range: &Range<usize>) -> usize {
        let one = |index| 4 + self.key(index).map_or(0, |key: &[u8]| key.len().min(SLOT_KEY_BYTES));
        range.clone().map(one).sum()
    }

    /// Returns a page of these entries. Its prefix is what the bounds share. If that costs more
    /// space than it saves (keys that fit in their slots do not shrink), the prefix is the base.
    pub(super) fn page_within(
        &self,
        shape: TreeShape,
        range: Range<usize>,
        bounds: &Bounds,
    ) -> Option<Vec<u8>> {
        let page = self.page(shape, range.clone(), bounds.prefix(shape.prefix_max()));
        page.or_else(|| self.page(shape, range, &self.base))
    }

    /// Returns a page of these entries with this prefix; `None` if they do not fit.
    fn page(&self, shape: TreeShape, range: Range<usize>, prefix: &[u8]) -> Option<Vec<u8>> {
        let skip_bytes = prefix.len().checked_sub(self.base.len())?;
        let suffix = |index| self.key(index)?.get(skip_bytes..);
        let last = range.end.checked_sub(1)?;
        let skip = skip_of(suffix(range.start)?, suffix(last)?);
        let slots = (HEAD_BYTES + prefix.len()).next_multiple_of(8);
        let plain = self.size_before(range.end) - self.size_before(range.start);
        let plain = slots + plain - skip_bytes * range.len();
        let is_packed = self.are_even(&range, shape) && !is_plain_better(skip, plain, shape);
        let skip = if is_packed { 0 } else { skip };
        let mut page = vec![0; shape.page_bytes];
        let mut heap = shape.page_bytes;
        for (number, entry) in self.list.get(range.clone())?.iter().enumerate() {
            let suffix = self.bytes.get(entry.key.clone())?.get(skip_bytes..)?;
            let payload = self.bytes.get(entry.payload.clone())?;
            let word = entry.word.to_le_bytes();
            let (word, rest) = if is_packed {
                (&[][..], suffix.get(SLOT_KEY_BYTES..).unwrap_or(&[]))
            } else {
                (&word[..], suffix)
            };
            heap = heap.checked_sub(word.len() + rest.len() + payload.len())?;
            let mut at = heap;
            for piece in [word, rest, payload] {
                page.get_mut(at..at + piece.len())?.copy_from_slice(piece);
                at += piece.len();
            }
            let slot = EntrySlot::encode(suffix, skip, false, heap).to_le_bytes();
            let at = slots + number * SLOT_BYTES;
            page.get_mut(at..at + SLOT_BYTES)?.copy_from_slice(&slot);
        }
        let value_bytes = if is_packed { shape.value_bytes } else { 0 };
        let header = leaf_header(range.len(), prefix, heap, (skip, value_bytes))?;
        page.get_mut(8..8 + header.len())?.copy_from_slice(&header);
        let step = hint_step(range.len());
        for hint in 0..if step == 0 { 0 } else { HINTS } {
            let at = slots + (hint + 1) * step * SLOT_BYTES + 4;
            page.copy_within(at..at + 4, 32 + hint * 4);
        }
        (slots + range.len() * SLOT_BYTES <= heap).then_some(page)
    }
}
