//! Flushes: writes memtables to runs, and applies the runs to the index.
//!
//! A flush freezes the active memtable while no insert is in progress. So the runs have all effects
//! below the LSN that the caller was promised. They may have later effects too, which replay
//! repeats. A delete is in no run: the flush removes the key from the index.
//!
//! Invariant: memtables leave the super version only when the index has all their keys, so readers
//! find each key throughout. A failed flush keeps its memtables, and the next flush writes all of
//! them again. The runs of the failed flush then have no live entry.

use std::sync::Arc;

use super::{
    index_update::IndexUpdates, key_code::KeyBuffer, pool::SlmPool, run_builder::RunBuilder,
    table::SlmTable,
};
use crate::{
    Result,
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{Direction, MemtableCursor, MergeCursor, ScanStart},
        memtable::Memtable,
    },
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

impl SlmTable {
    /// Makes every effect below `up_to` durable in the files. Returns the LSN up to which they are
    /// complete.
    pub(super) fn flush_to(&self, up_to: Lsn) -> Result<Lsn> {
        if let Some(pool) = self.memtable_pool() {
            return self.mark_complete(pool, up_to);
        }
        self.flush_all()?;
        if self.pool_index().is_some() {
            // Nothing is complete past the durable end of the log. Without a memtable, nothing has
            // synced the log.
            mutant!(SlmPoolMarksUnsynced: (), else self.context.host.sync_log()?);
        }
        self.take_checkpoint(Some(up_to))
    }

    /// As [`Self::flush_to`], with memtables in a pool: they are durable, so nothing is flushed,
    /// unless some are in ordinary memory because the pool was full.
    fn mark_complete(&self, pool: &SlmPool, up_to: Lsn) -> Result<Lsn> {
        let unmarked = pool.memtables.as_ref().map_or(0, |memtables| memtables.unmarked_bytes());
        if mutant!(SlmPoolClaimsTooMuch: false, else self.write_buffer.has_unpooled()) {
            self.flush_all()?;
        }
        if pool.index.is_none() && self.paged.has_pending_changes() {
            self.take_checkpoint(None)?;
            self.write_buffer.forget_flushed()?;
        }
        // Nothing is complete past the durable end of the log.
        self.context.host.sync_log()?;
        let complete = pool.set_complete(up_to);
        if let Some(memtables) = &pool.memtables {
            memtables.subtract_marked(unmarked);
        }
        if pool.index.is_some() {
            self.take_checkpoint(None)?;
        }
        Ok(complete)
    }

    /// Records in a pool with memtables that the table is complete to `up_to`: everything below is
    /// applied, and durable in the log. It is not recorded while an entry below may be in ordinary
    /// memory, or in a page that is not written. Returns the LSN to which the table is complete.
    pub(super) fn note_durable(&self, up_to: Lsn) -> Option<Lsn> {
        let pool = self.memtable_pool().filter(|_| !self.context.read_only)?;
        // Entries leave ordinary memory for pages before the memtable leaves the super version.
        let has_unpooled =
            mutant!(SlmPoolClaimsTooMuch: false, else self.write_buffer.has_unpooled());
        if !has_unpooled && (pool.index.is_some() || !self.paged.has_pending_changes()) {
            pool.set_complete(up_to);
        }
        Some(pool.complete())
    }

    /// Flushes all memtables.
    pub(super) fn flush_all(&self) -> Result<()> {
        let _flushing = lock(&self.flushing);
        self.write_buffer.read_all()?;
        self.write_buffer.rotate_any(self)?;
        self.flush_frozen(true)
    }

    /// Flushes the oldest frozen memtables, or the active one if none is frozen. Returns without a
    /// flush if another thread has flushed meanwhile.
    pub(super) fn flush_oldest(&self) -> Result<()> {
        self.write_buffer.read_all()?;
        // The super version is released before the wait: it would pin memory of flushed memtables.
        let before = self.write_buffer.view.load().frozen.len();
        let _flushing = lock(&self.flushing);
        let view = self.write_buffer.view.load_full();
        if view.frozen.len() < before {
            // The previous holder of the lock has flushed.
            return Ok(());
        }
        if view.frozen.is_empty() {
            self.write_buffer.rotate_any(self)?;
        }
        self.flush_frozen(false)
    }

    /// Flushes frozen memtables from the oldest on: all of them, or as many as one flush takes.
    fn flush_frozen(&self, all: bool) -> Result<()> {
        let view = self.write_buffer.view.load_full();
        let mut left = view.frozen.as_slice();
        while !left.is_empty() {
            let (rest, these) = self.write_buffer.oldest(left);
            let began = self.context.env.monotonic();
            self.flush_memtables(these)?;
            self.write_buffer.record_flush(these, began);
            if !all {
                break;
            }
            left = rest;
        }
        Ok(())
    }

    /// Writes memtables to runs, applies these to the index, and drops the memtables.
    fn flush_memtables(&self, frozen: &[Arc<Memtable>]) -> Result<()> {
        self.counters.flushes_total.fetch_add(1, Ordering::Relaxed);
        if !self.keys.is_decided() {
            self.keys.decide(frozen, self.settings.has_key_code)?;
        }
        let keys: u64 = frozen.iter().map(|one| one.keys()).sum();
        let bytes: u64 = frozen.iter().map(|one| one.payload_bytes()).sum();
        let run_keys = self.settings.run_bytes / (bytes / keys.max(1)).max(1);
        let budget = &self.context.budget;
        let updates = IndexUpdates::memory_bytes(keys, run_keys, budget.limit());
        let _memory = budget.reserve_transient(updates);
        self.divide_memory();
        if self.pool_index().is_some() {
            // The index is durable at once, and must have nothing that the log may lack.
            mutant!(SlmFlushesUnsynced: (), else self.context.host.sync_log()?);
        }
        let start = ScanStart::up(None);
        let mut merge =
            MergeCursor::new(MemtableCursor::all(frozen.to_vec(), &start), Direction::Up);
        merge.load_first()?;
        self.apply_edits(&mut || {
            let mut builder = RunBuilder::new(self);
            while let Some(key) = merge.key().filter(|_| !builder.is_full()) {
                let value = merge.value().filter(|value| !self.context.host.is_expired(value));
                let to = value
                    .map(|value| builder.add(key, value, CacheAdmission::Normal))
                    .transpose()?;
                let mut buffer = KeyBuffer::default();
                if let Some(index_key) = self.keys.index_key(key, &mut buffer) {
                    builder.updates.push((self.hash(key), index_key), to, None);
                }
                merge.advance()?;
            }
            if builder.updates.is_empty() { Ok(None) } else { builder.finish().map(Some) }
        })?;
        self.write_buffer.install_version(Clone::clone, frozen, self);
        if self.memtable_pool().is_some() {
            if self.pool_index().is_none() {
                let checkpoint = || self.take_checkpoint(None).map(|_| ());
                mutant!(SlmPoolForgetsMemtable: (), else checkpoint()?);
            }
            self.write_buffer.forget_flushed()?;
        }
        self.wake_compaction();
        Ok(())
    }
}
