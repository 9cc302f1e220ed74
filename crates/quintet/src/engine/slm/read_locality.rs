//! Read locality: an estimate that sizes the first step of a range.
//!
//! A range that waits for the disk anyway loses less by reading too much than by waiting again. But
//! that holds only if neighbours in key order are together on disk, which compaction changes.
//!
//! Thread rules: any thread, no lock.

use crate::util::sync::{AtomicU32, Ordering};

/// Minimum number of entries per disk read of a step that found neighbours together.
const ENTRIES_PER_READ_MIN: usize = 4;
/// Estimates whether neighbours in key order are together on disk, from the disk reads of recent
/// ranges.
#[derive(Debug, Default)]
pub(super) struct ReadLocality {
    /// Rises with steps that needed few reads, falls with the others. It falls slowly with steps
    /// that read nothing, so that a table in memory returns to small steps.
    score: AtomicU32,
}

impl ReadLocality {
    /// Maximum score.
    const SCORE_MAX: u32 = 64;
    /// Change of the score by a step that read the disk.
    const READ_WEIGHT: u32 = 8;

    /// Whether recent ranges found neighbours together.
    pub(super) fn is_high(&self) -> bool {
        self.score.load(Ordering::Relaxed) > Self::SCORE_MAX / 2
    }

    /// Records a step of `entries` entries that took `reads` disk reads.
    pub(super) fn record(&self, entries: usize, reads: usize) {
        let before = self.score.load(Ordering::Relaxed);
        let after = match reads {
            0 => before.saturating_sub(1),
            reads if reads * ENTRIES_PER_READ_MIN <= entries => {
                (before + Self::READ_WEIGHT).min(Self::SCORE_MAX)
            }
            _ => before.saturating_sub(Self::READ_WEIGHT),
        };
        // A store without a change would move the cache line between processors. A lost update of
        // two concurrent ones affects only speed.
        if after != before {
            self.score.store(after, Ordering::Relaxed);
        }
    }
}
