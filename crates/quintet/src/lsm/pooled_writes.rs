//! The write buffer with memtables in a pool of persistent memory.
//!
//! A memtable of the pool is in the pool's directory before its first insert, and as long as no
//! durable index has its entries ([`crate::lsm::memtable::pool_memtables`]). If the pool is full,
//! or an entry is too large for it, the next memtable is in ordinary memory. The table is then
//! complete only to what it has flushed ([`WriteBuffer::has_unpooled`]), and the log is kept for
//! the rest.
//!
//! An opening reads no memtable. It publishes a new active one before the old ones, which are then
//! *unread*: writers need none of them. A step of the background reads one of them; readers and
//! flushes first read all that are left ([`WriteBuffer::read_all`]). Then the super version gets
//! them, as the oldest.

use std::sync::Arc;

use super::{
    memtable::{
        Memtable,
        pool_memtables::{ListedMemtable, PoolMemtables},
    },
    super_version::SuperVersion,
    write_buffer::{FlushTarget, WriteBuffer, new_group},
};
use crate::{
    Result,
    lsm::rate_limiter::micros,
    pmem::{Pool, SlabSweep},
    util::{
        codec::Lsn,
        sync::{Mutex, Ordering, lock},
    },
};

impl<V: Send + Sync> WriteBuffer<V> {
    /// Moves the memtables to a pool: makes the active one there, and leaves those in its directory
    /// to [`read_all`](Self::read_all), without the entries from `end` on. With `is_copy` the pool
    /// is read only, and all are read at once.
    pub(crate) fn attach_pool(
        &mut self,
        pool: &Arc<PoolMemtables>,
        end: Lsn,
        is_copy: bool,
    ) -> Result<()> {
        let mut lists = pool.lists()?;
        for list in &mut lists {
            list.end = list.end.min(end);
        }
        // Each process that ended at once has left one. So the next writer sees them, and flushes.
        let are_many = lists.len() > self.frozen_max();
        self.pool = Some(Arc::clone(pool));
        if !is_copy {
            let view = self.view.load_full();
            let in_pool = self.new_in_pool(&view.active);
            let active = in_pool.unwrap_or_else(|| Arc::clone(&view.active));
            let view = SuperVersion { active, ..view.share() };
            pool.set_unread(lists.clone());
            pool.publish(view.memtables())?;
            self.view.store(Arc::new(view));
        }
        self.unread.are_left.store(!lists.is_empty(), Ordering::Relaxed);
        lock(&self.unread.state).lists = lists;
        if is_copy || are_many { self.read_all() } else { Ok(()) }
    }

    /// Reads the memtables of the pool that an opening has left: verifies them, and adds them to
    /// the super version. Reads of the table call it first. Fails with `Corruption` if one is
    /// damaged; the next call tries again.
    #[inline]
    pub(crate) fn read_all(&self) -> Result<()> {
        if self.has_unread() { self.read_left(usize::MAX) } else { Ok(()) }
    }

    /// Whether memtables of the pool are left to read.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        self.unread.are_left.load(Ordering::Acquire)
    }

    /// Reads up to `most` memtables, and adds all to the super version after the last.
    #[cold]
    pub(crate) fn read_left(&self, most: usize) -> Result<()> {
        let Some(pool) = &self.pool else { return Ok(()) };
        let mut state = lock(&self.unread.state);
        let chosen = state.lists.len().saturating_sub(most);
        let these = state.lists.get(chosen..).unwrap_or(&[]);
        let opened: Vec<Mutex<Option<Result<Arc<Memtable>>>>> =
            these.iter().map(|_| Mutex::new(None)).collect();
        self.context.env.parallel(these.len(), &|number| {
            if let (Some(list), Some(slot)) = (these.get(number), opened.get(number)) {
                *lock(slot) = Some(self.read_list(pool, *list));
            }
        });
        let mut read = Vec::new();
        for slot in opened {
            let outcome = lock(&slot).take();
            read.extend(outcome.transpose()?);
        }
        state.lists.truncate(chosen);
        read.append(&mut state.read);
        state.read = read;
        if state.lists.is_empty() && self.has_unread() {
            self.install_read(pool, &state.read)?;
            state.read.clear();
        }
        Ok(())
    }

    /// Adds the memtables that were read to the super version, as the oldest.
    fn install_read(&self, pool: &PoolMemtables, read: &[Arc<Memtable>]) -> Result<()> {
        let _installing = lock(&self.installing);
        let view = self.view.load_full();
        let (empty, read): (Vec<_>, Vec<_>) = read.iter().cloned().partition(|one| one.is_empty());
        let frozen = view.frozen.iter().cloned().chain(read).collect();
        let view = SuperVersion { frozen, ..view.share() };
        if !self.context.read_only {
            pool.publish_read(view.memtables())?;
            for memtable in empty {
                memtable.leave_directory();
            }
        }
        self.frozen_since.store(micros(self.context.env.monotonic()), Ordering::Relaxed);
        self.view.store(Arc::new(view));
        self.unread.are_left.store(false, Ordering::Release);
        Ok(())
    }

    /// Marks the memtables in the pool for a sweep of it. Reads those that are left.
    pub(crate) fn mark_memtables(&self, pool: &Pool, sweep: &mut SlabSweep) -> Result<()> {
        let Some(memtables) = &self.pool else { return Ok(()) };
        self.read_all()?;
        let _installing = lock(&self.installing);
        memtables.mark(pool, sweep, self.view.load_full().memtables())
    }

    /// Reads one memtable of the pool, with a separate filter.
    fn read_list(&self, pool: &PoolMemtables, list: ListedMemtable) -> Result<Arc<Memtable>> {
        let group = (self.lists > 1).then(|| new_group(pool.list_bytes(), &self.context));
        let group = group.transpose()?;
        let hash = |key: &[u8]| self.hash(key);
        let context = (&self.empty_ranges, &self.context.budget);
        pool.read_list(list, (group.as_ref(), &hash), context)
    }
}

impl<V> WriteBuffer<V> {
    /// Returns the bytes at which a memtable is frozen at the latest.
    pub(crate) fn list_bytes_max(&self) -> u64 {
        self.memtable_bytes / self.lists
    }

    /// Returns an empty memtable in the pool that follows `active`; `None` without a pool, or if it
    /// has no room.
    pub(super) fn new_in_pool(&self, active: &Memtable) -> Option<Arc<Memtable>> {
        let pool = self.pool.as_ref()?;
        let group = self.next_group(active).ok()?;
        pool.create(group.as_ref(), (&self.empty_ranges, &self.context.budget)).ok()
    }

    /// Publishes the memtables of a super version that replaces `active`. If the directory is full,
    /// the active memtable of the result is in ordinary memory. The caller holds `installing`.
    pub(super) fn published(
        &self,
        view: SuperVersion<V>,
        active: &Memtable,
    ) -> Result<SuperVersion<V>> {
        match &self.pool {
            Some(pool) if pool.publish(view.memtables()).is_err() => {
                let empty = self.new_in_memory(active)?;
                Ok(SuperVersion { active: empty, ..view })
            }
            _ => Ok(view),
        }
    }

    /// Replaces the empty memtable `active` of the pool by one in ordinary memory.
    pub(super) fn leave_pool(
        &self,
        active: &Arc<Memtable>,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        let empty = self.new_in_memory(active)?;
        self.replace_empty(empty, active, target);
        Ok(())
    }

    /// Leaves flushed memtables out of the pool's directory: a durable index has their entries.
    pub(crate) fn forget_flushed(&self) -> Result<()> {
        let Some(pool) = &self.pool else { return Ok(()) };
        let _installing = lock(&self.installing);
        pool.forget(self.view.load_full().memtables())
    }

    /// Returns whether entries are in ordinary memory, so that only the log has them.
    pub(crate) fn has_unpooled(&self) -> bool {
        let view = self.view.load();
        view.memtables().any(|one| !one.is_in_pool() && !one.is_empty())
    }
}
