//! Compaction picker: selects the runs that a merge takes (selective compaction).
//!
//! | selection | candidates | disabled by 0 in |
//! |---|---|---|
//! | live keys | a run with fewer than `live_ratio` per cent of live entries | `live_ratio` |
//! | leaves | the runs of a window of the index, if there are more than `leaf_threshold`; each compaction step scans the next window | `leaf_threshold` |
//! | ranges | the runs of `range_keys` consecutive entries of a range query, if there are more than `range_threshold`; the worst such part of each query counts | `range_threshold` |
//! | idle | while the memtables are empty, runs that three others overlap, each by a quarter | `leaf_threshold` |
//! | small | the smallest runs, if there are too many | - |
//!
//! With at least `compaction_runs` candidates, the one that overlaps the others most is merged with
//! those that it overlaps, at most `merge_runs` at once. The overlap of two runs is the length of
//! their intersection over the length of their union's span, as in the paper. Lengths of key ranges
//! are computed from the first eight bytes behind the common prefix of all four bounds.
//!
//! Invariant: each merge replaces overlapping runs by runs that do not overlap, removes dead
//! entries, or reduces the number of runs. So compaction ends when writes end.
//!
//! How we differ from the paper:
//! - Small runs are a separate selection, because frequent checkpoints would add files forever.
//! - Runs of large entries are not selected for leaves or ranges.
//! - An idle table keeps fewer overlapping runs than the paper's thresholds allow: the merge then
//!   delays no writer.
//! - Seeks are not counted as in `LevelDB`, because a get reads only the run that has its key.

use std::{cell::Cell, collections::BTreeSet, sync::Arc};

use super::{
    index_key::FIRST_KEY,
    index_value::BlockAddress,
    run::SortedRun,
    run_list::{DEAD, LEAVES, SMALL},
    table::SlmTable,
};
use crate::{
    Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    util::{
        codec::{low_u64, to_u64, to_usize},
        sync::lock,
    },
};

/// Index values that one step of a leaf scan copies.
const SCAN_STEP: usize = 1024;
/// Maximum number of keys in a window, so that a compaction step stays short.
const WINDOW_KEYS_MAX: u64 = 1 << 20;
/// Number of overlapping runs from which an idle table merges a run with them.
const IDLE_OVERLAPS_MIN: usize = 3;
/// Minimum overlap in millionths that counts on an idle table. Below it, a run with a few entries
/// from the whole key range would cause all others to be rewritten.
const OVERLAP_MIN: u64 = 250_000;
/// Maximum share of live entries, in per cent of its bytes, with which a run is merged for space.
const SPACE_LIVE_PER_CENT_MAX: u64 = 75;
/// A run is small below this fraction of `run_bytes`: a quarter.
const SMALL_SHARE: u64 = 4;
/// Number of small runs that cause no merge.
const SMALL_RUNS_MAX: usize = 30;
/// Maximum average entry size of runs that are merged for order. A disk is about as busy with one
/// read for each larger entry as with reads of several together.
const ORDERED_BYTES_MAX: u64 = 8 << 10;
/// Maximum number of candidates that one pick compares with each other.
const COMPARED_MAX: usize = 128;

/// Returns the eight bytes of a key after the first `shared` ones as a number.
fn key_number(key: &[u8], shared: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(key.iter().skip(shared)) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// Returns the overlap of two key ranges in millionths.
pub(super) fn overlap(one: (&[u8], &[u8]), other: (&[u8], &[u8])) -> u64 {
    let (low, high) = (one.0.max(other.0), one.1.min(other.1));
    if low > high {
        return 0;
    }
    let (first, last) = (one.0.min(other.0), one.1.max(other.1));
    let shared = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let length = |from, to| key_number(to, shared).saturating_sub(key_number(from, shared));
    let (common, spanned) = (length(low, high), length(first, last));
    if spanned == 0 {
        return 1_000_000;
    }
    low_u64(u128::from(common) * 1_000_000 / u128::from(spanned))
}

fn bounds(run: &SortedRun) -> (&[u8], &[u8]) {
    (&run.low, &run.high)
}

/// Whether merging the run for order alone is worth its cost.
fn is_worth_ordering(run: &SortedRun) -> bool {
    run.entry_bytes() <= ORDERED_BYTES_MAX
}

/// Returns the run that most others overlap, followed by these; `None` if fewer than `others` do.
fn most_overlapped(runs: &[Arc<SortedRun>], others: usize) -> Option<Vec<Arc<SortedRun>>> {
    let mut counts: Vec<_> = runs.iter().map(|run| (run, Cell::new(0))).collect();
    counts.sort_by(|(one, _), (other, _)| one.low.cmp(&other.low));
    for (index, (one, count)) in counts.iter().enumerate() {
        let later = counts.iter().skip(index + 1).take_while(|(other, _)| other.low <= one.high);
        for (_, theirs) in later.filter(|(other, _)| overlaps_enough(one, other)) {
            count.update(|count| count + 1);
            theirs.update(|count| count + 1);
        }
    }
    let (most, count) = counts.iter().max_by_key(|(_, count)| count.get())?;
    let overlaps_most =
        |run: &&Arc<SortedRun>| run.number != most.number && overlaps_enough(most, run);
    let these =
        || std::iter::once(*most).chain(runs.iter().filter(overlaps_most)).cloned().collect();
    (count.get() >= others).then(these)
}

/// Whether the overlap of two runs counts on an idle table.
fn overlaps_enough(one: &SortedRun, other: &SortedRun) -> bool {
    overlap(bounds(one), bounds(other)) >= OVERLAP_MIN
}

impl SlmTable {
    /// Makes runs of these numbers candidates for order, unless their entries are too large.
    pub(super) fn mark_candidate(&self, numbers: &[u32], reason: u8) {
        let view = self.write_buffer.view.load();
        let runs = numbers.iter().filter_map(|number| view.version.find(*number));
        let added = runs.filter(|run| is_worth_ordering(run) && run.mark_candidate(reason)).count();
        if added > 0 {
            self.wake_compaction();
        }
    }

    /// Scans the next window of the index, and makes its runs candidates if they are too many.
    pub(super) fn scan_leaves(&self) -> Result<()> {
        let settings = &self.settings;
        let view = self.write_buffer.view.load_full();
        let count = to_u64(view.version.len());
        if settings.leaf_threshold == 0 || count <= to_u64(settings.leaf_threshold) {
            return Ok(());
        }
        let entries: u64 = view.version.iter().map(|run| run.entries()).sum();
        let window = (entries / count * settings.leaf_runs).clamp(1, WINDOW_KEYS_MAX);
        let mut from = lock(&self.leaf_scan_start);
        let start = std::mem::take(&mut *from);
        let mut ascent = ForwardScan::new(start.as_slice().max(FIRST_KEY).to_vec(), None);
        let (mut run, mut run_numbers, mut keys) = (EntryRun::default(), BTreeSet::new(), 0);
        let mut last = None;
        while keys < window && !ascent.is_over {
            let step = to_usize(window - keys).min(SCAN_STEP);
            match self.pool_index() {
                Some(index) => index.scan_forward(&mut ascent, step, &mut run)?,
                None => self.paged.tree.scan_forward(&mut ascent, (step, 1), &mut run)?,
            }
            keys += to_u64(run.len());
            for (_, value) in (0..run.len()).filter_map(|index| run.entry(index)) {
                let number = BlockAddress::decode(value).map(|address| address.run);
                if number != last {
                    run_numbers.extend(number);
                    last = number;
                }
            }
        }
        if !ascent.is_over {
            from.clone_from(&ascent.start);
        }
        if run_numbers.len() > settings.leaf_threshold {
            self.mark_candidate(&run_numbers.into_iter().collect::<Vec<_>>(), LEAVES);
        }
        Ok(())
    }

    /// Makes runs with few live entries candidates, and small runs if there are too many.
    fn mark_dead_and_small(&self, runs: &[Arc<SortedRun>]) {
        let settings = &self.settings;
        let is_wasteful =
            |run: &&Arc<SortedRun>| run.live() * 100 < run.entries() * settings.live_ratio;
        for run in runs.iter().filter(is_wasteful) {
            run.mark_candidate(DEAD);
        }
        let is_small =
            |run: &&Arc<SortedRun>| run.sst.data_bytes() < settings.run_bytes / SMALL_SHARE;
        if runs.iter().filter(is_small).count() > SMALL_RUNS_MAX.min(settings.merge_runs * 2) {
            for run in runs.iter().filter(is_small) {
                run.mark_candidate(SMALL);
            }
        }
    }

    /// Returns the runs to merge next; `None` if no merge is due.
    pub(super) fn pick(&self) -> Option<Vec<Arc<SortedRun>>> {
        let view = self.write_buffer.view.load_full();
        let runs: Vec<_> = view.version.iter().filter(|run| run.live() > 0).cloned().collect();
        self.mark_dead_and_small(&runs);
        let picked = self.pick_candidates(&runs);
        if picked.is_some() || !view.is_unwritten() { picked } else { self.pick_idle(runs) }
    }

    /// Returns the run of which a merge gives the most space back for what it takes, if that is
    /// worth it.
    pub(super) fn pick_for_space(&self) -> Option<Arc<SortedRun>> {
        let view = self.write_buffer.view.load_full();
        let live_per_cent = |run: &Arc<SortedRun>| {
            run.live_bytes().saturating_mul(100) / run.sst.footer.payload_bytes.max(1)
        };
        let runs = view.version.iter().filter(|run| run.live() > 0);
        let run = runs.min_by_key(|run| live_per_cent(run))?;
        (live_per_cent(run) <= SPACE_LIVE_PER_CENT_MAX).then(|| Arc::clone(run))
    }

    /// Returns overlapping runs of an idle table, although too few for the other selections.
    fn pick_idle(&self, mut runs: Vec<Arc<SortedRun>>) -> Option<Vec<Arc<SortedRun>>> {
        if self.settings.leaf_threshold == 0 {
            return None;
        }
        runs.retain(|run| is_worth_ordering(run));
        let mut picked = most_overlapped(&runs, IDLE_OVERLAPS_MIN)?;
        picked.truncate(self.settings.merge_runs);
        if picked.len() < self.settings.compaction_runs {
            return None;
        }
        for run in &picked {
            run.mark_candidate(LEAVES);
        }
        Some(picked)
    }

    /// Returns the candidates to merge. If they overlap nowhere and a merge would gain nothing,
    /// unmarks them.
    fn pick_candidates(&self, runs: &[Arc<SortedRun>]) -> Option<Vec<Arc<SortedRun>>> {
        let candidates = runs.iter().filter(|run| run.reasons() != 0);
        let mut candidates: Vec<_> = candidates.cloned().collect();
        if candidates.len() < self.settings.compaction_runs {
            return None;
        }
        // Keeps the oldest.
        candidates.truncate(COMPARED_MAX);
        let picked = self.most_overlapping(&candidates);
        if picked.len() > 1 {
            return Some(picked);
        }
        let most = self.settings.merge_runs;
        for reason in [DEAD, SMALL] {
            let mut these: Vec<_> =
                candidates.iter().filter(|run| run.reasons() & reason != 0).cloned().collect();
            these.sort_by(|one, other| one.low.cmp(&other.low));
            these.truncate(most);
            if these.len() > usize::from(reason == SMALL) {
                return Some(these);
            }
        }
        // They do not overlap, so a merge for order would change nothing.
        for run in &candidates {
            run.unmark_candidate();
        }
        None
    }

    /// Returns the candidate with the largest sum of overlaps, followed by those that it overlaps.
    fn most_overlapping(&self, candidates: &[Arc<SortedRun>]) -> Vec<Arc<SortedRun>> {
        let share = |one: &Arc<SortedRun>, other: &Arc<SortedRun>| {
            if one.number == other.number { 0 } else { overlap(bounds(one), bounds(other)) }
        };
        let sum =
            |one: &Arc<SortedRun>| candidates.iter().map(|other| share(one, other)).sum::<u64>();
        let Some(best) = candidates.iter().max_by_key(|run| sum(run)) else { return Vec::new() };
        let with_shares = candidates.iter().map(|other| (share(best, other), Arc::clone(other)));
        let mut others: Vec<_> = with_shares.filter(|(share, _)| *share > 0).collect();
        others.sort_by_key(|(share, other)| (std::cmp::Reverse(*share), other.number));
        let others = others.into_iter().map(|(_, other)| other);
        let most = self.settings.merge_runs;
        std::iter::once(Arc::clone(best)).chain(others).take(most).collect()
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_papers_ratio() {
        let share = |one: [&str; 2], other: [&str; 2]| {
            let bounds = |run: [&'static str; 2]| (run[0].as_bytes(), run[1].as_bytes());
            let leak = |run: [&str; 2]| run.map(|key| &*String::from(key).leak());
            overlap(bounds(leak(one)), bounds(leak(other)))
        };
        assert_eq!(share(["key-a", "key-i"], ["key-a", "key-i"]), 1_000_000);
        // a..i and e..m: e..i of a..m.
        assert_eq!(share(["key-a", "key-i"], ["key-e", "key-m"]), 333_333);
        assert_eq!(share(["key-e", "key-m"], ["key-a", "key-i"]), 333_333);
        assert_eq!(share(["key-a", "key-c"], ["key-d", "key-m"]), 0);
        assert_eq!(share(["key-a", "key-c"], ["key-c", "key-m"]), 0);
        assert_eq!(share(["key", "key"], ["key", "key"]), 1_000_000);
        assert_eq!(share(["a", "a\u{1}"], ["b", "c"]), 0);
    }
}
