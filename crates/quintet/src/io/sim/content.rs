//! The bytes of one simulated file, shared copy-on-write between a run, its history and its
//! images.
//!
//! Invariants: `pages` covers `size`. Bytes after `size` in the last page are zero. A page that is
//! `None` is a hole and reads as zeros. A clone costs one reference count; its first change copies
//! the page list and the touched pages.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, LazyLock, OnceLock},
};

use super::random::mix;
use crate::{
    io::{BLOCK_BYTES, Mapping},
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicU64, Ordering},
    },
};

const PAGE: usize = to_usize(BLOCK_BYTES);
static ZEROS: [u8; PAGE] = [0; PAGE];
/// The page that `allocate` puts into holes: it takes space and reads as zeros.
static ZERO_PAGE: LazyLock<Arc<ContentPage>> = LazyLock::new(|| Arc::new(ContentPage::zeroed()));

#[derive(Debug)]
struct ContentPage {
    bytes: [u8; PAGE],
    /// Cached, because most pages of an image are those of the previous image.
    hash: OnceLock<u64>,
}

impl Clone for ContentPage {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes, hash: OnceLock::new() }
    }
}

impl ContentPage {
    const fn zeroed() -> Self {
        Self { bytes: ZEROS, hash: OnceLock::new() }
    }

    fn hash(&self) -> u64 {
        *self.hash.get_or_init(|| {
            let (words, _) = self.bytes.as_chunks::<8>();
            words.iter().fold(0x51_7c_c1, |hash: u64, word| {
                (hash ^ u64::from_le_bytes(*word))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29)
            })
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileContent {
    size: u64,
    pages: Arc<Vec<Option<Arc<ContentPage>>>>,
}

/// Splits a byte range at page boundaries: page, and bytes within it.
fn spans(offset: u64, length: u64) -> impl Iterator<Item = (usize, Range<usize>)> {
    let end = offset + length;
    let mut position = offset;
    std::iter::from_fn(move || {
        (position < end).then(|| {
            let page = position / BLOCK_BYTES;
            let stop = end.min((page + 1) * BLOCK_BYTES);
            let start = position - page * BLOCK_BYTES;
            let range = to_usize(start)..to_usize(start + (stop - position));
            position = stop;
            (to_usize(page), range)
        })
    })
}

impl FileContent {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Copies bytes from `offset` and returns their number.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = self.size.saturating_sub(offset).min(to_u64(buffer.len()));
        let mut rest = buffer;
        for (page, range) in spans(offset, length) {
            let (head, tail) = rest.split_at_mut(range.len());
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => head.copy_from_slice(&page.bytes[range]),
                None => head.fill(0),
            }
            rest = tail;
        }
        to_usize(length)
    }

    /// Returns the whole content.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(self.size)];
        self.read(0, &mut bytes);
        bytes
    }

    fn page_mut(&mut self, index: usize) -> &mut [u8; PAGE] {
        let page = Arc::make_mut(&mut self.pages)[index]
            .get_or_insert_with(|| Arc::new(ContentPage::zeroed()));
        let page = Arc::make_mut(page);
        page.hash.take();
        &mut page.bytes
    }

    /// Writes bytes and extends the file if needed.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let length = to_u64(bytes.len());
        self.resize(self.size.max(offset + length));
        let mut rest = bytes;
        for (page, range) in spans(offset, length) {
            let (head, tail) = rest.split_at(range.len());
            self.page_mut(page)[range].copy_from_slice(head);
            rest = tail;
        }
    }

    /// Truncates the file, or extends it with a hole.
    pub(super) fn resize(&mut self, size: u64) {
        let count = to_usize(size.div_ceil(BLOCK_BYTES));
        if count != self.pages.len() {
            Arc::make_mut(&mut self.pages).resize(count, None);
        }
        let tail = to_usize(size % BLOCK_BYTES);
        if size < self.size && tail > 0 && self.pages[count - 1].is_some() {
            self.page_mut(count - 1)[tail..].fill(0);
        }
        self.size = size;
    }

    /// Zeroes a range within the file; whole pages become holes.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        let length = length.min(self.size.saturating_sub(offset));
        for (page, range) in spans(offset, length) {
            if range.len() == PAGE {
                Arc::make_mut(&mut self.pages)[page] = None;
            } else if self.pages[page].is_some() {
                self.page_mut(page)[range].fill(0);
            }
        }
    }

    /// Extends the file to at least `size` bytes and allocates space for the added range.
    pub(super) fn allocate(&mut self, size: u64) {
        let first = to_usize(self.size / BLOCK_BYTES);
        self.resize(self.size.max(size));
        let pages = Arc::make_mut(&mut self.pages);
        for page in pages.iter_mut().take(to_usize(size.div_ceil(BLOCK_BYTES))).skip(first) {
            page.get_or_insert_with(|| ZERO_PAGE.clone());
        }
    }

    /// Returns the number of blocks that take space.
    pub(super) fn blocks_used(&self) -> u64 {
        to_u64(self.pages.iter().flatten().count())
    }

    /// Returns the number of blocks that a write to the range, or an allocation of it, would newly
    /// take.
    pub(super) fn blocks_missing(&self, offset: u64, length: u64) -> u64 {
        to_u64(
            spans(offset, length)
                .filter(|(page, _)| self.pages.get(*page).is_none_or(Option::is_none))
                .count(),
        )
    }

    /// Returns a 64-bit hash of size and bytes. Holes and zeros hash alike.
    pub(super) fn hash(&self) -> u64 {
        self.pages.iter().fold(mix(self.size), |hash, page| {
            let page = page.as_ref().unwrap_or(&ZERO_PAGE);
            (hash ^ page.hash()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
        })
    }

    /// Bytes within one page.
    fn piece(&self, position: usize, bytes: usize) -> &[u8] {
        let start = position % PAGE;
        self.pages
            .get(position / PAGE)
            .and_then(Option::as_ref)
            .map_or(&ZEROS[..bytes], |page| &page.bytes[start..start + bytes])
    }

    /// Returns the units of a range in which a mapping of this file differs from it: offset and new
    /// bytes. If the writers of the mapping tell their stores, other pages are not compared.
    pub(super) fn differences(
        &self,
        mapping: &Mapping,
        unit: u64,
        range: &Range<u64>,
    ) -> Vec<(u64, Arc<[u8]>)> {
        let is_whole = *range == (0..u64::MAX);
        self.differences_in(mapping, unit, range, |page| {
            let has_stores = mapping.page_has_stores(page);
            // Before the comparison: what is stored from here on sets the flag again.
            if has_stores && is_whole {
                mapping.page_compared(page);
            }
            has_stores
        })
    }

    /// Returns whether a mapping of this file differs from it.
    pub(super) fn differs_from(&self, mapping: &Mapping, unit: u64) -> bool {
        !self.differences_in(mapping, unit, &(0..u64::MAX), |_| true).is_empty()
    }

    fn differences_in(
        &self,
        mapping: &Mapping,
        unit: u64,
        range: &Range<u64>,
        chosen: impl Fn(usize) -> bool,
    ) -> Vec<(u64, Arc<[u8]>)> {
        let mut found = Vec::new();
        let unit = to_usize(unit);
        let first = to_usize(range.start) / unit;
        let end = to_usize(range.end.min(mapping.bytes())).div_ceil(unit);
        let pages = first * unit / PAGE..(end * unit).div_ceil(PAGE);
        // Most pages are the same: units are compared only in the others.
        for page in pages.filter(|page| chosen(*page)) {
            let start = page * PAGE;
            let stop = (start + PAGE).min(to_usize(mapping.bytes()));
            if are_same(&mapping.words()[start / 8..stop / 8], self.piece(start, stop - start)) {
                continue;
            }
            for index in (start / unit).max(first)..stop.div_ceil(unit).min(end) {
                let position = index * unit;
                let words = &mapping.words()[position / 8..(position + unit).min(stop) / 8];
                if !are_same(words, self.piece(position, words.len() * 8)) {
                    let words = words.iter().map(|word| word.load(Ordering::Relaxed));
                    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                    found.push((to_u64(position), Arc::from(bytes)));
                }
            }
        }
        found
    }

    /// Returns a mapping of the first `bytes` with this content.
    pub(super) fn to_mapping(&self, bytes: u64) -> Mapping {
        let mapping = Mapping::heap(bytes);
        for (index, words) in mapping.words().chunks(PAGE / 8).enumerate() {
            let (source, _) = self.piece(index * PAGE, PAGE).as_chunks::<8>();
            for (word, bytes) in words.iter().zip(source) {
                word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
        }
        mapping
    }
}

/// Returns whether words of a mapping have these bytes.
fn are_same(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (bytes, _) = bytes.as_chunks::<8>();
    // Several words a comparison: this is most of the time of a crash test.
    let (words, words_left) = words.as_chunks::<8>();
    let (bytes, bytes_left) = bytes.as_chunks::<8>();
    let differ = |word: &AtomicU64, bytes: &[u8; 8]| {
        word.load(Ordering::Relaxed) ^ u64::from_le_bytes(*bytes)
    };
    let mut pairs = words.iter().zip(bytes);
    let mut pairs_left = words_left.iter().zip(bytes_left);
    pairs.all(|(words, bytes)| (0..8).fold(0, |all, at| all | differ(&words[at], &bytes[at])) == 0)
        && pairs_left.all(|(word, bytes)| differ(word, bytes) == 0)
}

/// Stores `bytes` at `offset` of a mapping, up to its end.
pub(super) fn store(mapping: &Mapping, offset: u64, bytes: &[u8]) {
    let mut words: BTreeMap<usize, [u8; 8]> = BTreeMap::new();
    for (position, byte) in (offset..).zip(bytes) {
        let index = to_usize(position / 8);
        let Some(word) = mapping.words().get(index) else { break };
        let entry =
            words.entry(index).or_insert_with(|| word.load(Ordering::Relaxed).to_le_bytes());
        entry[to_usize(position % 8)] = *byte;
    }
    for (index, bytes) in words {
        mapping.words()[index].store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

/// Overlays a mapping's bytes onto bytes that were read from `offset`.
pub(super) fn overlay(mapping: &Mapping, offset: u64, buffer: &mut [u8]) {
    let end = mapping.bytes().min(offset + to_u64(buffer.len()));
    let mut position = offset;
    while position < end {
        let bytes = mapping.words()[to_usize(position / 8)].load(Ordering::Relaxed).to_le_bytes();
        let skip = to_usize(position % 8);
        let count = (8 - skip).min(to_usize(end - position));
        let at = to_usize(position - offset);
        buffer[at..at + count].copy_from_slice(&bytes[skip..skip + count]);
        position += to_u64(count);
    }
}
