//! Histories of eight threads on every engine, checked for linearizability key by key.
//!
//! The call and the return of each operation are timed and recorded with the answer. Then
//! [`checker`] searches for an order of the operations that explains all answers. A batch of writes
//! or of gets counts as an operation for each key, and an entry of a scan as a get during the scan.
//! The expiry of a value counts as an operation at the expiry time.
//!
//! Beside the eight threads, others write so that chunks roll, and one persists and compacts in a
//! loop. The memory budget, chunks and segments are as small as possible, so that keys are updated
//! in place, evicted, read from the disk, and moved by compaction.
//!
//! `QUINTET_HISTORIES` sets the number of histories for each engine (2, and at least one for each
//! of its modes), `QUINTET_HISTORY_SEED` the first seed. `QUINTET_HISTORY_ENGINE` chooses an
//! engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod checker;
#[path = "../common/modes.rs"]
mod modes;
#[expect(dead_code, reason = "shared with tests that use all of it")]
#[path = "../common/random.rs"]
mod random;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use checker::{Action, Operation};
use quintet::{
    Cursor, Database, DeleteOptions, EngineKind, Error, Options, PutOptions, Result, Table,
    TableOptions, Value,
    testing::seeded::{Bug, plant},
};

use crate::{
    modes::{modes, with_mode},
    random::Random,
};

const THREADS: usize = 8;
/// Number of operations of each thread in one history.
const OPERATIONS: u64 = 1_000;
/// Number of keys of a history. The first are written often, the last rarely, so that those are
/// in colder chunks.
const KEYS: u64 = 16;
const SELDOM: u64 = 8;
/// Keys of the threads that only fill chunks.
const FILLING: u64 = 1_500;

/// Longest time to live, in milliseconds.
const TTL_MAX: u64 = 8;
const MILLISECOND: u64 = 1_000_000;

/// A database in a directory that is removed with it.
struct Bench {
    path: PathBuf,
    db: Database,
    table: Table,
    start: Instant,
}

impl Bench {
    fn new(kind: EngineKind, seed: u64, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quintet-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let db = Options::new()
            .memory_budget(1 << 20)
            .segment_bytes(128 << 10)
            .recovery_budget(256 << 10)
            .sync_interval(Duration::from_millis(2))
            .open(&path)
            .unwrap();
        let options = TableOptions::new(kind);
        let options = match kind {
            EngineKind::Naive => options.set("snapshot_bytes", "65536"),
            EngineKind::HashLog => options.set("chunk_bytes", "16384").set("mutable_chunks", "2"),
            EngineKind::Trie => options
                .set("region_bytes", "65536")
                .set("journal_bytes", "65536")
                .set("cut_bytes", "65536")
                .set("sluggishness", "2"),
            EngineKind::Tph => options
                .set("memtable_bytes", "262144")
                .set("table_bytes", "1048576")
                .set("level0_tables", "2")
                .set("max_pieces", "3"),
            EngineKind::Slm => options
                .set("memtable_bytes", "262144")
                .set("run_bytes", "262144")
                .set("compaction_runs", "2")
                .set("leaf_threshold", "3"),
            EngineKind::BTree => options,
        };
        let modes = modes(kind);
        let mode = modes[usize::try_from(seed).unwrap() % modes.len()];
        let table = db.create_table("t", with_mode(options, mode)).unwrap();
        if matches!(kind, EngineKind::HashLog | EngineKind::Trie) {
            // As large as the budget, so that chunks and regions are evicted under any schedule.
            for number in 0..FILLING / 3 {
                table.put(format!("filling-{number}"), [7; 2_000]).unwrap();
            }
        }
        Self { path, db, table, start: Instant::now() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.db.close();
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Returns a key. All keys agree at both ends, so they have one path in a trie of bytes of keys.
fn key_of(number: u64) -> Vec<u8> {
    format!("linear--key-{number:04}--raenil").into_bytes()
}

/// Encodes a number and a filling computed from it, so that a torn value is detected. There are two
/// sizes, so that most updates find an entry of equal size.
fn value_of(number: u64) -> Vec<u8> {
    let mut value = Vec::from(number.to_le_bytes());
    value.resize(if number.is_multiple_of(5) { 300 } else { 100 }, number.to_le_bytes()[0]);
    value
}

fn number_in(value: &Value) -> u64 {
    let number = u64::from_le_bytes(*value.first_chunk().unwrap());
    assert!(*value == value_of(number), "a torn value");
    number
}

/// The operations of one thread, by key.
struct Recorder<'a> {
    bench: &'a Bench,
    thread: usize,
    operations: Vec<(u64, Operation)>,
    /// The operation under way: the value that it writes if it writes.
    value: u64,
    /// Values of operations that were refused for lack of memory, which no get may return.
    refused: HashSet<u64>,
}

impl Recorder<'_> {
    /// Runs `call` and records the actions that `actions` returns for its answer. A write that was
    /// refused for lack of memory has no effect.
    fn record<T>(
        &mut self,
        call: impl FnOnce() -> Result<T>,
        actions: impl FnOnce(T) -> Vec<(u64, Action)>,
    ) {
        let called = self.bench.now();
        let answer = call();
        let returned = self.bench.now();
        let answer = match answer {
            Ok(answer) => answer,
            Err(Error::OutOfMemory { .. }) => {
                self.refused.insert(self.value);
                return;
            }
            Err(error) => panic!("{error}"),
        };
        for (key, action) in actions(answer) {
            let operation = Operation { thread: self.thread, called, returned, action };
            self.operations.push((key, operation));
        }
    }

    /// One random operation that writes `value` if it writes.
    fn step(&mut self, random: &mut Random, value: u64) {
        self.value = value;
        let (db, table) = (&self.bench.db, &self.bench.table);
        let seldom = random.below(10) == 0;
        let number =
            if seldom { SELDOM + random.below(KEYS - SELDOM) } else { random.below(SELDOM) };
        let (key, bytes) = (key_of(number), value_of(value));
        match random.below(if seldom { 220 } else { 100 }) {
            0..4 => self.put_expiring(number, value, 1 + random.below(TTL_MAX)),
            4..30 => {
                let actions = |()| vec![(number, Action::Put(value))];
                self.record(|| table.put(&key, &bytes), actions);
            }
            30..36 => self.record(|| table.delete(&key), |()| vec![(number, Action::Delete)]),
            36..42 => {
                let options = PutOptions::new().if_absent();
                self.record(
                    || table.put_with(&key, &bytes, options),
                    |done| vec![(number, Action::PutIfAbsent(value, done))],
                );
            }
            42..48 => {
                let options = PutOptions::new().if_present();
                self.record(
                    || table.put_with(&key, &bytes, options),
                    |done| vec![(number, Action::PutIfPresent(value, done))],
                );
            }
            48..52 => {
                let options = DeleteOptions::new().if_present();
                self.record(
                    || table.delete_with(&key, options),
                    |done| vec![(number, Action::DeleteIfPresent(done))],
                );
            }
            52..58 => {
                let other = (number + 1) % SELDOM;
                let mut batch = db.batch();
                batch.put(table, &key, &bytes).put(table, key_of(other), &bytes);
                let both = vec![(number, Action::Put(value)), (other, Action::Put(value))];
                self.record(|| batch.commit(), |()| both);
            }
            58..64 => {
                let keys: Vec<_> = (0..KEYS).map(key_of).collect();
                self.record(
                    || table.multi_get(&keys),
                    |found| {
                        let gets = found.iter().map(|value| value.as_ref().map(number_in));
                        (0..).zip(gets.map(Action::Get)).collect()
                    },
                );
            }
            64..66 => self.scan(),
            _ => self.record(
                || table.get(&key),
                |found| vec![(number, Action::Get(found.as_ref().map(number_in)))],
            ),
        }
    }

    /// A put of a value with an expiry. The expiry is in whole milliseconds: at most one earlier
    /// than counted from the call, and not later than counted from the return.
    fn put_expiring(&mut self, number: u64, value: u64, millis: u64) {
        let table = &self.bench.table;
        let options = PutOptions::new().ttl(Duration::from_millis(millis));
        self.record(
            || table.put_with(key_of(number), value_of(value), options),
            |_| vec![(number, Action::Put(value))],
        );
        let Some((_, put)) = self.operations.last().copied() else { return };
        if put.action == Action::Put(value) {
            let called = put.called + (millis - 1) * MILLISECOND;
            let returned = put.returned + millis * MILLISECOND + MILLISECOND / 10;
            let action = Action::Expire(value);
            let thread = put.thread;
            self.operations.push((number, Operation { thread, called, returned, action }));
        }
    }

    fn scan(&mut self) {
        let mut cursor = Cursor::START;
        loop {
            let mut next = Cursor::START;
            let table = &self.bench.table;
            let from = cursor.clone();
            self.record(
                || table.scan(from, 100),
                |(entries, after)| {
                    next = after;
                    let number = |key: &[u8]| {
                        let text =
                            std::str::from_utf8(key).unwrap().strip_prefix("linear--key-")?;
                        let text = text.strip_suffix("--raenil")?;
                        text.parse::<u64>().ok()
                    };
                    entries
                        .iter()
                        .filter_map(|(key, value)| Some((number(key)?, number_in(value))))
                        .map(|(key, value)| (key, Action::Get(Some(value))))
                        .collect()
                },
            );
            if next.is_start() {
                return;
            }
            cursor = next;
        }
    }
}

/// Fills chunks and reads its own writes.
fn fill(bench: &Bench, seed: u64, done: &AtomicBool) {
    let mut random = Random(seed);
    while !done.load(Ordering::Relaxed) {
        let key = format!("filling-{}", random.below(FILLING));
        match bench.table.put(&key, [7; 2_000]) {
            Ok(()) => assert_eq!(bench.table.get(&key).unwrap().unwrap().len(), 2_000),
            Err(Error::OutOfMemory { .. }) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn maintain(bench: &Bench, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        bench.table.persist().unwrap();
        bench.table.compact().unwrap();
    }
}

/// Operations on the key that are shown with a failure.
const SHOWN: usize = 40;

type Histories = HashMap<u64, Vec<Operation>>;

/// One history of eight threads, by key. A bug is planted on those threads.
fn run(bench: &Bench, seed: u64, bug: Option<Bug>) -> Histories {
    let done = AtomicBool::new(false);
    let recorded: Vec<_> = thread::scope(|scope| {
        let done = &done;
        let mut others: Vec<_> =
            [1, 2].map(|filler| scope.spawn(move || fill(bench, seed + filler * 77, done))).into();
        others.push(scope.spawn(move || maintain(bench, done)));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let _planted = bug.map(plant);
                    let number = u64::try_from(thread).unwrap();
                    let mut random = Random(seed.wrapping_mul(31).wrapping_add(number));
                    let mut recorder = Recorder {
                        bench,
                        thread,
                        operations: Vec::new(),
                        value: 0,
                        refused: HashSet::new(),
                    };
                    for count in 0..OPERATIONS {
                        recorder.step(&mut random, count * 8 + number);
                    }
                    (recorder.operations, recorder.refused)
                })
            })
            .collect();
        let recorded = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        for other in others {
            other.join().unwrap();
        }
        recorded
    });
    let mut histories = Histories::new();
    let (recorded, refused): (Vec<_>, Vec<_>) =
        recorded.into_iter().map(thread::Result::unwrap).unzip();
    for (key, operation) in recorded.into_iter().flatten() {
        if let Action::Get(Some(value)) = operation.action {
            let is_refused = refused.iter().any(|values| values.contains(&value));
            assert!(!is_refused, "key {key}: the write was refused: {operation}");
        }
        histories.entry(key).or_default().push(operation);
    }
    histories
}

fn check(kind: EngineKind, seed: u64, bug: Option<Bug>) -> std::result::Result<usize, String> {
    let bench = Bench::new(kind, seed, &format!("history-{kind}-{}", bug.is_some()));
    let histories = run(&bench, seed, bug);
    checker::check_keys(&histories).map_err(|(key, stuck)| {
        let end = stuck.iter().map(|operation| operation.returned).max().unwrap_or(u64::MAX);
        let mut before = histories[key].clone();
        before.retain(|operation| operation.called <= end);
        before.sort_by_key(|operation| operation.returned);
        let before = before.split_off(before.len().saturating_sub(SHOWN));
        let show = |operations: &[Operation]| {
            let lines: Vec<String> = operations.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        format!(
            "engine {kind}, key {key}: no order explains\n{}\nlast operations:\n{}",
            show(&stuck),
            show(&before)
        )
    })?;
    let report = bench.db.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
    let wanted: &[&str] = match kind {
        EngineKind::HashLog => {
            &["in_place_updates_total", "chunks_compacted_total", "chunks_evicted_total"]
        }
        EngineKind::Trie => {
            &["in_place_updates_total", "records_moved_total", "regions_evicted_total"]
        }
        _ => &[],
    };
    if !wanted.is_empty() {
        let details = bench.table.stats().unwrap().details;
        for wanted in wanted {
            let count = details.iter().find(|(name, _)| name == wanted).unwrap().1;
            assert!(count > 0, "no {wanted} in this history: {details:?}");
        }
    }
    Ok(histories.values().map(Vec::len).sum())
}

#[test]
fn histories_of_eight_threads_are_linearizable_on_every_engine() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap())
    };
    let (first, count) = (number("QUINTET_HISTORY_SEED", 1), number("QUINTET_HISTORIES", 2));
    let is_default = std::env::var_os("QUINTET_HISTORIES").is_none();
    let one = std::env::var("QUINTET_HISTORY_ENGINE").ok();
    let is_wanted = |kind: &&EngineKind| one.as_ref().is_none_or(|one| one == kind.name());
    for kind in EngineKind::AVAILABLE.iter().filter(is_wanted) {
        let mut operations = 0;
        // The seed chooses the mode.
        let count =
            if is_default { count.max(u64::try_from(modes(*kind).len()).unwrap()) } else { count };
        for seed in first..first + count {
            match check(*kind, seed, None) {
                Ok(recorded) => operations += recorded,
                Err(what) => panic!("QUINTET_HISTORY_SEED={seed} QUINTET_HISTORIES=1: {what}"),
            }
        }
        println!("{kind}: {count} histories, {operations} operations");
    }
}

/// Whether a history with `bug` planted is rejected. Tries several, because threads must collide.
fn rejects(bug: Bug) {
    let rejected = (0..50).any(|seed| {
        let outcome = std::panic::catch_unwind(|| check(EngineKind::Naive, seed, Some(bug)));
        !matches!(outcome, Ok(Ok(_)))
    });
    assert!(rejected, "{bug} was not found in 50 histories");
}

#[test]
fn a_condition_outside_its_stripe_is_found() {
    rejects(Bug::ConditionOutsideStripe);
}
