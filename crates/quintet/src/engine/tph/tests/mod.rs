//! Tests of the engine alone. Memtables, SSTs and tables are so small that every path runs.

mod agreement;
mod durability;
mod levels;
mod memory;
mod rates;
mod reads;

use std::{collections::BTreeMap, sync::Arc};

use super::{Tph, store::TphStore, table::TphTable};
use crate::{
    Result,
    contract::{
        Context, Cursor, Engine, EngineKind, Entry, KeyRange, MaintenanceMode, MultiGetSink, Op,
        PendingWork, TableOptions, fake_host::FakeHost,
    },
    io::{Env, sim::SimEnv},
    util::{
        codec::{Lsn, to_u64, to_usize},
        report::Report,
        sync::{Ordering, lock},
    },
};

/// A table on a simulated disk, which a test opens again.
struct Bench {
    env: SimEnv,
    options: TableOptions,
    budget: u64,
    hash_mask: u64,
    complete: u64,
}

const MODES: [&str; 4] = ["sorted", "hash_range", "one_level", "single_tier"];

impl Bench {
    fn new(seed: u64, mode: &str) -> Self {
        let options = TableOptions::new(EngineKind::Tph)
            .set("mode", mode)
            .set("memtable_bytes", "65536")
            .set("table_bytes", "65536")
            .set("level_bytes", "131072")
            .set("level0_tables", "2")
            .set("fanout", "2")
            .set("max_pieces", "3")
            .set("block_bytes", "1024")
            // Small, so that the cache evicts blocks.
            .set("cache_bytes", "131072");
        Self { env: SimEnv::new(seed), options, budget: 64 << 20, hash_mask: u64::MAX, complete: 0 }
    }

    fn context(&self) -> Context {
        Context {
            complete: Lsn(self.complete),
            ..Arc::new(FakeHost::default()).context(&self.env, self.budget)
        }
    }

    fn try_open(&self) -> Result<(Tph, Lsn)> {
        let (store, lsn) = TphStore::open(&self.options, self.context(), self.hash_mask)?;
        Ok((Tph { store: Arc::new(store) }, lsn))
    }

    fn open(&self) -> (Tph, Lsn) {
        self.try_open().unwrap()
    }
}

fn put(engine: &Tph, lsn: u64, key: &[u8], value: &[u8]) {
    let op = Op::Put { key, head: b"", body: value };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

fn delete(engine: &Tph, lsn: u64, key: &[u8]) {
    let op = Op::Delete { key };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

/// Does the pending work, as the background threads do.
fn background(engine: &Tph, lsn: u64) {
    for _ in 0..100 {
        match engine.pending_work() {
            PendingWork::Checkpoint => drop(engine.checkpoint(Lsn(lsn)).unwrap()),
            PendingWork::Maintain => engine.maintain(MaintenanceMode::Step).unwrap(),
            PendingWork::None | PendingWork::Later => return,
        }
    }
    panic!("the pending work does not end: {:?}", engine.stats());
}

fn check(engine: &Tph) {
    let mut report = Report::default();
    engine.check(&mut report).unwrap();
    assert!(report.is_sound(), "{:#?}", &report.findings[..report.findings.len().min(10)]);
}

fn detail(engine: &Tph, name: &str) -> u64 {
    engine.stats().details.iter().find(|(one, _)| *one == name).unwrap().1
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare(engine: &Tph, rows: &Rows) {
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

/// Compares a random range, read from both ends.
fn compare_range(engine: &Tph, rows: &Rows, random: &mut Random) {
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

/// Runs random operations, with checkpoints, compactions and reopens among them.
fn run(bench: &Bench, seed: u64, steps: u64, keys: u64) -> Tph {
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

fn low(number: u64) -> u8 {
    crate::util::codec::low_u8(number)
}

/// Loads enough for several levels, splits and garbage collection. Returns the rows.
fn load(mode: &str, cache: &str, keys: u64, updates: u64) -> (Tph, Rows) {
    let mut bench = Bench::new(3, mode);
    bench.options = bench.options.set("cache_bytes", cache);
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
