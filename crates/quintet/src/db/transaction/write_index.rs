//! The index of a transaction's own writes: what it has written last to each key.
//!
//! How: for each table an ordered map of the keys that were put or deleted, and the ranges that
//! were deleted, merged where they meet. A deleted range removes the keys in it from the map. So a
//! key of the map was written after each range that covers it, and precedes it.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range},
};

use crate::{
    contract::Op,
    db::encoding::operations::{Ops, put_op},
    util::mutant::mutant,
};

/// What a transaction has written to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnValue {
    /// Nothing.
    Unwritten,
    /// It has deleted the key.
    Deleted,
    /// It has put a value, which is at these bytes of the write set.
    Stored(Range<usize>),
}

/// The index, by table.
#[derive(Debug, Default)]
pub(super) struct WriteIndex {
    tables: BTreeMap<u64, TableWrites>,
}

/// The writes of one table.
#[derive(Debug, Default)]
struct TableWrites {
    /// Keys that were put or deleted after every deleted range that covers them. `None`: deleted.
    keys: BTreeMap<Vec<u8>, Option<Range<usize>>>,
    /// Deleted ranges that do not touch: first key, and first key past the range. Empty: unbounded.
    deleted: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl WriteIndex {
    /// Adds the operations of `body` from byte `from` on.
    pub(super) fn add(&mut self, body: &[u8], from: usize) {
        let mut operations = Ops::new(body.get(from..).unwrap_or(&[]));
        while let Some(item) = operations.next() {
            let Some((table_id, op)) = item else { return };
            // The value is the end of the operation.
            let end = body.len() - operations.remaining_bytes();
            let writes = self.tables.entry(table_id).or_default();
            match op {
                Op::Put { key, body: stored, .. } => {
                    writes.keys.insert(key.to_vec(), Some(end - stored.len()..end));
                }
                Op::Delete { key } => {
                    writes.keys.insert(key.to_vec(), None);
                }
                Op::DeleteRange { start, end } => writes.delete_range(start, end),
            }
        }
    }

    /// Returns what the transaction has written to a key.
    pub(super) fn find(&self, table_id: u64, key: &[u8]) -> OwnValue {
        self.tables.get(&table_id).map_or(OwnValue::Unwritten, |writes| writes.find(key))
    }

    /// Returns the first key of a table within the bounds that the transaction has put or deleted,
    /// with its value.
    pub(super) fn first(
        &self,
        table_id: u64,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(&[u8], OwnValue)> {
        self.within(table_id, bounds)?.next()
    }

    /// Returns the last key of a table within the bounds that the transaction has put or deleted,
    /// with its value.
    pub(super) fn last(
        &self,
        table_id: u64,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(&[u8], OwnValue)> {
        self.within(table_id, bounds)?.next_back()
    }

    fn within<'a>(
        &'a self,
        table_id: u64,
        (start, end): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<impl DoubleEndedIterator<Item = (&'a [u8], OwnValue)> + use<'a>> {
        // `BTreeMap::range` panics if the bounds are not in order.
        if let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high)) = (start, end)
            && low > high
        {
            return None;
        }
        if let (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high)) = (start, end)
            && low >= high
        {
            return None;
        }
        if let (Bound::Excluded(low), Bound::Included(high)) = (start, end)
            && low == high
        {
            return None;
        }
        let writes = self.tables.get(&table_id)?;
        let entries = writes.keys.range::<[u8], _>((start, end));
        Some(entries.map(|(key, own)| (key.as_slice(), own_value(own.as_ref()))))
    }

    /// Appends operations with the effect of the index to `out`: deleted ranges first, then one
    /// operation for each key. `body` holds the values. Returns the number of operations.
    pub(super) fn encode(&self, body: &[u8], out: &mut Vec<u8>) -> u64 {
        let mut count = 0;
        for (table_id, writes) in &self.tables {
            let ranges = writes.deleted.iter().map(|(start, end)| Op::DeleteRange { start, end });
            let keys = writes.keys.iter().map(|(key, own)| match own {
                Some(place) => {
                    Op::Put { key, head: &[], body: body.get(place.clone()).unwrap_or(&[]) }
                }
                None => Op::Delete { key },
            });
            for op in ranges.chain(keys) {
                put_op(out, *table_id, &op);
                count += 1;
            }
        }
        count
    }
}

fn own_value(own: Option<&Range<usize>>) -> OwnValue {
    own.map_or(OwnValue::Deleted, |place| OwnValue::Stored(place.clone()))
}

impl TableWrites {
    fn find(&self, key: &[u8]) -> OwnValue {
        mutant!(OwnRangeHidesLaterPuts => if self.is_in_deleted_range(key) {
            return OwnValue::Deleted;
        });
        match self.keys.get(key) {
            Some(own) => own_value(own.as_ref()),
            None if self.is_in_deleted_range(key) => OwnValue::Deleted,
            None => OwnValue::Unwritten,
        }
    }

    fn is_in_deleted_range(&self, key: &[u8]) -> bool {
        let before = self.deleted.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        before.last().is_some_and(|(_, end)| end.is_empty() || key < end.as_slice())
    }

    /// Deletes the keys from `start` to `end` (excluded; empty: unbounded).
    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        let is_in = |key: &[u8]| key >= start && (end.is_empty() || key < end);
        self.keys.retain(|key, _| !is_in(key));
        let (mut start, mut end) = (start.to_vec(), end.to_vec());
        self.deleted.retain(|other_start, other_end| {
            let is_before = !other_end.is_empty() && *other_end < start;
            let is_behind = !end.is_empty() && *other_start > end;
            if is_before || is_behind {
                return true;
            }
            start = std::mem::take(&mut start).min(other_start.clone());
            let is_unbounded = end.is_empty() || other_end.is_empty();
            end = if is_unbounded {
                Vec::new()
            } else {
                std::mem::take(&mut end).max(other_end.clone())
            };
            false
        });
        self.deleted.insert(start, end);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::mutant::{Bug, finds};

    fn body(operations: &[Op<'_>]) -> Vec<u8> {
        let mut body = Vec::new();
        for op in operations {
            put_op(&mut body, 7, op);
        }
        body
    }

    fn put<'a>(key: &'a str, value: &'a str) -> Op<'a> {
        Op::Put { key: key.as_bytes(), head: &[], body: value.as_bytes() }
    }

    fn range<'a>(start: &'a str, end: &'a str) -> Op<'a> {
        Op::DeleteRange { start: start.as_bytes(), end: end.as_bytes() }
    }

    /// Shows what the index says of a key: `-` for nothing, `x` for a delete, else the value.
    fn says(index: &WriteIndex, body: &[u8], key: &str) -> String {
        match index.find(7, key.as_bytes()) {
            OwnValue::Unwritten => "-".to_owned(),
            OwnValue::Deleted => "x".to_owned(),
            OwnValue::Stored(place) => String::from_utf8(body[place].to_vec()).unwrap(),
        }
    }

    fn the_last_write_of_a_key_counts() {
        let body = body(&[
            put("a", "1"),
            put("b", "2"),
            put("a", "3"),
            Op::Delete { key: b"b" },
            range("c", "f"),
            put("d", "4"),
            range("dd", "g"),
            put("x", "5"),
            range("w", ""),
        ]);
        let mut index = WriteIndex::default();
        index.add(&body, 0);
        let said: Vec<_> = ["", "a", "b", "bb", "c", "d", "dc", "ff", "g", "w", "x", "zzz"]
            .map(|key| says(&index, &body, key))
            .into();
        assert_eq!(said, ["-", "3", "x", "-", "x", "4", "x", "x", "-", "x", "x", "x"]);
        assert_eq!(index.find(8, b"a"), OwnValue::Unwritten);
        // The same, encoded again in few operations.
        let mut short = Vec::new();
        assert_eq!(index.encode(&body, &mut short), 5);
        let mut index = WriteIndex::default();
        index.add(&short, 0);
        let again: Vec<_> =
            ["a", "b", "d", "dc", "ff", "zzz"].map(|key| says(&index, &short, key)).into();
        assert_eq!(again, ["3", "x", "4", "x", "x", "x"]);
    }

    #[test]
    fn a_key_has_its_last_write() {
        the_last_write_of_a_key_counts();
        finds(Bug::OwnRangeHidesLaterPuts, the_last_write_of_a_key_counts);
    }

    #[test]
    fn deleted_ranges_that_meet_are_one() {
        let body = body(&[range("a", "c"), range("e", "g"), range("c", "e"), range("k", "m")]);
        let mut index = WriteIndex::default();
        index.add(&body, 0);
        let deleted = &index.tables[&7].deleted;
        let expected = [(b"a".to_vec(), b"g".to_vec()), (b"k".to_vec(), b"m".to_vec())];
        assert_eq!(*deleted, BTreeMap::from(expected));
        index.add(&self::body(&[range("b", "")]), 0);
        assert_eq!(index.tables[&7].deleted, BTreeMap::from([(b"a".to_vec(), Vec::new())]));
    }

    #[test]
    fn keys_are_found_from_both_ends_of_bounds() {
        let body = body(&[put("a", "1"), put("c", "2"), Op::Delete { key: b"e" }]);
        let mut index = WriteIndex::default();
        index.add(&body, 0);
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(index.first(7, all).unwrap().0, b"a");
        assert_eq!(index.last(7, all).unwrap(), (b"e".as_slice(), OwnValue::Deleted));
        let key = |key: &'static str| key.as_bytes();
        let after_a = (Bound::Excluded(key("a")), Bound::Excluded(key("e")));
        assert_eq!(index.first(7, after_a).unwrap().0, b"c");
        assert_eq!(index.last(7, after_a).unwrap().0, b"c");
        for (start, end) in [
            (Bound::Excluded(key("c")), Bound::Included(key("c"))),
            (Bound::Included(key("c")), Bound::Excluded(key("c"))),
            (Bound::Excluded(key("c")), Bound::Excluded(key("c"))),
            (Bound::Included(key("d")), Bound::Included(key("b"))),
            (Bound::Included(key("d")), Bound::Excluded(key("b"))),
        ] {
            assert_eq!(index.first(7, (start, end)), None);
        }
        assert_eq!(index.first(9, all), None);
    }

    /// Random operations against a map of 26 keys.
    #[test]
    fn random_writes_agree_with_a_map() {
        let mut state = 1_u64;
        let mut next = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..300 {
            let (mut body, mut index) = (Vec::new(), WriteIndex::default());
            let mut model: BTreeMap<Vec<u8>, OwnValue> = BTreeMap::new();
            for step in 0..30_u64 {
                let key = |number: u64| vec![b'a' + u8::try_from(number).unwrap()];
                let (one, other) = (next(26), next(27));
                let from = body.len();
                match next(4) {
                    0 | 1 => {
                        let value = step.to_le_bytes();
                        put_op(&mut body, 7, &Op::Put { key: &key(one), head: &[], body: &value });
                        model.insert(key(one), OwnValue::Stored(body.len() - 8..body.len()));
                    }
                    2 => {
                        put_op(&mut body, 7, &Op::Delete { key: &key(one) });
                        model.insert(key(one), OwnValue::Deleted);
                    }
                    _ => {
                        let end = if other == 26 { Vec::new() } else { key(other) };
                        if other <= one && other != 26 {
                            continue;
                        }
                        put_op(&mut body, 7, &Op::DeleteRange { start: &key(one), end: &end });
                        (one..other).for_each(|number| {
                            model.insert(key(number), OwnValue::Deleted);
                        });
                    }
                }
                index.add(&body, from);
            }
            for number in 0..26_u8 {
                let key = vec![b'a' + number];
                let expected = model.get(&key).cloned().unwrap_or(OwnValue::Unwritten);
                assert_eq!(index.find(7, &key), expected);
            }
        }
    }
}
