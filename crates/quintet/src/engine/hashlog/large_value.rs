//! A value too large for a chunk. It has its own file range.

use std::sync::Arc;

use super::files::FileRange;
use crate::util::sync::{AtomicBool, Mutex, lock};

/// A value too large for a chunk. It has its own file range.
#[derive(Debug)]
pub(super) struct LargeValue {
    pub(super) number: u64,
    pub(super) lsn: u64,
    pub(super) length: u64,
    pub(super) state: Mutex<LargeState>,
    /// It is durable in its file range: it may leave memory.
    pub(super) written: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct LargeState {
    /// The value, while it is in memory.
    pub(super) bytes: Option<Arc<[u8]>>,
    pub(super) file_range: Option<FileRange>,
    /// It is written to its file range, perhaps not durably.
    pub(super) in_file: bool,
}

impl LargeValue {
    /// Returns its file range, once one is allocated.
    pub(super) fn file_range(&self) -> Option<FileRange> {
        lock(&self.state).file_range.clone()
    }
}
