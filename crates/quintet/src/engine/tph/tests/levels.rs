//! Merges reach all levels, split tables and collect garbage.

use super::*;
use crate::io::sim::Call;

#[test]
fn merges_reach_all_levels_and_collect_garbage() {
    for mode in MODES {
        let (engine, _) = load(mode, "131072", 6_000, 20_000);
        let levels = detail(&engine, "levels");
        let flat = mode.starts_with("one_level") || mode.starts_with("single_tier");
        assert!(levels >= if flat { 1 } else { 2 }, "{mode}: {levels} levels");
        assert!(detail(&engine, "tables") >= 4, "{mode}");
        assert!(detail(&engine, "pieces_in_a_table_max") <= 4, "{mode}");
        assert!(detail(&engine, "pieces_collected_total") > 10, "{mode}");
        assert!(detail(&engine, "entries_live") >= 6_000 / 10 * 9, "{mode}");
        // Each key is updated about three times: merges have collected most entries.
        assert!(engine.stats().dead_bytes < engine.stats().live_bytes, "{mode}");
    }
}

#[test]
fn compacting_leaves_nothing_dead_or_expired() {
    for mode in MODES {
        let bench = Bench::new(4, mode);
        let engine = test_bench::compact_expired(&bench);
        assert_eq!(detail(&engine, "pieces"), 0, "{mode}");
    }
}

/// Values are many times as large as their keys. Merges read only the keys of SSTs that stay.
#[test]
fn merges_read_only_the_keys_of_ssts_that_stay() {
    for mode in ["one_level", "one_level two"] {
        merges_read_only_keys(mode);
    }
}

fn merges_read_only_keys(mode: &str) {
    let bench = Bench::new(5, mode).set("max_pieces", "16").set("table_bytes", "1048576");
    let bench = bench.set("cache_bytes", "0");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=700_u64 {
        let key = format!("{:08}", step * 7919 % 100_003).into_bytes();
        let value = vec![low(step); 1000];
        put(&engine, step, &key, &value);
        rows.insert(key, value);
        if step % 50 == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
        }
    }
    // Fourteen merges; the last finds 650 entries in 13 SSTs.
    assert_eq!(detail(&engine, "merges_total"), 14);
    let read = detail(&engine, "merge_read_bytes_total");
    assert!(read < 13 * 14 / 2 * 50 * 40, "{read} bytes: values were read too");
    compare(&engine, &rows);
    check(&engine);
}

#[test]
fn a_level_is_merged_down_although_level_0_is_full() {
    for mode in ["sorted", "hash_range"] {
        let (engine, _) = Bench::new(21, mode).open();
        let store = &engine.store;
        let mut lsn = 0;
        for _ in 0..60 {
            // After each merge, level 0 is full again.
            while store.write_buffer.view.load().version.level0.len() < 2 {
                for _ in 0..200 {
                    lsn += 1;
                    put(&engine, lsn, &(lsn * 7919 % 100_003).to_be_bytes(), &[1; 100]);
                }
                engine.checkpoint(Lsn(lsn)).unwrap();
            }
            assert!(store.compact_step().unwrap(), "{mode}");
        }
        let super_version = store.write_buffer.view.load_full();
        let bytes = |table: &Arc<TphTable>| table.live_bytes();
        let levels: Vec<u64> = super_version
            .version
            .levels
            .iter()
            .map(|level| level.iter().map(bytes).sum())
            .collect();
        // The share of level 1 is 128 KiB, or 256 KiB of two tables of hash ranges. The last merge
        // comes on top.
        assert!(
            levels.len() > 1 && levels.first().is_some_and(|one| *one < 400 << 10),
            "{levels:?}"
        );
        check(&engine);
    }
}

/// A table of hash ranges is read for each of its children, and not for those of other tables.
#[test]
fn a_table_of_hash_ranges_is_read_for_its_children_alone() {
    let bench = Bench::new(22, "hash_range").set("fanout", "8").set("cache_bytes", "0");
    let (engine, _) = bench.open();
    let store = &engine.store;
    let level1 = || -> u64 {
        let super_version = store.write_buffer.view.load_full();
        let level = super_version.version.levels.first();
        level.map_or(0, |tables| tables.iter().map(|table| table.live_bytes()).sum())
    };
    let (mut lsn, mut merged_down) = (0, 0);
    while merged_down < 8 {
        for _ in 0..200 {
            lsn += 1;
            put(&engine, lsn, &(lsn * 7919 % 1_000_003).to_be_bytes(), &[1; 100]);
        }
        engine.checkpoint(Lsn(lsn)).unwrap();
        loop {
            let (bytes, reads) = (level1(), bench.env.calls(&[Call::Read]));
            if !store.compact_step().unwrap() {
                break;
            }
            if level1() < bytes {
                merged_down += 1;
                let reads = bench.env.calls(&[Call::Read]) - reads;
                // Up to three for each child; level 2 has 64 tables.
                assert!(reads <= 8 * 4, "{reads} reads of a table with 8 children");
            }
        }
    }
    check(&engine);
}

#[test]
fn tables_are_split_evenly_by_bytes_and_by_entries() {
    // A full table has 64 KiB, or 6,826 entries: their merge needs 1/24 of the budget.
    for (table_bytes, value_bytes, is_full_by) in
        [(64 << 10, 100, "bytes"), (1 << 30, 1, "entries")]
    {
        let bench = Bench::new(23, "sorted").with_budget(5 << 20);
        let bench = bench.set("table_bytes", &table_bytes.to_string());
        let (engine, _) = bench.open();
        let store = &engine.store;
        let mut lsn = 0;
        while store.write_buffer.view.load().version.levels.iter().flatten().count() < 6 {
            for _ in 0..1000 {
                lsn += 1;
                put(&engine, lsn, &(lsn * 7919 % 1_000_003).to_be_bytes(), &vec![3; value_bytes]);
            }
            assert!(lsn < 200_000, "no table is split by {is_full_by}");
            background(&engine, lsn);
            for level in &store.write_buffer.view.load().version.levels {
                // A table that was merged down leaves an empty table.
                let tables = level.iter().filter(|table| !table.ssts.is_empty());
                let sizes: Vec<u64> = tables.map(|table| table.fullness(&store.settings)).collect();
                // The newer entries of one merge come on top.
                let is_small = sizes.iter().all(|one| *one < 350);
                // The last table is smaller if the level was empty before.
                let is_even = sizes.iter().rev().skip(1).all(|one| *one >= 30);
                assert!(is_small && is_even, "{sizes:?} % by {is_full_by} at {lsn}");
            }
        }
        check(&engine);
    }
}
