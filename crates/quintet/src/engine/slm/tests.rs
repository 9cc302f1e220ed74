//! The engine alone against a plain map, with memtables and runs so small that every path is
//! taken.

mod coded;
mod kept;
mod ordered;
mod parts;
mod paused;
mod reads;
mod settled;
mod shown;

use std::{collections::BTreeMap, ops};

use super::{select, *};
use crate::{
    disk::sim::{Call, Damage, Effect, Fault, Policy, SimEnv, When},
    engine::{
        EngineKind, Host,
        desk::Desk,
        lsm::walk::{MemCursor, Start, Walk as _},
    },
    index::key_code::Buffer,
    pages::blocks::Room,
    seeded::{Bug, finds},
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
            // So small that blocks come and go.
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
            ..Arc::new(Desk::default()).context(&self.env, self.budget)
        }
    }

    fn try_open(&self) -> Result<(Slm, Lsn)> {
        Slm::open(&self.options, self.context())
    }

    fn open(&self) -> (Slm, Lsn) {
        self.try_open().unwrap()
    }

    /// The same on another disk.
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

/// What the background does when it is asked.
fn background(engine: &Slm, lsn: u64) {
    for _ in 0..200 {
        match engine.due() {
            Due::Persist => drop(engine.persist(Lsn(lsn)).unwrap()),
            Due::Compact => engine.compact().unwrap(),
            Due::Nothing | Due::Later => return,
        }
    }
    panic!("the background does not come to an end: {:?}", engine.stats());
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

/// Conditions of writes, asked of keys in runs: without a value, with one, with one that may
/// expire.
fn conditions() {
    let bench = Bench::new(33).set("cache_bytes", "0");
    let (engine, _) = bench.open();
    for number in 0..2_000_u64 {
        let value = if number % 4 == 0 { "expires later" } else { "stays" };
        put(&engine, number, &number.to_be_bytes(), value.as_bytes());
    }
    let ask = |number: u64| engine.presence(&number.to_be_bytes()).unwrap();
    // What is in memory says itself.
    assert_eq!(ask(1), Presence::InValue);
    engine.persist(Lsn(2_000)).unwrap();
    for _ in 0..2 {
        let before = detail(&engine, "reads_total");
        for number in 0..2_000 {
            let kept = if number % 4 == 0 { Presence::InValue } else { Presence::Present };
            assert_eq!(ask(number), kept, "{number}");
        }
        assert!((2_000..3_000).all(|number| ask(number) == Presence::Absent));
        assert_eq!(detail(&engine, "reads_total"), before, "runs were read");
        // A merge keeps what was known.
        engine.compact().unwrap();
    }
}

#[test]
fn the_index_says_what_is_there_without_reading_runs() {
    conditions();
    finds(Bug::SlmTakesAllForLasting, conditions);
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare(engine: &Slm, rows: &Rows) {
    for (key, value) in rows {
        let found = engine.get(key).unwrap();
        assert_eq!(found.as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    engine.multi_get(&keys, &mut found).unwrap();
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
    let all = || engine.range(KeyRange::default()).unwrap().unwrap();
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

/// A range from both ends at once.
fn compare_range(engine: &Slm, rows: &Rows, random: &mut Random) {
    let mut bound = || format!("key-{}", random.below(1200)).into_bytes();
    let (start, end) = (bound(), bound());
    let inside = |key: &Vec<u8>| *key >= start && *key < end;
    let mut expected: std::collections::VecDeque<_> =
        rows.keys().filter(|key| inside(key)).cloned().collect();
    let range = KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
    let mut found = engine.range(range).unwrap().unwrap();
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
    crate::codec::low_u8(number)
}

/// Random operations with persists, compactions and reopenings among them.
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
            985..992 => assert_eq!(engine.persist(Lsn(step)).unwrap(), Lsn(step)),
            992..994 => engine.compact().unwrap(),
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

/// Loads in random order and updates, with the background at work.
fn load(bench: &Bench, keys: u64, updates: u64) -> (Slm, Rows) {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    let mut random = Random(99);
    for step in 1..=updates {
        let key = format!("{:08}", random.below(keys)).into_bytes();
        let value = vec![low(step); to_usize(60 + random.below(60))];
        put(&engine, step, &key, &value);
        rows.insert(key, value);
        if engine.due() != Due::Nothing {
            background(&engine, step);
        }
    }
    compare(&engine, &rows);
    (engine, rows)
}

/// A table of runs that have so many keys each, from all over the same range, so few that neither
/// leaves nor small runs make candidates.
pub(super) fn of_runs(seed: u64, counts: &[u64]) -> Slm {
    let bench = Bench::new(seed).set("leaf_threshold", "10").set("merge_runs", "64");
    let (engine, _) = bench.open();
    add_runs(&engine, counts, 0..1_000_000);
    engine
}

/// Adds runs of so many keys each, from all over a range.
fn add_runs(engine: &Slm, counts: &[u64], keys: ops::Range<u64>) {
    for count in counts {
        let version = Arc::clone(&engine.inner.front.view.load().version);
        let (first, number): (u64, usize) =
            (version.iter().map(|run| run.entries()).sum(), version.len());
        for place in 0..*count {
            let key = keys.start + (keys.end - keys.start) * place / count;
            let key = (key * 100 + to_u64(number)).to_be_bytes();
            put(engine, first + place + 1, &key, b"value");
        }
        engine.persist(Lsn(first + count)).unwrap();
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
    // What `compare` has read was enough.
    assert!(detail(&engine, "merges_for_ranges_total") > 0);
    compare(&engine, &rows);
}

#[test]
fn small_runs_do_not_pile_up() {
    let bench = Bench::new(6);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..200_u64 {
        let key = format!("{step:05}").into_bytes();
        put(&engine, step, &key, b"value");
        rows.insert(key, b"value".to_vec());
        engine.persist(Lsn(step)).unwrap();
        background(&engine, step);
    }
    assert!(detail(&engine, "runs") <= 12, "{}", detail(&engine, "runs"));
    assert!(detail(&engine, "merges_for_small_total") > 3);
    compare(&engine, &rows);
}

#[test]
fn a_get_reads_once_and_an_absent_key_never() {
    let (engine, rows) = load(&Bench::new(7).set("cache_bytes", "0"), 6_000, 9_000);
    engine.persist(Lsn(1 << 20)).unwrap();
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
fn what_was_read_is_not_read_again() {
    let (engine, rows) = load(&Bench::new(8).set("cache_bytes", "4194304"), 6_000, 9_000);
    engine.persist(Lsn(1 << 20)).unwrap();
    background(&engine, 1 << 20);
    let all = || {
        let before = detail(&engine, "reads_total");
        for (key, value) in &rows {
            assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        let keys: Vec<&[u8]> = rows.keys().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        engine.multi_get(&keys, &mut found).unwrap();
        assert!(found.iter().flatten().map(|value| &**value).eq(rows.values()));
        detail(&engine, "reads_total") - before
    };
    all();
    assert_eq!(all(), 0);
    assert!(detail(&engine, "cache_bytes") > 0);
    compare(&engine, &rows);
}

#[test]
fn compacting_leaves_nothing_dead_or_expired() {
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
            engine.persist(Lsn(step)).unwrap();
        }
    }
    engine.compact().unwrap();
    rows.retain(|_, value| value != b"expired");
    compare(&engine, &rows);
    let stats = engine.stats();
    assert_eq!((stats.keys, stats.dead_bytes), (to_u64(rows.len()), 0));
    assert_eq!(detail(&engine, "entries"), to_u64(rows.len()));
    for step in 0..1_000_u64 {
        delete(&engine, 9_000 + step, format!("{step:05}").as_bytes());
    }
    engine.compact().unwrap();
    compare(&engine, &Rows::new());
    assert_eq!(detail(&engine, "runs"), 0);
    assert!(bench.env.files().iter().all(|(path, _)| path.rsplit('.').next() != Some("run")));
}

#[test]
fn a_value_of_every_size_comes_back() {
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
    engine.persist(Lsn(100)).unwrap();
    compare(&engine, &rows);
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(100));
    compare(&engine, &rows);
}

/// Loads and updates, and compares everything.
fn loads() {
    drop(load(&Bench::new(11), 1_500, 9_000));
}

/// Everything is deleted again, and stays so.
fn deletes() {
    let (engine, rows) = load(&Bench::new(12), 1_000, 3_000);
    engine.persist(Lsn(10_000)).unwrap();
    for (lsn, key) in (10_001..).zip(rows.keys()) {
        delete(&engine, lsn, key);
    }
    engine.persist(Lsn(20_000)).unwrap();
    compare(&engine, &Rows::new());
}

/// Keys are overwritten and deleted between the copying of a merge and the entering of its copies.
fn writes_between() {
    let bench = Bench::new(13);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=600_u64 {
        let key = format!("{:04}", step * 7 % 300).into_bytes();
        put(&engine, step, &key, &[low(step); 90]);
        rows.insert(key, vec![low(step); 90]);
        if step % 200 == 0 {
            engine.persist(Lsn(step)).unwrap();
        }
    }
    let inner = &engine.inner;
    let runs = inner.front.view.load().version.iter().cloned().collect();
    let flow = inner.queues.flow(&*inner.context.env).unwrap();
    let mut sources = compact::Sources::new(runs, &flow).unwrap();
    let mut came_between = false;
    let mut step = 600;
    inner
        .enter_all(&mut || {
            let batch = inner.next_batch(&mut sources)?;
            if !std::mem::replace(&mut came_between, true) {
                for number in 0..300_u64 {
                    step += 1;
                    let key = format!("{number:04}").into_bytes();
                    if number % 5 == 0 {
                        delete(&engine, step, &key);
                        rows.remove(&key);
                    } else if number % 2 == 0 {
                        put(&engine, step, &key, b"newer");
                        rows.insert(key, b"newer".to_vec());
                    }
                }
                inner.flush_all()?;
            }
            Ok(batch)
        })
        .unwrap();
    inner.cut(None).unwrap();
    compare(&engine, &rows);
}

#[test]
fn what_is_written_while_a_merge_copies_wins() {
    writes_between();
}

#[test]
fn merges_that_lose_or_mix_up_entries_are_found() {
    finds(Bug::SlmMovesUnconditionally, writes_between);
    finds(Bug::SlmCopiesAnyEntry, loads);
    finds(Bug::SlmMiscountsLive, loads);
    finds(Bug::SlmForgetsDeletes, deletes);
    finds(Bug::SlmRangeShowsBoth, loads);
}

/// A flipped bit anywhere in any file: an error or what was put.
fn flipped_bytes() {
    let bench = Bench::new(14);
    let (engine, _) = bench.open();
    let value = |number: u64| vec![low(number); 100];
    for number in 0..600 {
        put(&engine, number + 1, format!("{number:05}").as_bytes(), &value(number));
    }
    engine.persist(Lsn(1000)).unwrap();
    // Brings the pages of the index in place.
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
            let other = Bench { complete: 1000, ..bench.on(env) };
            let outcome = other.try_open().and_then(|(engine, complete)| {
                if complete < Lsn(1000) {
                    // The catalog knows better: the database refuses the table.
                    return Err(Error::corruption(path.clone(), offset, "it is not complete"));
                }
                for number in 0..600 {
                    let found = engine.get(format!("{number:05}").as_bytes())?;
                    assert_eq!(found.as_deref(), Some(&value(number)[..]), "{path} {offset}");
                }
                let all = engine.range(KeyRange::default())?.unwrap();
                for (number, entry) in (0..).zip(all) {
                    assert_eq!(*entry?.value, value(number)[..]);
                }
                Ok(())
            });
            match outcome {
                Ok(()) => {}
                Err(Error::Corruption { .. }) => refused += 1,
                Err(error) => panic!("{path} {offset}: {error}"),
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn damage_is_an_error() {
    flipped_bytes();
}

#[test]
fn skipping_block_checksums_is_found() {
    finds(Bug::TphSkipsBlockChecksum, flipped_bytes);
}

/// Power loss at every event of a run: what was persisted is there.
fn power_loss() {
    let bench = Bench::new(15);
    bench.env.record_history();
    let (engine, _) = bench.open();
    let mut marks = Vec::new();
    let mut lsn = 0;
    for round in 0..6_u64 {
        for number in 0..40_u64 {
            lsn += 1;
            put(&engine, lsn, format!("{number:03}").as_bytes(), &[low(round); 50]);
        }
        engine.persist(Lsn(lsn)).unwrap();
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
            let all = engine.range(KeyRange::default()).unwrap().unwrap();
            let all: Vec<_> = all.map(Result::unwrap).collect();
            assert_eq!(all.len(), if round.is_some() { 40 } else { 0 });
            check(&engine);
        }
    }
}

#[test]
fn what_was_persisted_survives_power_loss_at_any_event() {
    power_loss();
}

#[test]
fn cuts_without_their_syncs_are_found() {
    finds(Bug::TphSkipsPieceSync, power_loss);
    finds(Bug::LsmSyncsUnderWrite, power_loss);
    finds(Bug::SlmSkipsDirSync, power_loss);
    finds(Bug::SlmRemovesRunsEarly, power_loss);
    finds(Bug::SlmCutsWithoutList, power_loss);
    finds(Bug::RedoSkipsSync, power_loss);
}

/// A cut in the middle of a flush: half of the places, and the runs that they lead to.
#[test]
fn a_cut_may_be_taken_between_any_two_keys() {
    let bench = Bench::new(16);
    let (engine, _) = bench.open();
    for number in 0..400_u64 {
        put(&engine, number + 1, format!("{number:05}").as_bytes(), b"old");
    }
    engine.persist(Lsn(400)).unwrap();
    for number in 0..400_u64 {
        put(&engine, number + 401, format!("{number:05}").as_bytes(), b"new");
    }
    let inner = &engine.inner;
    inner.front.rotate_any(&**inner).unwrap();
    let frozen = inner.front.view.load().frozen.clone();
    let start = Start::up(None);
    let mut cursor = MemCursor::all(vec![Arc::clone(&frozen[0])], &start).remove(0);
    inner
        .enter_all(&mut || {
            let mut draft = flush::Draft::new(inner);
            while let Some(key) = cursor.key().filter(|_| draft.moves.len() < 97) {
                let key = key.to_vec();
                let place = draft.add(&key, cursor.value().unwrap(), Room::Spare)?;
                let mut buffer = Buffer::default();
                let key = inner.keys.index_key(&key, &mut buffer).unwrap();
                draft.moves.push(key, Some(place), None);
                cursor.advance()?;
            }
            inner.cut(None)?;
            if draft.moves.is_empty() { Ok(None) } else { draft.finish().map(Some) }
        })
        .unwrap();
    let env = bench.env.crash(Policy::AllLost);
    let (crashed, complete) = bench.on(env).open();
    assert_eq!(complete, Lsn(400));
    check(&crashed);
    let all = crashed.range(KeyRange::default()).unwrap().unwrap();
    let values: Vec<Vec<u8>> = all.map(|entry| entry.unwrap().value.to_vec()).collect();
    assert_eq!(values.len(), 400);
    let fresh = values.iter().filter(|value| *value == b"new").count();
    assert!(fresh > 0, "{fresh} of 400 places are newer");
}

#[test]
fn a_flush_that_fails_changes_nothing_and_the_next_one_goes_through() {
    for call in [Call::Create, Call::Write, Call::Sync, Call::SyncDir, Call::Read] {
        for number in 1..5 {
            let bench = Bench::new(17);
            let (engine, _) = bench.open();
            let mut rows = Rows::new();
            for step in 1..200 {
                let key = format!("{:03}", step % 70).into_bytes();
                put(&engine, step, &key, &[low(step); 30]);
                rows.insert(key, vec![low(step); 30]);
                if step == 100 {
                    engine.persist(Lsn(100)).unwrap();
                }
            }
            bench.env.inject(Fault::new(&[call], When::Nth(number), Effect::Io));
            let outcome = engine.persist(Lsn(200));
            bench.env.clear_faults();
            compare(&engine, &rows);
            if outcome.is_err() {
                let (engine, complete) = bench.on(bench.env.crash(Policy::AllKept)).open();
                assert!(complete >= Lsn(100), "{call:?} {number}");
                check(&engine);
            }
            assert_eq!(engine.persist(Lsn(200)).unwrap(), Lsn(200));
            // What was promised does not hang on what a failed sync left in the cache.
            let (lost, complete) = bench.on(bench.env.crash(Policy::AllLost)).open();
            assert_eq!(complete, Lsn(200), "{call:?} {number}");
            compare(&lost, &rows);
            drop(engine);
            let (engine, complete) = bench.open();
            assert_eq!(complete, Lsn(200));
            compare(&engine, &rows);
        }
    }
}

#[test]
fn writers_are_delayed_before_they_have_to_stop() {
    let bench = Bench::new(18);
    let (engine, _) = bench.open();
    let mut step = 0;
    let mut fill = |engine: &Slm, bytes: u64| {
        for _ in 0..bytes / 500 {
            step += 1;
            put(engine, step, &step.to_be_bytes(), &[1; 450]);
        }
        step
    };
    fill(&engine, 80 << 10);
    assert_eq!(detail(&engine, "write_rate"), 0);
    // Nobody flushes: the last memtable but one fills.
    fill(&engine, 100 << 10);
    assert!(detail(&engine, "write_rate") > 0);
    let lsn = fill(&engine, 60 << 10);
    assert!(detail(&engine, "write_delay_micros_total") > 0);
    background(&engine, lsn);
    assert_eq!(detail(&engine, "write_rate"), 0);
}

/// Nothing is published that the log can still lose.
fn the_log_comes_first() {
    let bench = Bench::new(19);
    let (context, host) = (bench.context(), Arc::new(Desk::default()));
    let context = Context { host: Arc::clone(&host) as Arc<dyn Host>, ..context };
    let (engine, _) = Slm::open(&bench.options, context).unwrap();
    for round in 1..4 {
        put(&engine, round, b"key", b"value");
        engine.persist(Lsn(round)).unwrap();
        assert_eq!(host.log_syncs.load(Ordering::Relaxed), round);
    }
}

#[test]
fn a_cut_syncs_the_log_first() {
    the_log_comes_first();
    finds(Bug::CutSkipsLogSync, the_log_comes_first);
}

#[test]
fn options_are_checked_and_memory_is_given_back() {
    let bench = Bench::new(20);
    for (name, value) in
        [("live_ratio", "101"), ("merge_runs", "1"), ("page_bytes", "5"), ("x", "1")]
    {
        let options = bench.options.clone().set(name, value);
        let outcome = Slm::open(&options, bench.context());
        assert!(matches!(outcome, Err(Error::InvalidOption { .. })), "{name}");
    }
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (engine, _) = Slm::open(&bench.options, context).unwrap();
    let mut random = Random(4);
    for step in 1..3_000 {
        put(&engine, step, &random.below(5_000).to_be_bytes(), &[7; 200]);
    }
    let refused = Op::Put { key: b"never", head: b"", body: &[1; 100] };
    engine.admit(&refused).unwrap();
    engine.retract(&refused);
    assert!(budget.used() > 0);
    drop(engine);
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_the_journal_has_of_an_index_larger_than_its_cache_is_placed_and_then_there_is_rest() {
    let bench = Bench::new(31);
    let (engine, _) = bench.open();
    let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_be_bytes();
    for round in 0..2 {
        for number in 0..20_000 {
            put(&engine, round * 20_000 + number + 1, &key(number), &round.to_be_bytes());
        }
        engine.persist(Lsn(round * 20_000 + 20_001)).unwrap();
    }
    drop(engine);
    let bench = bench.set("index_cache_bytes", "65536");
    let (engine, lsn) = bench.open();
    assert!(engine.inner.paged.is_overlay_in_the_way());
    background(&engine, lsn.0);
    assert!(!engine.inner.paged.tree.cache().is_overlaid());
    for number in 0..20_000 {
        assert_eq!(engine.get(&key(number)).unwrap().unwrap(), 1_u64.to_be_bytes());
    }
}

#[test]
fn a_budget_that_is_too_small_flushes_and_never_overflows() {
    let mut bench = Bench::new(21).set("cache_bytes", "1048576");
    bench.budget = 6 << 20;
    let context = bench.context();
    let budget = Arc::clone(&context.budget);
    let (engine, _) = Slm::open(&bench.options, context).unwrap();
    for step in 1..20_000_u64 {
        put(&engine, step, &(step * 7919 % 10_007).to_be_bytes(), &[7; 500]);
        if step % 3 == 0 {
            // The cache takes what is free, and gives it back.
            drop(engine.get(&(step * 104_729 % 10_007).to_be_bytes()).unwrap());
        }
    }
    assert!(detail(&engine, "cache_fills_total") > 0);
    assert!(detail(&engine, "writer_helps_total") > 0);
    assert!(budget.used() <= 6 << 20, "{}", budget.used());
    let large = Op::Put { key: b"k", head: b"", body: &vec![0; 7 << 20] };
    assert!(matches!(engine.admit(&large), Err(Error::OutOfMemory { .. })));
    check(&engine);
}

#[test]
fn blocks_take_the_memory_that_the_index_leaves_and_give_it_back() {
    let env = SimEnv::new(23);
    let context = Arc::new(Desk::default()).context(&env, 8 << 20);
    let budget = Arc::clone(&context.budget);
    let options = TableOptions::new(EngineKind::Slm).set("page_bytes", "4096");
    let (engine, _) = Slm::open(&options, context).unwrap();
    let mut step = 0;
    let mut fill = |keys: ops::Range<u64>, key_bytes: usize, value_bytes: usize| {
        let key = |number: u64| format!("{number:0key_bytes$}").into_bytes();
        for number in keys.clone() {
            step += 1;
            put(&engine, step, &key(number), &vec![low(number); value_bytes]);
        }
        engine.persist(Lsn(step)).unwrap();
        for number in keys {
            assert_eq!(engine.get(&key(number)).unwrap().unwrap(), vec![low(number); value_bytes]);
        }
        assert!(budget.used() <= 8 << 20, "{}", budget.used());
        detail(&engine, "cache_bytes")
    };
    let alone = fill(0..12_000, 10, 500);
    assert!(alone > 4 << 20, "more than three eighths of memory: {alone}");
    let beside = fill(1_000_000..1_060_000, 60, 10);
    assert!(beside <= 3 << 20, "three eighths: {beside}");
    check(&engine);
}

#[test]
fn a_merge_ends_and_its_runs_follow_one_another() {
    let (engine, rows) = load(&Bench::new(22), 1 << 40, 6_000);
    engine.compact().unwrap();
    let view = engine.inner.front.view.load_full();
    let mut runs: Vec<_> = view.version.iter().collect();
    runs.sort_by(|one, other| one.low.cmp(&other.low));
    assert!(runs.len() > 5);
    assert!(runs.windows(2).all(|pair| pair[0].high < pair[1].low));
    let bounds = |run: &runs::Run| (run.low.clone(), run.high.clone());
    let (one, other) = (bounds(runs[0]), bounds(runs[1]));
    assert_eq!(select::overlap((&one.0, &one.1), (&other.0, &other.1)), 0);
    compare(&engine, &rows);
}

/// Bytes written for each byte that a user writes, by what they are for.
#[test]
#[ignore = "prints figures: run it with --nocapture"]
fn bytes_written_for_each_user_byte() {
    for (name, keys, value, memtable) in
        [("100 bytes", 400_000, 100, 4 << 20), ("1000 bytes", 100_000, 1000, 8 << 20)]
    {
        let memtable: u64 = memtable;
        let env = SimEnv::new(1);
        let options = TableOptions::new(EngineKind::Slm)
            .set("memtable_bytes", memtable.to_string())
            .set("run_bytes", (memtable / 2).to_string());
        let context = Arc::new(Desk::default()).context(&env, 256 << 20);
        let (engine, _) = Slm::open(&options, context).unwrap();
        let (mut random, mut user, mut since, count) = (Random(7), 0, 0, keys * 2);
        for step in 1..=count {
            let key = format!("{:020}", random.below(keys));
            put(&engine, step, key.as_bytes(), &vec![low(step); value]);
            user += to_u64(key.len() + value);
            since += to_u64(key.len() + value);
            if since > 2 * memtable {
                // As the database does for its recovery budget.
                since = 0;
                engine.persist(Lsn(step)).unwrap();
            }
            if engine.due() == Due::Compact {
                background(&engine, step);
            }
        }
        engine.persist(Lsn(count)).unwrap();
        background(&engine, count);
        let stats = engine.stats();
        let share = |bytes: u64| bytes * 100 / user;
        let index = detail(&engine, "index_written_bytes_total");
        println!(
            "{name}: written {} % of what users wrote, index {} %; runs {}, merges {}, cuts {}, \
             dead {} %; index {} bytes a key in pages",
            share(stats.written_bytes_total),
            share(index),
            detail(&engine, "runs"),
            detail(&engine, "merges_total"),
            detail(&engine, "cuts_total"),
            stats.dead_bytes * 100 / (stats.live_bytes + stats.dead_bytes),
            stats.index_bytes / stats.keys.max(1),
        );
    }
}
