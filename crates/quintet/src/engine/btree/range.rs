//! Iterators over a range, from both ends.
//!
//! Invariants: what the front has fetched lies below what the back may still fetch, and the other
//! way round; a step of an iterator holds nothing of the table.

use std::{collections::VecDeque, sync::Arc};

use super::{Inner, make_value};
use crate::{
    Result,
    engine::{Entry, KeyRange},
    seeded::{self, Bug},
};

/// Entries of the first step; each further step takes twice as many, as far as a leaf has them.
const FIRST_STEP: usize = 16;
const STEP_MAX: usize = 1024;

/// See the module head.
#[derive(Debug)]
pub(super) struct Range {
    inner: Arc<Inner>,
    /// The first key that the front has not fetched.
    start: Vec<u8>,
    /// The first key that the back has fetched, or the range's end.
    end: Option<Vec<u8>>,
    /// Nothing is left between `start` and `end`.
    empty: bool,
    /// Fetched by the front, ascending.
    front: VecDeque<Entry>,
    /// Fetched by the back, ascending.
    back: VecDeque<Entry>,
    step: usize,
}

impl Range {
    pub(super) fn new(inner: Arc<Inner>, range: KeyRange) -> Self {
        let start = range.start.unwrap_or_default();
        let empty = range.end.as_ref().is_some_and(|end| *end <= start);
        let (front, back) = (VecDeque::new(), VecDeque::new());
        Self { inner, start, end: range.end, empty, front, back, step: FIRST_STEP }
    }

    fn next_step(&mut self) -> usize {
        let step = self.step;
        self.step = (step * 2).min(STEP_MAX);
        step
    }

    fn fetch_front(&mut self) -> Result<()> {
        while self.front.is_empty() && !self.empty {
            let step = self.next_step();
            let found =
                self.inner.tree.scan_up(&self.start, self.end.as_deref(), step, make_value)?;
            let entries = found.entries.into_iter().map(|(key, value)| Entry { key, value });
            self.front.extend(entries);
            match found.next {
                Some(mut next) => {
                    if seeded::active(Bug::ScanSkipsAnEntry) {
                        next.push(0xff);
                    }
                    self.start = next;
                }
                None => self.empty = true,
            }
        }
        Ok(())
    }

    fn fetch_back(&mut self) -> Result<()> {
        while self.back.is_empty() && !self.empty {
            let step = self.next_step();
            let found = self.inner.tree.scan_down(
                self.end.as_deref(),
                Some(&self.start),
                step,
                make_value,
            )?;
            for (key, value) in found.entries {
                self.back.push_front(Entry { key, value });
            }
            match found.next {
                Some(next) => self.end = Some(next),
                None => self.empty = true,
            }
        }
        Ok(())
    }
}

impl Iterator for Range {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fetch_front() {
            self.empty = true;
            return Some(Err(error));
        }
        self.front.pop_front().or_else(|| self.back.pop_front()).map(Ok)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fetch_back() {
            self.empty = true;
            return Some(Err(error));
        }
        self.back.pop_back().or_else(|| self.front.pop_back()).map(Ok)
    }
}
