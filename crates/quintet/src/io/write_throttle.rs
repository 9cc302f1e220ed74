//! The write throttle: delays writes near a memory bound, before they would block.
//!
//! Problem: if background work falls behind for seconds, one writer at the bound waits for all of
//! it. How: each write near the bound waits for at most [`DELAY_MAX`], quadratically longer the
//! nearer it is. The bound stays: a writer that adds much at once still reaches it and blocks.
//!
//! Invariants: a delay is at most [`DELAY_MAX`]. Threads: any thread that holds no lock.

use std::time::Duration;

use super::{Env, Stopwatch};

/// Longest delay of one write.
pub const DELAY_MAX: Duration = Duration::from_millis(20);
/// Shortest delay. A shorter wait costs the system more time than it gains.
const DELAY_MIN: Duration = Duration::from_micros(100);

/// Delays a write that is `past` bytes into the last `way` bytes before a bound. Returns the delay.
#[cold]
pub fn brake(env: &dyn Env, past: u64, way: u64) -> Duration {
    // Thousandths of `way`.
    let share = (past.saturating_mul(1_000) / way.max(1)).min(1_000);
    let share = u32::try_from(share).unwrap_or(1_000);
    let delay = DELAY_MAX * share / 1_000 * share / 1_000;
    if delay < DELAY_MIN {
        return Duration::ZERO;
    }
    let watch = Stopwatch::start();
    env.pause(delay);
    watch.stop(|counters, time| counters.write_delay_time += time);
    delay
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::io::sim::SimEnv;

    #[test]
    fn waits_grow_towards_the_bound_and_are_bounded() {
        let env = SimEnv::new(1);
        let began = env.monotonic();
        let waits: Vec<Duration> = (0..=20).map(|past| brake(&env, past * 100, 1_000)).collect();
        assert_eq!(waits.first(), Some(&Duration::ZERO));
        assert_eq!(waits.get(5), Some(&(DELAY_MAX / 4)));
        assert!(waits.is_sorted());
        assert_eq!(waits.last(), Some(&DELAY_MAX));
        assert!(env.monotonic() >= began + waits.iter().sum());
        assert_eq!(brake(&env, 5, 0), DELAY_MAX);
    }
}
