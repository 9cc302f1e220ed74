//! The structure alone, without records: an address stands for its key.

use std::{collections::BTreeMap, path::Path};

use super::{
    lazy_trie::{RESERVED_WORDS, ROOT_AT, ROOTS},
    *,
};
use crate::{
    engine::trie::store::space::WordSpace,
    io::{Env as _, sim::SimEnv},
    journal::redo::Owner,
    util::{
        codec::KeyHash,
        sync::{AtomicBool, Ordering},
    },
};

const LAYOUTS: [Layout; 2] = [Layout::Lines, Layout::Chain];

fn trie(fanout: u64, sluggishness: u64, layout: Layout) -> LazyTrie {
    let dir = SimEnv::new(1).open_dir(Path::new("/table"), true).unwrap();
    let owner = Owner { dir, database_id: [1; 16], table_id: 1 };
    let space = WordSpace::new(owner, false, 64 << 20, 64 << 10).unwrap();
    let trie = LazyTrie::new(space, fanout, sluggishness, layout, None);
    trie.start();
    trie
}

fn lock(trie: &LazyTrie, hash: u64) -> Writer<'_> {
    trie.lock(KeyPath::of_hash(hash))
}

/// Nothing is switched, so nothing is switched back.
fn no_path(_: u64) -> Option<u64> {
    None
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Everything that is in the trie; what is wrong with it fails the test.
fn inspect(trie: &LazyTrie) -> (TrieShape, Vec<u64>) {
    let (mut shape, mut addresses, mut findings) = (TrieShape::default(), Vec::new(), Vec::new());
    let mut visit = |address| addresses.push(address);
    let mut finding = |at, what: &str| findings.push(format!("{what} at {at}"));
    trie.inspect(0..ROOTS, &mut shape, &mut visit, &mut finding).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    addresses.sort_unstable();
    (shape, addresses)
}

fn holds(trie: &LazyTrie, hash: u64, address: u64) -> bool {
    let look = |seen| if seen == address { RecordVerdict::Found(()) } else { RecordVerdict::Other };
    trie.find(KeyPath::of_hash(hash), look, |at| trie.space().load(at)).unwrap().is_some()
}

/// The words of a damaged trie: a switched node below itself. A lookup in steps ends.
#[test]
fn a_switched_node_below_itself_ends_a_lookup() {
    let mut trie = trie(64, 4, Layout::Lines);
    trie.fallback = Some(KeyHash::new([1, 2]));
    let node = trie.allocate(6).unwrap();
    trie.fill(node, 6, &[word::switched(6, node.at); 64]);
    trie.space.set(ROOT_AT, word::switched(6, node.at));
    let mut lookup = trie.begin_lookup(0);
    let mut steps = 0;
    while trie.step(&mut lookup) != LookupStep::Ended {
        trie.follow_keyed(&mut lookup, b"key");
        steps += 1;
        assert!(steps < 20);
    }
    assert!(lookup.candidate().is_none() && !lookup.is_missing());
}

fn work(layout: Layout, (fanout, sluggishness): (u64, u64), mask: u64, steps: u64) {
    let trie = trie(fanout, sluggishness, layout);
    let (mut state, mut rows, mut next) = (fanout + sluggishness, BTreeMap::new(), 1);
    for step in 0..steps {
        let draw = random(&mut state);
        if draw % 100 < 55 || rows.is_empty() {
            let hash = random(&mut state) & mask;
            lock(&trie, hash).insert(next).unwrap();
            rows.insert(next, hash);
            next += 1;
        } else {
            let (&address, &hash) =
                rows.range(draw % next..).next().or(rows.iter().next()).unwrap();
            rows.remove(&address);
            if draw.is_multiple_of(3) {
                assert!(lock(&trie, hash).replace(address, next).unwrap());
                rows.insert(next, hash);
                next += 1;
            } else {
                assert!(lock(&trie, hash).remove(address).unwrap());
                assert!(!lock(&trie, hash).remove(address).unwrap(), "it is gone");
            }
        }
        if step % (steps / 8) == 0 {
            if step % (steps / 4) == 0 {
                trie.gather(&no_path).unwrap();
            }
            let (shape, addresses) = inspect(&trie);
            assert!(addresses.iter().eq(rows.keys()));
            assert_eq!(shape.records, trie.len());
            assert_eq!((shape.nodes << trie.fan_bits) * 8 + RESERVED_WORDS * 8, trie.node_bytes());
            assert_eq!(shape.list_words * 8, trie.list_bytes());
        }
    }
    for (address, hash) in &rows {
        assert!(holds(&trie, *hash, *address));
        assert!(!holds(&trie, !*hash, *address));
    }
    for (address, hash) in rows {
        assert!(lock(&trie, hash).remove(address).unwrap());
    }
    let (shape, addresses) = inspect(&trie);
    assert!(addresses.is_empty());
    assert_eq!((shape.nodes, shape.list_words), (0, 0), "nothing is left behind");
}

#[test]
fn random_operations_agree_with_a_map() {
    for layout in LAYOUTS {
        for shape in [(64, 1), (64, 16), (128, 4), (256, 16), (256, 128)] {
            work(layout, shape, u64::MAX, 12_000);
        }
    }
}

#[test]
fn equal_and_nearly_equal_hashes_share_lists_and_paths() {
    for mask in [0, 0xff, 0xf000_0000_0000_000f, 0xffff_0000] {
        for layout in LAYOUTS {
            work(layout, (64, 2), mask, 2_000);
            work(layout, (256, 16), mask, 2_000);
        }
    }
}

/// The quantities of the paper's figure 4: paths near the logarithm of the number of keys, and
/// fewer nodes the more sluggish the lists.
#[test]
fn paths_are_short_and_sluggishness_saves_nodes() {
    let mut nodes = Vec::new();
    for sluggishness in [1, 4, 16] {
        let (trie, mut state) = (trie(128, sluggishness, Layout::Lines), 3);
        for address in 1..=100_000 {
            lock(&trie, random(&mut state)).insert(address).unwrap();
        }
        let (shape, _) = inspect(&trie);
        let length = shape.path_nodes / shape.records;
        assert!(length <= 3 && shape.height <= 5, "{shape:?}");
        nodes.push(shape.nodes);
        state = 3;
        for address in 1..=100_000 {
            assert!(holds(&trie, random(&mut state), address));
        }
    }
    assert!(nodes[0] > nodes[1] * 4 && nodes[1] > nodes[2] * 16, "{nodes:?}");
}

/// After most of what it held is gone, a gathered trie has the nodes of one built anew, and its
/// space ends not far behind them; everything left is found, and new records as well.
#[test]
fn gathering_leaves_what_a_new_trie_would_have() {
    for layout in LAYOUTS {
        let [old, new] = [(); 2].map(|()| trie(128, 8, layout));
        let hashes: Vec<u64> = (0..15_000).scan(7, |state, _| Some(random(state))).collect();
        for (address, hash) in (1..).zip(&hashes) {
            lock(&old, *hash).insert(address).unwrap();
        }
        let full = (old.node_bytes(), old.space_bytes());
        for (address, hash) in (1..).zip(&hashes).filter(|(address, _)| address % 10 != 0) {
            assert!(lock(&old, *hash).remove(address).unwrap());
        }
        let before = old.node_bytes();
        assert!(old.wants_gathering());
        assert!(old.gather(&no_path).unwrap(), "space is given back");
        assert!(!old.wants_gathering());
        for (address, hash) in (1..).zip(&hashes).filter(|(address, _)| address % 10 == 0) {
            lock(&new, *hash).insert(address).unwrap();
        }
        let (shape, addresses) = inspect(&old);
        assert_eq!((shape.nodes, addresses), (inspect(&new).0.nodes, inspect(&new).1));
        assert!(old.node_bytes() * 4 < before, "{before} became {}", old.node_bytes());
        let bound = new.space_bytes() + new.space_bytes() / 4 + 2 * (64 << 10);
        assert!(old.space_bytes() < bound, "{full:?} became {}, not {bound}", old.space_bytes());
        assert!(old.memory_bytes() <= old.space_bytes() + (64 << 10));
        // What grows again uses what was used before, and is not zero.
        for (address, hash) in (1..).zip(&hashes).filter(|(address, _)| address % 10 != 0) {
            lock(&old, *hash).insert(address).unwrap();
        }
        let (_, addresses) = inspect(&old);
        assert!(addresses.into_iter().eq(1..=15_000));
        assert!(old.space_bytes() <= full.1 + full.1 / 4);
    }
}

/// Writers and readers beside gathering.
#[test]
fn threads_beside_gathering_find_what_stays() {
    let trie = trie(64, 4, Layout::Lines);
    let hashes: Vec<u64> = (0..40_000).scan(9, |state, _| Some(random(state))).collect();
    for (address, hash) in (1..).zip(&hashes) {
        lock(&trie, *hash).insert(address).unwrap();
    }
    let stays = |address: u64| address.is_multiple_of(20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                for (address, hash) in (1..).zip(&hashes).filter(|(address, _)| !stays(*address)) {
                    assert!(lock(&trie, *hash).remove(address).unwrap());
                }
                for (address, hash) in (1..).zip(&hashes).filter(|(address, _)| !stays(*address)) {
                    lock(&trie, *hash).insert(address).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                trie.gather(&no_path).unwrap();
            }
        });
        while !done.load(Ordering::Relaxed) {
            for (address, hash) in (1..).zip(&hashes).filter(|(address, _)| stays(*address)) {
                assert!(holds(&trie, *hash, address));
            }
        }
    });
    assert!(inspect(&trie).1.into_iter().eq(1..=40_000));
}
