//! The front: the memtables that writers insert into, and the version of the files behind them.
//!
//! What: one [`SuperVersion`] at a time, swapped whole; room for writes, found before they are logged.
//! A write is admitted with what it needs drawn from the budget, inserted, and no more; where
//! memtables fill faster than they are flushed, writers are delayed and in the end flush
//! themselves ([`FlushTarget`]).
//!
//! Memtables may be frozen at less than is flushed at once, so that inserts find their places in
//! the processor's caches; those that are flushed together are a group with one filter, which a
//! get asks first.
//!
//! Invariants: with `writing` held alone nothing is on its way into the active memtable, so a
//! frozen one never changes. What `admit` drew from the budget is given back by `retract` or
//! belongs to the memtable.
//!
//! Thread rules: any thread; gets take no lock. Lock order: `relieving`, the engine's own locks of
//! flushes and merges, `writing`, whatever publishes, `viewing`.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use super::memtable::{Answer, Filter, Memtable, cost};
use crate::{
    Error, Result,
    contract::{Context, Op, TRANSIENT_WAIT_STEP, ValueSink},
    io::write_throttle::DELAY_MAX,
    lsm::{
        memtable::arenas::Arenas,
        rate_limiter::{IdleDetector, RATE_MIN, RateLimiter, Throughput, micros},
    },
    util::{
        codec::{Lsn, to_u64},
        sync::{AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
    },
};

/// How often a writer helps, or waits for work, before its write is refused: others may be quicker
/// to take what that gives.
const HELPS_MAX: u32 = 16;
/// So long a writer waits for the memory of work that is under way rather than flush little.
const AWAIT_MAX: Duration = Duration::from_millis(40);
/// Lists are never frozen at less than this part of what they may have.
const LIST_SHARE_MIN: u64 = 16;
/// A list takes at most this part of the memory that indexes leave.
const ROOM_SHARE: u64 = 8;
/// A memtable of what is replayed takes at most so much: opening fills memory that it has to get.
const REPLAYED_BYTES_MAX: u64 = 64 << 20;
/// What is frozen waits at most this long for others to be flushed with.
const FROZEN_MAX: Duration = Duration::from_secs(2);

/// What readers see.
#[derive(Debug)]
pub(crate) struct SuperVersion<V> {
    /// The memtable that is written to.
    pub(crate) active: Arc<Memtable>,
    /// Those that wait for a flush, newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// The files.
    pub(crate) version: Arc<V>,
}

impl<V> SuperVersion<V> {
    /// The same once more.
    pub(crate) fn share(&self) -> Self {
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.clone(),
            version: Arc::clone(&self.version),
        }
    }

    /// Whether the memtables have nothing.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.active.is_empty() && self.frozen.is_empty()
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// What the memtables say of a key.
    #[inline]
    pub(crate) fn in_memory<T: ValueSink>(
        &self,
        hash: u64,
        key: &[u8],
        take: &mut T,
    ) -> Answer<T::Output> {
        let mut asked: Option<(&Arc<Filter>, bool)> = None;
        for memtable in self.memtables() {
            // The one that is written to may have nothing, and its filter costs a line of memory.
            if memtable.is_empty() {
                continue;
            }
            let may_have = memtable.group().is_none_or(|group| match asked {
                Some((last, may_have)) if Arc::ptr_eq(last, group) => may_have,
                _ => asked.insert((group, group.may_have(hash))).1,
            });
            if may_have {
                match memtable.get(hash, key, take) {
                    Answer::Nothing => {}
                    answer => return answer,
                }
            }
        }
        Answer::Nothing
    }
}

/// What stands behind the front.
pub(crate) trait FlushTarget<V> {
    /// Flushes what is frozen and, where nothing is, the active memtable.
    fn flush_backlog(&self) -> Result<()>;
    /// Waits for work that gives memory back when it ends.
    fn await_work(&self);
    /// The view changes: finds the rate that writers are held to.
    fn set_rate(&self, view: &SuperVersion<V>);
}

/// Counts since the table was opened.
#[derive(Debug, Default)]
pub(crate) struct WriteBufferCounters {
    pub(crate) helps_total: AtomicU64,
    pub(crate) delays_total: AtomicU64,
    pub(crate) delay_micros_total: AtomicU64,
    /// Microseconds that writers helped, in all and at most at once.
    pub(crate) stall_micros_total: AtomicU64,
    pub(crate) stall_micros_max: AtomicU64,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct WriteBuffer<V> {
    context: Context,
    /// What is flushed at once, in bytes, and how much of it waits at most, what is written to
    /// included.
    memtable_bytes: u64,
    memtables: u64,
    /// So many lists are flushed at once; each is frozen at its part.
    lists: u64,
    /// The memory of memtables.
    arenas: Arc<Arenas>,
    pub(crate) view: ArcSwap<SuperVersion<V>>,
    /// Held while the view is exchanged.
    viewing: Mutex<()>,
    /// Held shared by whoever inserts in the active memtable.
    writing: RwLock<()>,
    /// Held by the writer that finds memory for all who wait for it.
    relieving: Mutex<()>,
    /// Memory that there is for memtables and work, in bytes.
    room: AtomicU64,
    /// When something was frozen, or files were exchanged.
    frozen_since: AtomicU64,
    /// Drawn from the budget by `admit` and neither applied nor retracted yet.
    reserved: AtomicU64,
    /// Bytes a second that writers may bring; 0: as many as they like.
    write_rate: AtomicU64,
    write_pace: RateLimiter,
    /// Bytes of memtables a second that flushes take away.
    pub(crate) flushed: Throughput,
    rest: IdleDetector,
    pub(crate) counters: WriteBufferCounters,
}

fn no_space(error: std::io::Error) -> Error {
    Error::io("reserve address space for a memtable", error)
}

fn new_memtable(
    arenas: &Arc<Arenas>,
    group: Option<&Arc<Filter>>,
    context: &Context,
) -> Result<Arc<Memtable>> {
    Memtable::new(arenas, group, &context.budget).map(Arc::new).map_err(no_space)
}

fn new_group(bytes: u64, context: &Context) -> Result<Arc<Filter>> {
    Filter::new(bytes, &context.budget).map(Arc::new).map_err(no_space)
}

impl<V> WriteBuffer<V> {
    /// An empty memtable in front of these files. One is frozen at `list_bytes_max` even where more
    /// are flushed at once.
    pub(crate) fn new(
        context: &Context,
        (memtable_bytes, memtables): (u64, u64),
        list_bytes_max: u64,
        version: V,
    ) -> Result<Self> {
        let lists = memtable_bytes.div_ceil(list_bytes_max).max(1);
        let group = (lists > 1).then(|| new_group(memtable_bytes, context)).transpose()?;
        // While so many are flushed, writers fill as many.
        let arenas = Arenas::new(memtable_bytes / lists, 2 * lists, &context.budget);
        let active = new_memtable(&arenas, group.as_ref(), context)?;
        let view = SuperVersion { active, frozen: Vec::new(), version: Arc::new(version) };
        Ok(Self {
            context: context.clone(),
            memtable_bytes,
            memtables,
            lists,
            arenas,
            view: ArcSwap::new(Arc::new(view)),
            viewing: Mutex::new(()),
            writing: RwLock::new(()),
            relieving: Mutex::new(()),
            room: AtomicU64::new(u64::MAX),
            frozen_since: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            write_rate: AtomicU64::new(0),
            write_pace: RateLimiter::default(),
            flushed: Throughput::default(),
            rest: IdleDetector::default(),
            counters: WriteBufferCounters::default(),
        })
    }

    /// Freezes the active memtable, unless another has its place already.
    pub(crate) fn rotate(&self, active: &Arc<Memtable>, back: &impl FlushTarget<V>) -> Result<()> {
        let group = match active.group() {
            Some(group) if group.members() < self.lists => Some(Arc::clone(group)),
            _ if self.lists > 1 => Some(new_group(self.memtable_bytes, &self.context)?),
            _ => None,
        };
        let fresh = new_memtable(&self.arenas, group.as_ref(), &self.context)?;
        self.put_before(fresh, active, back);
        Ok(())
    }

    /// Freezes the active memtable and goes on in `fresh`, unless another has its place already.
    fn put_before(&self, fresh: Arc<Memtable>, active: &Arc<Memtable>, back: &impl FlushTarget<V>) {
        let _alone = write(&self.writing);
        let _viewing = lock(&self.viewing);
        let view = self.view.load_full();
        if Arc::ptr_eq(&view.active, active) && !active.is_empty() {
            let frozen = std::iter::once(active).chain(&view.frozen).cloned().collect();
            let version = Arc::clone(&view.version);
            if view.frozen.is_empty() {
                self.frozen_since.store(micros(self.context.env.monotonic()), Ordering::Relaxed);
            }
            let view = SuperVersion { active: fresh, frozen, version };
            back.set_rate(&view);
            self.view.store(Arc::new(view));
            self.arenas.start_recycling();
        }
    }

    /// Freezes the active memtable if it has anything.
    pub(crate) fn rotate_any(&self, back: &impl FlushTarget<V>) -> Result<()> {
        let view = self.view.load_full();
        if view.active.is_empty() { Ok(()) } else { self.rotate(&view.active, back) }
    }

    /// Has readers see what `edit` makes of the version, without the memtables that it holds now.
    pub(crate) fn show(
        &self,
        edit: impl FnOnce(&V) -> V,
        flushed: &[Arc<Memtable>],
        back: &impl FlushTarget<V>,
    ) {
        let _viewing = lock(&self.viewing);
        let view = self.view.load_full();
        let stays = |one: &&Arc<Memtable>| !flushed.iter().any(|other| Arc::ptr_eq(one, other));
        let frozen = view.frozen.iter().filter(stays).cloned().collect();
        let active = Arc::clone(&view.active);
        self.frozen_since.store(micros(self.context.env.monotonic()), Ordering::Relaxed);
        let view = SuperVersion { active, frozen, version: Arc::new(edit(&view.version)) };
        back.set_rate(&view);
        if view.is_unwritten() {
            // No write came while the memtables were flushed.
            self.arenas.stop_recycling();
        }
        self.view.store(Arc::new(view));
    }

    /// Takes `bytes` out of what was reserved. `false` in replay, where nothing was admitted.
    fn claim(&self, bytes: u64) -> bool {
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| held.checked_sub(bytes))
            .is_ok()
    }

    /// Bytes at which a list is frozen: less where indexes leave little memory.
    fn list_bytes(&self) -> u64 {
        let most = self.memtable_bytes / self.lists;
        let share = self.room() / ROOM_SHARE / self.lists;
        share.clamp(most / LIST_SHARE_MIN, most)
    }

    /// How much memory there is for memtables and work, in bytes.
    pub(crate) fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    /// Notes how much memory there is for memtables and work, in bytes.
    pub(crate) fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::Relaxed);
    }

    /// Whether as much waits for a flush as is flushed at once, or something waits for long: scans
    /// and gets pay for each list.
    pub(crate) fn is_flush_due(&self, view: &SuperVersion<V>) -> bool {
        let waits = || {
            let since = Duration::from_micros(self.frozen_since.load(Ordering::Relaxed));
            self.context.env.monotonic().saturating_sub(since) >= FROZEN_MAX
        };
        to_u64(view.frozen.len()) >= self.lists || (!view.frozen.is_empty() && waits())
    }

    /// Whether writers have to wait for a flush.
    fn is_backed_up(&self, view: &SuperVersion<V>) -> bool {
        to_u64(view.frozen.len()) >= (self.memtables - 1) * self.lists
    }

    /// Whether the last memtable but one is full.
    pub(crate) fn is_nearly_full(&self, view: &SuperVersion<V>) -> bool {
        to_u64(view.frozen.len()) >= (self.memtables.max(3) - 2) * self.lists
    }

    /// Freezes a full memtable, and flushes where too many wait for it.
    fn make_room(&self, back: &impl FlushTarget<V>) -> Result<()> {
        let full = |view: &SuperVersion<V>| view.active.charged() >= self.list_bytes();
        if !full(&self.view.load()) {
            return Ok(());
        }
        // Who waits holds no view: its memtables would stay until they are flushed, and longer.
        if self.is_backed_up(&self.view.load_full()) {
            self.help(back)?;
        }
        let view = self.view.load_full();
        if full(&view) && !self.is_backed_up(&view) {
            self.rotate(&view.active, back)?;
            self.context.host.wake();
        }
        Ok(())
    }

    /// A writer flushes.
    fn help(&self, back: &impl FlushTarget<V>) -> Result<()> {
        let began = self.context.env.monotonic();
        let outcome = back.flush_backlog();
        self.counters.helps_total.fetch_add(1, Ordering::Relaxed);
        self.note_stall(began);
        outcome
    }

    fn note_stall(&self, began: Duration) {
        let micros = micros(self.context.env.monotonic().saturating_sub(began));
        self.counters.stall_micros_total.fetch_add(micros, Ordering::Relaxed);
        self.counters.stall_micros_max.fetch_max(micros, Ordering::Relaxed);
    }

    /// Draws what an operation needs, if it is there.
    fn draw(&self, bytes: u64) -> Result<()> {
        self.context.budget.reserve(bytes)?;
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Draws what an operation needs, flushing where the budget has no more.
    fn reserve(&self, bytes: u64, back: &impl FlushTarget<V>) -> Result<()> {
        if self.draw(bytes).is_ok() {
            return Ok(());
        }
        let began = self.context.env.monotonic();
        for _ in 0..HELPS_MAX {
            self.await_memory(began, bytes);
            // One at a time: what one of them flushes may be enough for all.
            let _relieving = lock(&self.relieving);
            if self.draw(bytes).is_ok() {
                self.note_stall(began);
                return Ok(());
            }
            if !self.view.load().is_unwritten() {
                self.counters.helps_total.fetch_add(1, Ordering::Relaxed);
                back.flush_backlog()?;
            } else if self.context.budget.transient_bytes() > 0 {
                // A part of that work first, where there is nothing to flush; then all of it.
                if !self.context.await_transient(bytes) {
                    back.await_work();
                }
            } else {
                break;
            }
        }
        self.note_stall(began);
        self.draw(bytes)
    }

    /// Waits a little for what work under way gives back, as long as there is little to flush:
    /// many small files cost more than that. The work itself may take seconds.
    fn await_memory(&self, began: Duration, bytes: u64) {
        let is_small = |view: &SuperVersion<V>| {
            view.frozen.is_empty() && view.active.charged() < self.list_bytes() / 2
        };
        let (env, budget) = (&self.context.env, &self.context.budget);
        while budget.used().saturating_add(bytes) > budget.limit()
            && budget.transient_bytes() > 0
            && is_small(&self.view.load())
            && env.monotonic().saturating_sub(began) < AWAIT_MAX
        {
            env.pause(TRANSIENT_WAIT_STEP);
        }
    }

    /// Finds room for an operation, and delays or refuses it where there is none.
    pub(crate) fn admit(&self, op: &Op<'_>, back: &impl FlushTarget<V>) -> Result<()> {
        let room = self.make_room(back);
        match op {
            Op::Put { .. } => {
                room?;
                self.delay(cost(op));
                self.reserve(cost(op), back)
            }
            // Deletes give space back: they go on where a flush fails.
            Op::Delete { .. } => {
                if self.reserve(cost(op), back).is_err() {
                    self.context.budget.reserve_unchecked(cost(op));
                    self.reserved.fetch_add(cost(op), Ordering::Relaxed);
                }
                Ok(())
            }
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    /// Gives back what was drawn for an operation that does not come.
    pub(crate) fn retract(&self, op: &Op<'_>) {
        if self.claim(cost(op)) {
            self.context.budget.release(cost(op));
        }
    }

    /// Starts loading what an insert of this hash looks at first. A hint.
    #[inline]
    pub(crate) fn approach(&self, hash: u64) {
        self.view.load().active.prefetch(hash);
    }

    /// Inserts an operation on one key, of this hash.
    pub(crate) fn insert(
        &self,
        lsn: Lsn,
        op: &Op<'_>,
        hash: u64,
        back: &impl FlushTarget<V>,
    ) -> Result<()> {
        if !self.claim(cost(op)) {
            self.context.budget.reserve_unchecked(cost(op));
        }
        loop {
            let active = {
                let _writing = read(&self.writing);
                let view = self.view.load();
                if view.active.insert(lsn.0, op, hash) {
                    if view.active.entries() == 1 {
                        // Somebody has to ask whether it is at rest.
                        self.context.host.wake();
                    }
                    return Ok(());
                }
                Arc::clone(&view.active)
            };
            if active.is_empty() {
                let needed = cost(op);
                return Err(Error::OutOfMemory { budget: self.context.budget.limit(), needed });
            }
            self.rotate(&active, back)?;
        }
    }

    /// Inserts operations that are replayed, each on one key. They wait in memtables that are
    /// larger than lists: nobody needs those to fit in the processor's caches, and each would be
    /// one more to look into.
    pub(crate) fn insert_replayed(
        &self,
        ops: &[(Lsn, Op<'_>)],
        back: &impl FlushTarget<V>,
    ) -> Result<()> {
        let bytes = ops.iter().map(|(_, op)| cost(op)).sum();
        self.context.budget.reserve_unchecked(bytes);
        loop {
            let (active, has_taken) = {
                let _writing = read(&self.writing);
                let view = self.view.load();
                let has_taken = view.active.insert_many(ops, bytes, &self.context.hash);
                if has_taken && !view.active.is_full() {
                    return Ok(());
                }
                (Arc::clone(&view.active), has_taken)
            };
            if active.is_empty() {
                let limit = self.context.budget.limit();
                return Err(Error::OutOfMemory { budget: limit, needed: bytes });
            }
            let bytes = self.memtable_bytes.min(REPLAYED_BYTES_MAX);
            let arenas = Arenas::new(bytes, 0, &self.context.budget);
            let fresh = new_memtable(&arenas, None, &self.context)?;
            self.put_before(fresh, &active, back);
            if has_taken {
                return Ok(());
            }
        }
    }

    /// Freezes a full memtable, of operations that were not admitted one by one.
    pub(crate) fn rotate_full(&self, back: &impl FlushTarget<V>) -> Result<()> {
        let active = Arc::clone(&self.view.load().active);
        if active.charged() >= self.list_bytes() {
            self.rotate(&active, back)?;
            self.context.host.wake();
        }
        Ok(())
    }

    /// Of frozen memtables, the oldest: as much at once as a full memtable has, because what is
    /// small costs a file otherwise.
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

    /// Notes how fast a flush was.
    pub(crate) fn note_flush(&self, memtables: &[Arc<Memtable>], began: Duration) {
        let bytes: u64 = memtables.iter().map(|memtable| memtable.charged()).sum();
        // What is tiny says nothing of the disk.
        if bytes >= self.list_bytes() * self.lists / 4 {
            self.flushed.note(bytes, self.context.env.monotonic().saturating_sub(began));
        }
    }

    /// Delays a write where it has to be.
    #[inline]
    fn delay(&self, bytes: u64) {
        let rate = self.write_rate();
        if rate > 0 {
            self.delay_to(bytes, rate);
        }
    }

    #[cold]
    fn delay_to(&self, bytes: u64, rate: u64) {
        let rate = {
            let view = self.view.load();
            // The last memtable fills ever more slowly: the flush before it may take longer than
            // the ones that were measured.
            let left = self.list_bytes().saturating_sub(view.active.charged());
            let share = if self.is_backed_up(&view) { left * 100 / self.list_bytes() } else { 100 };
            (rate / 100 * share).max(RATE_MIN)
        };
        let waited = self.write_pace.keep_to(&*self.context.env, bytes, rate, DELAY_MAX);
        if !waited.is_zero() {
            let counters = &self.counters;
            counters.delays_total.fetch_add(1, Ordering::Relaxed);
            counters.delay_micros_total.fetch_add(micros(waited), Ordering::Relaxed);
        }
    }

    /// The rate that writers are held to, in bytes a second; 0: none.
    pub(crate) fn write_rate(&self) -> u64 {
        self.write_rate.load(Ordering::Relaxed)
    }

    /// Holds writers to a rate.
    pub(crate) fn set_write_rate(&self, rate: u64) {
        self.write_rate.store(rate, Ordering::Relaxed);
    }

    /// What is drawn for operations that are not applied yet, in bytes.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Whether nobody has written for a while.
    pub(crate) fn is_at_rest(&self, active: &Memtable) -> bool {
        self.rest.has_come(&*self.context.env, active.charged())
    }
}

impl<V> Drop for WriteBuffer<V> {
    fn drop(&mut self) {
        self.context.budget.release(self.reserved.load(Ordering::Relaxed));
    }
}
