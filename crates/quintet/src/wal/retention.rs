//! Retention: which segments stay although no table needs them.
//!
//! Why: a change feed reads commits from the log, also those that the tables' files already have. A
//! feed that begins later, perhaps after the database was opened again, needs earlier commits too.
//!
//! How: pruning keeps the last `bytes` of the log, and everything from the position of the slowest
//! reader ([`LogHold`]) on. A reader that does not read must not fill the disk: beyond
//! [`HELD_BYTES_MAX`] its segments are pruned, and it gets [`Error::ChangesLost`]. On a full disk,
//! nothing stays that no table needs.
//!
//! A segment that no table needs is known by its head only: its file is opened when it is read.
//!
//! Invariant: nothing is removed once the log is closed. Its files may belong to another process then.
//!
//! Threads: any. `retained` is locked after `sealed`; `holds` is a leaf lock.

use std::{collections::BTreeMap, sync::Arc};

use super::{log::Log, segment::SegmentHead};
use crate::{
    Error, Result,
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// Most bytes of log that stay for a slow reader, unless the retention is larger.
const HELD_BYTES_MAX: u64 = 1 << 30;

/// State of the retention of a log.
#[derive(Debug)]
pub(super) struct Retention {
    /// Bytes of log that stay in any case.
    bytes: u64,
    /// No table needs the log below this LSN: the argument of the last [`Log::prune`].
    unneeded_below: AtomicU64,
    /// Segments that no table needs, oldest first. The first of `Log::sealed` follows them.
    pub(super) retained: Mutex<Vec<SegmentHead>>,
    holds: Mutex<Holds>,
    /// The log is closed. Set and read with the rotation locked.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Holds {
    /// Positions of the readers, by their numbers.
    positions: BTreeMap<u64, Lsn>,
    next: u64,
}

impl Retention {
    pub(super) fn new(bytes: u64, retained: Vec<SegmentHead>) -> Self {
        Self {
            bytes,
            unneeded_below: AtomicU64::new(0),
            retained: Mutex::new(retained),
            holds: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns whether the log is closed. The caller has locked the rotation.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns the LSN below which no reader needs the log, which ends at `end`.
    fn unread_from(&self, end: Lsn) -> Lsn {
        let retained = end.0.saturating_sub(self.bytes);
        let slowest = lock(&self.holds).positions.values().min().copied();
        let slowest = mutant!(LogForgetsHolds: None, else slowest);
        let held = slowest.map_or(u64::MAX, |position| {
            position.0.max(end.0.saturating_sub(self.bytes.max(HELD_BYTES_MAX)))
        });
        Lsn(retained.min(held))
    }
}

/// Keeps the log from a position on, until dropped.
#[derive(Debug)]
pub(super) struct LogHold {
    log: Arc<Log>,
    number: u64,
}

impl LogHold {
    /// Keeps the log from `position` on. The caller checks afterwards that it is still there.
    pub(super) fn new(log: &Arc<Log>, position: Lsn) -> Self {
        let mut holds = lock(&log.retention.holds);
        let number = holds.next;
        holds.next += 1;
        holds.positions.insert(number, position);
        Self { log: Arc::clone(log), number }
    }

    /// Gives up the log below `position`.
    pub(super) fn advance(&self, position: Lsn) -> Result<()> {
        lock(&self.log.retention.holds).positions.insert(self.number, position);
        self.log.remove_unneeded()
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        lock(&self.log.retention.holds).positions.remove(&self.number);
        // What cannot be removed now is removed by the next round.
        let _ = self.log.remove_unneeded();
    }
}

impl Log {
    /// Returns the LSN below which no table needs the log.
    pub(super) fn unneeded_below(&self) -> Lsn {
        Lsn(self.retention.unneeded_below.load(Ordering::Relaxed))
    }

    /// Returns whether commits stay in the log for readers: there are some, or there may be later.
    pub fn is_retained(&self) -> bool {
        self.retention.bytes > 0 || !lock(&self.retention.holds).positions.is_empty()
    }

    /// Removes or recycles the segments that end at or below `below` and that no reader needs. The
    /// catalog must already say, durably, that its `start` is `below` or later.
    pub fn prune(&self, below: Lsn) -> Result<()> {
        self.retention.unneeded_below.fetch_max(below.0, Ordering::Relaxed);
        self.remove_unneeded()
    }

    /// Ends the removal of segments.
    pub(super) fn stop_removal(&self) {
        let _rotation = lock(&self.rotation);
        self.retention.is_closed.store(true, Ordering::Relaxed);
    }

    /// Removes the segments that neither a table nor a reader needs; on a full disk all that no
    /// table needs.
    fn remove_unneeded(&self) -> Result<()> {
        let below = if self.lacks_space() {
            self.unneeded_below()
        } else {
            self.unneeded_below().min(self.retention.unread_from(self.end()))
        };
        self.remove_segments(below)
    }

    /// Removes, on a full disk, what stays for readers only. Returns whether that gave space back.
    pub fn release_retained(&self) -> bool {
        let start = self.start();
        let is_removed = start < self.unneeded_below()
            && self.remove_segments(self.unneeded_below()).is_ok()
            && self.release_spares().is_ok();
        is_removed && start < self.start()
    }

    /// Builds the error of a reader at `position`.
    pub(super) fn changes_lost(&self, position: Lsn) -> Error {
        Error::ChangesLost { position, start: self.start(), end: self.end() }
    }
}
