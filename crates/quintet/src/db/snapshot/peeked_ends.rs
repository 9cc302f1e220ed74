//! Entries of an iterator that are read before they are returned, at each end: for merges.

use crate::{Result, contract::Direction};

/// A double-ended iterator whose next entry can be looked at.
pub(crate) struct PeekedEnds<I, T> {
    entries: I,
    front: Option<T>,
    back: Option<T>,
}

impl<I: DoubleEndedIterator<Item = Result<T>>, T> PeekedEnds<I, T> {
    pub(crate) fn new(entries: I) -> Self {
        Self { entries, front: None, back: None }
    }

    /// Returns the iterator.
    pub(crate) fn iterator_mut(&mut self) -> &mut I {
        &mut self.entries
    }

    /// Reads the next entry from the front (`Up`) or from the back, unless it is read already.
    pub(crate) fn peek(&mut self, direction: Direction) -> Result<Option<&T>> {
        let Self { entries, front, back } = self;
        let (near, far) = match direction {
            Direction::Up => (front, back),
            Direction::Down => (back, front),
        };
        if near.is_none() {
            let next = match direction {
                Direction::Up => entries.next(),
                Direction::Down => entries.next_back(),
            };
            // The last entry may have been read from the other end.
            *near = next.transpose()?.or_else(|| far.take());
        }
        Ok(near.as_ref())
    }

    /// Takes the entry that [`PeekedEnds::peek`] has returned.
    pub(crate) fn take(&mut self, direction: Direction) -> Option<T> {
        match direction {
            Direction::Up => self.front.take(),
            Direction::Down => self.back.take(),
        }
    }
}
