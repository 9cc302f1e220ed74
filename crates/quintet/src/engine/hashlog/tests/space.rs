//! Space: at most twice what is live under any updates, 1.2 times at rest, and back to nothing
//! after deletes.
//!
//! What is live is counted as what the live entries take in chunks, hints included: heads are
//! part of the price of an entry and not waste. Tables here have a few hundred small chunks; what
//! does not scale (the chunk that takes appends, the one that takes copies, heads of files) is
//! allowed for as such.

use std::collections::BTreeMap;

use super::*;
use crate::{
    engine::hashlog::wanted_work::LONG_IDLE_WASTE_PER_CENT,
    util::mutant::{Bug, finds},
};

const CHUNK_BYTES: u64 = 64 << 10;
/// The open chunks, and as many that await their checkpoint.
const FIXED_BYTES: u64 = 6 * CHUNK_BYTES;

/// What a live entry takes at least: rounded up to units, and its hint.
fn entry_bytes(key: usize, value: usize) -> u64 {
    let large = to_u64(value + 40) > CHUNK_BYTES / 4;
    let head = if value > 0xffff { 24 } else { 16 };
    let in_chunk = if large { head + key + 16 } else { head + key + value };
    let file_range = if large { to_u64(value + 128).next_multiple_of(4096) } else { 0 };
    to_u64(in_chunk.div_ceil(8) * 8) + 11 + file_range
}

/// Which key an update goes to.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Uniform,
    /// Half of the updates to one key in 2, half of the rest to one in 4, and so on.
    Skewed,
    Sequential,
    One,
}

impl Pattern {
    fn key(self, random: &mut Random, step: u64, keys: u64) -> u64 {
        match self {
            Self::Uniform => random.below(keys),
            Self::Skewed => {
                let below = (keys >> random.below(12)).max(1);
                random.below(below)
            }
            Self::Sequential => step % keys,
            Self::One => 0,
        }
    }
}

/// Loads `keys`, updates four times as many, resting never; then rests. The worst and the last
/// ratio of space to what is live.
fn run(pattern: Pattern, keys: u64, sizes: &[usize]) -> (f64, f64) {
    let bench = Bench::new(5).with_budget(512 << 20);
    let bench = bench.set("chunk_bytes", &CHUNK_BYTES.to_string()).set("mutable_chunks", "4");
    let (table, _) = bench.open();
    let mut random = Random(11);
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    let mut live_bytes = 0;
    let mut worst = 0.0_f64;
    let ratio = |table: &HashLog, live_bytes: u64| {
        let bytes = table.stats().file_bytes.saturating_sub(FIXED_BYTES);
        crate::util::codec::to_f64(bytes) / crate::util::codec::to_f64(live_bytes)
    };
    let steps = keys * 5;
    for step in 0..steps {
        let key = if step < keys { step } else { pattern.key(&mut random, step, keys) };
        let size = sizes[to_usize(step % to_u64(sizes.len()))];
        // Of another size each time: nothing is updated in place.
        let size = size + to_usize(step / keys % 2 * 8);
        put(&table, step + 1, format!("key{key:06}").as_bytes(), &vec![1; size]);
        live_bytes += entry_bytes(9, size);
        if let Some(before) = live.insert(key, size) {
            live_bytes -= entry_bytes(9, before);
        }
        // The job runs when it is woken, which happens at new chunks: here often enough.
        let every = (CHUNK_BYTES / entry_bytes(9, size) / 2).max(1);
        if step.is_multiple_of(every) {
            match table.pending_work() {
                PendingWork::None | PendingWork::Later => {}
                PendingWork::Checkpoint => drop(table.checkpoint(Lsn(step + 2)).unwrap()),
                PendingWork::Maintain => table.maintain(MaintenanceMode::Step).unwrap(),
            }
            if step > keys {
                worst = worst.max(ratio(&table, live_bytes));
            }
        }
    }
    table.checkpoint(Lsn(steps + 2)).unwrap();
    bench.finish_background(&table, steps + 2);
    check(&table);
    (worst, ratio(&table, live_bytes))
}

fn assert_bounds(pattern: Pattern, keys: u64, sizes: &[usize]) {
    let (worst, rest) = run(pattern, keys, sizes);
    println!("{pattern:?} {sizes:?}: at worst {worst:.2}, at rest {rest:.2}");
    assert!(worst <= 2.0, "{pattern:?} {sizes:?}: {worst:.2} times what is live");
    assert!(rest <= 1.2, "{pattern:?} {sizes:?}: {rest:.2} times what is live at rest");
}

#[test]
fn space_is_bounded_for_small_values() {
    for pattern in [Pattern::Uniform, Pattern::Skewed, Pattern::Sequential, Pattern::One] {
        assert_bounds(pattern, 40_000, &[8]);
    }
}

#[test]
fn space_is_bounded_for_values_of_a_few_hundred_bytes() {
    for pattern in [Pattern::Uniform, Pattern::Skewed, Pattern::Sequential, Pattern::One] {
        assert_bounds(pattern, 20_000, &[100, 300]);
    }
}

#[test]
fn space_is_bounded_for_values_of_kilobytes() {
    for pattern in [Pattern::Uniform, Pattern::Skewed, Pattern::Sequential, Pattern::One] {
        assert_bounds(pattern, 2000, &[4000, 12_000]);
    }
}

#[test]
fn space_is_bounded_for_values_of_a_mebibyte() {
    for pattern in [Pattern::Uniform, Pattern::Sequential, Pattern::One] {
        assert_bounds(pattern, 24, &[1 << 20]);
    }
}

#[test]
fn space_is_bounded_for_mixed_sizes() {
    for pattern in [Pattern::Uniform, Pattern::Skewed] {
        assert_bounds(pattern, 2000, &[8, 30, 200, 1000, 40_000]);
    }
}

#[test]
fn files_and_index_shrink_after_a_mass_delete() {
    let bench = Bench::new(6).set("chunk_bytes", &CHUNK_BYTES.to_string());
    let (table, _) = bench.open();
    let keys = 60_000_u64;
    let name = |key: u64| format!("key{key:06}").into_bytes();
    for key in 0..keys {
        put(&table, key + 1, &name(key), &[3; 100]);
    }
    table.checkpoint(Lsn(keys + 1)).unwrap();
    let full = table.stats();
    for key in (0..keys).filter(|key| key % 20 > 0) {
        delete(&table, keys + 1 + key, &name(key));
    }
    table.checkpoint(Lsn(3 * keys)).unwrap();
    bench.finish_background(&table, 3 * keys);
    let rest = table.stats();
    assert_eq!(rest.keys, keys / 20);
    assert!(rest.index_bytes <= rest.keys * 12 + 8192, "{rest:?}");
    assert!(rest.index_bytes * 15 < full.index_bytes, "{rest:?}");
    assert!(rest.file_bytes < full.file_bytes / 10, "{} of {}", rest.file_bytes, full.file_bytes);
    // What the file system has, not only what the engine counts.
    let on_disk: u64 = bench
        .env
        .files()
        .iter()
        .map(|(path, _)| {
            let content = bench.env.contents(path).unwrap();
            let blocks = content.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0));
            to_u64(blocks.count()) * 4096
        })
        .sum();
    assert!(on_disk <= rest.file_bytes + (64 << 10), "{on_disk} of {}", rest.file_bytes);
    assert!(
        (0..keys).all(|key| { table.get(&name(key)).unwrap().is_some() == key.is_multiple_of(20) })
    );
    check(&table);
}

/// What limits compaction's rate: nothing before the bound, a few chunks a call, and over time in
/// proportion to what updates make waste.
#[test]
fn compaction_is_in_proportion_to_updates() {
    const STEP_CHUNKS: u64 = 8;
    let bench = Bench::new(5).with_budget(512 << 20);
    let bench = bench.set("chunk_bytes", &CHUNK_BYTES.to_string()).set("mutable_chunks", "4");
    let (table, _) = bench.open();
    let mut random = Random(7);
    let keys = 40_000_u64;
    let detail = |name: &str| {
        let stats = table.stats();
        stats.details.iter().find(|(found, _)| *found == name).map_or(0, |(_, value)| *value)
    };
    let mut appended_bytes = 0;
    let mut steps_taken = 0_u64;
    for step in 0..keys * 8 {
        let key = if step < keys { step } else { random.below(keys) };
        // Of another size each time: nothing is updated in place.
        let size = 100 + to_usize(step / keys % 2 * 8);
        put(&table, step + 1, format!("key{key:06}").as_bytes(), &vec![1; size]);
        appended_bytes += entry_bytes(9, size);
        if step % 256 > 0 {
            continue;
        }
        match table.pending_work() {
            PendingWork::None | PendingWork::Later => {}
            PendingWork::Checkpoint => drop(table.checkpoint(Lsn(step + 2)).unwrap()),
            PendingWork::Maintain => {
                let (waste, units) = table.waste();
                assert!(waste * 100 > units * table.waste_per_cent_max(), "{waste} of {units}");
                let before = detail("chunks_compacted_total");
                table.maintain(MaintenanceMode::Step).unwrap();
                let compacted = detail("chunks_compacted_total") - before;
                assert!(compacted <= STEP_CHUNKS, "{compacted} chunks in one step");
                steps_taken += 1;
            }
        }
    }
    let compacted = detail("chunks_compacted_total");
    let appended = appended_bytes / CHUNK_BYTES;
    assert!(steps_taken > 20, "{steps_taken} steps");
    // A victim has at least the average waste, a quarter: four are rewritten for each appended.
    assert!(compacted <= appended * 4, "{compacted} chunks for {appended} appended");
    assert!(detail("compactions_by_writers_total") == 0, "the background kept up");
}

#[test]
fn a_long_rest_leaves_little_waste_and_few_updates_do_not_undo_it() {
    let bench = Bench::new(5).with_budget(512 << 20);
    let bench = bench.set("chunk_bytes", &CHUNK_BYTES.to_string());
    let (table, _) = bench.open();
    let mut random = Random(9);
    let keys = 60_000_u64;
    let name = |key: u64| format!("key{key:06}").into_bytes();
    for step in 0..keys * 3 {
        let key = if step < keys { step } else { random.below(keys) };
        put(&table, step + 1, &name(key), &vec![1; 100 + to_usize(step / keys % 2 * 8)]);
    }
    table.checkpoint(Lsn(keys * 3 + 1)).unwrap();
    bench.finish_background(&table, keys * 3 + 1);
    let (waste, units) = table.waste();
    assert!(waste * 100 <= units * (LONG_IDLE_WASTE_PER_CENT + 1), "{waste} of {units}");
    assert!(!table.is_manifest_untidy(), "{:?}", table.stats());
    let compacted = || table.counters.compacted_total.load(Ordering::Relaxed);
    let before = compacted();
    for key in 0..keys / 200 {
        put(&table, keys * 3 + 2 + key, &name(key * 199), &[2; 120]);
    }
    bench.finish_background(&table, keys * 4);
    assert_eq!(compacted(), before, "half a per cent more");
    check(&table);
}

/// A checkpoint by compaction does not advance the LSN that the files are complete to.
#[test]
fn a_resting_table_is_persisted_although_nothing_in_it_awaits_a_flush() {
    let bench = Bench::new(6);
    let (table, _) = bench.open();
    put(&table, 1, b"key", b"value");
    let mut maintenance = lock(&table.maintenance);
    table.make_checkpoint(&mut maintenance, 0).unwrap();
    drop(maintenance);
    assert_eq!(table.counters.unflushed_units.load(Ordering::Relaxed), 0);
    assert_eq!(table.pending_work(), PendingWork::Later);
    bench.env.advance(Duration::from_secs(1));
    assert_eq!(table.pending_work(), PendingWork::Checkpoint);
    table.checkpoint(Lsn(2)).unwrap();
    assert_eq!(table.pending_work(), PendingWork::None);
}

/// Each opening leaves a chunk that takes no more entries. Its space goes back, and many of them
/// become one.
fn openings_leave_little() {
    let bench = Bench::new(5).with_budget(64 << 20);
    let bench = bench.set("chunk_bytes", &CHUNK_BYTES.to_string());
    for lsn in 1..=100 {
        let (table, _) = bench.open();
        put(&table, lsn, &lsn.to_be_bytes(), &[7; 50]);
        table.checkpoint(Lsn(lsn + 1)).unwrap();
        // From here on, there are many before the last opening.
        while lsn <= 70 && table.pending_work() == PendingWork::Maintain {
            table.maintain(MaintenanceMode::Step).unwrap();
        }
    }
    let (table, _) = bench.open();
    check(&table);
    assert_eq!(table.stats().keys, 100);
    // Without a write, the newest chunk cannot be merged.
    for _ in 0..100 {
        if table.pending_work() == PendingWork::Maintain {
            table.maintain(MaintenanceMode::Step).unwrap();
        }
    }
    assert_ne!(table.pending_work(), PendingWork::Maintain);
    let chunks = read(&table.chunks).len();
    assert!(chunks <= 20, "{chunks} chunks");
    let used = bench.env.bytes_used();
    assert!(used < 6 * CHUNK_BYTES, "{used} bytes");
}

#[test]
fn a_table_that_is_opened_often_takes_little_space() {
    openings_leave_little();
}

#[test]
fn space_of_openings_that_is_kept_is_found() {
    finds(Bug::HashlogKeepsOpenRanges, openings_leave_little);
    finds(Bug::HashlogKeepsSmallChunks, openings_leave_little);
}
