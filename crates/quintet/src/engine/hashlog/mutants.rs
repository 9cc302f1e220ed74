//! Wrong code of planted bugs. See [`crate::util::mutant`].

use super::{HashLog, entry::Head, maintain::Maintenance, write::size_of};
use crate::util::sync::Ordering;

/// `HashlogFreesBeforePublishing`: frees the retired chunks before the checkpoint is durable.
pub(super) fn free_retired(maintenance: &Maintenance) {
    for place in maintenance.retired.iter().flat_map(|chunk| chunk.places()) {
        let _ = place.file.file.punch_hole(place.offset, place.bytes);
    }
}

/// `HashlogMiscountsCopies`: counts a copy of compaction as a new entry.
pub(super) fn count_copy_as_new(table: &HashLog, head: &Head) {
    table.counters.live_bytes.fetch_add(size_of(head), Ordering::Relaxed);
}
