//! Ranges of a transaction: its snapshot merged with its own writes, from both ends.
//!
//! The next entry of the snapshot is read ahead, at each end. The index has the next own write. The
//! lower of the two keys is next; an own write hides an entry with the same key. Each returned key
//! extends the part of the range that counts as read.
//!
//! A scan of an unordered table returns the pages of the snapshot without the keys that the
//! transaction has written, and then what it has put.

use std::{borrow::Borrow, fmt, ops::Bound};

use super::handle::{Transaction, own_value};
use crate::{
    Result,
    contract::{Cursor, Direction, KeyRange},
    db::{
        api::{
            key_bounds::KeyBounds,
            table::{Entries, Table},
        },
        snapshot::peeked_ends::PeekedEnds,
        tables::value::{Key, Value},
        transaction::OwnValue,
    },
};

/// First byte of the cursor of a scan of an unordered table: a cursor of the engine follows.
const ENGINE_TAG: u8 = b'e';
/// First byte of the cursor at the end of such a scan, among the transaction's own writes: the next
/// key follows.
const OWN_TAG: u8 = b'w';

/// Iterator over a range; see [`Transaction::range`].
pub struct TransactionEntries<'a> {
    transaction: &'a Transaction,
    table: Table,
    /// The committed entries, with the next one at each end.
    committed: PeekedEnds<Entries, (Key, Value)>,
    /// The number of the range in the read set.
    number: usize,
    /// The bounds of the own writes that are not returned yet.
    own_start: Bound<Key>,
    own_end: Bound<Key>,
    failed: bool,
}

impl fmt::Debug for TransactionEntries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionEntries").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Transaction {
    /// Returns the entries of a range in key order, from either end, with the transaction's own
    /// writes. What the iterator has passed counts as read. Fails with
    /// [`Error::Unordered`](crate::Error::Unordered) on an engine without key order.
    pub fn range(&self, table: &Table, range: impl KeyBounds) -> Result<TransactionEntries<'_>> {
        let table = &*table.current();
        self.check(table)?;
        table.check_ordered()?;
        TransactionEntries::new(self, table, range.into_key_range())
    }

    /// Returns the entries whose keys start with `prefix`; see [`Transaction::range`].
    pub fn prefix(
        &self,
        table: &Table,
        prefix: impl AsRef<[u8]>,
    ) -> Result<TransactionEntries<'_>> {
        self.range(table, KeyRange::prefix(prefix.as_ref()))
    }

    /// Returns about `count` entries from `cursor`, and the cursor of the next page; see
    /// [`Table::scan`]. The entries are those of the transaction's moment, with its own writes. The
    /// cursor is of use in transactions only. On an engine without key order the whole table counts
    /// as read.
    pub fn scan(
        &self,
        table: &Table,
        cursor: impl Borrow<Cursor>,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let table = &*table.current();
        self.check(table)?;
        let (cursor, count) = (cursor.borrow(), count.max(1));
        if table.state.kind.is_ordered() {
            return self.scan_in_order(table, cursor, count);
        }
        match cursor.0.split_first() {
            None => self.scan_engine(table, &Cursor::START, count),
            Some((&ENGINE_TAG, engine)) => self.scan_engine(table, &Cursor(engine.to_vec()), count),
            Some((&OWN_TAG, key)) => self.scan_own(table, key, count),
            Some(_) => Err(Cursor::unknown()),
        }
    }

    fn scan_in_order(
        &self,
        table: &Table,
        cursor: &Cursor,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let range = KeyRange { start: Some(cursor.key()?.to_vec()), end: None };
        let entries = TransactionEntries::new(self, table, range)?;
        let entries = entries.take(count).collect::<Result<Vec<_>>>()?;
        let next = entries.last().filter(|_| entries.len() == count);
        let next = next.map_or(Cursor::START, |(key, _)| Cursor::after_key(key));
        Ok((entries, next))
    }

    /// Returns a page of what the transaction has not written.
    fn scan_engine(
        &self,
        table: &Table,
        cursor: &Cursor,
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let state = &mut *self.state.borrow_mut();
        let page = state.reads.scan(&self.session.core, &table.state, (cursor, count));
        let (mut entries, next) = state.keep_failure(page)?;
        let id = table.state.id;
        entries.retain(|(key, _)| state.writes.find(id, key) == OwnValue::Unwritten);
        let next = if !next.is_start() {
            Cursor([&[ENGINE_TAG], next.0.as_slice()].concat())
        } else if state.writes.first(id, (Bound::Unbounded, Bound::Unbounded)).is_some() {
            Cursor(vec![OWN_TAG])
        } else {
            Cursor::START
        };
        Ok((entries, next))
    }

    /// Returns a page of what the transaction has put.
    fn scan_own(
        &self,
        table: &Table,
        from: &[u8],
        count: usize,
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let state = &mut *self.state.borrow_mut();
        let (mut entries, mut from) = (Vec::new(), from.to_vec());
        while entries.len() < count {
            let bounds = (Bound::Included(from.as_slice()), Bound::Unbounded);
            let Some((key, own)) = state.writes.first(table.state.id, bounds) else {
                return Ok((entries, Cursor::START));
            };
            // The first key above it.
            from = [key.as_slice(), &[0]].concat();
            if let Some(value) = own_value(table, &state.writes, own)? {
                entries.push((key, value));
            }
        }
        Ok((entries, Cursor([&[OWN_TAG], from.as_slice()].concat())))
    }
}

impl<'a> TransactionEntries<'a> {
    fn new(transaction: &'a Transaction, table: &Table, range: KeyRange) -> Result<Self> {
        let own_start = range.start.clone().map_or(Bound::Unbounded, Bound::Included);
        let own_end = range.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let core = &transaction.session.core;
        let state = &mut *transaction.state.borrow_mut();
        let begun = state.reads.range(core, &table.state, range.clone());
        let (snapshot, number) = state.keep_failure(begun)?;
        let entries = Entries::new(table, &snapshot, range)?;
        let committed = PeekedEnds::new(entries);
        let table = table.clone();
        Ok(Self { transaction, table, committed, number, own_start, own_end, failed: false })
    }

    /// Returns the next entry at an end. `Ok(None)`: there is none.
    fn advance(&mut self, direction: Direction) -> Result<Option<(Key, Value)>> {
        let usable = self.table.session.core.tables.check_usable(&self.table.state);
        self.transaction.state.borrow_mut().keep_failure(usable)?;
        let id = self.table.state.id;
        loop {
            let state = &mut *self.transaction.state.borrow_mut();
            let bounds = (
                self.own_start.as_ref().map(Vec::as_slice),
                self.own_end.as_ref().map(Vec::as_slice),
            );
            let own = match direction {
                Direction::Up => state.writes.first(id, bounds),
                Direction::Down => state.writes.last(id, bounds),
            };
            let committed = self.committed.peek(direction)?.map(|(key, _)| key.as_slice());
            let is_own_next = match (&own, committed) {
                (None, None) => {
                    state.reads.extend_range(self.number, None, direction == Direction::Up);
                    return Ok(None);
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((own, _)), Some(committed)) => match direction {
                    Direction::Up => own.as_slice() <= committed,
                    Direction::Down => own.as_slice() >= committed,
                },
            };
            if let Some((key, own)) = own.filter(|_| is_own_next) {
                if committed == Some(key.as_slice()) {
                    self.committed.take(direction);
                }
                match direction {
                    Direction::Up => self.own_start = Bound::Excluded(key.clone()),
                    Direction::Down => self.own_end = Bound::Excluded(key.clone()),
                }
                state.reads.extend_range(self.number, Some(&key), direction == Direction::Up);
                if let Some(value) = own_value(&self.table, &state.writes, own)? {
                    return Ok(Some((key, value)));
                }
                continue;
            }
            let Some((key, value)) = self.committed.take(direction) else { return Ok(None) };
            state.reads.extend_range(self.number, Some(&key), direction == Direction::Up);
            // A range that the transaction has deleted hides it.
            if state.writes.find(id, &key) == OwnValue::Unwritten {
                return Ok(Some((key, value)));
            }
        }
    }

    fn next_at(&mut self, direction: Direction) -> Option<Result<(Key, Value)>> {
        if self.failed {
            return None;
        }
        let next = self.advance(direction);
        let next = self.transaction.state.borrow_mut().keep_failure(next);
        self.failed = next.is_err();
        next.transpose()
    }
}

impl Iterator for TransactionEntries<'_> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_at(Direction::Up)
    }
}

impl DoubleEndedIterator for TransactionEntries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_at(Direction::Down)
    }
}
