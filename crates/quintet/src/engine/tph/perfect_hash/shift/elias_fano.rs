//! An Elias-Fano sequence: growing slot numbers, each in about two bits more than the logarithm of
//! their mean distance.
//!
//! The low bits of the values are packed. The high bits are unary: a one for each value, and a zero
//! for each step of the high part. The positions of every 64th one are sampled, so that a lookup
//! scans few words.
//!
//! A function's holes are about a thirtieth of its slots. They take 6.4 bits each here, instead of
//! 24 or 32.
//!
//! Invariants: the values grow and are below `universe`.
//!
//! Layout:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 8 | `count` | number of values |
//! | 8 | `low_bits` | of each value, below 64 |
//! | 8 each | `low` | packed from the lowest bit on, in the words that `count * low_bits` bits need |
//! | 8 each | `high` | in the words that `count + (universe >> low_bits) + 1` bits need |
//!
//! The samples are not stored: `decode` computes them.

use super::super::packed_bits::{get_bits, put_bits, words_of};
use crate::util::codec::{Decoder, put_u64, to_u64, to_usize};

/// Every 64th one has its bit number sampled: 1/64 of a word for each value.
const SAMPLE: u64 = 64;

/// A growing sequence. See the module head.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EliasFano {
    count: u64,
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// Bit numbers in `high` of every [`SAMPLE`]th one.
    samples: Vec<u64>,
}

impl EliasFano {
    /// Encodes growing values below `universe`.
    pub(super) fn new(values: &[u64], universe: u64) -> Self {
        let count = to_u64(values.len());
        // An empty sequence needs no unary part worth a word, however large the universe.
        let low_bits = (universe / count.max(1)).checked_ilog2().unwrap_or(0);
        let mut low = vec![0; to_usize(words_of(count * u64::from(low_bits)))];
        let mut high = vec![0; to_usize(words_of(count + (universe >> low_bits) + 1))];
        for (index, value) in (0..).zip(values) {
            debug_assert!(*value < universe);
            put_bits(&mut low, index * u64::from(low_bits), low_bits, *value);
            let bit = (value >> low_bits) + index;
            high[to_usize(bit / 64)] |= 1 << (bit % 64);
        }
        let samples = sample(&high);
        Self { count, low_bits, low, high, samples }
    }

    /// Returns the number of values.
    pub(super) const fn len(&self) -> u64 {
        self.count
    }

    /// Returns the value at `index`: the last one beyond the end, 0 in an empty sequence.
    pub(super) fn get(&self, index: u64) -> u64 {
        let Some(last) = self.count.checked_sub(1) else { return 0 };
        let index = index.min(last);
        let low = get_bits(&self.low, index * u64::from(self.low_bits), self.low_bits);
        let bit = self.bit_of(index);
        (bit - index) << self.low_bits | low
    }

    /// Returns the bit of `high` that has the `index`th one.
    fn bit_of(&self, index: u64) -> u64 {
        let from = self.samples.get(to_usize(index / SAMPLE)).copied().unwrap_or(0);
        let mut left = index % SAMPLE;
        let mut word_at = to_usize(from / 64);
        let mut word = self.high.get(word_at).copied().unwrap_or(0) & (u64::MAX << (from % 64));
        loop {
            let ones = u64::from(word.count_ones());
            if left < ones {
                break;
            }
            left -= ones;
            word_at += 1;
            // `new` and `decode` guarantee `count` ones.
            let Some(next) = self.high.get(word_at) else { return index };
            word = *next;
        }
        for _ in 0..left {
            word &= word - 1;
        }
        to_u64(word_at) * 64 + u64::from(word.trailing_zeros())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        8 * to_u64(self.low.capacity() + self.high.capacity() + self.samples.capacity())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.count);
        put_u64(out, u64::from(self.low_bits));
        self.low.iter().chain(&self.high).for_each(|word| put_u64(out, *word));
    }

    /// Decodes a sequence of values below `universe`. Fails if the values do not grow.
    pub(super) fn decode(from: &mut Decoder<'_>, universe: u64) -> Result<Self, &'static str> {
        const SHORT: &str = "the bytes of the holes are incomplete";
        let (count, low_bits) = (from.u64().ok_or(SHORT)?, from.u64().ok_or(SHORT)?);
        let low_bits = u32::try_from(low_bits).ok().filter(|bits| *bits < 64);
        let low_bits = low_bits.ok_or("the holes have more than 63 low bits each")?;
        if count > universe {
            return Err("more holes than slots");
        }
        let low_words = count.checked_mul(u64::from(low_bits)).map(words_of).ok_or(SHORT)?;
        let high_bits = (universe >> low_bits).checked_add(1).and_then(|b| b.checked_add(count));
        let low = take_words(from, low_words).ok_or(SHORT)?;
        let high = take_words(from, words_of(high_bits.ok_or(SHORT)?)).ok_or(SHORT)?;
        if high.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() != count {
            return Err("the number of holes differs from their count");
        }
        let samples = sample(&high);
        let holes = Self { count, low_bits, low, high, samples };
        let mut next = 0;
        for value in holes.iter() {
            if value < next || value >= universe {
                return Err("the holes are not in order");
            }
            next = value + 1;
        }
        Ok(holes)
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        let bits = (0..).zip(&self.high).flat_map(|(at, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = word.checked_ilog2().map(|_| word.trailing_zeros())?;
                word &= word - 1;
                Some(at * 64 + u64::from(bit))
            })
        });
        (0..).zip(bits).map(|(index, bit): (u64, u64)| {
            let low = get_bits(&self.low, index * u64::from(self.low_bits), self.low_bits);
            (bit - index) << self.low_bits | low
        })
    }
}

fn take_words(from: &mut Decoder<'_>, count: u64) -> Option<Vec<u64>> {
    let mut bytes = Decoder::new(from.take(to_usize(count.checked_mul(8)?))?);
    Some(std::iter::from_fn(|| bytes.u64()).collect())
}

/// Returns the bit number of every [`SAMPLE`]th one.
fn sample(high: &[u64]) -> Vec<u64> {
    let mut samples = Vec::new();
    let mut ones = 0;
    for (at, &whole) in (0..).zip(high) {
        let here = u64::from(whole.count_ones());
        let mut wanted = to_u64(samples.len()) * SAMPLE;
        while wanted < ones + here {
            let word = (ones..wanted).fold(whole, |word, _| word & (word - 1));
            samples.push(at * 64 + u64::from(word.trailing_zeros()));
            wanted += SAMPLE;
        }
        ones += here;
    }
    samples.shrink_to_fit();
    samples
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn a_decoded_sequence_is_the_encoded_one(
            values in prop::collection::btree_set(0_u64..1 << 20, 0..2_000),
            more in 0_u64..1 << 40,
        ) {
            let values: Vec<u64> = values.into_iter().collect();
            let universe = values.last().map_or(0, |last| last + 1) + more;
            let packed = EliasFano::new(&values, universe);
            for (index, value) in (0..).zip(&values) {
                prop_assert_eq!(packed.get(index), *value);
            }
            let mut bytes = Vec::new();
            packed.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            let read = EliasFano::decode(&mut decoder, universe).unwrap();
            prop_assert_eq!(read, packed);
        }
    }
}
