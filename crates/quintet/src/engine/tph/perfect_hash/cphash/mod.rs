//! `CPHash` of the `CompassDB` paper (3.1, 4.1): displaced buckets, dense and sparse, whose
//! parameters are used again.
//!
//! What: a key's slot is `(h0 + h1 * alpha + beta) mod slots` of its segment, with the two halves
//! `h0` and `h1` of its hash and the parameters of its bucket. A bucket has 5 keys on average; 30 %
//! of the buckets are dense and take 60 % of the keys. Buckets are placed from the biggest down;
//! each tries the parameters that earlier buckets came to, then new ones. Slots are 1.1 a key.
//!
//! Parameters have a number, from which `alpha` and `beta` follow; a segment has a dictionary of
//! the numbers in use, and a bucket an index into it of as few bits as needed: 3 bits a key all
//! told, where the paper takes 9.6.
//!
//! Attempts are bounded (see [`build`]): after so many the segment starts over with a thirty-second
//! more slots, and after so many starts it becomes a sorted list. We differ further: hashes are
//! keyed; a segment is chosen by the top bits of the hash and not by `h2 mod m`; sums are taken
//! modulo 2^32 before the modulus, so that equal remainders of two keys part again with other
//! parameters; there are 64 segments from 65,536 keys on, and more of at most 2^20 keys.
//!
//! Layout of the body (little-endian, behind the head of [`super`]): the number of segments (8
//! bytes), then the segments:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 8 | `keys` | of the segment |
//! | 4 | `slots` | at least as many |
//! | 4 | `dense` | dense buckets |
//! | 4 | `sparse` | sparse buckets; with no buckets at all, the segment is a list |
//! | 4 | `parameters` | in the dictionary |
//! | 8 each | `list` | only of a list: `keys` mixed hashes, growing; a hash's slot is its place |
//! | 4 each | `dictionary` | numbers, by first use |
//! | 8 each | `indexes` | of each bucket, packed from the lowest bit on |
//!
//! Invariants: indexes are within the dictionary; the list grows.
//! Thread rules: immutable once built.

mod build;
mod search;
mod slots;
#[cfg(all(target_arch = "x86_64", not(model)))]
mod vector;

use super::holes::get_bits;
use crate::util::codec::{Decoder, low_u32, put_u32, put_u64, to_u64, to_usize};
use slots::{Modulus, position};

pub use search::Lanes;

/// The function, built or decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CpHash {
    segments: Vec<CpSegment>,
    /// Slots before each segment; one more at the end.
    bounds: Vec<u64>,
}

/// One segment.
#[derive(Debug, PartialEq, Eq)]
struct CpSegment {
    keys: u64,
    slots: Modulus,
    dense: u32,
    sparse: u32,
    dictionary: Vec<u32>,
    /// Bits of an index.
    width: u32,
    indexes: Vec<u64>,
    /// The sorted hashes where the search gave up; else empty.
    list: Vec<u64>,
}

/// The segment of a hash, and its place there as a fraction of 2^64.
#[inline]
fn place(hash: u64, segments: u64) -> (u64, u64) {
    let (fraction, segment) = hash.carrying_mul(segments, 0);
    (segment, fraction)
}

/// The bucket of a key: the first six tenths of a segment are dense.
#[inline]
fn bucket(fraction: u64, dense: u32, sparse: u32) -> u64 {
    let (rest, tenth) = fraction.carrying_mul(10, 0);
    // A sixth (or fourth) of the range each, so that the tenths interleave over the buckets.
    if tenth < 6 {
        rest.carrying_mul(u64::from(dense), 0).1
    } else {
        u64::from(dense) + rest.carrying_mul(u64::from(sparse), 0).1
    }
}

/// The two halves that positions are made of, as one word: distinct for distinct hashes.
#[inline]
fn halves(hash: u64) -> u64 {
    super::mix(hash ^ 0x94d0_49bb_1331_11eb)
}

/// Bits that an index into a dictionary takes.
fn width_of(parameters: usize) -> u32 {
    to_u64(parameters).saturating_sub(1).checked_ilog2().map_or(0, |bits| bits + 1)
}

impl CpSegment {
    fn is_list(&self) -> bool {
        self.dense == 0 && self.sparse == 0
    }

    fn buckets(&self) -> u64 {
        u64::from(self.dense) + u64::from(self.sparse)
    }

    #[inline]
    fn slot(&self, hash: u64, fraction: u64) -> u64 {
        if self.is_list() {
            return to_u64(self.list.partition_point(|listed| *listed < hash));
        }
        let bucket = bucket(fraction, self.dense, self.sparse);
        let index = get_bits(&self.indexes, bucket * u64::from(self.width), self.width);
        let number = self.dictionary.get(to_usize(index)).copied().unwrap_or(0);
        u64::from(position(halves(hash), number, self.slots))
    }

    fn memory_bytes(&self) -> u64 {
        to_u64(size_of::<Self>())
            + 4 * to_u64(self.dictionary.capacity())
            + 8 * to_u64(self.indexes.capacity() + self.list.capacity())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.keys);
        put_u32(out, self.slots.divisor());
        put_u32(out, self.dense);
        put_u32(out, self.sparse);
        put_u32(out, low_u32(to_u64(self.dictionary.len())));
        self.list.iter().for_each(|hash| put_u64(out, *hash));
        self.dictionary.iter().for_each(|number| put_u32(out, *number));
        self.indexes.iter().for_each(|word| put_u64(out, *word));
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, &'static str> {
        const SHORT: &str = "a segment is cut short";
        let keys = from.u64().ok_or(SHORT)?;
        let (slots, dense) = (from.u32().ok_or(SHORT)?, from.u32().ok_or(SHORT)?);
        let (sparse, parameters) = (from.u32().ok_or(SHORT)?, from.u32().ok_or(SHORT)?);
        if keys > u64::from(slots) {
            return Err("a segment has fewer slots than keys");
        }
        let listed = if dense == 0 && sparse == 0 { keys } else { 0 };
        if listed == 0 && keys > 0 && (dense == 0 || sparse == 0 || parameters == 0) {
            return Err("a segment has no buckets or no parameters");
        }
        let mut list = Decoder::new(take(from, listed, 8).ok_or(SHORT)?);
        let list: Vec<u64> = std::iter::from_fn(|| list.u64()).collect();
        if !list.is_sorted_by(|before, after| before < after) {
            return Err("a list is out of order");
        }
        let mut dictionary = Decoder::new(take(from, u64::from(parameters), 4).ok_or(SHORT)?);
        let dictionary: Vec<u32> = std::iter::from_fn(|| dictionary.u32()).collect();
        let width = width_of(dictionary.len());
        let buckets = u64::from(dense) + u64::from(sparse);
        let words = (buckets * u64::from(width)).div_ceil(64);
        let mut indexes = Decoder::new(take(from, words, 8).ok_or(SHORT)?);
        let indexes: Vec<u64> = std::iter::from_fn(|| indexes.u64()).collect();
        let slots = Modulus::new(slots);
        let read = Self { keys, slots, dense, sparse, dictionary, width, indexes, list };
        let in_bounds = |bucket| {
            let index = get_bits(&read.indexes, bucket * u64::from(width), width);
            index < u64::from(parameters)
        };
        if width > 0 && !(0..read.buckets()).all(in_bounds) {
            return Err("a bucket's parameters are not in the dictionary");
        }
        Ok(read)
    }
}

/// The bytes of `count` values.
fn take<'a>(from: &mut Decoder<'a>, count: u64, bytes: u64) -> Option<&'a [u8]> {
    from.take(to_usize(count.checked_mul(bytes)?))
}

impl CpHash {
    /// Builds the function of hashes, which `mixed` makes random.
    pub(super) fn build(
        hashes: &[u64],
        mixed: impl Fn(u64) -> u64 + Sync,
        run: super::Parallel<'_>,
        lanes: Lanes,
    ) -> Result<Self, super::DuplicateHash> {
        let segments = build::build(hashes, mixed, run, lanes)?;
        Ok(Self::new(segments))
    }

    fn new(segments: Vec<CpSegment>) -> Self {
        let ends = segments.iter().scan(0, |sum, segment| {
            *sum += u64::from(segment.slots.divisor());
            Some(*sum)
        });
        let bounds = std::iter::once(0).chain(ends).collect();
        Self { segments, bounds }
    }

    /// The slot of a mixed hash: below [`slots`](Self::slots), 0 where there are none.
    #[inline]
    pub(super) fn slot(&self, hash: u64) -> u64 {
        let (segment, fraction) = place(hash, to_u64(self.segments.len()));
        let at = to_usize(segment);
        let (Some(segment), Some(begin)) = (self.segments.get(at), self.bounds.get(at)) else {
            return 0;
        };
        // A hash that is not in the set may come to a list's end, or to an empty segment.
        (begin + segment.slot(hash, fraction)).min(self.slots().saturating_sub(1))
    }

    pub(super) fn slots(&self) -> u64 {
        self.bounds.last().copied().unwrap_or(0)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.segments.iter().map(CpSegment::memory_bytes).sum::<u64>()
            + 8 * to_u64(self.bounds.capacity())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, to_u64(self.segments.len()));
        self.segments.iter().for_each(|segment| segment.encode(out));
    }

    /// Reads the function of `keys` keys; says what is wrong.
    pub(super) fn decode(from: &mut Decoder<'_>, keys: u64) -> Result<Self, &'static str> {
        let count = from.u64().ok_or("the number of segments does not read")?;
        let mut segments = Vec::new();
        // A segment takes bytes: the count alone reserves nothing.
        for _ in 0..count {
            segments.push(CpSegment::decode(from)?);
        }
        if segments.iter().try_fold(0_u64, |sum, s| sum.checked_add(s.keys)) != Some(keys) {
            return Err("the segments have another number of keys");
        }
        Ok(Self::new(segments))
    }
}
