//! Entries are not lost: during merges, by damage, at power loss, after failures.

use super::*;
use crate::engine::slm::{key_code::KeyBuffer, merge_input::MergeInput, run_builder::RunBuilder};

/// Loads and updates, and compares everything.
fn loads() {
    drop(load(&Bench::new(11), 1_500, 9_000));
}

/// Deletes everything, and checks that it stays deleted.
fn deletes() {
    let (engine, rows) = load(&Bench::new(12), 1_000, 3_000);
    engine.checkpoint(Lsn(10_000)).unwrap();
    for (lsn, key) in (10_001..).zip(rows.keys()) {
        delete(&engine, lsn, key);
    }
    engine.checkpoint(Lsn(20_000)).unwrap();
    compare(&engine, &Rows::new());
}

/// Keys are overwritten and deleted after a merge has copied them and before it updates the index.
fn writes_between() {
    let bench = Bench::new(13);
    let (engine, _) = bench.open();
    let mut rows = Rows::new();
    for step in 1..=600_u64 {
        let key = format!("{:04}", step * 7 % 300).into_bytes();
        put(&engine, step, &key, &[low(step); 90]);
        rows.insert(key, vec![low(step); 90]);
        if step % 200 == 0 {
            engine.checkpoint(Lsn(step)).unwrap();
        }
    }
    let table = &engine.table;
    let runs = table.write_buffer.view.load().version.iter().cloned().collect();
    let flow = table.queues.flow(&*table.context.env).unwrap();
    let mut input = MergeInput::new(runs, 8 << 20, &flow).unwrap();
    let mut came_between = false;
    let mut step = 600;
    table
        .apply_edits(&mut || {
            let edit = table.next_edit(&mut input)?;
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
                table.flush_all()?;
            }
            Ok(edit)
        })
        .unwrap();
    table.take_checkpoint(None).unwrap();
    compare(&engine, &rows);
}

#[test]
fn writes_during_a_merge_win() {
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

/// Flips a bit anywhere in any file: reads return an error or the value that was put.
fn flipped_bits() {
    test_bench::flip_bits(&Bench::new(14), false);
}

#[test]
fn damage_is_an_error() {
    flipped_bits();
}

#[test]
fn skipping_block_checksums_is_found() {
    finds(Bug::TphSkipsBlockChecksum, flipped_bits);
}

fn power_loss() {
    test_bench::lose_power_at_each_event(&Bench::new(15), 6);
}

#[test]
fn checkpointed_entries_survive_power_loss_at_any_event() {
    power_loss();
}

#[test]
fn checkpoints_without_their_syncs_are_found() {
    finds(Bug::TphSkipsPieceSync, power_loss);
    finds(Bug::LsmSyncsUnderWrite, power_loss);
    finds(Bug::SlmSkipsDirSync, power_loss);
    finds(Bug::SlmRemovesRunsEarly, power_loss);
    finds(Bug::SlmCutsWithoutList, power_loss);
    finds(Bug::RedoSkipsSync, power_loss);
}

/// A checkpoint in the middle of a flush has some index updates, and the runs that they point to.
#[test]
fn a_checkpoint_may_be_taken_between_any_two_keys() {
    let bench = Bench::new(16);
    let (engine, _) = bench.open();
    for number in 0..400_u64 {
        put(&engine, number + 1, format!("{number:05}").as_bytes(), b"old");
    }
    engine.checkpoint(Lsn(400)).unwrap();
    for number in 0..400_u64 {
        put(&engine, number + 401, format!("{number:05}").as_bytes(), b"new");
    }
    let table = &engine.table;
    table.write_buffer.rotate_any(&**table).unwrap();
    let frozen = table.write_buffer.view.load().frozen.clone();
    let start = ScanStart::up(None);
    let mut cursor = MemtableCursor::all(vec![Arc::clone(&frozen[0])], &start).remove(0);
    table
        .apply_edits(&mut || {
            let mut builder = RunBuilder::new(table);
            while let Some(key) = cursor.key().filter(|_| builder.updates.len() < 97) {
                let key = key.to_vec();
                let place = builder.add(&key, cursor.value().unwrap(), CacheAdmission::IfFree)?;
                let mut buffer = KeyBuffer::default();
                let coded = table.keys.index_key(&key, &mut buffer).unwrap();
                builder.updates.push((table.hash(&key), coded), Some(place), None);
                cursor.advance()?;
            }
            table.take_checkpoint(None)?;
            if builder.updates.is_empty() { Ok(None) } else { builder.finish().map(Some) }
        })
        .unwrap();
    let env = bench.env.crash(Policy::AllLost);
    let (crashed, complete) = bench.on(env).open();
    assert_eq!(complete, Lsn(400));
    check(&crashed);
    let all = crashed.ordered().unwrap().range(KeyRange::default()).unwrap();
    let values: Vec<Vec<u8>> = all.map(|entry| entry.unwrap().value.to_vec()).collect();
    assert_eq!(values.len(), 400);
    let fresh = values.iter().filter(|value| *value == b"new").count();
    assert!(fresh > 0, "{fresh} of 400 values are newer");
}

#[test]
fn a_failed_flush_changes_nothing_and_the_next_one_succeeds() {
    for call in [Call::Create, Call::Write, Call::Sync, Call::SyncDir, Call::Read] {
        for number in 1..5 {
            test_bench::fail_flush(&Bench::new(17), call, number);
        }
    }
}

#[test]
fn writers_are_delayed_before_they_stall() {
    test_bench::delay_writers(&Bench::new(18));
}

/// A checkpoint has no effect that the log can still lose.
fn the_log_comes_first() {
    test_bench::sync_log_before_checkpoint(&Bench::new(19));
}

#[test]
fn a_checkpoint_syncs_the_log_first() {
    the_log_comes_first();
    finds(Bug::CutSkipsLogSync, the_log_comes_first);
}
