//! Merges that pause for checkpoints, and batched replay.

use super::*;
use crate::lsm::write_buffer::FlushTarget as _;

fn key(number: u64) -> [u8; 8] {
    (number * 7919 % 4_000).to_be_bytes()
}

/// Returns a table with several runs of the same keys, whose host always has a checkpoint due.
fn hurried(bench: &Bench) -> (Slm, BTreeMap<[u8; 8], Vec<u8>>) {
    bench.host.hurries.store(true, Ordering::Relaxed);
    let (engine, _) = bench.open();
    let mut model = BTreeMap::new();
    for number in 0..6_000_u64 {
        let value = number.to_le_bytes().repeat(10);
        put(&engine, number + 1, &key(number), &value);
        model.insert(key(number), value);
        if number % 1_000 == 999 {
            engine.checkpoint(Lsn(number + 2)).unwrap();
        }
    }
    (engine, model)
}

fn assert_holds(engine: &Slm, model: &BTreeMap<[u8; 8], Vec<u8>>) {
    for (key, value) in model {
        assert_eq!(engine.get(key).unwrap().as_deref(), Some(&**value));
    }
    assert_eq!(engine.ordered().unwrap().range(KeyRange::default()).unwrap().count(), model.len());
}

fn is_paused(engine: &Slm) -> bool {
    lock(&engine.table.compacting).is_some()
}

#[test]
fn a_merge_pauses_for_a_checkpoint_and_continues() {
    let bench = Bench::new(50);
    let (engine, mut model) = hurried(&bench);
    let (mut pauses, mut lsn) = (0, 6_001);
    for _ in 0..200 {
        if engine.pending_work() != PendingWork::Maintain {
            break;
        }
        engine.maintain(MaintenanceMode::Step).unwrap();
        pauses += u64::from(is_paused(&engine));
        // A write and a checkpoint happen during the pause.
        let number = lsn - 1;
        put(&engine, lsn, &key(number), b"later");
        model.insert(key(number), b"later".to_vec());
        lsn += 1;
        engine.checkpoint(Lsn(lsn)).unwrap();
        // A crash during the pause loses nothing.
        let mut crashed = bench.on(bench.env.crash(Policy::AllLost));
        crashed.complete = Lsn(lsn);
        assert_holds(&crashed.open().0, &model);
    }
    assert!(pauses > 3, "{pauses}");
    assert!(!is_paused(&engine));
    assert_holds(&engine, &model);
    check(&engine);
}

#[test]
fn a_paused_merge_is_dropped_for_memory_and_for_a_full_compaction() {
    let (engine, model) = hurried(&Bench::new(51));
    let pause = || {
        assert_eq!(engine.pending_work(), PendingWork::Maintain);
        engine.maintain(MaintenanceMode::Step).unwrap();
        assert!(is_paused(&engine));
    };
    pause();
    let reserved = engine.table.context.budget.transient_bytes();
    engine.table.await_work();
    assert!(!is_paused(&engine) && engine.table.context.budget.transient_bytes() < reserved);
    assert_holds(&engine, &model);
    pause();
    engine.table.compact_all().unwrap();
    assert!(!is_paused(&engine));
    assert_holds(&engine, &model);
    check(&engine);
}

#[test]
fn batched_replay_equals_single_replay() {
    let bench = Bench::new(52);
    let (engine, _) = bench.open();
    let mut model = BTreeMap::new();
    let values: Vec<Vec<u8>> = (0..6_000_u64).map(|n| n.to_le_bytes().repeat(10)).collect();
    let keys: Vec<[u8; 8]> = (0..6_000).map(key).collect();
    let mut ops = Vec::new();
    for (number, (key, value)) in keys.iter().zip(&values).enumerate() {
        let lsn = Lsn(to_u64(number) + 1);
        if number % 10 == 9 {
            ops.push((lsn, Op::Delete { key }));
            model.remove(key);
        } else {
            ops.push((lsn, Op::Put { key, head: b"", body: value }));
            model.insert(*key, value.clone());
        }
    }
    for some in ops.chunks(37) {
        engine.replay(some).unwrap();
    }
    // One memtable cannot hold them all.
    assert!(detail(&engine, "memtables") > 3);
    assert_holds(&engine, &model);
    engine.checkpoint(Lsn(6_001)).unwrap();
    assert_holds(&engine, &model);
    check(&engine);
    let mut crashed = bench.on(bench.env.crash(Policy::AllLost));
    crashed.complete = Lsn(6_001);
    assert_holds(&crashed.open().0, &model);
}
