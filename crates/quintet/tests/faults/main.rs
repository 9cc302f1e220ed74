//! I/O-fault loops: each call of each kind fails once, and from there on, in every way that it
//! can.
//!
//! The run goes on with what still works: an operation gives `Ok` or a clear error, reads go on,
//! and what is visible is exactly what was done. Once the fault is lifted, writes go on (unless a
//! sync failed: then nothing more is acknowledged until the database is reopened), and after a
//! reopening, the death of the process and a power loss everything acknowledged is there, as its
//! durability promised. A recovery that meets a fault refuses or succeeds; the next one, without
//! it, finds everything.
//!
//! `QUINTET_FAULT_CASES` sets how many cases of each loop are run (0: all), `QUINTET_FAULT_SEED`
//! which, `QUINTET_FAULT_CASE` repeats the one that a failure names.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

/// The engines that workloads use: `hashlog` and `trie` do not pass these loops yet.
const ENGINES: &[quintet::EngineKind] = &[quintet::EngineKind::Naive];

mod driver;
#[expect(dead_code, reason = "shared with the crash enumeration, which uses all of it")]
#[path = "../crash/oracle.rs"]
mod oracle;
#[path = "../crash/runner.rs"]
mod runner;
#[path = "../crash/workload.rs"]
mod workload;

use crate::driver::{Loop, run_loop};

#[test]
fn each_call_of_a_run_fails_once_and_from_there_on() {
    run_loop(Loop::Run, 4_000);
}

#[test]
fn each_call_of_a_recovery_fails_once_and_from_there_on() {
    run_loop(Loop::Recovery, 4_000);
}
