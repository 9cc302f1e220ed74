//! The history that a column family with timestamps keeps.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use quintet_compat::{status::Status, timestamps::TimestampOrder};

/// The history of a family whose keys have timestamps.
#[derive(Debug)]
pub struct History {
    /// Old versions below it may be removed, and reads below it fail. 0: none was set.
    low: AtomicU64,
    /// The byte order of the program's timestamps.
    pub order: TimestampOrder,
    /// Held while the low timestamp is stored and raised, so that both have the same order.
    raising: Mutex<()>,
}

impl History {
    /// Makes the history of a family with its low timestamp.
    pub fn new(order: TimestampOrder, low: Option<u64>) -> Self {
        Self { low: AtomicU64::new(low.unwrap_or_default()), order, raising: Mutex::new(()) }
    }

    /// Returns the low timestamp.
    pub fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// Uses a low timestamp that another instance has stored.
    pub fn follow(&self, low: u64) {
        self.low.fetch_max(low, Ordering::Relaxed);
    }

    /// Stores a greater low timestamp, and uses it from then on.
    pub fn raise(
        &self,
        low: u64,
        store: impl FnOnce() -> Result<(), Status>,
    ) -> Result<(), Status> {
        let _raising = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        if low < self.low() {
            return Err(Status::invalid("Cannot decrease full_history_ts_low"));
        }
        store()?;
        self.low.store(low, Ordering::Relaxed);
        Ok(())
    }
}
