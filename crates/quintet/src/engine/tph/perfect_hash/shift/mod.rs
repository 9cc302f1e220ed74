//! A minimal perfect hash of 2.1 bits a key: buckets of keys that are shifted into free slots.
//!
//! The method is of the `PHast`+ family (Beling and Sanders, "`PHast`: perfect hashing made fast",
//! 2025). The keys of a *layer* are divided by the top bits of their hash into segments of about
//! 65,536, and within a segment into buckets of about 4.5. A segment of `k` keys has `k` slots.
//!
//! A key has a *start*, which grows with its hash over the segment, and four offsets below 256. The
//! *seed* of its bucket, one byte, selects one of the offsets and a shift of 0 to 63. If no seed
//! puts all keys of a bucket into free slots, the bucket is *bumped* to the next layer. That layer
//! has about a thirtieth of the keys. Its slots number the holes of the layer before it. The keys
//! that are left after the last layer are a sorted list.
//!
//! Seeds take 8 / 4.5 = 1.78 bits a key and bumped keys 0.3 bits. The paper's table takes 9.6 bits
//! (section 4.3). A lookup reads one byte of a table of 1.8 bits a key. The keys of a bucket move
//! together, so one `or` of bitmap windows tests 64 shifts at once. A build so costs about as much
//! as sorting the hashes.
//!
//! Differences from `PHast`+:
//! - Four hash functions with 64 shifts each, of which the smallest sum of slots wins: 2.1 bits
//!   instead of 2.3 with one function of 255 shifts.
//! - One order of buckets for a whole segment instead of a queue.
//! - Segments that are built independently, in parallel.
//! - A list at the end, so that a build ends for any keys.
//!
//! Invariants: `segments` grows from 0 to the keys of the layer. A layer has as many holes as the
//! next layer, or the list, has keys. Holes are slots of their layer in growing order. The list
//! grows. [`decode`](Shift::decode) verifies all of this, so a lookup needs no check.
//!
//! Layout of the body (little-endian, after the header of [`super`]):
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 4 | `layers` | at most 12 |
//! | 4 | zero | |
//! | .. | layers | in order, see [`layer`] |
//! | 8 | `list` | number of keys in the list |
//! | 8 each | | mixed hashes, growing; an index in the list is the number of a hole of the last layer |

mod build;
mod elias_fano;
mod layer;

use super::{hash_mix::DuplicateHash, radix_partition::Parallel};
use crate::util::codec::{Decoder, low_u32, put_u32, put_u64, to_u64, to_usize};

use self::layer::{LAYERS_MAX, ShiftLayer, layer_hash, words};

/// The function, built or decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shift {
    layers: Vec<ShiftLayer>,
    list: Vec<u64>,
}

impl Shift {
    /// Builds the function of `hashes`. `mixed` makes them random.
    pub(super) fn build(
        hashes: &[u64],
        mixed: impl Fn(u64) -> u64 + Sync,
        parallel: Parallel<'_>,
    ) -> Result<Self, DuplicateHash> {
        let (layers, list) = build::build(hashes, mixed, parallel)?;
        Ok(Self { layers, list })
    }

    /// Returns the slot of a mixed hash: below the number of keys, or 0 if there are none.
    #[inline]
    pub(super) fn slot(&self, hash: u64) -> u64 {
        match self.layers.first().map(|layer| layer.slot(hash)) {
            Some(Some(slot)) => slot,
            _ => self.slot_in_lower_layers(hash),
        }
    }

    /// Returns the slot of a hash that the first layer bumped.
    #[cold]
    fn slot_in_lower_layers(&self, hash: u64) -> u64 {
        let found = (1..).zip(self.layers.iter().skip(1)).find_map(|(number, layer)| {
            layer.slot(layer_hash(hash, number)).map(|slot| (to_usize(u64::from(number)), slot))
        });
        let listed = || {
            let index = self.list.partition_point(|listed| *listed < hash);
            let last = self.list.len().saturating_sub(1);
            (self.layers.len(), to_u64(index.min(last)))
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
        self.layers.iter().for_each(|layer| layer.encode(out));
        put_u64(out, to_u64(self.list.len()));
        self.list.iter().for_each(|hash| put_u64(out, *hash));
    }

    /// Decodes and verifies the function of `keys` keys. The error says what is wrong.
    pub(super) fn decode(decoder: &mut Decoder<'_>, keys: u64) -> Result<Self, &'static str> {
        let (Some(count), Some(0)) = (decoder.u32(), decoder.u32()) else {
            return Err("the number of layers is incomplete");
        };
        if count > LAYERS_MAX {
            return Err("the number of layers exceeds the limit");
        }
        let mut layers = Vec::new();
        let mut left = keys;
        for _ in 0..count {
            let layer = ShiftLayer::decode(decoder)?;
            if layer.slots() != left {
                return Err("a layer has not as many keys as the layer before has holes");
            }
            left = layer.holes.len();
            layers.push(layer);
        }
        let list = decode_words(decoder).ok_or("the bytes of the list are incomplete")?;
        if to_u64(list.len()) != left {
            return Err("the list has not as many keys as the last layer has holes");
        }
        if !list.is_sorted_by(|before, after| before < after) {
            return Err("the list is not in order");
        }
        Ok(Self { layers, list })
    }
}

/// Decodes a count and as many words.
fn decode_words(decoder: &mut Decoder<'_>) -> Option<Vec<u64>> {
    let size = decoder.u64()?.checked_mul(8)?;
    Some(words(Decoder::new(decoder.take(to_usize(size))?)).collect())
}
