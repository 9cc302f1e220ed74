//! Updates in place, and the profile.

use super::{tests::Bench, *};
use crate::{
    contract::test_bench::{self, Random, Rows, compare_exactly, delete, detail, put},
    util::{
        codec::{to_u64, to_usize},
        mutant::{Bug, finds},
        sync::AtomicBool,
    },
};

/// Values that become shorter by each number of bytes, with a record behind each that stays.
fn shorter_values_are_stored_in_place() {
    let bench = Bench::new(1);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    let mut lsn = 0;
    let mut store = |engine: &Trie, rows: &mut Rows, key: String, value: Vec<u8>| {
        lsn += 1;
        put(engine, lsn, key.as_bytes(), &value);
        rows.insert(key.into_bytes(), value);
    };
    // Enough for several regions. The paddings of 0 to 200 bytes that are cut off occur in each.
    let cuts: Vec<(usize, usize)> = (0..4).flat_map(|n| (0..=200).map(move |c| (n, c))).collect();
    let key = |(number, cut): &(usize, usize)| format!("cut-{number}-{cut:03}");
    for one in &cuts {
        store(&engine, &mut rows, key(one), vec![0; 200]);
        store(&engine, &mut rows, format!("stays-{}", key(one)), vec![b's'; 20]);
    }
    let appended = engine.counters.appended_units.load(Ordering::Relaxed);
    for one in &cuts {
        store(&engine, &mut rows, key(one), vec![0; 200 - one.1]);
    }
    let in_place = detail(&engine, "in_place_updates_total");
    // A rest of one unit of 16 bytes is no room for a record.
    assert_eq!(in_place, 4 * (201 - 16));
    assert_eq!(detail(&engine, "in_place_shorter_total"), in_place - 4);
    let more = engine.counters.appended_units.load(Ordering::Relaxed) - appended;
    assert_eq!(more, 4 * 16 * 14, "units of the records that did not fit");
    compare_exactly(&engine, &rows);
    let live: usize = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!(engine.stats().live_bytes, to_u64(live));
    engine.checkpoint(Lsn(10_000)).unwrap();
    drop(engine);
    // From disk, and after the records have moved.
    let bench = bench.after_power_loss();
    let (engine, _) = bench.open();
    compare_exactly(&engine, &rows);
    for (lsn, one) in (20_000..).zip(&cuts) {
        delete(&engine, lsn, key(one).as_bytes());
        rows.remove(key(one).as_bytes());
    }
    let victims = engine.victims();
    assert!(victims.len() > 1);
    for (waste, region, life) in victims {
        assert!(waste > 0);
        engine.empty(region, life).unwrap();
        assert_eq!(engine.regions.live(region), 0, "compaction met every record");
    }
    compare_exactly(&engine, &rows);
}

#[test]
fn a_value_that_fits_is_stored_in_place() {
    shorter_values_are_stored_in_place();
}

#[test]
fn shorter_values_find_a_rest_that_is_no_record() {
    finds(Bug::TrieLeavesNoFiller, shorter_values_are_stored_in_place);
}

/// Gets beside updates in place of all sizes see whole values.
#[test]
fn readers_see_whole_values_beside_shorter_ones() {
    let bench = Bench::new(2);
    let (engine, _) = bench.open();
    let value = |number: u64| vec![low(number); 100 + to_usize(number % 7) * 50];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(4);
            for step in 0..60_000_u64 {
                put(&engine, step + 1, &random.below(8).to_le_bytes(), &value(random.below(1_000)));
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut random = Random(5);
        while !done.load(Ordering::Relaxed) {
            if let Some(found) = engine.get(&random.below(8).to_le_bytes()).unwrap() {
                let first = found.first().copied();
                assert!(found.iter().all(|byte| Some(*byte) == first), "a torn value");
            }
        }
    });
    assert!(detail(&engine, "in_place_shorter_total") > 1_000);
    test_bench::check(&engine);
}

/// Gets of all kinds, with the option that counts them.
#[test]
fn the_profile_counts_gets_if_asked_to() {
    for (profile, counted) in [("on", [5, 2]), ("off", [0, 0])] {
        let bench = Bench::new(4).set("profile", profile);
        let (engine, _) = bench.open();
        put(&engine, 1, b"here", b"value");
        put(&engine, 2, b"large", &vec![b'x'; 70_000]);
        assert!(engine.get(b"here").unwrap().is_some());
        assert!(engine.get(b"large").unwrap().is_some());
        assert!(engine.get(b"missing").unwrap().is_none());
        let mut found = Vec::new();
        let keys: [&[u8]; 2] = [b"here", b"missing"];
        engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
        assert!(found[0].is_some());
        let names = ["lookups_total", "lookup_hits_total"];
        assert_eq!(names.map(|name| detail(&engine, name)), counted);
    }
}

/// The lowest byte.
fn low(number: u64) -> u8 {
    test_bench::low(number)
}

#[test]
fn the_profile_counts_what_happens() {
    let bench = Bench::new(3);
    let (engine, _) = bench.open();
    for number in 0..2_000_u64 {
        put(&engine, number + 1, &number.to_le_bytes(), &[b'v'; 100]);
    }
    assert_eq!(detail(&engine, "inserts_total"), 2_000);
    let nodes = detail(&engine, "node_bytes") / 512 - 8;
    assert_eq!(detail(&engine, "node_splits_total"), nodes, "no node was removed");
    let steps = detail(&engine, "insert_nodes_total");
    assert!((2_000..8_000).contains(&steps), "{steps} nodes on the paths of inserts");
    for number in 0..2_000_u64 {
        delete(&engine, 3_000 + number, &number.to_le_bytes());
    }
    assert_eq!(detail(&engine, "node_merges_total"), nodes);
    let allocated = detail(&engine, "index_objects_allocated_total");
    let reused = detail(&engine, "index_objects_reused_total");
    assert!(reused > 0 && reused < allocated, "{reused} of {allocated} objects were free before");
    for number in 0..500_u64 {
        put(&engine, 6_000 + number, &number.to_le_bytes(), &[b'w'; 100]);
    }
    assert_eq!(detail(&engine, "inserts_total"), 2_500);
    assert!(detail(&engine, "index_objects_reused_total") > reused);
    // Large values: a hole is inspected and filled after a checkpoint has made it one.
    put(&engine, 7_000, b"large-1", &vec![b'x'; 70_000]);
    put(&engine, 7_001, b"large-2", &vec![b'y'; 70_000]);
    engine.checkpoint(Lsn(8_000)).unwrap();
    delete(&engine, 8_001, b"large-1");
    engine.checkpoint(Lsn(8_002)).unwrap();
    put(&engine, 8_003, b"large-3", &vec![b'z'; 60_000]);
    let extents = ["extents_allocated_total", "extents_reused_total"];
    assert_eq!(extents.map(|name| detail(&engine, name)), [3, 1]);
    assert_eq!(detail(&engine, "extent_holes_inspected_total"), 1);
    engine.checkpoint(Lsn(9_000)).unwrap();
    drop(engine);
    let (engine, _) = bench.open();
    assert_eq!(detail(&engine, "inserts_total"), 0, "counts begin when the table is opened");
}
