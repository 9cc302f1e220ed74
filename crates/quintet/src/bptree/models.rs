//! Models of the tree: lookups and scans beside splits, merges and pages that leave the cache, in
//! many random interleavings (shuttle), and that a lookup which does not validate what it read is
//! found. Leaves have room for four entries; keys that stay are never missed, seen twice or torn.

use std::sync::Arc;

use super::{
    Tree,
    node::INNER,
    page_allocator::{Bits, PageAllocator},
    page_cache::{CacheOptions, PageCache, Replacement},
    scan_forward::{EntryRun, ForwardScan},
};
use crate::{
    io::{Env as _, Open, sim::SimEnv},
    util::{
        budget::Budget,
        mutant::{Bug, finds},
        sync::{model_check::Exploration, thread},
    },
};

/// A quarter of a page of 4096 bytes holds one.
const VALUE_BYTES: usize = 900;
/// Frames that no model fills.
const FRAMES: u64 = 64;
const NINE: [u8; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let exploration = Exploration {
        schedules: 1_000,
        priority_changes: 3,
        stack_bytes: Some(1 << 20),
        ..Exploration::DEFAULT
    };
    exploration.explore(model);
}

/// A tree of the entries with these numbers.
fn tree(numbers: &[u8]) -> Arc<Tree> {
    let dir = SimEnv::new(1).open_dir(std::path::Path::new("tree"), true).unwrap();
    let options = CacheOptions {
        page_bytes: 4096,
        frames_min: FRAMES,
        frames_max: FRAMES,
        may_reclaim_others: false,
        table_id: 1,
        replacement: Replacement::Clock,
        evict_last_kind: INNER,
        salt: 7,
    };
    let cache = PageCache::new("pages".to_owned(), options, Arc::new(Budget::new(1 << 30)));
    let cache = cache.unwrap();
    cache.set_file(dir.open("pages", Open::CREATE.direct()).unwrap());
    let tree = Tree::new(Arc::new(cache), PageAllocator::new(64, Bits::new()), true, 0);
    tree.format().unwrap();
    puts(&tree, numbers);
    Arc::new(tree)
}

fn puts(tree: &Tree, numbers: &[u8]) {
    for number in numbers {
        tree.put(&[*number], [&[*number; VALUE_BYTES], &[]], None).unwrap();
    }
}

fn deletes(tree: &Tree, numbers: &[u8]) {
    for number in numbers {
        tree.delete(&[*number], None).unwrap();
    }
}

fn make(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Vec<u8> {
    let mut value = vec![0; length];
    fill(&mut value);
    value
}

fn expect_whole(number: u8, value: &[u8]) {
    assert!(value.len() == VALUE_BYTES && value.iter().all(|byte| *byte == number), "{number}");
}

/// A way to look whether what stays is there.
type Reader = fn(&Tree, &[u8]);

const READERS: [Reader; 3] = [gets, goes_up, goes_down];

fn gets(tree: &Tree, stays: &[u8]) {
    for number in stays {
        expect_whole(*number, &tree.get(&[*number], make).unwrap().expect("it stays"));
    }
}

/// Asserts that keys in order have what stays, and whole values.
fn expect_all(stays: &[u8], entries: &[(Vec<u8>, Vec<u8>)]) {
    let numbers: Vec<u8> = entries.iter().map(|(key, _)| key[0]).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    assert!(stays.iter().all(|number| numbers.contains(number)), "{stays:?} in {numbers:?}");
    entries.iter().for_each(|(key, value)| expect_whole(key[0], value));
}

fn goes_up(tree: &Tree, stays: &[u8]) {
    let (mut entries, mut run) = (Vec::new(), EntryRun::default());
    let mut scan = ForwardScan::new(Vec::new(), None);
    while !scan.is_over {
        tree.scan_forward(&mut scan, (3, 0), &mut run).unwrap();
        let found = (0..run.len()).filter_map(|index| run.entry(index));
        entries.extend(found.map(|(key, value)| (key.to_vec(), value.to_vec())));
    }
    expect_all(stays, &entries);
}

fn goes_down(tree: &Tree, stays: &[u8]) {
    let (mut entries, mut before) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let pair = |key, value| (key, value);
        let found = tree.scan_reverse((before.as_deref(), None), (3, 0), make, pair).unwrap();
        entries.extend(found.entries);
        before = found.next;
        if before.is_none() {
            break;
        }
    }
    entries.reverse();
    expect_all(stays, &entries);
}

/// Runs `writer` beside a reader of what stays.
fn beside(
    tree: &Arc<Tree>,
    (reader, stays): (Reader, &[u8]),
    writer: impl FnOnce(&Tree) + Send + 'static,
) {
    let writer = thread::spawn({
        let tree = Arc::clone(tree);
        move || writer(&tree)
    });
    reader(tree, stays);
    writer.join().unwrap();
    READERS.iter().for_each(|reader| reader(tree, stays));
}

/// The root is split, then a leaf under it.
fn readers_beside_splits(reader: Reader) {
    explore(move || {
        let tree = tree(&[10, 20, 30, 40]);
        beside(&tree, (reader, &[10, 30, 40]), |tree| puts(tree, &[25, 35, 15, 12]));
        gets(&tree, &[12, 15, 25, 35]);
    });
}

/// Leaves are merged until the root is one.
fn readers_beside_merges(reader: Reader) {
    explore(move || {
        let tree = tree(&NINE);
        beside(&tree, (reader, &[10, 50, 90]), |tree| deletes(tree, &[20, 30, 40, 60, 70, 80]));
        assert!(tree.get(&[60], make).unwrap().is_none());
    });
}

#[test]
fn shuttle_bptree_gets_beside_splits() {
    readers_beside_splits(gets);
}

#[test]
fn shuttle_bptree_scans_beside_splits() {
    readers_beside_splits(goes_up);
    readers_beside_splits(goes_down);
}

#[test]
fn shuttle_bptree_gets_beside_merges() {
    readers_beside_merges(gets);
}

#[test]
fn shuttle_bptree_scans_beside_merges() {
    readers_beside_merges(goes_up);
    readers_beside_merges(goes_down);
}

/// Two writers split the same leaf, and its parent gets both separators.
#[test]
fn shuttle_bptree_writers_split_one_leaf() {
    explore(|| {
        let tree = tree(&[10, 20, 30, 40]);
        beside(&tree, (|tree, _| puts(tree, &[22, 24, 44]), &[10, 40]), |tree| {
            puts(tree, &[26, 28, 48])
        });
        gets(&tree, &[10, 20, 22, 24, 26, 28, 30, 40, 44, 48]);
    });
}

/// One writer takes out what makes leaves merge while the other fills them again.
#[test]
fn shuttle_bptree_writers_merge_and_split() {
    explore(|| {
        let tree = tree(&NINE);
        let fill: Reader = |tree, _| puts(tree, &[11, 12, 13, 71, 72]);
        beside(&tree, (fill, &[10, 50, 90]), |tree| deletes(tree, &[20, 30, 40, 60, 80]));
        gets(&tree, &[10, 11, 12, 13, 50, 70, 71, 72, 90]);
        assert!(tree.get(&[40], make).unwrap().is_none());
    });
}

#[test]
fn shuttle_bptree_finds_a_read_not_validated() {
    finds(Bug::PageReadNotValidated, shuttle_bptree_gets_beside_splits);
    finds(Bug::PageReadNotValidated, shuttle_bptree_scans_beside_merges);
}
