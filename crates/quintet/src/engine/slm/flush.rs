//! Flushes memtables to runs, and enters the runs into the index.
//!
//! A flush freezes the active memtable while no insert is in progress. So the runs have all effects
//! below the LSN that the caller was promised. They may have later effects too, which replay
//! repeats. A delete is in no run: the flush removes the key's place from the index.
//!
//! Invariant: memtables leave the view only when the index has all their places, so readers find
//! each key throughout. A failed flush keeps its memtables, and the next flush writes all of them
//! again. The runs of the failed flush then have no live entry.

use std::sync::Arc;

use super::{
    Inner,
    runs::{BLOCKS_MAX, Entered, Place, Run, encode_bounds, part_of},
};
use crate::{
    Result,
    engine::slm::{
        index_update::{Batch, Moves},
        key_code::Buffer,
    },
    lsm::{
        block_cache::CacheAdmission,
        cursor::merge::{Direction, MemtableCursor, Merge, ScanStart},
        memtable::Memtable,
        sst::SstWriter,
    },
    util::{
        codec::{Lsn, to_u64},
        mutant::{self, Bug},
        sync::{Ordering, lock},
    },
};

/// What a move takes in memory, with a key of 24 bytes.
const MOVE_BYTES: u64 = 72;

/// A run in the making. Its file goes if it is not finished.
pub(super) struct Draft<'a> {
    inner: &'a Inner,
    number: u32,
    writer: Option<SstWriter>,
    low: Vec<u8>,
    high: Vec<u8>,
    pub(super) moves: Moves,
}

impl<'a> Draft<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        let (low, high, moves) = Default::default();
        Self { inner, number: 0, writer: None, low, high, moves }
    }

    /// Adds an entry and says where it is. Its block gets this room in the cache at least.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        value: &[u8],
        room: CacheAdmission,
    ) -> Result<Entered> {
        if self.writer.is_none() {
            self.number = self.inner.ledger.next_number()?;
            let (inner, number) = (self.inner, u64::from(self.number));
            let flow = inner.queues.flow(&*inner.context.env)?;
            let shape = inner.settings.shape;
            let writer = SstWriter::create(&inner.owner, number, shape, (&inner.cache, &flow))?;
            self.writer = Some(writer);
            self.low = key.to_vec();
        }
        self.high.clear();
        self.high.extend_from_slice(key);
        let (block, offset) = match &mut self.writer {
            Some(writer) => writer.add(key, Some(value), room)?,
            None => (0, 0),
        };
        let lasts = !self.inner.context.host.expires(value);
        let lasts = lasts || mutant::active(Bug::SlmTakesAllForLasting);
        let mut part = part_of(offset, self.inner.settings.shape.block_bytes);
        if mutant::active(Bug::SlmMarksNextPart) {
            part = part.saturating_add(1);
        }
        Ok(Entered { place: Place { run: self.number, block }, lasts, part })
    }

    /// Whether a run of it would be large enough.
    pub(super) fn is_full(&self) -> bool {
        let bytes = self.writer.as_ref().map_or(0, SstWriter::data_bytes);
        // Deletes are no part of the file, but of memory.
        bytes >= self.inner.settings.run_bytes || self.moves.len() >= MOVES_MAX
    }

    /// Makes the file durable and shows it to readers, to whom nothing points to it yet.
    pub(super) fn finish(mut self) -> Result<Batch> {
        let moves = std::mem::take(&mut self.moves);
        let Some(writer) = self.writer.take() else { return Ok(Batch { run: None, moves }) };
        let bounds = (std::mem::take(&mut self.low), std::mem::take(&mut self.high));
        let inner = self.inner;
        match writer.finish([encode_bounds(&bounds.0, &bounds.1)]) {
            Ok(sst) => {
                inner.counters.written_bytes_total.fetch_add(sst.file_bytes, Ordering::Relaxed);
                let run = Arc::new(Run::new(self.number, sst, bounds));
                inner.ledger.add(&run);
                inner.charge_runs(run.memory_bytes());
                inner.front.show(|runs| runs.with(&run), &[], inner);
                Ok(Batch { run: Some(run), moves })
            }
            Err(error) => {
                self.remove();
                Err(error)
            }
        }
    }

    fn remove(&self) {
        // Should this fail, the next opening removes it.
        let name = self.inner.owner.kind.name_of(u64::from(self.number));
        let _ = self.inner.owner.dir.remove(&name);
    }
}

/// Moves that one batch may have.
const MOVES_MAX: usize = 1 << 20;

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.writer.take().is_some() {
            self.remove();
        }
    }
}

impl Inner {
    /// Makes every effect below `up_to` durable in the files.
    pub(super) fn flush_to(&self, up_to: Lsn) -> Result<Lsn> {
        self.flush_all()?;
        self.cut(Some(up_to))
    }

    /// Flushes all memtables.
    pub(super) fn flush_all(&self) -> Result<()> {
        let _flushing = lock(&self.flushing);
        self.front.rotate_any(self)?;
        self.flush_frozen(true)
    }

    /// Takes a cut of the index with the list of runs: the files are complete to `up_to` then, or
    /// to where they were. Files that no list names go.
    pub(super) fn cut(&self, up_to: Option<Lsn>) -> Result<Lsn> {
        let mut checkpointer = lock(&self.paged.checkpointer);
        let complete = checkpointer.complete();
        let lsn = up_to.map_or(complete, |lsn| lsn.max(complete));
        let is_dirty = self.paged.has_pending_changes() || self.ledger.has_dead();
        let outcome = if lsn > complete || is_dirty {
            self.paged.store_checkpoint(&mut checkpointer, lsn)
        } else {
            Ok(())
        };
        let complete = checkpointer.complete();
        drop(checkpointer);
        self.clean();
        outcome.map(|()| complete)
    }

    /// Flushes what is frozen, and, where nothing is, the active memtable.
    pub(super) fn flush_some(&self) -> Result<()> {
        // No view is held while waiting: see `WriteBuffer::make_room`.
        let before = self.front.view.load().frozen.len();
        let _flushing = lock(&self.flushing);
        let view = self.front.view.load_full();
        if view.frozen.len() < before {
            // Whoever held the lock did it.
            return Ok(());
        }
        if view.frozen.is_empty() {
            self.front.rotate_any(self)?;
        }
        self.flush_frozen(false)
    }

    /// Flushes what is frozen now, from the oldest on: all of it, or as much as makes room for a
    /// memtable.
    fn flush_frozen(&self, all: bool) -> Result<()> {
        let view = self.front.view.load_full();
        let mut left = view.frozen.as_slice();
        while !left.is_empty() {
            let (rest, these) = self.front.oldest(left);
            let began = self.context.env.monotonic();
            self.flush_these(these)?;
            self.front.note_flush(these, began);
            if !all {
                break;
            }
            left = rest;
        }
        Ok(())
    }

    fn flush_these(&self, frozen: &[Arc<Memtable>]) -> Result<()> {
        self.counters.flushes_total.fetch_add(1, Ordering::Relaxed);
        if !self.keys.is_decided() {
            self.keys.decide(frozen, self.settings.has_key_code)?;
        }
        let keys: u64 = frozen.iter().map(|one| one.keys()).sum();
        let bytes: u64 = frozen.iter().map(|one| one.payload_bytes()).sum();
        let of_run = self.settings.run_bytes / (bytes / keys.max(1)).max(1);
        let _memory = self.context.budget.reserve_transient(Self::moves_bytes(keys, of_run));
        self.make_space();
        let start = ScanStart::up(None);
        let mut merge = Merge::new(MemtableCursor::all(frozen.to_vec(), &start), Direction::Up);
        merge.settle()?;
        self.enter_all(&mut || {
            let mut draft = Draft::new(self);
            while let Some(key) = merge.key().filter(|_| !draft.is_full()) {
                let value = merge.value().filter(|value| !self.context.host.is_expired(value));
                let to =
                    value.map(|value| draft.add(key, value, CacheAdmission::Normal)).transpose()?;
                let mut buffer = Buffer::default();
                if let Some(coded) = self.keys.index_key(key, &mut buffer) {
                    draft.moves.push((self.hash(key), coded), to, None);
                }
                merge.advance()?;
            }
            if draft.moves.is_empty() { Ok(None) } else { draft.finish().map(Some) }
        })?;
        self.front.show(Clone::clone, frozen, self);
        self.is_changed();
        Ok(())
    }

    /// What the moves of a flush or a merge take in memory: those of one run are entered while
    /// those of the next one come.
    pub(super) fn moves_bytes(keys: u64, of_run: u64) -> u64 {
        keys.min(of_run * 2).min(to_u64(MOVES_MAX) * 2) * MOVE_BYTES
    }

    /// Removes runs that nothing names any more. What cannot be removed now is tried again.
    pub(super) fn clean(&self) {
        let gone = self.ledger.take_gone();
        let mut obsolete = lock(&self.obsolete);
        if !gone.is_empty() {
            let view = self.front.view.load_full();
            let runs = gone.iter().filter_map(|number| view.version.find(*number));
            self.give_runs(runs.map(|run| run.memory_bytes()).sum());
            self.front.show(|runs| runs.without(&gone), &[], self);
            obsolete.extend(gone);
        }
        obsolete.retain(|number| {
            let removed = self.owner.dir.remove(&self.owner.kind.name_of(u64::from(*number)));
            let failed = removed.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound);
            if failed {
                self.counters.cleanup_failures_total.fetch_add(1, Ordering::Relaxed);
            }
            failed
        });
    }

    /// Leaves the index the memory that its pages take, up to what its cache may have, and has the
    /// cache of blocks give back what exceeds the budget.
    pub(super) fn make_space(&self) {
        let pages = self.paged.tree.cache();
        let wanted = self.paged.tree.allocator().used().min(pages.capacity());
        let most = self.settings.cache_bytes.saturating_sub(wanted * to_u64(pages.page_bytes()));
        self.cache.blocks.set_most(most.max(self.settings.cache_bytes_min));
        let budget = &self.context.budget;
        let excess = budget.used().saturating_sub(budget.limit());
        if excess > 0 {
            self.cache.blocks.shrink(excess);
        }
    }

    /// Draws what a run takes in memory.
    fn charge_runs(&self, bytes: u64) {
        self.context.budget.reserve_unchecked(bytes);
        self.runs_charged.fetch_add(bytes, Ordering::Relaxed);
        self.make_space();
    }

    fn give_runs(&self, bytes: u64) {
        self.runs_charged.fetch_sub(bytes, Ordering::Relaxed);
        self.context.budget.release(bytes);
    }
}

const _: () = assert!(size_of::<Place>() == 8, "a place is one word");
const _: () = assert!(MOVES_MAX >> BLOCKS_MAX.trailing_zeros() == 0);
