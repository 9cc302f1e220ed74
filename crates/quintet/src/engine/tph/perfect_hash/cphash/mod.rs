//! `CPHash` of the `CompassDB` paper (3.1, 4.1): displaced buckets, dense and sparse, that share
//! parameters.
//!
//! A key's slot is `(h0 + h1 * alpha + beta) mod slots` of its segment. `h0` and `h1` are the two
//! halves of its hash; `alpha` and `beta` are the parameters of its bucket. A bucket has 5 keys on
//! average. 30 % of the buckets are dense and have 60 % of the keys. There are 1.1 slots a key.
//!
//! A build places the largest buckets first. For each it tries the parameters that earlier buckets
//! use, then new ones. Parameters have a number, which determines `alpha` and `beta`. A segment has
//! a dictionary of the numbers in use, and each bucket has an index into it. This takes 3 bits a
//! key in total; the paper takes 9.6.
//!
//! Attempts are bounded (see [`build`]). When they run out, the segment starts again with a
//! thirty-second more slots. After [`build`]'s maximum of starts it becomes a sorted list.
//!
//! Further differences from the paper:
//! - Hashes are keyed.
//! - The top bits of the hash choose the segment, not `h2 mod m`.
//! - Sums are taken modulo 2^32 before the modulus. So two keys with equal remainders differ under
//!   other parameters.
//! - There are 64 segments from 65,536 keys on, and more if a segment would have over 2^20 keys.
//!
//! Layout of the body (little-endian, after the header of [`super`]): the number of segments (8
//! bytes), then the segments ([`segment`]).

mod build;
mod search;
mod segment;
mod slot_bitmap;

use self::segment::{CpSegment, position_of};
use super::{hash_mix::DuplicateHash, radix_partition::Parallel};
use crate::util::codec::{Decoder, put_u64, to_u64, to_usize};

pub use search::Lanes;

/// The function, built or decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CpHash {
    segments: Vec<CpSegment>,
    /// Number of slots before each segment, with one more entry at the end.
    bounds: Vec<u64>,
}

impl CpHash {
    /// Builds the function of `hashes`. `mixed` makes them random.
    pub(super) fn build(
        hashes: &[u64],
        mixed: impl Fn(u64) -> u64 + Sync,
        parallel: Parallel<'_>,
        lanes: Lanes,
    ) -> Result<Self, DuplicateHash> {
        let segments = build::build(hashes, mixed, parallel, lanes)?;
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

    /// Returns the slot of a mixed hash: below [`slots`](Self::slots), or 0 if there are none.
    #[inline]
    pub(super) fn slot(&self, hash: u64) -> u64 {
        let (segment, fraction) = position_of(hash, to_u64(self.segments.len()));
        let at = to_usize(segment);
        let (Some(segment), Some(begin)) = (self.segments.get(at), self.bounds.get(at)) else {
            return 0;
        };
        // A hash that is not in the set may be beyond the end of a list, or in an empty segment.
        (begin + segment.slot(hash, fraction)).min(self.slots().saturating_sub(1))
    }

    /// Returns the number of slots.
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

    /// Decodes and verifies the function of `keys` keys. The error says what is wrong.
    pub(super) fn decode(decoder: &mut Decoder<'_>, keys: u64) -> Result<Self, &'static str> {
        let count = decoder.u64().ok_or("the number of segments is incomplete")?;
        let mut segments = Vec::new();
        // No memory is reserved for the count: each segment needs bytes of the input.
        for _ in 0..count {
            segments.push(CpSegment::decode(decoder)?);
        }
        if segments.iter().try_fold(0_u64, |sum, s| sum.checked_add(s.keys)) != Some(keys) {
            return Err("the keys of the segments do not add up to the keys of the function");
        }
        Ok(Self::new(segments))
    }
}
