//! Flushes: memtables become a table of level 0, or are merged into level 1 in the flat modes.
//!
//! A flush freezes the active memtable while no insert into it is under way. So it writes every
//! effect below the LSN that the caller passes. It may also write later effects, which replay
//! repeats.

use std::sync::Arc;

use super::{
    cursor::memtable_cursors,
    merge::plan::{MergeBase, MergePlan},
    publish::UnpublishedSsts,
    store::TphStore,
    table::TphTable,
    version::{SuperVersion, Version},
};
use crate::{
    Result,
    lsm::{cursor::merge::ScanStart, memtable::Memtable, write_buffer::FlushTarget},
    util::{
        codec::Lsn,
        sync::{Ordering, lock},
    },
};

impl FlushTarget<Version> for TphStore {
    /// Flushes the frozen memtables; if there are none, the active one.
    fn flush_backlog(&self) -> Result<()> {
        // A thread that waits for the lock holds no super version: see `WriteBuffer`.
        let before = self.write_buffer.view.load().frozen.len();
        let _flushing = lock(&self.flushing);
        let super_version = self.write_buffer.view.load_full();
        if super_version.frozen.len() < before {
            // The previous holder of the lock flushed.
            return Ok(());
        }
        if super_version.frozen.is_empty() && !super_version.active.is_empty() {
            self.write_buffer.rotate(&super_version.active, self)?;
        }
        self.flush_frozen(None).map(drop)
    }

    fn await_work(&self) {
        drop(lock(&self.compacting));
    }

    fn set_rate(&self, super_version: &SuperVersion) {
        let rate = self.merge_rates.write_rate(&self.settings, &self.write_buffer, super_version);
        self.write_buffer.set_write_rate(rate);
    }
}

impl TphStore {
    /// Makes every effect below `up_to` durable in the files.
    pub(super) fn flush_to(&self, up_to: Lsn) -> Result<Lsn> {
        let _flushing = lock(&self.flushing);
        self.write_buffer.rotate_any(self)?;
        self.flush_frozen(Some(up_to.0)).map(Lsn)
    }

    /// Flushes frozen memtables, oldest first. With `complete`, it flushes all that are frozen now;
    /// without, as many as one flush writes. Returns the LSN below which the files are complete.
    fn flush_frozen(&self, complete: Option<u64>) -> Result<u64> {
        let is_backlog = complete.is_none();
        let super_version = self.write_buffer.view.load_full();
        let complete_before = self.complete();
        if super_version.frozen.is_empty() {
            if complete.is_none_or(|lsn| lsn <= complete_before) {
                return Ok(complete_before);
            }
            return self.publish(&UnpublishedSsts::new(self), complete, &[], Clone::clone);
        }
        let mut remaining = super_version.frozen.as_slice();
        loop {
            let (newer, oldest) = self.write_buffer.oldest(remaining);
            let complete = complete.filter(|_| newer.is_empty());
            let began = self.context.env.monotonic();
            let flushed_to = self.flush_memtables(oldest, complete)?;
            self.write_buffer.record_flush(oldest, began);
            if newer.is_empty() || complete.is_none() && is_backlog {
                return Ok(flushed_to);
            }
            remaining = newer;
        }
    }

    fn flush_memtables(&self, frozen: &[Arc<Memtable>], complete: Option<u64>) -> Result<u64> {
        let unpublished = UnpublishedSsts::new(self);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        if self.settings.is_flat() {
            let _compacting = lock(&self.compacting);
            let super_version = self.write_buffer.view.load_full();
            let newer = |start: &ScanStart| memtable_cursors(frozen, start);
            let level = self.merge_into(&super_version.version, 0, &newer, None, &unpublished)?;
            return self.publish(&unpublished, complete, frozen, |version| {
                let mut version = version.clone();
                version.set_level(0, level);
                version
            });
        }
        let table = self.write_level0_table(frozen, &unpublished)?;
        self.publish(&unpublished, complete, frozen, |version| {
            let mut version = version.clone();
            version.level0.splice(0..0, table);
            version
        })
    }

    /// Writes a table of memtables. Returns `None` if none of their entries is needed.
    fn write_level0_table(
        &self,
        frozen: &[Arc<Memtable>],
        unpublished: &UnpublishedSsts<'_>,
    ) -> Result<Option<Arc<TphTable>>> {
        let start = ScanStart::up(None);
        let super_version = self.write_buffer.view.load();
        let has_deeper = super_version.version.tables().any(|table| !table.ssts.is_empty());
        drop(super_version);
        let base = MergeBase::default();
        let plan = MergePlan { rewrite: Vec::new(), has_deeper, split: None, is_flush: true };
        let newer = memtable_cursors(frozen, &start);
        let tables = self.merge_table(&base, newer, &plan, unpublished)?;
        Ok(tables.into_iter().find(|table| !table.ssts.is_empty()).map(Arc::new))
    }
}
