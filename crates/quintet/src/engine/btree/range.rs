//! Iterators over a range, from both ends.
//!
//! Invariants: what the front has fetched lies below what the back may still fetch, and the other
//! way round; a step of an iterator holds nothing of the table.

use std::{sync::Arc, vec};

use super::{Inner, make_entry, make_value};
use crate::{
    Result,
    engine::{Entry, KeyRange},
    seeded::{self, Bug},
};

/// Entries of the first step; each further step takes twice as many, as far as a leaf has them.
const FIRST_STEP: usize = 16;
const STEP_MAX: usize = 1024;
/// Leaves that a scan reads from the disk at once; the first steps read fewer.
const AHEAD_MAX: isize = 32;

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
    front: vec::IntoIter<Entry>,
    /// Fetched by the back, descending.
    back: vec::IntoIter<Entry>,
    step: usize,
    ahead: isize,
}

impl Range {
    pub(super) fn new(inner: Arc<Inner>, range: KeyRange) -> Self {
        let start = range.start.unwrap_or_default();
        let empty = range.end.as_ref().is_some_and(|end| *end <= start);
        let (front, back) = (vec::IntoIter::default(), vec::IntoIter::default());
        let (step, ahead) = (FIRST_STEP, 0);
        Self { inner, start, end: range.end, empty, front, back, step, ahead }
    }

    /// Entries of the next step, and leaves to read ahead.
    fn next_step(&mut self) -> (usize, isize) {
        let (step, ahead) = (self.step, self.ahead);
        self.step = (step * 2).min(STEP_MAX);
        self.ahead = (ahead * 2 + 1).min(AHEAD_MAX);
        (step, ahead)
    }

    fn fetch_front(&mut self) -> Result<()> {
        while self.front.as_slice().is_empty() && !self.empty {
            let step = self.next_step();
            let range = (&*self.start, self.end.as_deref());
            let found = self.inner.tree.scan_up(range, step, make_value, make_entry)?;
            self.front = found.entries.into_iter();
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
        while self.back.as_slice().is_empty() && !self.empty {
            let step = self.next_step();
            let range = (self.end.as_deref(), Some(&*self.start));
            let found = self.inner.tree.scan_down(range, step, make_value, make_entry)?;
            self.back = found.entries.into_iter();
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
        self.front.next().or_else(|| self.back.next_back()).map(Ok)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fetch_back() {
            self.empty = true;
            return Some(Err(error));
        }
        self.back.next().or_else(|| self.front.next_back()).map(Ok)
    }
}
