//! Model checks of the trie with loom and shuttle.
//!
//! Readers run beside splits, merges, reused objects and evicted regions. Loom explores every
//! interleaving and every order that the memory model allows, up to a bound; shuttle explores many
//! random interleavings. Here the root table has two slots, nodes four, regions sixteen words, and
//! all of this memory belongs to the checker.

use std::path::Path;

use super::{KeyPath, Layout, LazyTrie, LookupStep, RecordVerdict};
#[cfg(shuttle)]
use crate::util::mutant::{self, Bug};
use crate::{
    engine::trie::store::space::WordSpace,
    io::{Env as _, sim::SimEnv},
    journal::redo::Owner,
    util::sync::{Arc, model_check::Exploration, thread},
};

const REGION_BYTES: u64 = 16 * 8;
const SPACE_BYTES: u64 = 64 * 8;

/// Explores a model.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let exploration = Exploration {
        priority_changes: 3,
        preemptions_max: Some(2),
        branches_max: Some(20_000),
        ..Exploration::DEFAULT
    };
    exploration.explore(model);
}

/// A trie whose lists have one record.
fn trie() -> Arc<LazyTrie> {
    let dir = SimEnv::new(1).open_dir(Path::new("/table"), true).unwrap();
    let owner = Owner { dir, database_id: [1; 16], table_id: 1 };
    let space = WordSpace::new(owner, false, SPACE_BYTES, REGION_BYTES).unwrap();
    let trie = LazyTrie::new(space, 4, 1, Layout::Lines, None);
    trie.start();
    Arc::new(trie)
}

/// A hash: the slot of the root table, then the slots of nodes on the way down.
fn hash(root: u64, path: [u64; 3]) -> u64 {
    let [one, two, three] = path;
    root << 63 | one << 61 | two << 59 | three << 57
}

fn insert(trie: &LazyTrie, hash: u64, address: u64) {
    trie.lock(KeyPath::of_hash(hash)).insert(address).unwrap();
}

/// A lookup: whether it finds the record at an address under a hash.
type Reader = fn(&LazyTrie, u64, u64) -> bool;

const READERS: [Reader; 2] = [finds, finds_in_steps];

/// Whether a reader finds the record at `address`.
fn finds(trie: &LazyTrie, hash: u64, address: u64) -> bool {
    let look = |seen| if seen == address { RecordVerdict::Found(()) } else { RecordVerdict::Other };
    trie.find(KeyPath::of_hash(hash), look, |at| trie.space().load(at)).unwrap().is_some()
}

/// As [`finds`], for a reader that steps through its lookup.
fn finds_in_steps(trie: &LazyTrie, hash: u64, address: u64) -> bool {
    let mut lookup = trie.begin_lookup(hash);
    while trie.step(&mut lookup) == LookupStep::Pending {}
    let is_there = lookup.candidate() == Some(address);
    if (is_there || lookup.is_missing()) && trie.is_current(&lookup) {
        return is_there;
    }
    finds(trie, hash, address)
}

/// Commits everything so far, so that regions may be evicted.
#[cfg(shuttle)]
fn commit(trie: &LazyTrie) {
    let writers = trie.lock_all();
    trie.space().begin_checkpoint();
    drop(writers);
    trie.space().coalesce();
    trie.space().commit(1);
}

/// Runs `writer` beside a reader of a record that stays.
fn beside(
    trie: &Arc<LazyTrie>,
    reader: Reader,
    (stays, address): (u64, u64),
    writer: impl FnOnce(&LazyTrie) + Send + 'static,
) {
    let writer = thread::spawn({
        let trie = Arc::clone(trie);
        move || writer(&trie)
    });
    assert!(reader(trie, stays, address), "a record that stays was missed");
    writer.join().unwrap();
    assert!(finds(trie, stays, address));
}

fn a_reader_finds_what_a_split_moves(reader: Reader) {
    explore(move || {
        let trie = trie();
        let (stays, comes) = (hash(0, [1, 2, 0]), hash(0, [1, 3, 0]));
        insert(&trie, stays, 10);
        beside(&trie, reader, (stays, 10), move |trie| insert(trie, comes, 11));
        assert!(finds(&trie, comes, 11));
    });
}

fn a_reader_finds_what_a_merge_moves(reader: Reader) {
    explore(move || {
        let trie = trie();
        // In first slots: a free node's first word is the first thing that is not as it was.
        let (stays, goes) = (hash(0, [0, 0, 0]), hash(0, [0, 3, 0]));
        insert(&trie, stays, 10);
        insert(&trie, goes, 11);
        beside(&trie, reader, (stays, 10), move |trie| {
            assert!(trie.lock(KeyPath::of_hash(goes)).remove(11).unwrap());
        });
        assert!(!finds(&trie, goes, 11));
    });
}

/// A merge frees nodes in one subtree that become nodes of the other, beside a reader that is still
/// on the old path.
fn a_reader_is_not_led_astray_by_nodes_used_again(reader: Reader) {
    explore(move || {
        let trie = trie();
        let (stays, goes) = (hash(0, [1, 2, 0]), hash(0, [1, 3, 0]));
        let (other, comes) = (hash(1, [1, 2, 0]), hash(1, [1, 3, 0]));
        insert(&trie, stays, 10);
        insert(&trie, goes, 11);
        insert(&trie, other, 12);
        beside(&trie, reader, (stays, 10), move |trie| {
            assert!(trie.lock(KeyPath::of_hash(goes)).remove(11).unwrap());
            insert(trie, comes, 13);
        });
        assert!(finds(&trie, other, 12));
        assert!(finds(&trie, comes, 13));
    });
}

/// A trie whose second region may be evicted, and a record that is found through it.
#[cfg(shuttle)]
fn with_a_region_to_evict() -> (Arc<LazyTrie>, u64, u64) {
    let trie = trie();
    // Two nodes for the first pair below a root, which fill the first region and begin the second,
    // and one for each other: the second region is full, so that it may leave.
    for (root, one, address) in [(0, 0, 10), (1, 1, 20), (0, 1, 30), (1, 0, 40), (0, 2, 50)] {
        insert(&trie, hash(root, [one, 1, 0]), address);
        insert(&trie, hash(root, [one, 2, 0]), address + 1);
    }
    commit(&trie);
    assert_eq!(trie.end(), 2 * trie.space().region_words());
    // Its node is in the second region.
    (trie, hash(0, [1, 1, 0]), 30)
}

/// A region is evicted beside a reader that uses it.
#[cfg(shuttle)]
fn a_reader_finds_what_leaves_memory(reader: Reader) {
    explore(move || {
        let (trie, stays, address) = with_a_region_to_evict();
        beside(&trie, reader, (stays, address), |trie| {
            for _ in 0..3 {
                trie.evict(0);
            }
        });
    });
}

/// As above, beside a writer that changes the region: no change is lost.
#[cfg(shuttle)]
fn a_region_that_changes_leaves_memory_whole() {
    explore(|| {
        let (trie, stays, address) = with_a_region_to_evict();
        let writer = thread::spawn({
            let trie = Arc::clone(&trie);
            move || assert!(trie.lock(KeyPath::of_hash(stays)).replace(address, 99).unwrap())
        });
        trie.evict(0);
        writer.join().unwrap();
        trie.evict(0);
        assert!(finds(&trie, stays, 99));
    });
}

#[cfg(loom)]
#[test]
fn loom_trie() {
    // All that loom sees through in seconds; eviction takes too many branches.
    for reader in READERS {
        a_reader_finds_what_a_split_moves(reader);
        a_reader_finds_what_a_merge_moves(reader);
        a_reader_is_not_led_astray_by_nodes_used_again(reader);
    }
}

#[cfg(shuttle)]
#[test]
fn shuttle_trie() {
    for reader in READERS {
        a_reader_finds_what_a_split_moves(reader);
        a_reader_finds_what_a_merge_moves(reader);
        a_reader_is_not_led_astray_by_nodes_used_again(reader);
        a_reader_finds_what_leaves_memory(reader);
    }
    a_region_that_changes_leaves_memory_whole();
}

// A test for each bug: a checker that has failed on a thread does not start anew there.

#[cfg(shuttle)]
#[test]
fn shuttle_trie_finds_a_read_not_validated_beside_a_merge() {
    mutant::finds(Bug::TrieReadNotValidated, || a_reader_finds_what_a_merge_moves(finds));
}

#[cfg(shuttle)]
#[test]
fn shuttle_trie_finds_steps_not_validated_beside_a_merge() {
    mutant::finds(Bug::TrieReadNotValidated, || a_reader_finds_what_a_merge_moves(finds_in_steps));
}

#[cfg(shuttle)]
#[test]
fn shuttle_trie_finds_a_read_not_validated_beside_eviction() {
    mutant::finds(Bug::TrieReadNotValidated, || a_reader_finds_what_leaves_memory(finds));
}

#[cfg(shuttle)]
#[test]
fn shuttle_trie_finds_evicted_changes() {
    mutant::finds(Bug::SpaceEvictsUncommitted, a_region_that_changes_leaves_memory_whole);
}
