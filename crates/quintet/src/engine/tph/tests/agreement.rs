//! The engine agrees with a map, in every mode.

use super::*;
use crate::util::mutant::{Bug, finds};

#[test]
fn agrees_with_a_map_in_every_mode() {
    for (seed, mode) in (1..).zip(MODES) {
        let engine = run(&Bench::new(seed, mode), seed, 3_000, 1_000);
        assert!(detail(&engine, "flushes_total") > 0 || detail(&engine, "pieces") > 0, "{mode}");
    }
}

#[test]
fn agrees_with_a_map_packed_and_with_few_keys() {
    for mode in ["sorted", "sorted two"] {
        for compression in ["lz4", "zstd"] {
            let mut bench = Bench::new(9, mode);
            bench.options = bench.options.set("compression", compression);
            run(&bench, 5, 3_000, 1_000);
        }
    }
    run(&Bench::new(10, "one_level"), 6, 6_000, 20);
    run(&Bench::new(10, "one_level two"), 6, 6_000, 20);
}

#[test]
fn agrees_with_a_map_where_many_keys_share_a_hash() {
    for mode in MODES {
        let bench = Bench::new(11, mode).with_hash_mask(0xff00);
        run(&bench, 7, 2_500, 1_000);
    }
}

#[test]
fn replayed_keys_that_share_a_hash_are_read_back() {
    for mode in MODES {
        let (engine, _) = Bench::new(13, mode).with_hash_mask(0xff00).open();
        let keys: Vec<[u8; 8]> = (0..1_000_u64).map(u64::to_be_bytes).collect();
        let op = |key| Op::Put { key, head: b"", body: key };
        let ops: Vec<_> = (1..).map(Lsn).zip(keys.iter().map(|key| op(&key[..]))).collect();
        engine.replay(&ops).unwrap();
        let rows = keys.iter().map(|key| (key.to_vec(), key.to_vec())).collect();
        compare(&engine, &rows);
    }
}

#[test]
fn values_of_every_size_are_read_back() {
    test_bench::compare_values_of_all_sizes(&Bench::new(5, "sorted"));
    test_bench::compare_values_of_all_sizes(&Bench::new(5, "sorted two"));
}

/// Deletes keys whose puts are in older SSTs and deeper levels, and puts them again.
fn tombstones() {
    for mode in MODES {
        let bench = Bench::new(6, mode);
        let (engine, _) = bench.open();
        let mut lsn = 0;
        for round in 0..12_u64 {
            for number in 0..400_u64 {
                lsn += 1;
                let key = format!("{number:05}");
                if (number + round) % 3 == 0 {
                    delete(&engine, lsn, key.as_bytes());
                } else {
                    put(&engine, lsn, key.as_bytes(), format!("{round}").as_bytes());
                }
            }
            engine.checkpoint(Lsn(lsn)).unwrap();
            background(&engine, lsn);
            for number in 0..400_u64 {
                let found = engine.get(format!("{number:05}").as_bytes()).unwrap();
                assert_eq!(found.is_none(), (number + round) % 3 == 0, "{mode} {number} {round}");
            }
        }
        check(&engine);
    }
}

#[test]
fn a_deleted_key_stays_deleted() {
    tombstones();
}

#[test]
fn a_filter_without_tombstones_is_found() {
    finds(Bug::TphFilterForgetsTombstones, || {
        run(&Bench::new(20, "sorted"), 9, 4_000, 500);
    });
}

/// Loads and compares everything in the default mode.
fn loads() {
    drop(load("sorted", "131072", 3_000, 9_000));
}

#[test]
fn merges_that_lose_or_miscount_are_found() {
    finds(Bug::TphDropsLivePiece, loads);
    finds(Bug::TphMiscountsLive, loads);
    finds(Bug::TphMergePassesKeys, loads);
}

#[test]
fn a_range_that_stops_early_is_found() {
    finds(Bug::TphRangeStopsEarly, loads);
}

#[test]
fn another_block_in_a_frame_is_found() {
    finds(Bug::BlockKeepsIdentity, loads);
}

#[test]
fn dropping_tombstones_early_is_found() {
    finds(Bug::TphDropsTombstonesEarly, tombstones);
}

fn shared_hashes() {
    let bench = Bench::new(12, "sorted").with_hash_mask(0xff00);
    run(&bench, 8, 3_000, 500);
}

#[test]
fn forgetting_collisions_is_found() {
    finds(Bug::TphForgetsCollisions, shared_hashes);
}
