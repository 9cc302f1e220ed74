//! Damage, power loss and failed writes.

use super::*;
use crate::{
    Error,
    contract::Host,
    io::sim::{Call, Damage, Effect, Fault, Policy, When},
    util::mutant::{Bug, finds},
};

/// Flips bits of SSTs and manifests. A read returns an error or the right value.
fn flipped_bytes() {
    let bench = Bench::new(7, "sorted");
    let (engine, _) = bench.open();
    let value = |number: u64| vec![low(number); 100];
    for number in 0..600 {
        put(&engine, number + 1, format!("{number:05}").as_bytes(), &value(number));
    }
    engine.checkpoint(Lsn(1000)).unwrap();
    drop(engine);
    let (mut refused, mut random) = (0, Random(17));
    let files: Vec<_> = bench.env.files().into_iter().map(|(path, _)| path).collect();
    for path in &files {
        let size = to_u64(bench.env.contents(path).unwrap().len());
        for _ in 0..150 {
            let env = bench.env.kill();
            let offset = random.below(size);
            env.damage(path, &Damage::FlipBit { offset, bit: 3 }).unwrap();
            let mut other = bench.on(env);
            other.complete = 1000;
            let outcome = other.try_open().and_then(|(engine, _)| {
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
                    assert!(path.ends_with(file.rsplit('/').next().unwrap()), "{path}: {file}");
                    refused += 1;
                }
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

fn power_loss() {
    test_bench::lose_power_at_each_event(&Bench::new(8, "sorted"), 5);
}

#[test]
fn checkpoints_survive_power_loss_at_any_event() {
    power_loss();
}

#[test]
fn publishing_without_its_syncs_is_found() {
    finds(Bug::TphSkipsPieceSync, power_loss);
    finds(Bug::LsmSyncsUnderWrite, power_loss);
    finds(Bug::TphSkipsManifestSync, power_loss);
    finds(Bug::TphNamesPiecesLate, power_loss);
    finds(Bug::TphSkipsDirSync, power_loss);
    finds(Bug::TphRemovesPiecesEarly, power_loss);
    finds(Bug::TphSkipsEditSync, power_loss);
}

fn failing_flushes() {
    for call in [Call::Create, Call::Write, Call::Sync, Call::SyncDir, Call::Rename] {
        for number in 1..4 {
            let bench = Bench::new(13, "sorted");
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
            let strays = bench.env.files().len();
            assert!(strays <= 4, "{call:?} {number}: {strays} files");
        }
    }
}

#[test]
fn a_failed_flush_changes_nothing_and_the_next_one_succeeds() {
    failing_flushes();
}

#[test]
fn trusting_a_failed_edit_is_found() {
    finds(Bug::TphTrustsFailedEdit, failing_flushes);
}

#[test]
fn a_long_manifest_is_replaced() {
    let bench = Bench::new(17, "sorted");
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..200_u64 {
        let key = format!("{:03}", step % 40).into_bytes();
        put(&engine, step, &key, &[low(step); 30]);
        rows.insert(key, vec![low(step); 30]);
        engine.checkpoint(Lsn(step)).unwrap();
        background(&engine, step);
    }
    let manifests: Vec<_> = bench.env.files().into_iter().map(|(path, _)| path).collect();
    let manifests: Vec<_> = manifests.iter().filter(|path| path.contains("manifest")).collect();
    assert_eq!(manifests.len(), 1);
    assert!(bench.env.contents(manifests[0]).unwrap().len() < 8 << 10);
    assert!(!manifests[0].ends_with("manifest-00000001"));
    drop(engine);
    compare(&bench.open().0, &rows);
}

/// Publishes only effects that are durable in the log.
fn checkpoints_sync_the_log() {
    let bench = Bench::new(16, "sorted");
    let (context, host) = (bench.context(), Arc::new(FakeHost::default()));
    let context = Context { host: Arc::clone(&host) as Arc<dyn Host>, ..context };
    let (engine, _) = Tph::open(&bench.options, context).unwrap();
    for round in 1..4 {
        put(&engine, round, b"key", b"value");
        engine.checkpoint(Lsn(round)).unwrap();
        assert_eq!(host.log_syncs.load(Ordering::Relaxed), round);
    }
}

#[test]
fn publishing_syncs_the_log_first() {
    checkpoints_sync_the_log();
}

#[test]
fn skipping_the_sync_of_the_log_is_found() {
    finds(Bug::TphSkipsLogSync, checkpoints_sync_the_log);
}
