//! A layer of the function: the position of a hash in it, and the slot of the hash.
//!
//! Layout:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 8 | `segments` | number of segments |
//! | 8 | `buckets` | of each segment |
//! | 8 each | | keys of the layer up to the end of each segment |
//! | `segments * buckets` | `seeds` | a byte each, function `* 64 +` shift; 255: bumped |
//! | .. | `holes` | see [`super::elias_fano`] |

use super::{super::hash_mix::mix, elias_fano::EliasFano};
use crate::util::codec::{Decoder, put_u64, to_u64, to_usize};

/// The seed of a bucket whose keys are in the next layer.
pub(super) const BUMPED: u8 = 255;
/// Multipliers of the offset functions, odd. An offset is the top bits of the product.
pub(super) const MULTIPLIERS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];
/// Number of shifts of each function: one word of a bitmap tests all of them.
pub(super) const SHIFTS: u64 = 64;
/// Offsets are below this. Larger offsets find more free slots and leave more holes at the ends:
/// 256 bumps the fewest keys with the other parameters.
const OFFSETS: u64 = 256;
/// Number of slots, from a key's start on, that the key can get.
pub(super) const SPAN: u64 = OFFSETS + SHIFTS - 1;
/// Maximum number of layers. Each has about a thirtieth of the keys of the one before: 10 million
/// keys usually need four.
pub(super) const LAYERS_MAX: u32 = 12;
/// Minimum number of keys of a layer. Fewer go to the list: the ends of the segments would be most
/// of the layer.
pub(super) const LAYER_KEYS_MIN: u64 = 2 * SPAN;

/// One layer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShiftLayer {
    /// Number of keys of the layer before each segment, with one more entry at the end.
    pub(super) bounds: Vec<u64>,
    /// Number of buckets of each segment.
    pub(super) buckets: u64,
    pub(super) seeds: Vec<u8>,
    pub(super) holes: EliasFano,
}

/// The position of a hash in a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashPosition {
    pub(super) segment: u64,
    /// Position within the segment, as a fraction of 2^64.
    fraction: u64,
}

impl HashPosition {
    #[inline]
    pub(super) fn new(hash: u64, segments: u64) -> Self {
        let (fraction, segment) = hash.carrying_mul(segments, 0);
        Self { segment, fraction }
    }

    #[inline]
    pub(super) fn bucket(self, buckets: u64) -> u64 {
        scale(self.fraction, buckets)
    }

    /// Returns the first slot that a key can get, in a segment of at least [`SPAN`] slots.
    #[inline]
    pub(super) fn start(self, slots: u64) -> u64 {
        scale(self.fraction, slots - (SPAN - 1))
    }
}

/// Returns `range` times a fraction of 2^64: a number below `range`.
#[inline]
fn scale(fraction: u64, range: u64) -> u64 {
    fraction.carrying_mul(range, 0).1
}

/// Returns the offset of a hash under a function: a number below [`OFFSETS`].
#[inline]
pub(super) fn offset(hash: u64, multiplier: u64) -> u64 {
    const { assert!(OFFSETS == 1 << 8) };
    hash.wrapping_mul(multiplier) >> 56
}

/// Returns the hash that layer number `layer` uses. Distinct hashes stay distinct.
#[inline]
pub(super) fn layer_hash(hash: u64, layer: u32) -> u64 {
    match layer {
        0 => hash,
        _ => mix(hash ^ u64::from(layer).wrapping_mul(MULTIPLIERS[1])),
    }
}

impl ShiftLayer {
    pub(super) fn slots(&self) -> u64 {
        self.bounds.last().copied().unwrap_or(0)
    }

    /// Returns the slot of a hash of this layer, or `None` if its bucket was bumped.
    #[inline]
    pub(super) fn slot(&self, hash: u64) -> Option<u64> {
        let position = HashPosition::new(hash, to_u64(self.bounds.len()) - 1);
        let seed = *self.seeds.get(to_usize(self.seed_at(position)))?;
        if seed == BUMPED {
            return None;
        }
        let bounds = self.bounds.get(to_usize(position.segment)..)?;
        let &[begin, end, ..] = bounds else { return None };
        let slots = end - begin;
        if slots < SPAN {
            return None;
        }
        let (function, shift) = (seed >> 6, seed & 63);
        let offset = offset(hash, MULTIPLIERS[usize::from(function)]);
        Some(begin + position.start(slots) + offset + u64::from(shift))
    }

    #[inline]
    fn seed_at(&self, position: HashPosition) -> u64 {
        position.segment * self.buckets + position.bucket(self.buckets)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, to_u64(self.bounds.len()) - 1);
        put_u64(out, self.buckets);
        self.bounds.iter().skip(1).for_each(|bound| put_u64(out, *bound));
        out.extend_from_slice(&self.seeds);
        self.holes.encode(out);
    }

    /// Decodes a layer and verifies it. The error says what is wrong.
    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, &'static str> {
        let (Some(segments), Some(buckets)) = (decoder.u64(), decoder.u64()) else {
            return Err("the bytes of a layer are incomplete");
        };
        let size = segments.checked_mul(8).filter(|_| segments > 0);
        let bytes = size.and_then(|size| decoder.take(to_usize(size)));
        let bytes = bytes.ok_or("a layer has no segments, or too few bytes for them")?;
        let ends = Decoder::new(bytes);
        let bounds: Vec<u64> = std::iter::once(0).chain(words(ends)).collect();
        if !bounds.is_sorted() {
            return Err("the segments of a layer are not in order");
        }
        let size = segments.checked_mul(buckets).filter(|_| buckets > 0);
        let seeds = size.and_then(|size| decoder.take(to_usize(size)));
        let seeds = seeds.ok_or("a layer has no buckets, or too few bytes for them")?;
        let slots = bounds.last().copied().unwrap_or(0);
        let holes = EliasFano::decode(decoder, slots)?;
        Ok(Self { bounds, buckets, seeds: seeds.to_vec(), holes })
    }
}

/// Iterates over the 64-bit words of the bytes.
pub(super) fn words(mut decoder: Decoder<'_>) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || decoder.u64())
}
