//! The construction: partition keys by segment, sort each segment by bucket, place buckets from the
//! largest down.
//!
//! Bounds: a bucket tries at most [`ATTEMPTS_MAX`] parameters. If none fits, the segment starts
//! again with more slots, up to [`STARTS_MAX`] times. Then it becomes a list. With random hashes,
//! one bucket in many millions runs out of attempts.

use std::sync::atomic::AtomicU64;

use super::{
    search::{self, Lanes},
    segment::{CpSegment, bucket_of, halves, position_of, width_of},
    slot_bitmap::{Modulus, SlotBitmap},
};
use crate::{
    engine::tph::perfect_hash::{
        hash_mix::DuplicateHash,
        packed_bits::put_bits,
        radix_partition::{Parallel, radix_partition},
    },
    util::{
        codec::{low_u32, scale, to_u64, to_usize},
        sync::{OnceLock, Ordering},
    },
};

/// Number of segments in the paper.
const SEGMENTS: u64 = 64;
/// Minimum number of keys of a segment: with fewer keys there are fewer segments.
const SEGMENT_KEYS_MIN: u64 = 1 << 10;
/// Maximum number of keys of a segment: with more keys there are more segments. A segment can have
/// 2^32 slots, and a bitmap in the second-level cache is the fastest.
const SEGMENT_KEYS_MAX: u64 = 1 << 20;
/// Average number of keys of a bucket (paper 5.4).
const BUCKET_KEYS: u64 = 5;
/// Maximum number of parameters that a bucket tries. The hardest random buckets need about ten
/// thousand.
const ATTEMPTS_MAX: usize = 1 << 18;
/// Maximum number of keys of a bucket. A larger one makes its segment a list at once. A dense
/// bucket has 10 keys on average: one in 10^25 random ones is larger.
const BUCKET_KEYS_MAX: u32 = 64;
/// Number of new parameters that one call tries.
const BLOCK: usize = 64;
/// Maximum number of starts of a segment, each with more slots.
const STARTS_MAX: u32 = 8;

pub(super) fn build(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    parallel: Parallel<'_>,
    lanes: Lanes,
) -> Result<Vec<CpSegment>, DuplicateHash> {
    let keys = to_u64(hashes.len());
    let segments = (keys / SEGMENT_KEYS_MIN).clamp(1, SEGMENTS).max(keys / SEGMENT_KEYS_MAX);
    let segment_of = |hash| position_of(hash, segments).0;
    let (hashes, bounds) = radix_partition(hashes, mixed, segment_of, segments, parallel);
    let built: Vec<OnceLock<Result<CpSegment, DuplicateHash>>> =
        (0..segments).map(|_| OnceLock::new()).collect();
    parallel(built.len(), &|segment| {
        let keys = &hashes[to_usize(bounds[segment])..to_usize(bounds[segment + 1])];
        let segment_built = build_segment(keys, segments, lanes);
        assert!(built[segment].set(segment_built).is_ok(), "a segment is built once");
    });
    built.into_iter().map(|one| one.into_inner().expect("every segment was built")).collect()
}

/// The keys of a segment in the order of their buckets.
#[derive(Debug)]
struct SegmentBuckets {
    dense: u32,
    sparse: u32,
    keys: Vec<u64>,
    /// Index in `keys` of the first key of each bucket, with one more entry at the end.
    begins: Vec<u32>,
    /// The buckets, largest first.
    order: Vec<u32>,
}

fn build_segment(
    hashes: &[AtomicU64],
    segments: u64,
    lanes: Lanes,
) -> Result<CpSegment, DuplicateHash> {
    let keys = to_u64(hashes.len());
    let Ok(buckets) = u32::try_from(keys.div_ceil(BUCKET_KEYS).max(2)) else {
        return list_segment(hashes);
    };
    let dense = low_u32(scale(u64::from(buckets), 0.3)).max(1);
    let buckets = SegmentBuckets::new(hashes, segments, dense, buckets - dense);
    if buckets.largest() > BUCKET_KEYS_MAX {
        return list_segment(hashes);
    }
    for start in 0..STARTS_MAX {
        // The paper's `scale` is 1.1. Each start adds a thirty-second.
        let slots = keys + keys.div_ceil(10) + keys * u64::from(start) / 32 + u64::from(start);
        let Ok(slots) = u32::try_from(slots) else { break };
        if let Some(segment) = buckets.find_parameters(slots, lanes) {
            return Ok(segment);
        }
        if let Some(hash) = buckets.duplicate() {
            let is_equal = |one: &&AtomicU64| halves(one.load(Ordering::Relaxed)) == hash;
            let found = hashes.iter().find(is_equal).map(|one| one.load(Ordering::Relaxed));
            return Err(DuplicateHash(found.unwrap_or(hash)));
        }
    }
    list_segment(hashes)
}

/// Makes a segment a sorted list, because no parameters were found.
fn list_segment(hashes: &[AtomicU64]) -> Result<CpSegment, DuplicateHash> {
    let mut list: Vec<u64> = hashes.iter().map(|hash| hash.load(Ordering::Relaxed)).collect();
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
    fn new(hashes: &[AtomicU64], segments: u64, dense: u32, sparse: u32) -> Self {
        let count = to_usize(u64::from(dense) + u64::from(sparse));
        let bucket_of =
            |hash: u64| to_usize(bucket_of(position_of(hash, segments).1, dense, sparse));
        let mut begins = vec![0_u32; count + 2];
        for hash in hashes {
            begins[bucket_of(hash.load(Ordering::Relaxed)) + 2] += 1;
        }
        sum_up(&mut begins);
        let mut keys = vec![0; hashes.len()];
        for hash in hashes {
            let hash = hash.load(Ordering::Relaxed);
            let next = &mut begins[bucket_of(hash) + 1];
            keys[to_index(*next)] = halves(hash);
            *next += 1;
        }
        begins.pop();
        // Buckets of equal size stay in the order of their numbers: the build is deterministic.
        let sizes = || (0_u32..).zip(begins.windows(2).map(|pair| pair[1] - pair[0]));
        let largest = sizes().map(|(_, size)| size).max().unwrap_or(0);
        let mut starts = vec![0_u32; to_index(largest) + 2];
        sizes().for_each(|(_, size)| starts[to_index(largest - size) + 1] += 1);
        sum_up(&mut starts);
        let mut order = vec![0; count];
        for (bucket, size) in sizes() {
            let next = &mut starts[to_index(largest - size)];
            order[to_index(*next)] = bucket;
            *next += 1;
        }
        Self { dense, sparse, keys, begins, order }
    }

    /// Returns the number of keys of the largest bucket.
    fn largest(&self) -> u32 {
        let first = self.order.first().map_or(0, |bucket| to_index(*bucket));
        self.begins[first + 1] - self.begins[first]
    }

    fn keys_of(&self, bucket: u32) -> &[u64] {
        let bucket = to_index(bucket);
        &self.keys[to_index(self.begins[bucket])..to_index(self.begins[bucket + 1])]
    }

    /// Finds parameters for every bucket. Returns `None` if a bucket runs out of attempts.
    fn find_parameters(&self, slots: u32, lanes: Lanes) -> Option<CpSegment> {
        let mut slots = SlotBitmap::new(slots);
        let mut dictionary = Vec::new();
        let mut next_number = 0_u32;
        let mut chosen = vec![0_usize; self.order.len()];
        for bucket in &self.order {
            let keys = self.keys_of(*bucket);
            if keys.is_empty() {
                break;
            }
            let used = search::first(&slots, keys, &dictionary, lanes);
            let index = if let Some(index) = used {
                index
            } else {
                dictionary.push(find_new_parameter(&slots, keys, &mut next_number, lanes)?);
                dictionary.len() - 1
            };
            slots.occupy(keys, dictionary[index]);
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

    /// Returns the halves of a hash that occurs twice.
    fn duplicate(&self) -> Option<u64> {
        self.order.iter().find_map(|bucket| {
            let keys = self.keys_of(*bucket);
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).find(|pair| pair.first() == pair.last()).map(|pair| pair[0])
        })
    }
}

/// Returns the first new number that puts the keys into free slots. Later buckets do not try the
/// numbers that did not fit: new ones are as good.
fn find_new_parameter(
    slots: &SlotBitmap,
    keys: &[u64],
    next_number: &mut u32,
    lanes: Lanes,
) -> Option<u32> {
    for _ in 0..ATTEMPTS_MAX / BLOCK {
        let mut block = [0; BLOCK];
        for (number, candidate) in (*next_number..).zip(&mut block) {
            *candidate = number;
        }
        if let Some(index) = search::first(slots, keys, &block, lanes) {
            *next_number = block[index] + 1;
            return Some(block[index]);
        }
        // Stays far below 2^32: a start tries at most `ATTEMPTS_MAX` for each dictionary entry.
        *next_number = next_number.checked_add(low_u32(to_u64(BLOCK)))?;
    }
    None
}

/// Replaces each count by the sum of the counts up to it.
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
