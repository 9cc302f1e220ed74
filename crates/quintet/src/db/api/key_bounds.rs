//! Ranges of keys: Rust ranges over bytes or text as arguments.
//!
//! Problem: engines and log records take an inclusive start and an exclusive end.
//! How: [`after`] returns the first key above a bound, so every bound is a valid key.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::{contract::KeyRange, db::limits::KEY_BYTES_MAX};

/// A range of keys: any Rust range over bytes or text (`b"a"..b"b"`, `"a"..="b"`, `..`), or a pair
/// of [`Bound`]s.
pub trait KeyBounds {
    /// Converts to owned bounds.
    fn into_key_range(self) -> KeyRange;
}

/// Returns the first key greater than `key` that a table can hold. `None` if there is none.
fn after(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() < KEY_BYTES_MAX {
        return Some([key, &[0]].concat());
    }
    // A greater key that starts with `key` would be longer than the maximum.
    end_of_prefix(key)
}

/// Returns the first key that is greater than every key with this prefix. `None` if there is none.
fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

fn key_range<K: AsRef<[u8]>>(start: Bound<K>, end: Bound<K>) -> KeyRange {
    let start = match start {
        Bound::Included(key) => Some(key.as_ref().to_vec()),
        Bound::Excluded(key) => match after(key.as_ref()) {
            None => return KeyRange { start: None, end: Some(Vec::new()) },
            start => start,
        },
        Bound::Unbounded => None,
    };
    let end = match end {
        Bound::Included(key) => after(key.as_ref()),
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Unbounded => None,
    };
    KeyRange { start, end }
}

impl<K: AsRef<[u8]>> KeyBounds for Range<K> {
    fn into_key_range(self) -> KeyRange {
        key_range(Bound::Included(self.start), Bound::Excluded(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeInclusive<K> {
    fn into_key_range(self) -> KeyRange {
        let (start, end) = self.into_inner();
        key_range(Bound::Included(start), Bound::Included(end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeFrom<K> {
    fn into_key_range(self) -> KeyRange {
        key_range(Bound::Included(self.start), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeTo<K> {
    fn into_key_range(self) -> KeyRange {
        key_range(Bound::Unbounded, Bound::Excluded(self.end))
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeToInclusive<K> {
    fn into_key_range(self) -> KeyRange {
        key_range(Bound::Unbounded, Bound::Included(self.end))
    }
}

impl KeyBounds for RangeFull {
    fn into_key_range(self) -> KeyRange {
        KeyRange::default()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn into_key_range(self) -> KeyRange {
        key_range(self.0, self.1)
    }
}

impl KeyBounds for KeyRange {
    fn into_key_range(self) -> KeyRange {
        self
    }
}

impl KeyRange {
    /// Returns the range of the keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Some(prefix.to_vec()), end: end_of_prefix(prefix) }
    }

    /// Returns whether no key can be in the range.
    pub(super) fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (_, Some(end)) if end.is_empty() => true,
            (Some(start), Some(end)) => start >= end,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(range: impl KeyBounds) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let range = range.into_key_range();
        (range.start, range.end)
    }

    #[test]
    fn every_kind_of_range_is_understood() {
        let some = |key: &[u8]| Some(key.to_vec());
        assert_eq!(bounds(b"a"..b"b"), (some(b"a"), some(b"b")));
        assert_eq!(bounds("a"..="b"), (some(b"a"), some(b"b\0")));
        assert_eq!(bounds(vec![1]..), (some(&[1]), None));
        assert_eq!(bounds(..b"b".as_slice()), (None, some(b"b")));
        assert_eq!(bounds(..="b"), (None, some(b"b\0")));
        assert_eq!(bounds(..), (None, None));
        let pair = (Bound::Excluded("a"), Bound::Unbounded);
        assert_eq!(bounds(pair), (some(b"a\0"), None));
    }

    #[test]
    fn the_end_of_a_prefix_skips_the_highest_bytes() {
        let end = |prefix: &[u8]| KeyRange::prefix(prefix).end;
        assert_eq!(end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end(b"\xff"), None);
        assert_eq!(end(b""), None);
    }

    #[test]
    fn a_bound_beside_a_key_of_maximum_length_is_a_valid_key() {
        let longest = |last: u8| [&vec![b'k'; KEY_BYTES_MAX - 1][..], &[last]].concat();
        assert_eq!(bounds(..=longest(b'a')), (None, Some(longest(b'b'))));
        let pair = (Bound::Excluded(longest(b'a')), Bound::Unbounded);
        assert_eq!(bounds(pair), (Some(longest(b'b')), None));
        let mut carried = vec![b'k'; KEY_BYTES_MAX - 1];
        carried[KEY_BYTES_MAX - 2] = b'l';
        assert_eq!(bounds(..=longest(0xff)), (None, Some(carried)));
        let last = vec![0xff; KEY_BYTES_MAX];
        assert_eq!(bounds(..=&last), (None, None));
        assert!((Bound::Excluded(&last), Bound::Unbounded).into_key_range().is_empty());
    }

    #[test]
    fn ranges_without_keys_are_known() {
        assert!((b"b"..b"a").into_key_range().is_empty());
        assert!((.."").into_key_range().is_empty());
        assert!(!(b"a"..).into_key_range().is_empty());
    }
}
