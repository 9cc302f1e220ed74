//! The part of a range that a scan from both ends has not returned yet.

use std::sync::Arc;

use super::empty_ranges::ScanBound;
use crate::contract::{Direction, KeyRange};

/// The part of a range that neither end has returned.
#[derive(Debug)]
pub(crate) struct RemainingRange {
    /// First key.
    pub(crate) start: Vec<u8>,
    /// First key past the range; `None` is unbounded.
    pub(crate) end: Option<Vec<u8>>,
}

impl RemainingRange {
    pub(crate) fn new(range: KeyRange) -> Self {
        Self { start: range.start.unwrap_or_default(), end: range.end }
    }

    /// Returns whether the range can have no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns the bound at which a cursor of this direction begins.
    pub(crate) fn first_key(&self, direction: Direction) -> Option<Arc<[u8]>> {
        match direction {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        }
    }

    /// Returns whether a key that a cursor of this direction has reached is in the range.
    #[inline]
    pub(crate) fn contains(&self, direction: Direction, key: &[u8]) -> bool {
        match direction {
            Direction::Up => self.end.as_deref().is_none_or(|end| key < end),
            Direction::Down => key >= self.start.as_slice(),
        }
    }

    /// Removes a key and the keys that a cursor of this direction has passed.
    pub(crate) fn remove_to(&mut self, direction: Direction, key: &[u8]) {
        let bound = match direction {
            Direction::Up => &mut self.start,
            Direction::Down => self.end.get_or_insert_default(),
        };
        bound.clear();
        bound.extend_from_slice(key);
        if direction == Direction::Up {
            // The first key above it.
            bound.push(0);
        }
    }

    /// Returns the bound at which a scan of this direction continues.
    pub(crate) fn bound(&self, direction: Direction) -> Option<&[u8]> {
        match direction {
            Direction::Up => Some(&self.start),
            Direction::Down => self.end.as_deref(),
        }
    }

    /// Moves the bound of a scan over keys without a value. Returns whether any of the range is
    /// left.
    pub(crate) fn continue_at(&mut self, direction: Direction, bound: ScanBound) -> bool {
        match (direction, bound) {
            (Direction::Up, None) => return false,
            (Direction::Up, Some(start)) => self.start = start,
            (Direction::Down, end) => self.end = end,
        }
        !self.is_empty()
    }
}
