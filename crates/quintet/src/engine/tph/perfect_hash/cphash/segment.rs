//! A segment of the function: the bucket of a hash, its parameters, and its slot.
//!
//! Layout:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 8 | `keys` | of the segment |
//! | 4 | `slots` | at least as many |
//! | 4 | `dense` | number of dense buckets |
//! | 4 | `sparse` | number of sparse buckets; a segment without buckets is a list |
//! | 4 | `parameters` | size of the dictionary |
//! | 8 each | `list` | only of a list: `keys` mixed hashes, growing; the slot of a hash is its index |
//! | 4 each | `dictionary` | parameter numbers, in the order of their first use |
//! | 8 each | `indexes` | of each bucket, packed from the lowest bit on |
//!
//! Invariants: indexes are within the dictionary; the list grows.

use super::{
    super::{hash_mix::mix, packed_bits::get_bits},
    slot_bitmap::{Modulus, slot_of},
};
use crate::util::codec::{Decoder, low_u32, put_u32, put_u64, to_u64, to_usize};

/// One segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CpSegment {
    pub(super) keys: u64,
    pub(super) slots: Modulus,
    pub(super) dense: u32,
    pub(super) sparse: u32,
    pub(super) dictionary: Vec<u32>,
    /// Number of bits of an index.
    pub(super) width: u32,
    pub(super) indexes: Vec<u64>,
    /// The sorted hashes, if no parameters were found; otherwise empty.
    pub(super) list: Vec<u64>,
}

impl CpSegment {
    fn is_list(&self) -> bool {
        self.dense == 0 && self.sparse == 0
    }

    fn buckets(&self) -> u64 {
        u64::from(self.dense) + u64::from(self.sparse)
    }

    /// Returns the slot of a hash within the segment.
    #[inline]
    pub(super) fn slot(&self, hash: u64, fraction: u64) -> u64 {
        if self.is_list() {
            return to_u64(self.list.partition_point(|listed| *listed < hash));
        }
        let bucket = bucket_of(fraction, self.dense, self.sparse);
        let index = get_bits(&self.indexes, bucket * u64::from(self.width), self.width);
        let number = self.dictionary.get(to_usize(index)).copied().unwrap_or(0);
        u64::from(slot_of(halves(hash), number, self.slots))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        to_u64(size_of::<Self>())
            + 4 * to_u64(self.dictionary.capacity())
            + 8 * to_u64(self.indexes.capacity() + self.list.capacity())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.keys);
        put_u32(out, self.slots.divisor());
        put_u32(out, self.dense);
        put_u32(out, self.sparse);
        put_u32(out, low_u32(to_u64(self.dictionary.len())));
        self.list.iter().for_each(|hash| put_u64(out, *hash));
        self.dictionary.iter().for_each(|number| put_u32(out, *number));
        self.indexes.iter().for_each(|word| put_u64(out, *word));
    }

    /// Decodes a segment and verifies it. The error says what is wrong.
    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, &'static str> {
        const SHORT: &str = "the bytes of a segment are incomplete";
        let keys = decoder.u64().ok_or(SHORT)?;
        let (slots, dense) = (decoder.u32().ok_or(SHORT)?, decoder.u32().ok_or(SHORT)?);
        let (sparse, parameters) = (decoder.u32().ok_or(SHORT)?, decoder.u32().ok_or(SHORT)?);
        if keys > u64::from(slots) {
            return Err("a segment has fewer slots than keys");
        }
        let listed = if dense == 0 && sparse == 0 { keys } else { 0 };
        if listed == 0 && keys > 0 && (dense == 0 || sparse == 0 || parameters == 0) {
            return Err("a segment has no buckets or no parameters");
        }
        let mut list = Decoder::new(take_values(decoder, listed, 8).ok_or(SHORT)?);
        let list: Vec<u64> = std::iter::from_fn(|| list.u64()).collect();
        if !list.is_sorted_by(|before, after| before < after) {
            return Err("the list of a segment is not in order");
        }
        let mut dictionary =
            Decoder::new(take_values(decoder, u64::from(parameters), 4).ok_or(SHORT)?);
        let dictionary: Vec<u32> = std::iter::from_fn(|| dictionary.u32()).collect();
        let width = width_of(dictionary.len());
        let buckets = u64::from(dense) + u64::from(sparse);
        let words = (buckets * u64::from(width)).div_ceil(64);
        let mut indexes = Decoder::new(take_values(decoder, words, 8).ok_or(SHORT)?);
        let indexes: Vec<u64> = std::iter::from_fn(|| indexes.u64()).collect();
        let slots = Modulus::new(slots);
        let read = Self { keys, slots, dense, sparse, dictionary, width, indexes, list };
        let in_bounds = |bucket| {
            let index = get_bits(&read.indexes, bucket * u64::from(width), width);
            index < u64::from(parameters)
        };
        if width > 0 && !(0..read.buckets()).all(in_bounds) {
            return Err("the parameters of a bucket are not in the dictionary");
        }
        Ok(read)
    }
}

/// Returns the bytes of `count` values.
fn take_values<'a>(decoder: &mut Decoder<'a>, count: u64, bytes: u64) -> Option<&'a [u8]> {
    decoder.take(to_usize(count.checked_mul(bytes)?))
}

/// Returns the segment of a hash, and its position there as a fraction of 2^64.
#[inline]
pub(super) fn position_of(hash: u64, segments: u64) -> (u64, u64) {
    let (fraction, segment) = hash.carrying_mul(segments, 0);
    (segment, fraction)
}

/// Returns the bucket of a key. Six tenths of the keys of a segment are in its dense buckets.
#[inline]
pub(super) fn bucket_of(fraction: u64, dense: u32, sparse: u32) -> u64 {
    let (rest, tenth) = fraction.carrying_mul(10, 0);
    // Each tenth covers all buckets of its kind.
    if tenth < 6 {
        rest.carrying_mul(u64::from(dense), 0).1
    } else {
        u64::from(dense) + rest.carrying_mul(u64::from(sparse), 0).1
    }
}

/// Returns the two halves that slots are computed from, in one word. Distinct hashes have distinct
/// words.
#[inline]
pub(super) fn halves(hash: u64) -> u64 {
    mix(hash ^ 0x94d0_49bb_1331_11eb)
}

/// Returns the number of bits of an index into a dictionary.
pub(super) fn width_of(parameters: usize) -> u32 {
    to_u64(parameters).saturating_sub(1).checked_ilog2().map_or(0, |bits| bits + 1)
}
