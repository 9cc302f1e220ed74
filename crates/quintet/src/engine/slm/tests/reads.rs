//! Disk reads of a table in which each entry has its own block.

use super::*;
use crate::util::budget::Reclaimable as _;

const KEYS: u64 = 100;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn table(cache_bytes: &str) -> Slm {
    let (engine, _) = Bench::new(52).set("cache_bytes", cache_bytes).open();
    for number in 0..KEYS {
        put(&engine, number + 1, &key(number), &[7; 1000]);
    }
    engine.checkpoint(Lsn(KEYS + 1)).unwrap();
    engine
}

#[test]
fn a_range_reads_across_dead_entries() {
    let engine = table("0");
    for number in (0..KEYS).filter(|number| number % 2 == 0) {
        delete(&engine, KEYS + 2 + number, &key(number));
    }
    engine.checkpoint(Lsn(3 * KEYS)).unwrap();
    let before = detail(&engine, "reads_total");
    let found = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
    let found = found.map(|entry| entry.unwrap()).map(|entry| (entry.key, entry.value.to_vec()));
    let live = (0..KEYS).filter(|number| number % 2 == 1);
    assert!(found.eq(live.map(|number| (key(number).to_vec(), vec![7; 1000]))));
    // Two runs, and steps of 16, 32 and 64 entries.
    let reads = detail(&engine, "reads_total") - before;
    assert!(reads <= 6, "{reads} reads for {} entries", KEYS / 2);
}

#[test]
fn replaced_entries_are_evicted_from_the_cache() {
    let engine = table("262144");
    let reads = |number: u64| {
        let before = detail(&engine, "reads_total");
        assert!(engine.get(&key(number)).unwrap().is_some());
        detail(&engine, "reads_total") - before
    };
    let all = |wanted: u64| (0..KEYS).map(reads).sum::<u64>() == wanted;
    assert!((0..KEYS).map(reads).sum::<u64>() <= KEYS && all(0), "all of it is in memory");
    // Twice the capacity of the cache, unless the old entries are evicted.
    for round in 1..=20 {
        for number in 0..KEYS {
            put(&engine, round * 1_000 + number, &key(number), &[8; 1000]);
        }
        engine.checkpoint(Lsn(round * 1_000 + KEYS)).unwrap();
        assert!(all(0), "round {round}");
    }
    assert_eq!(detail(&engine, "cache_evicted_total"), 0);
    check(&engine);
}

#[test]
fn runs_with_another_block_size_are_read() {
    let bench = Bench::new(53).set("block_bytes", "4096");
    let (engine, _) = bench.open();
    for number in 0..KEYS {
        put(&engine, number + 1, &key(number), &[7; 400]);
    }
    engine.checkpoint(Lsn(KEYS + 1)).unwrap();
    drop(engine);
    let (engine, complete) = bench.set("block_bytes", "1024").open();
    assert_eq!(complete, Lsn(KEYS + 1));
    for number in KEYS..2 * KEYS {
        put(&engine, number + 1, &key(number), &[7; 400]);
    }
    engine.checkpoint(Lsn(2 * KEYS + 1)).unwrap();
    compare(&engine, &(0..2 * KEYS).map(|number| (key(number).to_vec(), vec![7; 400])).collect());
    engine.maintain(MaintenanceMode::Full).unwrap();
    check(&engine);
}

#[test]
fn ranges_read_more_at_once_if_neighbours_are_together() {
    let engine = table("0");
    let reads = |entries: u64| {
        let before = detail(&engine, "reads_total");
        let range = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
        assert_eq!(to_u64(range.take(to_usize(entries)).count()), entries);
        detail(&engine, "reads_total") - before
    };
    // Steps of 16, 16 and 32 entries, and later one of 64. The end of a run may split a read.
    let first = reads(60);
    assert!(first >= 3, "{first}");
    let after = |times: usize, entries: u64| {
        std::iter::repeat_with(|| reads(entries)).take(times).fold(0, |_, reads| reads)
    };
    let later = after(10, 60);
    assert!(later < first && later <= 2, "{later} reads, {first} at first");
    // Neighbours are apart: their entries are in eight different runs.
    for round in 0..8 {
        for number in (0..KEYS).filter(|number| number % 8 == round) {
            put(&engine, 1_000 * (round + 1) + number, &key(number), &[8; 1000]);
        }
        engine.checkpoint(Lsn(1_000 * (round + 2))).unwrap();
    }
    let few = after(20, 10);
    assert!(few <= 16, "{few} reads for a range of 10: one step of 16");
}

/// Returns a table of values of 64 KiB without a cached block.
fn large(bench: &Bench, keys: u64) -> Slm {
    let (engine, _) = bench.open();
    for number in 0..keys {
        put(&engine, number + 1, &key(number), &vec![7; 64 << 10]);
    }
    engine.checkpoint(Lsn(keys + 1)).unwrap();
    engine
}

#[test]
fn a_range_of_large_values_reads_little_ahead() {
    let engine = large(&Bench::new(54).set("cache_bytes", "0"), 60);
    for entries in [1, 2, 7, 20, 60] {
        let before = detail(&engine, "read_bytes_total");
        let range = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
        assert_eq!(range.take(entries).count(), entries);
        let bytes = detail(&engine, "read_bytes_total") - before;
        let asked = to_u64(entries) * (68 << 10);
        assert!(bytes >= to_u64(entries.min(59)) * (64 << 10), "{bytes} bytes for {entries}");
        assert!(bytes <= asked + (384 << 10), "{bytes} bytes for {entries} entries");
    }
    assert!(engine.table.buffers.reclaimable_bytes() <= 2 << 20);
}

#[test]
fn a_failed_read_ahead_is_retried_and_an_error_is_that_of_its_entry() {
    let bench = Bench::new(55).set("cache_bytes", "0");
    let engine = large(&bench, 40);
    let shown = || {
        let range = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
        let whole = |entry: &Result<Entry>| {
            entry.as_ref().is_ok_and(|entry| entry.value.to_vec() == vec![7; 64 << 10])
        };
        range.take_while(whole).count()
    };
    for number in 1..=6 {
        bench.env.inject(Fault::new(&[Call::Read], When::Nth(number), Effect::Io));
        assert_eq!(shown(), 40, "read {number} fails once");
        bench.env.clear_faults();
    }
    for number in [5, 9] {
        bench.env.inject(Fault::new(&[Call::Read], When::From(number), Effect::Io));
        let count = shown();
        bench.env.clear_faults();
        assert!(count > 0 && count < 40, "{count} entries before reads fail from {number} on");
    }
    assert_eq!(shown(), 40);
}

#[test]
fn a_range_skips_blocks_of_entries_that_memory_replaces() {
    let engine =
        large(&Bench::new(56).set("cache_bytes", "0").set("memtable_bytes", "16777216"), 60);
    let mut rows: Rows = (0..60).map(|number| (key(number).to_vec(), vec![7; 64 << 10])).collect();
    for number in (5..45).filter(|number| number % 10 > 0) {
        put(&engine, 100 + number, &key(number), b"newer");
        rows.insert(key(number).to_vec(), b"newer".to_vec());
    }
    compare(&engine, &rows);
    let found = engine.ordered().unwrap().range(KeyRange::default()).unwrap().rev();
    assert!(found.map(|entry| entry.unwrap().value.to_vec()).eq(rows.into_values().rev()));
}
