//! The number of files and directories that this process has open here.

use std::sync::atomic::{AtomicU64, Ordering};

static OPEN: AtomicU64 = AtomicU64::new(0);

/// Counts an open file until it is dropped.
#[derive(Debug)]
pub(in crate::io::os) struct OpenCount(());

impl OpenCount {
    /// Counts one more open file.
    pub(super) fn new() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Returns the number of open files.
    pub(in crate::io::os) fn now() -> u64 {
        OPEN.load(Ordering::Relaxed)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
