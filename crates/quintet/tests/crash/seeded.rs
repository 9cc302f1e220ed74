//! The enumeration finds each planted bug that a crash can show.

use std::process::Command;

use quintet::testing::seeded::Bug;

use crate::driver::{Plan, enumerate};

/// Number of states to search: more than any of the bugs needs.
const STATES: u64 = 30_000;

/// The bugs that only a crash shows.
const FOUND_BY_CRASHES: &[Bug] = &[
    Bug::LogSkipsSync,
    Bug::LogAcknowledgesBeforeSync,
    Bug::LogForgetsSealedSegment,
    Bug::LogSkipsSegmentDirSync,
    Bug::LogSkipsSegmentHeadSync,
    Bug::LogClaimsTooMuchDurable,
    Bug::LogLeavesSegmentEndOpen,
    Bug::LogSkipsBodyChecksum,
    Bug::LogRefusesTornTail,
    Bug::LogLeavesFillersUnsynced,
    Bug::LogStepsOverHolesAfterReboot,
    Bug::LogSyncsTooFewLines,
    Bug::LogReplaysOneTooFew,
    Bug::LogReplaysOneTooLate,
    Bug::LogPrunesTooMuch,
    Bug::ReplayForgetsExpiryIndex,
    Bug::ExpiryIndexNotNoted,
];

/// The bugs that only a crash of tables in pools shows. Few tables of a mixed enumeration are.
const FOUND_IN_POOLS: &[Bug] = &[Bug::TablesNotedBeforeSync];

#[test]
fn planted_bugs_of_pools_are_found() {
    for bug in FOUND_IN_POOLS {
        // The environment chooses the engine, so that a failure can be repeated by it too.
        let chosen = [
            ("QUINTET_CRASH_ENGINE", "slm"),
            ("QUINTET_CRASH_MEMORY", "persistent"),
            ("QUINTET_CRASH_OPTIONS", "medium=pmem"),
            ("QUINTET_CRASH_BUG", bug.name()),
        ];
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "seeded::planted_bugs_are_found"])
            .envs(chosen)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{chosen:?}:\n{text}");
    }
}

#[test]
fn planted_bugs_are_found() {
    let one = std::env::var("QUINTET_CRASH_BUG").ok();
    let wanted = |bug: &Bug| match &one {
        Some(name) => bug.name() == name,
        None => FOUND_BY_CRASHES.contains(bug),
    };
    let mut missed = Vec::new();
    for bug in Bug::ALL.iter().copied().filter(wanted) {
        let plan = Plan { states: STATES, seed: 1, threads: 1, failures: 1, bug: Some(bug) };
        match enumerate(plan) {
            Err(failures) => println!("{bug}: {}", failures[0]),
            Ok(_) => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
