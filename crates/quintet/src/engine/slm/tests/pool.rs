//! Tables in a pool of persistent memory: both halves, and each alone.

use super::*;
use crate::{
    contract::test_bench::{Logged, commit, contents, replay},
    io::sim::SimEnv,
};

/// The modes: what is in the pool.
const MODES: [&[(&str, &str)]; 3] =
    [&[("medium", "pmem")], &[("index", "pmem")], &[("memtable", "pmem")]];

/// A bench of a table with these options and a small pool. In persistent memory, or emulated.
fn pooled(seed: u64, mode: &[(&str, &str)], is_persistent: bool) -> Bench {
    let mut bench = Bench::new(seed).set("pmem_bytes", "4194304");
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
            let bench = pooled(seed, mode, is_persistent);
            let engine = run(&bench, seed, 6_000, 1_000);
            assert!(detail(&engine, "flushes_total") > 0);
            assert_eq!(detail(&engine, "pmem_emulated"), u64::from(!is_persistent));
            run(&pooled(seed + 10, mode, is_persistent), seed + 10, 3_000, 20);
        }
    }
}
