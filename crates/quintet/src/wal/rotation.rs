//! Segment rotation: prepare the next segment, move to it, prune and recycle old ones.
//!
//! A background job prepares the next segment when the current one is half full
//! ([`Log::prepare`]), so that a writer that finds the current one full only exchanges a pointer
//! ([`Log::rotate`]). Pruned files of the usual size are recycled, at most [`RECYCLED_MAX`].
//!
//! Invariants:
//! - A segment is removed or recycled only if it ends at or below the durable end of the log and
//!   the start that the catalog durably names.
//! - At most one prepared segment (the spare) exists. `has_spare` says so without a lock.
//!
//! Threads: any. Lock order: `rotation`, then `sealed`.

use std::{mem, sync::Arc, time::Duration};

use super::{
    log::{Log, PREPARED_BYTES_MIN, Rotation},
    options::SEGMENT_BYTES_MIN,
    recovery::SealedSegment,
    segment::{self, Segment, SegmentHead},
};
use crate::{
    Error, Result,
    io::BLOCK_BYTES,
    util::{
        codec::{Lsn, low_u64, round_up},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Maximum number of pruned segment files that are kept for reuse. They have their blocks, and
/// often their cached pages.
pub(super) const RECYCLED_MAX: usize = 2;
/// An idle log moves to a segment of the usual size divided by this.
const SMALL_SEGMENT_DIVISOR: u64 = 32;
/// An idle log moves to a small segment only if the current one is at least this many times as
/// large.
const SMALL_SEGMENT_GAIN_MIN: u64 = 8;
/// Largest segment for writes that free space on a full disk, in bytes.
const SEGMENT_BYTES_TO_FREE: u64 = 128 << 10;
/// Most bytes past the tail whose pages are made writable at once, for a log that grows fast.
const PREPARED_BYTES_MAX: u64 = 4 << 20;
/// How long the prepared pages should last at the rate at which the log grows. Half of them are
/// left when more are requested. The system call took up to 0.36 s while other files were synced.
const PREPARED_TIME: Duration = Duration::from_millis(800);

impl Log {
    /// Moves to the next segment, unless another thread has done so since `number` was found full.
    /// The next segment has room for a record of `size` bytes.
    pub(super) fn rotate(&self, number: u64, size: u64) -> Result<()> {
        self.check_failure()?;
        let current = self.current()?;
        let mut rotation = lock(&self.rotation);
        let full = current.load_full();
        if full.head.number != number {
            return Ok(());
        }
        self.ensure_spare(&mut rotation, &full, segment::HEAD_BYTES + size)?;
        if let Some(next) = rotation.spare.take() {
            self.has_spare.store(false, Ordering::Relaxed);
            next.mark_in_use(true);
            next.store_catalog_edit(self.catalog_edit.load(Ordering::Relaxed));
            let sealed = SealedSegment { head: full.head, file: Arc::clone(&full.file) };
            lock(&self.sealed).push(sealed);
            current.store(Arc::new(next));
        }
        Ok(())
    }

    /// Ensures that the spare segment has at least `needed` bytes, head included. A smaller one is
    /// removed and replaced.
    fn ensure_spare(&self, rotation: &mut Rotation, full: &Segment, needed: u64) -> Result<()> {
        if rotation.spare.as_ref().is_some_and(|spare| needed <= spare.head.capacity) {
            return Ok(());
        }
        if let Some(small) = rotation.spare.take() {
            self.has_spare.store(false, Ordering::Relaxed);
            let number = small.head.number;
            drop(small);
            self.remove_segment(number)?;
        }
        let made = self.make_spare(rotation, full, needed);
        if made.is_err() {
            // The record may be too large for the disk. Smaller ones may still fit.
            let _ = self.make_spare(rotation, full, 0);
        }
        made
    }

    /// Makes the segment after `full`, of at least `needed` bytes, head included.
    fn make_spare(&self, rotation: &mut Rotation, full: &Segment, needed: u64) -> Result<()> {
        let next = (full.head.number + 1, full.head.end());
        let capacity = self.segment_bytes.max(round_up(needed, BLOCK_BYTES));
        let recycled = (capacity == self.segment_bytes).then(|| rotation.recycled.pop()).flatten();
        let mut made = self.make_segment(next, capacity, recycled);
        if matches!(made, Err(Error::DiskFull { .. }))
            && self.start() < self.retention.unneeded_below()
        {
            // Writes have precedence over readers of the log.
            self.remove_segments(rotation, self.retention.unneeded_below())?;
            for number in mem::take(&mut rotation.recycled) {
                self.remove_segment(number)?;
            }
            made = self.make_segment(next, capacity, None);
        }
        self.is_disk_full.store(matches!(made, Err(Error::DiskFull { .. })), Ordering::Relaxed);
        rotation.spare = Some(made?);
        self.has_spare.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Prepares what writers will need next: pages of the current segment, and the next segment.
    /// A background job calls it. After a full disk it tries again.
    pub fn prepare(&self) -> Result<()> {
        self.check_failure()?;
        let ahead = self.update_preparation();
        let current = self.current()?.load_full();
        current.prepare_pages(current.used() + ahead);
        let mut rotation = lock(&self.rotation);
        let current = self.current()?.load_full();
        if self.wants_spare(&current) {
            self.make_spare(&mut rotation, &current, 0)?;
        }
        Ok(())
    }

    /// Returns whether the last attempt to make a segment met a full disk, and there is none ahead.
    #[inline]
    pub fn lacks_space(&self) -> bool {
        self.is_disk_full.load(Ordering::Relaxed) && !self.has_spare.load(Ordering::Relaxed)
    }

    /// Prepares a small segment for writes that free space, on a disk that is full.
    pub fn prepare_to_free(&self) -> Result<()> {
        self.check_failure()?;
        let mut rotation = lock(&self.rotation);
        if rotation.spare.is_none() {
            let current = self.current()?.load_full();
            let next = (current.head.number + 1, current.head.end());
            let capacity = self.segment_bytes.min(SEGMENT_BYTES_TO_FREE);
            rotation.spare = Some(self.make_segment_within_space(next, capacity)?);
            self.has_spare.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns how many bytes to prepare ahead, from the growth of the log since the last call.
    fn update_preparation(&self) -> u64 {
        let now = self.env.monotonic();
        let mut rotation = lock(&self.rotation);
        let (elapsed, end) = (now.saturating_sub(rotation.prepared_at), self.end());
        let grown = end.0.saturating_sub(rotation.prepared_end.0);
        let wanted = u128::from(grown) * PREPARED_TIME.as_micros() / elapsed.as_micros().max(1);
        let ahead = low_u64(wanted.min(u128::from(PREPARED_BYTES_MAX))).max(PREPARED_BYTES_MIN);
        (rotation.prepared_at, rotation.prepared_end) = (now, end);
        self.prepared_bytes.store(ahead, Ordering::Relaxed);
        ahead
    }

    /// Returns whether [`Self::prepare`] has work to do. [`Appended`] says so after an append.
    ///
    /// [`Appended`]: super::Appended
    pub fn wants_preparation(&self) -> bool {
        self.current.as_ref().is_some_and(|current| self.is_unprepared(&current.load()))
    }

    /// Returns whether the pages or the segment after the end of `current` should be prepared.
    pub(super) fn is_unprepared(&self, current: &Segment) -> bool {
        let ahead = current.prepared_ahead();
        let low = ahead < self.prepared_bytes.load(Ordering::Relaxed) / 2;
        let full = ahead + current.used() >= current.head.capacity;
        (low && !full) || self.wants_spare(current)
    }

    /// Returns whether the next segment should be made: there is none, and the current one is half
    /// full or the last attempt to make one met a full disk.
    fn wants_spare(&self, current: &Segment) -> bool {
        let half_full = current.used() > current.head.capacity / 2;
        (half_full || self.is_disk_full.load(Ordering::Relaxed))
            && !self.has_spare.load(Ordering::Relaxed)
    }

    /// Removes or recycles the segments that no table needs and that end at or below `below`.
    pub(super) fn remove_segments(&self, rotation: &mut Rotation, below: Lsn) -> Result<()> {
        if self.retention.is_closed() {
            return Ok(());
        }
        let unneeded = self.retention.unneeded_below().min(self.durable());
        let removed: Vec<SegmentHead> = {
            let mut sealed = lock(&self.sealed);
            let mut retained = lock(&self.retention.retained);
            let extra = mutant!(LogPrunesTooMuch: 1, else 0);
            let is_unneeded = |sealed: &SealedSegment| sealed.head.end() <= unneeded;
            let count = (sealed.partition_point(is_unneeded) + extra).min(sealed.len());
            retained.extend(sealed.drain(..count).map(|sealed| sealed.head));
            let count = retained.partition_point(|head| head.end() <= below);
            let count = mutant!(LogPrunesTooMuch: retained.len(), else count);
            retained.drain(..count).collect()
        };
        for head in removed {
            let has_usual_size = head.capacity == self.segment_bytes;
            if has_usual_size && rotation.recycled.len() < RECYCLED_MAX {
                rotation.recycled.push(head.number);
            } else {
                self.remove_segment(head.number)?;
            }
        }
        Ok(())
    }

    /// Moves an idle log to a small segment, so that the full-size one can be pruned. Returns
    /// whether it did. Then the log's end has moved past everything that was appended. It does not
    /// if the gain is small, a writer appends meanwhile, or the disk is full.
    pub fn move_to_small_segment(&self) -> Result<bool> {
        self.release_spares()?;
        let small = (self.segment_bytes / SMALL_SEGMENT_DIVISOR).max(SEGMENT_BYTES_MIN);
        let small = round_up(small, BLOCK_BYTES);
        let full = self.current()?.load_full();
        if full.head.capacity < small * SMALL_SEGMENT_GAIN_MIN {
            return Ok(false);
        }
        {
            let mut rotation = lock(&self.rotation);
            let is_last = self.current()?.load().head.number == full.head.number;
            if !is_last || rotation.spare.is_some() {
                // The log is not idle: a writer has caused a rotation or a preparation.
                return Ok(false);
            }
            let next = (full.head.number + 1, full.head.end());
            let Ok(made) = self.make_segment(next, small, None) else { return Ok(false) };
            rotation.spare = Some(made);
            self.has_spare.store(true, Ordering::Relaxed);
        }
        self.begin()?.end_segment()?;
        Ok(true)
    }

    /// Removes the files that are kept for the next segments. For an idle log: the next writers
    /// have new ones made.
    pub fn release_spares(&self) -> Result<()> {
        let mut rotation = lock(&self.rotation);
        let spare = rotation.spare.take().map(|spare| spare.head.number);
        self.has_spare.store(false, Ordering::Relaxed);
        for number in spare.into_iter().chain(mem::take(&mut rotation.recycled)) {
            self.remove_segment(number)?;
        }
        Ok(())
    }

    fn remove_segment(&self, number: u64) -> Result<()> {
        segment::remove(&*self.dir, number)
    }
}
