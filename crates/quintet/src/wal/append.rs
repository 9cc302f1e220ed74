//! A writer's path through the log: admit, begin, append, apply.
//!
//! A writer locks its stripes, then calls [`Log::begin`], [`Ticket::append`], applies the record
//! to its tables and drops the ticket. The ticket's slot in [`super::inflight`] tells a sync how
//! far records are copied, and a checkpoint how far they are applied.

use std::sync::Arc;

use super::{
    inflight::SlotClaim,
    log::{Log, PREPARED_BYTES_MIN},
    record::{self, RecordKind, total_bytes},
    segment::Segment,
};
use crate::{
    Error, Result,
    util::{
        codec::{Lsn, round_up},
        mutant::mutant,
        sync::Ordering,
    },
};

/// Largest body of a record, in bytes: a batch of 1 GiB with its keys.
pub const BODY_BYTES_MAX: u64 = (1 << 30) + (1 << 28);

/// Position of an appended record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// LSN of the record.
    pub lsn: Lsn,
    /// LSN past the record.
    pub end: Lsn,
    /// Whether [`Log::prepare`] has work to do.
    pub wants_preparation: bool,
}

impl Log {
    /// Refuses a write before it begins: a body over [`BODY_BYTES_MAX`], a failed log, a full
    /// disk. `may_use_reserve` lets writes that free space use the room that is reserved for them.
    /// Returns the end of the log.
    pub fn admit(&self, body_bytes: u64, may_use_reserve: bool) -> Result<Lsn> {
        self.check_failure()?;
        if body_bytes > BODY_BYTES_MAX {
            return Err(Error::Limit {
                what: format!("the batch has {body_bytes} bytes; the limit is {BODY_BYTES_MAX}"),
            });
        }
        let segment = self.current()?.load();
        if !may_use_reserve && self.is_in_reserve(&segment) {
            self.prepare()?;
        }
        Ok(segment.reserved_end())
    }

    /// Returns whether the remaining room is reserved for writes that free space. It is if the last
    /// attempt to prepare a segment met a full disk, and if the current segment is three quarters
    /// full without a successor.
    fn is_in_reserve(&self, current: &Segment) -> bool {
        let low = current.used() > current.head.capacity / 4 * 3
            && !self.has_spare.load(Ordering::Relaxed);
        low || self.is_disk_full.load(Ordering::Relaxed)
    }

    /// Claims an in-flight slot. Lock the stripes first, then append, apply, and drop the ticket
    /// before unlocking. Waits while all slots are taken.
    pub fn begin(&self) -> Result<Ticket<'_>> {
        self.check_failure()?;
        let segment = self.current()?.load();
        let claim = self.inflight.claim(segment.reserved_end());
        Ok(Ticket { log: self, segment, claim, is_copied: true })
    }

    // Inlined where the number of parts is known.
    #[inline]
    fn append(
        &self,
        segment: &mut arc_swap::Guard<Arc<Segment>>,
        parts: &[&[u8]],
    ) -> Result<Appended> {
        let body_bytes = total_bytes(parts);
        let size = record::size_of(body_bytes);
        let body = record::Body::of(parts);
        let body_crc = body.crc();
        let narrow = u32::try_from(body_bytes).map_err(|_| Error::Limit {
            what: format!("a record of {body_bytes} bytes; the limit is {BODY_BYTES_MAX}"),
        })?;
        loop {
            let offset = segment.reserve(size);
            if offset + size > segment.head.capacity {
                self.fill_segment_end(segment, offset);
                self.rotate(segment.head.number, size)?;
                *segment = self.current()?.load();
                continue;
            }
            let lsn = Lsn(segment.head.base.0 + offset);
            let durable = mutant!(LogClaimsTooMuchDurable: lsn, else self.durable());
            let kind = RecordKind::Commit;
            let head = record::RecordHead { kind, body_bytes: narrow, lsn, durable, body_crc };
            if segment.prepared_ahead() == 0 {
                segment.prepare_pages(round_up(offset + size, PREPARED_BYTES_MIN));
            }
            let words = record::words_at(segment.mapping.words(), offset, size);
            record::store(words, head.encode(segment.salt), body);
            let wants_preparation = self.is_unprepared(segment);
            return Ok(Appended { lsn, end: Lsn(lsn.0 + size), wants_preparation });
        }
    }

    /// Covers the end of a full segment with a filler. Only the one reservation that begins within
    /// the capacity and ends beyond it has bytes to cover.
    fn fill_segment_end(&self, segment: &Segment, offset: u64) {
        mutant!(LogLeavesSegmentEndOpen => return);
        let capacity = segment.head.capacity;
        if offset + record::RECORD_BYTES_MIN > capacity {
            return;
        }
        let size = capacity - offset;
        let lsn = Lsn(segment.head.base.0 + offset);
        let head = record::RecordHead::filler(lsn, size, self.durable());
        let words = record::words_at(segment.mapping.words(), offset, record::RECORD_BYTES_MIN);
        record::store(words, head.encode(segment.salt), record::Body::Long(&[]));
    }
}

/// The right to append one record and apply it. Dropping it means that the record is applied, or
/// that none was appended.
#[derive(Debug)]
pub struct Ticket<'a> {
    log: &'a Log,
    /// Segment that the record goes to, unless it is full.
    segment: arc_swap::Guard<Arc<Segment>>,
    claim: SlotClaim,
    /// False while the record is being copied. A panic then leaves a hole that no record may
    /// follow.
    is_copied: bool,
}

impl Ticket<'_> {
    /// Reserves space by one atomic add and copies the record. Its body is `parts`, back to back.
    /// On an error no record was logged: the disk is full, the log has failed, or the record is
    /// too large.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Appended> {
        self.is_copied = false;
        let appended = self.log.append(&mut self.segment, parts);
        self.is_copied = true;
        self.log.inflight.mark_copied(self.claim);
        appended
    }

    /// Ends the current segment, as a record that does not fit does.
    pub(super) fn end_segment(mut self) -> Result<()> {
        self.is_copied = false;
        let capacity = self.segment.head.capacity;
        let offset = self.segment.reserve(capacity);
        self.log.fill_segment_end(&self.segment, offset);
        self.is_copied = true;
        self.log.inflight.mark_copied(self.claim);
        self.log.rotate(self.segment.head.number, 0)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.is_copied {
            self.log.fail("a writer panicked while it copied its record".to_owned());
        }
        self.log.inflight.release(self.claim);
    }
}
