//! Selective compaction: which runs are merged, and when.
//!
//! | selection | what becomes a candidate | option that is 0 to switch it off |
//! |---|---|---|
//! | live keys | a run of whose entries fewer than `live_ratio` per cent are live | `live_ratio` |
//! | leaves | the runs of a window of the index, if they are more than `leaf_threshold`; one window, in turn, whenever the background compacts | `leaf_threshold` |
//! | ranges | the runs of `range_keys` entries of a range query, if they are more than `range_threshold`; of each query the worst | `range_threshold` |
//! | at rest | while nobody writes, runs that three others overlap, each by a quarter | `leaf_threshold` |
//! | small | the smallest runs, where there are too many | - |
//!
//! With at least `compaction_runs` candidates, the one that overlaps the others most is merged with
//! those that it overlaps, at most `merge_runs` at once. The overlap of two runs is the length of
//! their intersection over the length of their union's span, as in the paper. Lengths of key ranges
//! are computed from the first eight bytes behind the common prefix of all four bounds.
//!
//! Invariant: each merge replaces overlapping runs by runs that do not overlap, removes dead
//! entries, or reduces the number of runs. So compaction ends when nobody writes.
//!
//! How we differ from the paper:
//! - Small runs are a separate selection, because frequent checkpoints would add files forever.
//! - Runs of large entries are not selected for leaves or ranges.
//! - When nobody writes, fewer overlapping runs remain than the paper's thresholds allow: the merge
//!   then costs no writer.
//! - Seeks are not counted as in `LevelDB`, because no get reads a run in vain.

use std::{cell::Cell, collections::BTreeSet, sync::Arc};

use super::{
    Inner,
    runs::{DEAD, FIRST_KEY, LEAVES, Place, RANGES, Run, SMALL},
};
use crate::{
    Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    util::{
        codec::{to_u64, to_usize},
        sync::lock,
    },
};

/// Places that one step of a scan over leaves copies.
const SCAN_STEP: usize = 1024;
/// Keys of a window at most, so that a step of the background stays short.
const WINDOW_KEYS_MAX: u64 = 1 << 20;
/// Where nobody writes, a run that so many others lie over is merged with them.
const OTHERS_AT_REST: usize = 3;
/// Runs lie over one another if they overlap by so many millionths: a few entries from all over the
/// table are no reason to write again what lies between them.
const OVERLAP_MIN: u64 = 250_000;
/// A run is small below this part of what runs have.
const SMALL_SHARE: u64 = 4;
/// So many small runs are left alone.
const SMALL_RUNS_MAX: usize = 30;
/// Runs of entries that are larger on average are not merged for order: reading each of these alone
/// keeps a disk about as busy as reading them together.
const ORDERED_BYTES_MAX: u64 = 8 << 10;
/// Candidates that are compared with one another.
const COMPARED_MAX: usize = 128;

/// Runs that a range query goes through.
#[derive(Debug)]
pub(super) struct Sequence {
    keys: usize,
    /// Of the part of the query that it is in: keys, and the runs that they are in.
    count: usize,
    runs: Vec<u32>,
    /// The most that a part had.
    worst: Vec<u32>,
}

impl Sequence {
    /// `None` where queries are not watched.
    pub(super) fn new(inner: &Inner) -> Option<Self> {
        let keys = inner.settings.range_keys;
        let (count, runs, worst) = Default::default();
        (inner.settings.range_threshold > 0).then_some(Self { keys, count, runs, worst })
    }

    /// The query has come to an entry of this run.
    pub(super) fn note(&mut self, run: u32) {
        if self.runs.last() != Some(&run) && !self.runs.contains(&run) {
            self.runs.push(run);
        }
        self.count += 1;
        if self.count >= self.keys {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        if self.runs.len() > self.worst.len() {
            std::mem::swap(&mut self.runs, &mut self.worst);
        }
        self.runs.clear();
        self.count = 0;
    }

    /// The query has ended.
    pub(super) fn end(mut self, inner: &Inner) {
        self.end_part();
        if self.worst.len() > inner.settings.range_threshold {
            inner.nominate(&self.worst, RANGES);
        }
    }
}

/// A key as a number, behind what all bounds share.
fn number_of(key: &[u8], shared: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(key.iter().skip(shared)) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

/// The overlap of two runs' key ranges, in millionths.
pub(super) fn overlap(one: (&[u8], &[u8]), other: (&[u8], &[u8])) -> u64 {
    let (low, high) = (one.0.max(other.0), one.1.min(other.1));
    if low > high {
        return 0;
    }
    let (first, last) = (one.0.min(other.0), one.1.max(other.1));
    let shared = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let length = |from, to| number_of(to, shared).saturating_sub(number_of(from, shared));
    let (common, spanned) = (length(low, high), length(first, last));
    if spanned == 0 {
        return 1_000_000;
    }
    crate::util::codec::low_u64(u128::from(common) * 1_000_000 / u128::from(spanned))
}

fn bounds(run: &Run) -> (&[u8], &[u8]) {
    (&run.low, &run.high)
}

/// Whether it is worth merging for order alone.
fn is_to_be_ordered(run: &Run) -> bool {
    run.entry_bytes() <= ORDERED_BYTES_MAX
}

/// The run that most others lie over, and then these, if they are so many at least.
fn crowd(runs: &[Arc<Run>], others: usize) -> Option<Vec<Arc<Run>>> {
    let mut counts: Vec<_> = runs.iter().map(|run| (run, Cell::new(0))).collect();
    counts.sort_by(|(one, _), (other, _)| one.low.cmp(&other.low));
    for (place, (one, count)) in counts.iter().enumerate() {
        let later = counts.iter().skip(place + 1).take_while(|(other, _)| other.low <= one.high);
        for (_, theirs) in later.filter(|(other, _)| lies_over(one, other)) {
            count.update(|count| count + 1);
            theirs.update(|count| count + 1);
        }
    }
    let (most, count) = counts.iter().max_by_key(|(_, count)| count.get())?;
    let is_over_it = |run: &&Arc<Run>| run.number != most.number && lies_over(most, run);
    let these = || std::iter::once(*most).chain(runs.iter().filter(is_over_it)).cloned().collect();
    (count.get() >= others).then(these)
}

fn lies_over(one: &Run, other: &Run) -> bool {
    overlap(bounds(one), bounds(other)) >= OVERLAP_MIN
}

impl Inner {
    /// Makes runs candidates for the sake of order.
    pub(super) fn nominate(&self, numbers: &[u32], reason: u8) {
        let view = self.front.view.load();
        let runs = numbers.iter().filter_map(|number| view.version.find(*number));
        let fresh = runs.filter(|run| is_to_be_ordered(run) && run.nominate(reason)).count();
        if fresh > 0 {
            self.is_changed();
        }
    }

    /// Looks at the next window of the index.
    pub(super) fn scan_leaves(&self) -> Result<()> {
        let settings = &self.settings;
        let view = self.front.view.load_full();
        let count = to_u64(view.version.len());
        if settings.leaf_threshold == 0 || count <= to_u64(settings.leaf_threshold) {
            return Ok(());
        }
        let entries: u64 = view.version.iter().map(|run| run.entries()).sum();
        let window = (entries / count * settings.leaf_runs).clamp(1, WINDOW_KEYS_MAX);
        let mut from = lock(&self.scan_from);
        let start = std::mem::take(&mut *from);
        let mut ascent = ForwardScan::new(start.as_slice().max(FIRST_KEY).to_vec(), None);
        let (mut run, mut seen, mut keys) = (EntryRun::default(), BTreeSet::new(), 0);
        let mut last = None;
        while keys < window && !ascent.is_over {
            let step = to_usize(window - keys).min(SCAN_STEP);
            self.paged.tree.scan_forward(&mut ascent, (step, 1), &mut run)?;
            keys += to_u64(run.len());
            for (_, value) in (0..run.len()).filter_map(|index| run.entry(index)) {
                let number = Place::decode(value).map(|place| place.run);
                if number != last {
                    seen.extend(number);
                    last = number;
                }
            }
        }
        if !ascent.is_over {
            from.clone_from(&ascent.start);
        }
        if seen.len() > settings.leaf_threshold {
            self.nominate(&seen.into_iter().collect::<Vec<_>>(), LEAVES);
        }
        Ok(())
    }

    /// Nominates what can be seen without the index.
    fn look_at_runs(&self, runs: &[Arc<Run>]) {
        let settings = &self.settings;
        let is_wasteful = |run: &&Arc<Run>| run.live() * 100 < run.entries() * settings.live_ratio;
        for run in runs.iter().filter(is_wasteful) {
            run.nominate(DEAD);
        }
        let is_small = |run: &&Arc<Run>| run.sst.data_bytes() < settings.run_bytes / SMALL_SHARE;
        if runs.iter().filter(is_small).count() > SMALL_RUNS_MAX.min(settings.merge_runs * 2) {
            for run in runs.iter().filter(is_small) {
                run.nominate(SMALL);
            }
        }
    }

    /// The runs that are to be merged.
    pub(super) fn pick(&self) -> Option<Vec<Arc<Run>>> {
        let view = self.front.view.load_full();
        let runs: Vec<_> = view.version.iter().filter(|run| run.live() > 0).cloned().collect();
        self.look_at_runs(&runs);
        let picked = self.pick_candidates(&runs);
        if picked.is_some() || !view.is_unwritten() { picked } else { self.pick_at_rest(runs) }
    }

    /// Runs that are over one another, though these are too few to become candidates.
    fn pick_at_rest(&self, mut runs: Vec<Arc<Run>>) -> Option<Vec<Arc<Run>>> {
        if self.settings.leaf_threshold == 0 {
            return None;
        }
        runs.retain(|run| is_to_be_ordered(run));
        let mut picked = crowd(&runs, OTHERS_AT_REST)?;
        picked.truncate(self.settings.merge_runs);
        if picked.len() < self.settings.compaction_runs {
            return None;
        }
        for run in &picked {
            run.nominate(LEAVES);
        }
        Some(picked)
    }

    /// Of the runs that are candidates, those that are to be merged.
    fn pick_candidates(&self, runs: &[Arc<Run>]) -> Option<Vec<Arc<Run>>> {
        let candidates = runs.iter().filter(|run| run.reasons() != 0);
        let mut candidates: Vec<_> = candidates.cloned().collect();
        if candidates.len() < self.settings.compaction_runs {
            return None;
        }
        // The oldest first, of very many.
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
        // They follow one another in key order already.
        for run in &candidates {
            run.dismiss();
        }
        None
    }

    /// The candidate that overlaps the others most, with those that it overlaps.
    fn most_overlapping(&self, candidates: &[Arc<Run>]) -> Vec<Arc<Run>> {
        let share = |one: &Arc<Run>, other: &Arc<Run>| {
            if one.number == other.number { 0 } else { overlap(bounds(one), bounds(other)) }
        };
        let sum = |one: &Arc<Run>| candidates.iter().map(|other| share(one, other)).sum::<u64>();
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
