//! The current entry of a key, as a writer finds it: in memory, or read from the disk ahead of the
//! write.

use super::entry::{EntryHead, LargeRef};

/// The current entry of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentEntry {
    pub(super) address: u64,
    pub(super) head: EntryHead,
    pub(super) large: Option<LargeRef>,
    pub(super) in_memory: bool,
}

/// An entry that a writer read because it is not in memory.
#[derive(Debug)]
pub(super) struct PrefetchedEntry {
    pub(super) address: u64,
    pub(super) state: u64,
    /// `None`: it has another key.
    pub(super) current: Option<CurrentEntry>,
    pub(super) hash: u64,
}
