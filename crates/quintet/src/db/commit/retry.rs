//! Pauses between the attempts of a commit that conflicts with others.

use std::time::Duration;

use crate::{db::core::Core, util::codec::Decoder};

/// Upper bound of the pause before the second repetition, in nanoseconds. It doubles with each
/// further one.
const PAUSE_FIRST_NANOS: u64 = 10_000;
/// Longest pause, in nanoseconds.
const PAUSE_MAX_NANOS: u64 = 2_000_000;

impl Core {
    /// Waits for a random time, at most 2 ms, so that the same commits do not conflict again.
    /// `attempt` is the number of earlier pauses; the first one has no length.
    pub(crate) fn pause_before_retry(&self, attempt: u32) {
        if attempt == 0 {
            return;
        }
        let bound = PAUSE_FIRST_NANOS.checked_shl(attempt - 1).unwrap_or(PAUSE_MAX_NANOS);
        let mut bytes = [0; 8];
        self.env.random(&mut bytes);
        let random = Decoder::new(&bytes).u64().unwrap_or_default();
        self.env.pause(Duration::from_nanos(random % bound.clamp(1, PAUSE_MAX_NANOS)));
    }
}
