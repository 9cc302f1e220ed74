//! The search with AVX2, eight candidates at a time.
//!
//! The module is `unsafe` for two reasons. Functions that need AVX2 are called after it was
//! detected, and the gather reads words of the bitmap at computed indexes. The rest is arithmetic.
//!
//! AVX2 has no remainder. Lemire's remainder needs a product of 64 by 32 bits and the high half of
//! another one. Both are made of 32-bit products, four lanes at a time (paper 4.1.2).
#![expect(unsafe_code, reason = "instructions that were detected, and a gather: see UNSAFE.md")]

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256, _mm256_blend_epi32,
    _mm256_castsi256_ps, _mm256_i32gather_epi32, _mm256_loadu_si256, _mm256_movemask_ps,
    _mm256_mul_epu32, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_slli_epi64, _mm256_sllv_epi32, _mm256_srli_epi32,
    _mm256_srli_epi64, _mm256_sub_epi32, _mm256_xor_si256,
};

use super::super::slot_bitmap::{ALPHA, BETA, BETA_SHIFT, Modulus, SlotBitmap};
use crate::util::codec::{low_u32, to_u64, to_usize};

/// Number of 32-bit lanes of a vector.
const LANES: usize = 8;

/// Returns the same as [`SlotBitmap::first_of`], which it calls if the processor has no AVX2.
pub(super) fn first(slots: &SlotBitmap, keys: &[u64], candidates: &[u32]) -> Option<usize> {
    // The standard library caches the answer: one load.
    if !std::arch::is_x86_feature_detected!("avx2") {
        return slots.first_of(keys, candidates);
    }
    // SAFETY: AVX2 was just found.
    unsafe { first_of_eight(slots, keys, candidates) }
}

#[target_feature(enable = "avx2")]
fn first_of_eight(slots: &SlotBitmap, keys: &[u64], candidates: &[u32]) -> Option<usize> {
    let modulus = VectorModulus::new(slots.modulus);
    let (chunks, rest) = candidates.as_chunks::<LANES>();
    for (chunk, eight) in chunks.iter().enumerate() {
        let mut free = free_lanes(slots, modulus, keys, eight);
        while free != 0 {
            let lane = to_usize(u64::from(free.trailing_zeros()));
            free &= free - 1;
            if slots.is_distinct(keys, eight[lane]) {
                return Some(chunk * LANES + lane);
            }
        }
    }
    slots.first_of(keys, rest).map(|index| chunks.len() * LANES + index)
}

/// Returns a bit for each candidate under which no key gets a slot that is in use.
#[inline]
#[target_feature(enable = "avx2")]
fn free_lanes(
    slots: &SlotBitmap,
    modulus: VectorModulus,
    keys: &[u64],
    eight: &[u32; LANES],
) -> u32 {
    // SAFETY: eight words of 4 bytes are the 32 bytes that are read; the load needs no alignment.
    let numbers = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
    let numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(1));
    let alpha = _mm256_mullo_epi32(numbers, _mm256_set1_epi32(ALPHA.cast_signed()));
    let beta = _mm256_mullo_epi32(numbers, _mm256_set1_epi32(BETA.cast_signed()));
    let beta = _mm256_xor_si256(beta, _mm256_srli_epi32::<{ BETA_SHIFT.cast_signed() }>(beta));
    // The sign bit of a lane is set if the slot of a key is in use.
    let mut blocked = _mm256_setzero_si256();
    for key in keys {
        let h0 = _mm256_set1_epi32(low_u32(*key).cast_signed());
        let h1 = _mm256_set1_epi32(low_u32(*key >> 32).cast_signed());
        let sum = _mm256_add_epi32(_mm256_add_epi32(h0, _mm256_mullo_epi32(h1, alpha)), beta);
        let slot = modulus.of(sum);
        let at = _mm256_srli_epi32::<5>(slot);
        debug_assert!(to_u64(slots.taken.len()) * 32 >= u64::from(slots.modulus.divisor()));
        // SAFETY: a remainder is below the divisor, and there is a word for every 32 slots
        // (`SlotBitmap::new`), so `at` is a word of `taken`; below 2^27, so never negative.
        let word = unsafe { _mm256_i32gather_epi32::<4>(slots.taken.as_ptr().cast(), at) };
        let bit = _mm256_and_si256(slot, _mm256_set1_epi32(31));
        let to_top = _mm256_sub_epi32(_mm256_set1_epi32(31), bit);
        blocked = _mm256_or_si256(blocked, _mm256_sllv_epi32(word, to_top));
        if signs(blocked) == 0xff {
            return 0;
        }
    }
    !signs(blocked) & 0xff
}

/// Returns the sign bits of the lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn signs(lanes: __m256i) -> u32 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)).cast_unsigned()
}

/// A [`Modulus`] in each lane.
#[derive(Clone, Copy)]
struct VectorModulus {
    divisor: __m256i,
    inverse_low: __m256i,
    inverse_high: __m256i,
}

impl VectorModulus {
    #[target_feature(enable = "avx2")]
    fn new(modulus: Modulus) -> Self {
        let inverse = modulus.inverse();
        Self {
            divisor: _mm256_set1_epi64x(i64::from(modulus.divisor())),
            inverse_low: _mm256_set1_epi64x(i64::from(low_u32(inverse))),
            inverse_high: _mm256_set1_epi64x(i64::from(low_u32(inverse >> 32))),
        }
    }

    /// Returns the remainders of eight values.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(self, values: __m256i) -> __m256i {
        let even = self.of_even(values);
        let odd = self.of_even(_mm256_srli_epi64::<32>(values));
        _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd))
    }

    /// Returns the remainders of the low halves of four 64-bit lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of_even(self, values: __m256i) -> __m256i {
        let low = _mm256_mul_epu32(self.inverse_low, values);
        let high = _mm256_mul_epu32(self.inverse_high, values);
        let fraction = _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high));
        let top = _mm256_mul_epu32(_mm256_srli_epi64::<32>(fraction), self.divisor);
        let bottom = _mm256_srli_epi64::<32>(_mm256_mul_epu32(fraction, self.divisor));
        _mm256_srli_epi64::<32>(_mm256_add_epi64(top, bottom))
    }
}
