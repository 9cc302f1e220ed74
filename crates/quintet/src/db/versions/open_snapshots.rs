//! The open snapshots.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crate::util::{
    codec::{Lsn, to_u64},
    sync::{AtomicBool, Mutex, Ordering, lock},
};

/// What ended a snapshot before its last handle was dropped.
#[derive(Debug, Default)]
pub(super) struct SnapshotEnd {
    has_ended: AtomicBool,
    reason: Mutex<String>,
}

impl SnapshotEnd {
    /// Ends the snapshot.
    pub(super) fn set(&self, reason: &str) {
        reason.clone_into(&mut lock(&self.reason));
        self.has_ended.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Returns why the snapshot has ended.
    pub(super) fn reason(&self) -> String {
        lock(&self.reason).clone()
    }
}

/// One open snapshot, as the store sees it.
#[derive(Clone, Debug)]
pub(super) struct OpenSnapshot {
    pub(super) lsn: Lsn,
    pub(super) time: u64,
    /// On the monotonic clock.
    pub(super) taken_at: Duration,
    pub(super) end: Arc<SnapshotEnd>,
}

/// The open snapshots by number, which is the order of their LSNs.
#[derive(Debug, Default)]
pub(super) struct OpenSnapshots {
    /// In the order of their numbers. Keeps its memory: every range takes and ends one.
    by_number: VecDeque<(u64, OpenSnapshot)>,
    /// The last number given to a snapshot, a drop or a sorted load.
    number: u64,
    /// A table was dropped whose files an open snapshot keeps.
    pub(super) keeps_dropped: bool,
    /// Number of snapshots that were ended before their last handle was dropped.
    pub(super) expired_total: u64,
}

/// What the statistics show of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotStats {
    pub(crate) open: u64,
    pub(crate) oldest_age: Duration,
    pub(crate) oldest_lsn: Option<Lsn>,
    /// Bytes of versions in memory and in files.
    pub(crate) memory_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) expired_total: u64,
}

impl OpenSnapshots {
    /// Returns the number of the next snapshot, drop or sorted load.
    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Adds a snapshot. Its number is the last that was given.
    pub(super) fn insert(&mut self, number: u64, open: OpenSnapshot) {
        self.by_number.push_back((number, open));
    }

    /// Removes a snapshot. Returns whether it was open.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        match self.by_number.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => self.by_number.remove(index).is_some(),
            Err(_) => false,
        }
    }

    /// Returns the LSNs of all, in their order.
    pub(super) fn lsns(&self) -> Vec<Lsn> {
        self.by_number.iter().map(|(_, open)| open.lsn).collect()
    }

    pub(super) fn oldest(&self) -> Option<(u64, &OpenSnapshot)> {
        self.by_number.front().map(|(number, open)| (*number, open))
    }

    /// Returns whether one has a number at or above `start` and below `end`.
    pub(super) fn is_any_between(&self, start: u64, end: u64) -> bool {
        let first = self.by_number.partition_point(|(number, _)| *number < start);
        self.by_number.get(first).is_some_and(|(number, _)| *number < end)
    }

    pub(super) fn newest(&self) -> Option<&OpenSnapshot> {
        self.by_number.back().map(|(_, open)| open)
    }

    /// Returns what the statistics show. `now` is on the monotonic clock.
    pub(super) fn stats(
        &self,
        now: Duration,
        (memory_bytes, file_bytes): (u64, u64),
    ) -> SnapshotStats {
        let oldest = self.oldest().map(|(_, open)| open);
        SnapshotStats {
            open: to_u64(self.by_number.len()),
            oldest_age: oldest.map_or(Duration::ZERO, |open| now.saturating_sub(open.taken_at)),
            oldest_lsn: oldest.map(|open| open.lsn),
            memory_bytes,
            file_bytes,
            expired_total: self.expired_total,
        }
    }
}
