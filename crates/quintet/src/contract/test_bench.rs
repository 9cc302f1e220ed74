//! Tests of one engine on a simulated disk, compared with a map.
//!
//! A [`Bench`] opens the table again and again. [`run`] and [`load`] write to it, do its background
//! work and compare every read with the map. The last functions are tests that several engines run.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    Context, Cursor, Engine, Entry, Host, KeyRange, MaintenanceMode, MultiGetSink, Op, PendingWork,
    TableOptions, fake_host::FakeHost,
};
use crate::{
    Error, Result,
    io::sim::{Call, Damage, Effect, Fault, Policy, SimEnv, When},
    util::{
        budget::Budget,
        codec::{Lsn, low_u8, to_u64, to_usize},
        report::Report,
        sync::Ordering,
    },
};

/// Opens a table of an engine.
type Opener<E> = Arc<dyn Fn(&TableOptions, Context) -> Result<(E, Lsn)>>;

/// A table on a simulated disk, opened and reopened.
pub(crate) struct Bench<E> {
    pub(crate) env: SimEnv,
    pub(crate) options: TableOptions,
    pub(crate) budget: u64,
    /// The LSN to which the files are complete, according to the catalog.
    pub(crate) complete: u64,
    opener: Opener<E>,
}

impl<E> Bench<E> {
    /// Creates a bench with an empty disk and 64 MiB of memory.
    pub(crate) fn with(
        seed: u64,
        options: TableOptions,
        opener: impl Fn(&TableOptions, Context) -> Result<(E, Lsn)> + 'static,
    ) -> Self {
        let (env, opener) = (SimEnv::new(seed), Arc::new(opener));
        Self { env, options, budget: 64 << 20, complete: 0, opener }
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.options = self.options.set(name, value);
        self
    }

    pub(crate) fn context(&self) -> Context {
        Context {
            complete: Lsn(self.complete),
            ..Arc::new(FakeHost::default()).context(&self.env, self.budget)
        }
    }

    pub(crate) fn try_open(&self) -> Result<(E, Lsn)> {
        self.open_in(self.context())
    }

    fn open_in(&self, context: Context) -> Result<(E, Lsn)> {
        (self.opener)(&self.options, context)
    }

    /// Opens the table, and returns its memory budget too.
    pub(crate) fn open_with_budget(&self) -> (E, Arc<Budget>) {
        let context = self.context();
        let budget = Arc::clone(&context.budget);
        (self.open_in(context).unwrap().0, budget)
    }

    pub(crate) fn open(&self) -> (E, Lsn) {
        self.try_open().unwrap()
    }

    /// Returns the same table on another disk.
    pub(crate) fn on(&self, env: SimEnv) -> Self {
        let (options, opener) = (self.options.clone(), Arc::clone(&self.opener));
        Self { env, options, budget: self.budget, complete: self.complete, opener }
    }
}

/// Admits and applies a put.
pub(crate) fn put(engine: &impl Engine, lsn: u64, key: &[u8], value: &[u8]) {
    let op = Op::Put { key, head: b"", body: value };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

/// Admits and applies a delete.
pub(crate) fn delete(engine: &impl Engine, lsn: u64, key: &[u8]) {
    let op = Op::Delete { key };
    engine.admit(&op).unwrap();
    engine.apply(Lsn(lsn), &op).unwrap();
}

/// Does the background work until none is pending.
pub(crate) fn background(engine: &impl Engine, lsn: u64) {
    for _ in 0..100 {
        match engine.pending_work() {
            PendingWork::Checkpoint => drop(engine.checkpoint(Lsn(lsn)).unwrap()),
            PendingWork::Maintain => engine.maintain(MaintenanceMode::Step).unwrap(),
            PendingWork::None | PendingWork::Later => return,
        }
    }
    panic!("the background work does not end: {:?}", engine.stats());
}

/// Checks the files, and that memory agrees with them.
pub(crate) fn check(engine: &impl Engine) {
    let mut report = Report::default();
    engine.check(&mut report).unwrap();
    assert!(report.is_sound(), "{:#?}", &report.findings[..report.findings.len().min(10)]);
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

/// Compares all reads of a table with what it holds, and checks its files.
pub(crate) fn compare(engine: &impl Engine, rows: &Rows) {
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

/// A xorshift generator. The seed is not 0.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Compares a range that is read from both ends at once.
fn compare_range(engine: &impl Engine, rows: &Rows, random: &mut Random) {
    let mut bound = || format!("key-{}", random.below(1200)).into_bytes();
    let (start, end) = (bound(), bound());
    let inside = |key: &Vec<u8>| *key >= start && *key < end;
    let mut expected: VecDeque<_> = rows.keys().filter(|key| inside(key)).cloned().collect();
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

/// Returns the lowest byte.
pub(crate) fn low(number: u64) -> u8 {
    low_u8(number)
}

/// Runs random operations, with checkpoints, compactions and reopenings among them.
pub(crate) fn run<E: Engine>(bench: &Bench<E>, seed: u64, steps: u64, keys: u64) -> E {
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

/// Loads keys in random order with updates, and does the background work.
pub(crate) fn load<E: Engine>(bench: &Bench<E>, keys: u64, updates: u64) -> (E, Rows) {
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

/// Stores values of sizes around those of blocks, and the shortest and longest keys.
pub(crate) fn compare_values_of_all_sizes<E: Engine>(bench: &Bench<E>) {
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

/// Overwrites, deletes and lets values expire. After a full compaction the table has the live rows
/// and nothing dead. Returns the table after the same with all rows deleted.
pub(crate) fn compact_expired<E: Engine>(bench: &Bench<E>) -> E {
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
    let mut tombstones = stats.details.iter().filter(|(name, _)| *name == "tombstones");
    assert!(tombstones.all(|(_, count)| *count == 0));
    for step in 0..1_000_u64 {
        delete(&engine, 9_000 + step, format!("{step:05}").as_bytes());
    }
    engine.maintain(MaintenanceMode::Full).unwrap();
    compare(&engine, &Rows::new());
    engine
}

/// Power loss at every event of a run: checkpointed entries are there.
pub(crate) fn lose_power_at_each_event<E: Engine>(bench: &Bench<E>, rounds: u64) {
    bench.env.record_history();
    let (engine, _) = bench.open();
    let mut marks = Vec::new();
    let mut lsn = 0;
    for round in 0..rounds {
        for number in 0..40_u64 {
            lsn += 1;
            put(&engine, lsn, format!("{number:03}").as_bytes(), &[low(round); 50]);
        }
        engine.checkpoint(Lsn(lsn)).unwrap();
        marks.push((bench.env.history().len(), round));
        background(&engine, lsn);
    }
    drop(engine);
    let history = bench.env.history();
    for (place, event) in history.iter().enumerate() {
        let least = marks.iter().rev().find(|(mark, _)| *mark <= place).map(|(_, round)| *round);
        let policies =
            [Policy::Killed, Policy::AllLost, Policy::AllKept, Policy::Random { seed: 3 }];
        for policy in policies {
            let other = bench.on(bench.env.image_at(event.number, policy));
            let (engine, complete) = other.open();
            let found = engine.get(b"007").unwrap();
            let round = found.as_deref().map(|value| u64::from(value[0]));
            assert!(round >= least, "{event:?} {policy}: {round:?}, persisted {least:?}");
            assert!(complete.0 >= least.map_or(0, |round| (round + 1) * 40));
            let all = engine.ordered().unwrap().range(KeyRange::default()).unwrap();
            let all: Vec<_> = all.map(Result::unwrap).collect();
            assert_eq!(all.len(), if round.is_some() { 40 } else { 0 });
            check(&engine);
        }
    }
}

/// Flips bits of all files of a table. Opening and reading return an error or the right values. The
/// error names the damaged file if `names_file`.
pub(crate) fn flip_bits<E: Engine>(bench: &Bench<E>, names_file: bool) {
    let (engine, _) = bench.open();
    let value = |number: u64| vec![low(number); 100];
    for number in 0..600 {
        put(&engine, number + 1, format!("{number:05}").as_bytes(), &value(number));
    }
    engine.checkpoint(Lsn(1000)).unwrap();
    // A check writes the pages of an index back from its journal.
    check(&engine);
    drop(engine);
    let (mut refused, mut random) = (0, Random(17));
    let files: Vec<_> = bench.env.files().into_iter().map(|(path, _)| path).collect();
    for path in &files {
        let size = to_u64(bench.env.contents(path).unwrap().len());
        for _ in 0..size.min(150) {
            let env = bench.env.kill();
            let offset = random.below(size);
            env.damage(path, &Damage::FlipBit { offset, bit: 3 }).unwrap();
            let mut other = bench.on(env);
            other.complete = 1000;
            let outcome = other.try_open().and_then(|(engine, complete)| {
                if complete < Lsn(1000) {
                    // The catalog has a higher LSN, so the database refuses the table.
                    return Err(Error::corruption(path.clone(), offset, "it is not complete"));
                }
                for number in 0..600 {
                    let found = engine.get(format!("{number:05}").as_bytes())?;
                    assert_eq!(found.as_deref(), Some(&value(number)[..]), "{path} {offset}");
                }
                let all = engine.ordered().unwrap().range(KeyRange::default())?;
                for (number, entry) in (0..).zip(all) {
                    assert_eq!(*entry?.value, value(number)[..]);
                }
                Ok(())
            });
            match outcome {
                Ok(()) => {}
                Err(Error::Corruption { file, .. }) => {
                    let is_named = path.ends_with(file.rsplit('/').next().unwrap());
                    assert!(is_named || !names_file, "{path}: {file}");
                    refused += 1;
                }
                Err(error) => panic!("{path} {offset}: {error}"),
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// Fails the `number`-th call of a checkpoint. Nothing has changed, and the next checkpoint
/// succeeds and is durable. Returns the number of files that the table then has.
pub(crate) fn fail_flush<E: Engine>(bench: &Bench<E>, call: Call, number: u64) -> usize {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..200 {
        let key = format!("{:03}", step % 70).into_bytes();
        put(&engine, step, &key, &[low(step); 30]);
        rows.insert(key, vec![low(step); 30]);
        if step == 100 {
            engine.checkpoint(Lsn(100)).unwrap();
        }
    }
    bench.env.inject(Fault::new(&[call], When::Nth(number), Effect::Io));
    let outcome = engine.checkpoint(Lsn(200));
    bench.env.clear_faults();
    compare(&engine, &rows);
    if outcome.is_err() {
        let (engine, complete) = bench.on(bench.env.crash(Policy::AllKept)).open();
        assert!(complete >= Lsn(100), "{call:?} {number}");
        check(&engine);
    }
    assert_eq!(engine.checkpoint(Lsn(200)).unwrap(), Lsn(200));
    // The result does not depend on data that a failed sync left in the cache.
    let (lost, complete) = bench.on(bench.env.crash(Policy::AllLost)).open();
    assert_eq!(complete, Lsn(200), "{call:?} {number}");
    compare(&lost, &rows);
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(200));
    compare(&engine, &rows);
    bench.env.files().len()
}

/// A checkpoint has no effect that the log can still lose: it syncs the log.
pub(crate) fn sync_log_before_checkpoint<E: Engine>(bench: &Bench<E>) {
    let (context, host) = (bench.context(), Arc::new(FakeHost::default()));
    let context = Context { host: Arc::clone(&host) as Arc<dyn Host>, ..context };
    let (engine, _) = bench.open_in(context).unwrap();
    for round in 1..4 {
        put(&engine, round, b"key", b"value");
        engine.checkpoint(Lsn(round)).unwrap();
        assert_eq!(host.log_syncs.load(Ordering::Relaxed), round);
    }
}

/// Puts `bytes` in entries of about 500 bytes. Counts the steps on.
pub(crate) fn fill(engine: &impl Engine, step: &mut u64, bytes: u64) -> u64 {
    for _ in 0..bytes / 500 {
        *step += 1;
        put(engine, *step, &step.to_be_bytes(), &[1; 450]);
    }
    *step
}

/// Writers are delayed before they stall, and no longer after background work. Returns the table
/// and its last step.
pub(crate) fn delay_writers<E: Engine>(bench: &Bench<E>) -> (E, u64) {
    let (engine, _) = bench.open();
    let mut step = 0;
    fill(&engine, &mut step, 80 << 10);
    assert_eq!(detail(&engine, "write_rate"), 0);
    // Without a flush, the last memtable but one fills.
    fill(&engine, &mut step, 100 << 10);
    assert!(detail(&engine, "write_rate") > 0);
    let lsn = fill(&engine, &mut step, 60 << 10);
    assert!(detail(&engine, "write_delay_micros_total") > 0);
    background(&engine, lsn);
    assert_eq!(detail(&engine, "write_rate"), 0);
    (engine, step)
}

/// Each of these options is refused.
pub(crate) fn refuse_options<E>(bench: &Bench<E>, options: &[(&str, &str)]) {
    for (name, value) in options {
        let options = bench.options.clone().set(*name, *value);
        let outcome = (bench.opener)(&options, bench.context());
        assert!(matches!(outcome, Err(Error::InvalidOption { .. })), "{name}");
    }
}

/// A table takes memory of the budget, and releases it when it is closed.
pub(crate) fn release_memory<E: Engine>(bench: &Bench<E>) {
    let (engine, budget) = bench.open_with_budget();
    let mut random = Random(4);
    for step in 1..3_000 {
        put(&engine, step, &random.below(5_000).to_be_bytes(), &[7; 200]);
    }
    let refused = Op::Put { key: b"never", head: b"", body: &[1; 100] };
    engine.admit(&refused).unwrap();
    engine.cancel(&refused);
    assert!(budget.used() > 0);
    drop(engine);
    assert_eq!(budget.used(), 0);
}

/// The key that [`exceed_budget`] writes in a step.
pub(crate) fn budget_key(step: u64) -> [u8; 8] {
    (step * 7919 % 10_007).to_be_bytes()
}

/// Writes more than the budget and reads among it: writers flush, the block cache takes free memory
/// and releases it, and the budget is never exceeded. A value above the budget is refused.
pub(crate) fn exceed_budget<E: Engine>(bench: &Bench<E>) -> (E, Arc<Budget>) {
    let (engine, budget) = bench.open_with_budget();
    for step in 1..20_000_u64 {
        put(&engine, step, &budget_key(step), &[7; 500]);
        if step % 3 == 0 {
            drop(engine.get(&(step * 104_729 % 10_007).to_be_bytes()).unwrap());
        }
    }
    assert!(detail(&engine, "cache_fills_total") > 0);
    assert!(detail(&engine, "writer_helps_total") > 0);
    assert!(budget.used() <= bench.budget, "{}", budget.used());
    let large =
        Op::Put { key: b"k", head: b"", body: &vec![0; to_usize(bench.budget) + (1 << 20)] };
    assert!(matches!(engine.admit(&large), Err(Error::OutOfMemory { .. })));
    check(&engine);
    (engine, budget)
}
