//! Histories of transactions on eight threads over six engines, checked for serializability.
//!
//! Each thread runs small random transactions: it reads and extends lists, reads and overwrites
//! registers, and reads ranges and scans, in tables of all engines. Some are rolled back, to a
//! savepoint or as a whole; some lock keys first. [`checker`] then searches what they have read for
//! anomalies.
//!
//! Beside them a thread persists and compacts. The memory budget and the files are as small as
//! possible. Each history has two halves; the database is closed and opened between them.
//!
//! `QUINTET_HISTORIES` sets the number of histories (8), `QUINTET_HISTORY_SEED` the first seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checker;
#[path = "../common/modes.rs"]
mod modes;
#[path = "../common/random.rs"]
mod random;

use std::{
    path::PathBuf,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use checker::{Anomaly, Key, Number, Step};
use quintet::{
    Cursor, Database, EngineKind, Error, Isolation, Options, Result, Table, TableOptions,
    Transaction, TransactionOptions,
    testing::seeded::{Bug, plant},
};

use crate::random::Random;

const THREADS: usize = 8;
/// Number of transactions of each thread in each half of a history.
const TRANSACTIONS: u64 = 12;
/// Number of lists and of registers in each table.
const LISTS: u32 = 3;
const REGISTERS: u32 = 2;

struct Bench {
    path: PathBuf,
    db: Database,
    tables: Vec<Table>,
    start: Instant,
    numbers: AtomicU32,
    /// How many benches there were before; chooses the modes of the engines.
    number: usize,
}

fn options() -> Options {
    Options::new()
        .memory_budget(2 << 20)
        .segment_bytes(128 << 10)
        .recovery_budget(256 << 10)
        .sync_interval(Duration::from_millis(2))
}

fn table_options(kind: EngineKind) -> TableOptions {
    let options = TableOptions::new(kind);
    match kind {
        EngineKind::Naive => options.set("snapshot_bytes", "65536"),
        EngineKind::HashLog => options.set("chunk_bytes", "16384").set("mutable_chunks", "2"),
        EngineKind::Trie => options
            .set("region_bytes", "65536")
            .set("journal_bytes", "65536")
            .set("cut_bytes", "65536"),
        EngineKind::Tph => options.set("memtable_bytes", "262144").set("table_bytes", "1048576"),
        EngineKind::Slm => options.set("memtable_bytes", "262144").set("run_bytes", "262144"),
        EngineKind::BTree => options,
    }
}

impl Bench {
    fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quintet-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        let db = options().open(&path).unwrap();
        let mut bench = Self {
            path,
            db,
            tables: Vec::new(),
            start: Instant::now(),
            numbers: AtomicU32::new(1),
            number: usize::try_from(number).unwrap(),
        };
        bench.open_tables();
        bench
    }

    fn open_tables(&mut self) {
        let open = |kind: &EngineKind| {
            let modes = modes::modes(*kind);
            let options = modes::with_mode(table_options(*kind), modes[self.number % modes.len()]);
            self.db.open_or_create_table(kind.name(), options).unwrap()
        };
        self.tables = EngineKind::AVAILABLE.iter().map(open).collect();
    }

    fn reopen(&mut self) {
        self.tables.clear();
        self.db.close().unwrap();
        self.db = options().open(&self.path).unwrap();
        self.open_tables();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap()
    }

    fn new_number(&self) -> Number {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The table of a key.
    fn table(&self, key: Key) -> &Table {
        &self.tables[usize::try_from(key / (LISTS + REGISTERS)).unwrap()]
    }

    /// The keys of a table.
    fn keys_of(table: usize) -> std::ops::Range<Key> {
        let first = u32::try_from(table).unwrap() * (LISTS + REGISTERS);
        first..first + LISTS + REGISTERS
    }

    fn key_count(&self) -> u32 {
        u32::try_from(self.tables.len()).unwrap() * (LISTS + REGISTERS)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.tables.clear();
        let _ = self.db.close();
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn is_list(key: Key) -> bool {
    key % (LISTS + REGISTERS) < LISTS
}

fn name_of(key: Key) -> String {
    format!("key-{key:04}")
}

fn numbers_in(bytes: &[u8]) -> Vec<Number> {
    bytes.chunks(4).map(|bytes| Number::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// The step of a read that returned `bytes`.
fn step_of(key: Key, bytes: Option<&[u8]>, by_range: bool) -> Step {
    if is_list(key) {
        let list = bytes.map_or(Vec::new(), numbers_in);
        return Step::ReadList { key, list, by_range };
    }
    Step::ReadRegister { key, number: bytes.map(|bytes| numbers_in(bytes)[0]), by_range }
}

/// Random steps of one transaction.
struct RandomRun<'a> {
    bench: &'a Bench,
    random: &'a mut Random,
    steps: Vec<Step>,
}

impl RandomRun<'_> {
    fn random_key(&mut self) -> Key {
        u32::try_from(self.random.below(u64::from(self.bench.key_count()))).unwrap()
    }

    fn read(&mut self, tx: &Transaction, key: Key) -> Result<Vec<u8>> {
        let value = tx.get(self.bench.table(key), name_of(key))?;
        self.steps.push(step_of(key, value.as_deref(), false));
        Ok(value.map_or(Vec::new(), |value| value.to_vec()))
    }

    fn append(&mut self, tx: &mut Transaction, key: Key, locks: bool) -> Result<()> {
        let table = self.bench.table(key);
        let mut list = if locks {
            let value = tx.get_for_update(table, name_of(key))?;
            self.steps.push(step_of(key, value.as_deref(), false));
            value.map_or(Vec::new(), |value| value.to_vec())
        } else {
            self.read(tx, key)?
        };
        let number = self.bench.new_number();
        list.extend(number.to_le_bytes());
        tx.put(table, name_of(key), list)?;
        self.steps.push(Step::Append { key, number });
        Ok(())
    }

    fn write(&mut self, tx: &mut Transaction, key: Key) -> Result<()> {
        let number = self.bench.new_number();
        tx.put(self.bench.table(key), name_of(key), number.to_le_bytes())?;
        self.steps.push(Step::WriteRegister { key, number });
        Ok(())
    }

    /// Reads some or all keys of a table by a range or a scan.
    fn read_many(&mut self, tx: &Transaction) -> Result<()> {
        let index = self.random.index(self.bench.tables.len());
        let table = &self.bench.tables[index];
        let mut keys = Bench::keys_of(index);
        let mut found = std::collections::BTreeMap::new();
        if table.kind().is_ordered() {
            if self.random.chance(2) {
                keys.start += 1;
                keys.end -= 1;
            }
            let entries = tx.range(table, name_of(keys.start)..name_of(keys.end))?;
            if self.random.chance(2) {
                for entry in entries {
                    found.extend([entry?]);
                }
            } else {
                for entry in entries.rev() {
                    found.extend([entry?]);
                }
            }
        } else {
            let mut cursor = Cursor::START;
            loop {
                let (entries, next) = tx.scan(table, &cursor, 2)?;
                found.extend(entries);
                if next.is_start() {
                    break;
                }
                cursor = next;
            }
        }
        for key in keys {
            let bytes = found.get(name_of(key).as_bytes()).map(|value| &**value);
            self.steps.push(step_of(key, bytes, true));
        }
        Ok(())
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<()> {
        let key = self.random_key();
        match self.random.below(20) {
            0..3 => self.read_many(tx),
            3..9 => self.read(tx, key).map(drop),
            9 if is_list(key) => self.append(tx, key, true),
            10 => {
                // What is undone leaves no trace.
                let savepoint = tx.savepoint();
                let kept = self.steps.len();
                if is_list(key) { self.append(tx, key, false) } else { self.write(tx, key) }?;
                tx.rollback_to(savepoint)?;
                self.steps.truncate(kept);
                Ok(())
            }
            _ if is_list(key) => self.append(tx, key, false),
            _ => self.write(tx, key),
        }
    }
}

/// Runs one transaction. Records each of its attempts.
fn run_transaction(
    bench: &Bench,
    isolation: Isolation,
    random: &mut Random,
    history: &mut Vec<checker::Transaction>,
) {
    let count = 1 + random.below(5);
    let gives_up = random.chance(12);
    let options = TransactionOptions::new()
        .isolation(isolation)
        .lock_timeout(Duration::from_millis(500))
        .retries(if random.chance(2) { 100 } else { 0 });
    let mut called = bench.now();
    let mut attempt: Option<Vec<Step>> = None;
    let record = |steps, called, is_committed| {
        let returned = bench.now();
        checker::Transaction { called, returned, is_committed, steps }
    };
    let outcome = db_transaction(bench, options, |tx| {
        if let Some(steps) = attempt.take() {
            history.push(record(steps, called, false));
            called = bench.now();
        }
        let mut steps = RandomRun { bench, random, steps: Vec::new() };
        let done = (0..count).try_for_each(|_| steps.step(tx));
        attempt = Some(steps.steps);
        done?;
        if gives_up { Err(Error::ReadOnly) } else { Ok(()) }
    });
    let is_committed = match outcome {
        Ok(()) => true,
        Err(
            Error::ReadOnly
            | Error::Conflict { .. }
            | Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::SnapshotExpired { .. }
            | Error::OutOfMemory { .. },
        ) => false,
        Err(error) => panic!("{error}"),
    };
    history.push(record(attempt.unwrap_or_default(), called, is_committed));
}

fn db_transaction(
    bench: &Bench,
    options: TransactionOptions,
    body: impl FnMut(&mut Transaction) -> Result<()>,
) -> Result<()> {
    bench.db.transaction_with(options, body)
}

/// Runs all threads once. A bug is planted on those threads.
fn run_threads(
    bench: &Bench,
    seed: u64,
    (isolation, bug): (Isolation, Option<Bug>),
) -> Vec<checker::Transaction> {
    let done = AtomicBool::new(false);
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let (done, start) = (&done, &start);
        let maintaining = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for table in &bench.tables {
                    table.persist().unwrap();
                    table.compact().unwrap();
                }
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let _planted = bug.map(plant);
                    let number = u64::try_from(thread).unwrap();
                    let mut random = Random(seed.wrapping_mul(131).wrapping_add(number));
                    let mut history = Vec::new();
                    start.wait();
                    for _ in 0..TRANSACTIONS {
                        run_transaction(bench, isolation, &mut random, &mut history);
                    }
                    history
                })
            })
            .collect();
        let histories: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        maintaining.join().unwrap();
        histories.into_iter().flat_map(thread::Result::unwrap).collect()
    })
}

/// Runs one history. Returns the number of committed transactions and of all attempts.
fn run(
    seed: u64,
    isolation: Isolation,
    bug: Option<Bug>,
) -> Result<(usize, usize), checker::Violation> {
    let mut bench = Bench::new(&format!("serial-{}", bug.is_some()));
    let mut history = run_threads(&bench, seed, (isolation, bug));
    bench.reopen();
    history.extend(run_threads(&bench, seed ^ 0xabcd_ef01, (isolation, bug)));
    // A last transaction reads everything.
    let called = bench.now();
    let mut steps = Vec::new();
    let tx = bench.db.begin(TransactionOptions::new()).unwrap();
    for key in 0..bench.key_count() {
        let value = tx.get(bench.table(key), name_of(key)).unwrap();
        steps.push(step_of(key, value.as_deref(), false));
    }
    tx.commit().unwrap();
    let returned = bench.now();
    history.push(checker::Transaction { called, returned, is_committed: true, steps });
    checker::check(&history)?;
    let report = bench.db.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    Ok((history.iter().filter(|transaction| transaction.is_committed).count(), history.len()))
}

#[test]
fn histories_of_eight_threads_are_serializable() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let (first, count) = (number("QUINTET_HISTORY_SEED", 1), number("QUINTET_HISTORIES", 8));
    let (mut committed, mut attempts) = (0, 0);
    for seed in first..first + count {
        match run(seed, Isolation::Serializable, None) {
            Ok((these, all)) => {
                committed += these;
                attempts += all;
            }
            Err(violation) => {
                panic!("QUINTET_HISTORY_SEED={seed} QUINTET_HISTORIES=1: {violation}")
            }
        }
    }
    println!("{count} histories, {committed} transactions in {attempts} attempts");
    assert!(committed > 0);
}

/// Snapshot isolation permits write skew and phantoms, and nothing else.
#[test]
fn histories_with_snapshot_isolation_have_no_other_anomaly() {
    let mut permitted = 0;
    for seed in 0..4 {
        match run(seed, Isolation::Snapshot, None) {
            Ok(_) => {}
            Err(violation)
                if matches!(violation.anomaly, Anomaly::WriteSkew | Anomaly::Phantom) =>
            {
                permitted += 1;
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    println!("{permitted} of 4 histories have write skew");
}

/// A history with `bug` planted is rejected. Tries several, because transactions must collide.
fn rejects(bug: Bug, isolation: Isolation) {
    let rejected = (0..40).find_map(|seed| run(seed, isolation, Some(bug)).err());
    let violation = rejected.unwrap_or_else(|| panic!("{bug} was not found in 40 histories"));
    println!("{bug}: {:?}", violation.anomaly);
}

#[test]
fn planted_bugs_are_found() {
    for bug in [
        Bug::TransactionSkipsRanges,
        Bug::TransactionLocksWritesOnly,
        Bug::AbsentReadsNotValidated,
        Bug::ReadsAtTwoMoments,
        Bug::RangeMissesOwnWrites,
        Bug::SavepointForgotten,
    ] {
        rejects(bug, Isolation::Serializable);
    }
    rejects(Bug::SnapshotIsolationSkipsWrites, Isolation::Snapshot);
}
