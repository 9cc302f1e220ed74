//! Verification of the log's files.

use std::sync::Arc;

use super::{
    log::Log,
    reader::SegmentReader,
    record::RecordKind,
    recovery::SealedSegment,
    segment::{self, SegmentHead},
};
use crate::{
    Error, Result,
    util::{codec::Lsn, report::Report, sync::lock},
};

impl Log {
    /// Verifies the records of every segment below the durable end and adds findings to `report`.
    pub fn check(&self, report: &mut Report) -> Result<()> {
        let durable = self.durable();
        let mut segments = self.retained_segments()?;
        segments.extend(lock(&self.sealed).iter().cloned());
        if let Some(current) = &self.current {
            let current = current.load();
            segments.push(SealedSegment { head: current.head, file: Arc::clone(&current.file) });
        }
        segments.iter().try_for_each(|sealed| check_segment(sealed, durable, report))
    }

    /// Opens the segments that stay for readers.
    fn retained_segments(&self) -> Result<Vec<SealedSegment>> {
        let heads = lock(&self.retention.retained).clone();
        let open = |head: SegmentHead| match self.open_retained(head)? {
            Some(file) => Ok(Some(SealedSegment { head, file })),
            None => Ok(None),
        };
        heads.into_iter().filter_map(|head| open(head).transpose()).collect()
    }
}

fn check_segment(sealed: &SealedSegment, durable: Lsn, report: &mut Report) -> Result<()> {
    let name = segment::display_name(sealed.head.number);
    let mut reader = match SegmentReader::open(Arc::clone(&sealed.file), &name) {
        Ok(reader) => reader,
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut offset = SegmentReader::first_offset();
    while reader.has_room(offset) && sealed.head.base.0 + offset < durable.0 {
        let Some(record) = reader.record_at(offset)? else {
            let lsn = sealed.head.base.0 + offset;
            report.add(name, offset, format!("no valid record at LSN {lsn}"));
            return Ok(());
        };
        report.checked_entries += u64::from(record.kind == RecordKind::Commit);
        offset += record.size;
    }
    report.checked_bytes += offset;
    Ok(())
}
