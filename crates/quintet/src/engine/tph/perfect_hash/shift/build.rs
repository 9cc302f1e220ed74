//! Building the function: deal keys to segments, sort each by bucket, shift buckets into slots.
//!
//! Segments are built apart and in parallel; what a segment bumps goes to the next layer. Big
//! buckets go first, each so many places earlier as it has keys more: of two buckets the bigger one
//! is harder to place, and the slots that a segment's later part may use must not fill up before
//! its turn comes. One counting sort makes that order.
//!
//! A seed is taken only where the slots of a bucket's keys are free and distinct. So equal hashes
//! are bumped in every layer and meet in the list: that is where they are found, for nothing.

use std::sync::atomic::AtomicU64;

use super::{
    BUMPED, EliasFano, HashPosition, LAYER_KEYS_MIN, LAYERS_MAX, MULTIPLIERS, SHIFTS, SPAN, Shift,
    ShiftLayer, of_layer, offset,
};
use crate::{
    engine::tph::perfect_hash::{DuplicateHash, Parallel, deal::deal},
    util::{
        codec::{low_u8, to_u64, to_usize},
        sync::{OnceLock, Ordering},
    },
};

/// Keys of a segment. What building it touches then fits into a core's second-level cache.
const SEGMENT_KEYS: u64 = 1 << 16;
/// Keys of a bucket, times ten. More take less seeds and bump more: 4.5 is about the least space.
const BUCKET_KEYS_TENTHS: u64 = 45;
/// Buckets by which a key more brings a bucket forward.
const LEAD: usize = 5;
/// Bigger buckets are bumped untried. The mean is 4.5: one in 10^15 of random ones is bigger.
const BUCKET_KEYS_MAX: usize = 32;

/// Builds layer after layer until few keys are left.
pub(super) fn build(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    run: Parallel<'_>,
) -> Result<Shift, DuplicateHash> {
    let mut layers = Vec::new();
    let mut rest: Option<Vec<u64>> = None;
    for number in 0..LAYERS_MAX {
        if to_u64(rest.as_deref().unwrap_or(hashes).len()) < LAYER_KEYS_MIN {
            break;
        }
        let (layer, bumped) = match &rest {
            None => build_layer(hashes, &mixed, number, run),
            Some(rest) => build_layer(rest, |hash| hash, number, run),
        };
        layers.push(layer);
        rest = Some(bumped);
    }
    let mut list = rest.unwrap_or_else(|| hashes.iter().map(|hash| mixed(*hash)).collect());
    list.sort_unstable();
    if let Some(pair) = list.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(DuplicateHash(pair[0]));
    }
    list.shrink_to_fit();
    Ok(Shift { layers, list })
}

/// What a segment came to.
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
    run: Parallel<'_>,
) -> (ShiftLayer, Vec<u64>) {
    let keys = to_u64(hashes.len());
    let segments = (keys / SEGMENT_KEYS).max(1);
    let buckets = (keys / segments * 10).div_ceil(BUCKET_KEYS_TENTHS);
    let segment_of = |hash| HashPosition::new(of_layer(hash, number), segments).segment;
    let (dealt, bounds) = deal(hashes, mixed, segment_of, segments, run);
    let built: Vec<OnceLock<BuiltSegment>> = (0..segments).map(|_| OnceLock::new()).collect();
    run(built.len(), &|segment| {
        let keys = &dealt[to_usize(bounds[segment])..to_usize(bounds[segment + 1])];
        let made = SegmentBuilder::new(keys, number, segments, buckets).build();
        assert!(built[segment].set(made).is_ok(), "a segment is built once");
    });
    drop(dealt);
    let mut seeds = Vec::with_capacity(to_usize(segments * buckets));
    let (mut holes, mut bumped) = (Vec::new(), Vec::new());
    for (made, begin) in built.into_iter().zip(&bounds) {
        let made = made.into_inner().expect("every segment was built");
        assert_eq!(made.holes.len(), made.bumped.len(), "a slot for each key");
        seeds.extend_from_slice(&made.seeds);
        holes.extend(made.holes.iter().map(|hole| begin + hole));
        bumped.extend_from_slice(&made.bumped);
    }
    let holes = EliasFano::new(&holes, keys);
    (ShiftLayer { bounds, buckets, seeds, holes }, bumped)
}

/// A segment while it is built.
#[derive(Debug)]
struct SegmentBuilder {
    slots: usize,
    segments: u64,
    number: u32,
    /// Hashes by bucket.
    keys: Vec<u64>,
    /// Where each bucket's keys begin; one more at the end.
    begins: Vec<u32>,
    /// A bit a slot, set where it is taken; set beyond the last slot.
    taken: Vec<u64>,
    seeds: Vec<u8>,
    bumped: Vec<u64>,
}

impl SegmentBuilder {
    fn new(dealt: &[AtomicU64], number: u32, segments: u64, buckets: u64) -> Self {
        let bucket_of = |hash: u64| {
            to_usize(HashPosition::new(of_layer(hash, number), segments).bucket(buckets))
        };
        let mut begins = vec![0_u32; to_usize(buckets) + 2];
        for hash in dealt {
            begins[bucket_of(hash.load(Ordering::Relaxed)) + 2] += 1;
        }
        let mut sum = 0;
        for begin in &mut begins {
            sum += *begin;
            *begin = sum;
        }
        let mut keys = vec![0; dealt.len()];
        for hash in dealt {
            let hash = hash.load(Ordering::Relaxed);
            let next = &mut begins[bucket_of(hash) + 1];
            keys[to_index(*next)] = hash;
            *next += 1;
        }
        begins.pop();
        let slots = dealt.len();
        // A window may begin in the last word of slots: one word more.
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
                self.place(keys.clone())
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

    /// The buckets that have keys, in the order in which they are placed.
    fn order(&self) -> Vec<u32> {
        let last = LEAD * BUCKET_KEYS_MAX;
        let turn = |bucket: u32, keys: u32| {
            to_index(bucket) + last - LEAD * to_index(keys).min(BUCKET_KEYS_MAX)
        };
        let sizes = || {
            let sizes = self.begins.windows(2).map(|pair| pair[1] - pair[0]);
            (0_u32..).zip(sizes).filter(|(_, keys)| *keys > 0)
        };
        let mut begins = vec![0_u32; self.seeds.len() + last + 1];
        sizes().for_each(|(bucket, keys)| begins[turn(bucket, keys) + 1] += 1);
        let mut sum = 0;
        for begin in &mut begins {
            sum += *begin;
            *begin = sum;
        }
        let mut order = vec![0; to_index(sum)];
        for (bucket, keys) in sizes() {
            let next = &mut begins[turn(bucket, keys)];
            order[to_index(*next)] = bucket;
            *next += 1;
        }
        order
    }

    /// Finds the seed of a bucket and takes its slots.
    fn place(&mut self, keys: std::ops::Range<usize>) -> u8 {
        let count = keys.len();
        let mut hashes = [0_u64; BUCKET_KEYS_MAX];
        let mut starts = [0_u64; BUCKET_KEYS_MAX];
        for (key, (hash, start)) in keys.zip(hashes.iter_mut().zip(&mut starts)) {
            *hash = of_layer(self.keys[key], self.number);
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
            if shift < SHIFTS && sum < best.0 && distinct(hashes, starts, multiplier) {
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

    /// The 64 bits of `taken` from a slot on.
    #[inline]
    fn window(&self, slot: u64) -> u64 {
        let at = to_usize(slot / 64);
        let pair = u128::from(self.taken[at]) | u128::from(self.taken[at + 1]) << 64;
        crate::util::codec::low_u64(pair >> (slot % 64))
    }
}

/// Whether the keys of a bucket come to different slots under a function.
fn distinct(hashes: &[u64], starts: &[u64], multiplier: u64) -> bool {
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
