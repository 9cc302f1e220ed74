//! Tables with two tiers: merges on the global hash, deleted keys, memory, ranges, options.

use super::*;
use crate::{
    Error,
    contract::{KeyRange, OrderedEngine},
    lsm::sst::order_section::PIECES_MAX,
    util::mutant::{Bug, finds},
};

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

/// A table of one level whose merges collect nothing.
fn one_table(seed: u64) -> Bench {
    let bench = Bench::new(seed, "one_level two").set("max_pieces", "16");
    bench.set("table_bytes", "67108864").set("memtable_bytes", "4194304")
}

/// Puts the value under the keys with these numbers, or deletes them. Then merges.
fn write(engine: &Tph, lsn: &mut u64, numbers: impl Iterator<Item = u64>, value: Option<&[u8]>) {
    for number in numbers {
        *lsn += 1;
        match value {
            Some(value) => put(engine, *lsn, &key(number), value),
            None => delete(engine, *lsn, &key(number)),
        }
    }
    engine.checkpoint(Lsn(*lsn)).unwrap();
}

/// Live entries of each piece of the only table, the newest first, and the keys of the invalid
/// piece.
fn pieces(engine: &Tph) -> (Vec<u64>, u64) {
    let super_version = engine.store.write_buffer.view.load_full();
    let tables: Vec<_> = super_version.version.tables().collect();
    assert_eq!(tables.len(), 1);
    (tables[0].ssts.iter().map(|one| one.live).collect(), tables[0].invalid)
}

/// Merges come by all four cases, and entries that only the base has stay in their piece.
fn four_cases() {
    let bench = one_table(60);
    let (engine, _) = bench.open();
    let mut lsn = 0;
    write(&engine, &mut lsn, 0..1000, Some(&[1; 50]));
    assert_eq!(pieces(&engine), (vec![1000], 0));
    // Both have 100 keys, only the delta has 50; only the base has 900, which stay.
    write(&engine, &mut lsn, 900..1050, Some(&[2; 50]));
    assert_eq!(pieces(&engine), (vec![150, 900], 0));
    // 300 keys of the base are deleted: they lead to the invalid piece. Others are not there.
    write(&engine, &mut lsn, (100..400).chain(5000..5100), None);
    assert_eq!(pieces(&engine), (vec![0, 150, 600], 300));
    // Neither: the delta and the base have nothing of them, but an old piece has.
    write(&engine, &mut lsn, 2000..2001, Some(&[3; 50]));
    assert_eq!(pieces(&engine), (vec![1, 150, 600], 300));
    // Deleted keys come back as new ones.
    write(&engine, &mut lsn, 100..110, Some(&[4; 50]));
    assert_eq!(pieces(&engine), (vec![10, 1, 150, 600], 290));
    for number in 0..5100 {
        let expected = match number {
            100..110 => Some([4; 50]),
            110..400 => None,
            0..900 => Some([1; 50]),
            900..1050 => Some([2; 50]),
            2000 => Some([3; 50]),
            _ => None,
        };
        let found = engine.get(&key(number)).unwrap();
        assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]), "{number}");
    }
    check(&engine);
    drop(engine);
    let (engine, _) = bench.open();
    assert_eq!(pieces(&engine), (vec![10, 1, 150, 600], 290));
    check(&engine);
    // Everything is rewritten: no piece has an old entry.
    engine.maintain(crate::contract::MaintenanceMode::Full).unwrap();
    assert_eq!(pieces(&engine), (vec![761], 0));
    check(&engine);
}

#[test]
fn merges_keep_what_only_the_base_has_in_its_piece() {
    four_cases();
}

#[test]
fn wrong_pieces_and_places_are_found() {
    finds(Bug::TphTakesOtherPiece, four_cases);
    finds(Bug::TphForgetsInvalid, four_cases);
    finds(Bug::TphShiftsSlots, four_cases);
    finds(Bug::TphOrdersDeletedKeys, four_cases);
}

/// A piece without a live entry leaves the table; older ones stay.
fn pieces_leave() {
    let bench = one_table(66);
    let (engine, _) = bench.open();
    let mut lsn = 0;
    write(&engine, &mut lsn, 0..100, Some(&[1; 50]));
    write(&engine, &mut lsn, 100..200, Some(&[1; 50]));
    write(&engine, &mut lsn, 200..300, Some(&[1; 50]));
    write(&engine, &mut lsn, 100..200, Some(&[2; 50]));
    assert_eq!(pieces(&engine), (vec![100; 3], 0));
    for number in 0..300 {
        let expected = if (100..200).contains(&number) { [2; 50] } else { [1; 50] };
        assert_eq!(engine.get(&key(number)).unwrap().as_deref(), Some(&expected[..]), "{number}");
    }
    check(&engine);
}

#[test]
fn pieces_without_live_entries_leave() {
    pieces_leave();
}

#[test]
fn old_numbers_of_pieces_are_found() {
    finds(Bug::TphKeepsPieceNumbers, pieces_leave);
}

/// Each key of several segments and many samples is found, and is the first of its range.
fn each_key() {
    let (engine, _) = one_table(67).open();
    write(&engine, &mut 0, 0..3000, Some(&[1; 20]));
    assert_eq!(pieces(&engine).0, [3000]);
    for number in 0..3000 {
        assert!(engine.get(&key(number)).unwrap().is_some(), "{number}");
        let range = KeyRange { start: Some(key(number)), end: None };
        let first = engine.range(range).unwrap().next();
        assert_eq!(first.unwrap().unwrap().key, key(number));
    }
    check(&engine);
}

#[test]
fn each_key_is_in_its_segment_and_begins_its_range() {
    each_key();
}

#[test]
fn prefixes_that_are_too_short_are_found() {
    finds(Bug::TphShortensFirstKeys, each_key);
    finds(Bug::TphShortensSamples, each_key);
}

/// Keys that the deepest level has deleted stay deleted when their tables are merged down.
fn deleted_keys_go_down() {
    let (engine, _) = Bench::new(61, "sorted two").set("max_pieces", "16").open();
    let store = &engine.store;
    let mut lsn = 0;
    // Level 1 is the deepest: deletes make entries of the invalid piece.
    write(&engine, &mut lsn, 0..350, Some(&[1; 100]));
    write(&engine, &mut lsn, 350..700, Some(&[1; 100]));
    while store.compact_step().unwrap() {}
    write(&engine, &mut lsn, (0..700).step_by(8), None);
    write(&engine, &mut lsn, 800..801, Some(&[2; 100]));
    while store.compact_step().unwrap() {}
    assert!(detail(&engine, "keys_invalid") > 0);
    // Level 1 goes down.
    while detail(&engine, "levels") < 2 {
        let next = 10_000 + lsn;
        write(&engine, &mut lsn, next..next + 300, Some(&[3; 100]));
        while store.compact_step().unwrap() {}
    }
    for number in 0..700 {
        let found = engine.get(&key(number)).unwrap();
        assert_eq!(found.is_none(), number % 8 == 0, "{number}");
    }
    check(&engine);
}

#[test]
fn deleted_keys_stay_deleted_in_deeper_levels() {
    deleted_keys_go_down();
}

#[test]
fn reviving_deleted_keys_is_found() {
    finds(Bug::TphRevivesInvalid, deleted_keys_go_down);
}

/// Ranges from both ends begin at any key, on the disk and in the cache.
fn ranges() {
    for cache in ["0", "4194304"] {
        let (engine, _) = one_table(62).set("cache_bytes", cache).open();
        let mut lsn = 0;
        write(&engine, &mut lsn, (0..3000).map(|n| n * 2), Some(&[1; 60]));
        write(&engine, &mut lsn, (0..700).map(|n| n * 8), Some(&[2; 9000]));
        write(&engine, &mut lsn, (0..900).map(|n| n * 6), None);
        let rows: Vec<Vec<u8>> = (0..3000)
            .map(|n| n * 2)
            .filter(|number| number % 6 != 0 || *number >= 5400)
            .map(key)
            .collect();
        for start in [0, 1, 63, 64, 127, 128, 129, 1000, 2777, 5999, 7000] {
            let from = rows.partition_point(|one| *one < key(start));
            let range = KeyRange { start: Some(key(start)), end: None };
            let up = engine.range(range).unwrap().map(|entry| entry.unwrap().key);
            assert!(up.eq(rows[from..].iter().cloned()), "from {start}");
            let range = KeyRange { start: None, end: Some(key(start)) };
            let down = engine.range(range).unwrap().rev().map(|entry| entry.unwrap().key);
            assert!(down.eq(rows[..from].iter().rev().cloned()), "below {start}");
            let ends = (Some(key(start)), Some(key(start + 999)));
            let range = KeyRange { start: ends.0, end: ends.1 };
            let expected = rows.partition_point(|one| *one < key(start + 999)) - from;
            let estimate = engine.estimate_count(&range).unwrap();
            assert!(estimate.abs_diff(to_u64(expected)) <= 128, "{estimate} of {expected}");
        }
    }
}

#[test]
fn ranges_go_both_ways_from_any_key() {
    ranges();
}

#[test]
fn skipping_rows_of_the_key_order_is_found() {
    finds(Bug::TphScanSkipsRows, ranges);
}

#[test]
fn a_key_takes_few_bytes_of_memory() {
    // Of large values a segment has few, and each has a block of its own.
    for (value_bytes, bytes_max) in [(100, 36), (300, 40), (1000, 52), (4000, 95)] {
        let bench = one_table(63).set("memtable_bytes", "33554432").set("block_bytes", "4096");
        let (engine, _) = bench.open();
        let mut lsn = 0;
        write(&engine, &mut lsn, 0..20_000, Some(&vec![1; value_bytes]));
        // A twentieth of the keys are updated in each of six more pieces.
        for round in 1..7 {
            let updated = (0..1000).map(|n| (n * 7919 * round) % 20_000);
            write(&engine, &mut lsn, updated, Some(&vec![2; value_bytes]));
        }
        assert!(pieces(&engine).0.len() >= 7);
        let tenths = engine.stats().index_bytes * 10 / 20_000;
        let parts = engine.stats().details;
        let parts: Vec<_> = parts.iter().filter(|(name, _)| name.starts_with("index_")).collect();
        assert!(tenths <= bytes_max, "{tenths} tenths of a byte, {value_bytes}: {parts:?}");
    }
}

#[test]
fn other_tiers_than_those_of_the_files_are_refused() {
    for (written, read) in [("one", "two"), ("two", "one")] {
        let bench = Bench::new(64, "sorted").set("tiers", written);
        let (engine, _) = bench.open();
        write(&engine, &mut 0, 0..10, Some(b"value"));
        drop(engine);
        let bench = bench.set("tiers", read);
        match bench.try_open().map(drop).unwrap_err() {
            Error::InvalidOption { name, what } => {
                assert_eq!(name, "tiers");
                assert!(what.contains(&format!("tiers={written};")), "{what}");
            }
            other => panic!("{other}"),
        }
        // The files are unchanged.
        let (engine, _) = bench.set("tiers", written).open();
        assert!(engine.get(&key(3)).unwrap().is_some());
    }
}

#[test]
fn pieces_fit_the_rows_of_the_key_order() {
    // The option allows fewer pieces than a row can name.
    let bench = Bench::new(65, "one_level two").set("max_pieces", "1024");
    assert!(bench.open().0.store.settings.max_pieces < PIECES_MAX);
}
