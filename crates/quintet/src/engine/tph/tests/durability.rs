//! Damage, power loss and failed writes.

use super::*;
use crate::{
    io::sim::Call,
    util::mutant::{Bug, finds},
};

/// Flips bits of SSTs and manifests. A read returns an error or the right value.
fn flipped_bits() {
    test_bench::flip_bits(&Bench::new(7, "sorted"), true);
}

/// The same with two tiers.
fn flipped_bits_of_two_tiers() {
    test_bench::flip_bits(&Bench::new(7, "sorted two"), true);
}

#[test]
fn damage_is_an_error() {
    flipped_bits();
    flipped_bits_of_two_tiers();
}

#[test]
fn skipping_checksums_of_the_key_order_is_found() {
    finds(Bug::TphSkipsOrderChecksum, flipped_bits_of_two_tiers);
}

#[test]
fn skipping_block_checksums_is_found() {
    finds(Bug::TphSkipsBlockChecksum, flipped_bits);
}

fn power_loss() {
    test_bench::lose_power_at_each_event(&Bench::new(8, "sorted"), 5);
}

#[test]
fn checkpoints_survive_power_loss_at_any_event() {
    power_loss();
    test_bench::lose_power_at_each_event(&Bench::new(8, "sorted two"), 5);
    test_bench::lose_power_at_each_event(&Bench::new(8, "one_level two"), 5);
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
    for mode in ["sorted", "sorted two"] {
        for call in [Call::Create, Call::Write, Call::Sync, Call::SyncDir, Call::Rename] {
            for number in 1..4 {
                let files = test_bench::fail_flush(&Bench::new(13, mode), call, number);
                assert!(files <= 4, "{mode} {call:?} {number}: {files} files");
            }
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
    test_bench::sync_log_before_checkpoint(&Bench::new(16, "sorted"));
}

#[test]
fn publishing_syncs_the_log_first() {
    checkpoints_sync_the_log();
}

#[test]
fn skipping_the_sync_of_the_log_is_found() {
    finds(Bug::TphSkipsLogSync, checkpoints_sync_the_log);
}
