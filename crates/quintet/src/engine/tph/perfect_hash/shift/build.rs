//! The construction: partition keys by segment, sort each segment by bucket, shift buckets into
//! slots.
//!
//! Segments are built independently and in parallel. Their bumped keys go to the next layer. Larger
//! buckets are harder to place, so each moves ahead by a number of places that grows with its keys.
//! The moves are short, so that the slots at the end of a segment do not fill up before its last
//! buckets are placed. One counting sort makes this order.
//!
//! A seed is used only if the slots of the bucket's keys are free and distinct. So each layer bumps
//! equal hashes, and they meet in the list, where they are found at no extra cost.

use std::sync::atomic::AtomicU64;

use super::{
    elias_fano::EliasFano,
    layer::{
        BUMPED, HashPosition, LAYER_KEYS_MIN, LAYERS_MAX, MULTIPLIERS, SHIFTS, SPAN, ShiftLayer,
        layer_hash, offset,
    },
};
use crate::{
    engine::tph::perfect_hash::{
        hash_mix::DuplicateHash,
        radix_partition::{Parallel, radix_partition},
    },
    util::{
        codec::{low_u8, low_u64, to_u64, to_usize},
        sync::{OnceLock, Ordering},
    },
};

/// Keys of a segment: the data of its build fits into a core's second-level cache.
const SEGMENT_KEYS: u64 = 1 << 16;
/// Average keys of a bucket, times ten. More keys need fewer seeds and bump more buckets: about 4.5
/// takes the least space.
const BUCKET_KEYS_TENTHS: u64 = 45;
/// Number of places by which each key moves a bucket ahead.
const PLACES_PER_KEY: usize = 5;
/// Maximum number of keys of a bucket. Larger ones are bumped at once. The mean is 4.5: one in
/// 10^15 random buckets is larger.
const BUCKET_KEYS_MAX: usize = 32;

/// Builds layer after layer until few keys are left. Returns the layers and the list.
pub(super) fn build(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    parallel: Parallel<'_>,
) -> Result<(Vec<ShiftLayer>, Vec<u64>), DuplicateHash> {
    let mut layers = Vec::new();
    let mut remaining: Option<Vec<u64>> = None;
    for number in 0..LAYERS_MAX {
        if to_u64(remaining.as_deref().unwrap_or(hashes).len()) < LAYER_KEYS_MIN {
            break;
        }
        let (layer, bumped) = match &remaining {
            None => build_layer(hashes, &mixed, number, parallel),
            Some(keys) => build_layer(keys, |hash| hash, number, parallel),
        };
        layers.push(layer);
        remaining = Some(bumped);
    }
    let mut list = remaining.unwrap_or_else(|| hashes.iter().map(|hash| mixed(*hash)).collect());
    list.sort_unstable();
    if let Some(pair) = list.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(DuplicateHash(pair[0]));
    }
    list.shrink_to_fit();
    Ok((layers, list))
}

/// The result of building a segment.
#[derive(Debug)]
struct BuiltSegment {
    seeds: Vec<u8>,
    holes: Vec<u64>,
    bumped: Vec<u64>,
}

fn build_layer(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    number: u32,
    parallel: Parallel<'_>,
) -> (ShiftLayer, Vec<u64>) {
    let keys = to_u64(hashes.len());
    let segments = (keys / SEGMENT_KEYS).max(1);
    let buckets = (keys / segments * 10).div_ceil(BUCKET_KEYS_TENTHS);
    let segment_of = |hash| HashPosition::new(layer_hash(hash, number), segments).segment;
    let (hashes, bounds) = radix_partition(hashes, mixed, segment_of, segments, parallel);
    let built: Vec<OnceLock<BuiltSegment>> = (0..segments).map(|_| OnceLock::new()).collect();
    parallel(built.len(), &|segment| {
        let keys = &hashes[to_usize(bounds[segment])..to_usize(bounds[segment + 1])];
        let segment_built = SegmentBuilder::new(keys, number, segments, buckets).build();
        assert!(built[segment].set(segment_built).is_ok(), "a segment is built once");
    });
    drop(hashes);
    let mut seeds = Vec::with_capacity(to_usize(segments * buckets));
    let (mut holes, mut bumped) = (Vec::new(), Vec::new());
    for (one, begin) in built.into_iter().zip(&bounds) {
        let one = one.into_inner().expect("every segment was built");
        assert_eq!(one.holes.len(), one.bumped.len(), "a slot for each key");
        seeds.extend_from_slice(&one.seeds);
        holes.extend(one.holes.iter().map(|hole| begin + hole));
        bumped.extend_from_slice(&one.bumped);
    }
    let holes = EliasFano::new(&holes, keys);
    (ShiftLayer { bounds, buckets, seeds, holes }, bumped)
}

/// A segment that is being built.
#[derive(Debug)]
struct SegmentBuilder {
    slots: usize,
    segments: u64,
    number: u32,
    /// Hashes in the order of their buckets.
    keys: Vec<u64>,
    /// Index in `keys` of the first key of each bucket, with one more entry at the end.
    begins: Vec<u32>,
    /// Bitmap of the slots in use. The bits beyond the last slot are set.
    taken: Vec<u64>,
    seeds: Vec<u8>,
    bumped: Vec<u64>,
}

impl SegmentBuilder {
    fn new(hashes: &[AtomicU64], number: u32, segments: u64, buckets: u64) -> Self {
        let bucket_of = |hash: u64| {
            to_usize(HashPosition::new(layer_hash(hash, number), segments).bucket(buckets))
        };
        let mut begins = vec![0_u32; to_usize(buckets) + 2];
        for hash in hashes {
            begins[bucket_of(hash.load(Ordering::Relaxed)) + 2] += 1;
        }
        let mut sum = 0;
        for begin in &mut begins {
            sum += *begin;
            *begin = sum;
        }
        let mut keys = vec![0; hashes.len()];
        for hash in hashes {
            let hash = hash.load(Ordering::Relaxed);
            let next = &mut begins[bucket_of(hash) + 1];
            keys[to_index(*next)] = hash;
            *next += 1;
        }
        begins.pop();
        let slots = hashes.len();
        // A window can begin in the last word of slots: it needs one more word.
        let mut taken = vec![0_u64; slots / 64 + 2];
        taken[slots / 64] = u64::MAX << (slots % 64);
        taken[slots / 64 + 1] = u64::MAX;
        let seeds = vec![BUMPED; to_usize(buckets)];
        Self { slots, segments, number, keys, begins, taken, seeds, bumped: Vec::new() }
    }

    fn build(mut self) -> BuiltSegment {
        for bucket in self.order() {
            let bucket = to_index(bucket);
            let keys = to_index(self.begins[bucket])..to_index(self.begins[bucket + 1]);
            let seed = if to_u64(self.slots) < SPAN || keys.len() > BUCKET_KEYS_MAX {
                BUMPED
            } else {
                self.occupy_slots(keys.clone())
            };
            if seed == BUMPED {
                self.bumped.extend_from_slice(&self.keys[keys]);
            }
            self.seeds[bucket] = seed;
        }
        let free = (0..).zip(&self.taken).flat_map(|(at, word)| {
            let mut free = !word;
            std::iter::from_fn(move || {
                let bit = (free != 0).then(|| u64::from(free.trailing_zeros()))?;
                free &= free - 1;
                Some(at * 64 + bit)
            })
        });
        BuiltSegment { holes: free.collect(), seeds: self.seeds, bumped: self.bumped }
    }

    /// Returns the buckets that have keys, in the order in which they get their seeds.
    fn order(&self) -> Vec<u32> {
        let places_max = PLACES_PER_KEY * BUCKET_KEYS_MAX;
        let place = |bucket: u32, keys: u32| {
            to_index(bucket) + places_max - PLACES_PER_KEY * to_index(keys).min(BUCKET_KEYS_MAX)
        };
        let sizes = || {
            let sizes = self.begins.windows(2).map(|pair| pair[1] - pair[0]);
            (0_u32..).zip(sizes).filter(|(_, keys)| *keys > 0)
        };
        let mut begins = vec![0_u32; self.seeds.len() + places_max + 1];
        sizes().for_each(|(bucket, keys)| begins[place(bucket, keys) + 1] += 1);
        let mut sum = 0;
        for begin in &mut begins {
            sum += *begin;
            *begin = sum;
        }
        let mut order = vec![0; to_index(sum)];
        for (bucket, keys) in sizes() {
            let next = &mut begins[place(bucket, keys)];
            order[to_index(*next)] = bucket;
            *next += 1;
        }
        order
    }

    /// Finds the seed of a bucket and occupies its slots. Returns [`BUMPED`] if there is none.
    fn occupy_slots(&mut self, keys: std::ops::Range<usize>) -> u8 {
        let count = keys.len();
        let mut hashes = [0_u64; BUCKET_KEYS_MAX];
        let mut starts = [0_u64; BUCKET_KEYS_MAX];
        for (key, (hash, start)) in keys.zip(hashes.iter_mut().zip(&mut starts)) {
            *hash = layer_hash(self.keys[key], self.number);
            *start = HashPosition::new(*hash, self.segments).start(to_u64(self.slots));
        }
        let (hashes, starts) = (&hashes[..count], &starts[..count]);
        let mut best = (u64::MAX, 0, BUMPED);
        for (function, multiplier) in MULTIPLIERS.into_iter().enumerate() {
            let mut blocked = if function + 1 == MULTIPLIERS.len() { 1 << (SHIFTS - 1) } else { 0 };
            let mut sum = 0;
            for (hash, start) in hashes.iter().zip(starts) {
                let slot = start + offset(*hash, multiplier);
                blocked |= self.window(slot);
                sum += slot;
            }
            let shift = u64::from(blocked.trailing_ones());
            sum += to_u64(count) * shift;
            if shift < SHIFTS && sum < best.0 && is_distinct(hashes, starts, multiplier) {
                best = (sum, multiplier, low_u8(to_u64(function) * SHIFTS + shift));
            }
        }
        let (_, multiplier, seed) = best;
        if seed != BUMPED {
            let shift = u64::from(seed) % SHIFTS;
            for (hash, start) in hashes.iter().zip(starts) {
                let slot = start + offset(*hash, multiplier) + shift;
                self.taken[to_usize(slot / 64)] |= 1 << (slot % 64);
            }
        }
        seed
    }

    /// Returns the 64 bits of `taken` from a slot on.
    #[inline]
    fn window(&self, slot: u64) -> u64 {
        let at = to_usize(slot / 64);
        let pair = u128::from(self.taken[at]) | u128::from(self.taken[at + 1]) << 64;
        low_u64(pair >> (slot % 64))
    }
}

/// Returns whether the keys of a bucket get different slots under a function.
fn is_distinct(hashes: &[u64], starts: &[u64], multiplier: u64) -> bool {
    let mut slots = [0; BUCKET_KEYS_MAX];
    for (slot, (hash, start)) in slots.iter_mut().zip(hashes.iter().zip(starts)) {
        *slot = start + offset(*hash, multiplier);
    }
    let slots = &slots[..hashes.len()];
    slots.iter().enumerate().all(|(index, slot)| !slots[..index].contains(slot))
}

#[inline]
fn to_index(value: u32) -> usize {
    to_usize(u64::from(value))
}
