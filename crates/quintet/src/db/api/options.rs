//! Options of databases, puts and deletes, and the limits of the options.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    Error, Result,
    contract::Op,
    db::{Database, expiry::Listing},
    io::{
        Env,
        os::OsEnv,
        persistence::{Memory, Slowness},
    },
    util::{
        codec::{to_u64, to_usize},
        mutant::{self, Bug},
        types::TypeTag,
    },
};

/// Maximum size of a key in bytes. Keys have at least one byte.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Maximum size of a value in bytes (512 MiB).
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// Maximum encoded size of a batch in bytes (1 GiB): keys, values and a few bytes for each
/// operation.
pub const BATCH_BYTES_MAX: u64 = 1 << 30;

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

/// What a returned write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Survives the death of the process. A power loss may lose the writes of the last
    /// `sync_interval` (100 ms by default); the remaining state is a prefix of the commits. The
    /// call waits for no sync.
    #[default]
    Buffered,
    /// Survives a power loss. The call returns after a sync of the log; concurrent writers share
    /// one.
    Sync,
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
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) segment_bytes: u64,
    memory: Memory,
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
            memory: Memory::AsItIs,
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
        self.memory = Memory::Emulated(Slowness { line: write_latency, bytes_per_second });
        self
    }

    /// Opens the database in the directory `path` and replays the log past the last checkpoint,
    /// about [`Options::recovery_budget`] bytes at most.
    ///
    /// Fails with [`Error::Locked`] if it is open elsewhere, [`Error::NotADatabase`] if it is
    /// missing and [`Options::create`] is off or the directory has other files,
    /// [`Error::Corruption`] for damage, [`Error::NewerFormat`] for files of a newer release,
    /// [`Error::InvalidOption`] and [`Error::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.validate()?;
        let env: Arc<dyn Env> = Arc::new(OsEnv::new().on(self.memory));
        Database::recover(&env, path.as_ref(), self, None)
    }

    /// Same as [`Options::open`], on the caller's [`Env`]. For tests.
    #[cfg(feature = "testing")]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand over a fresh clone")]
    pub fn open_in(&self, env: Arc<dyn Env>, path: impl AsRef<Path>) -> Result<Database> {
        self.validate()?;
        Database::recover(&env, path.as_ref(), self, None)
    }

    fn validate(&self) -> Result<()> {
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

/// Options of one put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    lifetime: Lifetime,
    pub(crate) condition: Condition,
    pub(crate) durability: Option<Durability>,
    pub(crate) type_tag: Option<TypeTag>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Lifetime {
    #[default]
    Endless,
    For(Duration),
    Until(SystemTime),
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    #[default]
    Always,
    Absent,
    Present,
    /// The stored value has expired. For the sweep, which found the index entry of `time`. The
    /// entry is removed whether or not the condition holds.
    Expired {
        /// Milliseconds since 1970.
        time: u64,
    },
}

impl Condition {
    /// Returns the entry of the expiry index that is removed with the write, whether or not its
    /// condition holds.
    #[inline]
    pub(crate) fn settles<'a>(self, table_id: u64, op: &Op<'a>) -> Option<Listing<'a>> {
        match (self, *op) {
            _ if mutant::active(Bug::SweepUnlistsOutsideStripe) => None,
            (Self::Expired { time }, Op::Delete { key }) => Some(Listing { time, table_id, key }),
            _ => None,
        }
    }
}

impl PutOptions {
    /// Returns the options of a plain put.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the value expire after `ttl`, counted from the call. Less than 1 ms fails with
    /// [`Error::Limit`].
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lifetime = Lifetime::For(ttl);
        self
    }

    /// Makes the value expire at `time`. A time that is not in the future fails with
    /// [`Error::Limit`].
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.lifetime = Lifetime::Until(time);
        self
    }

    /// Puts only if the key has no value; otherwise the put returns `false`. Replaces an earlier
    /// [`PutOptions::if_present`]. Costs a lookup.
    #[must_use]
    pub fn if_absent(mut self) -> Self {
        self.condition = Condition::Absent;
        self
    }

    /// Puts only if the key has a value; otherwise the put returns `false`. Replaces an earlier
    /// [`PutOptions::if_absent`]. Costs a lookup.
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.condition = Condition::Present;
        self
    }

    /// Overrides the database's durability for this write.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Stores a tag with the value. [`Value::type_tag`](crate::db::Value::type_tag) returns it.
    #[must_use]
    pub fn type_tag(mut self, tag: TypeTag) -> Self {
        self.type_tag = Some(tag);
        self
    }

    /// Returns the absolute expiry in milliseconds since 1970, for a clock that returns `now`.
    /// Fails with [`Error::Limit`] if it is not in the future.
    pub(crate) fn expiry(&self, now: impl FnOnce() -> u64) -> Result<Option<u64>> {
        let refuse = |what: &str| Err(Error::Limit { what: what.to_owned() });
        match self.lifetime {
            Lifetime::Endless => Ok(None),
            Lifetime::For(ttl) => match u64::try_from(ttl.as_millis()) {
                Ok(0) => refuse("a ttl must be at least 1 ms; to remove a key, delete it"),
                Ok(millis) => Ok(Some(now().saturating_add(millis))),
                Err(_) => Ok(Some(u64::MAX)),
            },
            Lifetime::Until(time) => {
                let millis = time
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
                if millis <= now() {
                    return refuse("the expiry is in the past; to remove a key, delete it");
                }
                Ok(Some(millis))
            }
        }
    }
}

/// Options of one delete.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions {
    pub(crate) condition: Condition,
    pub(crate) durability: Option<Durability>,
}

impl DeleteOptions {
    /// Returns the options of a plain delete.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes only if the key has a value. The delete returns whether it had one, and logs nothing
    /// if it had none.
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.condition = Condition::Present;
        self
    }

    /// Overrides the database's durability for this write.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// Fails with [`Error::Limit`] for a key outside its limits.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let what = format!("a key has {} bytes; keys have 1 to {KEY_BYTES_MAX}", key.len());
    Err(Error::Limit { what })
}

/// Fails with [`Error::Limit`] for a value outside its limits.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let what = format!("a value has {} bytes; values have 0 to {VALUE_BYTES_MAX}", value.len());
    Err(Error::Limit { what })
}

const _: () = assert!(to_u64(VALUE_BYTES_MAX) * 2 <= BATCH_BYTES_MAX);
const _: () = assert!(to_usize(SEGMENT_BYTES_MIN).is_power_of_two());
