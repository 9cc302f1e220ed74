//! Compaction: copies live entries out of the chunks with the most waste, and drops those chunks.
//!
//! Live entries go to a separate chunk, because hot keys have moved on and the rest is cold. Its
//! order is above its sources and below everything written meanwhile. The slot is swapped under the
//! group's lock, and only if it still holds the old address: writers continue, and readers see
//! either copy.
//! A tombstone is kept while an older chunk exists. An expired entry becomes a tombstone, or
//! nothing if no older chunk could resurrect the key.
//!
//! Rate: a step rewrites a few chunks, then the maintenance job decides again. Under writes,
//! compaction stops as soon as waste is back at the bound, so its I/O is proportional to the waste
//! that updates create. Compaction below the bound runs on an idle table and ends.
//!
//! Locks: `maintenance` for a step; one index group at a time.

use std::sync::Arc;

use super::{
    arena::EXTENT_HEAD_UNITS,
    chunk::Chunk,
    entry::{EntryHead, EntryKind, StoredEntry, UNIT_BYTES},
    maintenance::Maintenance,
    mutants,
    table::HashLog,
    wanted_work::{IDLE_WASTE_PER_CENT, LONG_IDLE_WASTE_PER_CENT},
    write::RESIZE_STEPS,
};
use crate::{
    Error, Result,
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{Ordering, lock, read},
    },
};

/// Maximum number of chunks that a step rewrites. It bounds the duration of the step.
const VICTIMS_PER_STEP: usize = 8;
/// Maximum number of chunks that a writer rewrites if compaction is behind.
const VICTIMS_PER_WRITER: usize = 2;
/// Maximum number of rewritten chunks that writers leave without a checkpoint. They and their
/// copies take memory and space.
const RETIRED_MAX: usize = 8;
/// A chunk is small below this part of its size.
const SMALL_PART: u64 = 8;
/// Number of small chunks that are not merged.
const SMALL_CHUNKS_MAX: u64 = 16;
/// Number of entries ahead whose index lines are prefetched.
const PREFETCH_DISTANCE: usize = 16;

impl HashLog {
    /// Compacts until no chunk is worth a rewrite.
    pub(super) fn compact_all(&self) -> Result<()> {
        while self.compact_step(LONG_IDLE_WASTE_PER_CENT)? {}
        Ok(())
    }

    /// Runs a bounded step of compaction towards `target` per cent of waste, then loads chunks into
    /// memory. Returns whether it rewrote a chunk.
    pub(super) fn compact_step(&self, target: u64) -> Result<bool> {
        self.populate_frames();
        let mut victims = 0;
        let mut maintenance = lock(&self.maintenance);
        if !self.context.read_only {
            if !maintenance.retired.is_empty() {
                // An earlier checkpoint failed. More victims would take memory and free nothing.
                let complete = maintenance.complete;
                self.make_checkpoint(&mut maintenance, complete)?;
            }
            victims = self.compact_victims(&mut maintenance, target, VICTIMS_PER_STEP)?;
            if victims > 0 {
                let complete = maintenance.complete;
                self.make_checkpoint(&mut maintenance, complete)?;
            } else {
                self.end_compaction(&mut maintenance, target)?;
            }
        }
        drop(maintenance);
        if self.warm_wanted.load(Ordering::Relaxed) {
            self.warm_step()?;
        }
        // The job decides on another step.
        self.context.host.wake();
        Ok(victims > 0)
    }

    /// Runs after the last victim: seals the active chunk if the waste is there, or rewrites the
    /// manifest.
    fn end_compaction(&self, maintenance: &mut Maintenance, target: u64) -> Result<()> {
        let applied = self.counters.applied.load(Ordering::Relaxed);
        let stuck = self.counters.exhausted_at.load(Ordering::Relaxed) == applied + 1;
        if self.waste_exceeds(target) && !stuck {
            return self.seal_active(maintenance, target);
        }
        if self.has_many_small() {
            // Those that are left are too new. The next write changes that.
            self.counters.exhausted_at.store(applied + 1, Ordering::Relaxed);
        }
        if target == LONG_IDLE_WASTE_PER_CENT {
            self.tidy_manifest(maintenance);
            self.counters.tidied_at.store(applied + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A step of compaction on a full disk. Rewrites single chunks, the one with the most waste
    /// first, each with a checkpoint. So the space of one is there for the copies of the next.
    pub(super) fn space_step(&self) -> Result<()> {
        let mut maintenance = lock(&self.maintenance);
        if self.context.read_only {
            return Ok(());
        }
        let complete = maintenance.complete;
        self.make_checkpoint(&mut maintenance, complete)?;
        for _ in 0..VICTIMS_PER_STEP {
            let victims = self.compact_victims(&mut maintenance, IDLE_WASTE_PER_CENT, 1)?;
            if victims == 0 {
                return self.end_compaction(&mut maintenance, IDLE_WASTE_PER_CENT);
            }
            self.make_checkpoint(&mut maintenance, complete)?;
        }
        Ok(())
    }

    /// Retires the chunks in which every entry is dead, if that needs no copies: tombstones are
    /// needed while the files have an older chunk.
    pub(super) fn retire_dead(&self, maintenance: &mut Maintenance) {
        let mut chunks: Vec<Arc<Chunk>> = read(&self.chunks).values().cloned().collect();
        chunks.sort_unstable_by_key(|chunk| (chunk.order, chunk.serial));
        let settled_below = self.settled_below();
        // Whether the files keep a chunk that is older than this one.
        let mut has_older = false;
        for chunk in chunks {
            let (dead, tombstones) = self.arena.waste(chunk.id);
            let is_dead = chunk.order < settled_below
                && chunk.written.load(Ordering::Acquire)
                && !chunk.retired.load(Ordering::Relaxed)
                && dead + tombstones == chunk.entry_units()
                && (tombstones == 0 || !has_older);
            if is_dead {
                self.retire(maintenance, &chunk);
            } else {
                has_older = true;
            }
        }
    }

    /// Rewrites up to `most` chunks while waste exceeds `target`. Returns how many. The next
    /// checkpoint frees them.
    fn compact_victims(
        &self,
        maintenance: &mut Maintenance,
        target: u64,
        most: usize,
    ) -> Result<usize> {
        let started = self.context.env.monotonic();
        let mut victims = 0;
        while victims < most {
            let wasteful = self.waste_exceeds(target);
            let wasteful = wasteful.then(|| self.pick_victim(maintenance, target)).flatten();
            let Some(victim) = wasteful.or_else(|| self.pick_small()) else { break };
            self.compact_chunk(maintenance, &victim)?;
            victims += 1;
        }
        if victims > 0 {
            let elapsed = self.context.env.monotonic().saturating_sub(started);
            self.counters.compactions.add(elapsed);
        }
        Ok(victims)
    }

    /// Compacts on the writer's thread if background compaction is behind, so that waste stays
    /// bounded: at most once for every half chunk of new waste.
    ///
    /// While a background step runs, the writer continues, unless waste is well above the
    /// bound. It leaves the checkpoint to the background if it can, because its syncs may take
    /// 100 ms. Background compaction reports failures; the write continues.
    pub(super) fn compact_if_behind(&self) {
        let most = self.waste_per_cent_of_writers();
        let (waste, _) = self.waste();
        if waste < self.counters.next_writer_compaction.load(Ordering::Relaxed)
            || !self.waste_exceeds(most)
        {
            return;
        }
        let idle = self.maintenance.try_lock();
        let mut maintenance = match idle {
            Ok(maintenance) => maintenance,
            Err(_) if !self.waste_exceeds(self.waste_per_cent_waited_for()) => return,
            Err(_) => lock(&self.maintenance),
        };
        if self.waste_exceeds(most) {
            if maintenance.retired.len() >= RETIRED_MAX {
                let complete = maintenance.complete;
                let _ = self.make_checkpoint(&mut maintenance, complete);
            } else {
                let _ = self.compact_victims(&mut maintenance, most, VICTIMS_PER_WRITER);
                self.checkpoint_wanted.store(true, Ordering::Relaxed);
                self.context.host.wake();
            }
            self.counters.writer_compactions_total.fetch_add(1, Ordering::Relaxed);
        }
        let next = self.waste().0 + self.arena.segment_units() / 2;
        self.counters.next_writer_compaction.store(next, Ordering::Relaxed);
    }

    /// Seals the active chunk, so that the next step has a victim, if the waste is in chunks that
    /// still take appends. If the waste is not there either, compaction pauses until the next
    /// write.
    fn seal_active(&self, maintenance: &mut Maintenance, target: u64) -> Result<()> {
        let wasteful = read(&self.chunks).values().any(|chunk| {
            let (dead, tombstones) = self.arena.waste(chunk.id);
            (dead + tombstones) * 100 > self.arena.used(chunk.id).0 * target
        });
        let applied = self.counters.applied.load(Ordering::Relaxed);
        let stuck = self.counters.exhausted_at.swap(applied + 1, Ordering::Relaxed);
        let closed = self.counters.active_sealed_at.load(Ordering::Relaxed) == applied + 1;
        if !wasteful || closed || stuck == applied + 1 {
            return Ok(());
        }
        self.counters.exhausted_at.store(0, Ordering::Relaxed);
        if let Some(cold) = maintenance.copy_chunk.take() {
            self.arena.seal(cold.id);
        }
        self.roll_from(self.active.load(Ordering::Acquire))?;
        let complete = maintenance.complete;
        self.make_checkpoint(maintenance, complete)?;
        // One more step may find a victim. If it does not, compaction pauses.
        self.counters.active_sealed_at.store(applied + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the written chunk with the most dead units, if it is worth a rewrite. Returns the
    /// oldest chunk if only tombstones are left to drop: no older chunk needs them.
    fn pick_victim(&self, maintenance: &Maintenance, target: u64) -> Option<Arc<Chunk>> {
        let cold = maintenance.copy_chunk.as_ref().map(|chunk| chunk.id);
        let mut candidates: Vec<Arc<Chunk>> = read(&self.chunks)
            .values()
            .filter(|chunk| !chunk.retired.load(Ordering::Relaxed))
            .cloned()
            .collect();
        candidates.sort_unstable_by_key(|chunk| (chunk.order, chunk.serial));
        let settled_below = self.settled_below();
        let usable = |chunk: &&Arc<Chunk>| {
            chunk.written.load(Ordering::Acquire)
                && Some(chunk.id) != cold
                && chunk.order < settled_below
        };
        let oldest = candidates.first().filter(usable);
        let best = candidates
            .iter()
            .filter(usable)
            .max_by_key(|chunk| self.arena.waste(chunk.id).0)
            .filter(|chunk| {
                let (dead, used) = (self.arena.waste(chunk.id).0, self.arena.used(chunk.id).0);
                dead * 16 >= used || dead * 100 > used * target
            });
        let dead_in_best = best.map_or(0, |chunk| self.arena.waste(chunk.id).0);
        let in_oldest = oldest.map_or(0, |chunk| {
            let (dead, tombstones) = self.arena.waste(chunk.id);
            dead + tombstones
        });
        if in_oldest >= dead_in_best && in_oldest > 0 || best.is_none() {
            return oldest.cloned();
        }
        best.cloned()
    }

    /// Returns a small chunk of those that the table was opened with, if there are too many.
    fn pick_small(&self) -> Option<Arc<Chunk>> {
        if !self.has_many_small() {
            return None;
        }
        let settled_below = self.settled_below();
        let chunks = read(&self.chunks);
        let opened_with = |chunk: &&Arc<Chunk>| {
            chunk.is_adopted
                && chunk.order < settled_below
                && !chunk.retired.load(Ordering::Relaxed)
        };
        let used = |chunk: &&Arc<Chunk>| self.arena.used(chunk.id).0;
        chunks.values().filter(opened_with).min_by_key(used).cloned()
    }

    /// Returns the order from which on chunks stay: that of the active chunk, and that of copies,
    /// which would not be above their source.
    fn settled_below(&self) -> u64 {
        lock(&self.roll).active_order.saturating_sub(1)
    }

    /// Returns whether a chunk that is used to this unit is small.
    pub(super) fn is_small(&self, used: u64) -> bool {
        used < self.arena.segment_units() / SMALL_PART
    }

    /// Returns whether there are more than [`SMALL_CHUNKS_MAX`] small chunks.
    pub(super) fn has_many_small(&self) -> bool {
        let small = self.counters.small_chunks.load(Ordering::Relaxed);
        small > mutant!(HashlogKeepsSmallChunks: u64::MAX, else SMALL_CHUNKS_MAX)
            && !self.context.read_only
    }

    /// Copies the live entries of `victim`, and retires it. Fails with `Corruption` if the
    /// chunk is damaged.
    fn compact_chunk(&self, maintenance: &mut Maintenance, victim: &Arc<Chunk>) -> Result<()> {
        let buffer = self.read_chunk(victim)?;
        let extents = lock(&victim.flush).extents.clone();
        let count: u64 = extents.iter().map(|extent| extent.entry_count).sum();
        let _memory = self.working_memory(count * to_u64(size_of::<(u64, u64, StoredEntry)>()));
        let mut entries = Vec::with_capacity(to_usize(count));
        for extent in &extents {
            let mut unit = extent.start + EXTENT_HEAD_UNITS;
            while unit < extent.end {
                let bytes = buffer.as_slice().get(to_usize(unit) * UNIT_BYTES..).unwrap_or(&[]);
                let Some(entry) = StoredEntry::verify(bytes, victim.serial, to_usize(unit)) else {
                    return Err(victim.damage(unit, "the entry's checksum does not match"));
                };
                entries.push((unit, self.hash(entry.key()), entry));
                unit += to_u64(entry.head.units());
            }
        }
        self.prepare_copies(maintenance, victim)?;
        let moved = entries.iter().enumerate().try_for_each(|(index, (unit, hash, entry))| {
            if let Some((_, ahead, _)) = entries.get(index + PREFETCH_DISTANCE) {
                self.index.prefetch(*ahead);
            }
            self.move_entry(maintenance, victim, (*unit, *hash), entry)
        });
        self.end_copies(maintenance);
        moved?;
        self.retire(maintenance, victim);
        Ok(())
    }

    /// Retires a chunk whose live entries are copied: the next checkpoint drops it.
    fn retire(&self, maintenance: &mut Maintenance, chunk: &Arc<Chunk>) {
        let (dead, tombstones) = self.arena.waste(chunk.id);
        self.counters.units.fetch_sub(chunk.entry_units(), Ordering::Relaxed);
        self.counters.waste_units.fetch_sub(dead + tombstones, Ordering::Relaxed);
        self.counters.compacted_total.fetch_add(1, Ordering::Relaxed);
        if chunk.is_adopted && self.is_small(self.arena.used(chunk.id).0) {
            self.counters.small_chunks.fetch_sub(1, Ordering::Relaxed);
        }
        chunk.retired.store(true, Ordering::Relaxed);
        if !self.release_frame(chunk.id) {
            self.counters.cold_chunks.fetch_sub(1, Ordering::Relaxed);
        }
        maintenance.retired.push(Arc::clone(chunk));
    }

    /// Allocates the file range that the copies of `victim` may need beyond the present chunk of
    /// copies. So they can be written, and the space of the victim returns, on any disk. Fails with
    /// `DiskFull` before anything is copied.
    ///
    /// A packed chunk has no file range before its extents are written.
    fn prepare_copies(&self, maintenance: &mut Maintenance, victim: &Chunk) -> Result<()> {
        let (dead, tombstones) = self.arena.waste(victim.id);
        let dropped = if self.has_older(victim) { dead } else { dead + tombstones };
        let units = victim.entry_units().saturating_sub(dropped);
        let fits = maintenance.copy_chunk.as_ref().is_some_and(|chunk| {
            let (used, sealed) = self.arena.used(chunk.id);
            !sealed && is_above(chunk, victim) && used + units <= self.arena.segment_units()
        });
        if units == 0 || fits || self.settings.compresses {
            return Ok(());
        }
        let now = self.context.env.unix_millis();
        let range = match maintenance.files.allocate(self.arena.segment_bytes(), now) {
            Err(Error::DiskFull { .. }) => {
                if let Some(chunk) = maintenance.copy_chunk.take() {
                    self.arena.seal(chunk.id);
                }
                maintenance.files.allocate((EXTENT_HEAD_UNITS + units) * to_u64(UNIT_BYTES), now)?
            }
            allocated => allocated?,
        };
        maintenance.copy_range = Some(range);
        Ok(())
    }

    /// Ends what [`Self::prepare_copies`] began. A chunk of copies with a short file range takes no
    /// more of them.
    fn end_copies(&self, maintenance: &mut Maintenance) {
        if let Some(range) = maintenance.copy_range.take() {
            maintenance.files.free(range);
        }
        let is_short = |chunk: &mut Arc<Chunk>| {
            let range = chunk.file_range();
            range.is_some_and(|range| range.bytes < self.arena.segment_bytes())
        };
        if let Some(chunk) = maintenance.copy_chunk.take_if(is_short) {
            self.arena.seal(chunk.id);
        }
    }

    /// Copies an entry if it is live, and swaps its slot.
    fn move_entry(
        &self,
        maintenance: &mut Maintenance,
        victim: &Arc<Chunk>,
        (unit, hash): (u64, u64),
        entry: &StoredEntry<'_>,
    ) -> Result<()> {
        let (key, value) = (entry.key(), entry.value());
        let address = self.arena.address(victim.id, unit);
        if entry.head.kind == EntryKind::Tombstone {
            let needed = mutant!(HashlogDropsTombstonesEarly: false, else self.has_older(victim));
            if needed && !self.has_entry(hash, key)? {
                self.copy_tombstone(maintenance, victim, entry.head.lsn, key)?;
            }
            return Ok(());
        }
        // A false answer costs a copy that `replace` refuses, or a later look: it decides.
        if !self.index.candidates(hash).any(|candidate| candidate == address) {
            return Ok(());
        }
        if entry.head.kind == EntryKind::Put && self.context.host.is_expired(value) {
            return self.expire(maintenance, victim, address, hash, entry);
        }
        let (chunk, copy) = self.append_copy(maintenance, victim, &entry.head, key, value)?;
        let moved = self.index.lock(hash).replace(address, copy);
        if moved {
            self.counters.units.fetch_add(to_u64(entry.head.units()), Ordering::Relaxed);
            mutant!(HashlogMiscountsCopies => mutants::count_copy_as_new(self, &entry.head));
        } else {
            // A writer replaced the entry meanwhile. No reader saw the copy, and recovery must not
            // find it.
            self.arena.unreserve(chunk, to_u64(entry.head.units()));
        }
        Ok(())
    }

    /// Removes an expired entry. Copies a tombstone if an older chunk exists.
    fn expire(
        &self,
        maintenance: &mut Maintenance,
        victim: &Arc<Chunk>,
        address: u64,
        hash: u64,
        entry: &StoredEntry<'_>,
    ) -> Result<()> {
        if !self.index.lock(hash).remove(address) {
            return Ok(());
        }
        self.index.shrink(RESIZE_STEPS);
        let units = to_u64(entry.head.units());
        self.arena.add_dead(victim.id, units);
        self.counters.waste_units.fetch_add(units, Ordering::Relaxed);
        self.counters.live_bytes.fetch_sub(entry.head.payload_bytes(), Ordering::Relaxed);
        if self.has_older(victim) {
            self.copy_tombstone(maintenance, victim, entry.head.lsn, entry.key())?;
        }
        Ok(())
    }

    /// Appends a tombstone to the copy chunk.
    fn copy_tombstone(
        &self,
        maintenance: &mut Maintenance,
        victim: &Arc<Chunk>,
        lsn: u64,
        key: &[u8],
    ) -> Result<()> {
        let head =
            EntryHead { kind: EntryKind::Tombstone, key_bytes: key.len(), value_bytes: 0, lsn };
        let (chunk, _) = self.append_copy(maintenance, victim, &head, key, &[])?;
        let units = to_u64(head.units());
        self.arena.add_tombstone(chunk, units);
        self.counters.units.fetch_add(units, Ordering::Relaxed);
        self.counters.waste_units.fetch_add(units, Ordering::Relaxed);
        Ok(())
    }

    /// Appends an entry to the copy chunk, and starts a new one if it is full or not above
    /// `victim`. Returns the chunk's id and the address.
    fn append_copy(
        &self,
        maintenance: &mut Maintenance,
        victim: &Arc<Chunk>,
        head: &EntryHead,
        key: &[u8],
        value: &[u8],
    ) -> Result<(u64, u64)> {
        let units = to_u64(head.units());
        loop {
            if let Some(chunk) = &maintenance.copy_chunk {
                if is_above(chunk, victim)
                    && let Some(unit) = self.arena.reserve(chunk.id, units)
                {
                    let words = self.arena.words(chunk.id, 0).unwrap_or(&[]);
                    let words = words.get(to_usize(unit)..to_usize(unit + units)).unwrap_or(&[]);
                    head.store(words, key, [value, &[]]);
                    self.counters.unflushed_units.fetch_add(units, Ordering::Relaxed);
                    return Ok((chunk.id, self.arena.address(chunk.id, unit)));
                }
                self.arena.seal(chunk.id);
            }
            let started = self.context.env.monotonic();
            let frame = self.frame_beyond_limit()?;
            let mut roll = lock(&self.roll);
            // Just below the active chunk, and above every written chunk.
            let active = roll.active_order;
            let order =
                mutant!(HashlogRanksCopiesHighest: active + 1, else active.saturating_sub(1));
            let chunk = self.start_chunk(&mut roll, order, frame)?;
            drop(roll);
            lock(&chunk.flush).file_range = maintenance.copy_range.take();
            maintenance.copy_chunk = Some(chunk);
            let elapsed = self.context.env.monotonic().saturating_sub(started);
            self.counters.chunk_creations.add(elapsed);
        }
    }
}

/// Returns whether entries of `chunk` are newer than equal ones of `victim`.
fn is_above(chunk: &Chunk, victim: &Chunk) -> bool {
    (chunk.order, chunk.serial) > (victim.order, victim.serial)
}
