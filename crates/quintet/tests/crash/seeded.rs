//! The enumeration finds each planted bug that a crash can show.

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
