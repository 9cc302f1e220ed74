//! The persistent list: beside a map, and through every power loss that the simulator makes.

use std::collections::BTreeMap;

use super::*;
use crate::{
    pmem::simulator::{CrashImages, Event, Recorder, images_wanted, waste},
    util::mutant::{Bug, finds},
};

const POOL_BYTES: u64 = 16 * SLAB_BYTES;
const ROOT: u64 = 1;
const CAPACITY: u64 = 64 << 10;

type Model = BTreeMap<Vec<u8>, (u64, u8, Vec<u8>)>;

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
        let length = 1 + self.below(14);
        (0..length).map(|_| low_u8(self.below(2) * 127)).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let length = [0, 3, 8, 17, 60, 150][to_usize(self.below(6))];
        (0..length).map(|place| low_u8(place * 7 + self.0 % 256)).collect()
    }
}

fn pool(recorder: &Arc<Recorder>) -> Arc<Pool> {
    Arc::new(Pool::on_recorder(recorder).unwrap())
}

/// A list at the root of a pool.
fn made(pool: &Arc<Pool>) -> PersistentList {
    let list = PersistentList::create(pool, CAPACITY).unwrap();
    pool.publish(Pool::root_at(ROOT), list.root());
    list
}

fn contents(list: &PersistentList) -> Model {
    let (mut found, mut next, mut key) = (Model::new(), list.seek(b""), Vec::new());
    while let Some(entry) = next {
        list.copy_key(entry, &mut key);
        let value = list.value(entry);
        let mut bytes = vec![0; list.value_bytes(value)];
        list.copy_value(value, &mut bytes);
        found.insert(key.clone(), (list.version(value), list.kind(value), bytes));
        next = list.next(entry);
    }
    found
}

/// Inserts something by chance, and so does the model.
fn step(list: &PersistentList, model: &mut Model, random: &mut Random, version: u64) {
    let (key, value, kind) = (random.key(), random.value(), low_u8(version % 3));
    // Now and then one that comes late.
    let version = if random.below(8) == 0 { version / 2 } else { version };
    let (front, back) = value.split_at(value.len() / 3);
    let outcome = list.insert(&key, version, kind, &[front, back]).unwrap();
    let before = model.get(&key).map(|(before, ..)| *before);
    let expected = match before {
        None => Outcome::New,
        Some(before) if before <= version => Outcome::Replaced,
        Some(_) => Outcome::Old,
    };
    assert_eq!(outcome, expected);
    if outcome != Outcome::Old {
        model.insert(key, (version, kind, value));
    }
}

#[test]
fn agrees_with_a_map_both_ways() {
    let recorder = Arc::new(Recorder::zeroed(512 * SLAB_BYTES));
    let pool = pool(&recorder);
    let list = made(&pool);
    let (mut model, mut random) = (Model::new(), Random(0x5eed));
    assert!(list.is_empty() && list.seek_before(None).is_none());
    for version in 1..4000 {
        step(&list, &mut model, &mut random, version);
    }
    let large = vec![7; to_usize(CHUNK_BYTES)];
    list.insert(b"large", 9, 1, &[&large]).unwrap();
    model.insert(b"large".to_vec(), (9, 1, large));
    let check = |list: &PersistentList| {
        assert_eq!(contents(list), model);
        assert_eq!(list.keys(), to_u64(model.len()));
        let mut key = Vec::new();
        let mut random = Random(77);
        for _ in 0..2000 {
            let asked = random.key();
            let up = list.seek(&asked).map(|entry| {
                list.copy_key(entry, &mut key);
                key.clone()
            });
            assert_eq!(up.as_ref(), model.range(asked.clone()..).next().map(|(key, _)| key));
            let down = list.seek_before(Some(&asked)).map(|entry| {
                list.copy_key(entry, &mut key);
                key.clone()
            });
            assert_eq!(down.as_ref(), model.range(..asked.clone()).next_back().map(|(key, _)| key));
            let version = list.get(&asked).map(|value| list.version(value));
            assert_eq!(version, model.get(&asked).map(|(version, ..)| *version));
        }
        list.copy_key(list.seek_before(None).unwrap(), &mut key);
        assert_eq!(Some(&key), model.keys().next_back());
    };
    check(&list);
    let opened = PersistentList::open(&pool, list.root(), CAPACITY, u64::MAX, &mut |_| {}).unwrap();
    check(&opened);
    pool.sweep(|marks| opened.mark(marks)).unwrap();
    check(&opened);
    assert!(opened.used_bytes() <= list.used_bytes() && opened.used_bytes() > CHUNK_BYTES);
    opened.release().unwrap();
    assert_eq!(pool.used_bytes(), 0);
    let refused = list.insert(b"", 1, 0, &[]);
    assert!(matches!(refused, Err(Error::Limit { .. })));
}

#[test]
fn a_link_to_no_object_is_damage_and_changes_nothing() {
    let recorder = Arc::new(Recorder::zeroed(POOL_BYTES));
    let pool = pool(&recorder);
    let list = made(&pool);
    list.insert(b"a", 5, 0, &[b"one"]).unwrap();
    let at = list.at;
    drop(list);
    // A root that nothing uses: as a node it would be empty, and would be unlinked.
    pool.replace(at + FIRST, link(Pool::root_at(9)));
    let before = recorder.image();
    let opened = PersistentList::open(&pool, at, CAPACITY, 100, &mut |_| {}).map(drop);
    assert!(matches!(opened, Err(Error::Corruption { .. })), "{opened:?}");
    assert!(recorder.image() == before);
}

#[test]
fn an_insert_takes_two_fences_at_most() {
    let recorder = Arc::new(Recorder::zeroed(64 * SLAB_BYTES));
    let pool = pool(&recorder);
    let list = made(&pool);
    let (mut model, mut random) = (Model::new(), Random(0xfe));
    let mut chunks = 0;
    for version in 1..600 {
        recorder.take();
        let used = pool.used_bytes();
        step(&list, &mut model, &mut random, version);
        let events = recorder.take();
        let fences = events.iter().filter(|event| **event == Event::Fenced).count();
        // A new chunk is noted in the directory first: one more, for all that comes into it.
        let is_chunk = pool.used_bytes() > used;
        chunks += usize::from(is_chunk);
        assert!(fences <= 2 + usize::from(is_chunk), "{fences} fences");
        assert_eq!(waste(&events), (0, 0), "write-backs or fences in vain");
    }
    assert!((3..20).contains(&chunks), "{chunks}");
}

#[test]
fn readers_walk_beside_a_writer() {
    const KEYS: u64 = 3000;
    let recorder = Arc::new(Recorder::zeroed(512 * SLAB_BYTES));
    let pool = pool(&recorder);
    let list = made(&pool);
    let key = |number: u64| format!("{:05}", number * 7919 % KEYS).into_bytes();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Acquire) < KEYS {
                    let count = done.load(Ordering::Acquire);
                    let found = contents(&list);
                    assert!(to_u64(found.len()) >= count);
                    for number in (0..count).step_by(97) {
                        let value = list.get(&key(number)).unwrap();
                        let mut bytes = vec![0; list.value_bytes(value)];
                        list.copy_value(value, &mut bytes);
                        assert_eq!(bytes, list.version(value).to_le_bytes());
                    }
                }
            });
        }
        for number in 0..KEYS {
            for version in [number + 1, number + KEYS] {
                list.insert(&key(number), version, 0, &[&version.to_le_bytes()]).unwrap();
            }
            done.store(number + 1, Ordering::Release);
        }
    });
}

/// Inserts by a seed; every image opens, and has what was acknowledged.
fn crash(seed: u64, operations: u64, limit: u64) -> u64 {
    let recorder = Arc::new(Recorder::zeroed(POOL_BYTES));
    let pool = pool(&recorder);
    let list = made(&pool);
    recorder.take();
    let before = recorder.image();
    let (mut model, mut random) = (Model::new(), Random(seed | 1));
    let mut states = vec![model.clone()];
    for version in 1..=operations {
        step(&list, &mut model, &mut random, version);
        recorder.done();
        states.push(model.clone());
    }
    let mut crash_images = CrashImages::new(before, seed);
    let (mut count, mut nested) = (0, 0);
    crash_images.replay(&recorder.take(), &mut |image, done| {
        count += 1;
        let expected = [&states[done], &states[(done + 1).min(to_usize(operations))]];
        let events = recover(&image, &expected, count % 64 == 0);
        if let Some((model, events)) = events {
            // The recovery is crashed as well: what it had found stays.
            let mut again = CrashImages::new(image, seed);
            again.replay(&events, &mut |image, _| {
                nested += 1;
                recover_nested(&image, &model);
                nested % 16 != 0
            });
        }
        count + nested < limit
    });
    crash_images.images + nested
}

/// Opens an image, sees one of the states, and goes on. `is_kept`: returns what was found and what
/// the recovery did.
fn recover(image: &[u64], expected: &[&Model], is_kept: bool) -> Option<(Model, Vec<Event>)> {
    let recorder = Arc::new(Recorder::new(image));
    let pool = pool(&recorder);
    let list =
        PersistentList::open(&pool, pool.root(ROOT), CAPACITY, u64::MAX, &mut |_| {}).unwrap();
    let found = contents(&list);
    assert!(expected.contains(&&found), "found {found:?}, expected {expected:?}");
    if found.len().is_multiple_of(2) {
        pool.sweep(|marks| list.mark(marks)).unwrap();
    }
    let mut after = found.clone();
    for (number, key) in [&b"after"[..], b"\x7f", b"\0"].iter().enumerate() {
        let version = 1000 + to_u64(number);
        list.insert(key, version, 2, &[b"went on"]).unwrap();
        after.insert(key.to_vec(), (version, 2, b"went on".to_vec()));
    }
    assert_eq!(contents(&list), after);
    is_kept.then(|| (found, recorder.take()))
}

fn recover_nested(image: &[u64], found: &Model) {
    let pool = pool(&Arc::new(Recorder::new(image)));
    let list =
        PersistentList::open(&pool, pool.root(ROOT), CAPACITY, u64::MAX, &mut |_| {}).unwrap();
    let again = contents(&list);
    let is_new = |(key, stored): (&Vec<u8>, &(u64, u8, Vec<u8>))| {
        found.get(key) != Some(stored) && stored.0 < 1000
    };
    assert!(!again.iter().any(is_new), "a second crash brings {again:?}, there was {found:?}");
    assert!(found.keys().all(|key| again.contains_key(key)));
}

#[test]
fn every_power_loss_leaves_what_was_acknowledged() {
    let images: u64 = (1..4).map(|seed| crash(seed, 40, u64::MAX)).sum();
    assert!(images > 5_000, "{images}");
}

#[test]
fn damage_is_found() {
    let recorder = Arc::new(Recorder::zeroed(POOL_BYTES));
    let pool = pool(&recorder);
    let list = made(&pool);
    let (mut model, mut random) = (Model::new(), Random(5));
    for version in 1..40 {
        step(&list, &mut model, &mut random, version);
    }
    let image = recorder.image();
    let mut found = 0;
    for (place, _) in image.iter().enumerate().filter(|(_, word)| **word != 0) {
        for bit in [0, 13, 40, 63] {
            let mut damaged = image.clone();
            damaged[place] ^= 1 << bit;
            let Ok(pool) = Pool::on_recorder(&Arc::new(Recorder::new(&damaged))) else { continue };
            let pool = Arc::new(pool);
            // Some words no longer count: what was replaced, the rest of a chunk.
            match PersistentList::open(&pool, pool.root(ROOT), CAPACITY, u64::MAX, &mut |_| {}) {
                Ok(list) => assert_eq!(contents(&list), model, "word {place}, bit {bit}"),
                Err(_) => found += 1,
            }
        }
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn seeded_bugs_are_found() {
    let test = || {
        crash(2, 40, u64::MAX);
    };
    finds(Bug::PersistentListSkipsNode, test);
    finds(Bug::PersistentListSkipsValue, test);
    finds(Bug::PersistentListTakesOlder, agrees_with_a_map_both_ways);
    finds(Bug::PmemPublishesEarly, test);
    finds(Bug::PmemPublishesLazily, test);
}

/// `just pmem-crash`: as many images as asked for.
#[test]
#[ignore = "a campaign of minutes: `just pmem-crash`"]
fn pmem_crash_skip_list() {
    let (wanted, mut images, mut seed) = (images_wanted(), 0, 100);
    while images < wanted {
        images += crash(seed, 100, wanted - images);
        seed += 1;
    }
    println!("pmem skip list: {images} images of {} runs", seed - 100);
}
