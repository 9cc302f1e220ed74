//! The state of one open snapshot. Dropping it ends the snapshot.

use std::sync::Arc;

use super::{open_snapshots::SnapshotEnd, store::VersionStore};
use crate::{
    Error, Result,
    util::{
        codec::Lsn,
        sync::{AtomicBool, Ordering},
    },
};

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

impl VersionStore {
    /// Takes a snapshot: the commits so far, and not those that begin later. Does not wait for
    /// writers, and copies nothing.
    pub(crate) fn take(self: &Arc<Self>) -> SnapshotState {
        let (number, taken) = self.open_snapshot();
        SnapshotState {
            number,
            lsn: taken.lsn,
            time: taken.time,
            is_settled: AtomicBool::new(false),
            end: taken.end,
            store: Arc::clone(self),
        }
    }
}

impl SnapshotState {
    /// Fails with [`Error::SnapshotExpired`] if the snapshot has ended. A read checks it last.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.end.has_ended() { Err(self.expired()) } else { Ok(()) }
    }

    #[cold]
    fn expired(&self) -> Error {
        Error::SnapshotExpired { reason: self.end.reason() }
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

    /// Returns whether the snapshot was taken before a moment, such as the drop of a table.
    pub(crate) fn precedes(&self, moment: u64) -> bool {
        self.number < moment
    }
}

impl Drop for SnapshotState {
    fn drop(&mut self) {
        self.store.release(self.number);
    }
}
