//! Retention: which segments stay although no table needs them.
//!
//! Why: a change feed reads commits from the log, also those that the tables' files already have. A
//! feed that begins later, perhaps after the database was opened again, needs earlier commits too.
//!
//! How: pruning ([`super::prune`]) keeps the last `bytes` of the log, and everything from the
//! position of the slowest reader on. A reader that does not read must not fill the disk: beyond
//! [`HELD_BYTES_MAX`] its segments are pruned. On a full disk, nothing stays that no table needs.
//!
//! A segment that no table needs is known by its head only: its file is opened when it is read.
//!
//! Threads: any. `retained` is locked after `sealed`; `holds` is a leaf lock.

use std::collections::BTreeMap;

use super::segment::SegmentHead;
use crate::util::{
    codec::Lsn,
    mutant::mutant,
    sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
};

/// Most bytes of log that stay for a slow reader, unless the retention is larger.
const HELD_BYTES_MAX: u64 = 1 << 30;

/// State of the retention of a log.
#[derive(Debug)]
pub(super) struct Retention {
    /// Bytes of log that stay in any case.
    bytes: AtomicU64,
    /// Behind the end of the log when something changed that it does not have: a table was cleared
    /// or dropped without a record, or a sorted load bypassed it. Readers cannot begin below.
    unlogged_end: AtomicU64,
    /// No table needs the log below this LSN.
    unneeded_below: AtomicU64,
    /// Segments that no table needs, oldest first. The first of the sealed ones follows them.
    pub(super) retained: Mutex<Vec<SegmentHead>>,
    holds: Mutex<Holds>,
    /// The log is closed. Set and read with the rotation locked.
    is_closed: AtomicBool,
}

/// Number of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReaderNumber(u64);

#[derive(Debug, Default)]
struct Holds {
    positions: BTreeMap<ReaderNumber, Lsn>,
    next: ReaderNumber,
}

impl Retention {
    /// Creates the retention of a log that no table needs below `unneeded_below`, but for which
    /// `retained` stay.
    pub(super) fn new(bytes: u64, unneeded_below: Lsn, retained: Vec<SegmentHead>) -> Self {
        Self {
            bytes: AtomicU64::new(bytes),
            unlogged_end: AtomicU64::new(0),
            unneeded_below: AtomicU64::new(unneeded_below.0),
            retained: Mutex::new(retained),
            holds: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns whether nothing may be removed any more. The caller has locked the rotation.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Ends the removal of segments. The caller has locked the rotation.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Returns the LSN below which no table needs the log.
    pub(super) fn unneeded_below(&self) -> Lsn {
        Lsn(self.unneeded_below.load(Ordering::Relaxed))
    }

    /// Notes that no table needs the log below `below`.
    pub(super) fn note_unneeded(&self, below: Lsn) {
        self.unneeded_below.fetch_max(below.0, Ordering::Relaxed);
    }

    /// Sets how many bytes of log stay in any case.
    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the position below which readers cannot begin although the log may have it.
    pub(super) fn unlogged_end(&self) -> Lsn {
        Lsn(self.unlogged_end.load(Ordering::Acquire))
    }

    /// Notes that something changed which the log, that ends at `end`, does not have. A reader at
    /// `end` may come from before the change, so it is too early as well.
    pub(super) fn note_unlogged(&self, end: Lsn) {
        self.unlogged_end.fetch_max(end.0 + 1, Ordering::AcqRel);
    }

    /// Keeps the log from `position` on. Returns the number of the reader.
    pub(super) fn hold(&self, position: Lsn) -> ReaderNumber {
        let mut holds = lock(&self.holds);
        let number = holds.next;
        holds.next.0 += 1;
        holds.positions.insert(number, position);
        number
    }

    /// Keeps the log from `position` on for a reader that has advanced.
    pub(super) fn advance(&self, number: ReaderNumber, position: Lsn) {
        lock(&self.holds).positions.insert(number, position);
    }

    /// Keeps nothing for a reader any more.
    pub(super) fn release(&self, number: ReaderNumber) {
        lock(&self.holds).positions.remove(&number);
    }

    /// Returns whether commits stay in the log for readers: there are some, or there may be later.
    pub(super) fn is_needed(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0 || !lock(&self.holds).positions.is_empty()
    }

    /// Returns the LSN below which no reader needs the log, which ends at `end`.
    pub(super) fn unread_from(&self, end: Lsn) -> Lsn {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let retained = end.0.saturating_sub(bytes);
        let slowest = lock(&self.holds).positions.values().min().copied();
        let slowest = mutant!(LogForgetsHolds: None, else slowest);
        let held = slowest.map_or(u64::MAX, |position| {
            position.0.max(end.0.saturating_sub(bytes.max(HELD_BYTES_MAX)))
        });
        Lsn(retained.min(held))
    }
}
