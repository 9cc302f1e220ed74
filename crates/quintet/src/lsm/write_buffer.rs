//! The write buffer of the LSM engines: the active and frozen memtables, and the current version of
//! the file set.
//!
//! Readers load one [`SuperVersion`] at a time, which is replaced as a whole. A write is admitted
//! first: it reserves its memory before it is logged, so that a logged write cannot fail for lack
//! of memory. If memtables fill faster than flushes empty them, writers are delayed, and finally
//! flush themselves ([`FlushTarget`]).
//!
//! A memtable may be frozen at less than a flush writes, so that inserts find it in the processor's
//! caches. The code calls such small memtables lists. The lists of one flush are a group and share
//! a filter, which a get asks first.
//!
//! Invariants:
//! - While a thread holds `writing` exclusively, no insert into the active memtable is under way.
//!   So a frozen memtable never changes.
//! - What [`WriteBuffer::admit`] reserves is released by [`WriteBuffer::cancel`] or belongs to the
//!   memtable.
//!
//! Threads: any; gets take no lock. Lock order: `reserving`, the engine's locks of flushes and
//! merges, `writing`, the engine's lock of its manifest, `installing`.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::{
    empty_ranges::EmptyRanges,
    memtable::{
        Filter, Memtable, cost,
        pool_memtables::{ListedMemtable, PoolMemtables},
    },
    super_version::SuperVersion,
    table_hasher::TableHasher,
};
use crate::{
    Error, Result,
    contract::{Context, MemoryWait, Op, RoomAttempts, TRANSIENT_WAIT_STEP},
    io::{Stopwatch, write_throttle::DELAY_MAX},
    lsm::{
        memtable::arenas::Arenas,
        range::RangeSource,
        rate_limiter::{IdleDetector, RATE_MIN, RateLimiter, Throughput, micros},
    },
    util::{
        codec::{Lsn, to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, read, shared_work::SharedWork},
    },
};

/// Maximum number of times a writer flushes or waits before its write is refused. Other writers may
/// take the memory that a flush releases.
const RESERVE_RETRIES_MAX: u32 = 16;
/// Longest time a writer waits for running work to release memory before it flushes a small
/// memtable.
const SMALL_FLUSH_WAIT_MAX: Duration = Duration::from_millis(40);
/// A list is frozen at no less than this fraction (1/16) of its maximum size.
const LIST_FRACTION_MIN: u64 = 16;
/// A list takes at most this fraction (1/8) of the memory that the indexes leave.
const LIST_MEMORY_FRACTION: u64 = 8;
/// Maximum size of a memtable of replayed operations, in bytes. Replay reserves memory past the
/// budget, so it is bounded.
const REPLAYED_BYTES_MAX: u64 = 64 << 20;
/// More than this many times the frozen memtables that writers leave are flushed at once.
const FROZEN_FACTOR_MAX: u64 = 2;
/// Longest time a frozen memtable waits for others to be flushed with it.
const FROZEN_WAIT_MAX: Duration = Duration::from_secs(2);

/// The engine behind a write buffer: what the buffer needs from it.
pub(crate) trait FlushTarget<V> {
    /// Flushes the frozen memtables; if there are none, the active one.
    fn flush_backlog(&self) -> Result<()>;
    /// Waits for running work that releases memory when it ends.
    fn await_work(&self);
    /// Called before a super version is installed: computes the rate that writers are limited to.
    fn set_rate(&self, view: &SuperVersion<V>);
}

/// Counters since the table was opened.
#[derive(Debug, Default)]
pub(crate) struct WriteBufferCounters {
    pub(crate) helps_total: AtomicU64,
    pub(crate) delays_total: AtomicU64,
    pub(crate) delay_micros_total: AtomicU64,
    /// Microseconds that writers spent on flushes and waits for memory: the sum, and the longest.
    pub(crate) stall_micros_total: AtomicU64,
    pub(crate) stall_micros_max: AtomicU64,
}

/// The memtables of a pool that an opening has left to read.
#[derive(Debug, Default)]
pub(super) struct UnreadMemtables {
    /// Whether there are any: readers look only here.
    pub(super) are_left: AtomicBool,
    /// Lock order: before `installing`.
    pub(super) state: Mutex<UnreadState>,
}

/// The lists that are left and the memtables that were read. The super version gets all at once.
#[derive(Debug, Default)]
pub(super) struct UnreadState {
    /// The lists to read, newest first.
    pub(super) lists: Vec<ListedMemtable>,
    /// Those that were read, older than `lists`, newest first.
    pub(super) read: Vec<Arc<Memtable>>,
}

/// The write buffer of one table. See the module head.
#[derive(Debug)]
pub(crate) struct WriteBuffer<V> {
    pub(super) context: Context,
    pub(crate) hasher: TableHasher,
    /// Bytes of memtables that one flush writes, and the maximum number of such amounts in memory,
    /// the active one included.
    pub(super) memtable_bytes: u64,
    memtables: u64,
    /// Number of lists of one flush. A list is frozen at this fraction of `memtable_bytes`.
    pub(super) lists: u64,
    /// Recycles the memory of memtables.
    pub(super) arenas: Arc<Arenas>,
    /// Where memtables are in a pool of persistent memory.
    pub(super) pool: Option<Arc<PoolMemtables>>,
    pub(super) unread: UnreadMemtables,
    /// Parts of the key space without a value, which scans skip.
    pub(crate) empty_ranges: Arc<EmptyRanges>,
    pub(crate) view: ArcSwap<SuperVersion<V>>,
    /// Held while the super version is replaced.
    pub(super) installing: Mutex<()>,
    /// Held shared during an insert into the active memtable, exclusively to freeze it.
    pub(super) writing: RwLock<()>,
    /// Of the writer that finds memory for all writers that wait for it.
    reserving: SharedWork,
    /// Bytes of memory for memtables and work: the budget without what indexes use.
    work_memory_bytes: AtomicU64,
    /// Monotonic time in microseconds of the last install of a version, or of the freeze that found
    /// no other frozen memtable.
    pub(super) frozen_since: AtomicU64,
    /// Bytes reserved by `admit` that are neither inserted nor cancelled yet.
    pub(super) reserved: AtomicU64,
    /// Rate that writers are limited to, in bytes a second; 0: none.
    write_rate: AtomicU64,
    write_limiter: RateLimiter,
    /// Bytes of memtables that flushes write a second.
    pub(crate) flushed: Throughput,
    idle: IdleDetector,
    pub(super) room_attempts: RoomAttempts,
    pub(crate) counters: WriteBufferCounters,
}

fn no_space(error: std::io::Error) -> Error {
    Error::address_space("a memtable", error)
}

pub(super) fn new_memtable(
    arenas: &Arc<Arenas>,
    group: Option<&Arc<Filter>>,
    ranges: &Arc<EmptyRanges>,
    context: &Context,
) -> Result<Arc<Memtable>> {
    Memtable::new(arenas, group, ranges, &context.budget).map(Arc::new).map_err(no_space)
}

pub(super) fn new_group(bytes: u64, context: &Context) -> Result<Arc<Filter>> {
    Filter::new(bytes, &context.budget).map(Arc::new).map_err(no_space)
}

impl<V> WriteBuffer<V> {
    /// Creates a write buffer with an empty memtable. A memtable is frozen at `list_bytes_max` even
    /// if a flush writes more. `hash_mask` has the bits of a key's hash that the table uses. Fails
    /// if the system has no address space.
    pub(crate) fn new(
        context: &Context,
        (memtable_bytes, memtables): (u64, u64),
        list_bytes_max: u64,
        hash_mask: u64,
        version: V,
    ) -> Result<Self> {
        let lists = memtable_bytes.div_ceil(list_bytes_max).max(1);
        let group = (lists > 1).then(|| new_group(memtable_bytes, context)).transpose()?;
        // While the lists of one flush are written, writers fill as many.
        let arenas =
            Arenas::new((memtable_bytes / lists, 2 * lists), &context.budget, context.table_id);
        let empty_ranges = EmptyRanges::new(&context.budget);
        let active = new_memtable(&arenas, group.as_ref(), &empty_ranges, context)?;
        let view = SuperVersion { active, frozen: Vec::new(), version: Arc::new(version) };
        Ok(Self {
            context: context.clone(),
            hasher: TableHasher { hash: context.hash, hash_mask },
            memtable_bytes,
            memtables,
            lists,
            arenas,
            pool: None,
            unread: UnreadMemtables::default(),
            empty_ranges,
            view: ArcSwap::new(Arc::new(view)),
            installing: Mutex::new(()),
            writing: RwLock::new(()),
            reserving: SharedWork::default(),
            work_memory_bytes: AtomicU64::new(u64::MAX),
            frozen_since: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            write_rate: AtomicU64::new(0),
            write_limiter: RateLimiter::default(),
            flushed: Throughput::default(),
            idle: IdleDetector::default(),
            room_attempts: RoomAttempts::default(),
            counters: WriteBufferCounters::default(),
        })
    }

    /// Returns the hash of a key, in the bits that the table uses.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Moves `bytes` out of `reserved`. Returns `false` in replay, where nothing was admitted.
    fn claim_reserved(&self, bytes: u64) -> bool {
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| held.checked_sub(bytes))
            .is_ok()
    }

    /// Returns the bytes at which a list is frozen: fewer if indexes leave little memory.
    pub(super) fn list_bytes(&self) -> u64 {
        let most = self.memtable_bytes / self.lists;
        let share = self.work_memory_bytes() / LIST_MEMORY_FRACTION / self.lists;
        share.clamp(most / LIST_FRACTION_MIN, most)
    }

    /// Returns the bytes of memory for memtables and work.
    pub(crate) fn work_memory_bytes(&self) -> u64 {
        self.work_memory_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes of memory for memtables and work.
    pub(crate) fn set_work_memory_bytes(&self, bytes: u64) {
        self.work_memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether a flush is due: the lists of one flush are frozen, or one has waited for
    /// [`FROZEN_WAIT_MAX`]. Each list slows gets and scans down.
    pub(crate) fn is_flush_due(&self, view: &SuperVersion<V>) -> bool {
        let waits = || {
            let since = Duration::from_micros(self.frozen_since.load(Ordering::Relaxed));
            self.context.env.monotonic().saturating_sub(since) >= FROZEN_WAIT_MAX
        };
        to_u64(view.frozen.len()) >= self.lists || (!view.frozen.is_empty() && waits())
    }

    /// Returns whether writers must wait for a flush.
    pub(super) fn is_backed_up(&self, view: &SuperVersion<V>) -> bool {
        to_u64(view.frozen.len()) >= (self.memtables - 1) * self.lists
    }

    /// Returns the number of frozen memtables above which every writer flushes. Writers never leave
    /// more than half: the others are of processes that ended before they flushed any.
    pub(crate) fn frozen_max(&self) -> usize {
        to_usize(FROZEN_FACTOR_MAX * (self.memtables - 1) * self.lists)
    }

    /// Returns whether only one of the amounts that a flush writes is left before writers must
    /// wait.
    pub(crate) fn is_nearly_full(&self, view: &SuperVersion<V>) -> bool {
        to_u64(view.frozen.len()) >= (self.memtables.max(3) - 2) * self.lists
    }

    /// Freezes the active memtable if it is full. If too many wait for a flush, the caller flushes
    /// first.
    pub(super) fn rotate_if_full(&self, target: &impl FlushTarget<V>) -> Result<()> {
        let full = |view: &SuperVersion<V>| {
            view.active.charged() >= self.list_bytes() || view.frozen.len() > self.frozen_max()
        };
        if !full(&self.view.load()) {
            return Ok(());
        }
        // A writer that waits holds no super version: it would keep the flushed memtables in
        // memory.
        if self.is_backed_up(&self.view.load_full()) {
            self.flush_in_writer(target)?;
        }
        let view = self.view.load_full();
        if full(&view) && !self.is_backed_up(&view) {
            self.rotate(&view.active, target)?;
            self.context.host.wake();
        }
        Ok(())
    }

    /// Makes the calling writer flush.
    pub(super) fn flush_in_writer(&self, target: &impl FlushTarget<V>) -> Result<()> {
        let began = self.context.env.monotonic();
        let outcome = target.flush_backlog();
        self.counters.helps_total.fetch_add(1, Ordering::Relaxed);
        self.record_stall(began);
        outcome
    }

    fn record_stall(&self, began: Duration) {
        let time = self.context.env.monotonic().saturating_sub(began);
        Stopwatch::record_time(|counters| counters.write_delay_time += time);
        let micros = micros(time);
        self.counters.stall_micros_total.fetch_add(micros, Ordering::Relaxed);
        self.counters.stall_micros_max.fetch_max(micros, Ordering::Relaxed);
    }

    /// Reserves the memory of an operation, if the budget has it.
    fn try_reserve(&self, bytes: u64) -> Result<()> {
        self.context.budget.reserve(bytes)?;
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Reserves the memory of an operation. If the budget has none, flushes or waits for work that
    /// releases some, up to [`RESERVE_RETRIES_MAX`] times. Then it fails with `OutOfMemory`.
    pub(super) fn reserve(
        &self,
        bytes: u64,
        wait: &MemoryWait,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        if self.try_reserve(bytes).is_ok() { Ok(()) } else { self.find_memory(bytes, wait, target) }
    }

    #[cold]
    #[inline(never)]
    fn find_memory(
        &self,
        bytes: u64,
        wait: &MemoryWait,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        let (began, mut rounds) = (self.context.env.monotonic(), 0);
        while rounds < RESERVE_RETRIES_MAX {
            self.await_memory(wait, began, bytes);
            // One writer at a time: a single flush may release enough for all.
            let reserving = self.reserving.begin_or_wait();
            if self.try_reserve(bytes).is_ok() {
                self.record_stall(began);
                return Ok(());
            }
            if reserving.is_none() {
                if !wait.count_turn() {
                    break;
                }
                continue;
            }
            rounds += 1;
            if !self.view.load().is_unwritten() {
                self.counters.helps_total.fetch_add(1, Ordering::Relaxed);
                target.flush_backlog()?;
            } else if self.context.budget.transient_bytes() > 0 && !wait.is_over() {
                // With nothing to flush, wait for a part of the running work first, then for all of
                // it.
                let now = self.context.env.monotonic();
                if !self.context.await_release(wait, now, bytes) {
                    wait.measure(&*self.context.env, || target.await_work());
                }
            } else {
                break;
            }
        }
        self.record_stall(began);
        self.try_reserve(bytes)
    }

    /// Waits up to [`SMALL_FLUSH_WAIT_MAX`] for running work to release memory, while there is
    /// little to flush. Many small files cost more than the wait. The work itself may take seconds.
    fn await_memory(&self, wait: &MemoryWait, began: Duration, bytes: u64) {
        let is_small = |view: &SuperVersion<V>| {
            view.frozen.is_empty() && view.active.charged() < self.list_bytes() / 2
        };
        let (env, budget) = (&self.context.env, &self.context.budget);
        while budget.used().saturating_add(bytes) > budget.limit()
            && budget.transient_bytes() > 0
            && is_small(&self.view.load())
            && env.monotonic().saturating_sub(began) < SMALL_FLUSH_WAIT_MAX
            && !wait.is_over()
        {
            wait.measure(&**env, || env.pause(TRANSIENT_WAIT_STEP));
        }
    }

    /// Admits an operation: reserves its memory before it is logged. May delay the caller, make it
    /// flush, or fail with `OutOfMemory` or the error of a flush. Deletes free space: see
    /// [`WriteBuffer::admit_delete`].
    pub(crate) fn admit(
        &self,
        op: &Op<'_>,
        wait: &MemoryWait,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        match op {
            Op::Put { .. } => {
                self.rotate_if_full(target)?;
                self.delay(cost(op));
                self.reserve(cost(op), wait, target)
            }
            Op::Delete { .. } => self.admit_delete(op, wait, target),
            Op::DeleteRange { .. } => {
                self.context.try_room(&self.room_attempts, || self.rotate_if_full(target))
            }
        }
    }

    /// Releases the memory of an admitted operation that is not inserted.
    pub(crate) fn cancel(&self, op: &Op<'_>) {
        if self.claim_reserved(cost(op)) {
            self.context.budget.release(cost(op));
        }
    }

    /// Prefetches what an insert of this hash reads first. A hint.
    #[inline]
    pub(crate) fn prefetch_insert(&self, hash: u64) {
        self.view.load().active.prefetch(hash);
    }

    /// Applies an operation. `source` returns what the scan of a range delete reads.
    pub(crate) fn apply<T: FlushTarget<V>, S: RangeSource<Table = T>>(
        &self,
        lsn: Lsn,
        op: &Op<'_>,
        target: &T,
        source: impl FnOnce(&SuperVersion<V>) -> S,
    ) -> Result<()> {
        match op {
            Op::Put { key, .. } | Op::Delete { key } => {
                self.insert(lsn, op, self.hash(key), target)
            }
            Op::DeleteRange { start, end } => self.delete_range(lsn, (start, end), target, source),
        }
    }

    /// Inserts an operation on one key with this hash. Freezes the active memtable if the operation
    /// does not fit. Fails if it does not fit an empty one.
    pub(super) fn insert(
        &self,
        lsn: Lsn,
        op: &Op<'_>,
        hash: u64,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        if !self.claim_reserved(cost(op)) {
            self.context.budget.reserve_unchecked(cost(op));
        }
        loop {
            let active = {
                let _writing = read(&self.writing);
                let view = self.view.load();
                if let Some(entries) = view.active.insert(lsn.0, op, hash) {
                    view.active.request_work(entries, &*self.context.host);
                    return Ok(());
                }
                Arc::clone(&view.active)
            };
            if active.is_empty() && active.is_in_pool() {
                self.leave_pool(&active, target)?;
                continue;
            }
            if active.is_empty() {
                let needed = cost(op);
                return Err(Error::OutOfMemory { budget: self.context.budget.limit(), needed });
            }
            self.rotate(&active, target)?;
        }
    }

    /// Inserts replayed operations, each on one key. They go to memtables larger than lists: during
    /// replay no insert benefits from a memtable that fits the processor's caches, and each list
    /// slows reads down.
    pub(crate) fn insert_replayed(
        &self,
        ops: &[(Lsn, Op<'_>)],
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        let bytes = ops.iter().map(|(_, op)| cost(op)).sum();
        self.context.budget.reserve_unchecked(bytes);
        loop {
            let (active, has_inserted) = {
                let _writing = read(&self.writing);
                let view = self.view.load();
                let has_inserted = view.active.insert_many(ops, bytes, |key| self.hash(key));
                if has_inserted && !view.active.is_full() {
                    return Ok(());
                }
                (Arc::clone(&view.active), has_inserted)
            };
            if active.is_in_pool() {
                if active.is_empty() {
                    self.leave_pool(&active, target)?;
                } else {
                    self.rotate(&active, target)?;
                }
                if has_inserted {
                    return Ok(());
                }
                continue;
            }
            if active.is_empty() {
                let limit = self.context.budget.limit();
                return Err(Error::OutOfMemory { budget: limit, needed: bytes });
            }
            let bytes = self.memtable_bytes.min(REPLAYED_BYTES_MAX);
            let arenas = Arenas::new((bytes, 0), &self.context.budget, self.context.table_id);
            let empty = new_memtable(&arenas, None, &self.empty_ranges, &self.context)?;
            self.install_memtable(empty, &active, target)?;
            if has_inserted {
                return Ok(());
            }
        }
    }

    /// Freezes the active memtable if it is full: for operations that were not admitted one by one.
    pub(super) fn rotate_full(&self, target: &impl FlushTarget<V>) -> Result<()> {
        let active = Arc::clone(&self.view.load().active);
        if active.charged() >= self.list_bytes() {
            self.rotate(&active, target)?;
            self.context.host.wake();
        }
        Ok(())
    }

    /// Splits the frozen memtables into newer ones and the oldest ones to flush next: about as many
    /// bytes as a flush writes, because each flush costs a file.
    pub(crate) fn oldest<'f>(
        &self,
        frozen: &'f [Arc<Memtable>],
    ) -> (&'f [Arc<Memtable>], &'f [Arc<Memtable>]) {
        let mut bytes = 0;
        let oldest = frozen.iter().rev().take_while(|memtable| {
            bytes += memtable.charged();
            bytes <= self.memtable_bytes / 4 * 5
        });
        frozen.split_at(frozen.len() - oldest.count().max(1).min(frozen.len()))
    }

    /// Records how long a flush took.
    pub(crate) fn record_flush(&self, memtables: &[Arc<Memtable>], began: Duration) {
        let bytes: u64 = memtables.iter().map(|memtable| memtable.charged()).sum();
        // A tiny flush does not measure the disk.
        if bytes >= self.list_bytes() * self.lists / 4 {
            self.flushed.note(bytes, self.context.env.monotonic().saturating_sub(began));
        }
    }

    /// Delays a write if writers are limited to a rate.
    #[inline]
    fn delay(&self, bytes: u64) {
        let rate = self.write_rate();
        if rate > 0 {
            self.delay_at(bytes, rate);
        }
    }

    #[cold]
    fn delay_at(&self, bytes: u64, rate: u64) {
        let rate = {
            let view = self.view.load();
            // The last memtable fills ever more slowly: the flush before it may take longer than
            // the ones that were measured.
            let left = self.list_bytes().saturating_sub(view.active.charged());
            let share = if self.is_backed_up(&view) { left * 100 / self.list_bytes() } else { 100 };
            (rate / 100 * share).max(RATE_MIN)
        };
        let waited = self.write_limiter.throttle(&*self.context.env, bytes, rate, DELAY_MAX);
        if !waited.is_zero() {
            let counters = &self.counters;
            counters.delays_total.fetch_add(1, Ordering::Relaxed);
            counters.delay_micros_total.fetch_add(micros(waited), Ordering::Relaxed);
        }
    }

    /// Returns the rate in bytes a second that writers are limited to; 0: none.
    pub(crate) fn write_rate(&self) -> u64 {
        self.write_rate.load(Ordering::Relaxed)
    }

    /// Limits writers to a rate in bytes a second; 0: no limit.
    pub(crate) fn set_write_rate(&self, rate: u64) {
        self.write_rate.store(rate, Ordering::Relaxed);
    }

    /// Returns the bytes reserved for operations that are not inserted yet.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Returns whether no write came for 0.9 seconds.
    pub(crate) fn is_at_rest(&self, active: &Memtable) -> bool {
        self.idle.is_idle(&*self.context.env, active.charged())
    }
}

impl<V> Drop for WriteBuffer<V> {
    fn drop(&mut self) {
        self.context.budget.release(self.reserved.load(Ordering::Relaxed));
    }
}
