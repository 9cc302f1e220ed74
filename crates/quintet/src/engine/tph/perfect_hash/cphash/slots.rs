//! Numbers of parameters, the positions they give, and the slots that are taken.

/// A divisor and what makes remainders by it cheap (Lemire, Kaser, Kurz, "Faster remainder by
/// direct computation", 2019): the fraction of the quotient, scaled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modulus {
    divisor: u32,
    /// 2^64 over the divisor, rounded up; 0 for 1, of which all remainders are 0.
    inverse: u64,
}

impl Modulus {
    pub(super) const fn new(divisor: u32) -> Self {
        let inverse = match divisor {
            0 | 1 => 0,
            _ => u64::MAX / crate::util::codec::widen(divisor) + 1,
        };
        Self { divisor, inverse }
    }

    pub(super) const fn divisor(self) -> u32 {
        self.divisor
    }

    /// For the lanes, which compute the same.
    pub(super) const fn inverse(self) -> u64 {
        self.inverse
    }

    /// The remainder of `value`: below the divisor, 0 where that is 0.
    #[inline]
    pub(super) fn of(self, value: u32) -> u32 {
        let fraction = self.inverse.wrapping_mul(u64::from(value));
        crate::util::codec::low_u32(fraction.carrying_mul(u64::from(self.divisor), 0).1)
    }
}

/// Multiplies a number to `alpha`.
pub(super) const ALPHA: u32 = 0x9e37_79b1;
/// Multiplies a number to what `beta` is mixed from.
pub(super) const BETA: u32 = 0x85eb_ca77;
/// The shift that mixes it: without it, positions of following numbers would lie on a line.
pub(super) const BETA_SHIFT: u32 = 15;

/// Where a key comes to with the parameters of a number. `alpha` and `beta` are
/// `(number + 1) * ALPHA` and a mix of `(number + 1) * BETA`, so different for different numbers.
#[inline]
pub(super) fn position(halves: u64, number: u32, slots: Modulus) -> u32 {
    let (h0, h1) = (crate::util::codec::low_u32(halves), crate::util::codec::low_u32(halves >> 32));
    let number = number.wrapping_add(1);
    let alpha = number.wrapping_mul(ALPHA);
    let beta = number.wrapping_mul(BETA);
    let beta = beta ^ (beta >> BETA_SHIFT);
    slots.of(h0.wrapping_add(h1.wrapping_mul(alpha)).wrapping_add(beta))
}

/// The slots of a segment while it is built.
#[derive(Debug)]
pub(super) struct SlotBitmap {
    pub(super) modulus: Modulus,
    /// A bit a slot, set where it is taken: as many words as the slots need.
    pub(super) taken: Vec<u32>,
}

impl SlotBitmap {
    pub(super) fn new(slots: u32) -> Self {
        let words = crate::util::codec::to_usize(u64::from(slots.div_ceil(32)));
        Self { modulus: Modulus::new(slots), taken: vec![0; words] }
    }

    #[inline]
    fn is_taken(&self, slot: u32) -> bool {
        self.taken[word(slot)] >> (slot % 32) & 1 != 0
    }

    pub(super) fn take(&mut self, keys: &[u64], number: u32) {
        for key in keys {
            let slot = position(*key, number, self.modulus);
            debug_assert!(!self.is_taken(slot));
            self.taken[word(slot)] |= 1 << (slot % 32);
        }
    }

    /// Whether the keys come to distinct slots.
    pub(super) fn distinct(&self, keys: &[u64], number: u32) -> bool {
        keys.iter().enumerate().all(|(index, key)| {
            let slot = position(*key, number, self.modulus);
            keys[..index].iter().all(|other| position(*other, number, self.modulus) != slot)
        })
    }

    /// The index of the first candidate with which all keys come to free, distinct slots, tried one
    /// at a time.
    pub(super) fn first_of(&self, keys: &[u64], candidates: &[u32]) -> Option<usize> {
        candidates.iter().position(|number| {
            keys.iter().all(|key| !self.is_taken(position(*key, *number, self.modulus)))
                && self.distinct(keys, *number)
        })
    }
}

#[inline]
fn word(slot: u32) -> usize {
    crate::util::codec::to_usize(u64::from(slot / 32))
}
