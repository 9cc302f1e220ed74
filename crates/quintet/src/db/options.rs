//! What can be chosen, and every limit.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Database, expiry::Listing};
use crate::{
    Error, Result,
    contract::Op,
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

/// Longest key in bytes. Keys have at least one byte.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value in bytes (512 MiB).
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// Largest batch in bytes (1 GiB), as encoded: keys, values and a few bytes for each operation.
pub const BATCH_BYTES_MAX: u64 = 1 << 30;
/// Longest component of a table's path, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most components of a table's path.
pub const NAME_DEPTH_MAX: usize = 32;

/// Less leaves no room for the log.
pub(super) const MEMORY_BUDGET_MIN: u64 = 1 << 20;
const RECOVERY_BUDGET_DEFAULT: u64 = 256 << 20;
const RECOVERY_BUDGET_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_DEFAULT: u64 = 32 << 20;
#[cfg(not(model))]
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// A model checker may switch threads at each word.
#[cfg(model)]
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// As late as the loss after a power failure is still a blink.
const SYNC_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process at once; a power loss after `sync_interval` at the latest. After a
    /// power loss the state is a prefix of the commits.
    #[default]
    Buffered,
    /// A power loss: the call returns when the log is on the disk.
    Sync,
}

/// How to open a database.
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
    /// The defaults, as each method says.
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

    /// The durability of writes that do not choose their own (`Buffered`).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Bounds what the whole database keeps in memory, in bytes (a quarter of what the process may
    /// use). At least 1 MiB. Writes that would exceed it fail with [`Error::OutOfMemory`]; what is
    /// already acknowledged is always loaded.
    #[must_use]
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// How long a `Buffered` write may wait for its sync in the background (100 ms; from 1 ms to 1
    /// hour).
    #[must_use]
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval;
        self
    }

    /// Bounds the bytes of log that opening replays (256 MiB; at least 64 KiB). Over the last
    /// quarter, from 4 MiB on, each write waits a little, at most 20 ms; a write that comes to the
    /// bound waits until what it bounds is persisted.
    #[must_use]
    pub fn recovery_budget(mut self, bytes: u64) -> Self {
        self.recovery_budget = bytes;
        self
    }

    /// Opens for reading only (`false`): nothing is written, other read-only handles may have the
    /// database open at the same time, and writes fail with [`Error::ReadOnly`].
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Makes a database where there is none (`true`); else opening fails with
    /// [`Error::NotADatabase`].
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Size of a log file in bytes, a power of two from 64 KiB to 1 GiB (32 MiB). At most an
    /// eighth of the memory budget is used.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// For experiments: has the page cache stand in for persistent memory under the log. A
    /// `Sync` write then returns when its lines were written back, `write_latency` for each line,
    /// and at most at this bandwidth (bytes a second; 0: no limit), instead of after a sync of
    /// the disk: **it survives the death of the process, and no power loss**, after which the
    /// database may be refused as damaged.
    ///
    /// Without this, a log on a file system with persistent memory (DAX with `MAP_SYNC`) is
    /// recognized and written back line by line, and `Sync` keeps its whole promise.
    #[must_use]
    pub fn emulate_persistent_memory(
        mut self,
        write_latency: Duration,
        bytes_per_second: u64,
    ) -> Self {
        self.memory = Memory::Emulated(Slowness { line: write_latency, bytes_per_second });
        self
    }

    /// Opens the database in the directory `path`.
    ///
    /// Fails with [`Error::Locked`] where somebody else has it open, [`Error::NotADatabase`],
    /// [`Error::Corruption`] for damage that was found, [`Error::InvalidOption`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.validate()?;
        let env: Arc<dyn Env> = Arc::new(OsEnv::new().on(self.memory));
        Database::recover(&env, path.as_ref(), self, None)
    }

    /// As [`Options::open`], on a system of the caller's choice: a simulated one. For tests.
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

    /// The budget in bytes on `env`.
    pub(crate) fn budget_on(&self, env: &dyn Env) -> u64 {
        self.memory_budget.unwrap_or_else(|| (env.memory_bytes() / 4).max(MEMORY_BUDGET_MIN))
    }

    /// The size of log files under a memory budget: both the tail and the next one are mapped.
    pub(crate) fn segment_bytes_within(&self, budget: u64) -> u64 {
        let eighth = 1_u64 << (budget / 8).max(1).ilog2();
        self.segment_bytes.min(eighth).max(SEGMENT_BYTES_MIN)
    }
}

/// How one put is done.
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

/// What must hold for a write to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    #[default]
    Always,
    Absent,
    Present,
    /// The stored value is past its expiry. For the sweep, which looked because of the listing of
    /// `time`: that goes in any case.
    Expired {
        /// Milliseconds since 1970.
        time: u64,
    },
}

impl Condition {
    /// The entry of the expiry index that goes with a write, done or not.
    #[inline]
    pub(super) fn settles<'a>(self, table_id: u64, op: &Op<'a>) -> Option<Listing<'a>> {
        match (self, *op) {
            _ if mutant::active(Bug::SweepUnlistsOutsideStripe) => None,
            (Self::Expired { time }, Op::Delete { key }) => Some(Listing { time, table_id, key }),
            _ => None,
        }
    }
}

impl PutOptions {
    /// A plain put.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value goes away after this time, counted from the call. At least 1 ms.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lifetime = Lifetime::For(ttl);
        self
    }

    /// The value goes away at this time, which must be in the future.
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.lifetime = Lifetime::Until(time);
        self
    }

    /// Only where the key has no value. Replaces an earlier [`PutOptions::if_present`].
    #[must_use]
    pub fn if_absent(mut self) -> Self {
        self.condition = Condition::Absent;
        self
    }

    /// Only where the key has a value. Replaces an earlier [`PutOptions::if_absent`].
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.condition = Condition::Present;
        self
    }

    /// In place of the database's durability.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// What the value is: kept with it and returned by
    /// [`Value::type_tag`](super::Value::type_tag).
    #[must_use]
    pub fn type_tag(mut self, tag: TypeTag) -> Self {
        self.type_tag = Some(tag);
        self
    }

    /// The absolute expiry at a clock that says `now`.
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

/// How one delete is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions {
    pub(crate) condition: Condition,
    pub(crate) durability: Option<Durability>,
}

impl DeleteOptions {
    /// A plain delete.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only where the key has a value: the answer says whether it had one, and nothing is logged
    /// where it had none.
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.condition = Condition::Present;
        self
    }

    /// In place of the database's durability.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// Refuses a key outside its limits.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let what = format!("a key has {} bytes; keys have 1 to {KEY_BYTES_MAX}", key.len());
    Err(Error::Limit { what })
}

/// Refuses a value outside its limits.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let what = format!("a value has {} bytes; values have 0 to {VALUE_BYTES_MAX}", value.len());
    Err(Error::Limit { what })
}

const _: () = assert!(to_u64(VALUE_BYTES_MAX) * 2 <= BATCH_BYTES_MAX);
const _: () = assert!(to_usize(SEGMENT_BYTES_MIN).is_power_of_two());
