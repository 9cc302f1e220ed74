//! Installation of memtables and versions: the only code that replaces the super version.
//!
//! Invariant: a memtable in a pool is in the pool's directory before the super version has it
//! ([`crate::lsm::pooled_writes`]).

use std::sync::Arc;

use super::{
    memtable::{Filter, Memtable},
    super_version::SuperVersion,
    write_buffer::{FlushTarget, WriteBuffer, new_group, new_memtable},
};
use crate::{
    Result,
    lsm::rate_limiter::micros,
    util::sync::{Ordering, lock, write},
};

impl<V> WriteBuffer<V> {
    /// Freezes the memtable `active` and installs an empty one, unless another thread has done so.
    pub(crate) fn rotate(
        &self,
        active: &Arc<Memtable>,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        let empty = self.new_in_pool(active).map_or_else(|| self.new_in_memory(active), Ok)?;
        self.install_memtable(empty, active, target)
    }

    /// Returns the filter of the memtable that follows `active`: of the same flush, or a new one.
    pub(super) fn next_group(&self, active: &Memtable) -> Result<Option<Arc<Filter>>> {
        Ok(match active.group() {
            Some(group) if group.members() < self.lists => Some(Arc::clone(group)),
            _ if self.lists > 1 => Some(new_group(self.memtable_bytes, &self.context)?),
            _ => None,
        })
    }

    /// Returns an empty memtable in ordinary memory that follows `active`.
    pub(super) fn new_in_memory(&self, active: &Memtable) -> Result<Arc<Memtable>> {
        let group = self.next_group(active)?;
        new_memtable(&self.arenas, group.as_ref(), &self.empty_ranges, &self.context)
    }

    /// Freezes the memtable `active` and installs `empty` in its place, unless another thread has
    /// replaced it.
    pub(super) fn install_memtable(
        &self,
        empty: Arc<Memtable>,
        active: &Arc<Memtable>,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        let _exclusive = write(&self.writing);
        let _installing = lock(&self.installing);
        let view = self.view.load_full();
        if Arc::ptr_eq(&view.active, active) && !active.is_empty() {
            let frozen = std::iter::once(active).chain(&view.frozen).cloned().collect();
            let version = Arc::clone(&view.version);
            if view.frozen.is_empty() {
                self.frozen_since.store(micros(self.context.env.monotonic()), Ordering::Relaxed);
            }
            let view = SuperVersion { active: empty, frozen, version };
            let view = self.published(view, active)?;
            target.set_rate(&view);
            self.view.store(Arc::new(view));
            self.arenas.start_recycling();
            active.order_soon(true, &*self.context.host);
        }
        Ok(())
    }

    /// Installs `empty` in the place of the memtable `active`, unless that has entries or another
    /// thread has replaced it.
    pub(super) fn replace_empty(
        &self,
        empty: Arc<Memtable>,
        active: &Arc<Memtable>,
        target: &impl FlushTarget<V>,
    ) {
        let _exclusive = write(&self.writing);
        let _installing = lock(&self.installing);
        let view = self.view.load_full();
        if Arc::ptr_eq(&view.active, active) && active.is_empty() {
            let view = SuperVersion { active: empty, ..view.share() };
            if let Some(pool) = &self.pool
                && pool.publish(view.memtables()).is_ok()
            {
                active.leave_directory();
            }
            target.set_rate(&view);
            self.view.store(Arc::new(view));
        }
    }

    /// Returns whether writers insert into the active memtable of a super version.
    pub(crate) fn is_current(&self, view: &SuperVersion<V>) -> bool {
        Arc::ptr_eq(&self.view.load().active, &view.active)
    }

    /// Freezes the active memtable if it has entries.
    pub(crate) fn rotate_any(&self, target: &impl FlushTarget<V>) -> Result<()> {
        let view = self.view.load_full();
        if view.active.is_empty() { Ok(()) } else { self.rotate(&view.active, target) }
    }

    /// Installs the version that `edit` makes of the current one, and removes the memtables that it
    /// contains now.
    pub(crate) fn install_version(
        &self,
        edit: impl FnOnce(&V) -> V,
        flushed: &[Arc<Memtable>],
        target: &impl FlushTarget<V>,
    ) {
        let _installing = lock(&self.installing);
        if let Some(pool) = &self.pool {
            pool.retire(flushed);
        }
        let view = self.view.load_full();
        let stays = |one: &&Arc<Memtable>| !flushed.iter().any(|other| Arc::ptr_eq(one, other));
        let frozen = view.frozen.iter().filter(stays).cloned().collect();
        let active = Arc::clone(&view.active);
        self.frozen_since.store(micros(self.context.env.monotonic()), Ordering::Relaxed);
        let view = SuperVersion { active, frozen, version: Arc::new(edit(&view.version)) };
        target.set_rate(&view);
        if view.is_unwritten() {
            // The table is idle: no write came while the memtables were flushed.
            self.arenas.stop_recycling();
        }
        self.view.store(Arc::new(view));
    }
}
