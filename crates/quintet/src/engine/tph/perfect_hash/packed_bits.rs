//! Values of a fixed number of bits, packed into 64-bit words from the lowest bit on.

use crate::util::codec::to_usize;

/// Returns the number of words that hold this number of bits.
pub(super) const fn words_of(bits: u64) -> u64 {
    bits.div_ceil(64)
}

/// Stores the low `width` bits of `value` at bit `at`. The words are zero there, and `width` is at
/// most 63.
pub(super) fn put_bits(words: &mut [u64], at: u64, width: u32, value: u64) {
    if width == 0 {
        return;
    }
    let (word, shift) = (to_usize(at / 64), at % 64);
    let value = value & ((1 << width) - 1);
    words[word] |= value << shift;
    if shift + u64::from(width) > 64 {
        words[word + 1] |= value >> (64 - shift);
    }
}

/// Returns the `width` bits at bit `at`, zeros beyond the end. `width` is at most 63.
#[inline]
pub(super) fn get_bits(words: &[u64], at: u64, width: u32) -> u64 {
    let (word, shift) = (to_usize(at / 64), at % 64);
    let here = words.get(word).copied().unwrap_or(0) >> shift;
    let next = match shift {
        0 => 0,
        _ => words.get(word + 1).copied().unwrap_or(0) << (64 - shift),
    };
    (here | next) & ((1 << width) - 1)
}
