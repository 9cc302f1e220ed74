//! Power losses at any event of a table in a pool of persistent memory.
//!
//! More runs: `QUINTET_SLM_PMEM_RUNS=200`, about 700 crashes each. Other ones:
//! `QUINTET_SLM_PMEM_SEED=1000`, the seed of the first.

use std::iter;

use super::{
    pool::{MODES, pooled},
    *,
};
use crate::{
    Error,
    contract::Host as _,
    contract::test_bench::{Logged, contents, replay},
    io::sim::SimEnv,
};

/// Returns what a call returned, and `None` if the pool was full.
fn unless_full<T>(outcome: Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(Error::DiskFull { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A run whose every event is a crash.
struct CrashRun {
    bench: Bench,
    log: Vec<Logged>,
    /// After each operation: the number of events, and the operation that the log certainly has.
    marks: Vec<(usize, u64)>,
}

impl CrashRun {
    /// Writes, flushes, merges and reopens by a seed. The pool may be full.
    fn new(seed: u64, bench: Bench, operations: u64) -> Self {
        bench.env.record_history();
        let (mut engine, _) = bench.open();
        let (mut log, mut marks, mut random) = (Vec::new(), Vec::new(), Random(seed));
        let (mut certain, mut syncs) = (0, 0);
        for lsn in 1..=operations {
            let key = format!("{:03}", random.below(150)).into_bytes();
            match random.below(20) {
                0..3 => {
                    delete(&engine, lsn, &key);
                    log.push((lsn, key, None));
                }
                3 => drop(unless_full(engine.checkpoint(Lsn(lsn)))),
                4 => background(&engine, lsn),
                5 if random.below(4) == 0 => {
                    drop(engine);
                    let (opened, complete) = bench.open();
                    replay(&opened, &log, complete);
                    engine = opened;
                }
                6 if random.below(4) == 0 => {
                    _ = unless_full(engine.maintain(MaintenanceMode::Full));
                }
                7 => _ = unless_full(engine.table.flush_all()),
                8 if random.below(2) == 0 => {
                    bench.host.sync_log().unwrap();
                    engine.note_durable(Lsn(lsn));
                }
                _ => {
                    let value = vec![low(lsn); to_usize(20 + random.below(300))];
                    put(&engine, lsn, &key, &value);
                    log.push((lsn, key, Some(value)));
                }
            }
            let now = bench.host.log_syncs.load(Ordering::Relaxed);
            if std::mem::replace(&mut syncs, now) != now {
                certain = lsn;
            }
            marks.push((bench.env.history().len(), certain));
        }
        drop(engine);
        Self { bench, log, marks }
    }

    fn rows(&self, end: u64) -> Rows {
        let mut rows = Rows::new();
        for (_, key, value) in self.log.iter().filter(|(lsn, ..)| *lsn <= end) {
            match value {
                Some(value) => drop(rows.insert(key.clone(), value.clone())),
                None => drop(rows.remove(key)),
            }
        }
        rows
    }

    /// Crashes at one event in `every`. Returns the number of crashes.
    fn crash(&self, every: usize, seed: u64) -> u64 {
        let mut random = Random(seed | 1);
        let history = self.bench.env.history();
        let mut count = 0;
        for (place, event) in history.iter().enumerate().step_by(every) {
            // The event is within the first operation that ended after it.
            let during = self.marks.partition_point(|(mark, _)| *mark <= place);
            let Some((_, after)) = self.marks.get(during) else { break };
            let during = to_u64(during) + 1;
            // A sync within the operation may have been before the event.
            let certain = if *after == during { during - 1 } else { *after };
            for policy in [
                Policy::AllLost,
                Policy::AllKept,
                Policy::Random { seed: random.below(1 << 20) },
                Policy::Random { seed: random.below(1 << 20) },
            ] {
                // The log may have lost the newest operations, although the pool has them.
                let end = certain + random.below(during - certain + 1);
                let what = format!("{policy:?} at {event:?}, in operation {during} of seed {seed}");
                self.recover(self.bench.env.image_at(event.number, policy), end, &what);
                count += 1;
            }
        }
        count
    }

    fn recover(&self, env: SimEnv, end: u64, what: &str) {
        let mut other = self.bench.on(env);
        let (engine, complete) = other.open();
        assert!(complete.0 <= end + 1, "{what}: complete to {complete}, the log ends at {end}");
        let log: Vec<Logged> = self.log.iter().filter(|(lsn, ..)| *lsn <= end).cloned().collect();
        replay(&engine, &log, complete);
        let mut rows = self.rows(end);
        assert_eq!(contents(&engine), rows, "{what}: the log ends at {end}");
        check(&engine);
        // The log continues, and the space from before is swept.
        for lsn in end + 1..end + 40 {
            let key = format!("{:03}", lsn % 150).into_bytes();
            put(&engine, lsn, &key, &[low(lsn); 400]);
            rows.insert(key, vec![low(lsn); 400]);
        }
        engine.table.flush_all().unwrap();
        background(&engine, end + 40);
        let lsn = engine.checkpoint(Lsn(end + 40)).unwrap();
        compare(&engine, &rows);
        drop(engine);
        other.complete = lsn;
        let (engine, complete) = other.after_power_loss().open();
        assert_eq!(complete, lsn);
        assert_eq!(contents(&engine), rows);
        check(&engine);
    }
}

/// Seed of the first run, unless asked otherwise.
const FIRST_SEED: u64 = 61;

/// Returns the number that an environment variable asks for.
fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// Returns the number of crashes of a run for each seed.
fn crash_in(mode: &[(&str, &str)], seeds: ops::Range<u64>) -> u64 {
    let crash = |seed| CrashRun::new(seed, pooled(seed, mode, true), 160).crash(11, seed);
    seeds.map(crash).sum()
}

#[test]
fn every_power_loss_leaves_what_the_log_has() {
    let first = asked("QUINTET_SLM_PMEM_SEED").unwrap_or(FIRST_SEED);
    let seeds = first..first + asked("QUINTET_SLM_PMEM_RUNS").unwrap_or(1);
    for mode in MODES {
        let crashes = crash_in(mode, seeds.clone());
        assert!(crashes > 100, "{crashes}");
        println!("slm in persistent memory, {mode:?}, seeds {seeds:?}: {crashes} crashes");
    }
}

#[test]
fn planted_bugs_of_the_mode_are_found() {
    const SEEDS: ops::Range<u64> = FIRST_SEED..FIRST_SEED + 6;
    let both = || assert!(crash_in(MODES[0], SEEDS) > 0);
    let index = || assert!(crash_in(MODES[1], SEEDS) > 0);
    let memtables = || assert!(crash_in(MODES[2], SEEDS) > 0);
    finds(Bug::SlmIndexBeforeRun, index);
    finds(Bug::SlmPoolForgetsLive, index);
    finds(Bug::SlmPoolMarksUnsynced, index);
    finds(Bug::SlmPoolSkipsUpdateLog, index);
    finds(Bug::SlmFlushesUnsynced, both);
    finds(Bug::SlmPoolForgetsMemtable, memtables);
}

/// An index update that a full pool interrupts. After a crash the pool has even less space until
/// its sweep: an opening leaves the update to the sweep, or to the next flush.
fn updates_without_space() {
    let bench = pooled(81, MODES[0], true);
    let (engine, _) = bench.open();
    background(&engine, 1);
    let (mut log, mut rows) = (Vec::new(), Rows::new());
    let mut write = |engine: &Slm, keys: ops::Range<u64>, lsn: u64| {
        for (lsn, key) in (lsn..).zip(keys) {
            // Long keys: their records take slabs of the pool.
            let (key, value) = (format!("{key:090}").into_bytes(), vec![low(lsn); 10]);
            put(engine, lsn, &key, &value);
            log.push((lsn, key.clone(), Some(value.clone())));
            rows.insert(key, value);
        }
        (log.clone(), rows.clone())
    };
    write(&engine, 0..200, 1);
    engine.table.flush_all().unwrap();
    // The update begins with keys that the index has, and then needs space for others.
    write(&engine, 0..50, 201);
    let (log_before, before) = write(&engine, 200..500, 251);
    // Objects without a link to them take the rest of the pool, but for the list of runs.
    let pool = engine.table.pool.as_ref().unwrap();
    let index = pool.index.as_ref().unwrap();
    let mut fillers: Vec<u64> = iter::from_fn(|| pool.pool.alloc(512).ok()).collect();
    index.assume_space(true);
    while !index.is_interrupted() {
        pool.pool.free(fillers.pop().unwrap()).unwrap();
        assert!(unless_full(engine.table.flush_all()).is_none(), "there was space");
    }
    index.assume_space(false);
    assert_eq!(contents(&engine), before);
    let crashed = bench.on(bench.env.crash(Policy::AllKept));
    // The next flush completes the interrupted update first, and counts from there.
    let (_, after) = write(&engine, 0..500, 601);
    for at in fillers {
        pool.pool.free(at).unwrap();
    }
    engine.table.flush_all().unwrap();
    compare(&engine, &after);
    let (engine, complete) = crashed.open();
    replay(&engine, &log_before, complete);
    assert_eq!(contents(&engine), before);
    background(&engine, 601);
    check(&engine);
    write(&engine, 0..500, 601);
    engine.table.flush_all().unwrap();
    compare(&engine, &after);
}

#[test]
fn an_update_that_a_full_pool_interrupts_is_completed() {
    updates_without_space();
    finds(Bug::SlmPoolOpensSwept, updates_without_space);
    finds(Bug::SlmPoolLeavesInterrupted, updates_without_space);
}
