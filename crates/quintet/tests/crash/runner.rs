//! Runs a workload on a simulated disk and records the trace for the oracle.

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use quintet::{
    Cursor, Database, Durability, EngineKind, Options, PutOptions, ReadableTable, Result, Snapshot,
    Table, TableOptions, TransactionOptions,
    testing::disk::{Env as _, sim::SimEnv},
};

use crate::{
    modes::{Mode, modes, with_mode},
    oracle::{Bounds, Change, Contents, NameChange, Naming, Stored, TableId, Times, Trace},
    workload::Op,
};

/// Size of a large value: larger than a block.
const LARGE_BYTES: usize = 9000;
/// Number of puts that fill a log segment of 64 KiB.
const ROTATE_PUTS: usize = 6;
const ROTATE_BYTES: usize = 12_000;
const TTL: Duration = Duration::from_millis(500);
/// Longer than the time to live and every interval of a background job that does not depend on
/// load.
const TICK: Duration = Duration::from_secs(2);
/// The parent of every other table that a workload makes.
const TREE: &str = "tree";

/// Options of the database under test: small limits, so that rare paths are common.
pub fn open(env: &SimEnv) -> Result<Database> {
    Options::new()
        .memory_budget(4 << 20)
        .segment_bytes(64 << 10)
        .recovery_budget(256 << 10)
        .open_in(Arc::new(env.clone()), "db")
}

/// Reads all contents of a database.
pub fn read(db: &Database) -> Result<Contents> {
    let mut contents = Contents::new();
    for info in db.tables() {
        let entries = read_table(&db.table(&info.name)?)?;
        contents.insert(info.name, entries);
    }
    Ok(contents)
}

/// Reads all entries of a table, or of what a snapshot shows of it.
fn read_table(table: &impl ReadableTable) -> Result<Entries> {
    let mut cursor = Cursor::default();
    let mut entries = BTreeMap::new();
    loop {
        let (found, next) = table.scan(&cursor, 100)?;
        entries.extend(found.into_iter().map(|(key, value)| (key, value.to_vec())));
        if next.is_start() {
            return Ok(entries);
        }
        cursor = next;
    }
}

/// The entries of a table.
type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A snapshot with what it must show of each table.
struct HeldSnapshot {
    snapshot: Snapshot,
    tables: Vec<(Table, Entries)>,
}

impl HeldSnapshot {
    fn take(db: &Database) -> Result<Self> {
        let tables = db.tables().into_iter().map(|info| {
            let table = db.table(&info.name)?;
            let entries = read_table(&table)?;
            Ok((table, entries))
        });
        Ok(Self { tables: tables.collect::<Result<_>>()?, snapshot: db.snapshot()? })
    }

    fn check(&self) -> Result<()> {
        for (table, expected) in &self.tables {
            let found = read_table(&self.snapshot.table(table))?;
            assert_eq!(found, *expected, "the snapshot of {}", table.name());
        }
        Ok(())
    }
}

/// Fails if a full check reports a finding.
fn check(db: &Database) -> Result<(), String> {
    let report = db.check().map_err(|error| format!("check: {error}"))?;
    if report.is_sound() { Ok(()) } else { Err(format!("check found {:?}", report.findings)) }
}

/// The result of a run.
pub struct Outcome {
    /// The steps since the database was opened, after the prefix found.
    pub trace: Trace,
    /// The event after which the database served the prefix found.
    pub opened: u64,
}

/// Opens the database, compares it with the allowed states, checks it, runs the steps, then closes,
/// opens and compares again.
pub fn run(env: &SimEnv, before: &Trace, bounds: Bounds, ops: &[Op]) -> Result<Outcome, String> {
    let db = open(env).map_err(|error| format!("open: {error}"))?;
    let contents = read(&db).map_err(|error| format!("read: {error}"))?;
    let found = before.find(&contents, bounds, env.unix_millis())?;
    let opened = env.mark();
    check(&db)?;
    let trace = before.cut(found, bounds);
    let mut runner = Runner::new(env, Some(db), trace);
    for (index, op) in ops.iter().enumerate() {
        runner.step(index, *op).map_err(|error| format!("step {index}, {op}: {error}"))?;
    }
    runner.verify("after the last step")?;
    runner.reopen().map_err(|error| format!("last reopen: {error}"))?;
    runner.verify("after the last reopen")?;
    check(&runner.database())?;
    runner.close().map_err(|error| format!("last close: {error}"))?;
    Ok(Outcome { trace: runner.trace, opened })
}

/// An open database and its trace.
pub struct Runner<'a> {
    env: &'a SimEnv,
    /// `None` after a failed close or open.
    pub db: Option<Database>,
    pub trace: Trace,
    step: usize,
    snapshot: Option<HeldSnapshot>,
    /// Whether the disk may fail. Then only commits that are seen to be durable count as durable.
    pub faulty: bool,
    /// The change of names whose sync failed: it may or may not hold.
    pub uncertain: Option<NameChange>,
}

/// Sets the options of `QUINTET_CRASH_OPTIONS`: `name=value`, separated by commas.
fn with_chosen_options(options: TableOptions) -> TableOptions {
    let chosen = std::env::var("QUINTET_CRASH_OPTIONS").unwrap_or_default();
    let pairs = chosen.split(',').filter_map(|one| one.split_once('='));
    pairs.fold(options, |options, (name, value)| options.set(name, value))
}

impl<'a> Runner<'a> {
    pub fn new(env: &'a SimEnv, db: Option<Database>, trace: Trace) -> Self {
        Self { env, db, trace, step: 0, snapshot: None, faulty: false, uncertain: None }
    }

    /// One step of a workload. A database must be open.
    pub fn step(&mut self, index: usize, op: Op) -> Result<()> {
        self.step = index;
        let db = self.database();
        self.run(&db, op)
    }

    fn database(&self) -> Database {
        self.db.clone().expect("a database is open between steps")
    }

    /// Asserts that the visible contents are those of all steps.
    pub fn verify(&self, when: &str) -> Result<(), String> {
        let contents = read(&self.database()).map_err(|error| format!("{when}: {error}"))?;
        let bounds = Bounds::all(&self.trace);
        let found = self.trace.find(&contents, bounds, self.env.unix_millis());
        found.map(drop).map_err(|error| format!("{when}: {error}"))
    }

    fn run(&mut self, db: &Database, op: Op) -> Result<()> {
        let place = self.trace.commits.len();
        match op {
            Op::Put => {
                self.put(db, &key_named(format_args!("fresh-{place}")), 20, Durability::Buffered)
            }
            Op::SyncPut => {
                self.put(db, &key_named(format_args!("sync-{place}")), 20, Durability::Sync)
            }
            Op::PutLarge => self.put(db, "large", LARGE_BYTES, Durability::Buffered),
            Op::Overwrite => self.put(db, &key_named("seed-0"), 30, Durability::Buffered),
            Op::Rotate => (0..ROTATE_PUTS).try_for_each(|part| {
                self.put(
                    db,
                    &key_named(format_args!("rotate-{part}")),
                    ROTATE_BYTES,
                    Durability::Buffered,
                )
            }),
            Op::Delete => self.delete(db),
            Op::Batch => self.batch(db, Durability::Buffered),
            Op::SyncBatch => self.batch(db, Durability::Sync),
            Op::Transaction => self.transaction(db, Durability::Buffered),
            Op::SyncTransaction => self.transaction(db, Durability::Sync),
            Op::Update => self.update(db),
            Op::Merge => self.merge(db),
            Op::Snapshot => {
                if let Some(held) = self.snapshot.take() {
                    return held.check();
                }
                self.snapshot = Some(HeldSnapshot::take(db)?);
                Ok(())
            }
            Op::Clear => self.clear(db),
            Op::Create => self.create(db),
            Op::Drop => match self.current() {
                Some((name, _)) => self.drop_name(&name, || db.drop_table(&name)),
                None => Ok(()),
            },
            Op::DropTree => {
                let below = format!("{TREE}/");
                if self.trace.names_now().iter().any(|(name, _)| name.starts_with(&below)) {
                    self.drop_name(TREE, || db.drop_tree(TREE))?;
                }
                Ok(())
            }
            Op::Rename => self.rename(db),
            Op::Persist => {
                db.persist()?;
                self.all_durable();
                Ok(())
            }
            Op::PersistTable => match self.current() {
                // Promises nothing about other tables.
                Some((name, _)) => db.table(&name)?.persist(),
                None => Ok(()),
            },
            Op::Compact => match self.current() {
                Some((name, _)) => db.table(&name)?.compact(),
                None => Ok(()),
            },
            Op::Expire => self.expire(db),
            Op::Reopen => {
                self.reopen()?;
                Ok(())
            }
            Op::Tick => {
                self.tick();
                Ok(())
            }
        }
    }

    pub fn close(&mut self) -> Result<()> {
        self.snapshot = None;
        if let Some(db) = self.db.take() {
            db.close()?;
        }
        self.all_durable();
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.close()?;
        self.db = Some(open(self.env)?);
        Ok(())
    }

    /// Lets time pass. The background syncs the log, so everything is durable.
    fn tick(&mut self) {
        self.env.run_due();
        self.env.advance(TICK);
        let log = |db: &Database| db.stats().log;
        let log = self.db.as_ref().filter(|_| self.faulty).map(log);
        if log.is_none_or(|log| log.durable >= log.end) {
            self.all_durable();
        }
    }

    /// Notes that everything committed is durable.
    fn all_durable(&mut self) {
        let now = self.env.mark();
        for (_, times) in &mut self.trace.commits {
            times.durable = times.durable.min(now);
        }
    }

    /// Records commits in flight and acknowledged commits.
    fn commit(
        &mut self,
        changes: Vec<Change>,
        durability: Durability,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let started = self.env.mark();
        let outcome = work();
        let acknowledged = if outcome.is_ok() { self.env.mark() } else { u64::MAX };
        self.trace.commits.push((changes, Times { started, acknowledged, durable: u64::MAX }));
        // A table that stopped after the log had the commit: reopening shows whether it is there.
        let stopped = matches!(outcome, Err(quintet::Error::TableFailed { .. }));
        if outcome.is_err() && !stopped && !self.shows_last() {
            self.trace.commits.pop();
        }
        outcome?;
        if durability == Durability::Sync {
            self.all_durable();
        }
        Ok(())
    }

    /// Whether the last commit is visible although it failed. A commit that changes nothing, such
    /// as the delete of an absent key, is not. The read is not part of the run: it must succeed
    /// also where the disk fails.
    fn shows_last(&self) -> bool {
        let contents = self.env.unharmed(|| read(&self.database()));
        let contents = contents.expect("without faults everything can be read");
        let now = self.env.unix_millis();
        let agrees = |bounds| self.trace.find(&contents, bounds, now).is_ok();
        agrees(Bounds::all(&self.trace)) && !agrees(Bounds::all_but_last(&self.trace))
    }

    fn name(&mut self, naming: Naming, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = self.env.mark();
        if let Err(error) = work() {
            if error.to_string().starts_with("sync catalog") {
                let times = Times { started, acknowledged: u64::MAX, durable: u64::MAX };
                let commits_before = self.trace.commits.len();
                self.uncertain = Some(NameChange { naming, times, commits_before });
            }
            return Err(error);
        }
        let acknowledged = self.env.mark();
        let times = Times { started, acknowledged, durable: acknowledged };
        let commits_before = self.trace.commits.len();
        self.trace.names.push(NameChange { naming, times, commits_before });
        self.all_durable();
        Ok(())
    }

    /// The newest table.
    fn current(&self) -> Option<(String, TableId)> {
        self.trace.names_now().pop()
    }

    /// Returns bytes that no other step writes.
    fn value(&self, length: usize) -> Vec<u8> {
        let tag = self.trace.commits.len().to_le_bytes();
        (0..length).map(|index| tag[index % 2] ^ index.to_le_bytes()[0]).collect()
    }

    fn put(
        &mut self,
        db: &Database,
        key: &str,
        length: usize,
        durability: Durability,
    ) -> Result<()> {
        let Some((name, table)) = self.current() else { return Ok(()) };
        let handle = db.table(&name)?;
        let value = self.value(length);
        let stored = Stored { bytes: value.clone().into(), expires: None };
        let change = Change { table, key: key.into(), value: Some(stored) };
        let options = PutOptions::new().durability(durability);
        self.commit(vec![change], durability, || handle.put_with(key, &value, options).map(drop))
    }

    fn delete(&mut self, db: &Database) -> Result<()> {
        let Some((name, table)) = self.current() else { return Ok(()) };
        let handle = db.table(&name)?;
        let key = key_named(format_args!("seed-{}", 1 + self.step % 2));
        let change = Change { table, key: key.clone().into(), value: None };
        self.commit(vec![change], Durability::Buffered, || handle.delete(&key))
    }

    /// Two puts and a delete over the oldest table and the current one.
    fn batch(&mut self, db: &Database, durability: Durability) -> Result<()> {
        let names = self.trace.names_now();
        let (Some((first, first_id)), Some((second, second_id))) = (names.first(), names.last())
        else {
            return Ok(());
        };
        let (first, second) = (db.table(first)?, db.table(second)?);
        let place = self.trace.commits.len();
        let key = key_named(format_args!("batch-{place}"));
        let value = self.value(40);
        let stored = Stored { bytes: value.clone().into(), expires: None };
        let put = |table: &TableId| Change {
            table: *table,
            key: key.clone().into(),
            value: Some(stored.clone()),
        };
        let delete = Change { table: *second_id, key: key_named("seed-3").into(), value: None };
        let changes = vec![put(first_id), put(second_id), delete];
        let mut batch = db.batch();
        batch.put(&first, &key, &value);
        batch.put(&second, &key, &value);
        batch.delete(&second, key_named("seed-3"));
        self.commit(changes, durability, || batch.commit_with(durability))
    }

    /// Two puts and a delete over the oldest table and the current one. One of the puts depends on
    /// what the transaction reads.
    fn transaction(&mut self, db: &Database, durability: Durability) -> Result<()> {
        let names = self.trace.names_now();
        let (Some((first, first_id)), Some((second, second_id))) = (names.first(), names.last())
        else {
            return Ok(());
        };
        let (first, second) = (db.table(first)?, db.table(second)?);
        let key = key_named(format_args!("transaction-{}", self.trace.commits.len()));
        let value = self.value(40);
        let longer = |old: Option<quintet::Value>| {
            let old = old.map_or_else(Vec::new, |old| old.iter().take(8).copied().collect());
            [&*value, &*old].concat()
        };
        let changes = vec![
            change(*first_id, &key, Some(&value)),
            change(
                *second_id,
                &key_named("seed-0"),
                Some(&longer(second.get(key_named("seed-0"))?)),
            ),
            change(*second_id, &key_named("seed-2"), None),
        ];
        let options = TransactionOptions::new().durability(durability);
        self.commit(changes, durability, || {
            db.transaction_with(options, |tx| {
                tx.put(&first, &key, &value)?;
                let savepoint = tx.savepoint();
                tx.put(&first, &key, "undone")?;
                tx.delete(&second, key_named("seed-0"))?;
                tx.rollback_to(savepoint)?;
                let new = longer(tx.get(&second, key_named("seed-0"))?);
                tx.put(&second, key_named("seed-0"), new)?;
                tx.delete(&second, key_named("seed-2"))
            })
        })
    }

    fn update(&mut self, db: &Database) -> Result<()> {
        let Some((name, table)) = self.current() else { return Ok(()) };
        let handle = db.table(&name)?;
        let value = self.value(10);
        let longer = |old: Option<&[u8]>| {
            let old = old.unwrap_or_default();
            [old.get(..8).unwrap_or(old), &value].concat()
        };
        let new = longer(handle.get(key_named("seed-0"))?.as_deref());
        let changes = vec![change(table, &key_named("seed-0"), Some(&new))];
        self.commit(changes, Durability::Buffered, || {
            handle.update(key_named("seed-0"), |old| Some(longer(old))).map(drop)
        })
    }

    /// Two merges and a put in one batch.
    fn merge(&mut self, db: &Database) -> Result<()> {
        let Some((name, table)) = self.current() else { return Ok(()) };
        let handle = db.table(&name)?;
        let value = self.value(6);
        let old = handle.get(key_named("merged"))?.map_or_else(Vec::new, |old| old.to_vec());
        let key = key_named(format_args!("beside-{}", self.trace.commits.len()));
        let changes = vec![
            change(table, &key_named("merged"), Some(&[&*old, &*value, &*value].concat())),
            change(table, &key, Some(&value)),
        ];
        let mut batch = db.batch();
        batch.merge(&handle, key_named("merged"), &value).put(&handle, &key, &value);
        batch.merge(&handle, key_named("merged"), &value);
        self.commit(changes, Durability::Buffered, || batch.commit())
    }

    fn create(&mut self, db: &Database) -> Result<()> {
        let table = self.trace.names.len() as TableId;
        let dir = if table.is_multiple_of(2) { format!("{TREE}/sub/") } else { String::new() };
        let name = format!("{dir}table-{table}");
        self.create_named(db, &name, table)
    }

    fn create_named(&mut self, db: &Database, name: &str, table: TableId) -> Result<()> {
        let kinds = crate::ENGINES;
        // A batch meets different engines; `QUINTET_CRASH_ENGINE` names the only one.
        let kind = match std::env::var("QUINTET_CRASH_ENGINE") {
            Ok(name) => name.parse()?,
            Err(_) => kinds[usize::try_from(table).unwrap_or(0) % kinds.len()],
        };
        let mut options = TableOptions::new(kind).merge("append");
        if kind == EngineKind::Naive {
            options = options.set("snapshot_bytes", "16384");
        }
        if kind == EngineKind::HashLog {
            options = options.set("chunk_bytes", "16384").set("mutable_chunks", "2");
        }
        if kind == EngineKind::BTree {
            options = options.set("page_bytes", "4096").set("extend_granularity", "64");
        }
        if kind == EngineKind::Tph {
            let small = ["memtable_bytes", "table_bytes", "level_bytes"];
            options = small.iter().fold(options, |options, name| options.set(*name, "65536"));
            options = options.set("level0_tables", "2").set("max_pieces", "2");
            options = options.set("fanout", "2").set("block_bytes", "1024");
        }
        if kind == EngineKind::Slm {
            let small = ["memtable_bytes", "run_bytes"];
            options = small.iter().fold(options, |options, name| options.set(*name, "65536"));
            options = options.set("page_bytes", "4096").set("block_bytes", "1024");
            options = options.set("compaction_runs", "2").set("leaf_threshold", "1");
        }
        if kind == EngineKind::Trie {
            options = options.set("region_bytes", "65536").set("journal_bytes", "65536");
            options = options.set("cut_bytes", "65536").set("sluggishness", "2");
        }
        let mut options = with_mode(options, self.mode(kind, table));
        if kind == EngineKind::Slm && self.env.has_persistent_memory() {
            // Each opening of the simulated disk copies the pool.
            options = options.set("pmem_bytes", "2097152");
        }
        let options = with_chosen_options(options);
        let naming = Naming::Create { name: name.to_owned(), table };
        self.name(naming, || db.create_table(name, options).map(drop))
    }

    /// The mode of a table. Commits count as well, so that tables of the same number have different
    /// modes in different workloads.
    fn mode(&self, kind: EngineKind, table: TableId) -> Mode {
        let (all, number) =
            (modes(kind), self.trace.commits.len() + usize::try_from(table).unwrap_or(0));
        let is_in_pool = |mode: &&Mode| mode.iter().any(|(name, _)| *name == "pmem_bytes");
        // Pools are for persistent memory. There, tables in pages are those of the other engines.
        let has_pools = kind == EngineKind::Slm && self.env.has_persistent_memory();
        let fitting: Vec<&Mode> = all.iter().filter(|mode| is_in_pool(mode) == has_pools).collect();
        fitting[number % fitting.len()]
    }

    /// Clears the current table: an empty one takes its place.
    fn clear(&mut self, db: &Database) -> Result<()> {
        let Some((name, _)) = self.current() else { return Ok(()) };
        let handle = db.table(&name)?;
        let table = self.trace.names.len() as TableId;
        self.name(Naming::Create { name, table }, || handle.clear())
    }

    fn drop_name(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.name(Naming::Drop { name: name.to_owned() }, work)
    }

    fn rename(&mut self, db: &Database) -> Result<()> {
        let Some((from, _)) = self.current() else { return Ok(()) };
        let place = self.trace.names.len();
        let dir = if place.is_multiple_of(2) { String::new() } else { format!("{TREE}/") };
        let to = format!("{dir}renamed-{place}");
        let naming = Naming::Rename { from: from.clone(), to: to.clone() };
        self.name(naming, || db.rename(&from, &to))
    }

    fn expire(&mut self, db: &Database) -> Result<()> {
        let Some((name, table)) = self.current() else { return Ok(()) };
        let handle = db.table(&name)?;
        let key = key_named(format_args!("expiring-{}", self.step % 3));
        let value = self.value(25);
        let options = PutOptions::new().ttl(TTL);
        let place = self.trace.commits.len();
        let latest = u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX);
        let expires = Some(self.env.unix_millis() + latest);
        let stored = Stored { bytes: value.clone().into(), expires };
        let change = Change { table, key: key.clone().into(), value: Some(stored) };
        let outcome = self.commit(vec![change], Durability::Buffered, || {
            handle.put_with(&key, &value, options).map(drop)
        });
        // The exact time is read back, because the clock moves while the put is under way.
        if let Some((changes, _)) = self.trace.commits.get_mut(place)
            && let Ok(Some(found)) = self.env.unharmed(|| handle.get(&key))
        {
            let bytes = value.into();
            let stored = Stored { bytes, expires: found.expires_at_unix_millis() };
            changes[0].value = Some(stored);
        }
        outcome?;
        self.tick();
        Ok(())
    }
}

/// A key of this name. All keys agree at both ends, so a table whose paths are bytes of keys has
/// all of them on one path, which it switches to the keyed hash.
fn key_named(name: impl Display) -> String {
    format!("same-end{name}dne-emas")
}

/// A change to a value that does not expire.
fn change(table: TableId, key: &str, value: Option<&[u8]>) -> Change {
    let stored = |bytes: &[u8]| Stored { bytes: bytes.into(), expires: None };
    Change { table, key: key.into(), value: value.map(stored) }
}

/// Makes a database with two tables and a few durable entries in each, and closes it.
pub fn base(env: &SimEnv) -> Result<Trace, String> {
    let mut runner = Runner::new(env, None, Trace::default());
    let mut make = || -> Result<()> {
        let db = open(env)?;
        runner.db = Some(db.clone());
        for (table, name) in (0..).zip(["first", "second"]) {
            runner.create_named(&db, name, table)?;
            for key in 0..4 {
                runner.put(
                    &db,
                    &key_named(format_args!("seed-{key}")),
                    10,
                    Durability::Buffered,
                )?;
            }
        }
        drop(db);
        runner.close()
    };
    make().map_err(|error| format!("base: {error}"))?;
    let mut trace = runner.trace;
    trace.names.iter_mut().for_each(|change| change.times = Times::BEFORE);
    trace.commits.iter_mut().for_each(|(_, times)| *times = Times::BEFORE);
    Ok(trace)
}
