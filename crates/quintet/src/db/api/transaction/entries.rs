//! Ranges of a transaction: its snapshot merged with its own writes, from both ends.
//!
//! The next entry of the snapshot is read ahead, at each end. The next own write is looked up in
//! the index. The lower of the two keys is next; an own write hides an entry with the same key.
//! Each returned key extends the part of the range that counts as read.

use std::{
    fmt,
    ops::{Bound, Bound::Excluded},
};

use super::{Transaction, own_value};
use crate::{
    Result,
    contract::KeyRange,
    db::{
        api::table::{Entries, Table},
        tables::value::{Key, Value},
        transaction::OwnValue,
    },
};

/// Iterator over a range; see [`Transaction::range`].
pub struct TransactionEntries<'a> {
    transaction: &'a Transaction,
    table: Table,
    committed: ReadAheadEntries,
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

/// The committed entries of a range, with the next one at each end.
struct ReadAheadEntries {
    entries: Entries,
    front: Option<(Key, Value)>,
    back: Option<(Key, Value)>,
}

/// An end of the range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangeEnd {
    Front,
    Back,
}

impl ReadAheadEntries {
    /// Reads the next entry at an end, unless it is read already. Returns its key.
    fn peek(&mut self, end: RangeEnd) -> Result<Option<&[u8]>> {
        let Self { entries, front, back } = self;
        let (near, far) = match end {
            RangeEnd::Front => (front, back),
            RangeEnd::Back => (back, front),
        };
        if near.is_none() {
            let next = match end {
                RangeEnd::Front => entries.next(),
                RangeEnd::Back => entries.next_back(),
            };
            // The last entry may have been read ahead from the other end.
            *near = next.transpose()?.or_else(|| far.take());
        }
        Ok(near.as_ref().map(|(key, _)| key.as_slice()))
    }

    fn take(&mut self, end: RangeEnd) -> Option<(Key, Value)> {
        match end {
            RangeEnd::Front => self.front.take(),
            RangeEnd::Back => self.back.take(),
        }
    }
}

impl<'a> TransactionEntries<'a> {
    pub(super) fn new(
        transaction: &'a Transaction,
        table: &Table,
        range: KeyRange,
    ) -> Result<Self> {
        let own_start = range.start.clone().map_or(Bound::Unbounded, Bound::Included);
        let own_end = range.end.clone().map_or(Bound::Unbounded, Excluded);
        let core = &transaction.session.core;
        let state = &mut *transaction.state.borrow_mut();
        let begun = state.reads.range(core, &table.state, range.clone());
        let (snapshot, number) = state.keep_failure(begun)?;
        let entries = Entries::new(table, &snapshot, range)?;
        let committed = ReadAheadEntries { entries, front: None, back: None };
        let table = table.clone();
        Ok(Self { transaction, table, committed, number, own_start, own_end, failed: false })
    }

    /// Returns the next entry at an end. `Ok(None)`: there is none.
    fn advance(&mut self, end: RangeEnd) -> Result<Option<(Key, Value)>> {
        self.table.session.core.tables.check_usable(&self.table.state)?;
        let id = self.table.state.id;
        loop {
            let state = &mut *self.transaction.state.borrow_mut();
            let bounds = (
                self.own_start.as_ref().map(Vec::as_slice),
                self.own_end.as_ref().map(Vec::as_slice),
            );
            let own = match end {
                RangeEnd::Front => state.writes.first(id, bounds),
                RangeEnd::Back => state.writes.last(id, bounds),
            };
            let committed = self.committed.peek(end)?;
            let is_own_next = match (&own, committed) {
                (None, None) => {
                    state.reads.extend_range(self.number, None, end == RangeEnd::Front);
                    return Ok(None);
                }
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((own, _)), Some(committed)) => match end {
                    RangeEnd::Front => own.as_slice() <= committed,
                    RangeEnd::Back => own.as_slice() >= committed,
                },
            };
            if let Some((key, own)) = own.filter(|_| is_own_next) {
                if committed == Some(key.as_slice()) {
                    self.committed.take(end);
                }
                match end {
                    RangeEnd::Front => self.own_start = Excluded(key.clone()),
                    RangeEnd::Back => self.own_end = Excluded(key.clone()),
                }
                state.reads.extend_range(self.number, Some(&key), end == RangeEnd::Front);
                if let Some(value) = own_value(&self.table, &state.writes, own)? {
                    return Ok(Some((key, value)));
                }
                continue;
            }
            let Some((key, value)) = self.committed.take(end) else { return Ok(None) };
            state.reads.extend_range(self.number, Some(&key), end == RangeEnd::Front);
            // A range that the transaction has deleted hides it.
            if state.writes.find(id, &key) == OwnValue::Unwritten {
                return Ok(Some((key, value)));
            }
        }
    }

    fn next_at(&mut self, end: RangeEnd) -> Option<Result<(Key, Value)>> {
        if self.failed {
            return None;
        }
        let next = self.advance(end);
        let next = self.transaction.state.borrow_mut().keep_failure(next);
        self.failed = next.is_err();
        next.transpose()
    }
}

impl Iterator for TransactionEntries<'_> {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_at(RangeEnd::Front)
    }
}

impl DoubleEndedIterator for TransactionEntries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_at(RangeEnd::Back)
    }
}
