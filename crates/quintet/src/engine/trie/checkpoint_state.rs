//! What the thread that maintains a table knows of its last checkpoints.

use crate::{
    Error, engine::trie::store::space::NewImages, journal::redo::RedoJournal, util::codec::Lsn,
};

/// Number of the state's space in the journal.
pub(super) const STATE: u8 = 255;
/// Version of the state's encoding.
pub(super) const STATE_VERSION: u64 = 1;
/// Changes of the trie without an image may take this part of the budget.
pub(super) const CHANGES_PART: u64 = 8;

/// State that only the thread that maintains the table changes.
#[derive(Debug)]
pub(super) struct CheckpointState {
    pub(super) redo: RedoJournal,
    /// Images of failed checkpoints, whose group may be durable or not. Their slots are free after
    /// the next durable checkpoint.
    pub(super) uncertain_images: Vec<NewImages>,
    /// The LSN up to which the files are complete.
    pub(super) complete: Lsn,
}

impl CheckpointState {
    /// Takes back the group of a checkpoint that failed with `error`, if the disk was full. Returns
    /// whether no crash can find it then. After an earlier failure of another kind, a sync that
    /// succeeds proves nothing.
    pub(super) fn is_revoked(&mut self, error: &Error) -> bool {
        matches!(error, Error::DiskFull { .. })
            && self.uncertain_images.is_empty()
            && self.redo.revoke_failed().is_ok()
    }
}
