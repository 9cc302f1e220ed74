//! Ranges of keys: Rust ranges over bytes or text as arguments.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::contract::KeyRange;

/// A range of keys: any Rust range over bytes or text (`b"a"..b"b"`, `"a"..="b"`, `..`), or a pair
/// of [`Bound`]s.
pub trait KeyBounds {
    /// Converts to owned bounds.
    fn into_key_range(self) -> KeyRange;
}

/// Returns the first key greater than `key`.
fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn key_range<K: AsRef<[u8]>>(start: Bound<K>, end: Bound<K>) -> KeyRange {
    KeyRange {
        start: match start {
            Bound::Included(key) => Some(key.as_ref().to_vec()),
            Bound::Excluded(key) => Some(after(key.as_ref())),
            Bound::Unbounded => None,
        },
        end: match end {
            Bound::Included(key) => Some(after(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        },
    }
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
        let end = prefix.iter().rposition(|byte| *byte != u8::MAX).map(|last| {
            let mut end = prefix.get(..=last).unwrap_or(prefix).to_vec();
            if let Some(byte) = end.last_mut() {
                *byte += 1;
            }
            end
        });
        Self { start: Some(prefix.to_vec()), end }
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
    fn ranges_without_keys_are_known() {
        assert!((b"b"..b"a").into_key_range().is_empty());
        assert!((.."").into_key_range().is_empty());
        assert!(!(b"a"..).into_key_range().is_empty());
    }
}
