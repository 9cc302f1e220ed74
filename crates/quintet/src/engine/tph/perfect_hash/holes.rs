//! A growing sequence of slots, in about two bits more each than the logarithm of their distance.
//!
//! What: Elias-Fano. The low bits of each value are packed; the high bits are unary, a one for each
//! value and a zero for each step of the high part.
//! Why: a function's holes are a thirtieth of its slots: 6.4 bits each instead of 24 or 32.
//!
//! Invariants: values grow and are below `universe`; the place of every 64th one is sampled.
//!
//! Layout:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 8 | `count` | values |
//! | 8 | `low_bits` | of each value, below 64 |
//! | 8 each | `low` | packed from the lowest bit on, as many words as `count * low_bits` needs |
//! | 8 each | `high` | as many words as `count + (universe >> low_bits) + 1` bits need |
//!
//! Samples are made again by reading.

use crate::util::codec::{Decoder, put_u64, to_u64, to_usize};

/// One value in so many has its place remembered.
const SAMPLE: u64 = 64;

/// The sequence.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EliasFano {
    count: u64,
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// Bit numbers in `high` of every [`SAMPLE`]th one.
    samples: Vec<u64>,
}

/// Words that so many bits need.
const fn words(bits: u64) -> u64 {
    bits.div_ceil(64)
}

impl EliasFano {
    /// Packs growing values below `universe`.
    pub(super) fn new(values: &[u64], universe: u64) -> Self {
        let count = to_u64(values.len());
        // An empty sequence needs no unary part worth a word, however large the universe.
        let low_bits = (universe / count.max(1)).checked_ilog2().unwrap_or(0);
        let mut low = vec![0; to_usize(words(count * u64::from(low_bits)))];
        let mut high = vec![0; to_usize(words(count + (universe >> low_bits) + 1))];
        for (index, value) in (0..).zip(values) {
            debug_assert!(*value < universe);
            put_bits(&mut low, index * u64::from(low_bits), low_bits, *value);
            let bit = (value >> low_bits) + index;
            high[to_usize(bit / 64)] |= 1 << (bit % 64);
        }
        let samples = sample(&high);
        Self { count, low_bits, low, high, samples }
    }

    /// How many values there are.
    pub(super) const fn len(&self) -> u64 {
        self.count
    }

    /// The value at `index`: the last one beyond the end, 0 in an empty sequence.
    pub(super) fn get(&self, index: u64) -> u64 {
        let Some(last) = self.count.checked_sub(1) else { return 0 };
        let index = index.min(last);
        let low = get_bits(&self.low, index * u64::from(self.low_bits), self.low_bits);
        let bit = self.place(index);
        (bit - index) << self.low_bits | low
    }

    /// The bit of `high` that is the one number `index`.
    fn place(&self, index: u64) -> u64 {
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
            // Verified when it was built or read: there are `count` ones.
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

    /// Reads a sequence of values below `universe` and verifies that they grow.
    pub(super) fn decode(from: &mut Decoder<'_>, universe: u64) -> Result<Self, &'static str> {
        const SHORT: &str = "the holes are cut short";
        let (count, low_bits) = (from.u64().ok_or(SHORT)?, from.u64().ok_or(SHORT)?);
        let low_bits = u32::try_from(low_bits).ok().filter(|bits| *bits < 64);
        let low_bits = low_bits.ok_or("the holes have more than 63 low bits")?;
        if count > universe {
            return Err("more holes than slots");
        }
        let low_words = count.checked_mul(u64::from(low_bits)).map(words).ok_or(SHORT)?;
        let high_bits = (universe >> low_bits).checked_add(1).and_then(|b| b.checked_add(count));
        let low = take_words(from, low_words).ok_or(SHORT)?;
        let high = take_words(from, words(high_bits.ok_or(SHORT)?)).ok_or(SHORT)?;
        if high.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() != count {
            return Err("the holes are not as many as they say");
        }
        let samples = sample(&high);
        let holes = Self { count, low_bits, low, high, samples };
        let mut next = 0;
        for value in holes.iter() {
            if value < next || value >= universe {
                return Err("the holes are out of order");
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

/// The bit number of every [`SAMPLE`]th one.
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

/// Stores the low `width` bits of `value`, at most 63, at bit `at` of zeroed words.
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

/// The `width` bits, at most 63, at bit `at`; zeros beyond the end.
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
