//! The tree: beside a map, beside a writer, and through every power loss that the simulator makes;
//! and what a flush does with a list and the tree together.

use std::{collections::BTreeMap, time::Duration};

use super::{read::ScanBatch, *};
use crate::{
    io::{Env as _, os::OsEnv, persistence::Slowness},
    journal::redo::Owner,
    lsm::memtable::persistent_list::PersistentList,
    pmem::{
        PoolMode, SLAB_BYTES, Sizes,
        simulator::{CrashImages, Event, Recorder, images_wanted, waste},
    },
    util::{
        codec::to_u64,
        mutant::{Bug, finds},
    },
};

const POOL_BYTES: u64 = 16 * SLAB_BYTES;
const TREE: u64 = 0;
const LIST: u64 = 1;
const CAPACITY_OF_LIST: u64 = 64 << 10;

type Model = BTreeMap<Vec<u8>, u64>;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 9) % end
    }

    /// Keys that share prefixes, end in zeros, and are of many lengths.
    fn key(&mut self) -> Vec<u8> {
        let mut key = b"shared-prefix-"[..[0, 0, 3, 14][to_usize(self.below(4))]].to_vec();
        let length = 1 + self.below(9);
        key.extend((0..length).map(|_| low_u8(self.below(2) * 127)));
        key
    }
}

fn pool(recorder: &Arc<Recorder>) -> Arc<Pool> {
    Arc::new(Pool::on_recorder(recorder).unwrap())
}

fn made(pool: &Arc<Pool>) -> FairTree {
    let tree = FairTree::create(pool).unwrap();
    pool.publish(Pool::root_at(TREE), tree.root());
    tree
}

fn contents(tree: &FairTree) -> Model {
    let ScanBatch { entries, next } = tree.scan_up(b"", None, usize::MAX).unwrap();
    assert_eq!(next, None);
    let count = entries.len();
    let found: Model = entries.into_iter().collect();
    assert_eq!(found.len(), count, "a key comes twice");
    found
}

/// Does something by chance, and so does the model.
fn step(tree: &FairTree, model: &mut Model, random: &mut Random, number: u64) {
    // Now and then a known key.
    let known = to_usize(random.below(to_u64(model.len().max(1))));
    let known = model.keys().nth(known).cloned().filter(|_| random.below(2) == 0);
    let key = known.unwrap_or_else(|| random.key());
    if random.below(100) < 40 {
        assert_eq!(tree.delete(&key).unwrap(), model.remove(&key));
    } else {
        assert_eq!(tree.put(&key, number).unwrap(), model.insert(key, number));
    }
}

#[test]
fn agrees_with_a_map() {
    let recorder = Arc::new(Recorder::zeroed(512 * SLAB_BYTES));
    let pool = pool(&recorder);
    let tree = made(&pool);
    let (mut model, mut random) = (Model::new(), Random(0x5eed));
    for round in 0..6 {
        for number in 0..1500 {
            step(&tree, &mut model, &mut random, number);
        }
        // Odd rounds empty half of it.
        for key in model.keys().skip(1).step_by(2).cloned().collect::<Vec<_>>() {
            if round % 2 == 1 {
                assert_eq!(tree.delete(&key).unwrap(), model.remove(&key));
            }
        }
        assert_eq!(tree.check().unwrap(), to_u64(model.len()));
        assert_eq!(contents(&tree), model);
        check_scans(&tree, &model, &mut random);
        recorder.take();
    }
    let shape = tree.shape().unwrap();
    let (levels, nodes) = (shape.levels, shape.nodes);
    assert!(levels >= 3, "{levels} levels, {nodes} nodes");
    // All of it goes, and comes back to an empty tree.
    for key in model.keys() {
        assert!(tree.delete(key).unwrap().is_some());
    }
    assert_eq!((tree.check().unwrap(), contents(&tree)), (0, Model::new()));
    let after = tree.shape().unwrap().nodes;
    assert!(after < nodes / 2, "{nodes} nodes, {after} of them without a key stay");
    let opened = opened(&pool, tree.root(), &[]);
    pool.sweep(|marks| opened.mark(marks)).unwrap();
    assert_eq!(opened.check().unwrap(), 0);
    let refused = tree.put(b"", 1);
    assert!(matches!(refused, Err(crate::Error::Limit { .. })));
}

/// A tree that was opened after a crash during the change of one of these keys.
fn opened(pool: &Arc<Pool>, at: u64, changed: &[Vec<u8>]) -> FairTree {
    let changed: Vec<&[u8]> = changed.iter().map(Vec::as_slice).collect();
    let tree = FairTree::open_at(pool, at, &changed).unwrap();
    tree.set_keys(to_u64(contents(&tree).len()));
    tree
}

fn check_scans(tree: &FairTree, model: &Model, random: &mut Random) {
    for _ in 0..300 {
        let (one, other) = (random.key(), random.key());
        assert_eq!(tree.get(&one).unwrap(), model.get(&one).copied());
        let (start, end) = (one.clone().min(other.clone()), one.max(other));
        let expected: Vec<_> = model.range(start.clone()..end.clone()).collect();
        let end = (random.below(4) > 0).then_some(&*end);
        let expected: Vec<_> = match end {
            Some(_) => expected,
            None => model.range(start.clone()..).collect(),
        };
        let (mut up, mut from) = (Vec::new(), start.clone());
        loop {
            let found = tree.scan_up(&from, end, 5).unwrap();
            up.extend(found.entries);
            match found.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert!(up.iter().map(|(key, value)| (key, value)).eq(expected.iter().copied()));
        let (mut down, mut to) = (Vec::new(), end.map(<[u8]>::to_vec));
        loop {
            let found = tree.scan_down(&start, to.as_deref(), 5).unwrap();
            down.extend(found.entries);
            match found.next {
                Some(next) => to = Some(next),
                None => break,
            }
        }
        down.reverse();
        assert_eq!(down, up);
    }
}

#[test]
fn keys_that_grow_fill_their_nodes() {
    let recorder = Arc::new(Recorder::zeroed(512 * SLAB_BYTES));
    let pool = pool(&recorder);
    let tree = made(&pool);
    for number in 0..3000_u64 {
        tree.put(format!("key-{number:08}").as_bytes(), number).unwrap();
    }
    let nodes = tree.shape().unwrap().nodes;
    assert!(nodes * (CAPACITY - 1) < 3000 * 12 / 10, "{nodes} nodes");
    assert_eq!(tree.check().unwrap(), 3000);
}

#[test]
fn a_full_pool_refuses_and_keeps_what_it_has() {
    let recorder = Arc::new(Recorder::zeroed(POOL_BYTES));
    let pool = pool(&recorder);
    let tree = made(&pool);
    let mut model = Model::new();
    let mut random = Random(9);
    let error = loop {
        let key = random.key();
        match tree.put(&key, 5) {
            Ok(_) => model.insert(key, 5),
            Err(error) => break error,
        };
    };
    assert!(matches!(error, crate::Error::DiskFull { .. }), "{error}");
    assert_eq!(contents(&tree), model);
    for key in model.keys().take(model.len() / 2).cloned().collect::<Vec<_>>() {
        assert_eq!(tree.delete(&key).unwrap(), model.remove(&key));
    }
    for number in 0..20 {
        step(&tree, &mut model, &mut random, number);
    }
    assert_eq!(contents(&tree), model);
    let opened = opened(&pool, tree.root(), &[]);
    pool.sweep(|marks| opened.mark(marks)).unwrap();
    assert_eq!((opened.check().unwrap(), contents(&opened)), (to_u64(model.len()), model));
}

#[test]
fn readers_look_beside_a_writer() {
    const KEYS: u64 = 400;
    let recorder = Arc::new(Recorder::zeroed(512 * SLAB_BYTES));
    let pool = pool(&recorder);
    let tree = made(&pool);
    let key = |number: u64| format!("{:05}-{number}", number * 7919 % 1000).into_bytes();
    // Even keys stay, odd ones come and go; a key's word is of that key.
    (0..KEYS).step_by(2).for_each(|number| drop(tree.put(&key(number), number << 32)));
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (tree, done) = (&tree, &done);
            scope.spawn(move || {
                let mut random = Random(77 + thread);
                while done.load(Ordering::Acquire) == 0 {
                    for _ in 0..200 {
                        let number = random.below(KEYS);
                        let found = tree.get(&key(number)).unwrap();
                        assert!(found.is_none_or(|word| word >> 32 == number));
                        assert!(number % 2 == 1 || found.is_some(), "{number} is not found");
                    }
                    let found = contents(tree);
                    let even = |number: &u64| found.contains_key(&key(*number));
                    assert!((0..KEYS).step_by(2).all(|number| even(&number)));
                    assert!(found.iter().all(|(found, word)| *found == key(word >> 32)));
                    let down = tree.scan_down(b"", None, usize::MAX).unwrap().entries;
                    assert!(down.windows(2).all(|pair| pair[0].0 > pair[1].0));
                    assert!(to_u64(down.len()) >= KEYS / 2);
                }
            });
        }
        let mut random = Random(5);
        for round in 0..40 {
            for _ in 0..KEYS {
                let number = random.below(KEYS);
                if number % 2 == 1 && random.below(2) == 0 {
                    tree.delete(&key(number)).unwrap();
                } else {
                    tree.put(&key(number), number << 32 | round).unwrap();
                }
            }
            recorder.take();
        }
        done.store(1, Ordering::Release);
    });
    tree.check().unwrap();
}

/// A get that is interrupted after it came to a record, which then goes and is used again.
fn a_record_is_used_again_within_a_get() {
    let recorder = Arc::new(Recorder::zeroed(64 * SLAB_BYTES));
    let pool = pool(&recorder);
    let tree = made(&pool);
    for number in 0..20_u64 {
        tree.put(format!("key-{number:02}").as_bytes(), number).unwrap();
    }
    let mut interrupted = false;
    let found = tree.undisturbed(|| {
        let record = {
            let leaf = tree.find_leaf(Goal::At(b"key-05"))?;
            tree.find_record(leaf, b"key-05", false)?
        };
        if !std::mem::replace(&mut interrupted, true) {
            for number in [5, 6, 7, 8] {
                tree.delete(format!("key-{number:02}").as_bytes())?;
            }
            for number in 50..54_u64 {
                tree.put(format!("new-{number:02}").as_bytes(), number)?;
            }
        }
        Ok(record.map(|record| pool.load(record + record::VALUE)))
    });
    assert_eq!(found.unwrap(), None, "key-05 is gone, and its record another's");
}

#[test]
fn a_get_sees_nothing_that_is_used_again() {
    a_record_is_used_again_within_a_get();
}

/// Puts and deletes by a seed; every image opens, and has what was acknowledged.
fn crash(seed: u64, operations: u64, limit: u64) -> u64 {
    let recorder = Arc::new(Recorder::zeroed(POOL_BYTES));
    let pool = pool(&recorder);
    let tree = made(&pool);
    let (mut model, mut random) = (Model::new(), Random(seed | 1));
    // Some begin with a tree of three levels.
    for number in 0..[0, 12, 160][to_usize(seed % 3)] {
        let key = random.key();
        tree.put(&key, number).unwrap();
        model.insert(key, number);
    }
    recorder.take();
    let before = recorder.image();
    let mut states = vec![model.clone()];
    for number in 1..=operations {
        step(&tree, &mut model, &mut random, number);
        recorder.done();
        states.push(model.clone());
    }
    let events = recorder.take();
    assert_eq!(waste(&events), (0, 0), "write-backs or fences in vain");
    let mut crash_images = CrashImages::new(before, seed);
    let (mut count, mut nested) = (0, 0);
    crash_images.replay(&events, &mut |image, done| {
        count += 1;
        let expected = [&states[done], &states[(done + 1).min(to_usize(operations))]];
        let changed = differences(expected[0], expected[1]);
        if let Some((model, events)) = recover(&image, &expected, &changed, count % 64 == 0) {
            let mut again = CrashImages::new(image, seed);
            again.replay(&events, &mut |image, _| {
                nested += 1;
                recover(&image, &[&model], &changed, false);
                nested % 16 != 0
            });
        }
        count + nested < limit
    });
    crash_images.images + nested
}

/// The keys that two states do not agree on.
fn differences(one: &Model, other: &Model) -> Vec<Vec<u8>> {
    let is_other = |key: &&Vec<u8>| one.get(*key) != other.get(*key);
    one.keys().chain(other.keys()).filter(is_other).cloned().collect()
}

/// Opens an image, sees one of the states, and goes on. `is_kept`: returns what was found and what
/// the opening did.
fn recover(
    image: &[u64],
    expected: &[&Model],
    changed: &[Vec<u8>],
    is_kept: bool,
) -> Option<(Model, Vec<Event>)> {
    let recorder = Arc::new(Recorder::new(image));
    let pool = pool(&recorder);
    let tree = opened(&pool, pool.root(TREE), changed);
    let found = contents(&tree);
    assert!(expected.contains(&&found), "found {found:?}, expected {expected:?}");
    assert_eq!(tree.check().unwrap(), to_u64(found.len()));
    let events = recorder.take();
    if found.len().is_multiple_of(2) {
        pool.sweep(|marks| tree.mark(marks)).unwrap();
    }
    let mut after = found.clone();
    for (number, key) in [&b"after"[..], b"\x7f", b"\0", b"shared", b"t"].iter().enumerate() {
        tree.put(key, to_u64(number)).unwrap();
        after.insert(key.to_vec(), to_u64(number));
    }
    for key in [found.keys().next(), found.keys().next_back()].into_iter().flatten() {
        tree.delete(key).unwrap();
        after.remove(key);
    }
    assert_eq!(contents(&tree), after);
    tree.check().unwrap();
    is_kept.then_some((found, events))
}

#[test]
fn every_power_loss_leaves_what_was_acknowledged() {
    let images: u64 = (1..7).map(|seed| crash(seed, 120, u64::MAX)).sum();
    assert!(images > 5_000, "{images}");
}

/// What slm does: entries come into a list; a flush enters their places into the tree, publishes an
/// empty list in its place and gives the old one back.
struct Store {
    pool: Arc<Pool>,
    tree: FairTree,
    list: PersistentList,
}

impl Store {
    fn create(pool: &Arc<Pool>) -> Self {
        let (pool, tree) = (Arc::clone(pool), made(pool));
        let list = PersistentList::create(&pool, CAPACITY_OF_LIST).unwrap();
        pool.publish(Pool::root_at(LIST), list.root());
        Self { pool, tree, list }
    }

    fn open(pool: &Arc<Pool>) -> Self {
        let list = PersistentList::open(pool, pool.root(LIST), CAPACITY_OF_LIST, u64::MAX).unwrap();
        // A flush may have changed any of them.
        let (mut changed, mut entry) = (Vec::new(), list.seek(b""));
        while let Some(one) = entry {
            let mut key = Vec::new();
            list.copy_key(one, &mut key);
            changed.push(key);
            entry = list.next(one);
        }
        let tree = opened(pool, pool.root(TREE), &changed);
        let mark = |marks: &mut crate::pmem::Marks<'_>| {
            tree.mark(marks)?;
            list.mark(marks)
        };
        pool.sweep(mark).unwrap();
        Self { pool: Arc::clone(pool), tree, list }
    }

    fn flush(&mut self) {
        let mut entry = self.list.seek(b"");
        let mut key = Vec::new();
        while let Some(one) = entry {
            self.list.copy_key(one, &mut key);
            let value = self.list.value(one);
            match self.list.kind(value) {
                0 => drop(self.tree.put(&key, self.list.version(value)).unwrap()),
                _ => drop(self.tree.delete(&key).unwrap()),
            }
            entry = self.list.next(one);
        }
        let fresh = PersistentList::create(&self.pool, CAPACITY_OF_LIST).unwrap();
        self.pool.publish(Pool::root_at(LIST), fresh.root());
        std::mem::replace(&mut self.list, fresh).release().unwrap();
    }

    /// What both say: the list's word first.
    fn contents(&self) -> Model {
        let mut found = contents(&self.tree);
        let mut key = Vec::new();
        let mut entry = self.list.seek(b"");
        while let Some(one) = entry {
            self.list.copy_key(one, &mut key);
            let value = self.list.value(one);
            if self.list.kind(value) == 0 {
                found.insert(key.clone(), self.list.version(value));
            } else {
                found.remove(&key);
            }
            entry = self.list.next(one);
        }
        found
    }
}

/// Writes and flushes by a seed.
fn crash_flush(seed: u64, operations: u64, limit: u64) -> u64 {
    let recorder = Arc::new(Recorder::zeroed(POOL_BYTES));
    let pool = pool(&recorder);
    let mut store = Store::create(&pool);
    recorder.take();
    let before = recorder.image();
    let (mut model, mut random) = (Model::new(), Random(seed | 1));
    let mut states = vec![model.clone()];
    for version in 1..=operations {
        let key = random.key();
        if version % 12 == 0 {
            store.flush();
        } else if random.below(4) == 0 {
            store.list.insert(&key, version, 1, &[]).unwrap();
            model.remove(&key);
        } else {
            store.list.insert(&key, version, 0, &[b"value"]).unwrap();
            model.insert(key, version);
        }
        recorder.done();
        states.push(model.clone());
    }
    let mut crash_images = CrashImages::new(before, seed);
    let mut count = 0;
    crash_images.replay(&recorder.take(), &mut |image, done| {
        count += 1;
        let pool = self::pool(&Arc::new(Recorder::new(&image)));
        let mut store = Store::open(&pool);
        let found = store.contents();
        let expected = [&states[done], &states[(done + 1).min(to_usize(operations))]];
        assert!(expected.contains(&&found), "found {found:?}, expected {expected:?}");
        store.flush();
        assert_eq!(store.contents(), found);
        assert_eq!(store.tree.check().unwrap(), to_u64(found.len()));
        count < limit
    });
    crash_images.images
}

#[test]
fn a_flush_loses_nothing() {
    let images: u64 = (1..3).map(|seed| crash_flush(seed, 40, u64::MAX)).sum();
    assert!(images > 2_000, "{images}");
}

#[test]
fn seeded_bugs_are_found() {
    let test = || {
        assert!((1..7).all(|seed| crash(seed, 40, u64::MAX) > 0));
    };
    finds(Bug::FairSkipsShift, test);
    finds(Bug::FairSkipsShiftBack, test);
    finds(Bug::FairSkipsRecord, test);
    finds(Bug::FairSkipsNode, test);
    finds(Bug::FairCutsFirst, test);
    finds(Bug::FairKeepsPointer, test);
    finds(Bug::FairRepairsNothing, test);
    finds(Bug::FairRepairsLeavesAlone, test);
    finds(Bug::PmemPublishesEarly, test);
    finds(Bug::PmemPublishesLazily, test);
    finds(Bug::FairReadNotValidated, a_record_is_used_again_within_a_get);
}

/// `just pmem-crash`: as many images as asked for, of the tree and of flushes.
#[test]
#[ignore = "a campaign of minutes: `just pmem-crash`"]
fn pmem_crash_tree_and_flush() {
    let (wanted, mut images, mut seed) = (images_wanted(), 0, 100);
    while images < wanted {
        images += crash(seed, 60, wanted - images);
        seed += 1;
    }
    println!("pmem tree: {images} images of {} runs", seed - 100);
    let (mut images, mut seed) = (0, 100);
    while images < wanted {
        images += crash_flush(seed, 60, wanted - images);
        seed += 1;
    }
    println!("pmem flush: {images} images of {} runs", seed - 100);
}

/// What the index of `slm` would cost in a pool: bytes a key and time of a put and a get, beside
/// the tree of pages that it is in. Keys of 20 bytes in random order, as a load enters them.
#[test]
#[ignore = "prints figures: run it in a release build, alone"]
fn beside_the_tree_of_pages() {
    const KEYS: u64 = 1_000_000;
    let key = |number: u64| {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("user{:016}", (mixed ^ mixed >> 29) % 10_000_000_000_000_000).into_bytes()
    };
    let tell = |what: &str, put: &mut dyn FnMut(u64), get: &mut dyn FnMut(u64)| {
        let time = |work: &mut dyn FnMut(u64)| {
            let start = std::time::Instant::now();
            (0..KEYS).for_each(work);
            start.elapsed().as_nanos() / u128::from(KEYS)
        };
        println!("{what}: {} ns a put, {} ns a get", time(put), time(get));
    };
    let tree = crate::bptree::tests::tree_of(16_384, 8);
    let place = |number: u64| number.to_le_bytes();
    tell(
        "pages",
        &mut |number| {
            tree.put(&key(number), [&place(number), &[]], None).unwrap();
        },
        &mut |number| {
            let found = tree.get(&key(number), |length, _| length).unwrap();
            assert_eq!(found, Some(8));
        },
    );
    let pages = tree.leaf_pages() + tree.inner_pages();
    println!("pages: {:.1} bytes a key", percent(pages * 4096 * 100, KEYS));
    for nanos in [0, 300, 500] {
        let slowness = Slowness { line: Duration::from_nanos(nanos), bytes_per_second: 0 };
        let path = std::env::temp_dir().join(format!("quintet-fair-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let dir = OsEnv::new().open_dir(&path, false).unwrap();
        let owner = Owner { dir, database_id: [7; 16], table_id: 3 };
        let sizes = Sizes { first: 256 << 20, most: 256 << 20 };
        let mode = PoolMode::Emulated(slowness);
        let pool = Arc::new(Pool::create(&owner, "pool", sizes, mode, [1; 16]).unwrap());
        let fair = made(&pool);
        tell(
            &format!("pool, {nanos} ns a line"),
            &mut |number| {
                fair.put(&key(number), number).unwrap();
            },
            &mut |number| assert_eq!(fair.get(&key(number)).unwrap(), Some(number)),
        );
        let nodes = fair.shape().unwrap().nodes;
        println!(
            "pool: {:.1} bytes a key, {:.1} of them nodes of {NODE_BYTES}",
            percent(pool.used_bytes() * 100, KEYS),
            percent(nodes * NODE_BYTES * 100, KEYS)
        );
        std::fs::remove_dir_all(&path).unwrap();
    }
}

/// Hundredths of a quotient, as a number.
fn percent(hundreds: u64, of: u64) -> f64 {
    f64::from(u32::try_from(hundreds / of).unwrap()) / 100.0
}
