//! Which segments are removed: those that neither a table nor a reader needs.
//!
//! Invariant: nothing is removed once the log is closed. Its files may belong to another process
//! then.

use super::log::Log;
use crate::{
    Error, Result,
    util::{codec::Lsn, sync::lock},
};

impl Log {
    /// Returns whether commits stay in the log for readers: there are some, or there may be later.
    pub fn is_retained(&self) -> bool {
        self.retention.is_needed()
    }

    /// Removes or recycles the segments that end at or below `below` and that no reader needs. The
    /// catalog must already say, durably, that its `start` is `below` or later.
    pub fn prune(&self, below: Lsn) -> Result<()> {
        self.retention.note_unneeded(below);
        self.remove_unneeded()
    }

    /// Ends the removal of segments.
    pub(super) fn stop_removal(&self) {
        let _rotation = lock(&self.rotation);
        self.retention.close();
    }

    /// Removes the segments that neither a table nor a reader needs; on a full disk all that no
    /// table needs.
    pub(super) fn remove_unneeded(&self) -> Result<()> {
        // Under the lock: a reader registers under it, and then finds what it holds.
        let mut rotation = lock(&self.rotation);
        let unneeded = self.retention.unneeded_below();
        let unread = self.retention.unread_from(self.end());
        let below = if self.lacks_space() { unneeded } else { unneeded.min(unread) };
        self.remove_segments(&mut rotation, below)
    }

    /// Removes, on a full disk, what stays for readers only. Returns whether that gave space back.
    pub fn release_retained(&self) -> bool {
        let (start, unneeded) = (self.start(), self.retention.unneeded_below());
        let is_removed = start < unneeded
            && self.remove_segments(&mut lock(&self.rotation), unneeded).is_ok()
            && self.release_spares().is_ok();
        is_removed && start < self.start()
    }

    /// Sets how many bytes of log stay for readers that begin later.
    pub fn set_retention(&self, bytes: u64) {
        self.retention.set_bytes(bytes);
    }

    /// Notes that something has changed or will change which the log does not have. A reader that
    /// is behind fails, and none begins below.
    pub fn note_unlogged(&self) {
        self.retention.note_unlogged(self.end());
    }

    /// Returns the first position at which a reader can begin.
    pub fn readable_from(&self) -> Lsn {
        self.start().max(self.retention.unlogged_end())
    }

    /// Builds the error of a reader at `position`.
    pub(super) fn changes_lost(&self, position: Lsn) -> Error {
        Error::ChangesLost { position, start: self.readable_from(), end: self.end() }
    }
}
