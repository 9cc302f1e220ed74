//! Goal: the tree agrees with an ordered map whatever is put into it and taken out, in pages of the
//! smallest size, in one thread and in several; and its own check agrees.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    CountChange, Tree,
    finger::Finger,
    node::*,
    page_allocator::{Bits, PageAllocator},
    page_cache::{CacheOptions, PageCache, Replacement, page_bytes::PageWords},
    scan_forward::{EntryRun, ForwardScan},
    tree::{ROOT, signed},
};
use crate::{
    contract::value_sink::HeadAndBuffer,
    io::{AlignedBuffer, Env as _, Open, sim::SimEnv},
    util::{
        budget::Budget,
        mutant::{self, Bug},
        sync::AtomicU64,
    },
};

/// A generator (`SplitMix64`).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn tree(frames: u64) -> Tree {
    tree_of(frames, 0)
}

/// A tree whose leaves are packed where all values have this many bytes.
pub(crate) fn tree_of(frames: u64, value_bytes: usize) -> Tree {
    let env = SimEnv::new(1);
    let dir = env.open_dir(std::path::Path::new("tree"), true).unwrap();
    let options = CacheOptions {
        page_bytes: 4096,
        frames_min: frames,
        frames_max: frames,
        may_reclaim_others: false,
        table_id: 1,
        replacement: Replacement::Clock,
        evict_last_kind: INNER,
        salt: 7,
    };
    let budget = Arc::new(Budget::new(1 << 30));
    let cache = PageCache::new("pages".to_owned(), options, budget).unwrap();
    cache.set_file(dir.open("pages", Open::CREATE.direct()).unwrap());
    let tree = Tree::new(Arc::new(cache), PageAllocator::new(64, Bits::new()), true, value_bytes);
    tree.format().unwrap();
    tree
}

fn make(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Vec<u8> {
    let mut value = vec![0; length];
    fill(&mut value);
    value
}

fn pair(key: Vec<u8>, value: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    (key, value)
}

fn get(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tree.get(key, make).unwrap()
}

fn entries_of(run: &EntryRun) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let entries = (0..run.len()).filter_map(|index| run.entry(index));
    entries.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

/// Everything in the tree, upwards and downwards in small steps, which must agree.
fn entries(tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut up, mut run) = (Vec::new(), EntryRun::default());
    let mut scan = ForwardScan::new(Vec::new(), None);
    while !scan.is_over {
        tree.scan_forward(&mut scan, (7, 0), &mut run).unwrap();
        up.extend(entries_of(&run));
    }
    let mut down = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    loop {
        let found = tree.scan_reverse((before.as_deref(), None), (5, 0), make, pair).unwrap();
        down.extend(found.entries);
        before = found.next;
        if before.is_none() {
            break;
        }
    }
    down.reverse();
    assert_eq!(up, down);
    up
}

/// Keys that share prefixes, and some that are long.
fn some_key(random: &mut Random, range: u64) -> Vec<u8> {
    let number = random.below(range);
    match number % 16 {
        0 => [&[b'l'; 3000][..], &number.to_be_bytes(), &[b'x'; 700]].concat(),
        1 => [&number.to_be_bytes()[6..], &[9; 300]].concat(),
        2..6 => number.to_be_bytes()[5..].to_vec(),
        6..9 => format!("a/rather/long/common/prefix/{number}").into_bytes(),
        _ => format!("{number:05}").into_bytes(),
    }
}

/// Keys that end within a slot's head, that go on from one another, that share much or nothing; a
/// long one is rare.
fn short_key(random: &mut Random, range: u64) -> Vec<u8> {
    let number = random.below(range);
    let bytes = number.to_be_bytes();
    match number % 512 {
        0 => [&[b'l'; 3000][..], &bytes].concat(),
        number if number % 8 == 1 => bytes[6..].to_vec(),
        number if number % 8 == 2 => [&bytes[6..], &[0, 0, 0]].concat(),
        number if number % 8 == 3 => [&bytes[6..], &[0, 0, 0, 0, 1]].concat(),
        number if number % 8 == 4 => format!("a/rather/long/common/prefix/{number}").into_bytes(),
        _ => format!("{number:08}").into_bytes(),
    }
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(60) {
        0 => 100_000,
        1 => 10_000,
        2..=5 => 1500,
        6 => 0,
        other => other,
    };
    vec![random.below(256).to_le_bytes()[0]; usize::try_from(length).unwrap()]
}

#[test]
fn random_changes_match_an_ordered_map() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let packs = seed >= 6;
        let tree = tree_of(100_000, if packs { 8 } else { 0 });
        let mut model = BTreeMap::new();
        let mut figures = CountChange::default();
        let range = [60, 400, 4000][usize::try_from(seed % 3).unwrap()];
        let some_key = if packs { short_key } else { some_key };
        for round in 0..6000 {
            let key = some_key(&mut random, range);
            // It grows, and then shrinks.
            let puts = if round < 3500 { 8 } else { 3 };
            match random.below(10) {
                roll if roll < puts => {
                    let is_even = packs && random.below(200) > 0;
                    let mut value = value(&mut random);
                    if is_even {
                        value.resize(8, 7);
                    }
                    let (head, body) = value.split_at(value.len() / 3);
                    figures.add(tree.put(&key, [head, body], None).unwrap());
                    model.insert(key, value);
                }
                9 => {
                    let end = [&key[..], &[random.below(256).to_le_bytes()[0]]].concat();
                    figures.add(tree.delete_range(&key, Some(&end)).unwrap());
                    model.retain(|other, _| *other < key || *other >= end);
                }
                _ => {
                    figures.add(tree.delete(&key, None).unwrap());
                    model.remove(&key);
                }
            }
            if round % 1000 == 999 {
                let expected: Vec<_> = model.clone().into_iter().collect();
                assert!(entries(&tree) == expected, "seed {seed}, round {round}");
            }
        }
        let probe: Vec<Vec<u8>> = (0..500).map(|_| some_key(&mut random, range)).collect();
        for key in &probe {
            assert_eq!(get(&tree, key).as_ref(), model.get(key));
        }
        let slices: Vec<&[u8]> = probe.iter().map(|key| &key[..]).collect();
        let mut found = Vec::new();
        tree.multi_get(&slices, make, &mut found).unwrap();
        assert!(found.iter().zip(&probe).all(|(found, key)| found.as_ref() == model.get(key)));
        let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!((figures.keys, figures.bytes), (signed(model.len()), signed(bytes)));
        figures.add(tree.delete_range(&[], None).unwrap());
        assert_eq!(figures, CountChange::default());
        assert_eq!(entries(&tree), []);
        // What is left: meta, map, an empty root, and the maps of further extents.
        assert_eq!(tree.height(), 1, "seed {seed}");
        assert_eq!(tree.allocator().used(), 2 + tree.allocator().end() / 64, "seed {seed}");
        assert_eq!((tree.leaf_pages(), tree.inner_pages()), (1, 0));
    }
}

/// The keys of a packed tree: 12 bytes, in random order.
fn packed_keys(count: u32) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let mut random = Random(1);
    (0..count).map(move |number| (number, [&random.next().to_be_bytes()[..], b"rest"].concat()))
}

/// A tree that packs its leaves.
fn packed_tree(count: u32) -> Tree {
    let tree = tree_of(100_000, 8);
    for (number, key) in packed_keys(count) {
        tree.put(&key, [&number.to_be_bytes(), &[1; 4]], None).unwrap();
    }
    tree
}

/// Slot, what the slot has not of the key behind a prefix of one byte, value: 23 bytes an entry of
/// 31 plain ones, and leaves four fifths full, where they are 69 % full if they split alone.
#[test]
fn leaves_in_random_order_share_before_they_split() {
    let tree = packed_tree(100_000);
    let least = 100_000 * (8 + 7 + 8) / (4096 - 104);
    let leaves = tree.leaf_pages();
    assert!(leaves > least, "{leaves} leaves of at least {least}");
    assert!(leaves < least * 100 / 77, "{leaves} leaves of at least {least}");
    assert_eq!(entries(&tree).len(), 100_000);
}

fn packed_keys_are_found() {
    let tree = packed_tree(10_000);
    for (number, key) in packed_keys(10_000) {
        let value = [number.to_be_bytes(), [1; 4]].concat();
        assert_eq!(get(&tree, &key), Some(value), "key {number}");
    }
}

#[test]
fn what_moved_to_a_neighbour_is_found() {
    packed_keys_are_found();
    mutant::finds(Bug::SpreadKeepsSeparator, packed_keys_are_found);
}

#[test]
fn ascending_keys_fill_their_leaves() {
    let tree = tree(100_000);
    for number in 0..20_000_u32 {
        tree.put(&number.to_be_bytes(), [&[1; 20], &[2; 20]], None).unwrap();
    }
    let full = 20_000 * (8 + 4 + 4 + 40) / 4096;
    assert!(tree.leaf_pages() < full * 110 / 100, "{} leaves, {full} full", tree.leaf_pages());
    assert_eq!(entries(&tree).len(), 20_000);
    // Packed, their keys are in their slots: a prefix makes a full leaf larger, not smaller.
    let packed = tree_of(100_000, 8);
    for number in 0..20_000_u32 {
        packed.put(&number.to_be_bytes(), [&[1; 4], &[2; 4]], None).unwrap();
    }
    let full = 20_000 * 16 / 4096;
    assert!(packed.leaf_pages() < full * 110 / 100, "{} leaves, {full} full", packed.leaf_pages());
    assert_eq!(entries(&packed).len(), 20_000);
    let estimate = tree
        .estimate(Some(&5_000_u32.to_be_bytes()), Some(&10_000_u32.to_be_bytes()), 20_000)
        .unwrap();
    assert!((2_000..12_000).contains(&estimate), "{estimate}");
}

/// Many keys at once: in order and near one another, in order and far apart, in no order; there and
/// absent; in a cache that has all leaves, and in one that has few.
fn many_keys_agree() {
    for frames in [100_000, 40] {
        let tree = tree(frames);
        for number in (0..6_000_u32).filter(|number| number % 3 != 0) {
            let value = vec![number.to_be_bytes()[3]; usize::try_from(number % 90).unwrap()];
            let value = if number % 1000 == 1 { vec![5; 9_000] } else { value };
            tree.put(&number.to_be_bytes(), [&value, &[]], None).unwrap();
            if frames == 40 {
                write_all(tree.cache());
            }
        }
        let mut random = Random(9);
        let mut batches: Vec<Vec<u32>> =
            vec![(0..6_100).collect(), (100..700).step_by(7).collect(), (0..6_000).rev().collect()];
        batches.push((0..500).map(|_| u32::try_from(random.below(6_500)).unwrap()).collect());
        batches.push((0..6_000).step_by(450).collect());
        batches.push(vec![77, 77, 77]);
        for batch in batches {
            let keys: Vec<_> = batch.iter().map(|number| number.to_be_bytes()).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let expected: Vec<_> = keys.iter().map(|key| get(&tree, key)).collect();
            let mut found = Vec::new();
            tree.multi_get(&keys, make, &mut found).unwrap();
            assert!(found == expected, "{} keys, {frames} frames", keys.len());
            let mut shown = vec![None; keys.len()];
            let mut each = |index: usize, value: Option<&[u8]>| {
                assert!(shown[index].is_none());
                shown[index] = Some(value.map(<[u8]>::to_vec));
                Ok(())
            };
            tree.multi_get_each(&keys, &mut each).unwrap();
            assert!(shown.into_iter().map(Option::unwrap).eq(expected.iter().cloned()));
            for (key, expected) in keys.iter().zip(&expected) {
                let mut rest = b"left over".to_vec();
                let first = tree.get_with(key, &mut HeadAndBuffer(&mut rest)).unwrap();
                let value =
                    expected.as_deref().map(|value| value.split_first().unwrap_or((&0xff, &[])));
                assert_eq!(first, value.map(|(first, _)| *first));
                assert!(value.is_none_or(|(_, tail)| tail == rest));
            }
        }
    }
}

/// Keys that come in order, looked for and put near the one before, while others come, go and
/// split the leaves between.
fn keys_near_one_another() {
    for (seed, frames) in [(0, 100_000), (1, 100_000), (2, 40)] {
        let (mut random, tree, mut model) = (Random(seed), tree(frames), BTreeMap::new());
        let (mut figures, mut near) = (CountChange::default(), Finger::default());
        for round in 0..60 {
            let mut keys: Vec<_> = (0..100).map(|_| some_key(&mut random, 3_000)).collect();
            if round % 5 != 4 {
                keys.sort();
            }
            for key in keys {
                assert_eq!(
                    tree.get_by_finger(&mut near, &key, make).unwrap().as_ref(),
                    model.get(&key)
                );
                let mut value = value(&mut random);
                if frames == 40 {
                    // What changed has to leave before the cache is full of it.
                    write_all(tree.cache());
                    value.truncate(90);
                }
                match random.below(8) {
                    0 => figures.add(tree.delete(&key, None).unwrap()),
                    1 => figures.add(tree.put(&key, [&value, &[]], None).unwrap()),
                    2 => continue,
                    _ => figures.add(tree.put_by_finger(&mut near, &key, &value).unwrap()),
                }
                match get(&tree, &key) {
                    Some(found) => drop(model.insert(key, found)),
                    None => drop(model.remove(&key)),
                }
                if random.below(20) == 0 {
                    let other = some_key(&mut random, 3_000);
                    figures.add(tree.put(&other, [b"between", &[]], None).unwrap());
                    model.insert(other, b"between".to_vec());
                }
            }
        }
        let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!((figures.keys, figures.bytes), (signed(model.len()), signed(bytes)));
        assert!(entries(&tree) == model.into_iter().collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn keys_in_order_are_found_and_put_near_one_another() {
    keys_near_one_another();
    mutant::finds(Bug::NearKeyLeavesItsLeaf, keys_near_one_another);
}

/// Brings what changed into the file, so that it may leave the cache.
fn write_all(cache: &PageCache) {
    let joined = cache.join_pending_writeback(usize::MAX, |_| true);
    let checkpoint = cache.begin_checkpoint(1, joined);
    let mut image = AlignedBuffer::zeroed(cache.page_bytes());
    for (page, frame) in checkpoint.pages() {
        if cache.image(&checkpoint, (*page, *frame), image.as_mut_slice()).is_some() {
            cache.write_raw(cache.offset(*page), image.as_slice()).unwrap();
        }
    }
    cache.finish(checkpoint);
}

#[test]
fn many_keys_at_once_are_found_as_one_by_one() {
    many_keys_agree();
    mutant::finds(Bug::RunOfKeysLeavesItsLeaf, many_keys_agree);
}

/// The root has no prefix, but its heads tell its keys apart.
#[test]
fn heads_of_the_root_leave_out_what_all_keys_share() {
    let tree = tree(100_000);
    let mut random = Random(3);
    let mut key = || format!("user00{:016x}", random.next());
    let keys: Vec<_> = (0..4_000).map(|_| key()).collect();
    for key in &keys {
        tree.put(key.as_bytes(), [&[1; 40], &[]], None).unwrap();
    }
    let root = tree.cache.read(ROOT).unwrap();
    let view = NodeView::new(root.words()).unwrap();
    assert!(view.count() > 40 && view.skip() >= 6, "{} separators", view.count());
    assert!(view.heads_match() && view.hints_match());
    assert!(keys.iter().all(|key| get(&tree, key.as_bytes()).is_some()));
    // Others do not share it: the heads begin earlier.
    for number in 0..400 {
        tree.put(format!("other{number}").as_bytes(), [&[1; 40], &[]], None).unwrap();
    }
    let view = NodeView::new(root.words()).unwrap();
    assert!(view.skip() == 0 && view.heads_match() && view.hints_match());
    assert!(keys.iter().all(|key| get(&tree, key.as_bytes()).is_some()));
}

#[test]
fn a_few_threads_and_readers_agree() {
    let tree = tree(100_000);
    let keys = 4000_u32;
    for number in (0..keys).filter(|number| number % 10 == 0) {
        tree.put(&number.to_be_bytes(), [b"stays", &[]], None).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 1..5_u32 {
            let tree = &tree;
            scope.spawn(move || {
                let (mut random, mut near) = (Random(u64::from(thread)), Finger::default());
                for _ in 0..20_000 {
                    let number = u32::try_from(random.below(u64::from(keys))).unwrap();
                    let own = number - number % 10 + thread;
                    let key = own.to_be_bytes();
                    if random.below(2) == 0 {
                        let length = usize::try_from(random.below(300)).unwrap();
                        tree.put_by_finger(&mut near, &key, &vec![key[3]; length]).unwrap();
                    } else {
                        tree.delete(&key, None).unwrap();
                    }
                }
            });
        }
        for thread in 0..2 {
            let tree = &tree;
            scope.spawn(move || {
                let mut random = Random(100 + thread);
                for _ in 0..40 {
                    let all = entries_while_changing(tree, thread == 0);
                    let stays: Vec<_> = all.iter().filter(|(_, value)| value == b"stays").collect();
                    assert_eq!(stays.len(), usize::try_from(keys / 10).unwrap());
                    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
                    for _ in 0..500 {
                        let number = u32::try_from(random.below(u64::from(keys))).unwrap();
                        let key = (number - number % 10).to_be_bytes();
                        assert_eq!(get(tree, &key).unwrap(), b"stays");
                    }
                    let first = u32::try_from(random.below(u64::from(keys - 900))).unwrap();
                    let numbers = (first - first % 10..).step_by(10).take(80);
                    let some: Vec<_> = numbers.map(u32::to_be_bytes).collect();
                    let some: Vec<&[u8]> = some.iter().map(|key| &key[..]).collect();
                    let mut found = Vec::new();
                    tree.multi_get(&some, make, &mut found).unwrap();
                    assert!(found.iter().all(|value| value.as_deref() == Some(b"stays")));
                }
            });
        }
    });
}

fn entries_while_changing(tree: &Tree, up: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    if up {
        let (mut scan, mut run) = (ForwardScan::new(Vec::new(), None), EntryRun::default());
        while !scan.is_over {
            tree.scan_forward(&mut scan, (30, 2), &mut run).unwrap();
            all.extend(entries_of(&run));
        }
    } else {
        let mut next = None;
        loop {
            let found = tree.scan_reverse((next.as_deref(), None), (30, 2), make, pair).unwrap();
            all.extend(found.entries);
            next = found.next;
            if next.is_none() {
                break;
            }
        }
        all.reverse();
    }
    for (key, value) in &all {
        assert!(value == b"stays" || value.iter().all(|byte| *byte == key[3]), "{key:?}");
    }
    all
}

#[test]
fn layout_of_a_leaf_is_pinned() {
    let shape = TreeShape { page_bytes: 4096, value_bytes: 0 };
    let extent = ExtentRef { length: 70_000, page: 5, checksum: 6, direct: true };
    let cells = [
        Cell { key: b"preab".to_vec(), long: None, payload: Payload::Inline(b"v1".to_vec()) },
        Cell {
            key: [b"pre", &[b'c'; 300][..]].concat(),
            long: Some(LongKey { length: 303, page: 9 }),
            payload: Payload::Extent(extent),
        },
    ];
    let page = NodeBuilder { level: 0, prefix: b"pre", first_child: 0, cells: &cells }
        .build(shape)
        .unwrap();
    let (first, second) = (4096 - 8, 4096 - 8 - 276);
    let head: Vec<u8> = [
        &[0; 8][..],
        &[1, 0, 2, 0, 3, 0, 0, 0],
        &u32::try_from(second).unwrap().to_le_bytes(),
        &[0; 12],
        &[0; 64],
        b"pre\0\0\0\0\0",
    ]
    .concat();
    assert_eq!(page[..104], head);
    let slot = |head: &[u8; 4], offset: u64, inline: u64| {
        (u64::from(u32::from_be_bytes(*head)) << 32 | offset << 16 | inline).to_le_bytes()
    };
    assert_eq!(page[104..112], slot(b"ab\0\0", first, 2));
    assert_eq!(page[112..120], slot(b"cccc", second, 1 << 15 | 256));
    let at = usize::try_from(second).unwrap();
    let word = (0x1_1170_u32 | 1 << 31 | 1 << 30).to_le_bytes();
    let long = [303_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat();
    let reference = [5_u32.to_le_bytes(), 6_u32.to_le_bytes()].concat();
    let entry = [&word[..], &[b'c'; 256], &long, &reference, &[2, 0, 0, 0], b"abv1"].concat();
    assert_eq!(page[at..], entry);
    assert_eq!(page[120..at], vec![0; at - 120]);
}

#[test]
fn layout_of_a_packed_leaf_is_pinned() {
    let shape = TreeShape { page_bytes: 4096, value_bytes: 2 };
    let cell = |key: &[u8], value: &[u8]| Cell {
        key: key.to_vec(),
        long: None,
        payload: Payload::Inline(value.to_vec()),
    };
    let cells = [cell(b"preab", b"v1"), cell(b"preabcdef", b"v2")];
    let build = |shape, cells: &[Cell]| {
        NodeBuilder { level: 0, prefix: b"pre", first_child: 0, cells }.build(shape).unwrap()
    };
    let page = build(shape, &cells);
    let head: Vec<u8> = [
        &[0; 8][..],
        &[6, 0, 2, 0, 3, 0, 2, 0],
        &4090_u32.to_le_bytes(),
        &[0; 12],
        &[0; 64],
        b"pre\0\0\0\0\0",
    ]
    .concat();
    assert_eq!(page[..104], head);
    assert_eq!(page[104..112], [&[2, 0], &4094_u16.to_le_bytes()[..], b"\0\0ba"].concat());
    assert_eq!(page[112..120], [&[6, 0], &4090_u16.to_le_bytes()[..], b"dcba"].concat());
    assert_eq!(page[4090..], *b"efv2v1");
    // What does not fit the form is plain.
    assert_eq!(build(shape, &[cell(b"preab", b"v")])[8], LEAF);
    assert_eq!(build(TreeShape { value_bytes: 0, ..shape }, &cells)[8], LEAF);
}

/// Hints and heads lead to the same slot as a look at all keys, however many share a head.
#[test]
fn a_search_finds_what_a_look_at_all_keys_finds() {
    for value_bytes in [0, 8] {
        searches_agree(TreeShape { page_bytes: 16 << 10, value_bytes });
    }
}

fn searches_agree(shape: TreeShape) {
    let mut random = Random(5);
    for count in (0..40).chain([51, 68, 100, 170, 171, 300]) {
        for heads in [1, 3, 40, 5000] {
            let mut keys = std::collections::BTreeSet::new();
            while keys.len() < count {
                let head = random.below(heads) * 7;
                keys.insert(format!("pre{head:06}{:03}", random.below(600)).into_bytes());
            }
            let cell = |key: &Vec<u8>| Cell {
                key: key.clone(),
                long: None,
                payload: Payload::Inline(vec![3; 8]),
            };
            let cells: Vec<_> = keys.iter().map(cell).collect();
            let builder = NodeBuilder { level: 0, prefix: b"pre", first_child: 0, cells: &cells };
            let page = builder.build(shape).unwrap();
            let words: Vec<_> = page
                .chunks_exact(8)
                .map(|chunk| AtomicU64::new(u64::from_le_bytes(chunk.try_into().unwrap())))
                .collect();
            let view = NodeView::new(PageWords::new(&words)).unwrap();
            assert!(view.hints_match() && view.heads_match());
            let sought = (0..200).map(|_| {
                let head = random.below(heads * 7 + 1);
                format!("pre{head:06}{:03}", random.below(600)).into_bytes()
            });
            for key in keys.iter().cloned().chain(sought).chain([b"pre".to_vec()]) {
                let expected = (keys.range(..key.clone()).count(), keys.contains(&key));
                assert_eq!(view.search(&key, &mut |_| None), Some(expected), "{count} {heads}");
            }
        }
    }
}
