//! Tests that several engines run.

use super::{Bench, Random, Rows, background, check, compare, delete, detail, low, put};
use crate::{
    Error,
    contract::{Engine, KeyRange, MaintenanceMode, MemoryWait, Op, TRANSIENT_WAIT_MAX},
    io::{
        Env as _,
        sim::{Call, Damage, Effect, Fault, Policy, When},
    },
    util::{
        codec::{Lsn, to_u64, to_usize},
        sync::Ordering,
    },
};

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
            other.complete = Lsn(1000);
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
    let (engine, _) = bench.open();
    for round in 1..4 {
        put(&engine, round, b"key", b"value");
        engine.checkpoint(Lsn(round)).unwrap();
        assert_eq!(bench.host.log_syncs.load(Ordering::Relaxed), round);
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

/// A table takes memory of the budget, and releases it when it is closed.
pub(crate) fn release_memory<E: Engine>(bench: &Bench<E>) {
    let ((engine, _), budget) = (bench.open(), &bench.budget);
    let mut random = Random(4);
    for step in 1..3_000 {
        put(&engine, step, &random.below(5_000).to_be_bytes(), &[7; 200]);
    }
    let refused = Op::Put { key: b"never", head: b"", body: &[1; 100] };
    engine.admit(&refused, &MemoryWait::default()).unwrap();
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
pub(crate) fn exceed_budget<E: Engine>(bench: &Bench<E>) -> E {
    let ((engine, _), budget) = (bench.open(), &bench.budget);
    for step in 1..20_000_u64 {
        put(&engine, step, &budget_key(step), &[7; 500]);
        if step % 3 == 0 {
            drop(engine.get(&(step * 104_729 % 10_007).to_be_bytes()).unwrap());
        }
    }
    assert!(detail(&engine, "cache_fills_total") > 0);
    assert!(detail(&engine, "writer_helps_total") > 0);
    assert!(budget.used() <= budget.limit(), "{}", budget.used());
    let large =
        Op::Put { key: b"k", head: b"", body: &vec![0; to_usize(budget.limit()) + (1 << 20)] };
    assert!(matches!(engine.admit(&large, &MemoryWait::default()), Err(Error::OutOfMemory { .. })));
    check(&engine);
    engine
}

/// Number of failed calls on a full disk that a test allows: a few for each attempt.
const FAILED_CALLS_MAX: u64 = 200;

/// On a full disk, operations that the log already has are applied without a failing write each,
/// until the memory exceeds the budget by far. When there is space again, all go to files.
pub(crate) fn apply_logged_on_a_full_disk<E: Engine>(bench: &Bench<E>) {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    let key = |number: u64| number.to_be_bytes().to_vec();
    for number in 0..5_000 {
        put(&engine, number + 1, &key(number), &[7; 200]);
        rows.insert(key(number), vec![7; 200]);
    }
    let calls = [Call::Allocate, Call::Write];
    bench.env.inject(Fault::new(&calls, When::From(1), Effect::NoSpace));
    let before = bench.env.faults_fired();
    let refused = (5_000..100_000).find_map(|number| {
        let (key, value) = (key(number), vec![8; 200]);
        let op = Op::Put { key: &key, head: b"", body: &value };
        if let Err(error) = engine.make_room(&op) {
            return Some((number, error));
        }
        engine.apply(Lsn(number + 1), &op).unwrap();
        rows.insert(key, value);
        None
    });
    let failed = bench.env.faults_fired() - before;
    let Some((end, error)) = refused else { panic!("memory without bound") };
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(failed < FAILED_CALLS_MAX, "{failed} failed calls for {end} operations");
    let beyond = bench.budget.used() - bench.budget.limit();
    assert!((7 << 20..12 << 20).contains(&beyond), "{beyond} bytes beyond the budget");
    bench.env.clear_faults();
    engine.checkpoint(Lsn(end + 1)).unwrap();
    compare(&engine, &rows);
}

/// Deletes and logged operations go on if other tables hold more memory than the budget has.
pub(crate) fn change_without_memory<E: Engine>(bench: &Bench<E>) {
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for number in 0..500_u64 {
        put(&engine, number + 1, &number.to_be_bytes(), &[7; 100]);
    }
    bench.budget.reserve_unchecked(bench.budget.limit() + (32 << 20));
    for number in 0..500_u64 {
        let key = number.to_be_bytes();
        let op = if number % 2 == 0 {
            let op = Op::Delete { key: &key };
            engine.admit(&op, &MemoryWait::default()).unwrap();
            op
        } else {
            rows.insert(key.to_vec(), vec![8; 100]);
            let op = Op::Put { key: &key, head: b"", body: &[8; 100] };
            engine.make_room(&op).unwrap();
            op
        };
        engine.apply(Lsn(501 + number), &op).unwrap();
    }
    bench.budget.release(bench.budget.limit() + (32 << 20));
    engine.checkpoint(Lsn(1_001)).unwrap();
    compare(&engine, &rows);
}

/// On a full disk, deletes are admitted without a failing write each.
pub(crate) fn delete_on_a_full_disk<E: Engine>(bench: &Bench<E>) {
    let (engine, _) = bench.open();
    let key = |number: u64| number.to_be_bytes().to_vec();
    for number in 0..20_000 {
        put(&engine, number + 1, &key(number), &[7; 100]);
    }
    bench.env.inject(Fault::new(&[Call::Allocate, Call::Write], When::From(1), Effect::NoSpace));
    let before = bench.env.faults_fired();
    for number in 0..20_000 {
        delete(&engine, 20_001 + number, &key(number));
    }
    let failed = bench.env.faults_fired() - before;
    assert!((1..FAILED_CALLS_MAX).contains(&failed), "{failed} failed calls");
    bench.env.clear_faults();
    engine.checkpoint(Lsn(40_001)).unwrap();
    compare(&engine, &Rows::new());
}

/// The operations of a commit wait for memory together no longer than a commit may, if running work
/// keeps it.
pub(crate) fn wait_together<E: Engine>(bench: &Bench<E>) {
    let (engine, _) = bench.open();
    let _held = bench.budget.reserve_transient(bench.budget.limit());
    let (wait, began) = (MemoryWait::default(), bench.env.monotonic());
    let mut refused = 0;
    for number in 0..16_u64 {
        let (key, body) = (number.to_be_bytes(), vec![7; to_usize(bench.budget.limit() / 16)]);
        let op = Op::Put { key: &key, head: b"", body: &body };
        match engine.admit(&op, &wait) {
            Ok(()) => engine.cancel(&op),
            Err(Error::OutOfMemory { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let waited = bench.env.monotonic().saturating_sub(began);
    assert!(refused > 1, "{refused} operations found no memory");
    assert!(waited >= TRANSIENT_WAIT_MAX, "{waited:?}");
    assert!(waited < TRANSIENT_WAIT_MAX * 2, "{waited:?}");
}
