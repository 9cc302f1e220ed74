//! Verification of the log's files.

use std::sync::Arc;

use super::{
    log::Log, reader::SegmentReader, record::RecordKind, recovery::SealedSegment, segment,
};
use crate::{
    Error, Result,
    util::{codec::Lsn, report::Report, sync::lock},
};

impl Log {
    /// Verifies the records of every segment below the durable end and adds findings to `report`.
    pub fn check(&self, report: &mut Report) -> Result<()> {
        let durable = self.durable();
        // One after the other: there may be more than the process may open.
        for head in lock(&self.retention.retained).clone() {
            if let Some(file) = self.open_retained(head)? {
                check_segment(&SealedSegment { head, file }, durable, report)?;
            }
        }
        let mut segments: Vec<SealedSegment> = lock(&self.sealed).clone();
        if let Some(current) = &self.current {
            let current = current.load();
            segments.push(SealedSegment { head: current.head, file: Arc::clone(&current.file) });
        }
        segments.iter().try_for_each(|sealed| check_segment(sealed, durable, report))
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
