//! Random numbers that are the same on every machine and in every release: a 64-bit mixing
//! function, a generator of streams, and the scrambling hash of YCSB.
//!
//! A seed must give the same operations in every later release. General-purpose crates do not
//! guarantee that, so the code is here.

use crate::numbers::to_f64;

/// The increment of `SplitMix64`: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maps 64 bits to 64 bits, one to one (the finalizer of `SplitMix64`).
#[inline]
pub const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the 64-bit FNV-1a hash of the eight bytes of `value`, with which YCSB scrambles ranks.
#[inline]
pub fn fnv64(value: u64) -> u64 {
    value.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Maps 64 random bits to `0..count` without a division; 0 if `count` is 0.
#[inline]
pub fn scale(bits: u64, count: u64) -> u64 {
    high_half(u128::from(bits) * u128::from(count))
}

/// Returns the upper 64 bits of a product.
#[inline]
fn high_half(product: u128) -> u64 {
    u64::try_from(product >> 64).unwrap_or(u64::MAX)
}

/// A stream of random numbers by `SplitMix64`, which passes `BigCrush` and costs one addition and
/// one [`mix`] per number.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Returns stream number `stream` of `seed`. Different streams are independent.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self { state: mix(mix(seed) ^ mix(stream).rotate_left(32)) }
    }

    /// Returns the next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        let bits = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        bits
    }

    /// Returns a number in `0..count`; 0 if `count` is 0.
    #[inline]
    pub fn below(&mut self, count: u64) -> u64 {
        scale(self.bits(), count)
    }

    /// Returns a number in `0.0..1.0` with 53 random bits.
    #[inline]
    pub const fn fraction(&mut self) -> f64 {
        to_f64(self.bits() >> 11) / to_f64(1 << 53)
    }

    /// Returns true with this probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned_and_differ() {
        // A change of these numbers changes every published result.
        let mut random = Random::new(42, 0);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        let mut again = Random::new(42, 0);
        assert_eq!(first, (0..3).map(|_| again.bits()).collect::<Vec<_>>());
        assert_ne!(Random::new(42, 1).bits(), first[0]);
        assert_ne!(Random::new(43, 0).bits(), first[0]);
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf, "SplitMix64 of 0, as published");
    }

    #[test]
    fn fnv_is_the_published_function() {
        // FNV-1a of eight zero bytes.
        assert_eq!(fnv64(0), 0xa8c7_f832_281a_39c5);
    }

    #[test]
    fn scaling_covers_the_range_and_never_leaves_it() {
        assert_eq!(scale(u64::MAX, 10), 9);
        assert_eq!(scale(0, 10), 0);
        assert_eq!(scale(u64::MAX, 0), 0);
        let mut random = Random::new(1, 1);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[crate::numbers::to_usize(random.below(10))] += 1;
        }
        assert!(seen.iter().all(|count| (900..1100).contains(count)), "{seen:?}");
    }
}
