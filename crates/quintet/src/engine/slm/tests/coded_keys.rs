//! Tables whose index stores coded keys.

use super::*;
use crate::{contract::OwnedValue, engine::slm::index_key::Coding};

type KeyShape = fn(u64) -> Vec<u8>;

/// Returns a well-distributed number. It is deterministic.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const SHAPES: [(&str, KeyShape); 6] = [
    ("decimal", |number| format!("user{:019}", spread(number) >> 1).into_bytes()),
    ("hex", |number| format!("{:x}", spread(number)).into_bytes()),
    ("binary", |number| spread(number).to_be_bytes().to_vec()),
    ("lengths", |number| {
        let length = to_usize(1 + spread(number) % 40);
        spread(number / 3).to_string().bytes().cycle().take(length).collect()
    }),
    ("prefixes of one another", |number| {
        let length = to_usize(1 + number % 90);
        vec![if number / 90 % 2 == 0 { 0 } else { b'7' }; length]
    }),
    ("runs of bytes", |number| {
        let byte = [0, 255, b'a'][to_usize(number % 3)];
        let mut key = vec![byte; to_usize(spread(number) % 30)];
        key.extend_from_slice(&number.to_le_bytes());
        key
    }),
];

/// Returns a table whose index may code its keys.
fn coded(seed: u64) -> Bench {
    Bench::new(seed).set("key_code", "auto")
}

fn is_coded(engine: &Slm) -> bool {
    matches!(engine.table.keys.coding(), Coding::Code(_))
}

/// Compares ranges from both ends, with bounds that are keys and bounds that are not.
fn compare_ranges(engine: &Slm, rows: &Rows, random: &mut Random) {
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    for round in 0..40 {
        let mut bound = |longer: bool| {
            let mut bound = keys[to_usize(random.below(to_u64(keys.len())))].clone();
            if longer {
                bound.push(0);
            } else if round % 3 == 0 {
                bound.pop();
            }
            bound
        };
        let (start, end) = (bound(round % 2 == 0), bound(round % 5 == 0));
        let inside = |key: &&Vec<u8>| **key >= start && **key < end;
        let expected: Vec<Vec<u8>> = rows.keys().filter(inside).cloned().collect();
        let range = || KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
        let open =
            || engine.ordered().unwrap().range(range()).unwrap().map(|entry| entry.unwrap().key);
        assert_eq!(open().collect::<Vec<_>>(), expected, "from {start:?} to {end:?}");
        let mut down: Vec<Vec<u8>> = open().rev().collect();
        down.reverse();
        assert_eq!(down, expected, "down to {start:?} from {end:?}");
    }
}

/// Compares existence hints for keys, for longer keys and for shorter ones.
fn compare_presence(engine: &Slm, rows: &Rows) {
    for key in rows.keys() {
        let longer = [key, &[0][..]].concat();
        let shorter = &key[..key.len() - 1];
        for key in [&longer, &key[..], shorter].into_iter().filter(|key| !key.is_empty()) {
            let expected =
                if rows.contains_key(key) { Presence::Present } else { Presence::Absent };
            assert_eq!(engine.exists_hint(key).unwrap(), expected, "{}", key.escape_ascii());
        }
    }
}

/// Compares a table with keys of all shapes, whose code is trained on keys of the first shape.
fn agrees(first: usize, seed: u64) {
    let (name, shape) = SHAPES[first];
    let bench = coded(seed);
    let (engine, _) = bench.open();
    let (mut rows, mut lsn, mut random) = (Rows::new(), 0, Random(seed));
    let mut write = |engine: &Slm, rows: &mut Rows, shape: KeyShape, numbers: ops::Range<u64>| {
        for number in numbers {
            lsn += 1;
            let key = shape(number);
            if number % 7 == 3 && rows.remove(&key).is_some() {
                delete(engine, lsn, &key);
            } else {
                put(engine, lsn, &key, &number.to_le_bytes());
                rows.insert(key, number.to_le_bytes().to_vec());
            }
        }
        lsn
    };
    write(&engine, &mut rows, shape, 0..300);
    // The coding is not chosen yet, but reads ask the index.
    compare(&engine, &rows);
    assert_eq!(engine.table.keys.coding(), Coding::Open);
    compare_ranges(&engine, &rows, &mut random);
    engine.checkpoint(Lsn(300)).unwrap();
    assert_eq!(is_coded(&engine), name != "binary", "{name}");
    let mut last = 0;
    for (_, other) in SHAPES {
        last = write(&engine, &mut rows, other, 0..400);
        background(&engine, last);
    }
    engine.checkpoint(Lsn(last)).unwrap();
    compare(&engine, &rows);
    compare_ranges(&engine, &rows, &mut random);
    compare_presence(&engine, &rows);
    engine.maintain(MaintenanceMode::Full).unwrap();
    compare(&engine, &rows);
    let coding = engine.table.keys.coding();
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!((complete, engine.table.keys.coding()), (Lsn(last), coding));
    for (_, other) in SHAPES {
        write(&engine, &mut rows, other, 350..600);
    }
    let end = write(&engine, &mut rows, shape, 0..0);
    compare(&engine, &rows);
    engine.checkpoint(Lsn(end)).unwrap();
    compare(&engine, &rows);
    compare_ranges(&engine, &rows, &mut random);
    compare_presence(&engine, &rows);
}

#[test]
fn keys_of_every_shape_agree_with_a_map() {
    for (first, (name, _)) in SHAPES.iter().enumerate() {
        println!("the first keys are {name}");
        agrees(first, 60 + to_u64(first));
    }
}

#[test]
fn a_list_of_runs_without_the_key_code_is_found() {
    finds(Bug::SlmForgetsKeyCode, || agrees(0, 60));
}

/// The first flush chooses the coding while a range is open.
#[test]
fn a_range_continues_across_the_first_flush() {
    let shape = SHAPES[0].1;
    for begun in [false, true] {
        let (engine, _) = coded(70).open();
        let mut keys: Vec<Vec<u8>> = (0..500).map(shape).collect();
        for (key, lsn) in keys.iter().zip(1..) {
            put(&engine, lsn, key, b"v");
        }
        keys.sort_unstable();
        let (start, end) = (keys[100].clone(), keys[400].clone());
        let range = KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
        let mut found = engine.ordered().unwrap().range(range).unwrap();
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut next = |count: usize| {
            for _ in 0..count {
                up.extend(found.next().map(|entry| entry.unwrap().key));
                down.extend(found.next_back().map(|entry| entry.unwrap().key));
            }
        };
        if begun {
            next(20);
        }
        engine.checkpoint(Lsn(501)).unwrap();
        assert!(is_coded(&engine));
        next(20);
        // Later keys, and a deleted one, are in the index too.
        for (number, lsn) in (500..700).zip(502..) {
            put(&engine, lsn, &shape(number), b"later");
        }
        delete(&engine, 702, &keys[250]);
        engine.checkpoint(Lsn(703)).unwrap();
        next(300);
        down.reverse();
        up.extend(down);
        assert!(up.is_sorted(), "begun: {begun}");
        let there = keys[100..400].iter().filter(|key| up.contains(key)).count();
        assert!(there >= 299, "{there} of 300 keys; begun: {begun}");
        assert!(up.iter().all(|key| *key >= start && *key < end), "begun: {begun}");
    }
}

/// Gets use a super version from before the first flush.
#[test]
fn a_get_continues_across_the_first_flush() {
    let (engine, _) = coded(71).open();
    let (table, key) = (&engine.table, SHAPES[0].1(1));
    let view = table.write_buffer.view.load_full();
    assert_eq!(table.index_value(&key).unwrap(), None);
    put(&engine, 1, &key, b"v");
    let hash = table.hash(&key);
    let stored = || table.read_stored(&view, (hash, &key), &mut OwnedValue);
    assert!(stored().unwrap().is_none());
    engine.checkpoint(Lsn(2)).unwrap();
    assert_eq!(stored().unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn the_coding_of_a_table_never_changes() {
    for (first, second) in [("auto", "none"), ("none", "auto")] {
        let mut bench = Bench::new(72).set("key_code", first);
        let (engine, _) = bench.open();
        // A checkpoint of an empty table does not choose the coding.
        engine.checkpoint(Lsn(1)).unwrap();
        drop(engine);
        let (engine, _) = bench.open();
        let mut rows = Rows::new();
        for number in 0..2_000 {
            let key = SHAPES[0].1(number);
            put(&engine, number + 1, &key, b"v");
            rows.insert(key, b"v".to_vec());
        }
        engine.checkpoint(Lsn(2_001)).unwrap();
        assert_eq!(is_coded(&engine), first == "auto");
        bench = bench.set("key_code", second);
        drop(engine);
        let (engine, _) = bench.open();
        assert_eq!(is_coded(&engine), first == "auto");
        compare(&engine, &rows);
        // A table that has become empty keeps its coding.
        for (key, lsn) in rows.keys().zip(2_002..) {
            delete(&engine, lsn, key);
        }
        engine.checkpoint(Lsn(9_000)).unwrap();
        drop(engine);
        let (engine, _) = bench.open();
        assert_eq!(engine.stats().keys, 0);
        assert_eq!(is_coded(&engine), first == "auto");
    }
}

#[test]
fn coded_keys_take_fewer_pages() {
    let pages = |code: &str| {
        let (engine, _) = Bench::new(73).set("key_code", code).open();
        for number in 0..6_000 {
            put(&engine, number + 1, &SHAPES[0].1(number), b"v");
        }
        engine.checkpoint(Lsn(6_001)).unwrap();
        detail(&engine, "index_pages")
    };
    let (plain, coded) = (pages("none"), pages("auto"));
    assert!(coded * 10 < plain * 9, "{coded} pages, {plain} without a code");
}

/// Keys of rare bytes take twice their length in the index.
#[test]
fn long_keys_of_rare_bytes_are_stored() {
    let (engine, _) = coded(74).open();
    let mut rows = Rows::new();
    for number in 0..300 {
        rows.insert(SHAPES[0].1(number), b"v".to_vec());
    }
    for (key, lsn) in rows.keys().zip(1..) {
        put(&engine, lsn, key, b"v");
    }
    engine.checkpoint(Lsn(1_000)).unwrap();
    for (length, lsn) in [200, 255, 256, 257, 300, 4_096, 30_000, 65_535].into_iter().zip(1_001..) {
        let key: Vec<u8> =
            (0..length).map(|at| if at % 100 == 99 { low(lsn) } else { 200 }).collect();
        put(&engine, lsn, &key, b"v");
        rows.insert(key, b"v".to_vec());
    }
    engine.checkpoint(Lsn(2_000)).unwrap();
    compare(&engine, &rows);
    engine.maintain(MaintenanceMode::Full).unwrap();
    compare(&engine, &rows);
}
