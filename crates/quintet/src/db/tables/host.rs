//! The host that engines call back into: it syncs the log, wakes the persist job, queues tasks for
//! the memory job, and tells whether a stored value is expired.
//!
//! Invariants:
//! - The host holds neither tables nor engines, so an engine that holds its host keeps only the log
//!   and the job handles alive.
//! - The clock never goes back while the database is open, so an expired value stays invisible.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use super::job_handles::{JobHandles, JobKind};
use crate::{
    Error, Result,
    contract::{Host, MemoryTask},
    db::encoding::envelope::Envelope,
    io::Env,
    util::{
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
    wal::Log,
};

/// What engines call back into.
#[derive(Debug)]
pub(crate) struct DatabaseHost {
    pub(crate) clock: WallClock,
    /// Set when the log is open; unset while it is replayed.
    pub(crate) log: OnceLock<Arc<Log>>,
    pub(crate) jobs: JobHandles,
    /// A writer has requested a checkpoint round. The next round clears it.
    round_due: AtomicBool,
    /// When the oldest snapshot was taken, in milliseconds since 1970. Engines drop no value that
    /// had not expired then. `u64::MAX`: none is open.
    oldest_snapshot: AtomicU64,
    /// An engine lacked memory while the log was replayed.
    lacks_replay_memory: AtomicBool,
    /// Tasks for the memory job. An engine queues no task twice, so they are few.
    tasks: Mutex<VecDeque<Weak<dyn MemoryTask>>>,
}

impl DatabaseHost {
    /// Creates the host of a database whose log is not open yet.
    pub(crate) fn new(env: Arc<dyn Env>) -> Self {
        Self {
            clock: WallClock::new(env),
            log: OnceLock::new(),
            jobs: JobHandles::default(),
            round_due: AtomicBool::new(false),
            oldest_snapshot: AtomicU64::new(u64::MAX),
            lacks_replay_memory: AtomicBool::new(false),
            tasks: Mutex::default(),
        }
    }

    /// Wakes the `persist` job. Merges pause until the next round has begun.
    #[inline]
    pub(crate) fn request_round(&self) {
        // The load keeps the cache line shared while the round is already requested.
        if !self.round_due.load(Ordering::Relaxed) {
            self.round_due.store(true, Ordering::Relaxed);
        }
        self.jobs.wake(JobKind::Persist);
    }

    /// Returns whether an engine lacked memory while the log was replayed.
    pub(crate) fn lacks_replay_memory(&self) -> bool {
        self.lacks_replay_memory.load(Ordering::Relaxed)
    }

    /// Makes engines keep every value that had not expired at `time`; `None`: the clock decides.
    pub(crate) fn expire_only_before(&self, time: Option<u64>) {
        self.oldest_snapshot.store(time.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Returns the time at which engines judge whether a value has expired.
    fn expiry_time(&self) -> u64 {
        // In this order: a snapshot announces itself before it reads the clock.
        let now = self.clock.now();
        mutant!(SnapshotExpiresByTheClock => return now);
        now.min(self.oldest_snapshot.load(Ordering::SeqCst))
    }

    /// Runs the oldest task of [`Host::run_soon`]. Returns whether there was one.
    pub(crate) fn run_task(&self) -> bool {
        let Some(task) = lock(&self.tasks).pop_front() else { return false };
        if let Some(task) = task.upgrade() {
            task.run();
        }
        true
    }

    /// Ends the request of [`DatabaseHost::request_round`].
    pub(crate) fn clear_round_request(&self) {
        self.round_due.store(false, Ordering::Relaxed);
    }
}

impl Host for DatabaseHost {
    fn sync_log(&self) -> Result<()> {
        match self.log.get() {
            Some(log) => log.sync().map(drop),
            None => Err(Error::LogFailed { reason: "it is not open yet".to_owned() }),
        }
    }

    fn wake(&self) {
        self.jobs.wake(JobKind::Persist);
    }

    fn run_soon(&self, task: Weak<dyn MemoryTask>) {
        lock(&self.tasks).push_back(task);
        self.jobs.wake(JobKind::Memory);
    }

    fn can_sync_log(&self) -> bool {
        let is_open = self.log.get().is_some();
        if !is_open {
            self.lacks_replay_memory.store(true, Ordering::Relaxed);
        }
        is_open
    }

    fn is_round_due(&self) -> bool {
        self.round_due.load(Ordering::Relaxed)
    }

    fn is_expired(&self, stored: &[u8]) -> bool {
        match Envelope::decode(stored) {
            Some((envelope, _)) => {
                envelope.expires_at.is_some() && envelope.is_expired(self.expiry_time())
            }
            None => false,
        }
    }

    fn expires(&self, stored: &[u8]) -> bool {
        Envelope::decode(stored).is_none_or(|(envelope, _)| envelope.expires_at.is_some())
    }
}

/// A wall clock in milliseconds since 1970 that never goes back.
#[derive(Debug)]
pub(crate) struct WallClock {
    env: Arc<dyn Env>,
    latest: AtomicU64,
}

impl WallClock {
    pub(crate) fn new(env: Arc<dyn Env>) -> Self {
        Self { env, latest: AtomicU64::new(0) }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> u64 {
        let now = self.env.unix_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if now <= latest {
            return latest;
        }
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}
