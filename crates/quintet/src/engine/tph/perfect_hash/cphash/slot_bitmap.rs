//! Parameter numbers, the slots that they give, and the bitmap of the slots in use.

use crate::util::codec::{low_u32, to_usize, widen};

/// A divisor with its inverse, for fast remainders (Lemire, Kaser, Kurz, "Faster remainder by
/// direct computation", 2019): the fraction of the quotient times the divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modulus {
    divisor: u32,
    /// 2^64 divided by the divisor, rounded up. 0 for divisor 1, whose remainders are all 0.
    inverse: u64,
}

impl Modulus {
    pub(super) const fn new(divisor: u32) -> Self {
        let inverse = match divisor {
            0 | 1 => 0,
            _ => u64::MAX / widen(divisor) + 1,
        };
        Self { divisor, inverse }
    }

    pub(super) const fn divisor(self) -> u32 {
        self.divisor
    }

    /// Returns the inverse, for the vector code.
    pub(super) const fn inverse(self) -> u64 {
        self.inverse
    }

    /// Returns the remainder of `value`: below the divisor, or 0 if the divisor is 0.
    #[inline]
    pub(super) fn of(self, value: u32) -> u32 {
        let fraction = self.inverse.wrapping_mul(u64::from(value));
        low_u32(fraction.carrying_mul(u64::from(self.divisor), 0).1)
    }
}

/// `alpha` is the parameter number times this.
pub(super) const ALPHA: u32 = 0x9e37_79b1;
/// `beta` is mixed from the parameter number times this.
pub(super) const BETA: u32 = 0x85eb_ca77;
/// Shift that mixes `beta`. Without it, the slots of consecutive numbers would have equal
/// distances.
pub(super) const BETA_SHIFT: u32 = 15;

/// Returns the slot of a key under the parameters of a number. `alpha` is `(number + 1) * ALPHA`
/// and `beta` is a mix of `(number + 1) * BETA`, so both differ for different numbers.
#[inline]
pub(super) fn slot_of(halves: u64, number: u32, slots: Modulus) -> u32 {
    let (h0, h1) = (low_u32(halves), low_u32(halves >> 32));
    let number = number.wrapping_add(1);
    let alpha = number.wrapping_mul(ALPHA);
    let beta = number.wrapping_mul(BETA);
    let beta = beta ^ (beta >> BETA_SHIFT);
    slots.of(h0.wrapping_add(h1.wrapping_mul(alpha)).wrapping_add(beta))
}

/// The slots of a segment that is being built.
#[derive(Debug)]
pub(super) struct SlotBitmap {
    pub(super) modulus: Modulus,
    /// Bitmap of the slots in use, with a word for every 32 slots.
    pub(super) taken: Vec<u32>,
}

impl SlotBitmap {
    pub(super) fn new(slots: u32) -> Self {
        let words = to_usize(u64::from(slots.div_ceil(32)));
        Self { modulus: Modulus::new(slots), taken: vec![0; words] }
    }

    #[inline]
    fn is_taken(&self, slot: u32) -> bool {
        self.taken[word_of(slot)] >> (slot % 32) & 1 != 0
    }

    /// Occupies the slots of the keys under a parameter number.
    pub(super) fn occupy(&mut self, keys: &[u64], number: u32) {
        for key in keys {
            let slot = slot_of(*key, number, self.modulus);
            debug_assert!(!self.is_taken(slot));
            self.taken[word_of(slot)] |= 1 << (slot % 32);
        }
    }

    /// Returns whether the keys get distinct slots under a parameter number.
    pub(super) fn is_distinct(&self, keys: &[u64], number: u32) -> bool {
        keys.iter().enumerate().all(|(index, key)| {
            let slot = slot_of(*key, number, self.modulus);
            keys[..index].iter().all(|other| slot_of(*other, number, self.modulus) != slot)
        })
    }

    /// Returns the index of the first candidate that gives all keys free, distinct slots. Tries one
    /// candidate at a time.
    pub(super) fn first_of(&self, keys: &[u64], candidates: &[u32]) -> Option<usize> {
        candidates.iter().position(|number| {
            keys.iter().all(|key| !self.is_taken(slot_of(*key, *number, self.modulus)))
                && self.is_distinct(keys, *number)
        })
    }
}

#[inline]
fn word_of(slot: u32) -> usize {
    to_usize(u64::from(slot / 32))
}
