//! Random operations of 1 to 64 threads on one table or on tables of all engines, with budgets from
//! the minimum to 1 GiB. Each round is a process of its own.
//!
//! The process never holds more than the budget, a constant, and the values in flight. In a long
//! run no operation of a round on a tmpfs takes longer than a second: there is no disk to wait for.
//! `persist` and `compact` take as long as their work. Values name their keys, so that a read also
//! shows if an entry is another's.
//!
//! `QUINTET_MEMORY_SECONDS` sets the time of a whole run (`just memory 1800`), and
//! `QUINTET_MEMORY_SEED` the first round. A failed round prints its own `QUINTET_MEMORY_ROUND`,
//! which repeats it alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

#[path = "common/modes.rs"]
mod modes;
#[path = "common/random.rs"]
mod random;
#[path = "common/scratch.rs"]
mod scratch;

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quintet::{
    Cursor, Database, EngineKind, Error, Options, PutOptions, Result, Table, TableOptions,
};

use crate::{
    modes::{Mode, modes, with_mode},
    random::{Random, mix},
    scratch::Scratch,
};

const ROUND: &str = "QUINTET_MEMORY_ROUND";
const SECONDS: &str = "QUINTET_MEMORY_SECONDS";
const ROUND_MILLIS: &str = "QUINTET_MEMORY_ROUND_MILLIS";
const MIB: u64 = 1 << 20;
/// Memory that is not in the budget: the program, its test harness, stacks, pages of the log that
/// no sync has written yet, freed memory that the allocator keeps.
const BESIDE_BYTES: u64 = 24 * MIB;
/// What `slm` and `tph` exceed that by under many threads with a budget near the minimum: ranges
/// hold memtables that are flushed already, and a block of each run that they read.
const EXCESS_BYTES: u64 = 48 * MIB;
/// A budget that is not near the minimum.
const ENOUGH_BYTES: u64 = 16 * MIB;
/// The longest operation that does not wait for a disk, and that of 32 or 64 threads which share a
/// budget near the minimum.
const LONGEST: Duration = Duration::from_secs(1);
const LONGEST_OF_MANY: Duration = Duration::from_secs(3);
const VALUE_BYTES: [usize; 8] = [0, 8, 60, 200, 200, 1_000, 5_000, 60_000];
const BATCH_ENTRIES: u64 = 16;
/// A scan returns its entries at once, so they are the program's memory.
const SCAN_ENTRIES: usize = 16;
/// glibc has an arena for each few threads, and keeps in it what is freed. With values of tens of
/// kilobytes and many threads that is a multiple of what is allocated, so larger blocks are mapped.
const MAPPED_BYTES: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "32768");
/// A tmpfs that every Linux has.
const TMPFS: &str = "/dev/shm";

/// What a round does, from its number alone.
struct Round {
    kinds: Vec<EngineKind>,
    /// Chooses the mode of each table.
    mode: usize,
    budget: u64,
    threads: u64,
    keys: u64,
    /// Whether its files are on a tmpfs.
    in_memory: bool,
}

impl Round {
    fn new(number: u64) -> Self {
        let mut random = Random(mix(number));
        let all = EngineKind::ALL;
        let kinds = match number % 7 {
            6 => all.to_vec(),
            one => vec![all[usize::try_from(one).unwrap()]],
        };
        // Powers of two of a MiB, and some bytes more.
        let budget = (MIB << random.below(11)) + random.below(MIB);
        let threads = 1 << random.below(7);
        let keys = 1 << (8 + random.below(11));
        let in_memory = random.chance(2);
        // The default in one round of two.
        let mode = if random.chance(2) { 0 } else { random.index(12) };
        Self { kinds, mode, budget, threads, keys, in_memory }
    }

    fn mode(&self, kind: EngineKind) -> Mode {
        let modes = modes(kind);
        modes[self.mode % modes.len()]
    }

    /// Bytes of emulated pools, which are files in memory.
    fn pools_bytes(&self) -> u64 {
        let options = self.kinds.iter().flat_map(|kind| self.mode(*kind));
        let pools = options.filter(|(name, _)| *name == "pmem_bytes");
        pools.map(|(_, bytes)| bytes.parse::<u64>().unwrap()).sum()
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = match self.kinds.as_slice() {
            [kind] => kind.name(),
            _ => "all engines",
        };
        let mode: Vec<String> = match self.kinds.as_slice() {
            [kind] => {
                self.mode(*kind).iter().map(|(name, value)| format!(" {name}={value}")).collect()
            }
            _ => vec![format!(" (modes {})", self.mode)],
        };
        let mode = mode.concat();
        let place = if self.in_memory { "tmpfs" } else { "disk" };
        write!(
            f,
            "{kinds}{mode}, budget {} KiB, {} threads, {} keys, {place}",
            self.budget >> 10,
            self.threads,
            self.keys
        )
    }
}

/// Returns a figure of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Peaks of the kinds of memory, which the kernel does not keep: the process's own, and of files.
static PEAKS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Samples memory in a loop.
fn watch() {
    loop {
        PEAKS[0].fetch_max(status("RssAnon:"), Ordering::Relaxed);
        PEAKS[1].fetch_max(status("RssFile:") + status("RssShmem:"), Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
}

/// What the threads of a round found.
#[derive(Default)]
struct Tally {
    operations: AtomicU64,
    /// Counts by kind of operation and of error, for what may be refused.
    refused: Mutex<BTreeMap<String, u64>>,
    longest: Mutex<(Duration, &'static str)>,
}

/// One thread's database, tables and dice.
struct Worker<'a> {
    db: &'a Database,
    tables: Vec<Table>,
    random: Random,
    keys: u64,
    number: u64,
    value: Vec<u8>,
    /// The longest call of a step that makes several.
    longest_call: (Duration, &'static str),
}

fn key(number: u64) -> Vec<u8> {
    // Lengths differ, and neighbours share prefixes.
    let mut key = format!("user/{:07}", mix(number) % 5_000_000).into_bytes();
    key.extend_from_slice(&number.to_be_bytes()[4..]);
    key.resize(key.len() + usize::try_from(number % 20).unwrap(), b'.');
    key
}

impl Worker<'_> {
    fn table(&mut self) -> Table {
        self.tables[self.random.index(self.tables.len())].clone()
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.random.below(self.keys))
    }

    /// A value that begins with its key. Empty values do not.
    fn value_of(&mut self, key: &[u8]) -> Vec<u8> {
        let length = VALUE_BYTES[self.random.index(VALUE_BYTES.len())];
        self.value.resize(length, 7);
        let shared = key.len().min(length);
        self.value[..shared].copy_from_slice(&key[..shared]);
        self.value.clone()
    }

    fn check(table: &Table, key: &[u8], value: &[u8]) {
        let shared = key.len().min(value.len());
        // Merged values are numbers under keys of their own.
        let fits = key.starts_with(b"merged") || key[..shared] == value[..shared];
        assert!(fits, "{}: the value of another key", table.name());
    }

    fn step(&mut self) -> (&'static str, Result<()>) {
        match self.random.below(1000) {
            0..400 => ("put", self.put()),
            400..600 => ("get", self.get()),
            600..700 => ("delete", self.delete()),
            700..760 => ("range", self.range()),
            760..820 => ("batch", self.batch()),
            820..870 => ("transaction", self.transaction()),
            870..910 => ("update", self.update()),
            910..940 => ("merge", self.merge()),
            940..965 => ("put with expiry", self.put_expiring()),
            965..980 => ("snapshot", self.snapshot()),
            980..988 => ("scan", self.scan()),
            988..992 => ("delete_range", self.delete_range()),
            992..994 => ("create and drop", self.create_and_drop()),
            994..996 => ("persist", self.table().persist()),
            996..998 => ("compact", self.table().compact()),
            _ => ("clear", if self.random.chance(20) { self.table().clear() } else { Ok(()) }),
        }
    }

    fn put(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        let value = self.value_of(&key);
        table.put(key, value)
    }

    fn get(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        if let Some(value) = table.get(&key)? {
            Self::check(&table, &key, &value);
        }
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        table.delete(key)
    }

    fn range(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        if table.kind().is_ordered() {
            for entry in table.range(key..)?.take(100) {
                let (key, value) = entry?;
                Self::check(&table, &key, &value);
            }
        }
        Ok(())
    }

    fn scan(&mut self) -> Result<()> {
        let table = self.table();
        let (found, _) = table.scan(Cursor::default(), SCAN_ENTRIES)?;
        for (key, value) in &found {
            Self::check(&table, key, value);
        }
        Ok(())
    }

    fn batch(&mut self) -> Result<()> {
        let mut batch = self.db.batch();
        for _ in 0..self.random.below(BATCH_ENTRIES) {
            let (table, key) = (self.table(), self.key());
            if self.random.chance(4) {
                batch.delete(&table, key);
            } else {
                let value = self.value_of(&key);
                batch.put(&table, key, value);
            }
        }
        batch.commit()
    }

    fn transaction(&mut self) -> Result<()> {
        let (first, second) = (self.table(), self.table());
        let (from, to) = (self.key(), self.key());
        let value = self.value_of(&to);
        self.db.transaction(|tx| {
            tx.get(&first, &from)?;
            tx.delete(&first, &from)?;
            tx.put(&second, &to, &value)
        })
    }

    fn update(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        let value = self.value_of(&key);
        table.update(&key, |_| Some(value.clone())).map(drop)
    }

    fn merge(&mut self) -> Result<()> {
        let key = format!("merged/{}", self.random.below(50));
        self.table().merge(key, 1_i64.to_le_bytes())
    }

    fn put_expiring(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        let value = self.value_of(&key);
        let ttl = Duration::from_millis(1 + self.random.below(2000));
        table.put_with(key, value, PutOptions::new().ttl(ttl)).map(drop)
    }

    fn snapshot(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        let snapshot = self.db.snapshot()?;
        let before = snapshot.get(&table, &key)?;
        let value = self.value_of(&key);
        table.put(&key, value)?;
        assert_eq!(snapshot.get(&table, &key)?, before, "a snapshot of {}", table.name());
        Ok(())
    }

    fn delete_range(&mut self) -> Result<()> {
        let (table, key) = (self.table(), self.key());
        if table.kind().is_ordered() {
            let mut end = key.clone();
            end[8] = end[8].saturating_add(1);
            table.delete_range(key..end)?;
        }
        Ok(())
    }

    fn create_and_drop(&mut self) -> Result<()> {
        let name = format!("own/{}", self.number);
        let kind = self.table().kind();
        let db = self.db;
        let table = self.call("create", || db.create_table(&name, TableOptions::new(kind)))?;
        let written = (0..20).try_for_each(|number: u64| {
            self.call("put", || table.put(number.to_be_bytes(), [7; 50]))
        });
        drop(table);
        self.call("drop", || db.drop_table(&name))?;
        written
    }

    /// Makes one call of a step that makes several.
    fn call<T>(&mut self, name: &'static str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let outcome = call();
        self.longest_call = self.longest_call.max((began.elapsed(), name));
        outcome
    }
}

/// Whether an operation may end with this error: there is too little memory, or it met another.
fn may_be_refused(error: &Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory { .. }
            | Error::Conflict { .. }
            | Error::SnapshotExpired { .. }
            | Error::Limit { .. }
    )
}

/// The child: runs one round, and fails if a bound is exceeded. Does nothing in an ordinary run.
#[test]
fn child_that_mixes() {
    let Ok(number) = std::env::var(ROUND) else { return };
    let number: u64 = number.parse().unwrap();
    let round = Round::new(number);
    let millis = std::env::var(ROUND_MILLIS).map_or(20_000, |text| text.parse().unwrap());
    let scratch = if round.in_memory {
        Scratch(Path::new(TMPFS).join(format!("quintet-memory-mix-{}", std::process::id())))
    } else {
        Scratch::new("memory-mix")
    };
    let tally = Tally::default();
    thread::spawn(watch);
    {
        let db = Options::new().memory_budget(round.budget).open(&scratch.0).unwrap();
        let tables: Vec<Table> = round
            .kinds
            .iter()
            .map(|kind| {
                let options = TableOptions::new(*kind).merge("add_i64");
                db.create_table(kind.name(), with_mode(options, round.mode(*kind)))
            })
            .collect::<Result<_>>()
            .unwrap();
        let end = Instant::now() + Duration::from_millis(millis);
        thread::scope(|scope| {
            for thread in 0..round.threads {
                let (db, tables, tally, round) = (&db, tables.clone(), &tally, &round);
                scope.spawn(move || {
                    let random = Random(mix(number ^ mix(thread)));
                    let (keys, number, value) = (round.keys, thread, Vec::new());
                    let longest_call = (Duration::ZERO, "");
                    let mut worker =
                        Worker { db, tables, random, keys, number, value, longest_call };
                    while Instant::now() < end {
                        run_step(&mut worker, tally);
                    }
                });
            }
        });
        assert!(db.check().unwrap().is_sound());
        db.close().unwrap();
    }
    let peak = status("VmHWM:");
    // The values of a batch: of the program, in the batch, in its log record, and those that they
    // replace. Or the entries of a scan.
    let mean = VALUE_BYTES.iter().sum::<usize>() / VALUE_BYTES.len();
    let in_flight = round.threads * 4 * BATCH_ENTRIES * u64::try_from(mean).unwrap();
    let is_small = round.budget < ENOUGH_BYTES;
    let has_lsm = [EngineKind::Slm, EngineKind::Tph].iter().any(|kind| round.kinds.contains(kind));
    let excess = if is_small && has_lsm && round.threads >= 32 { EXCESS_BYTES } else { 0 };
    let limit = round.budget + BESIDE_BYTES + excess + in_flight + round.pools_bytes();
    let most = if is_small && round.threads >= 32 { LONGEST_OF_MANY } else { LONGEST };
    let (longest, doing) = *tally.longest.lock().unwrap();
    println!(
        "round {number}: {round}: {} operations, peak {} KiB (own \
         {}, files {}) of {}, longest {longest:?} ({doing}), \
         refused {:?}",
        tally.operations.load(Ordering::Relaxed),
        peak >> 10,
        PEAKS[0].load(Ordering::Relaxed) >> 10,
        PEAKS[1].load(Ordering::Relaxed) >> 10,
        limit >> 10,
        tally.refused.lock().unwrap()
    );
    assert!(peak <= limit, "the process held {peak} bytes, {limit} are allowed");
    // Only where nothing else runs.
    let is_timed = round.in_memory && std::env::var(SECONDS).is_ok();
    assert!(!is_timed || longest <= most, "{doing} took {longest:?}");
}

fn run_step(worker: &mut Worker<'_>, tally: &Tally) {
    let began = Instant::now();
    let (doing, outcome) = worker.step();
    let took = began.elapsed();
    tally.operations.fetch_add(1, Ordering::Relaxed);
    let call = match doing {
        // These two do all the work that there is, after that of others who asked for it.
        "persist" | "compact" => None,
        "create and drop" => Some(std::mem::take(&mut worker.longest_call)),
        _ => Some((took, doing)),
    };
    if let Some(call) = call {
        let mut longest = tally.longest.lock().unwrap();
        *longest = (*longest).max(call);
    }
    if let Err(error) = outcome {
        assert!(may_be_refused(&error), "{doing}: {error}");
        let name = format!("{error:?}");
        let name = name.split([' ', '{']).next().unwrap_or_default();
        let mut refused = tally.refused.lock().unwrap();
        *refused.entry(format!("{doing}: {name}")).or_default() += 1;
    }
}

#[test]
fn memory_stays_within_budgets_under_a_mix_of_operations() {
    if std::env::var(ROUND).is_ok() {
        return;
    }
    let setting = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seconds = setting(SECONDS);
    let first = setting("QUINTET_MEMORY_SEED").unwrap_or(1);
    // In an ordinary run each engine alone and all together, half a second each.
    let millis = if seconds.is_some() { 20_000 } else { 500 };
    let began = Instant::now();
    let rounds = (first..).take_while(|round| match seconds {
        Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
        None => *round < first + 7,
    });
    let mut failed = Vec::new();
    for round in rounds {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_mixes", "--nocapture"])
            .env(ROUND, round.to_string())
            .env(ROUND_MILLIS, millis.to_string())
            .env(MAPPED_BYTES.0, MAPPED_BYTES.1)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().filter(|line| line.starts_with("round")).for_each(|line| println!("{line}"));
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            println!("{ROUND}={round} ({}): {errors}", Round::new(round));
            failed.push(round);
        }
    }
    assert!(failed.is_empty(), "rounds that failed: {failed:?}");
}
