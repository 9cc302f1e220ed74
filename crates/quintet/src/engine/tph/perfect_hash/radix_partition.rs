//! Radix partitioning: brings the hashes of each segment together, on several threads.
//!
//! Each chunk of the input is counted first and then copied. Within a segment, the chunks follow
//! one another, so the result does not depend on the number of threads.

// Not the atomics of `crate::util::sync`: an `Array` holds the processor's. Models do not check
// this module.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    io::Array,
    util::{
        codec::{to_u64, to_usize},
        sync::OnceLock,
    },
};

/// Minimum number of hashes in a chunk, the work of one task. 256 Ki hashes are 2 MiB.
const CHUNK_HASHES: usize = 1 << 18;

/// Calls a task with each number below a count, on threads of the callee's choice. Returns when all
/// calls have ended. `Env::parallel` is one.
pub type Parallel<'a> = &'a dyn Fn(usize, &(dyn Fn(usize) + Sync));

/// Returns the hashes, mixed, in the order of their segments. Also returns the number of hashes
/// before each segment, with one more entry at the end.
pub(super) fn radix_partition(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    segment_of: impl Fn(u64) -> u64 + Sync,
    segments: u64,
    parallel: Parallel<'_>,
) -> (Array<AtomicU64>, Vec<u64>) {
    // Each chunk counts every segment, so a chunk has several hashes for each.
    let chunk_hashes = CHUNK_HASHES.max(to_usize(segments) * 8);
    let chunks: Vec<&[u64]> = hashes.chunks(chunk_hashes).collect();
    let counts: Vec<OnceLock<Vec<u64>>> = chunks.iter().map(|_| OnceLock::new()).collect();
    parallel(chunks.len(), &|chunk| {
        let mut count = vec![0_u64; to_usize(segments)];
        for hash in chunks[chunk] {
            count[to_usize(segment_of(mixed(*hash)))] += 1;
        }
        assert!(counts[chunk].set(count).is_ok(), "a chunk is counted once");
    });
    let mut starts: Vec<Vec<u64>> =
        counts.into_iter().map(|count| count.into_inner().expect("counted")).collect();
    let mut bounds = vec![0; to_usize(segments) + 1];
    let mut next = 0;
    for segment in 0..to_usize(segments) {
        for start in &mut starts {
            next += std::mem::replace(&mut start[segment], next);
        }
        bounds[segment + 1] = next;
    }
    let partitioned = Array::<AtomicU64>::zeroed(hashes.len());
    parallel(chunks.len(), &|chunk| {
        let mut next = starts[chunk].clone();
        for hash in chunks[chunk] {
            let hash = mixed(*hash);
            let index = &mut next[to_usize(segment_of(hash))];
            partitioned[to_usize(*index)].store(hash, Ordering::Relaxed);
            *index += 1;
        }
    });
    debug_assert_eq!(bounds.last().copied(), Some(to_u64(partitioned.len())));
    (partitioned, bounds)
}
