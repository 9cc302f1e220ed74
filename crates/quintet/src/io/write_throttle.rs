//! The brake: writers slow down before they would have to stop.
//!
//! What: near a bound, each write waits a little, and longer the nearer it is.
//! Why: where background work falls behind for seconds, the writer that came to the bound waited
//! all of them; now the wait is spread over many writes, none of which waits longer than
//! [`DELAY_MAX`]. The bound itself stays: whoever brings much at once comes to it all the same.
//!
//! Invariants: one delay is bounded. Thread rules: any thread, with no lock held.

use std::time::Duration;

use super::Env;

/// A write waits no longer than this.
pub const DELAY_MAX: Duration = Duration::from_millis(20);
/// Shorter waits take the system longer than they are worth.
const DELAY_MIN: Duration = Duration::from_micros(100);

/// Waits for a write that is `past` of the last `way` before a bound; how long.
#[cold]
pub fn brake(env: &dyn Env, past: u64, way: u64) -> Duration {
    // In thousandths.
    let share = (past.saturating_mul(1_000) / way.max(1)).min(1_000);
    let share = u32::try_from(share).unwrap_or(1_000);
    let delay = DELAY_MAX * share / 1_000 * share / 1_000;
    if delay < DELAY_MIN {
        return Duration::ZERO;
    }
    env.pause(delay);
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
