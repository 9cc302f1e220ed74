//! Pools: on real files, and through every power loss that the simulator makes.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use super::{
    pool::{PoolMode, Sizes},
    simulator::{CrashImages, Recorder, images_wanted, waste},
    slabs::rounded,
    *,
};
use crate::{
    Result,
    io::{Env, Open, os::OsEnv, persistence::Slowness},
    journal::redo::Owner,
    util::{
        codec::to_u64,
        mutant::{Bug, finds},
    },
};

const EMULATED: PoolMode =
    PoolMode::Emulated(Slowness { line: Duration::ZERO, bytes_per_second: 0 });

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quintet-pmem-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn owner(&self) -> Owner {
        let dir = OsEnv::new().open_dir(&self.0, false).unwrap();
        Owner { dir, database_id: [7; 16], table_id: 3 }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A stack of objects: what the tests keep in a pool. Object: next, bytes, then words of the value.
mod stack {
    use super::*;

    pub(super) const ROOT: u64 = 3;

    pub(super) fn push(pool: &Pool, value: u64, bytes: u64) -> Result<()> {
        let at = pool.alloc(bytes)?;
        pool.store(at, pool.root(ROOT));
        pool.store(at + 8, bytes);
        (at + 16..at + bytes / 8 * 8).step_by(8).for_each(|word| pool.store(word, value ^ word));
        pool.flush(at, bytes / 8 * 8);
        pool.publish(Pool::root_at(ROOT), at);
        Ok(())
    }

    pub(super) fn pop(pool: &Pool) -> Result<()> {
        let at = pool.root(ROOT);
        if at != 0 {
            pool.replace(Pool::root_at(ROOT), pool.load(at));
            pool.free(at)?;
        }
        Ok(())
    }

    /// Offsets and sizes, newest first.
    pub(super) fn objects(pool: &Pool) -> Vec<(u64, u64)> {
        let mut at = pool.root(ROOT);
        let mut found = Vec::new();
        while at != 0 && found.len() < 10_000 {
            found.push((at, pool.load(at + 8)));
            at = pool.load(at);
        }
        found
    }

    /// The values, newest first; panics where one is not whole.
    pub(super) fn values(pool: &Pool) -> Vec<u64> {
        let value = |(at, bytes): (u64, u64)| {
            let words = (at + 16..at + bytes / 8 * 8).step_by(8);
            let mut values = words.map(|word| pool.load(word) ^ word);
            let first = values.next().unwrap();
            assert!(values.all(|value| value == first), "an object is not whole");
            first
        };
        objects(pool).into_iter().map(value).collect()
    }

    pub(super) fn sweep(pool: &Pool) -> Result<()> {
        pool.sweep(|marks| {
            for (at, _) in objects(pool) {
                if !marks.add(at) {
                    return Err(pool.damage(at, "the stack leads to what is no object"));
                }
            }
            Ok(())
        })
    }
}

fn push_size(number: u64) -> u64 {
    let slab = SLAB_BYTES;
    [24, 40, 64, 24, 128, 200, slab / 8, 24, 600, slab + 8, 32]
        [usize::try_from(number % 11).unwrap()]
}

#[test]
fn a_pool_grows_and_comes_back_wherever_it_lands() {
    let scratch = Scratch::new("grows");
    let sizes = Sizes { first: 8 * SLAB_BYTES, most: 100 * SLAB_BYTES };
    let open = || Pool::open(&scratch.owner(), "pool", sizes, EMULATED, [1; 16]).unwrap();
    assert!(open().is_none());
    let pool = Pool::create(&scratch.owner(), "pool", sizes, EMULATED, [1; 16]).unwrap();
    let mut count = 0;
    let error = loop {
        match stack::push(&pool, count, push_size(count)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, crate::Error::DiskFull { .. }), "{error}");
    assert_eq!(pool.bytes(), 64 * SLAB_BYTES, "it doubles to at most what it may have");
    assert!(pool.used_bytes() > 45 * SLAB_BYTES && count > 100);
    let expected: Vec<u64> = (0..count).rev().collect();
    assert_eq!(stack::values(&pool), expected);
    // The process dies: nothing is closed.
    drop(pool);
    let pool = open().unwrap();
    assert_eq!(stack::values(&pool), expected);
    stack::sweep(&pool).unwrap();
    let used: u64 = stack::objects(&pool).iter().map(|(_, bytes)| rounded(*bytes)).sum();
    assert_eq!(pool.used_bytes(), used);
    (0..count).for_each(|_| stack::pop(&pool).unwrap());
    assert_eq!(pool.used_bytes(), 0);
    stack::push(&pool, 77, 24).unwrap();
    assert!(pool.free(pool.root(stack::ROOT) + 8).is_err(), "no object begins there");
    drop(pool);
    // The system went down: an emulated pool is given up, unless it was closed.
    let other = |boot| Pool::open(&scratch.owner(), "pool", sizes, EMULATED, [boot; 16]).unwrap();
    assert!(other(2).is_none());
    open().unwrap().close().unwrap();
    let pool = other(2).unwrap();
    assert_eq!(stack::values(&pool), [77]);
    drop(pool);
    assert!(other(3).is_none(), "it was open again");
}

#[test]
fn the_head_and_the_directory_are_pinned() {
    let scratch = Scratch::new("pinned");
    let sizes = Sizes { first: 8 * SLAB_BYTES, most: 8 * SLAB_BYTES };
    let pool = Pool::create(&scratch.owner(), "pool", sizes, EMULATED, [9; 16]).unwrap();
    for bytes in [24, 24, 300, SLAB_BYTES + 1] {
        pool.alloc(bytes).unwrap();
    }
    pool.publish(Pool::root_at(2), 4096);
    let words: Vec<u64> = (0..72).map(|word| pool.load(word * 8)).collect();
    assert_eq!(words[0].to_le_bytes(), *b"QNTPMEM\0");
    assert_eq!(words[5], 8 * SLAB_BYTES);
    assert_eq!(words[8..11], [0x0909_0909_0909_0909, 0x0909_0909_0909_0909, 0]);
    assert_eq!(words[16..19], [0, 0, 4096]);
    // Its own slab, two classes, and a run of two slabs.
    assert_eq!(words[64..70], [0, 2, 25, 1 << 63 | 2, 0, 0]);
    pool.close().unwrap();
    assert_eq!(pool.load(80), 1);
    drop(pool);
    let damage = |word: u64, value: u64| {
        let dir = scratch.owner().dir;
        let file = dir.open("pool", Open::WRITE).unwrap();
        file.write_at(&value.to_le_bytes(), word * 8).unwrap();
        Pool::open(&scratch.owner(), "pool", sizes, EMULATED, [9; 16])
    };
    assert!(matches!(damage(65, 41), Err(crate::Error::Corruption { .. })));
    assert!(matches!(damage(65, 1 << 63 | 9), Err(crate::Error::Corruption { .. })));
    assert!(damage(65, 0).unwrap().is_some());
    assert!(matches!(damage(5, 1 << 20), Err(crate::Error::Corruption { .. })));
}

#[test]
fn persistent_memory_is_refused_where_there_is_none() {
    let scratch = Scratch::new("refused");
    let sizes = Sizes { first: 8 * SLAB_BYTES, most: 8 * SLAB_BYTES };
    match Pool::create(&scratch.owner(), "pool", sizes, PoolMode::Persistent, [1; 16]) {
        // On a machine that has it: the stores are the same.
        Ok(pool) => stack::push(&pool, 1, 24).unwrap(),
        Err(error) => assert!(error.to_string().contains("map a pool"), "{error}"),
    }
    let odd = Sizes { first: 3 * SLAB_BYTES, most: 8 * SLAB_BYTES };
    let made = Pool::create(&scratch.owner(), "pool", odd, EMULATED, [1; 16]);
    assert!(matches!(made, Err(crate::Error::Limit { .. })));
}

#[test]
fn slow_memory_takes_its_time() {
    let scratch = Scratch::new("slow");
    let sizes = Sizes { first: 8 * SLAB_BYTES, most: 8 * SLAB_BYTES };
    let slow = Slowness { line: Duration::from_micros(50), bytes_per_second: 0 };
    let narrow = Slowness { line: Duration::ZERO, bytes_per_second: 1_280_000 };
    for slowness in [slow, narrow] {
        let mode = PoolMode::Emulated(slowness);
        let pool = Pool::create(&scratch.owner(), "pool", sizes, mode, [1; 16]).unwrap();
        let at = pool.alloc(1000).unwrap();
        let (before, start) = (pool.counts(), OsEnv::new().monotonic());
        pool.flush(at, 640);
        pool.fence();
        let lines = pool.counts().lines - before.lines;
        assert!((10..=11).contains(&lines) && pool.counts().fences == before.fences + 1);
        let took = OsEnv::new().monotonic().saturating_sub(start);
        assert!(took >= Duration::from_micros(500));
    }
}

/// Pushes and pops, by a seed; all of it is seen after any crash or it was under way.
fn crash(seed: u64, operations: usize, limit: u64) -> u64 {
    let recorder = Arc::new(Recorder::zeroed(16 * SLAB_BYTES));
    let pool = Pool::on_recorder(&recorder).unwrap();
    let before = recorder.image();
    let (mut model, mut states) = (Vec::new(), vec![Vec::new()]);
    let mut random = seed;
    for number in 0..to_u64(operations) {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if random >> 60 < 6 {
            stack::pop(&pool).unwrap();
            model.pop();
        } else if stack::push(&pool, number, push_size(random >> 33)).is_ok() {
            model.push(number);
        }
        recorder.done();
        states.push(model.iter().rev().copied().collect::<Vec<u64>>());
    }
    let events = recorder.take();
    let (clean, idle) = waste(&events);
    assert_eq!((clean, idle), (0, 0), "nothing is written back or waited for in vain");
    let mut crash_images = CrashImages::new(before, seed);
    let mut again = 0;
    crash_images.replay(&events, &mut |image, done| {
        again += 1;
        let expected = [&states[done], &states[(done + 1).min(operations)]];
        recover(&image, &expected);
        again < limit
    });
    crash_images.images
}

/// Opens an image, sees one of the states, and goes on with it.
fn recover(image: &[u64], expected: &[&Vec<u64>]) {
    let recorder = Arc::new(Recorder::new(image));
    let pool = Pool::on_recorder(&recorder).unwrap();
    let found = stack::values(&pool);
    assert!(expected.contains(&&found), "found {found:?}, expected {expected:?}");
    // Whatever is given out, without a sweep or after one, is nobody's.
    if found.len().is_multiple_of(2) {
        stack::sweep(&pool).unwrap();
        let used: BTreeMap<u64, u64> = stack::objects(&pool).into_iter().collect();
        let used: u64 = used.values().map(|bytes| rounded(*bytes)).sum();
        assert_eq!(pool.used_bytes(), used, "bytes in use and reachable");
    }
    let mut count = 0;
    for number in 1000..1012 {
        count += u64::from(stack::push(&pool, number, push_size(number)).is_ok());
    }
    let after = stack::values(&pool);
    assert_eq!(after[usize::try_from(count).unwrap()..], found, "what was there is overwritten");
}

#[test]
fn every_power_loss_leaves_what_was_acknowledged() {
    let images: u64 = (1..4).map(|seed| crash(seed, 60, u64::MAX)).sum();
    assert!(images > 5_000, "{images}");
}

#[test]
fn seeded_bugs_of_a_pool_are_found() {
    let test = || {
        crash(2, 60, u64::MAX);
    };
    finds(Bug::PmemForgetsSlab, test);
    finds(Bug::PmemSweepsNothing, test);
    finds(Bug::PmemPublishesEarly, test);
    finds(Bug::PmemPublishesLazily, test);
}

/// `just pmem-crash`: as many images as asked for.
#[test]
#[ignore = "a campaign of minutes: `just pmem-crash`"]
fn pmem_crash_pool() {
    let wanted = images_wanted();
    let (mut images, mut seed) = (0, 100);
    while images < wanted {
        images += crash(seed, 150, wanted - images);
        seed += 1;
    }
    println!("pmem pool: {images} images of {} runs", seed - 100);
}
