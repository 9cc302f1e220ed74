//! Splits of leaves as bytes: entries go from the old page to the two new ones as they are.
//!
//! What: [`Halves`] is a leaf with one entry more, or another entry in place of one, and where it
//! is divided; it builds both pages from a copy of the old one. Why: taken apart into keys and
//! values, a leaf of a hundred entries costs two hundred allocations.
//!
//! Invariants: no key of the leaf is long (those go by [`super::balance`]); both pages have a
//! prefix that begins with the old page's.

use super::{
    Shape,
    node::{HEAD_BYTES, HINTS, LEAF, NodeView, SLOT_BYTES, Slot, hint_step, shared_len, skip_of},
};
use crate::codec::{low_u32, put_u32, to_u64};

/// Where an entry of the new leaf comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The old page: offset of the entry, bytes of its key, bytes of all.
    Old(usize, usize, usize),
    New,
}

/// A leaf to be split. See the module head.
#[derive(Debug)]
pub(super) struct Halves<'e> {
    image: Vec<u8>,
    /// The old page's.
    prefix: Vec<u8>,
    sources: Vec<Source>,
    /// The new entry's key behind the old prefix, and value.
    suffix: &'e [u8],
    value: [&'e [u8]; 2],
    /// Entries of the left half.
    left: usize,
    /// The right half is a new last leaf, of the new entry alone.
    is_append: bool,
}

impl<'e> Halves<'e> {
    /// The leaf with the entry put before slot `at`, or in place of it if it is `found`; `None`
    /// where the page makes no sense or has a long key. With `appends` an entry behind all others
    /// begins the right half alone.
    pub(super) fn new(
        view: &NodeView<'_>,
        (at, found): (usize, bool),
        key: &'e [u8],
        value: [&'e [u8]; 2],
        appends: bool,
    ) -> Option<Self> {
        let image = view.words().copy(0, view.words().len())?;
        let suffix = key.get(view.prefix_len()..)?;
        let mut sources = Vec::with_capacity(view.count() + 1);
        for index in 0..view.count() {
            let slot = view.slot(index)?;
            if slot.long {
                return None;
            }
            if index == at {
                sources.push(Source::New);
            }
            if index != at || !found {
                sources.push(Source::Old(slot.offset, slot.inline, view.entry_bytes(&slot)?));
            }
        }
        if at == view.count() {
            sources.push(Source::New);
        }
        let appends = appends && !found && at == view.count();
        let mut halves = Self {
            image,
            prefix: view.prefix()?,
            sources,
            suffix,
            value,
            left: 0,
            is_append: appends,
        };
        halves.left = if appends { at } else { halves.middle() };
        let several = halves.left > 0 && halves.left < halves.sources.len();
        several.then_some(halves)
    }

    /// Whether the right half is a new last leaf, of the new entry alone.
    pub(super) const fn is_append(&self) -> bool {
        self.is_append
    }

    /// Entries of both halves.
    pub(super) const fn count(&self) -> usize {
        self.sources.len()
    }

    fn size(&self, source: Source) -> usize {
        match source {
            Source::Old(_, _, bytes) => bytes,
            Source::New => 4 + self.suffix.len() + self.value[0].len() + self.value[1].len(),
        }
    }

    /// Entries of the left half, by bytes.
    fn middle(&self) -> usize {
        let size = |source: &Source| SLOT_BYTES + self.size(*source);
        let total: usize = self.sources.iter().map(size).sum();
        let mut sum = 0;
        let half = self.sources.iter().position(|source| {
            sum += size(source);
            sum * 2 >= total
        });
        (half.unwrap_or(0) + 1).clamp(1, self.sources.len().saturating_sub(1).max(1))
    }

    fn suffix_of(&self, source: Source) -> Option<&[u8]> {
        match source {
            Source::Old(offset, length, _) => self.image.get(offset + 4..offset + 4 + length),
            Source::New => Some(self.suffix),
        }
    }

    /// The shortest key above the left half's that is not above the right half's.
    pub(super) fn separator(&self) -> Option<Vec<u8>> {
        let below = self.suffix_of(*self.sources.get(self.left.checked_sub(1)?)?)?;
        let above = self.suffix_of(*self.sources.get(self.left)?)?;
        let shared = shared_len(below, above);
        Some([&*self.prefix, above.get(..=shared).unwrap_or(above)].concat())
    }

    /// The left page and the right one, with these prefixes.
    pub(super) fn build(&self, shape: Shape, prefixes: [&[u8]; 2]) -> Option<[Vec<u8>; 2]> {
        let (left, right) = self.sources.split_at_checked(self.left)?;
        Some([self.page(shape, left, prefixes[0])?, self.page(shape, right, prefixes[1])?])
    }

    fn page(&self, shape: Shape, sources: &[Source], prefix: &[u8]) -> Option<Vec<u8>> {
        let skip = prefix.len().checked_sub(self.prefix.len())?;
        let mut page = vec![0; shape.page_bytes];
        let slots = (HEAD_BYTES + prefix.len()).next_multiple_of(8);
        let mut heap = shape.page_bytes;
        let suffix = |source: Option<&Source>| self.suffix_of(*source?)?.get(skip..);
        let headless = skip_of(suffix(sources.first())?, suffix(sources.last())?);
        for (index, source) in sources.iter().enumerate() {
            let suffix = self.suffix_of(*source)?.get(skip..)?;
            heap = heap.checked_sub(self.size(*source) - skip)?;
            let entry = page.get_mut(heap..heap + self.size(*source) - skip)?;
            let (word, rest) = entry.split_at_mut_checked(4)?;
            match *source {
                Source::Old(offset, _, bytes) => {
                    word.copy_from_slice(self.image.get(offset..offset + 4)?);
                    rest.copy_from_slice(self.image.get(offset + 4 + skip..offset + bytes)?);
                }
                Source::New => {
                    let length = self.value[0].len() + self.value[1].len();
                    word.copy_from_slice(&low_u32(to_u64(length)).to_le_bytes());
                    let (key, rest) = rest.split_at_mut_checked(suffix.len())?;
                    let (front, back) = rest.split_at_mut_checked(self.value[0].len())?;
                    key.copy_from_slice(suffix);
                    front.copy_from_slice(self.value[0]);
                    back.copy_from_slice(self.value[1]);
                }
            }
            let at = slots + index * SLOT_BYTES;
            let slot = Slot::encode(suffix, headless, false, heap).to_le_bytes();
            page.get_mut(at..at + SLOT_BYTES)?.copy_from_slice(&slot);
        }
        let header = header(sources.len(), prefix, heap, headless)?;
        page.get_mut(8..8 + header.len())?.copy_from_slice(&header);
        let step = hint_step(sources.len());
        for hint in 0..if step == 0 { 0 } else { HINTS } {
            let at = slots + (hint + 1) * step * SLOT_BYTES + 4;
            page.copy_within(at..at + 4, 32 + hint * 4);
        }
        (slots + sources.len() * SLOT_BYTES <= heap).then_some(page)
    }
}

/// The header of a leaf from its kind on, and its prefix; the hints are zero.
pub(super) fn header(count: usize, prefix: &[u8], lowest: usize, skip: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + prefix.len());
    bytes.extend_from_slice(&[LEAF, 0]);
    bytes.extend_from_slice(&u16::try_from(count).ok()?.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(prefix.len()).ok()?.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    put_u32(&mut bytes, low_u32(to_u64(lowest)));
    bytes.extend_from_slice(&[0; 8]);
    put_u32(&mut bytes, low_u32(to_u64(skip)));
    bytes.resize(HEAD_BYTES - 8, 0);
    bytes.extend_from_slice(prefix);
    Some(bytes)
}
