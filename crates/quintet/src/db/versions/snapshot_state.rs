//! The state of one open snapshot. Dropping it ends the snapshot.

use std::sync::Arc;

use super::store::VersionStore;
use crate::{
    Error, Result,
    util::{
        codec::Lsn,
        sync::{AtomicBool, Mutex, Ordering, lock},
    },
};

/// What ended a snapshot before its last handle was dropped.
#[derive(Debug, Default)]
pub(super) struct SnapshotEnd {
    has_ended: AtomicBool,
    reason: Mutex<String>,
}

impl SnapshotEnd {
    pub(super) fn set(&self, reason: &str) {
        reason.clone_into(&mut lock(&self.reason));
        self.has_ended.store(true, Ordering::SeqCst);
    }
}

/// One open snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotState {
    /// Its number: snapshots, drops of tables and sorted loads are counted together.
    pub(super) number: u64,
    /// Commits with a lower LSN are in the snapshot.
    pub(crate) lsn: Lsn,
    /// When it was taken, in milliseconds since 1970: values that had expired are invisible.
    pub(crate) time: u64,
    /// Whether all commits below its LSN are known to be applied.
    is_settled: AtomicBool,
    pub(super) end: Arc<SnapshotEnd>,
    store: Arc<VersionStore>,
}

impl SnapshotState {
    pub(super) fn new(
        number: u64,
        (lsn, time): (Lsn, u64),
        end: &Arc<SnapshotEnd>,
        store: &Arc<VersionStore>,
    ) -> Self {
        Self {
            number,
            lsn,
            time,
            is_settled: AtomicBool::new(false),
            end: Arc::clone(end),
            store: Arc::clone(store),
        }
    }

    /// Fails with [`Error::SnapshotExpired`] if the snapshot has ended. A read checks it last.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.end.has_ended.load(Ordering::SeqCst) { Err(self.expired()) } else { Ok(()) }
    }

    #[cold]
    fn expired(&self) -> Error {
        Error::SnapshotExpired { reason: lock(&self.end.reason).clone() }
    }

    /// Waits until the commits below the snapshot's LSN are applied: those that were in progress
    /// when it was taken.
    #[inline]
    pub(crate) fn settle(&self) {
        if !self.is_settled.load(Ordering::Acquire) {
            self.store.await_applied(self.lsn);
            self.is_settled.store(true, Ordering::Release);
        }
    }

    /// Returns whether the table was dropped after the snapshot was taken.
    pub(crate) fn precedes_drop(&self, dropped_at: u64) -> bool {
        self.number < dropped_at
    }
}

impl Drop for SnapshotState {
    fn drop(&mut self) {
        self.store.release(self.number);
    }
}
