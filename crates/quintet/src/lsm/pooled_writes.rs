//! The write buffer with memtables in a pool of persistent memory.
//!
//! A memtable of the pool is in the pool's directory before its first insert, and as long as no
//! durable index has its entries ([`crate::lsm::memtable::pool_memtables`]). If the pool is full,
//! or an entry is too large for it, the next memtable is in ordinary memory. The table is then
//! complete only to what it has flushed ([`WriteBuffer::has_unpooled`]), and the log is kept for
//! the rest.

use std::sync::Arc;

use super::{
    memtable::{Memtable, pool_memtables::PoolMemtables},
    super_version::SuperVersion,
    write_buffer::{FlushTarget, WriteBuffer, new_group},
};
use crate::{
    Result,
    pmem::{Pool, SlabSweep},
    util::{
        codec::Lsn,
        sync::{Mutex, lock},
    },
};

impl<V: Send + Sync> WriteBuffer<V> {
    /// Moves the memtables to a pool: opens those in its directory without the entries from `end`
    /// on, and makes the active one there. With `is_copy` the pool is read only.
    pub(crate) fn attach_pool(
        &mut self,
        pool: Arc<PoolMemtables>,
        end: Lsn,
        is_copy: bool,
    ) -> Result<()> {
        let offsets = pool.lists()?;
        let opened: Vec<Mutex<Option<Result<Arc<Memtable>>>>> =
            offsets.iter().map(|_| Mutex::new(None)).collect();
        self.context.env.parallel(offsets.len(), &|number| {
            if let (Some(at), Some(slot)) = (offsets.get(number), opened.get(number)) {
                *lock(slot) = Some(self.open_in_pool(&pool, *at, end));
            }
        });
        let mut frozen = Vec::new();
        for slot in opened {
            let outcome = lock(&slot).take();
            frozen.extend(outcome.transpose()?);
        }
        let view = self.view.load_full();
        let mut active = Arc::clone(&view.active);
        self.pool = Some(pool);
        if !is_copy && let Some(in_pool) = self.new_in_pool(&active) {
            active = in_pool;
        }
        let (empty, frozen): (Vec<_>, Vec<_>) = frozen.into_iter().partition(|one| one.is_empty());
        let view = SuperVersion { active, frozen, version: Arc::clone(&view.version) };
        if let Some(pool) = self.pool.as_ref().filter(|_| !is_copy) {
            pool.publish(view.memtables())?;
            for memtable in empty {
                memtable.leave_directory();
            }
        }
        self.view.store(Arc::new(view));
        Ok(())
    }

    /// Opens one memtable of the pool, with a separate filter.
    fn open_in_pool(&self, pool: &Arc<PoolMemtables>, at: u64, end: Lsn) -> Result<Arc<Memtable>> {
        let group = (self.lists > 1).then(|| new_group(pool.list_bytes(), &self.context));
        let group = group.transpose()?;
        let hash = |key: &[u8]| self.hash(key);
        let context = (&self.empty_ranges, &self.context.budget);
        pool.open_list(at, end, (group.as_ref(), &hash), context)
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

    /// Marks the memtables in the pool for a sweep of it.
    pub(crate) fn mark_memtables(&self, pool: &Pool, sweep: &mut SlabSweep) -> Result<()> {
        let Some(memtables) = &self.pool else { return Ok(()) };
        let _installing = lock(&self.installing);
        memtables.mark(pool, sweep, self.view.load_full().memtables())
    }

    /// Returns whether entries are in ordinary memory, so that only the log has them.
    pub(crate) fn has_unpooled(&self) -> bool {
        let view = self.view.load();
        view.memtables().any(|one| !one.is_in_pool() && !one.is_empty())
    }
}
