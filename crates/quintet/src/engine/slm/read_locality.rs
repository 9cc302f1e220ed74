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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_many_entries_a_read_raise_the_score_and_others_lower_it() {
        let locality = ReadLocality::default();
        assert!(!locality.is_high());
        // The score is high above half of the maximum: after five steps of 8.
        for step in 1..=5 {
            locality.record(ENTRIES_PER_READ_MIN, 1);
            assert_eq!(locality.is_high(), step == 5, "step {step}");
        }
        locality.record(ENTRIES_PER_READ_MIN - 1, 1);
        assert!(!locality.is_high());
    }

    #[test]
    fn the_score_has_bounds_and_falls_by_one_with_a_step_without_reads() {
        let locality = ReadLocality::default();
        locality.record(1, 1);
        locality.record(100, 0);
        assert_eq!(locality.score.load(Ordering::Relaxed), 0);
        for _ in 0..20 {
            locality.record(100, 1);
        }
        assert_eq!(locality.score.load(Ordering::Relaxed), ReadLocality::SCORE_MAX);
        for _ in 0..31 {
            locality.record(100, 0);
        }
        assert!(locality.is_high());
        locality.record(100, 0);
        assert!(!locality.is_high());
    }
}
