//! Appends to the active chunk, and the start of new chunks.
//!
//! Locks: the caller of [`HashLog::append`] holds the key's group. `roll` guards the start of a
//! chunk.

use std::{sync::Arc, time::Duration};

use super::{
    arena::EXTENT_HEAD_UNITS,
    chunk::{Chunk, FlushState},
    entry::EntryHead,
    table::{HashLog, RollState},
};
use crate::{
    Error, Result,
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
    },
};

/// Writers that fill a chunk in less time are fast: frames are populated ahead of them.
const FILLING_TIME: Duration = Duration::from_millis(100);

impl HashLog {
    /// Appends an entry to the active chunk, and starts a chunk if it is full. Returns the address.
    /// The caller must hold the key's group.
    pub(super) fn append(&self, head: &EntryHead, key: &[u8], value: [&[u8]; 2]) -> Result<u64> {
        let units = to_u64(head.units());
        loop {
            let active = self.active.load(Ordering::Acquire);
            if let Some(chunk) = active.checked_sub(1)
                && let Some(unit) = self.arena.reserve(chunk, units)
            {
                let words = self.arena.words(chunk, 0).unwrap_or(&[]);
                let words = words.get(to_usize(unit)..to_usize(unit + units)).unwrap_or(&[]);
                head.store(words, key, value);
                self.counters.units.fetch_add(units, Ordering::Relaxed);
                self.counters.unflushed_units.fetch_add(units, Ordering::Relaxed);
                return Ok(self.arena.address(chunk, unit));
            }
            self.roll_from(active)?;
        }
    }

    /// Seals the active chunk `seen` and starts a new one, unless another thread did.
    pub(super) fn roll_from(&self, seen: u64) -> Result<()> {
        let mut roll = lock(&self.roll);
        if self.active.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        if let Some(old) = seen.checked_sub(1) {
            self.arena.seal(old);
        }
        let started = self.context.env.monotonic();
        let frame = self.frame_beyond_limit()?;
        roll.active_order += 2;
        let order = roll.active_order;
        let chunk = self.start_chunk(&mut roll, order, frame)?;
        self.active.store(chunk.id + 1, Ordering::Release);
        let now = self.context.env.monotonic();
        self.counters.chunk_creations.add(now.saturating_sub(started));
        let last = roll.rolled_at.replace(now);
        let fast = last.is_some_and(|last| now.saturating_sub(last) < FILLING_TIME);
        self.arena.set_filling(fast);
        drop(roll);
        self.charge_index();
        let unflushed = self.counters.unflushed_units.load(Ordering::Relaxed);
        if unflushed >= self.settings.mutable_chunks * self.arena.segment_units()
            || self.waste_exceeds(self.waste_per_cent_max())
            || self.wants_frames()
        {
            self.context.host.wake();
        }
        Ok(())
    }

    pub(super) fn start_chunk(
        &self,
        roll: &mut RollState,
        order: u64,
        frame: u64,
    ) -> Result<Arc<Chunk>> {
        let id = roll.free_ids.pop().unwrap_or_else(|| {
            roll.next_id += 1;
            roll.next_id - 1
        });
        if id >= self.arena.count_max() {
            self.arena.release_frame(frame);
            return Err(Error::Limit {
                what: "the table has the maximum number of chunks; use a larger `chunk_bytes`"
                    .to_owned(),
            });
        }
        roll.next_serial += 1;
        let chunk = Arc::new(Chunk {
            id,
            serial: roll.next_serial,
            order,
            created: self.context.env.unix_millis(),
            is_adopted: false,
            packed_extents: RwLock::default(),
            span: AtomicU64::new(0),
            written: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            writer_reads: AtomicU64::new(0),
            flush: Mutex::new(FlushState::default()),
        });
        self.arena.begin(id, 0, EXTENT_HEAD_UNITS, false);
        self.arena.attach(id, frame);
        write(&self.chunks).insert(id, Arc::clone(&chunk));
        Ok(chunk)
    }

    /// Returns whether a live chunk older than this one exists.
    pub(super) fn has_older(&self, chunk: &Chunk) -> bool {
        let order = (chunk.order, chunk.serial);
        read(&self.chunks).values().any(|other| {
            (other.order, other.serial) < order && !other.retired.load(Ordering::Relaxed)
        })
    }
}
