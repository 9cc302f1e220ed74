//! Reads the records of an open log again, from an LSN on.
//!
//! Why: replay that lacks memory stops, and continues after recovery has repaired the log. Only
//! then can the log be synced, and engines can write to their files what does not fit in memory.

use std::sync::Arc;

use super::{
    log::Log,
    reader::SegmentReader,
    recovery::{Replay, SealedSegment},
    segment,
};
use crate::{
    Error, Result,
    util::{codec::Lsn, mutant::mutant, sync::lock},
    wal::RecordKind,
};

impl Log {
    /// Calls `replay` for every commit from `start` on, in order. A record begins at `start`, and
    /// nothing was appended since the log was opened. Fails with `Corruption` if a record is
    /// missing.
    pub fn read_from(&self, start: Lsn, replay: &mut Replay<'_>) -> Result<()> {
        let mut segments: Vec<SealedSegment> = lock(&self.sealed).clone();
        let current = self.current()?.load_full();
        segments.push(SealedSegment { head: current.head, file: Arc::clone(&current.file) });
        let end = self.end();
        for SealedSegment { head, file } in segments {
            if head.end() <= start {
                continue;
            }
            let name = segment::display_name(head.number);
            let mut reader = SegmentReader::open(file, &name)?;
            let mut offset = start.0.saturating_sub(head.base.0).max(SegmentReader::first_offset());
            while reader.has_room(offset) && head.base.0 + offset < end.0 {
                let Some(record) = reader.record_at(offset)? else {
                    let what = format!("the record at LSN {} is gone", head.base.0 + offset);
                    return Err(Error::corruption(name, offset, what));
                };
                let is_first = record.lsn == start;
                let is_skipped = mutant!(ReplayResumesLate: is_first, else false);
                if record.kind == RecordKind::Commit && !is_skipped {
                    replay(record.lsn, reader.body(&record)?)?;
                }
                offset += record.size;
            }
        }
        Ok(())
    }
}
