//! Crash enumeration: a power loss or the death of the process at any event of any workload, with
//! any subset of the un-synced changes.
//!
//! After each the database must open, hold a prefix of the commits with every acknowledged one in
//! it, check sound, and accept writes.
//!
//! | variable | meaning |
//! |---|---|
//! | `QUINTET_CRASH_STATES` | number of distinct states to verify |
//! | `QUINTET_CRASH_SEED` | seed of all random choices |
//! | `QUINTET_CRASH_THREADS` | threads |
//! | `QUINTET_CRASH_BUG` | the one planted bug to find, instead of the whole list |
//!
//! A failure prints the command that repeats it.

#![expect(clippy::unwrap_used, reason = "a test: what should not fail may panic")]

/// The engines that workloads use, table by table.
const ENGINES: &[quintet::EngineKind] = quintet::EngineKind::AVAILABLE;

mod driver;
#[path = "../common/modes.rs"]
mod modes;
mod oracle;
#[expect(dead_code, reason = "shared with tests that use all of it")]
#[path = "../common/random.rs"]
mod random;
mod runner;
mod seeded;
mod workload;

use std::{fmt::Debug, str::FromStr};

use crate::driver::{Case, Plan, enumerate, repeat};

fn setting<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn every_crash_leaves_a_prefix_with_all_acknowledged_commits() {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let plan = Plan {
        states: setting("QUINTET_CRASH_STATES", 50_000),
        seed: setting("QUINTET_CRASH_SEED", 1),
        threads: setting("QUINTET_CRASH_THREADS", threads),
        failures: 3,
        bug: None,
    };
    match enumerate(plan) {
        Ok(totals) => println!("crash enumeration: {totals}"),
        Err(failures) => {
            for failure in &failures {
                println!("{failure}");
            }
            panic!("{} crash states failed, seed {}", failures.len(), plan.seed);
        }
    }
}

/// Repeats the case that a failure names. Does nothing in an ordinary run.
#[test]
fn repeat_one_case() {
    let Ok(text) = std::env::var("QUINTET_CRASH_CASE") else { return };
    let case: Case = text.parse().unwrap();
    assert_eq!(case.to_string(), text);
    if let Err(what) = repeat(&case) {
        panic!("{what}");
    }
}

#[test]
fn short_sequences_are_all_there() {
    let sequences = workload::short_sequences();
    assert_eq!(sequences.len(), 16 + 16 * 16 + 16 * 16 * 16);
    for text in workload::HAND_MADE {
        assert_eq!(text.parse::<workload::Workload>().unwrap().to_string(), text);
    }
}
