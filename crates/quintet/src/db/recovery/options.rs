//! The options to open a database, and their limits.

use std::time::Duration;

use crate::{
    Error, Result,
    db::core::durability::Durability,
    io::{
        Env,
        persistence::{MappedMemory, Slowness},
    },
    util::codec::to_usize,
};

/// Minimum memory budget in bytes. A smaller one leaves no room for the log.
pub(crate) const MEMORY_BUDGET_MIN: u64 = 1 << 20;
/// Default bound of the log that opening replays, in bytes.
const RECOVERY_BUDGET_DEFAULT: u64 = 256 << 20;
/// Minimum of the recovery budget in bytes: the smallest segment of the log.
const RECOVERY_BUDGET_MIN: u64 = 64 << 10;
/// Default size of a log file in bytes.
const SEGMENT_BYTES_DEFAULT: u64 = 32 << 20;
/// Minimum size of a log file in bytes.
#[cfg(not(model))]
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Smaller for the model checkers, which may switch threads at each word.
#[cfg(model)]
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Maximum size of a log file in bytes.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Default bound of the loss at a power failure under `Buffered`.
const SYNC_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);

/// Options to open a database.
///
/// ```no_run
/// # fn main() -> quintet::Result<()> {
/// use quintet::{Durability, Options};
/// let db = Options::new().memory_budget(256 << 20).durability(Durability::Sync).open("data")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) memory_budget: Option<u64>,
    pub(crate) sync_interval: Duration,
    pub(crate) recovery_budget: u64,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) segment_bytes: u64,
    pub(crate) memory: MappedMemory,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the defaults, which each method names.
    pub fn new() -> Self {
        Self {
            durability: Durability::default(),
            memory_budget: None,
            sync_interval: SYNC_INTERVAL_DEFAULT,
            recovery_budget: RECOVERY_BUDGET_DEFAULT,
            read_only: false,
            create: true,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            memory: MappedMemory::AsItIs,
        }
    }

    /// Sets the durability of writes that do not choose one (default `Buffered`).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Bounds the memory of the whole database in bytes (default: a quarter of the memory available
    /// to the process; at least 1 MiB). A write that would exceed it fails with
    /// [`Error::OutOfMemory`]. Opening always loads acknowledged data, even beyond the budget.
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// Sets the time after which a background job syncs the first unsynced `Buffered` write
    /// (default 100 ms; 1 ms to 1 hour). A shorter interval loses less at a power failure and syncs
    /// more often.
    #[must_use]
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval;
        self
    }

    /// Bounds the log that opening replays, in bytes (default 256 MiB; at least 64 KiB). With a
    /// bound of 4 MiB or more, each write in the last quarter is delayed, at most 20 ms. A write
    /// that reaches the bound waits for a checkpoint of all tables.
    #[must_use]
    pub fn recovery_budget(mut self, bytes: u64) -> Self {
        self.recovery_budget = bytes;
        self
    }

    /// Opens for reading only (default `false`). Nothing is written to the directory. Several
    /// read-only handles may be open at the same time. Writes fail with [`Error::ReadOnly`].
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Creates a missing database (default `true`). With `false`, opening a missing one fails with
    /// [`Error::NotADatabase`].
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the size of a log file in bytes (default 32 MiB; a power of two from 64 KiB to 1 GiB).
    /// The database uses at most an eighth of the memory budget.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// For experiments only. Uses ordinary memory in place of persistent memory for the log. A
    /// `Sync` write returns when its cache lines are written back, after `write_latency` for each
    /// line and at no more than `bytes_per_second` (0: no limit). **Such a write survives the death
    /// of the process but not a power loss**; after one, the database may be refused as damaged.
    ///
    /// Without this option, a log on a DAX file system with `MAP_SYNC` is detected and written back
    /// line by line, and `Sync` keeps its full promise.
    #[must_use]
    pub fn emulate_persistent_memory(
        mut self,
        write_latency: Duration,
        bytes_per_second: u64,
    ) -> Self {
        self.memory = MappedMemory::Emulated(Slowness { line: write_latency, bytes_per_second });
        self
    }

    /// Fails with [`Error::InvalidOption`] if an option is outside its limits.
    pub(crate) fn validate(&self) -> Result<()> {
        let refuse =
            |name: &str, what: String| Err(Error::InvalidOption { name: name.to_owned(), what });
        if self.memory_budget.is_some_and(|bytes| bytes < MEMORY_BUDGET_MIN) {
            return refuse("memory_budget", format!("at least {MEMORY_BUDGET_MIN} bytes"));
        }
        if !(Duration::from_millis(1)..=Duration::from_hours(1)).contains(&self.sync_interval) {
            return refuse("sync_interval", "from 1 ms to 1 hour".to_owned());
        }
        if self.recovery_budget < RECOVERY_BUDGET_MIN {
            return refuse("recovery_budget", format!("at least {RECOVERY_BUDGET_MIN} bytes"));
        }
        let allowed = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
        if !self.segment_bytes.is_power_of_two() || !allowed.contains(&self.segment_bytes) {
            let what = "a power of two from 64 KiB to 1 GiB".to_owned();
            return refuse("segment_bytes", what);
        }
        Ok(())
    }

    /// Returns the memory budget in bytes on `env`.
    pub(crate) fn budget_on(&self, env: &dyn Env) -> u64 {
        self.memory_budget.unwrap_or_else(|| (env.memory_bytes() / 4).max(MEMORY_BUDGET_MIN))
    }

    /// Returns the size of log files under a memory budget. The tail and the next file are both
    /// mapped.
    pub(crate) fn segment_bytes_within(&self, budget: u64) -> u64 {
        let eighth = 1_u64 << (budget / 8).max(1).ilog2();
        self.segment_bytes.min(eighth).max(SEGMENT_BYTES_MIN)
    }
}

const _: () = assert!(to_usize(SEGMENT_BYTES_MIN).is_power_of_two());
