//! The new piece of a merge: its segments and local hash, and the samples of its table.

mod segment;

use self::segment::PieceSegment;
use crate::{
    Error, Result,
    engine::tph::two_tiers::{key_order::KeyOrder, local::LocalIndex},
    lsm::sst::{SstWriter, order_section::EntryLocation},
};

/// The part of a table under construction that one tier does not have.
#[derive(Debug)]
pub(super) struct PieceBuilder {
    segment: PieceSegment,
    pub(super) local: LocalIndex,
    pub(super) order: KeyOrder,
    /// The key of the last row, once there is one.
    last_key: Option<Vec<u8>>,
    segment_bytes: usize,
    block_bytes: usize,
}

impl PieceBuilder {
    /// Creates the builder of an empty piece with segments of about `segment_bytes`.
    pub(super) fn new(segment_bytes: usize, block_bytes: usize) -> Self {
        Self {
            segment: PieceSegment::default(),
            local: LocalIndex::default(),
            order: KeyOrder::default(),
            last_key: None,
            segment_bytes,
            block_bytes,
        }
    }

    /// Adds the key of the table's next row.
    pub(super) fn add_row(&mut self, key: &[u8]) {
        self.order.push(self.last_key.as_deref(), key);
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Adds an entry to the piece; `row` is the number of its row. Calls `locate` with the rows of
    /// a segment that is complete, and the locations of their entries.
    pub(super) fn add_entry(
        &mut self,
        (hash, key): (u64, &[u8]),
        value: Option<&[u8]>,
        row: usize,
        (writer, locate): (&mut SstWriter, &mut dyn FnMut(usize, EntryLocation)),
    ) -> Result<()> {
        writer.count_entry(key, value.map(<[u8]>::len));
        self.segment.push((hash, key), value, row);
        if self.segment.is_full(self.segment_bytes) {
            self.end_segment(writer, locate)?;
        }
        Ok(())
    }

    /// Writes the last segment.
    pub(super) fn end_segment(
        &mut self,
        writer: &mut SstWriter,
        locate: &mut dyn FnMut(usize, EntryLocation),
    ) -> Result<()> {
        self.segment.finish(writer, &mut self.local, self.block_bytes, locate)
    }

    /// Returns the local hash and the samples of the complete table. Fails with `Limit` if its keys
    /// are too long for them.
    pub(super) fn finish(mut self) -> Result<(LocalIndex, KeyOrder)> {
        if self.order.is_too_large() || self.local.is_too_large() {
            let what = "the samples of a table's keys exceed 4 GiB".to_owned();
            return Err(Error::Limit { what });
        }
        self.local.shrink();
        self.order.shrink();
        Ok((self.local, self.order))
    }
}
