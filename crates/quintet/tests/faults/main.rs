//! I/O fault injection: each call of each kind fails, once or from then on, with every error that
//! it can return.
//!
//! The run continues as far as it can. An operation returns `Ok` or a clear error, reads succeed,
//! and exactly the acknowledged effects are visible. Once the fault is lifted, writes succeed
//! again. The exception is a failed sync of the log: then nothing is acknowledged until the
//! database is reopened. After reopening, process death and power loss, everything acknowledged is
//! there, as its durability promises. A recovery that meets a fault refuses or succeeds. The next
//! one, without the fault, finds everything.
//!
//! `QUINTET_FAULT_CASES` sets the number of cases of each loop (0: all), `QUINTET_FAULT_SEED`
//! chooses them, `QUINTET_FAULT_CASE` repeats the case that a failure names. A case begins with
//! its seed and a `/`; `QUINTET_FAULT_SEED` must be the same, because without it no case has the
//! name, and the test fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

/// The engines that workloads use.
const ENGINES: &[quintet::EngineKind] = quintet::EngineKind::AVAILABLE;

mod driver;
mod emptied_disk;
mod full_disk;
#[path = "../common/modes.rs"]
mod modes;
#[expect(dead_code, reason = "shared with the crash enumeration, which uses all of it")]
#[path = "../crash/oracle.rs"]
mod oracle;
#[expect(dead_code, reason = "shared with tests that use all of it")]
#[path = "../common/random.rs"]
mod random;
#[path = "../crash/runner.rs"]
mod runner;
#[path = "../crash/workload.rs"]
mod workload;

use crate::driver::{Loop, run_loop};

#[test]
fn each_call_of_a_run_fails_once_and_from_there_on() {
    run_loop(Loop::Run, 2_000);
}

#[test]
fn each_call_of_a_recovery_fails_once_and_from_there_on() {
    run_loop(Loop::Recovery, 2_000);
}
