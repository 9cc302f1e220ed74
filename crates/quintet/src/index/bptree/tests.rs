//! Goal: the tree agrees with an ordered map whatever is put into it and taken out, in pages of the
//! smallest size, in one thread and in several; and its own check agrees.

use std::collections::BTreeMap;

use super::{
    node::*,
    run::{Ascent, Run},
    space::Bits,
    *,
};
use crate::{
    budget::Budget,
    disk::{Env as _, Open, sim::SimEnv},
    pages::cache::{CacheOptions, Replacement},
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
    let env = SimEnv::new(1);
    let dir = env.open_dir(std::path::Path::new("tree"), true).unwrap();
    let options = CacheOptions {
        page_bytes: 4096,
        frames_min: frames,
        frames_max: frames,
        replacement: Replacement::Clock,
        lasting_kind: INNER,
        salt: 7,
    };
    let budget = Arc::new(Budget::new(1 << 30));
    let cache = PageCache::new("pages".to_owned(), options, budget).unwrap();
    cache.set_file(dir.open("pages", Open::CREATE.direct()).unwrap());
    let tree = Tree::new(Arc::new(cache), Space::new(64, Bits::new()), true);
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

fn entries_of(run: &Run) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let entries = (0..run.len()).filter_map(|index| run.entry(index));
    entries.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

/// Everything in the tree, upwards and downwards in small steps, which must agree.
fn entries(tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut up, mut run) = (Vec::new(), Run::default());
    let mut ascent = Ascent::new(Vec::new(), None);
    while !ascent.is_over {
        tree.ascend(&mut ascent, (7, 0), &mut run).unwrap();
        up.extend(entries_of(&run));
    }
    let mut down = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    loop {
        let found = tree.scan_down((before.as_deref(), None), (5, 0), make, pair).unwrap();
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
    for seed in 0..6 {
        let mut random = Random(seed);
        let tree = tree(100_000);
        let mut model = BTreeMap::new();
        let mut figures = Change::default();
        let range = [60, 400, 4000][usize::try_from(seed % 3).unwrap()];
        for round in 0..6000 {
            let key = some_key(&mut random, range);
            // It grows, and then shrinks.
            let puts = if round < 3500 { 8 } else { 3 };
            match random.below(10) {
                roll if roll < puts => {
                    let value = value(&mut random);
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
        assert_eq!(figures, Change::default());
        assert_eq!(entries(&tree), []);
        // What is left: meta, map, an empty root, and the maps of further extents.
        assert_eq!(tree.height(), 1, "seed {seed}");
        assert_eq!(tree.space().used(), 2 + tree.space().end() / 64, "seed {seed}");
        assert_eq!((tree.leaf_pages(), tree.inner_pages()), (1, 0));
    }
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
    let estimate = tree
        .estimate(Some(&5_000_u32.to_be_bytes()), Some(&10_000_u32.to_be_bytes()), 20_000)
        .unwrap();
    assert!((2_000..12_000).contains(&estimate), "{estimate}");
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
                let mut random = Random(u64::from(thread));
                for _ in 0..20_000 {
                    let number = u32::try_from(random.below(u64::from(keys))).unwrap();
                    let own = number - number % 10 + thread;
                    let key = own.to_be_bytes();
                    if random.below(2) == 0 {
                        let length = usize::try_from(random.below(300)).unwrap();
                        tree.put(&key, [&vec![key[3]; length], &[]], None).unwrap();
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
                }
            });
        }
    });
}

fn entries_while_changing(tree: &Tree, up: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    if up {
        let (mut ascent, mut run) = (Ascent::new(Vec::new(), None), Run::default());
        while !ascent.is_over {
            tree.ascend(&mut ascent, (30, 2), &mut run).unwrap();
            all.extend(entries_of(&run));
        }
    } else {
        let mut next = None;
        loop {
            let found = tree.scan_down((next.as_deref(), None), (30, 2), make, pair).unwrap();
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
    let shape = Shape { page_bytes: 4096 };
    let far = Far { length: 70_000, page: 5, checksum: 6, direct: true };
    let cells = [
        Cell { key: b"preab".to_vec(), long: None, payload: Payload::Here(b"v1".to_vec()) },
        Cell {
            key: [b"pre", &[b'c'; 300][..]].concat(),
            long: Some(LongKey { length: 303, page: 9 }),
            payload: Payload::Far(far),
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
