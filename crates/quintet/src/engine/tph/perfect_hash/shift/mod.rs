//! A minimal perfect hash of two bits a key: buckets of keys that are shifted into free slots.
//!
//! What: the keys of a *layer* are dealt by the top bits of their hash into segments of about
//! 65,536, and within a segment into buckets of about 4.5. A segment of `k` keys owns `k` slots. A
//! key has a *start*, which grows with its hash over the segment, and four small offsets; its
//! bucket's *seed*, one byte, says which of the offsets to add, and a shift of 0 to 63. Where no
//! seed brings all keys of a bucket to free slots the bucket is *bumped*: its keys are a layer of
//! their own, a thirtieth of the size, whose slots name the holes that the first layer left. What
//! is left after the last layer is a sorted list.
//!
//! Why: 8 / 4.5 = 1.78 bits for seeds and 0.3 for bumped keys, against 9.6 of the paper's table
//! (4.3); a lookup reads one byte of a table of 1.8 bits a key; and because a bucket's keys move
//! together, one `or` of bitmap windows tests 64 shifts at once, so that building costs about as
//! much as sorting.
//!
//! The method is of the `PHast`+ family (Beling and Sanders, "`PHast`: perfect hashing made fast",
//! 2025): slices that grow with the hash, bumping, shifts found by words. We differ: four hash
//! functions of 64 shifts each, the smallest sum of slots among them wins (2.1 bits instead of 2.3
//! with one function of 255 shifts); one order of buckets for a whole segment instead of a queue;
//! segments that are built in parallel without a seam; a list at the end, so that a build ends
//! whatever the keys.
//!
//! Invariants: `segments` grows from 0 to the keys of the layer; the holes of a layer are as many
//! as the keys of the next, or of the list; holes grow and are slots of their layer; the list
//! grows. [`decode`](Shift::decode) verifies all of it, so a lookup needs no check.
//!
//! Layout of the body (little-endian, behind the head of [`super`]):
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 4 | `layers` | at most 12 |
//! | 4 | zero | |
//! | .. | layers | one after the other, see below |
//! | 8 | `list` | keys of the list |
//! | 8 each | | mixed hashes, growing; a place in the list is a slot of the last layer's holes |
//!
//! A layer:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 8 | `segments` | how many |
//! | 8 | `buckets` | of each segment |
//! | 8 each | | keys of the layer up to the end of each segment |
//! | `segments * buckets` | `seeds` | a byte each, function `* 64 +` shift; 255: bumped |
//! | .. | `holes` | see [`super::holes`] |
//!
//! Thread rules: immutable once built.

mod build;

use super::holes::EliasFano;
use crate::util::codec::{Decoder, low_u32, put_u32, put_u64, to_u64, to_usize};

/// The seed of a bucket whose keys are in the next layer.
const BUMPED: u8 = 255;
/// Offset functions: odd multipliers of which the top bits of a product are taken.
const MULTIPLIERS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];
/// Shifts of each function: those that one word of a bitmap can tell apart.
const SHIFTS: u64 = 64;
/// Offsets are below this. Larger ones find more free places and leave more holes at the ends;
/// 256 bumps the fewest keys with the other parameters.
const OFFSETS: u64 = 256;
/// Slots from a key's start that it may come to.
const SPAN: u64 = OFFSETS + SHIFTS - 1;
/// Layers at most. Each is about a thirtieth of the one before: four are usual at 10 million keys.
const LAYERS_MAX: u32 = 12;
/// Fewer keys than this are listed: their edges would be most of a layer.
const LAYER_KEYS_MIN: u64 = 2 * SPAN;

/// The function, built or decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shift {
    layers: Vec<ShiftLayer>,
    list: Vec<u64>,
}

/// One layer.
#[derive(Debug, PartialEq, Eq)]
struct ShiftLayer {
    /// Keys of the layer before each segment; one more at the end.
    bounds: Vec<u64>,
    /// Buckets of each segment.
    buckets: u64,
    seeds: Vec<u8>,
    holes: EliasFano,
}

/// Where a hash lies in a layer.
#[derive(Clone, Copy, Debug)]
struct HashPosition {
    segment: u64,
    /// The hash's place in its segment, as a fraction of 2^64.
    fraction: u64,
}

impl HashPosition {
    #[inline]
    fn new(hash: u64, segments: u64) -> Self {
        let (fraction, segment) = hash.carrying_mul(segments, 0);
        Self { segment, fraction }
    }

    #[inline]
    fn bucket(self, buckets: u64) -> u64 {
        share(self.fraction, buckets)
    }

    /// The first slot that a key may come to, in a segment of at least `SPAN` slots.
    #[inline]
    fn start(self, slots: u64) -> u64 {
        share(self.fraction, slots - (SPAN - 1))
    }
}

/// `of`, scaled by a fraction of 2^64: below `of`.
#[inline]
fn share(fraction: u64, of: u64) -> u64 {
    fraction.carrying_mul(of, 0).1
}

/// The offset of a hash under a function: below `OFFSETS`.
#[inline]
fn offset(hash: u64, multiplier: u64) -> u64 {
    const { assert!(OFFSETS == 1 << 8) };
    hash.wrapping_mul(multiplier) >> 56
}

/// Another hash for each layer; distinct hashes stay distinct.
#[inline]
fn of_layer(hash: u64, layer: u32) -> u64 {
    match layer {
        0 => hash,
        _ => super::mix(hash ^ u64::from(layer).wrapping_mul(MULTIPLIERS[1])),
    }
}

impl ShiftLayer {
    fn slots(&self) -> u64 {
        self.bounds.last().copied().unwrap_or(0)
    }

    /// The slot of a hash of this layer; `None` where its bucket was bumped.
    #[inline]
    fn slot(&self, hash: u64) -> Option<u64> {
        let place = HashPosition::new(hash, to_u64(self.bounds.len()) - 1);
        let seed = *self.seeds.get(to_usize(self.seed_at(place)))?;
        if seed == BUMPED {
            return None;
        }
        let bounds = self.bounds.get(to_usize(place.segment)..)?;
        let &[begin, end, ..] = bounds else { return None };
        let slots = end - begin;
        if slots < SPAN {
            return None;
        }
        let (function, shift) = (seed >> 6, seed & 63);
        let offset = offset(hash, MULTIPLIERS[usize::from(function)]);
        Some(begin + place.start(slots) + offset + u64::from(shift))
    }

    #[inline]
    fn seed_at(&self, place: HashPosition) -> u64 {
        place.segment * self.buckets + place.bucket(self.buckets)
    }
}

impl Shift {
    /// Builds the function of hashes, which `mixed` makes random.
    pub(super) fn build(
        hashes: &[u64],
        mixed: impl Fn(u64) -> u64 + Sync,
        run: super::Parallel<'_>,
    ) -> Result<Self, super::DuplicateHash> {
        build::build(hashes, mixed, run)
    }

    /// The slot of a mixed hash: below the number of keys, 0 where there are none.
    #[inline]
    pub(super) fn slot(&self, hash: u64) -> u64 {
        match self.layers.first().map(|layer| layer.slot(hash)) {
            Some(Some(slot)) => slot,
            _ => self.slot_below(hash),
        }
    }

    /// The slot of a hash that the first layer bumped.
    #[cold]
    fn slot_below(&self, hash: u64) -> u64 {
        let found = (1..).zip(self.layers.iter().skip(1)).find_map(|(number, layer)| {
            layer.slot(of_layer(hash, number)).map(|slot| (to_usize(u64::from(number)), slot))
        });
        let listed = || {
            let place = self.list.partition_point(|listed| *listed < hash);
            let last = self.list.len().saturating_sub(1);
            (self.layers.len(), to_u64(place.min(last)))
        };
        let (depth, slot) = found.unwrap_or_else(listed);
        let above = self.layers.get(..depth).unwrap_or(&[]);
        above.iter().rev().fold(slot, |slot, layer| layer.holes.get(slot))
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let layers = self.layers.iter().map(|layer| {
            to_u64(layer.bounds.capacity()) * 8
                + to_u64(layer.seeds.capacity())
                + layer.holes.memory_bytes()
        });
        layers.sum::<u64>() + to_u64(self.list.capacity()) * 8
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, low_u32(to_u64(self.layers.len())));
        put_u32(out, 0);
        for layer in &self.layers {
            put_u64(out, to_u64(layer.bounds.len()) - 1);
            put_u64(out, layer.buckets);
            layer.bounds.iter().skip(1).for_each(|bound| put_u64(out, *bound));
            out.extend_from_slice(&layer.seeds);
            layer.holes.encode(out);
        }
        put_u64(out, to_u64(self.list.len()));
        self.list.iter().for_each(|hash| put_u64(out, *hash));
    }

    /// Reads the function of `keys` keys; says what is wrong.
    pub(super) fn decode(from: &mut Decoder<'_>, keys: u64) -> Result<Self, &'static str> {
        let (Some(count), Some(0)) = (from.u32(), from.u32()) else {
            return Err("the number of layers does not read");
        };
        if count > LAYERS_MAX {
            return Err("more layers than there may be");
        }
        let mut layers = Vec::new();
        let mut left = keys;
        for _ in 0..count {
            let layer = ShiftLayer::decode(from)?;
            if layer.slots() != left {
                return Err("a layer has another number of keys than the layer above has holes");
            }
            left = layer.holes.len();
            layers.push(layer);
        }
        let list = decode_words(from).ok_or("the list is cut short")?;
        if to_u64(list.len()) != left {
            return Err("the list has another number of keys than the last layer has holes");
        }
        if !list.is_sorted_by(|before, after| before < after) {
            return Err("the list is out of order");
        }
        Ok(Self { layers, list })
    }
}

impl ShiftLayer {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, &'static str> {
        let (Some(segments), Some(buckets)) = (from.u64(), from.u64()) else {
            return Err("a layer is cut short");
        };
        let size = segments.checked_mul(8).filter(|_| segments > 0);
        let bytes = size.and_then(|size| from.take(to_usize(size)));
        let bytes = bytes.ok_or("a layer has no segments, or more than it has bytes for")?;
        let ends = Decoder::new(bytes);
        let bounds: Vec<u64> = std::iter::once(0).chain(words(ends)).collect();
        if !bounds.is_sorted() {
            return Err("the segments of a layer are out of order");
        }
        let size = segments.checked_mul(buckets).filter(|_| buckets > 0);
        let seeds = size.and_then(|size| from.take(to_usize(size)));
        let seeds = seeds.ok_or("a layer has no buckets, or more than it has bytes for")?;
        let slots = bounds.last().copied().unwrap_or(0);
        let holes = EliasFano::decode(from, slots)?;
        Ok(Self { bounds, buckets, seeds: seeds.to_vec(), holes })
    }
}

/// The words of whole bytes.
fn words(mut from: Decoder<'_>) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || from.u64())
}

/// A number, and so many words.
fn decode_words(from: &mut Decoder<'_>) -> Option<Vec<u64>> {
    let size = from.u64()?.checked_mul(8)?;
    Some(words(Decoder::new(from.take(to_usize(size))?)).collect())
}
