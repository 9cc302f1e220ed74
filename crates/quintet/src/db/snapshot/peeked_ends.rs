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

    /// Takes the next entry from the front (`Up`) or from the back.
    #[inline]
    pub(crate) fn next(&mut self, direction: Direction) -> Result<Option<T>> {
        let near = match direction {
            Direction::Up => &mut self.front,
            Direction::Down => &mut self.back,
        };
        if near.is_some() {
            return Ok(near.take());
        }
        let (next, far) = match direction {
            Direction::Up => (self.entries.next(), &mut self.back),
            Direction::Down => (self.entries.next_back(), &mut self.front),
        };
        match next {
            Some(entry) => entry.map(Some),
            // The last entry may have been read from the other end.
            None => Ok(far.take()),
        }
    }

    /// Takes back the entry that [`PeekedEnds::next`] returned last in this direction.
    pub(crate) fn put_back(&mut self, direction: Direction, entry: T) {
        match direction {
            Direction::Up => self.front = Some(entry),
            Direction::Down => self.back = Some(entry),
        }
    }

    /// Reads the next entry from the front (`Up`) or from the back, unless it is read already.
    pub(crate) fn peek(&mut self, direction: Direction) -> Result<Option<&T>> {
        if let Some(entry) = self.next(direction)? {
            self.put_back(direction, entry);
        }
        Ok(match direction {
            Direction::Up => self.front.as_ref(),
            Direction::Down => self.back.as_ref(),
        })
    }

    /// Takes the entry that [`PeekedEnds::peek`] has returned.
    pub(crate) fn take(&mut self, direction: Direction) -> Option<T> {
        match direction {
            Direction::Up => self.front.take(),
            Direction::Down => self.back.take(),
        }
    }
}
