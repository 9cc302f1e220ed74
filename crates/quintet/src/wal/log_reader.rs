//! Reads the commits of an open log, while writers append to it.
//!
//! How: the reader reads segment files and verifies each record as recovery does. It stops at an
//! end that the caller chooses, at most [`Log::applied`]: below it, every record is complete. A
//! hold keeps the segments from its position on ([`super::prune`]). If they were removed all the
//! same, it fails with [`Error::ChangesLost`]. A first position inside a record is moved to the
//! next one: records are found as recovery finds them behind a hole.
//!
//! Invariants: the reader never reads bytes at or behind the chosen end, so it buffers no record
//! that a writer may still complete. A file that was recycled under it does not parse.
//!
//! Threads: one at a time.

use std::sync::Arc;

use super::{
    log::Log,
    reader::{RecordInfo, SegmentReader},
    record::RecordKind,
    retention::ReaderNumber,
    segment::{self, SegmentHead},
};
use crate::{
    Error, Result,
    io::{File, Open},
    util::{codec::Lsn, mutant::mutant, sync::lock},
};

/// Keeps the log from a position on, until dropped.
#[derive(Debug)]
struct LogHold {
    log: Arc<Log>,
    number: ReaderNumber,
}

impl LogHold {
    /// Keeps the log from `position` on. The caller checks afterwards that it is still there.
    fn new(log: &Arc<Log>, position: Lsn) -> Self {
        // No removal is under way that does not know of it.
        let _rotation = lock(&log.rotation);
        Self { log: Arc::clone(log), number: log.retention.hold(position) }
    }

    /// Gives up the log below `position`.
    fn advance(&self, position: Lsn) -> Result<()> {
        self.log.retention.advance(self.number, position);
        self.log.remove_unneeded()
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.log.retention.release(self.number);
        // What cannot be removed now is removed by the next round.
        let _ = self.log.remove_unneeded();
    }
}

/// A reader of the commits from a position on.
#[derive(Debug)]
pub struct LogReader {
    log: Arc<Log>,
    hold: LogHold,
    segment: Option<SegmentReader>,
    position: Lsn,
    /// Whether a record begins at the position, or none follows it yet.
    is_boundary: bool,
}

/// A commit in the log.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCommit<'a> {
    /// Its LSN.
    pub lsn: Lsn,
    /// The position behind it.
    pub end: Lsn,
    /// The body of its record.
    pub body: &'a [u8],
}

impl LogReader {
    /// Creates a reader of the commits that begin at or behind `position`. The caller then calls
    /// [`LogReader::check`].
    pub fn new(log: &Arc<Log>, position: Lsn) -> Self {
        let (hold, log) = (LogHold::new(log, position), Arc::clone(log));
        Self { log, hold, segment: None, position, is_boundary: false }
    }

    /// Fails with [`Error::ChangesLost`] if the log does not have the position, or not all that has
    /// changed since.
    pub fn check(&self) -> Result<()> {
        let is_there = (self.log.readable_from()..=self.log.end()).contains(&self.position);
        if is_there { Ok(()) } else { Err(self.log.changes_lost(self.position)) }
    }

    /// Moves back to a commit that was returned.
    pub fn return_to(&mut self, lsn: Lsn) {
        self.position = lsn;
    }

    /// Returns the position of the next commit.
    pub fn position(&self) -> Lsn {
        self.position
    }

    /// Returns the next commit below `end`, which is at most [`Log::applied`]. `None`: there is
    /// none.
    pub fn next(&mut self, end: Lsn) -> Result<Option<LoggedCommit<'_>>> {
        let end = mutant!(LogReaderPassesEnd: self.log.end(), else end);
        if self.log.retention.unlogged_end() > self.position {
            return Err(self.log.changes_lost(self.position));
        }
        if let Some(segment) = &mut self.segment {
            segment.release_large_window();
        }
        let (Some(record), Some(segment)) = (self.next_commit(end)?, &mut self.segment) else {
            return Ok(None);
        };
        // In memory: its checksum was compared.
        let body = segment.body(&record)?;
        Ok(Some(LoggedCommit { lsn: record.lsn, end: self.position, body }))
    }

    /// Moves behind the next commit below `end` and returns its record.
    fn next_commit(&mut self, end: Lsn) -> Result<Option<RecordInfo>> {
        while self.position < end {
            let Some(record) = self.next_record(end)? else { continue };
            self.position = Lsn(record.lsn.0 + record.size);
            if record.kind == RecordKind::Commit {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the record at the position. If its segment has none before `end`, moves to the next
    /// segment, or to `end`.
    fn next_record(&mut self, end: Lsn) -> Result<Option<RecordInfo>> {
        let is_inside = |segment: &SegmentReader| {
            (segment.head().base..segment.head().end()).contains(&self.position)
        };
        if !self.segment.as_ref().is_some_and(is_inside) {
            self.segment = Some(self.open_segment()?);
        }
        let Some(segment) = &mut self.segment else { return Ok(None) };
        let head = *segment.head();
        let offset = (self.position.0 - head.base.0).max(SegmentReader::first_offset());
        segment.limit(end.0 - head.base.0);
        let mut found = None;
        if head.base.0 + offset < end.0 && segment.has_room(offset) {
            // A log that is open read-only is not repaired: it may have holes.
            let is_exact = self.is_boundary && !self.log.is_read_only();
            found =
                if is_exact { segment.record_at(offset)? } else { segment.next_valid(offset)? };
            found = found.filter(|record| record.lsn < end);
            if found.is_none() && is_exact {
                return Err(self.missing(head.number, offset));
            }
        }
        if found.is_none() {
            self.position = head.end().min(end);
        }
        self.is_boundary = true;
        Ok(found)
    }

    /// Opens the segment that has the position, and gives up the log below it.
    fn open_segment(&self) -> Result<SegmentReader> {
        self.hold.advance(self.position)?;
        let lost = || self.log.changes_lost(self.position);
        let (head, file) = self.log.segment_of(self.position)?.ok_or_else(lost)?;
        match SegmentReader::open(file, &segment::display_name(head.number)) {
            Ok(reader) if reader.head().number == head.number => Ok(reader),
            // It has become another segment meanwhile.
            Ok(_) => Err(lost()),
            Err(_) if self.log.start() > self.position => Err(lost()),
            Err(error) => Err(error),
        }
    }

    /// Builds the error for a position without a record.
    fn missing(&self, number: u64, offset: u64) -> Error {
        // The file may have become another segment meanwhile.
        if self.log.start() > self.position {
            return self.log.changes_lost(self.position);
        }
        let what = format!("no valid record at LSN {}", self.position);
        Error::corruption(segment::display_name(number), offset, what)
    }
}

impl Log {
    /// Returns whether the log was opened read-only.
    fn is_read_only(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the segment that has `lsn` and its file. `None`: it was removed.
    fn segment_of(&self, lsn: Lsn) -> Result<Option<(SegmentHead, Arc<dyn File>)>> {
        if let Some(current) = &self.current {
            let current = current.load();
            if (current.head.base..current.head.end()).contains(&lsn) {
                return Ok(Some((current.head, Arc::clone(&current.file))));
            }
        }
        let contains = |head: &SegmentHead| (head.base..head.end()).contains(&lsn);
        let retained = {
            // A rotation adds the full segment here before it stores the next one.
            let sealed = lock(&self.sealed);
            if let Some(sealed) = sealed.iter().find(|sealed| contains(&sealed.head)) {
                return Ok(Some((sealed.head, Arc::clone(&sealed.file))));
            }
            lock(&self.retention.retained).iter().find(|head| contains(head)).copied()
        };
        let Some(head) = retained else { return Ok(None) };
        Ok(self.open_retained(head)?.map(|file| (head, file)))
    }

    /// Opens the file of a segment that stays for readers. `None`: it was removed meanwhile.
    pub(super) fn open_retained(&self, head: SegmentHead) -> Result<Option<Arc<dyn File>>> {
        match self.dir.open(&segment::file_name(head.number), Open::READ) {
            Ok(file) => Ok(Some(file)),
            Err(_) if self.start() > head.base => Ok(None),
            Err(error) => {
                Err(Error::io(format!("open {}", segment::display_name(head.number)), error))
            }
        }
    }
}
