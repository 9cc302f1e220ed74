//! Tests of the engine alone. Memtables, SSTs and tables are so small that every path runs.

mod agreement;
mod durability;
mod levels;
mod memory;
mod queues;
mod rates;
mod reads;
mod two_tiers;

use std::sync::Arc;

use super::{Tph, store::TphStore, table::TphTable};
use crate::{
    contract::{
        Engine, EngineKind, MultiGetSink, Op, TableOptions,
        test_bench::{self, Mix, Rows, background, check, compare, delete, detail, low, put},
    },
    io::Env,
    util::{
        codec::{Lsn, to_u64},
        sync::lock,
    },
};

/// The modes, with one tier of hashes and with two.
const MODES: [&str; 8] = [
    "sorted",
    "hash_range",
    "one_level",
    "single_tier",
    "sorted two",
    "hash_range two",
    "one_level two",
    "single_tier two",
];

type Bench = test_bench::Bench<Tph>;

impl Bench {
    /// Creates a bench. The mode may be followed by the tiers.
    fn new(seed: u64, mode: &str) -> Self {
        let (mode, tiers) = mode.split_once(' ').unwrap_or((mode, "one"));
        let options = TableOptions::new(EngineKind::Tph)
            .set("mode", mode)
            .set("tiers", tiers)
            .set("memtable_bytes", "65536")
            .set("table_bytes", "65536")
            .set("level_bytes", "131072")
            .set("level0_tables", "2")
            .set("fanout", "2")
            .set("max_pieces", "3")
            .set("block_bytes", "1024")
            // Small, so that the cache evicts blocks.
            .set("cache_bytes", "131072");
        Self::with(seed, options, |options, context, hash_mask| {
            let (store, complete) = TphStore::open(options, context, hash_mask)?;
            Ok((Tph { store: Arc::new(store) }, complete))
        })
    }
}

fn run(bench: &Bench, seed: u64, steps: u64, keys: u64) -> Tph {
    test_bench::run(bench, &Mix::LSM, seed, (steps, keys)).0
}

/// Loads enough for several levels, splits and garbage collection. Returns the rows.
fn load(mode: &str, cache: &str, keys: u64, updates: u64) -> (Tph, Rows) {
    test_bench::load(&Bench::new(3, mode).set("cache_bytes", cache), keys, updates)
}
