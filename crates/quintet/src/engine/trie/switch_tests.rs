//! Tables whose paths are bytes of keys, and their fallback to the keyed hash.

use super::{index::TrieShape, tests::Bench, *};
use crate::{
    contract::test_bench::{
        self, Rows, check, commit, compare_exactly, delete, detail, findings, put, replay,
    },
    io::sim::{Call, SimEnv},
    util::mutant::{Bug, finds},
};

fn bench(seed: u64) -> Bench {
    Bench::new(seed).set("hash", "none")
}

/// Keys that all have the same path: their first and last eight bytes agree.
fn crafted(number: u64) -> Vec<u8> {
    [b"prefix--", &number.to_be_bytes()[..], b"--suffix"].concat()
}

fn value(number: u64) -> Vec<u8> {
    format!("value-{number}").into_bytes()
}

/// A table with this many crafted keys, and what it holds.
fn filled(bench: &Bench, count: u64) -> (Trie, Rows) {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for number in 0..count {
        put(&engine, number + 1, &crafted(number), &value(number));
        rows.insert(crafted(number), value(number));
    }
    (engine, rows)
}

fn shape(engine: &Trie) -> TrieShape {
    let mut shape = TrieShape::default();
    engine.index.inspect(0..256, &mut shape, &mut |_| {}, &mut |_, _| {}).unwrap();
    shape
}

fn crafted_keys_are_found() {
    for layout in ["lines", "chain"] {
        for fanout in ["64", "128", "256"] {
            let bench = bench(1).set("layout", layout).set("fanout", fanout);
            let (engine, mut rows) = filled(&bench, 1_000);
            let shape = shape(&engine);
            assert_eq!((shape.switched, shape.switched_records), (1, 1_000));
            assert!(shape.list_records_max <= 5, "{shape:?}");
            assert_eq!(detail(&engine, "switched_subtrees"), 1);
            compare_exactly(&engine, &rows);
            // Updates that move records, and deletes.
            engine.checkpoint(Lsn(2_000)).unwrap();
            for number in 0..1_000 {
                if number % 3 == 0 {
                    put(&engine, 3_000 + number, &crafted(number), &value(number * 1_000_000));
                    rows.insert(crafted(number), value(number * 1_000_000));
                } else if number % 3 == 1 {
                    delete(&engine, 3_000 + number, &crafted(number));
                    rows.remove(&crafted(number));
                }
            }
            compare_exactly(&engine, &rows);
            engine.checkpoint(Lsn(5_000)).unwrap();
            drop(engine);
            let (engine, _) = bench.after_power_loss().open();
            assert_eq!(detail(&engine, "switched_subtrees"), 1);
            compare_exactly(&engine, &rows);
        }
    }
}

#[test]
fn crafted_keys_do_not_build_long_lists() {
    crafted_keys_are_found();
}

#[test]
fn crafted_keys_find_a_missing_switch() {
    finds(Bug::TrieNeverSwitches, crafted_keys_are_found);
}

#[test]
fn crafted_keys_find_tags_of_paths_after_a_switch() {
    finds(Bug::TrieSwitchKeepsTags, crafted_keys_are_found);
}

#[test]
fn crafted_keys_find_tags_of_paths_after_an_update() {
    finds(Bug::TrieExchangesTag, crafted_keys_are_found);
}

#[test]
fn crafted_keys_find_a_scan_without_switched_subtrees() {
    finds(Bug::TrieScanSkipsSwitched, crafted_keys_are_found);
}

/// Everything is deleted in one order or the other. Nothing is left, and what stays is found
/// meanwhile.
fn deletes_empty_a_switched_subtree() {
    for layout in ["lines", "chain"] {
        for is_reversed in [false, true] {
            let bench = bench(2).set("layout", layout);
            let (engine, mut rows) = filled(&bench, 60);
            // A neighbour whose path has the same nodes to the last.
            put(&engine, 100, b"prefix--\x01--suffiy", b"neighbour");
            rows.insert(b"prefix--\x01--suffiy".to_vec(), b"neighbour".to_vec());
            for step in 0..60 {
                let number = if is_reversed { 59 - step } else { step };
                delete(&engine, 200 + step, &crafted(number));
                rows.remove(&crafted(number));
                compare_exactly(&engine, &rows);
            }
            let shape = shape(&engine);
            assert_eq!((shape.switched, shape.nodes, shape.records), (0, 0, 1));
            assert_eq!(detail(&engine, "switched_subtrees"), 0);
        }
    }
}

#[test]
fn a_switched_subtree_that_is_empty_goes() {
    deletes_empty_a_switched_subtree();
}

#[test]
fn deletes_find_a_record_moved_out_of_a_switched_subtree() {
    finds(Bug::TrieMergeLosesSwitch, deletes_empty_a_switched_subtree);
}

/// Random operations with masked paths, so that most keys share theirs.
#[test]
fn random_operations_agree_with_a_map() {
    for (seed, mask) in [(1, 0), (2, 0xff << 56), (3, 0xf0f << 28), (4, u64::MAX)] {
        for (layout, fanout) in [("lines", "64"), ("chain", "128"), ("lines", "256")] {
            let bench = bench(seed).set("layout", layout).set("fanout", fanout);
            tests::run(&bench.with_hash_mask(mask), seed, 1_500, 200);
        }
    }
}

/// The same with records that are on disk: lists are switched by reads of the disk.
#[test]
fn random_operations_agree_with_a_map_in_little_memory() {
    for (seed, mask) in [(5, 0), (6, 0xf << 60)] {
        for layout in ["lines", "chain"] {
            let bench = bench(seed).set("layout", layout).with_budget(1 << 20);
            tests::run(&bench.with_hash_mask(mask), seed, 2_500, 1_500);
        }
    }
}

/// A list whose records are on disk only.
fn cold_list(seed: u64) -> (Bench, Trie, Rows) {
    let bench = bench(seed);
    let (engine, mut rows) = filled(&bench, 4);
    // So many others that the budget of the reopened table has no room for all.
    for number in 0..4_000_u64 {
        let (key, value) = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(), [7; 900]);
        put(&engine, 100 + number, &key, &value);
        rows.insert(key.to_vec(), value.to_vec());
    }
    engine.checkpoint(Lsn(10_000)).unwrap();
    assert_eq!(shape(&engine).switched, 0);
    drop(engine);
    let bench = bench.on(bench.env.clone()).with_budget(600 << 10);
    let (engine, _) = bench.open();
    (bench, engine, rows)
}

#[test]
fn a_list_on_disk_is_switched_by_the_insert_that_fills_it() {
    let (bench, engine, mut rows) = cold_list(7);
    let reads = bench.env.calls(&[Call::Read]);
    put(&engine, 20_000, &crafted(4), b"fifth");
    rows.insert(crafted(4), b"fifth".to_vec());
    assert!(bench.env.calls(&[Call::Read]) > reads, "records were read");
    assert_eq!(detail(&engine, "subtrees_switched_total"), 1);
    assert_eq!(detail(&engine, "switched_subtrees"), 1);
    compare_exactly(&engine, &rows);
}

/// Replay of a log with crafted keys, whose old records are on disk.
#[test]
fn replay_switches_a_list_on_disk() {
    let (bench, engine, mut rows) = cold_list(8);
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(10_000));
    let log: Vec<_> = (0..40_u64)
        .map(|number| (20_000 + number, crafted(number * 2), Some(value(number + 5))))
        .collect();
    replay(&engine, &log, complete);
    for (_, key, value) in log {
        rows.insert(key, value.unwrap());
    }
    compare_exactly(&engine, &rows);
    assert_eq!(detail(&engine, "switched_subtrees"), 1);
}

/// Two writes are admitted before either is applied, as in a batch. Both keys have the same path,
/// and their records are on disk.
fn admitted_writes_of_one_path() {
    let (_bench, engine, mut rows) = cold_list(9);
    let ops = [1, 3].map(|number| (crafted(number), value(number + 90)));
    for (key, body) in &ops {
        engine.admit(&Op::Put { key, head: b"", body }, &MemoryWait::default()).unwrap();
    }
    for (key, body) in ops {
        engine.apply(Lsn(20_000), &Op::Put { key: &key, head: b"", body: &body }).unwrap();
        rows.insert(key, body);
        for (key, value) in rows.range(b"prefix--".to_vec()..b"prefix-.".to_vec()) {
            assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
        }
    }
    compare_exactly(&engine, &rows);
}

#[test]
fn writes_of_one_path_keep_their_own_records() {
    admitted_writes_of_one_path();
}

#[test]
fn writes_of_one_path_find_records_that_are_mixed_up() {
    finds(Bug::TrieMixesReadAhead, admitted_writes_of_one_path);
}

/// The contract of the order of scans: a page has the entries whose positions lie between its
/// cursors, whether their subtree is switched or not.
fn pages_have_the_entries_between_their_cursors() {
    let bench = bench(10);
    let (engine, mut rows) = filled(&bench, 300);
    for number in 0..300_u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        put(&engine, 1_000 + number, &key, b"value");
        rows.insert(key.to_vec(), b"value".to_vec());
    }
    let position = |key: &[u8]| engine.position(key, engine.hash.siphash(key));
    let (mut cursor, mut seen) = (Cursor::START, 0);
    loop {
        let start = engine.cursor_position(&cursor).unwrap();
        let (entries, next) = engine.scan(&cursor, 10).unwrap();
        let end = if next.is_start() { u64::MAX } else { engine.cursor_position(&next).unwrap() };
        let between = |key: &[u8]| (start..end).contains(&position(key));
        assert!(entries.iter().all(|entry| between(&entry.key)));
        assert_eq!(entries.len(), rows.keys().filter(|key| between(key)).count());
        seen += entries.len();
        cursor = next;
        if cursor.is_start() {
            break;
        }
    }
    assert_eq!(seen, rows.len());
}

#[test]
fn scans_keep_one_order() {
    pages_have_the_entries_between_their_cursors();
}

#[test]
fn pages_find_positions_without_the_keyed_hash() {
    finds(Bug::TrieWalkPositionLacksHash, pages_have_the_entries_between_their_cursors);
}

/// Entries that stay are seen by a scan although their subtree is switched, and switched back,
/// between its pages.
#[test]
fn a_scan_sees_what_stays_beside_switches() {
    let bench = bench(11);
    for is_first in [true, false] {
        let (engine, mut rows) = filled(&bench.on(SimEnv::new(3)), 4);
        let more = |engine: &Trie, rows: &mut Rows| {
            for number in 4..200 {
                put(engine, 100 + number, &crafted(number), &value(number));
                rows.insert(crafted(number), value(number));
            }
        };
        if is_first {
            more(&engine, &mut rows);
        }
        let (mut cursor, mut seen) = (Cursor::START, Rows::new());
        for page in 0.. {
            let (entries, next) = engine.scan(&cursor, 3).unwrap();
            seen.extend(entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
            cursor = next;
            if cursor.is_start() {
                break;
            }
            if page == 0 && !is_first {
                more(&engine, &mut rows);
            }
            if page == 4 && is_first {
                for number in 4..200 {
                    delete(&engine, 1_000 + number, &crafted(number));
                }
                engine.maintain(MaintenanceMode::Step).unwrap();
                assert_eq!(detail(&engine, "switched_subtrees"), 0);
            }
        }
        let stays = |number: &u64| seen.contains_key(&crafted(*number));
        assert_eq!((0..4).filter(stays).count(), 4);
    }
}

/// After most crafted keys are deleted, compaction makes a list of the rest again.
fn few_keys_become_a_list_again() {
    for layout in ["lines", "chain"] {
        let bench = bench(12).set("layout", layout);
        let (engine, mut rows) = filled(&bench, 500);
        for number in (0..500).filter(|number| number % 200 != 0) {
            delete(&engine, 1_000 + number, &crafted(number));
            rows.remove(&crafted(number));
        }
        assert_eq!(detail(&engine, "switched_subtrees"), 1);
        engine.maintain(MaintenanceMode::Step).unwrap();
        engine.maintain(MaintenanceMode::Step).unwrap();
        let shape = shape(&engine);
        assert_eq!((shape.switched, shape.records), (0, 3));
        assert_eq!(detail(&engine, "switched_subtrees"), 0);
        compare_exactly(&engine, &rows);
        // They may come again.
        for number in 0..50 {
            put(&engine, 5_000 + number, &crafted(number), b"again");
            rows.insert(crafted(number), b"again".to_vec());
        }
        assert_eq!(detail(&engine, "switched_subtrees"), 1);
        compare_exactly(&engine, &rows);
    }
}

#[test]
fn gathering_switches_back() {
    few_keys_become_a_list_again();
}

#[test]
fn gathering_finds_tags_of_the_keyed_hash_in_a_list() {
    finds(Bug::TrieGatherKeepsTags, few_keys_become_a_list_again);
}

/// A large switched subtree is gathered and moved like the rest of the trie.
#[test]
fn a_large_switched_subtree_shrinks() {
    let bench = bench(13);
    let (engine, mut rows) = filled(&bench, 8_000);
    let full = engine.stats().index_bytes;
    for number in (0..8_000).filter(|number| number % 20 != 0) {
        delete(&engine, 10_000 + number, &crafted(number));
        rows.remove(&crafted(number));
    }
    engine.checkpoint(Lsn(30_000)).unwrap();
    for _ in 0..10 {
        engine.maintain(MaintenanceMode::Step).unwrap();
        engine.checkpoint(Lsn(30_000)).unwrap();
    }
    let left = engine.stats().index_bytes;
    assert!(left * 3 < full, "{full} became {left}");
    compare_exactly(&engine, &rows);
    drop(engine);
    let (engine, _) = bench.after_power_loss().open();
    compare_exactly(&engine, &rows);
}

/// Keys of all lengths, prefixes of one another, and palindromes, whose path is 0.
#[test]
fn keys_of_all_lengths_are_told_apart() {
    let bench = bench(14);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for byte in [0_u8, 1, 0xff] {
        for length in 1..40 {
            rows.insert(vec![byte; length], vec![byte; length]);
            let mut key = vec![byte; length];
            key.push(7);
            rows.insert(key, b"ends with 7".to_vec());
        }
    }
    for number in 0..300_u64 {
        let half = number.to_be_bytes();
        let key: Vec<u8> = half.iter().chain(half.iter().rev()).copied().collect();
        rows.insert(key, b"palindrome".to_vec());
    }
    for (lsn, (key, value)) in (1..).zip(&rows) {
        put(&engine, lsn, key, value);
    }
    assert!(detail(&engine, "switched_subtrees") > 0);
    compare_exactly(&engine, &rows);
    for key in rows.keys() {
        delete(&engine, 5_000, key);
    }
    compare_exactly(&engine, &Rows::new());
    assert_eq!(shape(&engine).nodes, 0);
}

/// Uniform keys never switch, and counters of one width neither.
#[test]
fn uniform_keys_and_counters_switch_nothing() {
    let (engine, _) = bench(15).open();
    let mut random = test_bench::Random(5);
    for number in 0..20_000_u64 {
        let mut key = [0; 32];
        for word in key.as_chunks_mut::<8>().0 {
            *word = random.below(u64::MAX).to_le_bytes();
        }
        put(&engine, number + 1, &key, b"uniform");
        put(&engine, number + 1, &number.to_be_bytes(), b"counter");
        put(&engine, number + 1, format!("user{number:08}").as_bytes(), b"text");
    }
    let shape = shape(&engine);
    assert_eq!((shape.switched, shape.records), (0, 60_000));
    check(&engine);
}

#[test]
fn another_mode_is_refused() {
    let bench = bench(16);
    let (engine, _) = filled(&bench, 20);
    engine.checkpoint(Lsn(30)).unwrap();
    drop(engine);
    let other = bench.on(bench.env.clone()).set("hash", "siphash");
    assert!(matches!(other.try_open(), Err(crate::Error::Corruption { .. })));
    let same = bench.on(bench.env.clone());
    assert!(findings(&same.open().0).is_empty());
}

#[test]
fn a_refused_write_leaves_nothing_read_ahead() {
    let (_bench, engine, _) = cold_list(17);
    let key = crafted(3);
    let op = Op::Put { key: &key, head: b"", body: b"" };
    engine.admit(&op, &MemoryWait::default()).unwrap();
    engine.cancel(&op);
    assert!(engine.prefetched.is_empty());
    commit(&engine, 20_000, &op).unwrap();
    assert!(engine.prefetched.is_empty());
}
