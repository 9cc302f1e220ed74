//! The engine alone against a plain map, with chunks so small that every path is taken.

mod bugs;
mod crashes;
mod faults;
mod file_sizes;
mod frames;
mod packed;
mod prefetch;
mod reopening;
mod reuse;
mod room;
mod space;

use std::{path::Path, time::Duration};

use super::{arena::ChunkArena, files::TableIdentity, *};
use crate::{
    Error,
    contract::{
        TableOptions,
        test_bench::{self, Logged, Mix, Random, Rows, check, contents, delete, put, replay},
    },
    io::Env,
    util::{budget::Budget, codec::to_usize, sync::AtomicBool},
};

type Bench = test_bench::Bench<HashLog>;

impl Bench {
    fn new(seed: u64) -> Self {
        let options = TableOptions::new(EngineKind::HashLog)
            .set("chunk_bytes", "16384")
            .set("mutable_chunks", "2");
        Self::with(seed, options, HashLog::open_with_mask)
    }
}

const MIX: Mix = Mix {
    puts: 700,
    deletes: 150,
    background: 9,
    checkpoints: 10,
    maintenance_steps: 10,
    compactions: 0,
    range_deletes: 0,
    comparisons: 0,
    reopenings: 1,
    value_bytes: |random| match random.below(40) {
        0 => 5000 + random.below(30_000),
        1 => 0,
        _ => 20 + random.below(3) * 100,
    },
    is_complete_to_checkpoint: false,
    counts_keys: true,
};

/// Runs random operations, and reopens the table at the end.
fn run_model(bench: &Bench, seed: u64, steps: u64, keys: u64) {
    let (table, rows) = test_bench::run(bench, &MIX, seed, (steps, keys));
    // Exact but for what opening knows only to the unit.
    let live = to_u64(rows.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>());
    let counted = table.stats().live_bytes;
    assert!(counted.abs_diff(live) <= 8 * keys, "{counted} live bytes counted, {live} are there");
    bench.finish_background(&table, steps);
    check(&table);
    test_bench::reopen(bench, (table, rows), steps + 1);
}

#[test]
fn behaves_like_a_map() {
    for seed in 0..12 {
        run_model(&Bench::new(seed), seed, 6000, 300);
    }
}

#[test]
fn behaves_like_a_map_with_a_budget_of_a_few_chunks() {
    for seed in 0..8 {
        let bench = Bench::new(seed).with_budget(200 << 10);
        run_model(&bench, seed, 6000, 2000);
    }
}

#[test]
fn behaves_like_a_map_where_hashes_are_equal() {
    for seed in 0..6 {
        // Twelve bits of hash: nearly every key shares its hash with another.
        let bench = Bench::new(seed).with_hash_mask(0xfc0);
        run_model(&bench, seed, 3000, 200);
    }
}

#[test]
fn behaves_like_a_map_where_hashes_differ_only_in_what_hints_leave_out() {
    for seed in 0..6 {
        let bench = Bench::new(seed).with_hash_mask(0xff00_0000_0000_0fc0);
        run_model(&bench, seed, 3000, 200);
    }
}

#[test]
fn damaged_hints_are_made_anew_from_the_entries() {
    let bench = Bench::new(1);
    let (table, _) = bench.open();
    for lsn in 1..2000 {
        put(&table, lsn, format!("key{}", lsn % 700).as_bytes(), &[7; 100]);
    }
    table.checkpoint(Lsn(2000)).unwrap();
    let before = contents(&table);
    drop(table);
    let path = "table/manifest-00000001";
    // The last checkpoint ends with hints, and less than a sector to fill.
    let content = bench.env.contents(path).unwrap();
    let file = bench
        .env
        .open_dir(Path::new("table"), false)
        .unwrap()
        .open("manifest-00000001", crate::io::Open::WRITE)
        .unwrap();
    let at = content.len() - 1000;
    file.write_at(&[!content[at]], to_u64(at)).unwrap();
    let (table, _) = bench.open();
    assert_eq!(contents(&table), before);
    check(&table);
}

#[test]
fn expired_entries_go_with_compaction_and_do_not_bring_older_ones_back() {
    let bench = Bench::new(2);
    let (table, _) = bench.open();
    for key in 0..400 {
        put(&table, 1 + key, format!("key{key}").as_bytes(), &[1; 90]);
    }
    table.checkpoint(Lsn(500)).unwrap();
    for key in 0..400 {
        put(&table, 1000 + key, format!("key{key}").as_bytes(), b"expired and then some");
    }
    for key in 0..400 {
        put(&table, 2000 + key, format!("other{key}").as_bytes(), &[2; 90]);
    }
    table.checkpoint(Lsn(3000)).unwrap();
    for _ in 0..20 {
        table.counters.exhausted_at.store(0, Ordering::Relaxed);
        table.compact_step(0).unwrap();
    }
    for lsn in 0..400_u64 {
        put(&table, 4000 + lsn, format!("third{lsn}").as_bytes(), &[2; 90]);
    }
    table.checkpoint(Lsn(5000)).unwrap();
    drop(table);
    let (table, _) = bench.open();
    assert!(contents(&table).into_values().all(|value| value[0] != 1), "an older value came back");
    check(&table);
}

#[test]
fn space_stays_bounded_under_updates_and_shrinks_at_rest() {
    // Chunks large enough that the ends of blocks do not matter.
    let bench = Bench::new(3).set("chunk_bytes", "65536");
    let (table, _) = bench.open();
    let mut random = Random(3);
    let mut worst = 0.0_f64;
    for lsn in 1..160_000 {
        let key = format!("key{:05}", random.below(20_000));
        let size = if lsn % 2 == 0 { 100 } else { 104 };
        put(&table, lsn, key.as_bytes(), &vec![1; size]);
        if lsn % 64 == 0 {
            match table.pending_work() {
                PendingWork::None | PendingWork::Later => bench.env.advance(Duration::from_secs(1)),
                PendingWork::Checkpoint => drop(table.checkpoint(Lsn(lsn)).unwrap()),
                PendingWork::Maintain => table.maintain(MaintenanceMode::Step).unwrap(),
            }
        }
        if lsn > 60_000 && lsn % 500 == 0 {
            let stats = table.stats();
            let ratio = crate::util::codec::to_f64(stats.file_bytes)
                / crate::util::codec::to_f64(stats.live_bytes + 20_000 * 18);
            worst = worst.max(ratio);
        }
    }
    assert!(worst <= 2.0, "{worst:.2} times the live bytes");
    bench.finish_background(&table, 160_000);
    let stats = table.stats();
    assert!(stats.file_bytes * 10 <= (stats.live_bytes + 20_000 * 18) * 13, "{stats:?}");
    check(&table);
}

#[test]
fn everything_can_be_deleted_and_the_space_comes_back() {
    let bench = Bench::new(4);
    let (table, _) = bench.open();
    for lsn in 1..=5000 {
        put(&table, lsn, format!("key{lsn}").as_bytes(), &[1; 100]);
    }
    bench.finish_background(&table, 5001);
    table.checkpoint(Lsn(5001)).unwrap();
    for lsn in 1..=5000 {
        delete(&table, 10_000 + lsn, format!("key{lsn}").as_bytes());
    }
    table.checkpoint(Lsn(20_000)).unwrap();
    bench.finish_background(&table, 20_000);
    let stats = table.stats();
    assert_eq!((stats.keys, stats.live_bytes), (0, 0));
    assert!(stats.file_bytes < 400 << 10, "{stats:?}");
    drop(table);
    let (table, _) = bench.open();
    assert_eq!(contents(&table), Rows::new());
}

#[test]
fn a_writer_waits_for_the_memory_of_work_under_way() {
    Bench::new(16).with_budget(400 << 10).wait_for_transient_memory();
}

#[test]
fn a_hot_key_is_updated_in_place() {
    let bench = Bench::new(5);
    let (table, _) = bench.open();
    for lsn in 1..=10_000_u64 {
        put(&table, lsn, b"hot", &lsn.to_le_bytes());
    }
    assert_eq!(table.get(b"hot").unwrap().unwrap(), 10_000_u64.to_le_bytes());
    assert!(table.counters.in_place_total.load(Ordering::Relaxed) > 9_990);
    table.checkpoint(Lsn(10_001)).unwrap();
    put(&table, 10_002, b"hot", &[1; 8]);
    assert_eq!(table.get(b"hot").unwrap().unwrap(), [1; 8]);
    drop(table);
    // What came after the persist is the log's to bring back.
    let (table, _) = bench.open();
    assert_eq!(table.get(b"hot").unwrap().unwrap(), 10_000_u64.to_le_bytes());
    for lsn in [10_003, 10_005] {
        put(&table, lsn, b"hot", &lsn.to_le_bytes());
        table.checkpoint(Lsn(lsn + 1)).unwrap();
    }
    drop(table);
    let (table, _) = bench.open();
    assert_eq!(table.get(b"hot").unwrap().unwrap(), 10_005_u64.to_le_bytes());
}

#[test]
fn a_hit_on_the_disk_costs_one_read() {
    let bench = Bench::new(6).with_budget(200 << 10);
    let (table, _) = bench.open();
    for lsn in 1..=8000_u64 {
        put(&table, lsn, format!("key{lsn:05}").as_bytes(), &[3; 128]);
    }
    table.checkpoint(Lsn(8001)).unwrap();
    let reads = bench.env.calls(&[crate::io::sim::Call::Read]);
    let cold = table.counters.cold_reads_total.load(Ordering::Relaxed);
    for lsn in 1..=8000_u64 {
        assert!(table.get(format!("key{lsn:05}").as_bytes()).unwrap().is_some());
    }
    let reads = bench.env.calls(&[crate::io::sim::Call::Read]) - reads;
    let cold = table.counters.cold_reads_total.load(Ordering::Relaxed) - cold;
    assert!(cold > 6000, "{cold}");
    assert_eq!(reads, cold);
    assert!(cold <= 8010, "{cold}");
}

/// One in how many places is damaged. `QUINTET_DAMAGE_STRIDE=1`: all.
fn stride(default: usize) -> usize {
    let chosen = std::env::var("QUINTET_DAMAGE_STRIDE").ok();
    chosen.map_or(default, |text| text.parse().unwrap())
}

#[test]
fn every_flipped_byte_is_an_error_or_harmless() {
    let bench = Bench::new(7);
    let (table, _) = bench.open();
    for lsn in 1..=300_u64 {
        put(
            &table,
            lsn,
            format!("key{:03}", lsn % 90).as_bytes(),
            &[u8::try_from(lsn % 200).unwrap(); 60],
        );
        if lsn % 100 == 0 {
            table.checkpoint(Lsn(lsn + 1)).unwrap();
        }
    }
    put(&table, 400, b"large", &vec![9; 20_000]);
    table.checkpoint(Lsn(401)).unwrap();
    let before = contents(&table);
    drop(table);
    let mut silent = 0;
    for (path, size) in bench.env.files() {
        let name = path.rsplit('/').next().unwrap().to_owned();
        let dir = bench.env.open_dir(Path::new("table"), false).unwrap();
        for at in (0..size).step_by(stride(5)) {
            let image = bench.env.kill();
            let file = image
                .open_dir(Path::new("table"), false)
                .unwrap()
                .open(&name, crate::io::Open::WRITE)
                .unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[!byte[0]], at).unwrap();
            let damaged = bench.on(image);
            let Ok((table, complete)) = damaged.try_open() else { continue };
            if complete < Lsn(401) {
                // The catalog knows better and refuses.
                continue;
            }
            for (key, value) in &before {
                match table.get(key) {
                    Ok(found) => {
                        assert_eq!(found.as_deref(), Some(value.as_slice()), "{name} {at}");
                    }
                    Err(error) => assert!(error.is_corruption(), "{name} {at}: {error}"),
                }
            }
            silent += 1;
        }
        drop(dir);
    }
    assert!(silent > 0);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scene: all threads share what it sets up")]
fn readers_writers_and_maintenance_agree() {
    let bench = Bench::new(8).with_budget(2 << 20);
    let (table, _) = bench.open();
    let done = AtomicBool::new(false);
    let writers = 2_u64;
    let lsn = AtomicU64::new(1);
    let seconds = std::env::var("HASHLOG_STRESS_SECONDS").map_or(1, |text| text.parse().unwrap());
    // A value says its key, a counter and a filling that depends on both: a torn one shows.
    let value = |key: u64, count: u64| {
        let mut bytes = Vec::from(key.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        let fill = u8::try_from((key ^ count) % 251).unwrap();
        bytes.resize(24 + usize::try_from(count % 3 * 40).unwrap(), fill);
        bytes
    };
    let verify = |key: u64, bytes: &[u8]| {
        let count = u64::from_le_bytes(*bytes[8..].first_chunk().unwrap());
        assert_eq!(bytes, value(key, count), "key {key}");
        count
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for writer in 0..writers {
            let (table, done, lsn) = (&table, &done, &lsn);
            threads.push(scope.spawn(move || {
                let mut random = Random(writer);
                let mut count = 1;
                while !done.load(Ordering::Relaxed) {
                    let key = random.below(4000) * writers + writer;
                    let name = format!("key{key}");
                    let at = lsn.fetch_add(1, Ordering::Relaxed);
                    if random.below(10) == 0 {
                        delete(table, at, name.as_bytes());
                        assert!(table.get(name.as_bytes()).unwrap().is_none());
                    } else {
                        put(table, at, name.as_bytes(), &value(key, count));
                        let found = table.get(name.as_bytes()).unwrap().unwrap();
                        assert_eq!(found, value(key, count), "key {key}");
                    }
                    count += 1;
                }
            }));
        }
        for reader in 0..2 {
            let (table, done) = (&table, &done);
            threads.push(scope.spawn(move || {
                let mut random = Random(100 + reader);
                let mut newest = std::collections::BTreeMap::new();
                while !done.load(Ordering::Relaxed) {
                    let key = random.below(8000);
                    if let Some(found) = table.get(format!("key{key}").as_bytes()).unwrap() {
                        let count = verify(key, &found);
                        let before = newest.insert(key, count).unwrap_or(0);
                        assert!(before <= count, "key {key} went back from {before} to {count}");
                    }
                }
            }));
        }
        let start = std::time::Instant::now();
        while start.elapsed().as_secs() < seconds {
            let at = lsn.load(Ordering::Relaxed).saturating_sub(100);
            match table.pending_work() {
                PendingWork::None | PendingWork::Later => std::thread::yield_now(),
                PendingWork::Checkpoint => drop(table.checkpoint(Lsn(at)).unwrap()),
                PendingWork::Maintain => table.maintain(MaintenanceMode::Step).unwrap(),
            }
        }
        done.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    for name in ["chunks_compacted_total", "compactions_total", "checkpoints_total"] {
        assert!(test_bench::detail(&table, name) > 0, "{name}");
    }
    check(&table);
    let before = contents(&table);
    table.checkpoint(Lsn(lsn.load(Ordering::Relaxed))).unwrap();
    drop(table);
    let (table, _) = bench.open();
    assert_eq!(contents(&table), before);
}

#[test]
fn a_full_disk_is_not_tried_for_each_change() {
    test_bench::apply_logged_on_a_full_disk(&Bench::new(41).with_budget(4 << 20));
}

#[test]
fn changes_go_on_without_memory() {
    test_bench::change_without_memory(&Bench::new(43).with_budget(4 << 20));
}

#[test]
fn operations_of_a_commit_wait_together() {
    test_bench::wait_together(&Bench::new(44).with_budget(1 << 20));
}
