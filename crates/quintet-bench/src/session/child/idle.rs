//! Waits until the background work of this process ends.
//!
//! The kernel's counters of processor time and of input and output decide. They have the same
//! meaning for every store, and they include background work that a store does not report.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    failure::{Failure, Outcome},
    machine::{io_counters, process},
};

/// Interval between two readings of the counters.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive quiet intervals that count as idle.
const QUIET_INTERVALS: u32 = 3;
/// Maximum processor time in a quiet interval.
const CPU_MAX: Duration = Duration::from_millis(20);
/// Maximum bytes read and written in a quiet interval.
const BYTES_MAX: u64 = 256 << 10;

/// Returns as soon as the process has been idle for three seconds.
///
/// # Errors
///
/// The process is not idle within `limit`.
pub fn wait(limit: Duration) -> Outcome {
    let (start, mut quiet) = (Instant::now(), 0);
    let mut before = work();
    while quiet < QUIET_INTERVALS {
        if start.elapsed() > limit {
            let what = format!("not at rest {} s after loading", limit.as_secs());
            return Err(Failure::Failed(what));
        }
        thread::sleep(INTERVAL);
        let now = work();
        let is_quiet = now.0.saturating_sub(before.0) <= CPU_MAX
            && now.1.saturating_sub(before.1) <= BYTES_MAX;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

/// Returns the work of the process since its start: processor time, and bytes read and written.
fn work() -> (Duration, u64) {
    (process::cpu_time(), io_counters::process_bytes())
}
