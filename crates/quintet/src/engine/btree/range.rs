//! Range iterators, from both ends.
//!
//! Invariants: keys fetched from the front are below all keys that the back may still fetch, and
//! vice versa. Between two steps an iterator holds no lock, latch or pin.

use std::{ops::Range, sync::Arc, vec};

use super::state::{BTreeState, entry_of};
use crate::{
    Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    contract::{Entry, KeyRange, Visit},
    util::mutant::mutant,
};

/// Number of entries of the first step. Each further step copies twice as many, up to `STEP_MAX`
/// and one leaf.
const FIRST_STEP: usize = 16;
const STEP_MAX: usize = 1024;
/// Maximum number of leaves that a scan reads ahead; the first steps read fewer.
pub(super) const AHEAD_MAX: isize = 32;

/// The size of the next step: entries to copy, and leaves to read ahead.
#[derive(Debug)]
struct StepSize {
    step: usize,
    ahead: isize,
}

impl StepSize {
    const START: Self = Self { step: FIRST_STEP, ahead: 0 };

    fn next(&mut self) -> (usize, isize) {
        let (step, ahead) = (self.step, self.ahead);
        self.step = (step * 2).min(STEP_MAX);
        self.ahead = (ahead * 2 + 1).min(AHEAD_MAX);
        (step, ahead)
    }
}

/// See [`crate::contract::OrderedEngine::visit`].
pub(super) fn visit(inner: &BTreeState, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let mut scan = ForwardScan::new(range.start.unwrap_or_default(), range.end);
    let (mut run, mut step_size) = (EntryRun::default(), StepSize::START);
    while !scan.is_over {
        inner.scan_forward(&mut scan, step_size.next(), &mut run)?;
        for (key, stored) in (0..run.len()).filter_map(|index| run.entry(index)) {
            if each(key, stored)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A range iterator. See the module documentation.
#[derive(Debug)]
pub(super) struct BTreeRange {
    inner: Arc<BTreeState>,
    /// The position of the front. Its end is the smallest key that the back has fetched, or the
    /// range's end.
    scan: ForwardScan,
    /// Entries fetched by the front, ascending, and the part that is not returned yet.
    front: EntryRun,
    front_left: Range<usize>,
    /// Entries fetched by the back, descending.
    back: vec::IntoIter<Entry>,
    step_size: StepSize,
}

impl BTreeRange {
    pub(super) fn new(inner: Arc<BTreeState>, range: KeyRange) -> Self {
        let scan = ForwardScan::new(range.start.unwrap_or_default(), range.end);
        let (front, back) = (EntryRun::default(), vec::IntoIter::default());
        Self { inner, scan, front, front_left: 0..0, back, step_size: StepSize::START }
    }

    fn fetch_front(&mut self) -> Result<()> {
        while self.front_left.is_empty() && !self.scan.is_over {
            self.inner.scan_forward(&mut self.scan, self.step_size.next(), &mut self.front)?;
            self.front_left = 0..self.front.len();
            mutant!(ScanSkipsAnEntry => self.front_left.start = usize::from(self.front.len() > 1));
        }
        Ok(())
    }

    fn fetch_back(&mut self) -> Result<()> {
        while self.back.as_slice().is_empty() && !self.scan.is_over {
            let step = self.step_size.next();
            let range = (&*self.scan.start, self.scan.end.as_deref());
            let (entries, next) = self.inner.scan_reverse(range, step)?;
            self.back = entries.into_iter();
            match next {
                Some(next) => self.scan.end = Some(next),
                None => self.scan.is_over = true,
            }
        }
        Ok(())
    }

    fn front_entry(&self, index: Option<usize>) -> Option<Result<Entry>> {
        self.front.entry(index?).map(entry_of).map(Ok)
    }
}

impl Iterator for BTreeRange {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fetch_front() {
            self.scan.is_over = true;
            return Some(Err(error));
        }
        let index = self.front_left.next();
        self.front_entry(index).or_else(|| self.back.next_back().map(Ok))
    }
}

impl DoubleEndedIterator for BTreeRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fetch_back() {
            self.scan.is_over = true;
            return Some(Err(error));
        }
        if let Some(entry) = self.back.next() {
            return Some(Ok(entry));
        }
        let index = self.front_left.next_back();
        self.front_entry(index)
    }
}
