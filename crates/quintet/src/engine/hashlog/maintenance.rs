//! The state of the one thread that maintains a table: its files, and what the next checkpoint
//! adds, drops and frees.

use std::sync::Arc;

use super::{
    chunk::Chunk,
    files::{DataFiles, FileRange},
    large_value::LargeValue,
    manifest::{Extent, HashLogManifest},
};
use crate::util::budget::Reservation;

/// The state of the one thread that maintains the table.
#[derive(Debug)]
pub(super) struct Maintenance {
    pub(super) files: DataFiles,
    pub(super) manifest: Option<HashLogManifest>,
    /// The chunk that compaction copies to; `None` before the first copy.
    pub(super) copy_chunk: Option<Arc<Chunk>>,
    /// File range of the next chunk of copies, while a chunk is compacted.
    pub(super) copy_range: Option<FileRange>,
    /// Chunks without live entries. The next checkpoint drops them.
    pub(super) retired: Vec<Arc<Chunk>>,
    /// Dead large values. The next checkpoint drops them.
    pub(super) dead_larges: Vec<u64>,
    /// Extents that are written but not in the manifest.
    pub(super) pending: Vec<PendingExtent>,
    pub(super) pending_larges: Vec<Arc<LargeValue>>,
    /// Id and serial of chunks that were detached from a failed file. The checkpoint that names
    /// their new ranges drops the old records.
    pub(super) relocated: Vec<(u64, u64)>,
    /// The old file ranges of those chunks. The manifest names them until that checkpoint.
    pub(super) old_ranges: Vec<FileRange>,
    /// A value that left memory before it was synced was in a file that failed.
    pub(super) has_lost_value: bool,
    /// LSN that the files are complete to.
    pub(super) complete: u64,
    /// Size of the manifest in bytes if it were rewritten.
    pub(super) manifest_needed: u64,
    /// Size in bytes below which it is not rewritten, after a failed rewrite.
    pub(super) manifest_rewrite_at: u64,
    /// Bytes written to replaced manifests.
    pub(super) replaced_written_bytes: u64,
}

/// An extent that is in its file but not in the manifest.
#[derive(Debug)]
pub(super) struct PendingExtent {
    pub(super) extent: Extent,
    pub(super) hints: Vec<u8>,
    /// The budget of the hints.
    pub(super) _memory: Reservation,
}

impl Maintenance {
    pub(super) fn new(files: DataFiles) -> Self {
        Self {
            files,
            manifest: None,
            copy_chunk: None,
            copy_range: None,
            retired: Vec::new(),
            dead_larges: Vec::new(),
            pending: Vec::new(),
            pending_larges: Vec::new(),
            relocated: Vec::new(),
            old_ranges: Vec::new(),
            has_lost_value: false,
            complete: 0,
            manifest_needed: 0,
            manifest_rewrite_at: 0,
            replaced_written_bytes: 0,
        }
    }

    /// Returns whether a checkpoint would change only the LSN that the files are complete to.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.retired.is_empty()
            && self.dead_larges.is_empty()
            && self.pending_larges.is_empty()
    }
}
