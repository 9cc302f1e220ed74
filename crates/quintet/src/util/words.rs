//! Byte strings in arrays of atomic words.
//!
//! Why: readers of shared pages race with writers. Every word is an atomic, so a reader gets old or
//! new words and never undefined behaviour. The caller compares a version afterwards to decide
//! whether the words belong together.
//!
//! Invariants: bytes are little-endian within a word, so words in order are the bytes of the file.

use std::cmp;

use crate::util::{
    codec::{low_u32, rest_word, to_u64, to_usize},
    sync::{AtomicU64, Ordering},
};

/// Size of a word in bytes.
pub(crate) const WORD_BYTES: usize = 8;

/// Stores `parts` back to back from the first word on and pads the last word with zeros. Bytes that
/// do not fit are left out.
#[inline]
pub(crate) fn store_bytes(words: &[AtomicU64], parts: &[&[u8]]) {
    let mut writer = WordWriter { words, pending: 0, bits: 0 };
    for part in parts {
        writer.bytes(part);
    }
    writer.finish();
}

/// Writes bytes into words, one word at a time.
#[derive(Debug)]
pub(crate) struct WordWriter<'a> {
    /// Words that are not written yet.
    pub(crate) words: &'a [AtomicU64],
    /// First bytes of the next word.
    pub(crate) pending: u64,
    /// Used bits of `pending`: a multiple of 8 below 64.
    pub(crate) bits: u32,
}

impl WordWriter<'_> {
    /// Stores the next word. Does nothing behind the last one.
    #[inline]
    fn emit(&mut self, word: u64) {
        if let Some((first, rest)) = self.words.split_first() {
            first.store(word, Ordering::Relaxed);
            self.words = rest;
        }
    }

    /// Appends the eight bytes of a word.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        if self.bits == 0 {
            self.emit(word);
        } else {
            self.emit(self.pending | word << self.bits);
            self.pending = word >> (64 - self.bits);
        }
    }

    /// Appends bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.word(u64::from_le_bytes(*chunk));
        }
        if rest.is_empty() {
            return;
        }
        let (word, bits) = (rest_word(bytes), low_u32(to_u64(rest.len())) * 8);
        self.pending |= word << self.bits;
        if self.bits + bits >= 64 {
            // `self.bits` is not 0 here, because `bits` is below 64.
            self.emit(self.pending);
            self.pending = word >> (64 - self.bits);
        }
        self.bits = (self.bits + bits) % 64;
    }

    /// Writes the last word, padded with zeros.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if self.bits > 0 {
            self.emit(self.pending);
        }
    }
}

/// Returns whether the words begin with `bytes`.
#[inline]
pub(crate) fn equals(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let Some((whole, tail)) = words.split_at_checked(chunks.len()) else { return false };
    for (word, chunk) in whole.iter().zip(chunks) {
        if word.load(Ordering::Relaxed) != u64::from_le_bytes(*chunk) {
            return false;
        }
    }
    if rest.is_empty() {
        return true;
    }
    let Some(last) = tail.first() else { return false };
    let mask = (1 << (rest.len() * 8)) - 1;
    last.load(Ordering::Relaxed) & mask == rest_word(bytes)
}

/// Returns the eight bytes at offset `at`, which need not be aligned. Missing words read as zeros.
#[inline]
pub(crate) fn load_at(words: &[AtomicU64], at: usize) -> u64 {
    let load = |index| words.get(index).map_or(0, |word: &AtomicU64| word.load(Ordering::Relaxed));
    let (index, shift) = (at / WORD_BYTES, low_u32(to_u64(at % WORD_BYTES)) * 8);
    let low = load(index) >> shift;
    if shift == 0 { low } else { low | load(index + 1) << (64 - shift) }
}

/// Returns whether `bytes` are at offset `at`.
#[inline]
pub(crate) fn equals_at(words: &[AtomicU64], at: usize, bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        if load_at(words, at + index * WORD_BYTES) != u64::from_le_bytes(*chunk) {
            return false;
        }
    }
    if rest.is_empty() {
        return true;
    }
    let mask = (1 << (rest.len() * 8)) - 1;
    load_at(words, at + chunks.len() * WORD_BYTES) & mask == rest_word(bytes)
}

/// Compares the `length` bytes at offset `at` with `bytes`. Missing words read as zeros.
#[inline]
pub(crate) fn compare_at(
    words: &[AtomicU64],
    (at, length): (usize, usize),
    bytes: &[u8],
) -> cmp::Ordering {
    let shared = bytes.get(..length).unwrap_or(bytes);
    let (chunks, rest) = shared.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let word = load_at(words, at + index * WORD_BYTES).swap_bytes();
        let order = word.cmp(&u64::from_be_bytes(*chunk));
        if order.is_ne() {
            return order;
        }
    }
    if !rest.is_empty() {
        // Shifts out the bytes beyond the shared ones.
        let beyond = 64 - low_u32(to_u64(rest.len())) * 8;
        let word = load_at(words, at + chunks.len() * WORD_BYTES).swap_bytes() >> beyond;
        let order = word.cmp(&(rest_word(shared).swap_bytes() >> beyond));
        if order.is_ne() {
            return order;
        }
    }
    length.cmp(&bytes.len())
}

/// Fills `out` with the bytes from offset `at` on. Bytes of missing words read as zeros.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], at: usize, out: &mut [u8]) {
    let Some(words) = words.get(at / WORD_BYTES..) else { return };
    let shift = low_u32(to_u64(at % WORD_BYTES)) * 8;
    let (chunks, rest) = out.as_chunks_mut::<8>();
    let count = chunks.len();
    if shift == 0 {
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
    } else {
        let mut low = words.first().map_or(0, |word| word.load(Ordering::Relaxed));
        for (chunk, word) in chunks.iter_mut().zip(words.get(1..).unwrap_or(&[])) {
            let high = word.load(Ordering::Relaxed);
            *chunk = (low >> shift | high << (64 - shift)).to_le_bytes();
            low = high;
        }
    }
    let load = |index| words.get(index).map_or(0, |word: &AtomicU64| word.load(Ordering::Relaxed));
    if !rest.is_empty() {
        let mut word = load(count) >> shift;
        if to_usize(u64::from(64 - shift)) < rest.len() * 8 {
            word |= load(count + 1) << (64 - shift);
        }
        for (target, byte) in rest.iter_mut().zip(word.to_le_bytes()) {
            *target = byte;
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::codec::low_u8;

    #[test]
    fn stored_bytes_are_read_at_every_offset_and_length() {
        let bytes: Vec<u8> = (0..40).map(|i| low_u8(i * 37 + 1)).collect();
        for cut in 0..=bytes.len() {
            let words: Vec<_> = (0..6).map(|_| AtomicU64::new(u64::MAX)).collect();
            let (front, back) = bytes.split_at(cut);
            store_bytes(&words, &[front, back]);
            assert!(equals(&words, &bytes));
            assert!(equals(&words, front));
            for at in 0..bytes.len() {
                for end in at..=bytes.len() {
                    let mut out = vec![0; end - at];
                    copy_out(&words, at, &mut out);
                    assert_eq!(out, bytes[at..end], "{at}..{end}");
                    assert!(equals_at(&words, at, &bytes[at..end]));
                    let mut other = bytes[at..end].to_vec();
                    if let Some(last) = other.last_mut() {
                        *last ^= 1;
                        assert!(!equals_at(&words, at, &other));
                    }
                }
            }
        }
        for (one, other) in (0..=40).flat_map(|one| (0..=40).map(move |other| (one, other))) {
            let words: Vec<_> = (0..6).map(|_| AtomicU64::new(u64::MAX)).collect();
            store_bytes(&words, &[&bytes[..one], &[0; 2][..usize::from(one % 3 == 0)]]);
            let length = one + usize::from(one % 3 == 0);
            let stored = [&bytes[..one], &[0][..length - one]].concat();
            let mut others = bytes[..other].to_vec();
            for at in 0..=length {
                let order = stored[at..].cmp(&others);
                assert_eq!(compare_at(&words, (at, length - at), &others), order);
            }
            if let Some(last) = others.last_mut() {
                *last = last.wrapping_add(1);
            }
            assert_eq!(compare_at(&words, (0, length), &others), stored.cmp(&others));
        }
        let words: Vec<_> = (0..6).map(|_| AtomicU64::new(0)).collect();
        store_bytes(&words, &[&bytes[..13]]);
        assert!(!equals(&words, &bytes[..14]) && !equals(&words[..1], &bytes[..13]));
    }
}
