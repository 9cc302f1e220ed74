//! What a database does for its engines, counted: for the tests of engines alone.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use crate::{
    Error, Result,
    contract::{Host, MemoryTask},
    util::{
        budget::Reservation,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// What a test does when an engine asks whether a stored value has expired.
type Interruption = Arc<dyn Fn(&[u8]) + Send + Sync>;

#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) log_syncs: AtomicU64,
    pub(crate) wakes: AtomicU64,
    /// Called in the middle of a checkpoint, when an engine asks about expiry.
    pub(crate) interruption: Mutex<Option<Interruption>>,
    /// Syncs of the log fail.
    pub(crate) refuses: AtomicBool,
    /// A round of persisting is always due.
    pub(crate) hurries: AtomicBool,
    /// Memory of work under way: it ends when the database is asked to work.
    pub(crate) lent: Mutex<Option<Reservation>>,
    /// Tasks that wait for [`FakeHost::run_tasks`].
    pub(crate) tasks: Mutex<Vec<Weak<dyn MemoryTask>>>,
}

impl FakeHost {
    /// Runs the queued tasks. Returns how many there were.
    pub(crate) fn run_tasks(&self) -> usize {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.iter().filter_map(Weak::upgrade).for_each(|task| task.run());
        tasks.len()
    }
}

impl fmt::Debug for FakeHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FakeHost").finish_non_exhaustive()
    }
}

impl Host for FakeHost {
    fn sync_log(&self) -> Result<()> {
        self.log_syncs.fetch_add(1, Ordering::Relaxed);
        let refuses = self.refuses.load(Ordering::Relaxed);
        if refuses { Err(Error::LogFailed { reason: "as asked".to_owned() }) } else { Ok(()) }
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        drop(lock(&self.lent).take());
    }

    fn run_soon(&self, task: Weak<dyn MemoryTask>) {
        lock(&self.tasks).push(task);
    }

    fn can_sync_log(&self) -> bool {
        !self.refuses.load(Ordering::Relaxed)
    }

    fn is_round_due(&self) -> bool {
        self.hurries.load(Ordering::Relaxed)
    }

    fn is_expired(&self, stored: &[u8]) -> bool {
        let interruption = lock(&self.interruption).clone();
        if let Some(interrupt) = interruption {
            interrupt(stored);
        }
        stored.starts_with(b"expired")
    }

    fn expires(&self, stored: &[u8]) -> bool {
        stored.starts_with(b"expire")
    }
}
