use std::{cell::Cell, collections::BTreeMap};

use super::*;
use crate::util::mutant::{Bug, finds};

fn list(bytes: u64) -> SkipList<Region> {
    SkipList::new(Region::reserve(bytes).unwrap(), Region::reserve(bytes / 64).unwrap())
}

/// A hash with collisions: some keys share the hash, others the bucket or the print.
fn hash_of(key: &[u8]) -> u64 {
    let sum =
        key.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    (sum % 701).wrapping_mul(0x0123_4567_89ab_cdef)
}

fn version_of<'a>(key: &'a [u8], version: u64, kind: u8, value: &[&'a [u8]]) -> KeyVersion<'a> {
    let sst = |index| value.get(index).copied().unwrap_or_default();
    KeyVersion { key, hash: hash_of(key), number: version, kind, ssts: [sst(0), sst(1)] }
}

fn insert(
    list: &SkipList<Region>,
    key: &[u8],
    version: u64,
    kind: u8,
    value: &[&[u8]],
) -> InsertOutcome {
    list.insert(&version_of(key, version, kind, value))
}

fn get(list: &SkipList<Region>, key: &[u8]) -> Option<Node> {
    list.get(key, hash_of(key))
}

fn key_of(list: &SkipList<Region>, node: Node) -> Vec<u8> {
    let mut key = Vec::new();
    list.copy_key(node, &mut key);
    key
}

fn value_of(list: &SkipList<Region>, node: Node) -> Vec<u8> {
    let mut value = vec![0; list.value_bytes(node)];
    list.copy_value(node, &mut value);
    value
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Returns a key; keys share prefixes, end in zeros, and have many lengths.
fn key(random: &mut Random) -> Vec<u8> {
    let length = 1 + random.below(20);
    (0..length).map(|_| low_u8(random.below(3) * 127)).collect()
}

#[test]
fn agrees_with_a_map_both_ways() {
    let list = list(8 << 20);
    let mut random = Random(0x5eed);
    let mut model: BTreeMap<Vec<u8>, (u64, Vec<u8>)> = BTreeMap::new();
    for version in 1..8000 {
        let key = key(&mut random);
        let value = vec![low_u8(version); to_usize(random.below(40))];
        let (front, back) = value.split_at(value.len() / 3);
        let inserted = insert(&list, &key, version, 3, &[front, back]);
        let again = model.insert(key, (version, value)).is_some();
        assert_eq!(inserted, if again { InsertOutcome::Again } else { InsertOutcome::New });
        // Orders one, few and many nodes at a time.
        if version % 97 == 0 || version < 20 {
            let above = model.keys().nth(model.len() / 2);
            assert_eq!(list.seek(above.unwrap()).map(|node| key_of(&list, node)), above.cloned());
        }
    }
    let mut node = list.seek(b"");
    for (key, (version, value)) in &model {
        let found = node.unwrap();
        assert_eq!((&key_of(&list, found), list.version(found)), (key, *version));
        assert_eq!((&value_of(&list, found), list.kind(found)), (value, 3));
        assert_eq!(get(&list, key), node);
        node = list.next_key(found, &key_of(&list, found));
    }
    assert_eq!(node, None);
    let mut before = None;
    for key in model.keys().rev() {
        let found = list.seek_before(before.map(Vec::as_slice)).unwrap();
        assert_eq!((&key_of(&list, found), list.version(found)), (key, model[key].0));
        before = Some(key);
    }
    for _ in 0..5000 {
        let key = key(&mut random);
        let above = model.range(key.clone()..).next().map(|(key, _)| key.clone());
        assert_eq!(list.seek(&key).map(|node| key_of(&list, node)), above);
        let below = model.range(..key.clone()).next_back().map(|(key, _)| key.clone());
        assert_eq!(list.seek_before(Some(&key)).map(|node| key_of(&list, node)), below);
        assert_eq!(get(&list, &key).is_some(), model.contains_key(&key));
    }
}

#[test]
fn many_at_once_are_as_one_by_one() {
    let (list, other) = (list(8 << 20), list(8 << 20));
    let mut random = Random(0x5eed2);
    let mut version = 0;
    for _ in 0..200 {
        let keys: Vec<_> = (0..random.below(40)).map(|_| key(&mut random)).collect();
        let versions: Vec<_> = keys
            .iter()
            .map(|key| {
                version += 1;
                version_of(key, version, 2, &[b"v", key])
            })
            .collect();
        let one_by_one =
            versions.iter().filter(|one| list.insert(one) == InsertOutcome::New).count();
        assert_eq!(other.insert_many(&versions), Some(to_u64(one_by_one)));
        let (mut node, mut twin) = (list.seek(b""), other.seek(b""));
        while let (Some(one), Some(two)) = (node, twin) {
            assert_eq!(list.version(one), other.version(two));
            assert_eq!(value_of(&list, one), value_of(&other, two));
            assert!(get(&other, &key_of(&other, two)).is_some());
            (node, twin) = (list.next(one), other.next(two));
        }
        assert_eq!((node, twin), (None, None));
    }
    let large = vec![7; 1 << 20];
    let versions: Vec<_> = (0..9).map(|number| version_of(b"k", number, 0, &[&large])).collect();
    let before = other.used_words();
    assert_eq!(other.insert_many(&versions), None);
    assert_eq!(other.used_words(), before);
    assert!(get(&other, b"k").is_none());
}

#[test]
fn the_later_of_equal_versions_comes_first_and_older_ones_behind() {
    let list = list(1 << 16);
    for (version, value) in [(5, b"a"), (7, b"b"), (5, b"c"), (6, b"d"), (7, b"e")] {
        insert(&list, b"key", version, 0, &[value]);
        list.order_nodes();
    }
    let (mut found, mut node) = (Vec::new(), list.seek(b"key"));
    while let Some(one) = node {
        found.extend(value_of(&list, one));
        node = list.next(one);
    }
    assert_eq!(found, b"ebdca");
    assert_eq!(value_of(&list, get(&list, b"key").unwrap()), b"e");
    assert_eq!(insert(&list, b"key", 6, 0, &[b"f"]), InsertOutcome::Again);
    assert_eq!(value_of(&list, get(&list, b"key").unwrap()), b"e");
}

/// An arena that counts how often it is asked for its words.
struct CountingArena {
    region: Region,
    reads: Cell<u64>,
}

impl CountingArena {
    fn new(bytes: u64) -> Self {
        Self { region: Region::reserve(bytes).unwrap(), reads: Cell::new(0) }
    }
}

impl Arena for CountingArena {
    fn words(&self) -> &[AtomicU64] {
        self.reads.set(self.reads.get() + 1);
        Region::words(&self.region)
    }
}

/// A scan passes the versions of a popular key, each ordered by a scan of its own, in few steps.
fn a_scan_passes_many_versions() {
    let list = SkipList::new(CountingArena::new(8 << 20), CountingArena::new(1 << 16));
    for version in 1..20_000 {
        list.insert(&version_of(b"popular", version, 0, &[b"v"]));
        list.order_nodes();
    }
    list.insert(&version_of(b"rare", 20_000, 0, &[b"v"]));
    let node = list.seek(b"").unwrap();
    let before = list.arena.reads.get();
    let next = list.next_key(node, b"popular").unwrap();
    let reads = list.arena.reads.get() - before;
    assert_eq!(list.version(next), 20_000);
    assert!(reads < 600, "{reads}");
}

#[test]
fn a_scan_passes_many_versions_of_a_key_in_few_steps() {
    a_scan_passes_many_versions();
    finds(Bug::NextKeyReadsEachVersion, a_scan_passes_many_versions);
}

/// Of versions that are ordered at once, the newest is linked, and no other.
fn the_newest_is_linked() {
    let list = list(1 << 20);
    for version in 1..2_000 {
        let key = [b'a' + low_u8(version % 7)];
        insert(&list, &key, version, 0, &[b"v"]);
    }
    let (mut node, mut found) = (list.seek(b""), Vec::new());
    while let Some(one) = node {
        found.push((key_of(&list, one), list.version(one)));
        node = list.next(one);
    }
    let newest = |part: u64| (1..2_000).rfind(|version| version % 7 == part).unwrap();
    let newest: Vec<_> = (0..7).map(|part| (vec![b'a' + low_u8(part)], newest(part))).collect();
    assert_eq!(found, newest);
    assert_eq!(list.ordered_count(), 1999);
}

#[test]
fn of_versions_that_are_ordered_at_once_the_newest_is_linked() {
    the_newest_is_linked();
    finds(Bug::OrderLinksOldest, the_newest_is_linked);
}

#[test]
fn a_full_arena_says_so_and_stays_as_it_was() {
    let list = list(4096);
    assert!(list.is_empty());
    let mut count = 0_u64;
    while insert(&list, &count.to_be_bytes(), 1, 0, &[&[7; 100]]) == InsertOutcome::New {
        count += 1;
    }
    assert!((10..40).contains(&count), "{count}");
    assert_eq!(insert(&list, b"x", 1, 0, &[&[7; 5000]]), InsertOutcome::Full);
    assert!((0..count).all(|number| get(&list, &number.to_be_bytes()).is_some()));
    assert!(list.used_words() <= 512);
    assert!(node_words(8, 100) >= 3 + 1 + 1 + 13);
}

#[test]
fn threads_insert_and_walk_side_by_side() {
    let list = list(32 << 20);
    let (threads, count) = (4_u64, 4000_u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let list = &list;
            scope.spawn(move || {
                for number in 0..count {
                    let key = (number.wrapping_mul(0x9e37_79b9) << 8 | thread).to_be_bytes();
                    insert(list, &key, number + 1, 0, &[&key]);
                    assert_eq!(value_of(list, get(list, &key).unwrap()), key);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                let (mut before, mut node) = (Vec::new(), list.seek(b""));
                while let Some(one) = node {
                    let key = key_of(&list, one);
                    assert!(key > before && value_of(&list, one) == key);
                    (before, node) = (key, list.next(one));
                }
            }
        });
    });
    let (mut found, mut node) = (0, list.seek(b""));
    while let Some(one) = node {
        (found, node) = (found + 1, list.next(one));
    }
    assert_eq!(found, threads * count);
}
