//! Keys of a large ordered map: compared by their first 16 bytes, which are stored inline.
//!
//! Why: a search in a map of a million entries takes some thirty comparisons. With the key bytes
//! elsewhere, nearly each would wait for memory.

use std::{borrow::Borrow, cmp::Ordering as Order};

/// A key that is ordered as a byte string.
pub(super) trait OrderedKey {
    /// Returns its first sixteen bytes as a big-endian number, padded with zeros.
    fn head(&self) -> u128;
    /// Returns the whole key.
    fn bytes(&self) -> &[u8];
}

/// The key of an entry.
#[derive(Debug)]
pub(crate) struct ReplayKey {
    head: u128,
    pub(crate) bytes: Box<[u8]>,
}

/// A key to search for.
pub(super) struct SearchKey<'k> {
    head: u128,
    bytes: &'k [u8],
}

fn head_of(key: &[u8]) -> u128 {
    let mut head = [0; 16];
    head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u128::from_be_bytes(head)
}

impl From<&[u8]> for ReplayKey {
    fn from(key: &[u8]) -> Self {
        Self { head: head_of(key), bytes: key.into() }
    }
}

impl<'k> SearchKey<'k> {
    pub(super) fn new(bytes: &'k [u8]) -> Self {
        Self { head: head_of(bytes), bytes }
    }
}

impl OrderedKey for ReplayKey {
    fn head(&self) -> u128 {
        self.head
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl OrderedKey for SearchKey<'_> {
    fn head(&self) -> u128 {
        self.head
    }

    fn bytes(&self) -> &[u8] {
        self.bytes
    }
}

impl<'k> Borrow<dyn OrderedKey + 'k> for ReplayKey {
    fn borrow(&self) -> &(dyn OrderedKey + 'k) {
        self
    }
}

fn order(one: (u128, &[u8]), other: (u128, &[u8])) -> Order {
    one.0.cmp(&other.0).then_with(|| one.1.cmp(other.1))
}

impl Ord for dyn OrderedKey + '_ {
    fn cmp(&self, other: &Self) -> Order {
        order((self.head(), self.bytes()), (other.head(), other.bytes()))
    }
}

impl PartialOrd for dyn OrderedKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn OrderedKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for dyn OrderedKey + '_ {}

impl Ord for ReplayKey {
    fn cmp(&self, other: &Self) -> Order {
        order((self.head, &self.bytes), (other.head, &other.bytes))
    }
}

impl PartialOrd for ReplayKey {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReplayKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for ReplayKey {}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_byte_strings() {
        let long = [7; 40];
        let mut keys: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"a\0\0b",
            b"b",
            &long,
            &long[..16],
            &long[..17],
            b"\xff",
        ];
        keys.sort_unstable();
        let ordered = |one: &[u8], other: &[u8]| {
            let sought: &dyn OrderedKey = &SearchKey::new(one);
            let (key, other) = (ReplayKey::from(one), ReplayKey::from(other));
            assert_eq!(sought.cmp(other.borrow()), key.cmp(&other));
            key.cmp(&other)
        };
        for (at, one) in keys.iter().enumerate() {
            for (behind, other) in keys.iter().enumerate() {
                assert_eq!(ordered(one, other), at.cmp(&behind), "{one:?} {other:?}");
            }
        }
    }
}
