//! The keys that clients have read, with their readers.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// The numbers of clients, sorted.
pub(super) type Readers = Vec<u64>;

/// Memory of a key beside its bytes and its readers: two allocations with their heads, and a part
/// of a node.
const KEY_BYTES: u64 = 128;
/// Memory of a reader.
const READER_BYTES: u64 = 8;

/// Keys by namespace, with their readers.
#[derive(Debug, Default)]
pub(super) struct Table {
    namespaces: BTreeMap<u32, BTreeMap<Box<[u8]>, Readers>>,
    keys: usize,
    items: usize,
    bytes: u64,
    /// The key that was evicted last. The next one follows it in order, so that each key stays for
    /// a round.
    evicted: (u32, Box<[u8]>),
}

fn bytes_of(key: &[u8], readers: usize) -> u64 {
    let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
    KEY_BYTES + count(key.len()) + count(readers) * READER_BYTES
}

impl Table {
    /// Adds a reader of a key.
    pub(super) fn insert(&mut self, namespace: u32, key: &[u8], client: u64) {
        let keys = self.namespaces.entry(namespace).or_default();
        let Some(readers) = keys.get_mut(key) else {
            keys.insert(key.into(), vec![client]);
            self.keys += 1;
            self.items += 1;
            self.bytes += bytes_of(key, 1);
            return;
        };
        if let Err(at) = readers.binary_search(&client) {
            readers.insert(at, client);
            self.items += 1;
            self.bytes += READER_BYTES;
        }
    }

    /// Removes a key. Returns its readers.
    pub(super) fn remove(&mut self, namespace: u32, key: &[u8]) -> Option<Readers> {
        let keys = self.namespaces.get_mut(&namespace)?;
        let readers = keys.remove(key)?;
        if keys.is_empty() {
            self.namespaces.remove(&namespace);
        }
        self.keys -= 1;
        self.items -= readers.len();
        self.bytes -= bytes_of(key, readers.len());
        Some(readers)
    }

    /// Removes all keys of a namespace. Returns their readers.
    pub(super) fn clear(&mut self, namespace: u32) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for (key, readers) in self.namespaces.remove(&namespace).unwrap_or_default() {
            self.keys -= 1;
            self.items -= readers.len();
            self.bytes -= bytes_of(&key, readers.len());
            all.extend(readers);
        }
        all
    }

    /// Whether the table has more keys or bytes than its limits; 0 is no limit.
    pub(super) fn is_above(&self, keys_max: u64, bytes_max: u64) -> bool {
        let keys = u64::try_from(self.keys).unwrap_or(u64::MAX);
        (keys_max > 0 && keys > keys_max) || (bytes_max > 0 && self.bytes > bytes_max)
    }

    /// Removes a key: the one that follows the last evicted one. Returns it with its readers.
    pub(super) fn evict(&mut self) -> Option<(Box<[u8]>, Readers)> {
        let (namespace, last) = &self.evicted;
        let behind = (Bound::Excluded(last.as_ref()), Bound::Unbounded);
        let next = self
            .namespaces
            .get(namespace)
            .and_then(|keys| keys.range::<[u8], _>(behind).next())
            .map(|(key, _)| (*namespace, key.clone()));
        let first_of = |(namespace, keys): (&u32, &BTreeMap<Box<[u8]>, Readers>)| {
            Some((*namespace, keys.first_key_value()?.0.clone()))
        };
        let others = (Bound::Excluded(*namespace), Bound::Unbounded);
        let found = next
            .or_else(|| self.namespaces.range(others).next().and_then(first_of))
            .or_else(|| self.namespaces.first_key_value().and_then(first_of))?;
        self.evicted.clone_from(&found);
        let (namespace, key) = found;
        let readers = self.remove(namespace, &key)?;
        Some((key, readers))
    }

    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Number of readers of all keys.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Memory, estimated.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_keys() {
        let mut table = Table::default();
        for number in 0..1000_u32 {
            let key = (number * 7 % 300).to_string();
            table.insert(number % 3, key.as_bytes(), u64::from(number % 5));
        }
        let all = || (0..3_u32).flat_map(|namespace| (0..300).map(move |key| (namespace, key)));
        let (mut keys, mut items) = (0, 0);
        let (total_keys, total_items) = (table.keys(), table.items());
        for (namespace, key) in all() {
            if let Some(readers) = table.remove(namespace, key.to_string().as_bytes()) {
                assert!(readers.is_sorted());
                keys += 1;
                items += readers.len();
            }
        }
        assert_eq!((keys, items), (total_keys, total_items));
        assert_eq!((table.keys(), table.items(), table.bytes()), (0, 0, 0));
    }

    #[test]
    fn evictions_go_around() {
        let mut table = Table::default();
        for (namespace, key) in [(0, "a"), (0, "b"), (3, "a"), (3, "c")] {
            table.insert(namespace, key.as_bytes(), 1);
        }
        let mut evict = || table.evict().map(|(key, _)| String::from_utf8_lossy(&key).into_owned());
        assert_eq!([evict(), evict(), evict()].map(Option::unwrap), ["a", "b", "a"]);
        table.insert(0, b"b", 2);
        let mut evict = || table.evict().map(|(key, _)| String::from_utf8_lossy(&key).into_owned());
        assert_eq!([evict(), evict()].map(Option::unwrap), ["c", "b"]);
        assert_eq!(table.evict(), None);
        assert_eq!(table.bytes(), 0);
        table.insert(1, b"x", 7);
        assert!(table.is_above(0, 10) && !table.is_above(1, 0) && !table.is_above(0, 0));
        assert_eq!(table.clear(1), BTreeSet::from([7]));
        assert_eq!((table.keys(), table.items(), table.bytes()), (0, 0, 0));
    }
}
