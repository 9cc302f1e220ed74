//! The state of the checkpointer: the journal, and what is complete and written back.

use crate::{
    Error, bptree::page_allocator::CheckpointEnd, journal::redo::RedoJournal, util::codec::Lsn,
};

/// The state of the checkpointer.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    pub(super) redo: RedoJournal,
    pub(super) complete: Lsn,
    /// Groups up to this one are written back.
    pub(super) written_back: u64,
    /// A checkpoint failed: until another is stored, the pages in the file may be of two states.
    pub(super) in_doubt: bool,
}

impl Checkpointer {
    /// Returns the LSN that the files are complete to.
    pub(crate) fn complete(&self) -> Lsn {
        self.complete
    }

    /// Returns the journal group that the next checkpoint will be.
    pub(super) fn next_group(&self) -> u64 {
        self.redo.newest() + 1
    }

    /// Returns the size of the journal's files, in bytes.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.redo.file_bytes()
    }

    /// For a planted bug: treats all groups as written back.
    pub(super) fn forget_pending_writeback(&mut self) {
        self.written_back = self.redo.newest();
    }

    /// Makes the journal's next group begin a new file.
    pub(super) fn start_new_file(&mut self) {
        self.redo.start_new_file();
    }

    /// Takes back the group of a checkpoint that failed with `error`, if the disk was full and no
    /// doubt was left. `earlier`: whether a checkpoint was in doubt before it, and the newest group
    /// then. After failures of other kinds a sync that succeeds proves nothing.
    pub(super) fn revoke(&mut self, error: &Error, earlier: (bool, u64)) -> CheckpointEnd {
        let is_clear = earlier == (false, self.redo.newest());
        let is_full = matches!(error, Error::DiskFull { .. });
        if !is_full || !is_clear || self.redo.revoke_failed().is_err() {
            return CheckpointEnd::InDoubt;
        }
        self.in_doubt = false;
        CheckpointEnd::Revoked
    }

    /// Returns the size of live groups in the journal, and whether the next group begins a new
    /// file.
    pub(crate) fn journal_state(&self) -> (u64, bool) {
        (self.redo.live_bytes(), self.redo.is_full())
    }
}
