//! The engine alone against a plain map, with chunks so small that every path is taken.

mod bugs;
mod crashes;
mod faults;
mod frames;
mod packed;
mod reopening;
mod reuse;
mod room;
mod space;

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::{arena::ChunkArena, files::TableIdentity, *};
use crate::{
    Error,
    contract::{Context, Host, TableOptions, fake_host::FakeHost},
    io::{Env, sim::SimEnv},
    util::{
        budget::Budget,
        codec::{KeyHash, to_usize},
        sync::AtomicBool,
    },
};

/// A table on a simulated disk, opened and reopened.
struct Bench {
    env: SimEnv,
    options: TableOptions,
    budget: u64,
    hash_mask: u64,
    host: Arc<FakeHost>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let options = TableOptions::new(EngineKind::HashLog)
            .set("chunk_bytes", "16384")
            .set("mutable_chunks", "2");
        Self {
            env: SimEnv::new(seed),
            options,
            budget: 64 << 20,
            hash_mask: u64::MAX,
            host: Arc::default(),
        }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.options = self.options.set(name, value);
        self
    }

    fn context(&self) -> Context {
        self.host.context(&self.env, self.budget)
    }

    fn open(&self) -> (HashLog, Lsn) {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<(HashLog, Lsn)> {
        HashLog::open_with_mask(&self.options, self.context(), self.hash_mask)
    }
}

fn put(table: &HashLog, lsn: u64, key: &[u8], value: &[u8]) {
    let op = Op::Put { key, head: b"", body: value };
    table.admit(&op).unwrap();
    table.apply(Lsn(lsn), &op).unwrap();
}

fn delete(table: &HashLog, lsn: u64, key: &[u8]) {
    let op = Op::Delete { key };
    table.admit(&op).unwrap();
    table.apply(Lsn(lsn), &op).unwrap();
}

fn all(table: &HashLog) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = table.scan(&cursor, 100).unwrap();
        for entry in entries {
            assert!(out.insert(entry.key, entry.value.to_vec()).is_none(), "an entry twice");
        }
        if next.is_start() {
            return out;
        }
        cursor = next;
    }
}

fn assert_sound(table: &HashLog) {
    let mut report = Report::default();
    table.check(&mut report).unwrap();
    assert_eq!(report.findings, vec![]);
}

/// Runs background work until none is due.
fn finish_background_work(bench: &Bench, table: &HashLog, lsn: u64) {
    for _ in 0..200 {
        match table.pending_work() {
            PendingWork::None => return,
            PendingWork::Later => bench.env.advance(Duration::from_secs(1)),
            PendingWork::Checkpoint => drop(table.checkpoint(Lsn(lsn)).unwrap()),
            PendingWork::Maintain => table.maintain(MaintenanceMode::Step).unwrap(),
        }
    }
    panic!("background work does not end: {:?}", table.stats());
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }
}

/// Random operations, checked against a map, with reopening from the files and the rest of the
/// operations (the log's part) applied again.
fn run_model(bench: &Bench, seed: u64, steps: u64, keys: u64) {
    let mut random = Random(seed);
    let (mut table, _) = bench.open();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut log: Vec<(u64, Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for lsn in 1..=steps {
        let key = format!("key{:05}", random.below(keys)).into_bytes();
        match random.below(100) {
            0..70 => {
                let size = match random.below(40) {
                    0 => 5000 + random.below(30_000),
                    1 => 0,
                    _ => 20 + random.below(3) * 100,
                };
                let value = vec![u8::try_from(lsn % 251).unwrap(); usize::try_from(size).unwrap()];
                put(&table, lsn, &key, &value);
                model.insert(key.clone(), value.clone());
                log.push((lsn, key, Some(value)));
            }
            70..85 => {
                delete(&table, lsn, &key);
                model.remove(&key);
                log.push((lsn, key, None));
            }
            85..97 => {
                let found = table.get(&key).unwrap().map(|value| value.to_vec());
                assert_eq!(found.as_ref(), model.get(&key), "seed {seed} lsn {lsn}");
            }
            97 => drop(table.checkpoint(Lsn(lsn)).unwrap()),
            98 => {
                table.pending_work();
                table.maintain(MaintenanceMode::Step).unwrap();
            }
            _ => {
                if random.below(10) == 0 {
                    drop(table);
                    let (opened, complete) = bench.open();
                    table = opened;
                    for (lsn, key, value) in log.iter().filter(|(lsn, ..)| *lsn >= complete.0) {
                        match value {
                            Some(value) => put(&table, *lsn, key, value),
                            None => delete(&table, *lsn, key),
                        }
                    }
                } else {
                    finish_background_work(bench, &table, lsn);
                }
            }
        }
    }
    assert_eq!(all(&table), model, "seed {seed}");
    assert_eq!(table.stats().keys, to_u64(model.len()));
    // Exact but for what opening knows only to the unit.
    let live = to_u64(model.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>());
    let counted = table.stats().live_bytes;
    assert!(counted.abs_diff(live) <= 8 * keys, "{counted} live bytes counted, {live} are there");
    let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).chain([b"absent".as_slice()]).collect();
    let mut values = Vec::new();
    table.multi_get(&keys, MultiGetSink::Append(&mut values)).unwrap();
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value.map(|value| value.to_vec()).as_ref(), model.get(*key));
    }
    assert_sound(&table);
    finish_background_work(bench, &table, steps);
    assert_sound(&table);
    table.checkpoint(Lsn(steps + 1)).unwrap();
    drop(table);
    let (table, complete) = bench.open();
    assert_eq!(complete, Lsn(steps + 1));
    assert_eq!(all(&table), model, "seed {seed}, reopened");
    assert_sound(&table);
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
        let bench = Bench { budget: 200 << 10, ..Bench::new(seed) };
        run_model(&bench, seed, 6000, 2000);
    }
}

#[test]
fn behaves_like_a_map_where_hashes_are_equal() {
    for seed in 0..6 {
        // Twelve bits of hash: nearly every key shares its hash with another.
        let bench = Bench { hash_mask: 0xfc0, ..Bench::new(seed) };
        run_model(&bench, seed, 3000, 200);
    }
}

#[test]
fn behaves_like_a_map_where_hashes_differ_only_in_what_hints_leave_out() {
    for seed in 0..6 {
        let bench = Bench { hash_mask: 0xff00_0000_0000_0fc0, ..Bench::new(seed) };
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
    let before = all(&table);
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
    assert_eq!(all(&table), before);
    assert_sound(&table);
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
    assert!(all(&table).into_values().all(|value| value[0] != 1), "an older value came back");
    assert_sound(&table);
}

#[test]
fn space_stays_bounded_under_updates_and_shrinks_at_rest() {
    // Chunks large enough that the ends of blocks do not matter.
    let mut bench = Bench::new(3);
    bench.options = bench.options.set("chunk_bytes", "65536");
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
    finish_background_work(&bench, &table, 160_000);
    let stats = table.stats();
    assert!(stats.file_bytes * 10 <= (stats.live_bytes + 20_000 * 18) * 13, "{stats:?}");
    assert_sound(&table);
}

#[test]
fn everything_can_be_deleted_and_the_space_comes_back() {
    let bench = Bench::new(4);
    let (table, _) = bench.open();
    for lsn in 1..=5000 {
        put(&table, lsn, format!("key{lsn}").as_bytes(), &[1; 100]);
    }
    finish_background_work(&bench, &table, 5001);
    table.checkpoint(Lsn(5001)).unwrap();
    for lsn in 1..=5000 {
        delete(&table, 10_000 + lsn, format!("key{lsn}").as_bytes());
    }
    table.checkpoint(Lsn(20_000)).unwrap();
    finish_background_work(&bench, &table, 20_000);
    let stats = table.stats();
    assert_eq!((stats.keys, stats.live_bytes), (0, 0));
    assert!(stats.file_bytes < 400 << 10, "{stats:?}");
    drop(table);
    let (table, _) = bench.open();
    assert_eq!(all(&table), BTreeMap::new());
}

#[test]
fn a_writer_waits_for_the_memory_of_work_under_way() {
    let bench = Bench { budget: 400 << 10, ..Bench::new(16) };
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (table, _) = HashLog::open_with_mask(&bench.options, context, u64::MAX).unwrap();
    *lock(&bench.host.lent) = Some(budget.reserve_transient(budget.limit()));
    for lsn in 1..100_u64 {
        put(&table, lsn, &lsn.to_be_bytes(), &[7; 2_000]);
    }
    assert!(lock(&bench.host.lent).is_none(), "nobody asked for it");
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
    let bench = Bench { budget: 200 << 10, ..Bench::new(6) };
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
    let before = all(&table);
    drop(table);
    let mut silent = 0;
    for (path, size) in bench.env.files() {
        let name = path.rsplit('/').next().unwrap().to_owned();
        let dir = bench.env.open_dir(Path::new("table"), false).unwrap();
        for at in 0..size {
            let image = bench.env.kill();
            let file = image
                .open_dir(Path::new("table"), false)
                .unwrap()
                .open(&name, crate::io::Open::WRITE)
                .unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[!byte[0]], at).unwrap();
            let damaged = Bench { env: image, ..Bench::new(7) };
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
    let bench = Bench { budget: 2 << 20, ..Bench::new(8) };
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
                let mut newest = BTreeMap::new();
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
    let stats = table.stats();
    assert!(
        stats.details.iter().any(|(name, count)| *name == "chunks_compacted_total" && *count > 0)
    );
    assert_sound(&table);
    let before = all(&table);
    table.checkpoint(Lsn(lsn.load(Ordering::Relaxed))).unwrap();
    drop(table);
    let (table, _) = bench.open();
    assert_eq!(all(&table), before);
}
