//! The engine contract: what a table's index structure does for the database.
//!
//! Policy (when to flush, merge, recover) differs by engine. The log, atomicity, expiry and names
//! do not: `db` does them once, above all engines. This module has the trait [`Engine`] between the
//! two, the types that cross it, and [`Host`], the way back. It imports no engine;
//! [`crate::engine`] has the closed set of engines and dispatches to them.
//!
//! Invariants that every engine keeps:
//! - [`Engine::admit`] is the only method that refuses or delays a write. Once a write is logged,
//!   [`Engine::apply`] does not fail because of memory, disk space or compaction debt. An error
//!   from `apply` stops the table.
//! - Replay is idempotent: applying a record twice, in order, gives the same state.
//! - No effect of an LSN beyond the durable end of the log reaches a file that recovery reads. An
//!   engine calls [`Host::sync_log`] before it publishes such a file.
//! - [`Engine::checkpoint`] returns only LSNs below which every effect is durable in the table's
//!   own files.
//! - Values are stored as given. Engines do not interpret the envelope (`db::encoding::envelope`).
//! - Engines own no threads, clocks or randomness. They ask for background work with
//!   [`Host::wake`]; the database then asks [`Engine::pending_work`] and calls
//!   [`Engine::checkpoint`] or [`Engine::maintain`]. Short work in memory is a [`MemoryTask`].
//!
//! Threads: every method takes `&self` and may run on any number of threads. The database
//! serialises `apply` for one key, in log order, and runs at most one of `checkpoint` and
//! `maintain` of a table at a time. ARCHITECTURE.md has the lock order.

mod cursor;
mod direction;
mod memory_wait;
pub(crate) mod options;
mod room_attempts;
#[cfg(test)]
#[cfg(not(model))]
pub(crate) mod test_bench;
mod value;
pub(crate) mod value_sink;

use std::{
    fmt,
    ops::ControlFlow,
    sync::{Arc, Weak},
    time::Duration,
};

pub use cursor::Cursor;
pub(crate) use direction::Direction;
pub use memory_wait::MemoryWait;
pub(crate) use memory_wait::TRANSIENT_WAIT_MAX;
pub use options::{
    Compression, EngineKind, EngineOption, OptionAudience, OptionDefault, OptionValues,
    TableOptions,
};
pub(crate) use room_attempts::RoomAttempts;
pub use value::Value;
pub(crate) use value_sink::FoundValue;
pub use value_sink::{OwnedValue, ValueSink};

use crate::{
    Error, Result,
    io::{Dir, Env},
    util::{
        budget::Budget,
        codec::{KeyHash, Lsn},
        report::Report,
    },
};

/// Maximum number of times a write retries to reserve memory. Another writer may take memory that a
/// flush has just released.
const RESERVE_ATTEMPTS_MAX: u32 = 16;
/// Bytes by which logged operations may exceed the budget before [`Engine::make_room`] writes
/// something: each write of what is in memory costs syncs, so it should be worth them.
pub(crate) const LOGGED_SLACK_BYTES: u64 = 4 << 20;
/// Interval at which a waiting writer checks again.
pub(crate) const TRANSIENT_WAIT_STEP: Duration = Duration::from_millis(1);

/// One mutation of one table. A value is stored as `head` followed by `body`: `head` is the
/// database's envelope, `body` the user's bytes (replay passes both in `body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets the value of a key.
    Put {
        /// 1 to 65,535 bytes.
        key: &'a [u8],
        /// First part of the value.
        head: &'a [u8],
        /// Rest of the value.
        body: &'a [u8],
    },
    /// Removes a key, present or not.
    Delete {
        /// 1 to 65,535 bytes.
        key: &'a [u8],
    },
    /// Removes all keys from `start` (included) to `end` (excluded). Ordered engines only.
    DeleteRange {
        /// First key removed.
        start: &'a [u8],
        /// First key kept; empty for "to the last key".
        end: &'a [u8],
    },
}

/// One entry of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The stored value, envelope included.
    pub value: Value,
}

/// Keys from `start` (included) to `end` (excluded); `None` is unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// First key.
    pub start: Option<Vec<u8>>,
    /// First key past the range.
    pub end: Option<Vec<u8>>,
}

/// Callback of [`OrderedEngine::visit`]: gets key and stored value, and returns whether to go on.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>;

/// Entries of a range, in key order from the front and in reverse order from the back.
pub type EntryIter = Box<dyn DoubleEndedIterator<Item = Result<Entry>> + Send>;

/// Callback of [`MultiGetSink::Each`]: gets the index of a key in the request, and its value.
pub type EachValue<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

/// Where [`Engine::multi_get`] puts the values.
pub enum MultiGetSink<'a> {
    /// Appends them, in the order of the keys.
    Append(&'a mut Vec<Option<Value>>),
    /// Calls the function once for each key, in any order. The engine need not allocate a value.
    Each(&'a mut EachValue<'a>),
}

impl fmt::Debug for MultiGetSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append(_) => "Append",
            Self::Each(_) => "Each",
        })
    }
}

impl MultiGetSink<'_> {
    /// Runs `read`, which appends the values of `count` keys to a vector, and passes them on.
    pub(crate) fn fill(
        self,
        count: usize,
        read: impl FnOnce(&mut Vec<Option<Value>>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Append(out) => read(out),
            Self::Each(each) => {
                let mut values = Vec::with_capacity(count);
                read(&mut values)?;
                let mut values = values.iter().enumerate();
                values.try_for_each(|(index, value)| each(index, value.as_deref()))
            }
        }
    }
}

/// What will happen soon. Engines use it to prefetch memory or pages; ignoring it is correct.
pub enum Hint<'a, 'k> {
    /// Replay will apply an operation on this key a few records later.
    Replay(&'k [u8]),
    /// A write of the key with this hash ([`Context::hash`]) is in progress. `step` counts the
    /// cache misses that there was time for since step 0: the engine prefetches what it reads next.
    Write {
        /// The key. Empty for an operation on many keys.
        key: &'k [u8],
        /// Hash of the key.
        hash: u64,
        /// 0, 1 or 2.
        step: u32,
    },
    /// Operations on these keys will be admitted or applied. An engine whose pages are on disk
    /// reads them with many reads in flight. Others do not iterate.
    Batch(&'a mut dyn Iterator<Item = &'k [u8]>),
    /// These keys will be read soon, one at a time. The engine prefetches what their gets read, as
    /// far as it does so for a batched get.
    Gets(&'a [&'k [u8]]),
}

impl fmt::Debug for Hint<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replay(_) => "Replay",
            Self::Write { .. } => "Write",
            Self::Batch(_) => "Batch",
            Self::Gets(_) => "Gets",
        })
    }
}

/// How much [`Engine::maintain`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceMode {
    /// One bounded step of what [`Engine::pending_work`] found: the background job calls again.
    Step,
    /// As a step, on a disk that is full. Also gives free space inside of files back.
    SpaceStep,
    /// All that a user who asks for compaction expects: rewrites what wastes space and drops what
    /// has expired.
    Full,
}

/// A sorted load in progress ([`BulkLoad::begin_load`]). If it is dropped before
/// [`Load::adopt`], the table is unchanged and the load's space is free again.
pub trait Load: Send + fmt::Debug {
    /// Adds an entry, whose key must be above all others. After an error the load accepts no more.
    fn put(&mut self, key: &[u8], head: &[u8], body: &[u8]) -> Result<()>;
    /// Writes what can be written before the load is adopted.
    fn finish(&mut self) -> Result<()>;
    /// Makes the whole load durable and then visible, at once. Returns the LSN to which the table's
    /// files are complete. Everything below `up_to` is applied. Has the locking rules of
    /// [`Engine::checkpoint`].
    fn adopt(&mut self, up_to: Lsn) -> Result<Lsn>;
}

/// A load that was begun.
#[derive(Debug)]
pub struct LoadStart {
    /// The load.
    pub load: Box<dyn Load>,
    /// The table's last key. All keys of the load must be above it.
    pub last: Option<Vec<u8>>,
}

/// The background work that an engine wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingWork {
    /// None.
    None,
    /// [`Engine::checkpoint`].
    Checkpoint,
    /// [`Engine::maintain`] with [`MaintenanceMode::Step`].
    Maintain,
    /// None now. Ask again after a second: there is work that is better done when writes pause.
    Later,
}

/// Statistics of one table. Bytes and counts are current, not cumulative, unless the name ends in
/// `_total`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Live keys, including those that have expired and are not swept yet.
    pub keys: u64,
    /// Bytes of live keys and values.
    pub live_bytes: u64,
    /// Bytes in files that a compaction would free.
    pub dead_bytes: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// The part of `memory_bytes` that is index rather than data.
    pub index_bytes: u64,
    /// Bytes written to the table's files since the database was opened.
    pub written_bytes_total: u64,
    /// Statistics of this engine alone, by name.
    pub details: Vec<(&'static str, u64)>,
}

/// Answer of [`Engine::memory_use`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that the table could release to others without waiting for the disk.
    pub reclaimable_bytes: u64,
    /// Bytes that it could release after a checkpoint, because no file holds them yet.
    pub unwritten_bytes: u64,
    /// Uses since the table was opened, as
    /// [`Reclaimable::uses_total`](crate::util::budget::Reclaimable::uses_total) counts them.
    pub uses_total: u64,
}

/// Answer of [`Engine::exists_hint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The key has no value.
    Absent,
    /// The key has a value that never expires.
    Present,
    /// The value must be read to know.
    InValue,
}

/// Short work in memory that the database does in the background ([`Host::run_soon`]).
pub trait MemoryTask: Send + Sync + fmt::Debug {
    /// Does the work, some milliseconds of it. Reads and writes no file.
    fn run(&self);
}

/// What the database does for its engines.
pub trait Host: Send + Sync + fmt::Debug {
    /// Makes the log durable past every operation applied before the call. After an error an effect
    /// in memory may be missing from the log after a crash, so the engine publishes nothing and
    /// returns the error. Always fails while the log is replayed: replayed operations are known to
    /// be durable only when replay has ended. An engine that needs memory during replay can
    /// therefore evict only what its files hold already.
    fn sync_log(&self) -> Result<()>;
    /// Makes the database call [`Engine::pending_work`] soon. Cheap; may be called with locks held.
    fn wake(&self);
    /// Makes the database run a task soon on another thread, unless the task is dropped before. The
    /// task runs once for each call. The database may drop tasks when it is closed. Cheap; may be
    /// called with locks held.
    fn run_soon(&self, _task: Weak<dyn MemoryTask>) {}
    /// Returns whether [`Host::sync_log`] may succeed. If the log is being replayed, it returns
    /// `false`, and the database soon opens the log and replays the rest as writes. An engine asks
    /// only when it lacks memory.
    fn can_sync_log(&self) -> bool {
        true
    }
    /// Returns whether so much log has accumulated that the next checkpoint round should not wait
    /// for other work. Cheap.
    fn is_round_due(&self) -> bool {
        false
    }
    /// Returns whether a stored value has expired and may be dropped.
    fn is_expired(&self, stored: &[u8]) -> bool;
    /// Returns whether a stored value can expire. If not, the presence of its key alone shows that
    /// it has a value.
    fn expires(&self, _stored: &[u8]) -> bool {
        true
    }
}

/// What an engine gets when a table is opened.
#[derive(Clone, Debug)]
pub struct Context {
    /// Access to the operating system.
    pub env: Arc<dyn Env>,
    /// The table's own directory.
    pub dir: Arc<dyn Dir>,
    /// Identity of the database, written to the head of every file.
    pub database_id: [u8; 16],
    /// Number of the table, never reused, written to the head of every file.
    pub table_id: u64,
    /// The table's keyed hash function.
    pub hash: KeyHash,
    /// The database's memory budget.
    pub budget: Arc<Budget>,
    /// The database that the table belongs to.
    pub host: Arc<dyn Host>,
    /// The database is open read-only: nothing may be written.
    pub read_only: bool,
    /// The LSN to which the table's files are complete, according to the catalog. An engine whose
    /// files are complete to less removes nothing: the database refuses the table, and the missing
    /// files may be restored.
    pub complete: Lsn,
}

impl Context {
    /// Fails with `ReadOnly` if the database is open for reading only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Makes room for a change that is made even without it. See [`RoomAttempts::run`].
    pub(crate) fn try_room(
        &self,
        attempts: &RoomAttempts,
        make_room: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        attempts.run((&self.budget, &*self.env), make_room)
    }

    fn has_free(&self, bytes: u64) -> bool {
        self.budget.used().saturating_add(bytes) <= self.budget.limit()
    }

    /// Waits until `bytes` are free: at most [`TRANSIENT_WAIT_MAX`] after `began`, and as long as
    /// the commit may wait. Returns whether they are. Returns at once if no memory is transient and
    /// no checkpoint would release any. Must not be called by a thread that holds a transient
    /// reservation.
    pub(crate) fn await_release(&self, wait: &MemoryWait, began: Duration, bytes: u64) -> bool {
        while !self.has_free(bytes) {
            if !self.budget.is_release_pending() || wait.is_over() || self.has_waited(began) {
                return false;
            }
            wait.measure(&*self.env, || self.env.pause(TRANSIENT_WAIT_STEP));
            self.budget.reclaim(bytes);
        }
        true
    }

    /// Returns whether a caller that has waited since `began` must wait no longer for memory.
    pub(crate) fn has_waited(&self, began: Duration) -> bool {
        self.env.monotonic().saturating_sub(began) > TRANSIENT_WAIT_MAX
    }

    /// Calls `reserve` to reserve the memory of a write. Calls it again after
    /// [`Error::OutOfMemory`] while running work holds transient memory, and once after a wait for
    /// checkpoints of tables that can then release some. All waits of the commit together take at
    /// most [`TRANSIENT_WAIT_MAX`]. Must not be called by a thread that holds a transient
    /// reservation.
    pub(crate) fn reserve_with_retry(
        &self,
        wait: &MemoryWait,
        bytes: u64,
        mut reserve: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        match reserve() {
            Err(Error::OutOfMemory { .. }) => self.retry_reserve(wait, bytes, &mut reserve),
            outcome => outcome,
        }
    }

    #[cold]
    fn retry_reserve(
        &self,
        wait: &MemoryWait,
        bytes: u64,
        reserve: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut awaits_checkpoint = true;
        let began = self.env.monotonic();
        for _ in 0..RESERVE_ATTEMPTS_MAX {
            let has_more = self.budget.transient_bytes() > 0 || self.has_free(bytes);
            let may_follow = has_more || awaits_checkpoint && self.budget.is_release_pending();
            if !may_follow || wait.is_over() && !self.has_free(bytes) || self.has_waited(began) {
                break;
            }
            awaits_checkpoint &= has_more;
            self.host.wake();
            self.await_release(wait, began, bytes);
            match reserve() {
                Err(Error::OutOfMemory { .. }) => {}
                outcome => return outcome,
            }
        }
        reserve()
    }
}

/// A table's index structure. The module documentation lists the invariants of every engine.
///
/// No method has a default body except [`Engine::get`], so that the compiler finds a method that
/// the dispatch in [`crate::engine`] has forgotten.
pub trait Engine: Send + Sync {
    /// Passes the value of `key` to `sink` and returns what the sink made of it; `None` if there is
    /// no value. The sink may be called more than once; its last result counts.
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>>;

    /// Returns the value of `key`.
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.get_with(key, &mut OwnedValue)
    }

    /// Looks up many keys. Cache misses and disk reads of different keys overlap.
    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()>;

    /// Returns whether `key` has a value, as far as the engine knows without reading the value: for
    /// conditional writes.
    fn exists_hint(&self, key: &[u8]) -> Result<Presence>;

    /// Prefetches for an operation that will follow. Changes nothing that a caller can observe.
    fn prefetch(&self, hint: Hint<'_, '_>);

    /// Refuses or delays a write before it is logged, and reserves what [`Engine::apply`] needs.
    /// Waits for memory as long as `wait` of the commit allows.
    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()>;

    /// Returns the memory that `admit` reserves for a put, and that only `apply` can release. A
    /// batch needs the sum of its operations at once. 0 if [`Engine::make_room`] makes the room.
    fn admitted_bytes(&self, op: &Op<'_>) -> u64;

    /// Reverts an `admit` whose operation is not logged after all: a condition did not hold, or the
    /// log refused the record.
    fn cancel(&self, op: &Op<'_>);

    /// Makes room for a logged operation that is applied next: one of a batch, or of the log.
    ///
    /// `admit` sees the memory before the first operation of a batch. A batch may be larger than
    /// what the engine can change without writing, and so may the log. The engine writes to its
    /// files what then leaves memory. If that fails, the engine exceeds the budget, and tries again
    /// after a second. Fails only if a write fails and the budget is then exceeded by more than 8
    /// MiB: replay ends, a batch goes on. The caller may hold stripes and an in-flight slot whose
    /// record is copied.
    fn make_room(&self, op: &Op<'_>) -> Result<()>;

    /// Applies a logged operation. During replay there was no `admit`.
    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()>;

    /// Applies logged operations, each on one key, in their order, while the database is opened.
    /// Does what `apply` does for each, at a lower cost.
    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()>;

    /// Returns about `limit` entries from `from` on, and the cursor to continue with
    /// ([`Cursor::START`] at the end). An entry that is present throughout the whole scan is
    /// returned at least once. A scan ends even if the table is written meanwhile.
    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)>;

    /// Returns the order of scans by hashes; `None` for an engine that scans in key order.
    fn hash_order(&self) -> Option<&dyn HashOrder>;

    /// Returns the operations that need key order; `None` for an engine without order.
    fn ordered(&self) -> Option<&dyn OrderedEngine>;

    /// Makes every effect below `up_to` durable in the table's files (`up_to` is at most what is
    /// applied). Returns the LSN below which they are complete.
    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn>;

    /// Tells the engine that every operation below `up_to` is applied, and durable in the log. An
    /// engine that keeps its writes in persistent memory records how far it is complete, so that
    /// opening replays little, and returns that LSN. Cheap, and called during maintenance too.
    fn note_durable(&self, _up_to: Lsn) -> Option<Lsn> {
        None
    }

    /// Frees space: rewrites what is mostly dead and drops what has expired
    /// ([`Host::is_expired`]).
    fn maintain(&self, mode: MaintenanceMode) -> Result<()>;

    /// Verifies every file of the table, and that memory agrees with the files.
    fn check(&self, report: &mut Report) -> Result<()>;

    /// Returns what [`Engine::reclaim`] could release, and how much the table is used. Cheap.
    fn memory_use(&self) -> MemoryUse;

    /// Releases about `bytes` of memory that the files hold as well, for another table, and returns
    /// how many bytes it released. Requests a checkpoint of the table if that would release more.
    /// Does not wait: the caller may hold locks of its own table under
    /// which memory is reserved. An engine whose memory is all in objects that are
    /// [`Reclaimable`](crate::util::budget::Reclaimable) themselves returns 0.
    fn reclaim(&self, bytes: u64) -> u64;

    /// Returns the table's statistics.
    fn stats(&self) -> EngineStats;

    /// Returns the background work that the engine wants now. Cheap: a few loads. Changes nothing
    /// but the time stamps with which an engine detects that writes have paused.
    fn pending_work(&self) -> PendingWork;
}

/// The order of scans of an engine that finds its keys by hashes.
///
/// A page of [`Engine::scan`] from a cursor to the next one has exactly the entries whose positions
/// lie between those of the two cursors. After the table has shrunk, it may have earlier ones
/// again.
pub trait HashOrder: Send + Sync {
    /// Returns the position in scans of a key whose hash ([`Context::hash`]) is `hash`. It never
    /// changes.
    fn position(&self, key: &[u8], hash: u64) -> u64;

    /// Returns the position at which a scan continues from a cursor; 0 for [`Cursor::START`]. Fails
    /// if no scan returned the cursor.
    fn cursor_position(&self, cursor: &Cursor) -> Result<u64>;
}

/// Operations of the engines that keep their keys in order.
pub trait OrderedEngine: Send + Sync {
    /// Returns the entries of a range, from both ends.
    fn range(&self, range: KeyRange) -> Result<EntryIter>;

    /// Calls `each` for the entries of a range in key order until it breaks off. Allocates nothing
    /// per entry.
    fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()>;

    /// Returns about how many keys a range holds, within a small factor, at the cost of a few block
    /// or page reads.
    fn estimate_count(&self, range: &KeyRange) -> Result<u64>;

    /// Returns the sorted load of the engine, if it has one that is faster than [`Engine::apply`].
    fn bulk(&self) -> Option<&dyn BulkLoad>;
}

/// Sorted loads that bypass the log.
pub trait BulkLoad: Send + Sync {
    /// Begins a load of entries in ascending order, above all keys of the table. Until it is
    /// adopted or dropped, the database applies nothing to the table and does not maintain it.
    fn begin_load(&self) -> Result<LoadStart>;
}

/// [`Engine::replay`] of an engine that applies the operations one by one: prefetches all, then
/// applies.
pub(crate) fn replay_one_by_one(engine: &impl Engine, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
    for (_, op) in ops {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            engine.prefetch(Hint::Replay(key));
        }
    }
    ops.iter().try_for_each(|(lsn, op)| engine.apply(*lsn, op))
}

/// The error for an operation that needs key order on a table without it.
pub(crate) fn unordered(context: &Context, kind: EngineKind) -> Error {
    Error::Unordered { table: context.table_id.to_string(), engine: kind.name() }
}
