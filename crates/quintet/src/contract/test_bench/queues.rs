//! Tests of queues on one engine: ranges at keys that were deleted.

use std::{collections::BTreeMap, ops::ControlFlow};

use super::{Bench, Random, background, check, commit, delete, detail, put};
use crate::{
    contract::{Engine, KeyRange, Op},
    util::codec::Lsn,
};

/// Keys of a queue at its beginning, and how many of them are deleted.
const KEYS: u64 = 3_000;
const DELETED: u64 = 2_000;
/// Maximum number of deleted keys that a step of a queue passes.
const PASSED_MAX: u64 = 64;

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// How the keys of a queue are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deleted {
    OneByOne,
    AsARange,
}

/// What happens between the deletes and the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    Nothing,
    Checkpoint,
    Reopening,
}

/// The end of a queue that a step takes from. It adds at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenFrom {
    Front,
    Back,
}

fn delete_range(engine: &impl Engine, lsn: u64, (start, end): (&[u8], &[u8])) {
    commit(engine, lsn, &Op::DeleteRange { start, end }).unwrap();
}

/// Returns the first or the last key.
fn outermost(engine: &impl Engine, from: TakenFrom) -> Vec<u8> {
    let mut range = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
    let entry = match from {
        TakenFrom::Front => range.next(),
        TakenFrom::Back => range.next_back(),
    };
    entry.unwrap().unwrap().key
}

/// Takes an entry from one end of a queue and adds one at the other, behind many deleted keys. A
/// step passes few of them.
fn take_and_add<E: Engine>(
    bench: &Bench<E>,
    (deleted, between): (Deleted, Between),
    from: TakenFrom,
) {
    let (mut engine, _) = bench.open();
    let first = 1_000_000;
    for number in 0..KEYS {
        put(&engine, number + 1, &key(first + number), &[7; 50]);
    }
    background(&engine, KEYS);
    let gone = match from {
        TakenFrom::Front => first..first + DELETED,
        TakenFrom::Back => first + KEYS - DELETED..first + KEYS,
    };
    let mut lsn = KEYS;
    if deleted == Deleted::AsARange {
        lsn += 1;
        delete_range(&engine, lsn, (&key(gone.start), &key(gone.end)));
    } else {
        for number in gone.clone() {
            lsn += 1;
            delete(&engine, lsn, &key(number));
        }
    }
    if between != Between::Nothing {
        engine.checkpoint(Lsn(lsn)).unwrap();
    }
    if between == Between::Reopening {
        drop(engine);
        (engine, _) = bench.open();
    }
    let what = format!("{deleted:?}, {between:?}, {from:?}");
    let mut live = match from {
        TakenFrom::Front => gone.end..first + KEYS,
        TakenFrom::Back => first..gone.start,
    };
    // The first range passes every deleted key once, unless a range delete has recorded them.
    assert_eq!(
        outermost(&engine, from),
        key(if from == TakenFrom::Front { live.start } else { live.end - 1 })
    );
    for step in 0..300 {
        let before = detail(&engine, "tombstones_passed_total");
        let taken = outermost(&engine, from);
        let passed = detail(&engine, "tombstones_passed_total") - before;
        assert!(passed <= PASSED_MAX, "{what}, step {step}: {passed} deleted keys were passed");
        let (expected, added) = match from {
            TakenFrom::Front => (live.start, live.end),
            TakenFrom::Back => (live.end - 1, live.start - 1),
        };
        live = match from {
            TakenFrom::Front => live.start + 1..live.end + 1,
            TakenFrom::Back => live.start - 1..live.end - 1,
        };
        assert_eq!(taken, key(expected), "{what}, step {step}");
        delete(&engine, lsn + 1, &taken);
        put(&engine, lsn + 2, &key(added), b"added");
        lsn += 2;
        if step % 100 == 50 {
            background(&engine, lsn);
        }
    }
    check(&engine);
}

/// Runs [`take_and_add`] in every order of deletes, files and directions.
pub(crate) fn queues_pass_few_deleted_keys<E: Engine>(bench: impl Fn() -> Bench<E>) {
    for deleted in [Deleted::OneByOne, Deleted::AsARange] {
        for between in [Between::Nothing, Between::Checkpoint, Between::Reopening] {
            for from in [TakenFrom::Front, TakenFrom::Back] {
                take_and_add(&bench(), (deleted, between), from);
            }
        }
    }
}

/// Compares ranges from random keys, in both directions and by `visit`.
fn compare_ranges(engine: &impl Engine, rows: &BTreeMap<Vec<u8>, u64>, random: &mut Random) {
    let (one, other) = (key(random.below(1_000)), key(random.below(1_000)));
    let (start, end) = (one.clone().min(other.clone()), one.max(other));
    let expected = || rows.range(start.clone()..end.clone()).map(|(key, _)| key.clone());
    let range = || KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
    let ordered = engine.ordered().unwrap();
    let found = ordered.range(range()).unwrap().map(|entry| entry.unwrap().key);
    assert!(found.eq(expected()), "upwards");
    let found = ordered.range(range()).unwrap().rev().map(|entry| entry.unwrap().key);
    assert!(found.eq(expected().rev()), "downwards");
    let mut found = Vec::new();
    let mut each = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        Ok(ControlFlow::Continue(()))
    };
    ordered.visit(range(), &mut each).unwrap();
    assert!(found.into_iter().eq(expected()), "visited");
}

/// Deletes long runs of keys and puts some of them again, at random, and compares ranges among it.
pub(crate) fn puts_into_deleted_ranges<E: Engine>(bench: &Bench<E>) {
    let (mut engine, _) = bench.open();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut rows = BTreeMap::new();
    let mut lsn = 0;
    for round in 0..600 {
        let (start, count) = (random.below(900), 1 + random.below(300));
        match random.below(10) {
            0..2 => {
                for number in start..(start + count).min(1_000) {
                    lsn += 1;
                    put(&engine, lsn, &key(number), &lsn.to_be_bytes());
                    rows.insert(key(number), lsn);
                }
            }
            2..4 => {
                for number in start..(start + count).min(1_000) {
                    lsn += 1;
                    delete(&engine, lsn, &key(number));
                    rows.remove(&key(number));
                }
            }
            4 => {
                lsn += 1;
                let end = key(start + count);
                delete_range(&engine, lsn, (&key(start), &end));
                rows.retain(|one, _| *one < key(start) || *one >= end);
            }
            5..9 => {
                for _ in 0..=random.below(3) {
                    lsn += 1;
                    let number = random.below(1_000);
                    put(&engine, lsn, &key(number), &lsn.to_be_bytes());
                    rows.insert(key(number), lsn);
                }
            }
            _ if round % 3 == 0 => {
                engine.checkpoint(Lsn(lsn)).unwrap();
                drop(engine);
                (engine, _) = bench.open();
            }
            _ => background(&engine, lsn),
        }
        for _ in 0..3 {
            compare_ranges(&engine, &rows, &mut random);
        }
    }
    check(&engine);
}

/// Counts the keys of a small table, which reads keys without values, before and after ranges are
/// recorded. A later range finds all keys between the deleted ones.
pub(crate) fn counts_keys_among_deleted_ones<E: Engine>(bench: &Bench<E>) {
    let (engine, _) = bench.open();
    for number in 0..600 {
        put(&engine, number + 1, &key(number), b"value");
    }
    for number in (100..200).chain(300..400) {
        delete(&engine, 1_000 + number, &key(number));
    }
    for _ in 0..3 {
        assert_eq!(engine.stats().keys, 400);
        let range = || engine.ordered().unwrap().range(KeyRange::default()).unwrap();
        assert_eq!(range().count(), 400);
        assert_eq!(range().rev().count(), 400);
    }
    assert_eq!(detail(&engine, "empty_ranges"), 2);
}
