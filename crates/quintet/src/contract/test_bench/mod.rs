//! The test bench of the engines: one table on a simulated disk, without a database.
//!
//! A [`Bench`] opens the table of any engine again and again. It has the disk, the memory budget
//! and a [`FakeHost`] in the place of the database. The functions write to a table, do its
//! background work and compare it with a map; [`run()`] does all of it at random. `shared_tests`
//! and `queues` have tests that several engines run.

mod fake_host;
pub(crate) mod first_ranges;
pub(crate) mod queues;
mod random_run;
mod shared_tests;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

pub(crate) use self::{
    fake_host::FakeHost,
    random_run::{Mix, Random, load, low, reopen, run},
    shared_tests::*,
};
use super::{
    Context, Cursor, Engine, Entry, Host, KeyRange, MaintenanceMode, MemoryWait, MultiGetSink, Op,
    PendingWork, TableOptions,
};
use crate::{
    Error, Result,
    io::{
        Dir, Env,
        sim::{Policy, SimEnv},
    },
    util::{
        budget::Budget,
        codec::{KeyHash, Lsn, to_u64},
        report::Report,
        sync::lock,
    },
};

/// Opens a table of an engine that uses these bits of the hashes of keys.
type Opener<E> = fn(&TableOptions, Context, u64) -> Result<(E, Lsn)>;

/// Returns the context of a table in the directory `table` of a simulated disk.
pub(crate) fn context(env: &SimEnv, budget: u64) -> Context {
    Context {
        env: Arc::new(env.clone()),
        dir: env.open_dir(Path::new("table"), true).unwrap(),
        database_id: [7; 16],
        table_id: 3,
        hash: KeyHash::new([1, 2]),
        budget: Arc::new(Budget::new(budget)),
        host: Arc::new(FakeHost::default()),
        read_only: false,
        complete: Lsn(0),
    }
}

/// A table on a simulated disk, opened and reopened.
pub(crate) struct Bench<E> {
    pub(crate) env: SimEnv,
    pub(crate) options: TableOptions,
    pub(crate) budget: Arc<Budget>,
    pub(crate) host: Arc<FakeHost>,
    /// The LSN to which the files are complete, according to the catalog.
    pub(crate) complete: Lsn,
    hash_mask: u64,
    opener: Opener<E>,
}

impl<E> Bench<E> {
    /// Creates a bench with an empty disk and 64 MiB of memory.
    pub(crate) fn with(seed: u64, options: TableOptions, opener: Opener<E>) -> Self {
        Self {
            env: SimEnv::new(seed),
            options,
            budget: Arc::new(Budget::new(64 << 20)),
            host: Arc::default(),
            complete: Lsn(0),
            hash_mask: u64::MAX,
            opener,
        }
    }

    /// Sets an option of the table.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.options = self.options.set(name, value);
        self
    }

    /// Replaces the options of the table.
    pub(crate) fn with_options(mut self, options: TableOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the memory, all of it free.
    pub(crate) fn with_budget(mut self, bytes: u64) -> Self {
        self.budget = Arc::new(Budget::new(bytes));
        self
    }

    /// Sets the bits of hashes that the table uses. Few make hashes of different keys equal.
    pub(crate) fn with_hash_mask(mut self, mask: u64) -> Self {
        self.hash_mask = mask;
        self
    }

    /// Returns the directory of the table.
    pub(crate) fn dir(&self) -> Arc<dyn Dir> {
        self.context().dir
    }

    pub(crate) fn context(&self) -> Context {
        let host = Arc::clone(&self.host) as Arc<dyn Host>;
        let (budget, complete) = (Arc::clone(&self.budget), self.complete);
        Context { budget, host, complete, ..context(&self.env, 0) }
    }

    pub(crate) fn try_open(&self) -> Result<(E, Lsn)> {
        self.open_in(self.context())
    }

    pub(crate) fn open_in(&self, context: Context) -> Result<(E, Lsn)> {
        (self.opener)(&self.options, context, self.hash_mask)
    }

    /// Opens the table. Returns it and the LSN to which its files are complete.
    pub(crate) fn open(&self) -> (E, Lsn) {
        self.try_open().unwrap()
    }

    /// Returns the same table on another disk, with as much memory and a host of its own.
    pub(crate) fn on(&self, env: SimEnv) -> Self {
        Self {
            env,
            options: self.options.clone(),
            budget: Arc::new(Budget::new(self.budget.limit())),
            host: Arc::default(),
            ..*self
        }
    }

    /// Returns the table as a power loss leaves it that loses everything unsynced.
    pub(crate) fn after_power_loss(&self) -> Self {
        self.on(self.env.crash(Policy::AllLost))
    }
}

impl<E: Engine> Bench<E> {
    /// A writer that finds all memory lent to work under way waits until the work has ended.
    pub(crate) fn wait_for_transient_memory(&self) {
        let (engine, _) = self.open();
        *lock(&self.host.lent) = Some(self.budget.reserve_transient(self.budget.limit()));
        for lsn in 1..100_u64 {
            put(&engine, lsn, &lsn.to_be_bytes(), &[7; 2_000]);
        }
        assert!(lock(&self.host.lent).is_none(), "nobody asked for it");
    }

    /// Does the background work until none is pending, and none after a while.
    pub(crate) fn finish_background(&self, engine: &E, lsn: u64) {
        for _ in 0..200 {
            match engine.pending_work() {
                PendingWork::None => return,
                PendingWork::Later => self.env.advance(Duration::from_secs(1)),
                work => work_once(engine, work, lsn),
            }
        }
        panic!("the background work does not end: {:?}", engine.stats());
    }
}

/// Admits and applies an operation, as the database does.
pub(crate) fn commit(engine: &impl Engine, lsn: u64, op: &Op<'_>) -> Result<()> {
    engine.admit(op, &MemoryWait::default())?;
    engine.apply(Lsn(lsn), op)
}

/// Admits and applies a put.
pub(crate) fn put(engine: &impl Engine, lsn: u64, key: &[u8], value: &[u8]) {
    commit(engine, lsn, &Op::Put { key, head: b"", body: value }).unwrap();
}

/// Admits and applies a delete.
pub(crate) fn delete(engine: &impl Engine, lsn: u64, key: &[u8]) {
    commit(engine, lsn, &Op::Delete { key }).unwrap();
}

/// An operation of the log: its LSN, key and value. No value: a delete.
pub(crate) type Logged = (u64, Vec<u8>, Option<Vec<u8>>);

/// Applies the operations from an LSN on, as replay does.
pub(crate) fn replay(engine: &impl Engine, log: &[Logged], from: Lsn) {
    for (lsn, key, value) in log.iter().filter(|(lsn, ..)| *lsn >= from.0) {
        let op = match value {
            Some(body) => Op::Put { key, head: b"", body },
            None => Op::Delete { key },
        };
        engine.apply(Lsn(*lsn), &op).unwrap();
    }
}

/// Does work that an engine has asked for.
fn work_once(engine: &impl Engine, work: PendingWork, lsn: u64) {
    match work {
        PendingWork::Checkpoint => drop(engine.checkpoint(Lsn(lsn)).unwrap()),
        PendingWork::Maintain => engine.maintain(MaintenanceMode::Step).unwrap(),
        PendingWork::None | PendingWork::Later => {}
    }
}

/// Does the background work until none is pending.
pub(crate) fn background(engine: &impl Engine, lsn: u64) {
    for _ in 0..100 {
        match engine.pending_work() {
            PendingWork::None | PendingWork::Later => return,
            work => work_once(engine, work, lsn),
        }
    }
    panic!("the background work does not end: {:?}", engine.stats());
}

/// Returns what a check of the files and of memory finds.
pub(crate) fn findings(engine: &impl Engine) -> Vec<String> {
    let mut report = Report::default();
    engine.check(&mut report).unwrap();
    report.findings.into_iter().map(|finding| finding.what).collect()
}

/// Checks the files, and that memory agrees with them.
pub(crate) fn check(engine: &impl Engine) {
    let findings = findings(engine);
    assert!(findings.is_empty(), "{:#?}", &findings[..findings.len().min(10)]);
    // Merges have left no live entry behind.
    let details = engine.stats().details;
    assert!(details.iter().all(|(name, value)| *name != "left_behind_total" || *value == 0));
}

/// Returns a statistic of the engine.
pub(crate) fn detail(engine: &impl Engine, name: &str) -> u64 {
    engine.stats().details.iter().find(|(one, _)| *one == name).unwrap().1
}

/// What a table holds.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Scans a table with this number of entries a call. No entry comes twice.
fn scanned(engine: &impl Engine, count: usize) -> Rows {
    let (mut cursor, mut rows) = (Cursor::START, Rows::new());
    loop {
        let (entries, next) = engine.scan(&cursor, count).unwrap();
        for entry in entries {
            assert!(rows.insert(entry.key, entry.value.to_vec()).is_none(), "an entry twice");
        }
        cursor = next;
        if cursor.is_start() {
            return rows;
        }
    }
}

/// Reads a whole table, by a range if it is ordered.
pub(crate) fn contents(engine: &impl Engine) -> Rows {
    let Some(ordered) = engine.ordered() else { return scanned(engine, 100) };
    let entries = ordered.range(KeyRange::default()).unwrap();
    entries.map(|entry| entry.map(|entry| (entry.key, entry.value.to_vec())).unwrap()).collect()
}

/// Compares all reads of a table with what it holds, and checks its files.
pub(crate) fn compare(engine: &impl Engine, rows: &Rows) {
    for (key, value) in rows {
        let found = engine.get(key).unwrap();
        assert_eq!(found.as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).chain([b"absent".as_slice()]).collect();
    let mut found = Vec::new();
    engine.multi_get(&keys, MultiGetSink::Append(&mut found)).unwrap();
    assert_eq!(found.len(), keys.len());
    for (key, found) in keys.iter().zip(&found) {
        assert_eq!(found.as_deref(), rows.get(*key).map(Vec::as_slice));
    }
    let scanned = scanned(engine, 7);
    assert_eq!(scanned.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
    assert_eq!(&scanned, rows);
    if let Some(ordered) = engine.ordered() {
        let all = || ordered.range(KeyRange::default()).unwrap();
        let pair =
            |entry: Result<Entry>| entry.map(|entry| (entry.key, entry.value.to_vec())).unwrap();
        let expected = || rows.iter().map(|(key, value)| (key.clone(), value.clone()));
        assert!(all().map(pair).eq(expected()));
        assert!(all().rev().map(pair).eq(expected().rev()));
    }
    check(engine);
}

/// As [`compare`], for an engine whose count of keys is exact.
pub(crate) fn compare_exactly(engine: &impl Engine, rows: &Rows) {
    compare(engine, rows);
    assert_eq!(engine.stats().keys, to_u64(rows.len()));
}

/// Each of these options is refused.
pub(crate) fn refuse_options<E>(bench: &Bench<E>, options: &[(&str, &str)]) {
    for (name, value) in options {
        let options = bench.options.clone().set(*name, *value);
        let outcome = (bench.opener)(&options, bench.context(), bench.hash_mask);
        assert!(matches!(outcome, Err(Error::InvalidOption { .. })), "{name}");
    }
}
