//! Prefixes of clients in broadcast mode.
//!
//! A change looks for each length that a prefix has, so it costs time in proportion to the
//! different lengths, not to the prefixes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// Two prefixes of a client with a key in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// A new one and one that the client has.
    Existing(Vec<u8>, Vec<u8>),
    /// Two new ones.
    Provided(Vec<u8>, Vec<u8>),
}

/// A prefix of some client, and the id of a namespace.
type PrefixIn<'p> = (&'p [u8], u32);

/// All prefixes with their clients.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    clients: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// The lengths of the prefixes, each with the number of prefixes.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    /// Adds a client of a prefix.
    pub(super) fn add(&mut self, prefix: &[u8], client: u64) {
        if !self.clients.contains_key(prefix) {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        self.clients.entry(prefix.to_vec()).or_default().insert(client);
    }

    /// Removes a client of a prefix.
    pub(super) fn remove(&mut self, prefix: &[u8], client: u64) {
        let Some(clients) = self.clients.get_mut(prefix) else { return };
        clients.remove(&client);
        if !clients.is_empty() {
            return;
        }
        self.clients.remove(prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    /// Number of prefixes.
    pub(super) fn count(&self) -> usize {
        self.clients.len()
    }

    /// The clients of a prefix.
    pub(super) fn clients(&self, prefix: &[u8]) -> impl Iterator<Item = &u64> {
        self.clients.get(prefix).into_iter().flatten()
    }

    /// The prefixes of some of the keys, each with these keys in order and without duplicates.
    pub(super) fn select<'p>(
        &self,
        keys: &[(u32, &'p [u8])],
    ) -> BTreeMap<PrefixIn<'p>, BTreeSet<&'p [u8]>> {
        let mut found: BTreeMap<PrefixIn<'p>, BTreeSet<&'p [u8]>> = BTreeMap::new();
        for (namespace, key) in keys {
            for length in self.lengths.range(..=key.len()).map(|(length, _)| *length) {
                let prefix = key.get(..length).unwrap_or(key);
                if self.clients.contains_key(prefix) {
                    found.entry((prefix, *namespace)).or_default().insert(key);
                }
            }
        }
        found
    }
}

/// A prefix of the set that begins with `prefix`, or that `prefix` begins with. Apart from the
/// empty one, no two of the set may overlap. Then one that `prefix` begins with is the last one
/// before it.
fn overlapping<'p>(set: &'p BTreeSet<Vec<u8>>, prefix: &[u8]) -> Option<&'p Vec<u8>> {
    if let Some(empty) = set.get::<[u8]>(b"") {
        return Some(empty);
    }
    let up_to = (Bound::Unbounded, Bound::Included(prefix));
    let before = set.range::<[u8], _>(up_to).next_back();
    let behind = set.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded)).next();
    let before = before.filter(|own| prefix.starts_with(own));
    before.or_else(|| behind.filter(|own| own.starts_with(prefix)))
}

/// Two prefixes that overlap, of which one is new. `existing` is a set of
/// [`overlapping`].
pub(super) fn overlap(existing: &BTreeSet<Vec<u8>>, new: &[&[u8]]) -> Option<Overlap> {
    let mut provided = BTreeSet::new();
    for prefix in new {
        if let Some(own) = overlapping(existing, prefix) {
            return Some(Overlap::Existing(prefix.to_vec(), own.clone()));
        }
        if let Some(own) = overlapping(&provided, prefix) {
            return Some(Overlap::Provided(own.clone(), prefix.to_vec()));
        }
        provided.insert(prefix.to_vec());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found() {
        let existing: BTreeSet<Vec<u8>> =
            ["a", "b:", "b;x", "c:1"].map(|own| own.as_bytes().to_vec()).into();
        for (new, expected) in [
            ("b", Some("b:")),
            ("b:9", Some("b:")),
            ("a", Some("a")),
            ("ab:z", Some("a")),
            ("", Some("a")),
            ("c", Some("c:1")),
            ("c:10", Some("c:1")),
            ("b;", Some("b;x")),
            ("b;y", None),
            ("c:0", None),
            ("d", None),
        ] {
            let found = overlapping(&existing, new.as_bytes()).map(Vec::as_slice);
            assert_eq!(found, expected.map(str::as_bytes), "{new}");
        }
        let with_empty: BTreeSet<Vec<u8>> = [b"".to_vec(), b"c".to_vec()].into();
        assert_eq!(overlapping(&with_empty, b"x"), Some(&Vec::new()));
        let new = [b"x".as_slice(), b"y", b"xy"];
        let expected = Overlap::Provided(b"x".to_vec(), b"xy".to_vec());
        assert_eq!(overlap(&existing, &new), Some(expected));
        assert_eq!(overlap(&existing, &new[..2]), None);
    }

    #[test]
    fn keys_are_selected_by_their_prefixes() {
        let mut prefixes = Prefixes::default();
        for (prefix, client) in [("", 1), ("a:", 2), ("a:", 3), ("a:b:", 4), ("z", 5)] {
            prefixes.add(prefix.as_bytes(), client);
        }
        assert_eq!(prefixes.count(), 4);
        let keys: [(u32, &[u8]); 4] = [(0, b"a:b:c"), (0, b"q"), (0, b"a:b:c"), (7, b"a:")];
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let found: Vec<String> = prefixes
            .select(&keys)
            .into_iter()
            .map(|((prefix, namespace), keys)| {
                let keys: Vec<String> = keys.into_iter().map(shown).collect();
                format!("{namespace} {}: {}", shown(prefix), keys.join(" "))
            })
            .collect();
        let expected = ["0 : a:b:c q", "7 : a:", "0 a:: a:b:c", "7 a:: a:", "0 a:b:: a:b:c"];
        assert_eq!(found, expected);
        assert_eq!(prefixes.clients(b"a:").collect::<Vec<_>>(), [&2, &3]);
        for (prefix, client) in [("", 1), ("a:", 2), ("a:", 3), ("a:b:", 4), ("z", 5)] {
            prefixes.remove(prefix.as_bytes(), client);
        }
        assert_eq!(prefixes.count(), 0);
        assert!(prefixes.lengths.is_empty());
    }
}
