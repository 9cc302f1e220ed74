//! Range deletes: one delete for each key of the range, and an empty range.
//!
//! A range delete reads the keys of its range and inserts a tombstone for each. Then it records the
//! range as empty ([`super::empty_ranges`]), so that no scan passes the tombstones.

use super::{
    range::{RangeSource, TwoEndedScan},
    super_version::SuperVersion,
    tombstone_run::RUN_MIN,
    write_buffer::{FlushTarget, WriteBuffer},
};
use crate::{
    Result,
    contract::{Direction, KeyRange, Op},
    util::codec::Lsn,
};

/// The first and the last key of a range that was deleted.
type Deleted = (Vec<u8>, Vec<u8>);

impl<V> WriteBuffer<V> {
    /// Deletes the keys from `start` (included) to `end` (excluded; empty: unbounded). `source`
    /// returns what the scan reads.
    pub(super) fn delete_range<T: FlushTarget<V>, S: RangeSource<Table = T>>(
        &self,
        lsn: Lsn,
        (start, end): (&[u8], &[u8]),
        target: &T,
        source: impl FnOnce(&SuperVersion<V>) -> S,
    ) -> Result<()> {
        let end = (!end.is_empty()).then(|| end.to_vec());
        // The super version is loaded after the watch begins, so the watch gets all later puts.
        let watch = self.empty_ranges.watch(Direction::Up, Some(start.to_vec()));
        let range = KeyRange { start: Some(start.to_vec()), end: end.clone() };
        let keys = TwoEndedScan::new(source(&self.view.load()), range);
        let deleted = self.delete_keys(lsn, keys, target)?;
        if let (Some(watch), Some((first, last))) = (watch, deleted) {
            watch.record(end, (&first, &last));
        }
        Ok(())
    }

    /// Deletes every key of a scan. Returns the first and the last key if there are enough for an
    /// empty range.
    fn delete_keys<T: FlushTarget<V>, S: RangeSource<Table = T>>(
        &self,
        lsn: Lsn,
        mut keys: TwoEndedScan<S>,
        target: &T,
    ) -> Result<Option<Deleted>> {
        let (mut count, mut deleted) = (0, None::<Deleted>);
        while let Some(key) = keys.next_key(target)? {
            self.insert(lsn, &Op::Delete { key: &key }, self.hash(&key), target)?;
            self.rotate_full(target)?;
            count += 1;
            match &mut deleted {
                Some((_, last)) => *last = key,
                None => deleted = Some((key.clone(), key)),
            }
        }
        Ok(deleted.filter(|_| count >= RUN_MIN))
    }
}
