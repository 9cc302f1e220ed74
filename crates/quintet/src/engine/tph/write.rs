//! Writes: inserts into the write buffer, and range deletes.

use super::{range::TphRangeSource, store::TphStore};
use crate::{
    Result,
    contract::{KeyRange, Op},
    lsm::range::TwoEndedScan,
    util::codec::Lsn,
};

impl TphStore {
    /// Inserts a put or a delete. Ignores range deletes.
    pub(super) fn insert(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        let (Op::Put { key, .. } | Op::Delete { key }) = op else { return Ok(()) };
        self.write_buffer.insert(lsn, op, self.hash(key), self)
    }

    /// Deletes every key of a range, with a tombstone for each. An empty `end` is no bound.
    pub(super) fn delete_range(&self, lsn: Lsn, start: &[u8], end: &[u8]) -> Result<()> {
        let end = (!end.is_empty()).then(|| end.to_vec());
        let range = KeyRange { start: Some(start.to_vec()), end };
        let source = TphRangeSource::new(&self.write_buffer.view.load());
        let mut keys = TwoEndedScan::new(source, range);
        while let Some(key) = keys.next_key(self)? {
            self.insert(lsn, &Op::Delete { key: &key })?;
            self.write_buffer.rotate_full(self)?;
        }
        Ok(())
    }
}
