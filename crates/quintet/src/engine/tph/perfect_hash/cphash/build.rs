//! Building the function: deal keys to segments, sort each by bucket, place buckets from the
//! biggest down.
//!
//! Bounds: a bucket tries [`ATTEMPTS_MAX`] parameters; where none fits, the segment starts over
//! with more slots, [`STARTS_MAX`] times; then it becomes a list. With random hashes one bucket in
//! many millions runs out of attempts.

use std::sync::atomic::AtomicU64;

use super::{
    CpSegment, bucket, halves, place,
    search::{self, Lanes},
    slots::{Modulus, SlotBitmap},
    width_of,
};
use crate::{
    engine::tph::perfect_hash::{DuplicateHash, Parallel, deal::deal, holes::put_bits},
    util::{
        codec::{low_u32, scale, to_u64, to_usize},
        sync::{OnceLock, Ordering},
    },
};

/// Segments of the paper.
const SEGMENTS: u64 = 64;
/// Below so many keys a segment, there are fewer segments.
const SEGMENT_KEYS_MIN: u64 = 1 << 10;
/// Above so many, there are more: 2^32 slots are the most, and a bitmap that fits into the
/// second-level cache is the fastest.
const SEGMENT_KEYS: u64 = 1 << 20;
/// Keys of a bucket, on average (paper 5.4).
const BUCKET_KEYS: u64 = 5;
/// Parameters that a bucket tries. The hardest of random ones need some ten thousand.
const ATTEMPTS_MAX: usize = 1 << 18;
/// A bigger bucket makes its segment a list at once. A dense one has 10 on average: one in 10^25 of
/// random ones is bigger.
const BUCKET_KEYS_MAX: u32 = 64;
/// New parameters that are tried in one call.
const BLOCK: usize = 64;
/// Starts of a segment, each with more slots.
const STARTS_MAX: u32 = 8;

pub(super) fn build(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    run: Parallel<'_>,
    lanes: Lanes,
) -> Result<Vec<CpSegment>, DuplicateHash> {
    let keys = to_u64(hashes.len());
    let segments = (keys / SEGMENT_KEYS_MIN).clamp(1, SEGMENTS).max(keys / SEGMENT_KEYS);
    let (dealt, bounds) = deal(hashes, mixed, |hash| place(hash, segments).0, segments, run);
    let built: Vec<OnceLock<Result<CpSegment, DuplicateHash>>> =
        (0..segments).map(|_| OnceLock::new()).collect();
    run(built.len(), &|segment| {
        let keys = &dealt[to_usize(bounds[segment])..to_usize(bounds[segment + 1])];
        let made = build_segment(keys, segments, lanes);
        assert!(built[segment].set(made).is_ok(), "a segment is built once");
    });
    built.into_iter().map(|made| made.into_inner().expect("every segment was built")).collect()
}

/// The keys of a segment, by bucket.
#[derive(Debug)]
struct SegmentBuckets {
    dense: u32,
    sparse: u32,
    keys: Vec<u64>,
    /// Where each bucket's keys begin; one more at the end.
    begins: Vec<u32>,
    /// Buckets, the biggest first.
    order: Vec<u32>,
}

fn build_segment(
    dealt: &[AtomicU64],
    segments: u64,
    lanes: Lanes,
) -> Result<CpSegment, DuplicateHash> {
    let keys = to_u64(dealt.len());
    let Ok(buckets) = u32::try_from(keys.div_ceil(BUCKET_KEYS).max(2)) else {
        return list(dealt);
    };
    let dense = low_u32(scale(u64::from(buckets), 0.3)).max(1);
    let buckets = SegmentBuckets::new(dealt, segments, dense, buckets - dense);
    if buckets.largest() > BUCKET_KEYS_MAX {
        return list(dealt);
    }
    for start in 0..STARTS_MAX {
        // `scale` of the paper is 1.1; a thirty-second more each time.
        let slots = keys + keys.div_ceil(10) + keys * u64::from(start) / 32 + u64::from(start);
        let Ok(slots) = u32::try_from(slots) else { break };
        if let Some(segment) = buckets.place(slots, lanes) {
            return Ok(segment);
        }
        if let Some(hash) = buckets.equal() {
            let twice = |at: &&AtomicU64| halves(at.load(Ordering::Relaxed)) == hash;
            let found = dealt.iter().find(twice).map(|at| at.load(Ordering::Relaxed));
            return Err(DuplicateHash(found.unwrap_or(hash)));
        }
    }
    list(dealt)
}

/// A segment for which no parameters were found.
fn list(dealt: &[AtomicU64]) -> Result<CpSegment, DuplicateHash> {
    let mut list: Vec<u64> = dealt.iter().map(|hash| hash.load(Ordering::Relaxed)).collect();
    list.sort_unstable();
    if let Some(pair) = list.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(DuplicateHash(pair[0]));
    }
    let keys = to_u64(list.len());
    let slots = Modulus::new(low_u32(keys));
    let (dictionary, indexes) = (Vec::new(), Vec::new());
    Ok(CpSegment { keys, slots, dense: 0, sparse: 0, dictionary, width: 0, indexes, list })
}

impl SegmentBuckets {
    fn new(dealt: &[AtomicU64], segments: u64, dense: u32, sparse: u32) -> Self {
        let count = to_usize(u64::from(dense) + u64::from(sparse));
        let bucket_of = |hash: u64| to_usize(bucket(place(hash, segments).1, dense, sparse));
        let mut begins = vec![0_u32; count + 2];
        for hash in dealt {
            begins[bucket_of(hash.load(Ordering::Relaxed)) + 2] += 1;
        }
        sum_up(&mut begins);
        let mut keys = vec![0; dealt.len()];
        for hash in dealt {
            let hash = hash.load(Ordering::Relaxed);
            let next = &mut begins[bucket_of(hash) + 1];
            keys[to_index(*next)] = halves(hash);
            *next += 1;
        }
        begins.pop();
        // Equal sizes stay in the order of their numbers, so that the result is one.
        let sizes = || (0_u32..).zip(begins.windows(2).map(|pair| pair[1] - pair[0]));
        let largest = sizes().map(|(_, size)| size).max().unwrap_or(0);
        let mut turns = vec![0_u32; to_index(largest) + 2];
        sizes().for_each(|(_, size)| turns[to_index(largest - size) + 1] += 1);
        sum_up(&mut turns);
        let mut order = vec![0; count];
        for (bucket, size) in sizes() {
            let next = &mut turns[to_index(largest - size)];
            order[to_index(*next)] = bucket;
            *next += 1;
        }
        Self { dense, sparse, keys, begins, order }
    }

    /// Keys of the biggest bucket.
    fn largest(&self) -> u32 {
        let first = self.order.first().map_or(0, |bucket| to_index(*bucket));
        self.begins[first + 1] - self.begins[first]
    }

    fn keys_of(&self, bucket: u32) -> &[u64] {
        let bucket = to_index(bucket);
        &self.keys[to_index(self.begins[bucket])..to_index(self.begins[bucket + 1])]
    }

    /// Finds parameters for every bucket; `None` where attempts run out.
    fn place(&self, slots: u32, lanes: Lanes) -> Option<CpSegment> {
        let mut slots = SlotBitmap::new(slots);
        let mut dictionary = Vec::new();
        let mut fresh = 0_u32;
        let mut chosen = vec![0_usize; self.order.len()];
        for bucket in &self.order {
            let keys = self.keys_of(*bucket);
            if keys.is_empty() {
                break;
            }
            let known = search::first(&slots, keys, &dictionary, lanes);
            let index = if let Some(index) = known {
                index
            } else {
                dictionary.push(find_fresh(&slots, keys, &mut fresh, lanes)?);
                dictionary.len() - 1
            };
            slots.take(keys, dictionary[index]);
            chosen[to_index(*bucket)] = index;
        }
        dictionary.shrink_to_fit();
        let width = width_of(dictionary.len());
        let bits = to_u64(chosen.len()) * u64::from(width);
        let mut indexes = vec![0; to_usize(bits.div_ceil(64))];
        for (bucket, index) in (0..).zip(&chosen) {
            put_bits(&mut indexes, bucket * u64::from(width), width, to_u64(*index));
        }
        Some(CpSegment {
            keys: to_u64(self.keys.len()),
            slots: slots.modulus,
            dense: self.dense,
            sparse: self.sparse,
            dictionary,
            width,
            indexes,
            list: Vec::new(),
        })
    }

    /// The halves of a hash that is there twice.
    fn equal(&self) -> Option<u64> {
        self.order.iter().find_map(|bucket| {
            let keys = self.keys_of(*bucket);
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).find(|pair| pair.first() == pair.last()).map(|pair| pair[0])
        })
    }
}

/// The first new number with which the keys come to free slots. Numbers that did not fit are not
/// tried again by later buckets: new ones are as good.
fn find_fresh(slots: &SlotBitmap, keys: &[u64], fresh: &mut u32, lanes: Lanes) -> Option<u32> {
    for _ in 0..ATTEMPTS_MAX / BLOCK {
        let mut block = [0; BLOCK];
        for (number, candidate) in (*fresh..).zip(&mut block) {
            *candidate = number;
        }
        if let Some(index) = search::first(slots, keys, &block, lanes) {
            *fresh = block[index] + 1;
            return Some(block[index]);
        }
        // Far below 2^32: a start takes `ATTEMPTS_MAX` for each entry of a dictionary at most.
        *fresh = fresh.checked_add(low_u32(to_u64(BLOCK)))?;
    }
    None
}

/// Each becomes the sum of those up to it.
fn sum_up(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

#[inline]
fn to_index(value: u32) -> usize {
    to_usize(u64::from(value))
}
