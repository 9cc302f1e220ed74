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
    SlmTable,
    runs::{BLOCKS_MAX, BlockAddress, IndexValue, SortedRun, encode_bounds, part_of_offset},
};
use crate::{
    Result,
    engine::slm::{
        index_update::{IndexEdit, IndexUpdates},
        key_code::KeyBuffer,
    },
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{Direction, MemtableCursor, Merge, ScanStart},
        memtable::Memtable,
        sst::SstWriter,
    },
    util::{
        codec::{Lsn, to_u64},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Bytes of memory of an index update with a key of 24 bytes.
const UPDATE_BYTES: u64 = 72;

/// Writes a run and collects the index updates for its entries. Dropping it before
/// [`Self::finish`] removes the file.
pub(super) struct RunBuilder<'a> {
    table: &'a SlmTable,
    /// Number of the run, once it has an entry.
    number: u32,
    /// `None` before the first entry: a flush of deletes alone writes no file.
    writer: Option<SstWriter>,
    low: Vec<u8>,
    high: Vec<u8>,
    pub(super) updates: IndexUpdates,
}

impl<'a> RunBuilder<'a> {
    /// Creates a builder without a file.
    pub(super) fn new(table: &'a SlmTable) -> Self {
        let (low, high, updates) = Default::default();
        Self { table, number: 0, writer: None, low, high, updates }
    }

    /// Appends an entry, and returns its index value. The block cache admits its block by `room`
    /// or by a higher class that another entry of the block has.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        room: CacheAdmission,
    ) -> Result<IndexValue> {
        if self.writer.is_none() {
            self.number = self.table.manifest.next_number()?;
            let (table, number) = (self.table, u64::from(self.number));
            let flow = table.queues.flow(&*table.context.env)?;
            let shape = table.settings.shape;
            let writer = SstWriter::create(&table.owner, number, shape, (&table.cache, &flow))?;
            self.writer = Some(writer);
            self.low = key.to_vec();
        }
        self.high.clear();
        self.high.extend_from_slice(key);
        let (block, offset) = match &mut self.writer {
            Some(writer) => writer.add(key, Some(value), room)?,
            None => (0, 0),
        };
        let expires = self.table.context.host.expires(value);
        let never_expires = mutant!(SlmTakesAllForLasting: true, else !expires);
        let part = part_of_offset(offset, self.table.settings.shape.block_bytes);
        let part = mutant!(SlmMarksNextPart: part.saturating_add(1), else part);
        Ok(IndexValue { address: BlockAddress { run: self.number, block }, never_expires, part })
    }

    /// Whether the run has reached `run_bytes`, or the updates the limit of their memory.
    pub(super) fn is_full(&self) -> bool {
        let bytes = self.writer.as_ref().map_or(0, SstWriter::data_bytes);
        // Deletes add updates but no bytes to the file.
        bytes >= self.table.settings.run_bytes || self.updates.len() >= UPDATES_MAX
    }

    /// Makes the file durable and adds the run to the super version. The index does not point to
    /// it yet.
    pub(super) fn finish(mut self) -> Result<IndexEdit> {
        let updates = std::mem::take(&mut self.updates);
        let Some(writer) = self.writer.take() else { return Ok(IndexEdit { run: None, updates }) };
        let bounds = (std::mem::take(&mut self.low), std::mem::take(&mut self.high));
        let table = self.table;
        match writer.finish([encode_bounds(&bounds.0, &bounds.1)]) {
            Ok(sst) => {
                table.counters.written_bytes_total.fetch_add(sst.file_bytes, Ordering::Relaxed);
                let run = Arc::new(SortedRun::new(self.number, sst, bounds));
                table.manifest.add(&run);
                table.reserve_run_memory(run.memory_bytes());
                table.write_buffer.show(|runs| runs.with(&run), &[], table);
                Ok(IndexEdit { run: Some(run), updates })
            }
            Err(error) => {
                self.remove();
                Err(error)
            }
        }
    }

    fn remove(&self) {
        // If this fails, the next opening removes the file.
        let name = self.table.owner.kind.name_of(u64::from(self.number));
        let _ = self.table.owner.dir.remove(&name);
    }
}

/// Maximum number of index updates of one run.
const UPDATES_MAX: usize = 1 << 20;

impl Drop for RunBuilder<'_> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            self.remove();
        }
    }
}

impl SlmTable {
    /// Makes every effect below `up_to` durable in the files. Returns the LSN up to which they are
    /// complete.
    pub(super) fn flush_to(&self, up_to: Lsn) -> Result<Lsn> {
        self.flush_all()?;
        self.take_checkpoint(Some(up_to))
    }

    /// Flushes all memtables.
    pub(super) fn flush_all(&self) -> Result<()> {
        let _flushing = lock(&self.flushing);
        self.write_buffer.rotate_any(self)?;
        self.flush_frozen(true)
    }

    /// Takes a checkpoint of the index with the list of runs. Returns the LSN up to which the files
    /// are complete: `up_to`, or the previous one if that is higher. Removes the files of runs that
    /// the checkpoint leaves out.
    pub(super) fn take_checkpoint(&self, up_to: Option<Lsn>) -> Result<Lsn> {
        let mut keeper = lock(&self.paged.keeper);
        let complete = keeper.complete();
        let lsn = up_to.map_or(complete, |lsn| lsn.max(complete));
        let is_dirty = self.paged.is_unsettled() || self.manifest.has_dead();
        let outcome = if lsn > complete || is_dirty {
            self.paged.persist_cut(&mut keeper, lsn)
        } else {
            Ok(())
        };
        let complete = keeper.complete();
        drop(keeper);
        self.remove_obsolete_runs();
        outcome.map(|()| complete)
    }

    /// Flushes the oldest frozen memtables, or the active one if none is frozen. Returns without a
    /// flush if another thread has flushed meanwhile.
    pub(super) fn flush_oldest(&self) -> Result<()> {
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
            self.write_buffer.note_flush(these, began);
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
        let of_run = self.settings.run_bytes / (bytes / keys.max(1)).max(1);
        let _memory = self.context.budget.reserve_transient(Self::updates_bytes(keys, of_run));
        self.divide_memory();
        let start = ScanStart::up(None);
        let mut merge = Merge::new(MemtableCursor::all(frozen.to_vec(), &start), Direction::Up);
        merge.settle()?;
        self.apply_edits(&mut || {
            let mut builder = RunBuilder::new(self);
            while let Some(key) = merge.key().filter(|_| !builder.is_full()) {
                let value = merge.value().filter(|value| !self.context.host.is_expired(value));
                let to = value
                    .map(|value| builder.add(key, value, CacheAdmission::Normal))
                    .transpose()?;
                let mut buffer = KeyBuffer::default();
                if let Some(coded) = self.keys.index_key(key, &mut buffer) {
                    builder.updates.push((self.hash(key), coded), to, None);
                }
                merge.advance()?;
            }
            if builder.updates.is_empty() { Ok(None) } else { builder.finish().map(Some) }
        })?;
        self.write_buffer.show(Clone::clone, frozen, self);
        self.wake_compaction();
        Ok(())
    }

    /// Estimates the memory of the index updates of a flush or a merge. Those of one run are
    /// applied while those of the next one are collected.
    pub(super) fn updates_bytes(keys: u64, of_run: u64) -> u64 {
        keys.min(of_run * 2).min(to_u64(UPDATES_MAX) * 2) * UPDATE_BYTES
    }

    /// Removes the runs that the newest durable list leaves out from the super version and from
    /// disk. Files that cannot be removed are tried again at the next call.
    pub(super) fn remove_obsolete_runs(&self) {
        let gone = self.manifest.remove_unlisted();
        let mut unremoved_runs = lock(&self.unremoved_runs);
        if !gone.is_empty() {
            let view = self.write_buffer.view.load_full();
            let runs = gone.iter().filter_map(|number| view.version.find(*number));
            self.release_run_memory(runs.map(|run| run.memory_bytes()).sum());
            self.write_buffer.show(|runs| runs.without(&gone), &[], self);
            unremoved_runs.extend(gone);
        }
        unremoved_runs.retain(|number| {
            let removed = self.owner.dir.remove(&self.owner.kind.name_of(u64::from(*number)));
            let failed = removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound);
            if failed {
                self.counters.cleanup_failures_total.fetch_add(1, Ordering::Relaxed);
            }
            failed
        });
    }

    /// Divides memory between the two caches: the block cache gets what the pages of the index
    /// leave, and shrinks by the excess over the budget.
    pub(super) fn divide_memory(&self) {
        let pages = self.paged.tree.cache();
        let wanted = self.paged.tree.space().used().min(pages.capacity());
        let most = self.settings.cache_bytes.saturating_sub(wanted * to_u64(pages.page_bytes()));
        self.cache.blocks.set_most(most.max(self.settings.cache_bytes_min));
        let budget = &self.context.budget;
        let excess = budget.used().saturating_sub(budget.limit());
        if excess > 0 {
            self.cache.blocks.shrink(excess);
        }
    }

    /// Reserves the memory of a run.
    fn reserve_run_memory(&self, bytes: u64) {
        self.context.budget.reserve_unchecked(bytes);
        self.run_memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.divide_memory();
    }

    /// Releases the memory of removed runs.
    fn release_run_memory(&self, bytes: u64) {
        self.run_memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.context.budget.release(bytes);
    }
}

const _: () = assert!(size_of::<BlockAddress>() == 8, "an address of a block is one word");
const _: () = assert!(UPDATES_MAX >> BLOCKS_MAX.trailing_zeros() == 0);
