//! The options to open a database, and their limits.

use std::{sync::Arc, time::Duration};

use crate::{
    Error, Result,
    db::{
        checkpoint::{CheckpointLimits, space_reserve},
        core::durability::Durability,
        merge::MergeOperators,
        versions::SnapshotLimits,
    },
    io::{
        Env,
        persistence::{MappedMemory, Slowness},
    },
    util::{budget::Budget, codec::to_usize},
    wal::LogOptions,
};

/// Minimum memory budget in bytes. A smaller one leaves no room for the log.
pub(crate) const MEMORY_BUDGET_MIN: u64 = 1 << 20;
/// Default bound of the log that opening replays, in bytes.
const RECOVERY_BUDGET_DEFAULT: u64 = 256 << 20;
/// Minimum of the recovery budget in bytes: the smallest segment of the log.
const RECOVERY_BUDGET_MIN: u64 = 64 << 10;
/// A log file is at most this part of the budget, because two are mapped. Of a small budget it may
/// be four times as much, up to [`SEGMENT_BYTES_SMALL`]: deletes on a full disk need the room of a
/// file.
const SEGMENT_PART: u64 = 32;
const SEGMENT_BYTES_SMALL: u64 = 4 << 20;
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

/// Bound of the disk space that is kept for a full disk, by default and at most, in bytes.
const SPACE_RESERVE_DEFAULT: u64 = 256 << 20;
const SPACE_RESERVE_MAX: u64 = 1 << 30;

/// Limits of the sync interval. A shorter one would sync without a pause; a longer one is no bound
/// of a loss that a user would accept.
const SYNC_INTERVAL_MIN: Duration = Duration::from_millis(1);
const SYNC_INTERVAL_MAX: Duration = Duration::from_hours(1);

/// Limits of the checkpoint interval, if there is one. A shorter one would write `naive` tables
/// without a pause. A longer one is bounded by the recovery budget anyway.
const CHECKPOINT_INTERVAL_MIN: Duration = Duration::from_millis(10);
const CHECKPOINT_INTERVAL_MAX: Duration = Duration::from_hours(24);

/// Maximum of the log retention in bytes.
const LOG_RETENTION_MAX: u64 = 1 << 50;

/// By default, earlier values for snapshots take at most the memory budget times this, in memory
/// and in files. An export beside writers keeps each value that is replaced once. So it ends early
/// only if much more than the memory budget is replaced meanwhile. The bound is for a snapshot that
/// was forgotten: it must not fill the disk.
const SNAPSHOT_BUDGETS: u64 = 8;
/// Minimum of the snapshot limit in bytes: a few segments of the version store.
const SNAPSHOT_LIMIT_MIN: u64 = 128 << 10;
/// Minimum of the age at which a snapshot ends, and its default.
const SNAPSHOT_AGE_MIN: Duration = Duration::from_millis(1);
const SNAPSHOT_AGE_DEFAULT: Duration = Duration::from_hours(1);

/// An option of a database that has limits. [`database_options`] returns all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseOption {
    /// The name of its method of [`Options`].
    pub name: &'static str,
    /// The value of a database that does not set it, as a phrase.
    pub default: String,
    /// The values that it accepts, as a phrase.
    pub allowed: String,
}

/// Returns the options of a database that have limits, in the order of the documentation.
pub fn database_options() -> Vec<DatabaseOption> {
    let option = |name, default, allowed| DatabaseOption { name, default, allowed };
    let segments = format!("{} to {}", size(SEGMENT_BYTES_MIN), size(SEGMENT_BYTES_MAX));
    vec![
        option(
            "memory_budget",
            "a quarter of the memory that the process may use".to_owned(),
            format!("at least {}", size(MEMORY_BUDGET_MIN)),
        ),
        option(
            "sync_interval",
            time(SYNC_INTERVAL_DEFAULT),
            format!("from {} to {}", time(SYNC_INTERVAL_MIN), time(SYNC_INTERVAL_MAX)),
        ),
        option(
            "recovery_budget",
            size(RECOVERY_BUDGET_DEFAULT),
            format!("at least {}", size(RECOVERY_BUDGET_MIN)),
        ),
        option(
            "checkpoint_interval",
            "0: as the engines and the recovery budget ask".to_owned(),
            format!(
                "0, or from {} to {}",
                time(CHECKPOINT_INTERVAL_MIN),
                time(CHECKPOINT_INTERVAL_MAX)
            ),
        ),
        option(
            "space_reserve",
            format!("{}; less if less of the log is unpersisted", size(SPACE_RESERVE_DEFAULT)),
            format!("0, or from {} to {}", size(space_reserve::BYTES_MIN), size(SPACE_RESERVE_MAX)),
        ),
        option(
            "segment_bytes",
            format!(
                "{}; at most a 32nd of the memory budget is used; of a small one up to an \
                 eighth, at most 4 MiB",
                size(SEGMENT_BYTES_DEFAULT)
            ),
            format!("a power of two from {segments}"),
        ),
        option("log_retention", "0".to_owned(), format!("at most {}", size(LOG_RETENTION_MAX))),
        option(
            "snapshot_limit",
            format!("{SNAPSHOT_BUDGETS} times the memory budget"),
            format!("at least {}", size(SNAPSHOT_LIMIT_MIN)),
        ),
        option(
            "snapshot_max_age",
            time(SNAPSHOT_AGE_DEFAULT),
            format!("at least {}", time(SNAPSHOT_AGE_MIN)),
        ),
    ]
}

/// Formats a size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        50.. => format!("{} PiB", bytes >> 50),
        30.. => format!("{} GiB", bytes >> 30),
        20.. => format!("{} MiB", bytes >> 20),
        10.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// Formats a time in the largest unit that divides it.
fn time(duration: Duration) -> String {
    match duration.as_millis() {
        3_600_000 => "1 hour".to_owned(),
        millis if millis.is_multiple_of(3_600_000) => format!("{} hours", millis / 3_600_000),
        millis if millis.is_multiple_of(1000) => format!("{} s", millis / 1000),
        millis => format!("{millis} ms"),
    }
}

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
    pub(crate) checkpoint_interval: Duration,
    pub(crate) space_reserve: u64,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) segment_bytes: u64,
    pub(crate) log_retention: u64,
    pub(crate) snapshot_limit: Option<u64>,
    pub(crate) snapshot_max_age: Duration,
    pub(crate) memory: MappedMemory,
    pub(crate) merge_operators: MergeOperators,
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
            checkpoint_interval: Duration::ZERO,
            space_reserve: SPACE_RESERVE_DEFAULT,
            read_only: false,
            create: true,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            log_retention: 0,
            snapshot_limit: None,
            snapshot_max_age: SNAPSHOT_AGE_DEFAULT,
            memory: MappedMemory::AsItIs,
            merge_operators: MergeOperators::default(),
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
    /// [`Error::OutOfMemory`]. Opening writes acknowledged data that does not fit to the tables'
    /// files. `naive` tables, and a database opened read-only, exceed the budget instead.
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

    /// Sets the time after which all tables with unpersisted updates are checkpointed: 0 (the
    /// default), or 10 ms to 24 hours.
    ///
    /// So opening replays the log of this time and of one checkpoint round, which may wait for one
    /// step of compaction. With 0, an engine decides when its table is checkpointed, and
    /// [`recovery_budget`] bounds the log. The writes of a table that changes little then stay in
    /// the log.
    ///
    /// A background job does it, and writes do not wait. Each round writes what has changed; a
    /// `naive` table that has changed is written as a whole. An interval without writes costs
    /// nothing. A failed round is repeated after a second. The durability of a write does not
    /// depend on it: that is [`sync_interval`].
    ///
    /// [`recovery_budget`]: Self::recovery_budget
    /// [`sync_interval`]: Self::sync_interval
    #[must_use]
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// Bounds the disk space that is kept for a full disk in bytes: 0, or 64 KiB to 1 GiB (default
    /// 256 MiB). It is half more than the log that is not yet in the tables' files. A database at
    /// rest keeps an eighth of what was written so far, at most 4 MiB.
    ///
    /// Deletes, checkpoints and compactions use it when the disk is full. Writes that free no space
    /// then fail with [`Error::DiskFull`] until it is whole again. With 0 there is none: on a disk
    /// that is full to the last byte, deletes may fail too, and space comes back only when other
    /// files are removed.
    #[must_use]
    pub fn space_reserve(mut self, bytes: u64) -> Self {
        self.space_reserve = bytes;
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
    /// The database uses at most a 32nd of the memory budget; of a small one up to an eighth, but
    /// then at most 4 MiB.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets how many bytes of the log stay on the disk for change feeds that begin later, although
    /// the tables' files have their commits (default 0; at most 1 PiB). See
    /// [`Database::changes`](crate::Database::changes).
    ///
    /// With a value above 0, creating and clearing a table sync the log once more, and sorted loads
    /// go through the log. Opening with a smaller value removes what is retained beyond it; opening
    /// read-only removes nothing. On a full disk, the log is retained no longer.
    #[must_use]
    pub fn log_retention(mut self, bytes: u64) -> Self {
        self.log_retention = bytes;
        self
    }

    /// Bounds the earlier values that open snapshots and iterators show, in bytes of memory and
    /// files together (default eight times the memory budget; at least 128 KiB). Beyond it, the
    /// oldest snapshot ends: its reads fail with [`Error::SnapshotExpired`]. At most a quarter of
    /// the memory budget is in memory. The rest is in files, which are removed when no snapshot
    /// needs them.
    #[must_use]
    pub fn snapshot_limit(mut self, bytes: u64) -> Self {
        self.snapshot_limit = Some(bytes);
        self
    }

    /// Sets the age at which a snapshot ends (default 1 hour; at least 1 ms): its reads fail with
    /// [`Error::SnapshotExpired`]. Checked when a snapshot is taken and when the earlier values
    /// need more memory.
    #[must_use]
    pub fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_max_age = age;
        self
    }

    /// Adds a merge operator of the application: `function` gets a key, its value if it has one,
    /// and an operand, and returns the new value. Tables whose options name the operator
    /// ([`TableOptions::merge`](crate::TableOptions::merge)) use it in
    /// [`Table::merge`](crate::Table::merge).
    ///
    /// Of an equal value and operand the function must return an equal result: it may be called
    /// more than once for one merge. It runs without a lock. An error says why the operand cannot
    /// be merged; the merge fails with [`Error::MergeRefused`] then. Opening the database fails
    /// with [`Error::InvalidOption`] if `name` is that of a built-in operator.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// use quintet::{EngineKind, Options, TableOptions};
    /// let db = Options::new()
    ///     .merge_operator("longest", |_key, old, operand| {
    ///         let old = old.unwrap_or_default();
    ///         Ok(if operand.len() > old.len() { operand } else { old }.to_vec())
    ///     })
    ///     .open("data")?;
    /// let names = TableOptions::new(EngineKind::BTree).merge("longest");
    /// let names = db.open_or_create_table("names", names)?;
    /// names.merge("town", "Llanfairpwllgwyngyll")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn merge_operator(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&[u8], Option<&[u8]>, &[u8]) -> Result<Vec<u8>, String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.merge_operators.register(name.into(), Arc::new(function));
        self
    }

    /// Opens tables whose merge operator is not registered (default `false`). They take all
    /// operations but merges. For tools that read or repair the tables of an application. With
    /// `false`, [`Database::table`](crate::Database::table) fails with
    /// [`Error::MergeOperatorMissing`] for such a table.
    #[must_use]
    pub fn allow_missing_merge_operators(mut self, allow: bool) -> Self {
        self.merge_operators.may_be_missing = allow;
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
        self.merge_operators.validate()?;
        let segments = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
        let checkpoint_intervals = CHECKPOINT_INTERVAL_MIN..=CHECKPOINT_INTERVAL_MAX;
        let name = if self.memory_budget.is_some_and(|bytes| bytes < MEMORY_BUDGET_MIN) {
            "memory_budget"
        } else if !(SYNC_INTERVAL_MIN..=SYNC_INTERVAL_MAX).contains(&self.sync_interval) {
            "sync_interval"
        } else if self.recovery_budget < RECOVERY_BUDGET_MIN {
            "recovery_budget"
        } else if !self.checkpoint_interval.is_zero()
            && !checkpoint_intervals.contains(&self.checkpoint_interval)
        {
            "checkpoint_interval"
        } else if self.space_reserve != 0
            && !(space_reserve::BYTES_MIN..=SPACE_RESERVE_MAX).contains(&self.space_reserve)
        {
            "space_reserve"
        } else if !self.segment_bytes.is_power_of_two() || !segments.contains(&self.segment_bytes) {
            "segment_bytes"
        } else if self.log_retention > LOG_RETENTION_MAX {
            "log_retention"
        } else if self.snapshot_limit.is_some_and(|bytes| bytes < SNAPSHOT_LIMIT_MIN) {
            "snapshot_limit"
        } else if self.snapshot_max_age < SNAPSHOT_AGE_MIN {
            "snapshot_max_age"
        } else {
            return Ok(());
        };
        let allowed = database_options().into_iter().find(|option| option.name == name);
        let allowed = allowed.map(|option| option.allowed).unwrap_or_default();
        Err(Error::InvalidOption { name: name.to_owned(), what: format!("it must be {allowed}") })
    }

    /// Returns the memory budget in bytes on `env`.
    pub(crate) fn budget_on(&self, env: &dyn Env) -> u64 {
        self.memory_budget.unwrap_or_else(|| (env.memory_bytes() / 4).max(MEMORY_BUDGET_MIN))
    }

    /// Returns when all tables are checkpointed, at the latest.
    pub(crate) const fn checkpoint_limits(&self) -> CheckpointLimits {
        CheckpointLimits {
            recovery_budget: self.recovery_budget,
            interval: self.checkpoint_interval,
        }
    }

    /// Returns the bounds of what snapshots hold.
    pub(crate) fn snapshot_limits(&self, budget: &Budget) -> SnapshotLimits {
        let default = || budget.limit().saturating_mul(SNAPSHOT_BUDGETS).max(SNAPSHOT_LIMIT_MIN);
        let bytes = self.snapshot_limit.unwrap_or_else(default);
        SnapshotLimits { bytes, age: self.snapshot_max_age }
    }

    /// Returns the options of the log, whose files have `segment_bytes`.
    pub(super) const fn log_options(&self, segment_bytes: u64) -> LogOptions {
        let (read_only, retention) = (self.read_only, self.log_retention);
        LogOptions { segment_bytes, read_only, retention }
    }

    /// Returns the size of log files under a memory budget. The tail and the next file are both
    /// mapped.
    pub(crate) fn segment_bytes_within(&self, budget: u64) -> u64 {
        let small = (budget / SEGMENT_PART * 4).min(SEGMENT_BYTES_SMALL);
        let part = 1_u64 << (budget / SEGMENT_PART).max(small).max(1).ilog2();
        self.segment_bytes.min(part).max(SEGMENT_BYTES_MIN)
    }
}

const _: () = assert!(to_usize(SEGMENT_BYTES_MIN).is_power_of_two());
