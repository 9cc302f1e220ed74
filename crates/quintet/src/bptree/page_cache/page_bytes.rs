//! The bytes of a page as atomic words, and edits that track the changed units.
//!
//! Invariants: every access is in bounds or returns `None`. A reader that holds no latch may see a
//! mixture of two states, so its result is valid only once its guard says that the page is
//! unchanged.
//!
//! Byte `i` of the page is byte `i % 8`, counted from the low end, of word `i / 8`.

use std::{cell::Cell, cmp::Ordering as Order};

use crate::{
    io::prefetch,
    util::{
        codec::{low_u8, low_u32},
        sync::{AtomicU64, Ordering},
        words::copy_out,
    },
};

/// Number of units of a page: the bits of a mask of changed units.
pub const UNITS: usize = 64;

/// The words of a page, for reading.
#[derive(Clone, Copy, Debug)]
pub struct PageWords<'a>(&'a [AtomicU64]);

impl<'a> PageWords<'a> {
    /// Returns a view of whole words.
    pub const fn new(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    /// Returns the size in bytes.
    pub const fn len(&self) -> usize {
        self.0.len() * 8
    }

    /// Returns the word at `index`.
    #[inline]
    pub fn word(&self, index: usize) -> Option<u64> {
        self.0.get(index).map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns eight bytes from `offset` on, the first lowest. Bytes past the end are zero.
    #[inline]
    pub fn load(&self, offset: usize) -> Option<u64> {
        let shift = (offset % 8) * 8;
        let low = self.word(offset / 8)? >> shift;
        if shift == 0 {
            return Some(low);
        }
        Some(low | self.word(offset / 8 + 1).unwrap_or(0) << (64 - shift))
    }

    /// Returns a byte.
    #[inline]
    pub fn u8(&self, offset: usize) -> Option<u8> {
        self.word(offset / 8).map(|word| low_u8(word >> (offset % 8 * 8)))
    }

    /// Returns a little-endian `u32`.
    #[inline]
    pub fn u32(&self, offset: usize) -> Option<u32> {
        self.load(offset).map(low_u32)
    }

    /// Returns the words `first..first + count`.
    #[inline]
    pub fn slice(&self, first: usize, count: usize) -> Option<&'a [AtomicU64]> {
        self.0.get(first..first.checked_add(count)?)
    }

    /// Prefetches the cache line of a byte. A hint: any offset is allowed.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        if let Some(word) = self.0.get(offset / 8) {
            prefetch(word);
        }
    }

    /// Returns all words of the page, if `length` bytes from `offset` on are within it.
    #[inline]
    pub fn atomics(&self, offset: usize, length: usize) -> Option<&'a [AtomicU64]> {
        (offset.checked_add(length)? <= self.len()).then_some(self.0)
    }

    /// Copies bytes to `out`.
    #[inline]
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        if offset.checked_add(out.len())? > self.len() {
            return None;
        }
        copy_out(self.0, offset, out);
        Some(())
    }

    /// Copies bytes to a new vector.
    pub fn copy(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        if offset.checked_add(length)? > self.len() {
            return None;
        }
        let mut bytes = vec![0; length];
        self.copy_to(offset, &mut bytes)?;
        Some(bytes)
    }

    /// Compares `length` bytes from `offset` on with `other`, as byte strings.
    #[inline]
    pub fn compare(&self, offset: usize, length: usize, other: &[u8]) -> Option<Order> {
        if offset.checked_add(length)? > self.len() {
            return None;
        }
        let common = length.min(other.len());
        let mut done = 0;
        while done < common {
            let ours = self.load(offset + done)?;
            let count = (common - done).min(8);
            let theirs = head_of(other.get(done..done + count)?);
            let mask = u64::MAX << (64 - 8 * count);
            let order = (ours.swap_bytes() & mask).cmp(&theirs);
            if order != Order::Equal {
                return Some(order);
            }
            done += count;
        }
        Some(length.cmp(&other.len()))
    }
}

/// Returns up to eight bytes as a big-endian number, padded with zeros. The numbers compare as the
/// byte strings do, as far as they go.
#[inline]
pub fn head_of(bytes: &[u8]) -> u64 {
    if let Some(chunk) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*chunk);
    }
    // The two parts may overlap and agree there.
    let both = |first: u64, last: u64| first | last << (64 - 8 * bytes.len());
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            both(u64::from(u32::from_be_bytes(*first)) << 32, u32::from_be_bytes(*last).into())
        }
        _ => match (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
            (Some(first), Some(last)) => {
                both(u64::from(u16::from_be_bytes(*first)) << 48, u16::from_be_bytes(*last).into())
            }
            _ => bytes.first().map_or(0, |byte| u64::from(*byte) << 56),
        },
    }
}

/// Saves units of a page before they change.
pub trait UnitSaver: std::fmt::Debug {
    /// Saves these units.
    fn save(&self, units: u64);
}

/// The words of a latched page, for writing. Records which of its 64 units change.
#[derive(Debug)]
pub struct PageEdit<'a> {
    words: &'a [AtomicU64],
    changed: &'a Cell<u64>,
    /// Units that the witness has not saved.
    unsaved: Option<(&'a Cell<Option<u64>>, &'a dyn UnitSaver)>,
    /// Words of a unit, as a shift.
    unit_shift: u32,
}

impl<'a> PageEdit<'a> {
    /// Returns an editor of whole words: a power of two of them, at least 64.
    pub fn new(words: &'a [AtomicU64], changed: &'a Cell<u64>) -> Self {
        let unit_shift = (words.len() / UNITS).max(1).ilog2();
        Self { words, changed, unsaved: None, unit_shift }
    }

    /// Passes units to `saver` before they change, each once.
    #[must_use]
    pub fn with_saver(mut self, unsaved: &'a Cell<Option<u64>>, saver: &'a dyn UnitSaver) -> Self {
        self.unsaved = Some((unsaved, saver));
        self
    }

    /// Records that units are about to change.
    #[inline]
    fn touch(&self, units: u64) {
        self.changed.set(self.changed.get() | units);
        if let Some((unsaved, saver)) = self.unsaved {
            let before = unsaved.get().unwrap_or(0);
            if before & units != 0 {
                saver.save(before & units);
                unsaved.set(Some(before & !units));
            }
        }
    }

    /// Returns the current content.
    #[cfg(test)]
    pub const fn view(&self) -> PageWords<'a> {
        PageWords(self.words)
    }

    /// Returns the word at `index`; 0 if out of bounds.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Sets the word at `index`. Does nothing if out of bounds.
    #[inline]
    pub fn put_word(&self, index: usize, value: u64) {
        if let Some(word) = self.words.get(index) {
            self.touch(1 << (index >> self.unit_shift));
            word.store(value, Ordering::Relaxed);
        }
    }

    fn merge(&self, index: usize, mask: u64, value: u64) {
        if let Some(word) = self.words.get(index) {
            let before = word.load(Ordering::Relaxed);
            let after = before & !mask | value & mask;
            if after != before {
                self.put_word(index, after);
            }
        }
    }

    /// Sets bytes, which must be within the page.
    pub fn put_bytes(&self, offset: usize, mut bytes: &[u8]) {
        let mut index = offset / 8;
        let skip = offset % 8;
        if skip > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(8 - skip));
            let value = head_of(head).swap_bytes();
            let mask = if head.is_empty() { 0 } else { u64::MAX >> (64 - 8 * head.len()) };
            self.merge(index, mask << (8 * skip), value << (8 * skip));
            bytes = rest;
            index += 1;
        }
        let (chunks, rest) = bytes.as_chunks::<8>();
        let words = self.words.get(index..index + chunks.len()).unwrap_or(&[]);
        self.touch_words(index, words.len());
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        index += chunks.len();
        if !rest.is_empty() {
            self.merge(index, u64::MAX >> (64 - 8 * rest.len()), head_of(rest).swap_bytes());
        }
    }

    /// Sets a little-endian `u32`.
    pub fn put_u32(&self, offset: usize, value: u32) {
        self.put_bytes(offset, &value.to_le_bytes());
    }

    /// Sets the whole page; only units with words that differ count as changed.
    pub fn put_page(&self, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let value = head_of(chunk).swap_bytes();
            if self.words.get(index).is_some_and(|word| word.load(Ordering::Relaxed) != value) {
                self.put_word(index, value);
            }
        }
    }

    /// Sets the whole page; all of it counts as changed.
    pub fn put_whole(&self, bytes: &[u8]) {
        self.touch(u64::MAX);
        let (chunks, _) = bytes.as_chunks::<8>();
        for (word, chunk) in self.words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }

    /// Records that the words `first..first + count` are about to change.
    fn touch_words(&self, first: usize, count: usize) {
        if let Some(last) = count.checked_sub(1) {
            let (from, to) = (first >> self.unit_shift, (first + last) >> self.unit_shift);
            self.touch((u64::MAX >> (63 - to.min(63))) & (u64::MAX << from.min(63)));
        }
    }

    /// Moves the words `from..from + count` to `to`; the ranges may overlap. Does nothing if out of
    /// bounds.
    pub fn move_words(&self, from: usize, to: usize, count: usize) {
        let (low, distance) = (from.min(to), from.abs_diff(to));
        let Some(words) = self.words.get(low..low + count + distance) else { return };
        self.touch_words(to, count);
        let pairs = words.iter().zip(words.get(distance..).unwrap_or(&[]));
        let copy = |target: &AtomicU64, source: &AtomicU64| {
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        if from < to {
            pairs.rev().for_each(|(source, target)| copy(target, source));
        } else {
            pairs.for_each(|(target, source)| copy(target, source));
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::codec::to_u64;

    /// The units that a byte range of a page touches, as a mask.
    fn units_of(page_bytes: usize, offset: usize, length: usize) -> u64 {
        let unit = page_bytes / UNITS;
        if length == 0 {
            return 0;
        }
        let first = to_u64(offset / unit).min(63);
        let last = to_u64((offset + length - 1) / unit).min(63);
        (u64::MAX >> (63 - (last - first))) << first
    }

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn heads_are_of_as_many_bytes_as_there_are() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        for length in 0..=bytes.len() {
            let mut whole = [0; 8];
            let used = length.min(8);
            whole[..used].copy_from_slice(&bytes[..used]);
            assert_eq!(head_of(&bytes[..length]), u64::from_be_bytes(whole), "{length}");
        }
    }

    #[test]
    fn bytes_come_back_at_every_offset_and_length() {
        let store = words(64);
        let changed = Cell::new(0);
        let edit = PageEdit::new(&store, &changed);
        let source: Vec<u8> = (1..=40).collect();
        for offset in 0..24 {
            for length in 0..40 {
                edit.put_page(&[0xaa; 512]);
                edit.put_bytes(offset, &source[..length]);
                let page = edit.view();
                assert_eq!(page.copy(offset, length).unwrap(), source[..length]);
                assert_eq!(page.u8(offset + length), Some(0xaa));
                assert!(offset == 0 || page.u8(offset - 1) == Some(0xaa));
                let touched = units_of(512, offset, length);
                assert_eq!(changed.get() & touched, touched);
            }
        }
        assert_eq!(edit.view().copy(500, 13), None);
        assert_eq!(edit.view().copy(usize::MAX, 2), None);
    }

    #[test]
    fn comparison_is_that_of_byte_strings() {
        let store = words(64);
        let changed = Cell::new(0);
        let edit = PageEdit::new(&store, &changed);
        let strings: [&[u8]; 8] =
            [b"", b"a", b"a\0", b"abcdefgh", b"abcdefghi", b"abcdefgi", b"b", &[0xff; 20]];
        for ours in strings {
            edit.put_bytes(13, ours);
            for theirs in strings {
                let found = edit.view().compare(13, ours.len(), theirs);
                assert_eq!(found, Some(ours.cmp(theirs)), "{ours:?} {theirs:?}");
            }
        }
        assert_eq!(edit.view().compare(510, 3, b"abc"), None);
    }

    #[test]
    fn only_units_that_differ_are_marked() {
        let store = words(128);
        let changed = Cell::new(0);
        let edit = PageEdit::new(&store, &changed);
        let mut image = vec![0; 1024];
        image[16 * 5 + 3] = 1;
        edit.put_page(&image);
        assert_eq!(changed.get(), 1 << 5);
        edit.move_words(10, 11, 1);
        assert_eq!(edit.view().u8(91), Some(1));
        assert_eq!(units_of(4096, 64, 64), 2);
        assert_eq!(units_of(4096, 0, 4096), u64::MAX);
        assert_eq!(units_of(4096, 63, 2), 3);
    }
}
