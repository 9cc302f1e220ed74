//! Tables in a pool of persistent memory: both halves, and each alone.

use super::*;
use crate::{
    Error,
    contract::test_bench::{Logged, contents, replay},
    io::sim::{Damage, SimEnv},
};

/// The modes: what is in the pool.
pub(super) const MODES: [&[(&str, &str)]; 3] =
    [&[("medium", "pmem")], &[("index", "pmem")], &[("memtable", "pmem")]];

/// A bench of a table with these options and a small pool. In persistent memory, or emulated.
pub(super) fn pooled(seed: u64, mode: &[(&str, &str)], is_persistent: bool) -> Bench {
    let mut bench = Bench::new(seed).set("pmem_bytes", "1048576");
    for (name, value) in mode {
        bench = bench.set(name, value);
    }
    if is_persistent {
        bench.env = SimEnv::with_persistent_memory(seed);
    }
    bench
}

#[test]
fn each_mode_agrees_with_a_map() {
    for (seed, mode) in (40..).zip(MODES) {
        for is_persistent in [false, true] {
            let bench = pooled(seed, mode, is_persistent).set("pmem_bytes", "4194304");
            let engine = run(&bench, seed, 4_000, 1_000);
            assert!(detail(&engine, "flushes_total") > 0);
            assert_eq!(detail(&engine, "pmem_emulated"), u64::from(!is_persistent));
            let bench = pooled(seed + 10, mode, is_persistent).set("pmem_bytes", "4194304");
            run(&bench, seed + 10, 2_000, 20);
        }
    }
}

#[test]
fn checkpointed_entries_survive_power_loss_at_any_event() {
    // Memtables in a pool lose what is not below the LSN of the checkpoint; this test replays no
    // log. `every_power_loss_leaves_what_the_log_has` does.
    test_bench::lose_power_at_each_event(&pooled(50, MODES[1], true), 3);
}

#[test]
fn the_death_of_the_process_loses_nothing_in_an_emulated_pool() {
    for mode in MODES {
        let bench = pooled(70, mode, false);
        bench.env.record_history();
        let (engine, _) = bench.open();
        let (mut log, mut marks) = (Vec::new(), Vec::new());
        for lsn in 1..400_u64 {
            let key = format!("{:03}", lsn * 7 % 150).into_bytes();
            put(&engine, lsn, &key, &[low(lsn); 200]);
            log.push((lsn, key, Some(vec![low(lsn); 200])));
            if lsn % 60 == 0 {
                engine.checkpoint(Lsn(lsn)).unwrap();
            } else if lsn % 25 == 0 {
                engine.table.flush_all().unwrap();
            }
            marks.push(bench.env.history().len());
        }
        drop(engine);
        for (place, event) in bench.env.history().iter().enumerate().step_by(3) {
            // The log has at most the operation under way.
            let end = to_u64(marks.partition_point(|mark| *mark <= place)) + 1;
            let other = bench.on(bench.env.image_at(event.number, Policy::Killed));
            let (engine, complete) = other.open();
            let log: Vec<Logged> = log.iter().filter(|(lsn, ..)| *lsn <= end).cloned().collect();
            replay(&engine, &log, complete);
            let rows: Rows = log.into_iter().map(|(_, key, value)| (key, value.unwrap())).collect();
            assert_eq!(contents(&engine), rows, "{event:?}");
            check(&engine);
        }
    }
}

/// What is written after the last checkpoint is in the pool, and an opening takes it back: the log
/// may lack it.
fn entries_past_the_log() {
    for is_persistent in [false, true] {
        let bench = pooled(71, MODES[0], is_persistent);
        let (engine, _) = bench.open();
        put(&engine, 1, b"old", b"first");
        put(&engine, 2, b"gone", b"first");
        assert_eq!(engine.checkpoint(Lsn(3)).unwrap(), Lsn(3));
        put(&engine, 3, b"old", b"second");
        put(&engine, 4, b"old", b"third");
        put(&engine, 5, b"new", b"first");
        delete(&engine, 6, b"gone");
        drop(engine);
        let (engine, complete) = bench.open();
        assert_eq!(complete, Lsn(3));
        let first = |key: &[u8]| (key.to_vec(), b"first".to_vec());
        assert_eq!(contents(&engine), Rows::from([first(b"gone"), first(b"old")]));
        // Other operations may get these numbers.
        put(&engine, 3, b"new", b"other");
        assert_eq!(engine.get(b"new").unwrap().as_deref(), Some(&b"other"[..]));
        check(&engine);
    }
}

#[test]
fn opening_removes_what_the_log_may_lack() {
    entries_past_the_log();
    finds(Bug::PersistentListKeepsLater, entries_past_the_log);
}

/// A second opening removes what the first one would have removed, although the log has operations
/// with these LSNs by then.
fn entries_past_the_log_of_before() {
    for is_persistent in [false, true] {
        let bench = pooled(79, MODES[0], is_persistent);
        let (engine, _) = bench.open();
        put(&engine, 1, b"old", b"first");
        assert_eq!(engine.checkpoint(Lsn(2)).unwrap(), Lsn(2));
        put(&engine, 2, b"old", b"lost");
        put(&engine, 3, b"new", b"lost");
        drop(engine);
        let (engine, complete) = bench.open();
        assert_eq!(complete, Lsn(2));
        (2..10).for_each(|lsn| put(&engine, lsn, b"other", b"value"));
        assert_eq!(engine.note_durable(Lsn(10)), Some(Lsn(10)));
        assert!(engine.table.write_buffer.has_unread(), "writes read no old memtable");
        drop(engine);
        let (engine, complete) = bench.open();
        assert_eq!(complete, Lsn(10));
        let rows = [(&b"old"[..], &b"first"[..]), (b"other", b"value")];
        let rows = rows.map(|(key, value)| (key.to_vec(), value.to_vec()));
        assert_eq!(contents(&engine), Rows::from(rows));
        check(&engine);
    }
}

#[test]
fn what_the_log_lacked_stays_removed() {
    entries_past_the_log_of_before();
    finds(Bug::SlmPoolForgetsEnds, entries_past_the_log_of_before);
}

/// Leaves a pool with several memtables, and returns its rows.
fn fill_memtables(bench: &Bench) -> Rows {
    let (engine, _) = bench.open();
    let (mut rows, mut lsn) = (Rows::new(), 0_u64);
    while detail(&engine, "memtables") < 4 {
        lsn += 1;
        let key = lsn.to_be_bytes().to_vec();
        put(&engine, lsn, &key, &[low(lsn); 900]);
        rows.insert(key, vec![low(lsn); 900]);
    }
    assert_eq!(engine.note_durable(Lsn(lsn + 1)), Some(Lsn(lsn + 1)));
    rows
}

/// An opening reads no memtable. The background reads one a step, and a read all that are left.
#[test]
fn memtables_are_read_in_steps_or_by_the_first_reader() {
    let bench = pooled(80, MODES[0], false).set("memtables", "8");
    let rows = fill_memtables(&bench);
    for steps in 0..6 {
        let (engine, complete) = bench.on(bench.env.kill()).open();
        let has_unread = || engine.table.write_buffer.has_unread();
        put(&engine, complete.0, b"key", b"value");
        for step in 0..steps {
            assert_eq!(has_unread(), step < 4, "{steps}");
            engine.maintain(MaintenanceMode::Step).unwrap();
        }
        assert_eq!(engine.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(!has_unread());
        let mut rows = rows.clone();
        rows.insert(b"key".to_vec(), b"value".to_vec());
        compare(&engine, &rows);
        check(&engine);
    }
}

/// Readers and flushes beside writers find all entries, whoever reads the memtables.
#[test]
fn threads_read_and_flush_memtables_of_before() {
    let bench = pooled(81, MODES[0], false).set("memtables", "8");
    let rows = fill_memtables(&bench);
    let (engine, complete) = bench.on(bench.env.kill()).open();
    std::thread::scope(|scope| {
        scope.spawn(|| engine.table.flush_all().unwrap());
        scope.spawn(|| (0..4).for_each(|_| engine.maintain(MaintenanceMode::Step).unwrap()));
        for _ in 0..2 {
            scope.spawn(|| {
                for (key, value) in &rows {
                    assert_eq!(engine.get(key).unwrap().as_deref(), Some(&value[..]));
                }
            });
        }
        (0..200).for_each(|number| put(&engine, complete.0 + number, b"key", b"value"));
    });
    let mut rows = rows.clone();
    rows.insert(b"key".to_vec(), b"value".to_vec());
    compare(&engine, &rows);
    check(&engine);
}

/// Memtables that no process has stayed to read do not become ever more.
#[test]
fn processes_that_end_at_once_leave_few_memtables() {
    let bench = pooled(82, MODES[0], false).set("memtables", "2").set("pmem_bytes", "16777216");
    for lsn in 1..100_u64 {
        let (engine, _) = bench.open();
        put(&engine, lsn, &lsn.to_be_bytes(), b"value");
        assert_eq!(engine.note_durable(Lsn(lsn + 1)), Some(Lsn(lsn + 1)));
        let write_buffer = &engine.table.write_buffer;
        let listed = engine.table.memtable_pool().unwrap().memtables.as_ref().unwrap().lists();
        assert!(listed.unwrap().len() <= write_buffer.frozen_max() + 2, "opening {lsn}");
    }
    let (engine, _) = bench.open();
    assert_eq!(contents(&engine).len(), 99);
    assert_eq!(detail(&engine, "pmem_fallbacks_total"), 0);
}

/// A checkpoint with memtables in the pool writes one word and flushes nothing.
#[test]
fn a_checkpoint_flushes_nothing() {
    let bench = pooled(72, MODES[0], false);
    let (engine, _) = bench.open();
    for lsn in 1..100 {
        put(&engine, lsn, b"key", b"value");
        assert_eq!(engine.checkpoint(Lsn(lsn)).unwrap(), Lsn(lsn));
    }
    assert_eq!(detail(&engine, "flushes_total"), 0);
    assert_eq!(detail(&engine, "pmem_complete"), 99);
    assert_eq!(detail(&engine, "pmem_unmarked_bytes"), 0);
    assert_eq!(engine.pending_work(), PendingWork::None);
}

/// After a sync of the log the table is complete, without a checkpoint.
#[test]
fn a_sync_of_the_log_leaves_nothing_to_replay() {
    let bench = pooled(77, MODES[0], false);
    let (engine, _) = bench.open();
    (1..100).for_each(|lsn| put(&engine, lsn, &lsn.to_be_bytes(), b"value"));
    assert_eq!(engine.note_durable(Lsn(100)), Some(Lsn(100)));
    assert_eq!(detail(&engine, "pmem_complete"), 100);
    assert_eq!(engine.note_durable(Lsn(50)), Some(Lsn(100)), "it never falls");
    for lsn in 100..1000 {
        put(&engine, lsn, &lsn.to_be_bytes(), b"value");
    }
    assert_eq!(engine.note_durable(Lsn(1000)), Some(Lsn(1000)));
    assert_eq!(engine.pending_work(), PendingWork::Checkpoint);
    drop(engine);
    assert_eq!(bench.open().1, Lsn(1000));
}

/// A full pool: memtables go to ordinary memory, and the table is complete to what it has flushed.
/// `mark` tells the table that everything below an LSN is applied and in the log.
fn full_pool(mark: fn(&Slm, Lsn)) {
    let bench = pooled(73, MODES[2], true).set("pmem_bytes", "262144");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    let (mut lsn, mut log) = (0_u64, Vec::new());
    while detail(&engine, "pmem_fallbacks_total") < 3 {
        lsn += 1;
        let key = lsn.to_be_bytes().to_vec();
        put(&engine, lsn, &key, &[low(lsn); 900]);
        rows.insert(key.clone(), vec![low(lsn); 900]);
        log.push((lsn, key, Some(vec![low(lsn); 900])));
    }
    mark(&engine, Lsn(lsn));
    compare(&engine, &rows);
    drop(engine);
    let other = bench.after_power_loss();
    let (engine, complete) = other.open();
    replay(&engine, &log, complete);
    compare(&engine, &rows);
}

#[test]
fn a_full_pool_loses_nothing() {
    let checkpoint: fn() =
        || full_pool(|engine, lsn| assert_eq!(engine.checkpoint(lsn).unwrap(), lsn));
    let sync: fn() = || full_pool(|engine, lsn| assert!(engine.note_durable(lsn).is_some()));
    checkpoint();
    sync();
    finds(Bug::SlmPoolClaimsTooMuch, checkpoint);
    finds(Bug::SlmPoolClaimsTooMuch, sync);
}

#[test]
fn an_index_that_does_not_fit_its_pool_is_reported() {
    let bench = pooled(74, MODES[1], false).set("pmem_bytes", "262144");
    let (engine, _) = bench.open();
    let mut lsn = 0_u64;
    let error = loop {
        lsn += 1;
        put(&engine, lsn, &lsn.to_be_bytes(), b"value");
        if lsn.is_multiple_of(200)
            && let Err(error) = engine.checkpoint(Lsn(lsn))
        {
            break error;
        }
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(error.to_string().contains("pmem_bytes"), "{error}");
    // Nothing is lost.
    for number in 1..=lsn {
        assert!(engine.get(&number.to_be_bytes()).unwrap().is_some());
    }
    check(&engine);
}

#[test]
fn a_pool_that_is_gone_or_damaged_or_of_another_table_is_refused() {
    let refusal = |bench: &Bench| match bench.try_open() {
        Err(Error::Corruption { file, what, .. }) => (file, what),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the pool was accepted"),
    };
    for is_persistent in [false, true] {
        let mut bench = pooled(75, MODES[0], is_persistent);
        let (engine, _) = bench.open();
        put(&engine, 1, b"key", b"value");
        bench.complete = engine.checkpoint(Lsn(2)).unwrap();
        // A power loss is the end of an emulated pool that is in use, and of no other.
        // On another disk the bench keeps what the catalog says.
        let lost = bench.after_power_loss();
        if is_persistent {
            drop(lost.open());
        } else {
            assert!(refusal(&lost).1.contains("emulated"));
        }
        drop(engine);
        let closed = bench.after_power_loss();
        let (engine, complete) = closed.open();
        assert_eq!(complete, Lsn(2));
        assert_eq!(engine.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        drop(engine);
        let other = closed.clone_with(|context| context.table_id = 4);
        assert!(matches!(other, Err(Error::Corruption { .. })));
        closed.dir().remove("pool").unwrap();
        assert!(refusal(&closed).1.contains("missing"));
    }
}

impl Bench {
    /// Opens the table with a context that `change` has changed.
    fn clone_with(&self, change: impl FnOnce(&mut Context)) -> Result<Slm> {
        let mut context = self.context();
        change(&mut context);
        self.open_in(context).map(|(engine, _)| engine)
    }
}

#[test]
fn a_read_only_table_reads_its_pool_and_writes_nothing() {
    for mode in MODES {
        let bench = pooled(76, mode, false);
        let (engine, _) = bench.open();
        for lsn in 1..300_u64 {
            put(&engine, lsn, format!("{:03}", lsn % 100).as_bytes(), &[low(lsn); 90]);
        }
        engine.checkpoint(Lsn(300)).unwrap();
        let rows = contents(&engine);
        drop(engine);
        let files = |env: &SimEnv| {
            let files = env.files().into_iter();
            files.map(|(path, _)| env.contents(&path).unwrap()).collect::<Vec<_>>()
        };
        let before = files(&bench.env);
        let reader = bench.clone_with(|context| context.read_only = true).unwrap();
        assert_eq!(contents(&reader), rows);
        check(&reader);
        drop(reader);
        assert!(files(&bench.env) == before, "a reader has changed a file");
    }
}

/// After a crash, space from before is used again when the sweep has found what is reachable.
fn sweep_of_a_pool() {
    let bench = pooled(77, MODES[0], true).set("pmem_bytes", "524288");
    let (mut rows, mut lsn) = (Rows::new(), 0);
    let mut env = bench.env.clone();
    for round in 0..12_u64 {
        let (engine, _) = bench.on(env.clone()).open();
        assert_eq!(contents(&engine), rows);
        while detail(&engine, "pmem_swept") == 0 {
            engine.maintain(MaintenanceMode::Step).unwrap();
        }
        for number in 0..200_u64 {
            lsn += 1;
            let key = format!("{:04}", (round * 50 + number) % 500).into_bytes();
            put(&engine, lsn, &key, &[low(lsn); 100]);
            rows.insert(key, vec![low(lsn); 100]);
        }
        engine.table.flush_all().unwrap();
        engine.checkpoint(Lsn(lsn)).unwrap();
        compare(&engine, &rows);
        assert_eq!(detail(&engine, "pmem_fallbacks_total"), 0, "round {round}");
        env = bench.on(env).env.crash(Policy::AllLost);
        drop(engine);
    }
}

#[test]
fn a_sweep_frees_what_is_unreachable_and_nothing_else() {
    sweep_of_a_pool();
    finds(Bug::PmemSweepFreesReachable, sweep_of_a_pool);
    finds(Bug::PmemSweepsNothing, sweep_of_a_pool);
}

/// Words of a pool are changed: opening and reading return an error or right values, and end.
#[test]
fn damage_of_a_pool_is_an_error_or_harmless() {
    let bench = pooled(78, MODES[0], false);
    let (engine, _) = bench.open();
    for lsn in 1..600_u64 {
        put(&engine, lsn, format!("{:03}", lsn % 300).as_bytes(), &[7; 60]);
        if lsn == 400 {
            engine.table.flush_all().unwrap();
        }
    }
    engine.checkpoint(Lsn(600)).unwrap();
    let used = detail(&engine, "pmem_used_bytes");
    drop(engine);
    let (mut random, mut refused) = (Random(5), 0);
    for _ in 0..400 {
        let env = bench.env.kill();
        let pool = env.files().into_iter().find(|(path, _)| path.ends_with("pool")).unwrap().0;
        let offset = random.below(used + 8192);
        env.damage(&pool, &Damage::FlipBit { offset, bit: low(random.below(8)) }).unwrap();
        let mut other = bench.on(env);
        other.complete = Lsn(600);
        let outcome = other.try_open().and_then(|(engine, _)| {
            for number in 0..300 {
                let found = engine.get(format!("{number:03}").as_bytes())?;
                assert!(found.is_none_or(|found| *found == [7; 60]), "{offset}");
            }
            let all = engine.ordered().unwrap().range(KeyRange::default())?;
            all.collect::<Result<Vec<_>>>()?;
            while detail(&engine, "pmem_swept") == 0 {
                engine.maintain(MaintenanceMode::Step)?;
            }
            let findings = test_bench::findings(&engine);
            put(&engine, 601, b"new", b"value");
            engine.table.flush_all()?;
            if findings.is_empty() {
                Ok(())
            } else {
                Err(Error::corruption("found", 0, "by check"))
            }
        });
        match outcome {
            Ok(()) => {}
            Err(Error::Corruption { .. } | Error::DiskFull { .. } | Error::NewerFormat { .. }) => {
                refused += 1;
            }
            Err(error) => panic!("{offset}: {error}"),
        }
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn a_pool_may_be_in_another_directory() {
    let bench = pooled(79, MODES[0], true).set("pmem_path", "/pools");
    let pools = || {
        let files = bench.env.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.rsplit('.').next() == Some("pool")).collect::<Vec<_>>()
    };
    let dropped = bench.clone_with(|context| context.table_id = 9).unwrap();
    put(&dropped, 1, b"key", b"value");
    assert_eq!(pools().len(), 1);
    drop(dropped);
    let (engine, _) = bench.open();
    put(&engine, 1, b"key", b"value");
    assert_eq!(engine.checkpoint(Lsn(2)).unwrap(), Lsn(2));
    // The directory of table 9 does not exist, so its pool is not needed.
    let pools = pools();
    assert!(matches!(&pools[..], [path] if path.ends_with("-3.pool")), "{pools:?}");
    // A copy of the database would use the same pool.
    assert!(matches!(bench.try_open(), Err(Error::Io { .. })));
    drop(engine);
    let (engine, complete) = bench.open();
    assert_eq!(complete, Lsn(2));
    assert_eq!(engine.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
