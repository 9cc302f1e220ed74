//! Waits until this process does next to nothing.
//!
//! Why by the kernel's counters and not by what a store says of itself: it is the same for every
//! store, those without a word for it included.

use std::{
    thread,
    time::{Duration, Instant},
};

use quintet_bench::{
    failure::{Failure, Outcome},
    machine,
};

use crate::counters;

/// How often it looks.
const STEP: Duration = Duration::from_secs(1);
/// So many looks in a row without work are rest.
const QUIET_STEPS: u32 = 3;
/// Work between two looks that is none: of the processor, and bytes read and written.
const CPU_MAX: Duration = Duration::from_millis(20);
const BYTES_MAX: u64 = 256 << 10;

/// Returns once the process has been at rest for three seconds.
///
/// # Errors
///
/// It is not within `limit`.
pub fn wait(limit: Duration) -> Outcome {
    let (start, mut quiet) = (Instant::now(), 0);
    let mut before = work();
    while quiet < QUIET_STEPS {
        if start.elapsed() > limit {
            let what = format!("not at rest {} s after loading", limit.as_secs());
            return Err(Failure::Failed(what));
        }
        thread::sleep(STEP);
        let now = work();
        let is_quiet = now.0.saturating_sub(before.0) <= CPU_MAX
            && now.1.saturating_sub(before.1) <= BYTES_MAX;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

/// What the process has done so far: time of the processor, bytes read and written.
fn work() -> (Duration, u64) {
    (machine::cpu_time(), counters::process_bytes())
}
