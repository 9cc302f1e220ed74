//! Wrong code of the log's planted bugs, where it takes more than one line.

use super::reader::{RecordInfo, SegmentReader};
use crate::Result;

/// Returns whether no record follows `record` in its segment.
pub(super) fn is_last(reader: &mut SegmentReader, record: &RecordInfo) -> Result<bool> {
    Ok(reader.record_at(record.offset + record.size)?.is_none())
}
