//! Dealing: the hashes of each segment are brought together, on many threads at once.
//!
//! Each part of the input is counted, then copied: the parts follow each other within a segment, so
//! that the result does not depend on how many threads there were.

// Not `crate::util::sync`'s: an `Array` holds what the processor has, and no model looks at this.
use std::sync::atomic::{AtomicU64, Ordering};

use super::Parallel;
use crate::{
    io::Array,
    util::{
        codec::{to_u64, to_usize},
        sync::OnceLock,
    },
};

/// Hashes that one task deals.
const DEAL_KEYS: usize = 1 << 18;

/// The hashes, mixed, by segment, and where each segment begins; one more at the end.
pub(super) fn deal(
    hashes: &[u64],
    mixed: impl Fn(u64) -> u64 + Sync,
    segment_of: impl Fn(u64) -> u64 + Sync,
    segments: u64,
    run: Parallel<'_>,
) -> (Array<AtomicU64>, Vec<u64>) {
    // So many that counting them is worth a count of every segment.
    let keys = DEAL_KEYS.max(to_usize(segments) * 8);
    let parts: Vec<&[u64]> = hashes.chunks(keys).collect();
    let counts: Vec<OnceLock<Vec<u64>>> = parts.iter().map(|_| OnceLock::new()).collect();
    run(parts.len(), &|part| {
        let mut count = vec![0_u64; to_usize(segments)];
        for hash in parts[part] {
            count[to_usize(segment_of(mixed(*hash)))] += 1;
        }
        assert!(counts[part].set(count).is_ok(), "a part is counted once");
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
    let dealt = Array::<AtomicU64>::zeroed(hashes.len());
    run(parts.len(), &|part| {
        let mut next = starts[part].clone();
        for hash in parts[part] {
            let hash = mixed(*hash);
            let place = &mut next[to_usize(segment_of(hash))];
            dealt[to_usize(*place)].store(hash, Ordering::Relaxed);
            *place += 1;
        }
    });
    debug_assert_eq!(bounds.last().copied(), Some(to_u64(dealt.len())));
    (dealt, bounds)
}
