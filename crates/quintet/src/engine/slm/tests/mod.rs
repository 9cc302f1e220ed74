//! Tests of the engine alone against a plain map. Memtables and runs are small, so that all paths
//! run.

mod bounds;
mod coded_keys;
mod durability;
mod idle;
mod location_cache;
mod offset_parts;
mod pausing;
mod picking;
mod reads;
mod residency;
mod visiting;

use std::{collections::BTreeMap, ops, sync::Arc};

use super::*;
use crate::{
    Error,
    contract::{EngineKind, Host, fake_host::FakeHost},
    io::sim::{Call, Damage, Effect, Fault, Policy, SimEnv, When},
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{MemtableCursor, ScanStart, SortedCursor as _},
    },
    util::{
        codec::{to_u64, to_usize},
        mutant::{Bug, finds},
        sync::{Ordering, lock},
    },
};

/// A table on a simulated disk, opened and reopened.
struct Bench {
    env: SimEnv,
    options: TableOptions,
    budget: u64,
    complete: u64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let options = TableOptions::new(EngineKind::Slm)
            .set("memtable_bytes", "65536")
            .set("run_bytes", "65536")
            .set("block_bytes", "1024")
            .set("page_bytes", "4096")
            .set("leaf_threshold", "3")
            .set("range_threshold", "2")
            .set("range_keys", "10")
            .set("compaction_runs", "2")
            .set("merge_runs", "4")
            // So small that blocks are evicted.
            .set("cache_bytes", "131072");
        Self { env: SimEnv::new(seed), options, budget: 64 << 20, complete: 0 }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.options = self.options.set(name, value);
        self
    }

    fn context(&self) -> Context {
        Context {
            complete: Lsn(self.complete),
            ..Arc::new(FakeHost::default()).context(&self.env, self.budget)
        }
    }

    fn try_open(&self) -> Result<(Slm, Lsn)> {
        Slm::open(&self.options, self.context())
    }

    fn open(&self) -> (Slm, Lsn) {
        self.try_open().unwrap()
    }

    /// Returns the same table on another disk.
    fn on(&self, env: SimEnv) -> Self {
        let (options, budget) = (self.options.clone(), self.budget);
        Self { env, options, budget, complete: self.complete }
    }
}

fn put(engine: &Slm, lsn: u64, key: &[u8], value: &[u8]) {
    let op = Op::Put { key, head: b"", body: value };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

fn delete(engine: &Slm, lsn: u64, key: &[u8]) {
    let op = Op::Delete { key };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

/// Does the background work until none is pending.
fn background(engine: &Slm, lsn: u64) {
    for _ in 0..200 {
        match engine.pending_work() {
            PendingWork::Checkpoint => drop(engine.checkpoint(Lsn(lsn)).unwrap()),
            PendingWork::Maintain => engine.maintain(MaintenanceMode::Step).unwrap(),
            PendingWork::None | PendingWork::Later => return,
        }
    }
    panic!("the background work does not end: {:?}", engine.stats());
}

fn check(engine: &Slm) {
    let mut report = Report::default();
    engine.check(&mut report).unwrap();
    assert!(report.is_sound(), "{:#?}", &report.findings[..report.findings.len().min(10)]);
    assert_eq!(detail(engine, "left_behind_total"), 0);
}

fn detail(engine: &Slm, name: &str) -> u64 {
    engine.stats().details.iter().find(|(one, _)| *one == name).unwrap().1
}

/// Existence hints for keys in runs: absent, present, and with a value that may expire.
fn existence_hints() {
    let bench = Bench::new(33).set("cache_bytes", "0");
    let (engine, _) = bench.open();
    for number in 0..2_000_u64 {
        let value = if number % 4 == 0 { "expires later" } else { "stays" };
        put(&engine, number, &number.to_be_bytes(), value.as_bytes());
    }
    let ask = |number: u64| engine.exists_hint(&number.to_be_bytes()).unwrap();
    // A memtable has the value itself.
    assert_eq!(ask(1), Presence::InValue);
    engine.checkpoint(Lsn(2_000)).unwrap();
    for _ in 0..2 {
        let before = detail(&engine, "reads_total");
        for number in 0..2_000 {
            let kept = if number % 4 == 0 { Presence::InValue } else { Presence::Present };
            assert_eq!(ask(number), kept, "{number}");
        }
        assert!((2_000..3_000).all(|number| ask(number) == Presence::Absent));
        assert_eq!(detail(&engine, "reads_total"), before, "runs were read");
        // A merge keeps the hints.
        engine.maintain(MaintenanceMode::Full).unwrap();
    }
}

#[test]
fn the_index_answers_existence_hints_without_reading_runs() {
    existence_hints();
    finds(Bug::SlmTakesAllForLasting, existence_hints);
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare(engine: &Slm, rows: &Rows) {
    for (key, value) in rows {
        let found = engine.get(key).unwrap();
        assert_eq!(found.as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
    for (value, found) in rows.values().zip(&found) {
        assert_eq!(found.as_deref(), Some(&value[..]));
    }
    let (mut cursor, mut scanned) = (Cursor::START, Rows::new());
    loop {
        let (entries, next) = engine.scan(&cursor, 7).unwrap();
        scanned.extend(entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        cursor = next;
        if cursor.is_start() {
            break;
        }
    }
    assert_eq!(scanned.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
    assert_eq!(&scanned, rows);
    let all = || engine.ordered().unwrap().range(KeyRange::default()).unwrap();
    let pair = |entry: Result<Entry>| entry.map(|entry| (entry.key, entry.value.to_vec())).unwrap();
    let expected = || rows.iter().map(|(key, value)| (key.clone(), value.clone()));
    assert!(all().map(pair).eq(expected()));
    assert!(all().rev().map(pair).eq(expected().rev()));
    check(engine);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Compares a range that is read from both ends at once.
fn compare_range(engine: &Slm, rows: &Rows, random: &mut Random) {
    let mut bound = || format!("key-{}", random.below(1200)).into_bytes();
    let (start, end) = (bound(), bound());
    let inside = |key: &Vec<u8>| *key >= start && *key < end;
    let mut expected: std::collections::VecDeque<_> =
        rows.keys().filter(|key| inside(key)).cloned().collect();
    let range = KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
    let mut found = engine.ordered().unwrap().range(range).unwrap();
    loop {
        let up = random.below(2) == 0;
        let one = if up { found.next() } else { found.next_back() };
        let other = if up { expected.pop_front() } else { expected.pop_back() };
        assert_eq!(one.map(|entry| entry.unwrap().key), other);
        if other.is_none() {
            return;
        }
    }
}

fn low(number: u64) -> u8 {
    crate::util::codec::low_u8(number)
}

/// Runs random operations, with checkpoints, compactions and reopenings among them.
fn run(bench: &Bench, seed: u64, steps: u64, keys: u64) -> Slm {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let (mut engine, _) = bench.open();
    let mut rows = Rows::default();
    let mut log: Vec<(u64, Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    for step in 1..=steps {
        let key = format!("key-{}", random.below(keys)).into_bytes();
        match random.below(1000) {
            0..650 => {
                let size = match random.below(400) {
                    0 => 70_000,
                    1..20 => 2_000 + random.below(4_000),
                    _ => random.below(150),
                };
                let value = vec![b'a' + low(random.below(26)); to_usize(size)];
                put(&engine, step, &key, &value);
                log.push((step, key.clone(), Some(value.clone())));
                rows.insert(key, value);
            }
            650..900 => {
                delete(&engine, step, &key);
                log.push((step, key.clone(), None));
                rows.remove(&key);
            }
            900..950 => {
                assert_eq!(engine.get(&key).unwrap().as_deref(), rows.get(&key).map(Vec::as_slice));
                compare_range(&engine, &rows, &mut random);
            }
            950..985 => background(&engine, step),
            985..992 => assert_eq!(engine.checkpoint(Lsn(step)).unwrap(), Lsn(step)),
            992..994 => engine.maintain(MaintenanceMode::Full).unwrap(),
            994..996 => {
                let end = [&key[..], b"5"].concat();
                let op = Op::DeleteRange { start: &key, end: &end };
                engine.admit(&op).unwrap();
                engine.apply(Lsn(step), &op).unwrap();
                let gone: Vec<_> = rows.range(key.clone()..end).map(|(k, _)| k.clone()).collect();
                for key in gone {
                    rows.remove(&key);
                    log.push((step, key, None));
                }
            }
            996..998 => compare(&engine, &rows),
            _ => {
                drop(engine);
                let complete;
                (engine, complete) = bench.open();
                log.retain(|(lsn, ..)| *lsn >= complete.0);
                for (lsn, key, value) in &log {
                    let op = match value {
                        Some(body) => Op::Put { key, head: b"", body },
                        None => Op::Delete { key },
                    };
                    engine.apply(Lsn(*lsn), &op).unwrap();
                }
            }
        }
    }
    compare(&engine, &rows);
    engine
}

#[test]
fn agrees_with_a_map() {
    let engine = run(&Bench::new(1), 1, 12_000, 1_000);
    assert!(detail(&engine, "flushes_total") > 0);
    run(&Bench::new(2), 2, 6_000, 20);
    run(&Bench::new(3).set("compression", "lz4"), 3, 6_000, 1_000);
}

#[test]
fn agrees_with_a_map_without_any_selection() {
    let bench = Bench::new(4).set("live_ratio", "0");
    let bench = bench.set("leaf_threshold", "0").set("range_threshold", "0");
    run(&bench, 4, 6_000, 1_000);
}

/// Loads keys in random order with updates, and does the background work.
fn load(bench: &Bench, keys: u64, updates: u64) -> (Slm, Rows) {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    let mut random = Random(99);
    for step in 1..=updates {
        let key = format!("{:08}", random.below(keys)).into_bytes();
        let value = vec![low(step); to_usize(60 + random.below(60))];
        put(&engine, step, &key, &value);
        rows.insert(key, value);
        if engine.pending_work() != PendingWork::None {
            background(&engine, step);
        }
    }
    compare(&engine, &rows);
    (engine, rows)
}

/// Returns a table with runs of these numbers of keys, all over the same range. They are too few
/// for candidates by leaves or by size.
pub(super) fn of_runs(seed: u64, counts: &[u64]) -> Slm {
    let bench = Bench::new(seed).set("leaf_threshold", "10").set("merge_runs", "64");
    let (engine, _) = bench.open();
    add_runs(&engine, counts, 0..1_000_000);
    engine
}

/// Adds runs of these numbers of keys, all over a range.
fn add_runs(engine: &Slm, counts: &[u64], keys: ops::Range<u64>) {
    for count in counts {
        let version = Arc::clone(&engine.table.write_buffer.view.load().version);
        let (first, number): (u64, usize) =
            (version.iter().map(|run| run.entries()).sum(), version.len());
        for place in 0..*count {
            let key = keys.start + (keys.end - keys.start) * place / count;
            let key = (key * 100 + to_u64(number)).to_be_bytes();
            put(engine, first + place + 1, &key, b"value");
        }
        engine.checkpoint(Lsn(first + count)).unwrap();
    }
}

#[test]
fn each_selection_works_alone() {
    let only = |name: &str| {
        let mut bench = Bench::new(5);
        for other in ["live_ratio", "leaf_threshold", "range_threshold"] {
            if other != name {
                bench = bench.set(other, "0");
            }
        }
        bench
    };
    let (engine, _) = load(&only("live_ratio"), 3_000, 20_000);
    assert!(detail(&engine, "merges_for_dead_total") > 3);
    assert_eq!(detail(&engine, "merges_for_leaves_total"), 0);
    assert!(engine.stats().dead_bytes < engine.stats().live_bytes);
    let (engine, _) = load(&only("leaf_threshold"), 1 << 40, 12_000);
    assert!(detail(&engine, "merges_for_leaves_total") > 3);
    assert_eq!(detail(&engine, "merges_for_dead_total"), 0);
    let (engine, rows) = load(&only("range_threshold").set("merge_runs", "200"), 1 << 40, 6_000);
    background(&engine, 1 << 30);
    // The ranges of `compare` have made candidates.
    assert!(detail(&engine, "merges_for_ranges_total") > 0);
    compare(&engine, &rows);
}

#[test]
fn small_runs_are_merged() {
    let bench = Bench::new(6);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..200_u64 {
        let key = format!("{step:05}").into_bytes();
        put(&engine, step, &key, b"value");
        rows.insert(key, b"value".to_vec());
        engine.checkpoint(Lsn(step)).unwrap();
        background(&engine, step);
    }
    assert!(detail(&engine, "runs") <= 12, "{}", detail(&engine, "runs"));
    assert!(detail(&engine, "merges_for_small_total") > 3);
    compare(&engine, &rows);
}

#[test]
fn a_get_reads_one_block_and_none_for_an_absent_key() {
    let (engine, rows) = load(&Bench::new(7).set("cache_bytes", "0"), 6_000, 9_000);
    engine.checkpoint(Lsn(1 << 20)).unwrap();
    let before = detail(&engine, "reads_total");
    for key in rows.keys() {
        engine.get(key).unwrap().unwrap();
    }
    assert_eq!(detail(&engine, "reads_total") - before, to_u64(rows.len()));
    let before = detail(&engine, "reads_total");
    for number in 0..1000 {
        assert!(engine.get(format!("absent-{number}").as_bytes()).unwrap().is_none());
    }
    assert_eq!(detail(&engine, "reads_total"), before);
}

#[test]
fn cached_blocks_are_not_read_again() {
    let (engine, rows) = load(&Bench::new(8).set("cache_bytes", "4194304"), 6_000, 9_000);
    engine.checkpoint(Lsn(1 << 20)).unwrap();
    background(&engine, 1 << 20);
    let all = || {
        let before = detail(&engine, "reads_total");
        for (key, value) in &rows {
            assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
        assert!(found.iter().flatten().map(|value| &**value).eq(rows.values()));
        detail(&engine, "reads_total") - before
    };
    all();
    assert_eq!(all(), 0);
    assert!(detail(&engine, "cache_bytes") > 0);
    compare(&engine, &rows);
}

#[test]
fn a_full_compaction_leaves_no_dead_or_expired_entries() {
    let bench = Bench::new(9);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..4_000_u64 {
        let key = format!("{:05}", step % 1_000).into_bytes();
        let value = if step % 3 == 0 { b"expired".to_vec() } else { vec![7; 80] };
        put(&engine, step, &key, &value);
        rows.insert(key, value);
        if step % 5 == 0 {
            let key = format!("{:05}", step % 990).into_bytes();
            delete(&engine, step, &key);
            rows.remove(&key);
        }
        if step % 700 == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
        }
    }
    engine.maintain(MaintenanceMode::Full).unwrap();
    rows.retain(|_, value| value != b"expired");
    compare(&engine, &rows);
    let stats = engine.stats();
    assert_eq!((stats.keys, stats.dead_bytes), (to_u64(rows.len()), 0));
    assert_eq!(detail(&engine, "entries"), to_u64(rows.len()));
    for step in 0..1_000_u64 {
        delete(&engine, 9_000 + step, format!("{step:05}").as_bytes());
    }
    engine.maintain(MaintenanceMode::Full).unwrap();
    compare(&engine, &Rows::new());
    assert_eq!(detail(&engine, "runs"), 0);
    assert!(bench.env.files().iter().all(|(path, _)| path.rsplit('.').next() != Some("run")));
}

#[test]
fn values_of_all_sizes_are_stored() {
    let bench = Bench::new(10);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for (step, size) in (1..).zip([0, 1, 7, 8, 127, 128, 1000, 1016, 4096, 70_000, 3 << 20]) {
        let key = vec![b'k'; size % 3000 + 1];
        put(&engine, step, &key, &vec![low(step); size]);
        rows.insert(key, vec![low(step); size]);
    }
    for key in [vec![0xff; 65_535], vec![0], vec![0, 0], vec![0xff]] {
        put(&engine, 50, &key, b"v");
        rows.insert(key, b"v".to_vec());
    }
    compare(&engine, &rows);
    engine.checkpoint(Lsn(100)).unwrap();
    compare(&engine, &rows);
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(100));
    compare(&engine, &rows);
}
