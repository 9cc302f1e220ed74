//! Wrong code of planted bugs. See [`crate::util::mutant`].

use super::{entry::EntryHead, maintenance::Maintenance, table::HashLog};
use crate::util::sync::Ordering;

/// `HashlogFreesBeforePublishing`: frees the retired chunks before the checkpoint is durable.
pub(super) fn free_retired(maintenance: &Maintenance) {
    for file_range in maintenance.retired.iter().flat_map(|chunk| chunk.file_ranges()) {
        let _ = file_range.file.file.punch_hole(file_range.offset, file_range.bytes);
    }
}

/// `HashlogMiscountsCopies`: counts a copy of compaction as a new entry.
pub(super) fn count_copy_as_new(table: &HashLog, head: &EntryHead) {
    table.counters.live_bytes.fetch_add(head.payload_bytes(), Ordering::Relaxed);
}
