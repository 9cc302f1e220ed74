//! What a transaction has read: keys, and the parts of ranges that its iterators have shown.
//!
//! An iterator that was stopped early has read its range up to the last entry that it returned. So
//! a write behind that entry does not invalidate the transaction.
//!
//! Limits: beyond [`KEYS_MAX`] keys, [`KEY_BYTES_MAX`] bytes of keys or [`RANGES_MAX`] ranges, each
//! table that was read counts as read whole. So the set has a bounded size, and a transaction that
//! reads that much conflicts with every write of these tables.

use std::{cell::Cell, collections::HashSet};

use crate::{
    Error, Result,
    contract::KeyRange,
    db::{
        core::Core,
        tables::{
            state::TableState,
            stripes::{StripeIndex, Stripes},
        },
        versions::SnapshotState,
    },
    io::process::ProcessArc,
    util::mutant::mutant,
};

/// Maximum number of keys.
const KEYS_MAX: usize = 16 << 10;
/// Maximum number of bytes of keys.
const KEY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of ranges.
const RANGES_MAX: usize = 1 << 10;
/// Number of keys from which on repeated reads are found with a hash set.
const SEARCHED_MAX: usize = 16;

/// A key that was read.
#[derive(Clone, Copy, Debug)]
struct KeyRead {
    /// Position in [`ReadSet::tables`].
    table: usize,
    hash: u64,
    /// Place in [`ReadSet::bytes`].
    start: usize,
    length: usize,
    stripe: StripeIndex,
    /// The version of the stripe; 0 if the key was read from a snapshot.
    version: u64,
}

/// A range that is read from both ends.
#[derive(Debug)]
struct RangeRead {
    table: usize,
    range: KeyRange,
    /// The last key that was returned from the front.
    low: Option<Vec<u8>>,
    /// The last key that was returned from the back.
    high: Option<Vec<u8>>,
    /// Whether the ends have met.
    is_complete: bool,
}

/// Buffers for at most this many keys are kept for the next transaction of the thread.
const SPARE_KEYS_MAX: usize = 64;
/// Maximum size of a kept buffer of keys, in bytes.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// The buffers of an empty read set.
type SpareBuffers = (Vec<ProcessArc<TableState>>, Vec<KeyRead>, Vec<u8>);

thread_local! {
    /// Buffers of an earlier read set: most transactions allocate none.
    static SPARE: Cell<Option<SpareBuffers>> = const { Cell::new(None) };
}

/// The reads of a transaction.
#[derive(Debug)]
pub(crate) struct ReadSet {
    tables: Vec<ProcessArc<TableState>>,
    keys: Vec<KeyRead>,
    /// The keys, one after the other.
    bytes: Vec<u8>,
    /// Table and hash of the keys, once there are many.
    seen: HashSet<(usize, u64)>,
    ranges: Vec<RangeRead>,
    /// Tables that count as read whole.
    is_whole: bool,
}

/// A read that is not current any more: its table, and its key or the first key of its range.
#[derive(Debug)]
pub(crate) struct ChangedRead<'a> {
    pub(crate) table: &'a TableState,
    pub(crate) key: Vec<u8>,
}

impl Drop for ReadSet {
    fn drop(&mut self) {
        if self.keys.capacity() > SPARE_KEYS_MAX || self.bytes.capacity() > SPARE_BYTES_MAX {
            return;
        }
        self.tables.clear();
        self.keys.clear();
        self.bytes.clear();
        let (tables, keys) = (std::mem::take(&mut self.tables), std::mem::take(&mut self.keys));
        let spare = (tables, keys, std::mem::take(&mut self.bytes));
        let _ = SPARE.try_with(|kept| kept.set(Some(spare)));
    }
}

impl ReadSet {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let (tables, keys, bytes) = spare.unwrap_or_default();
        Self { tables, keys, bytes, seen: HashSet::new(), ranges: Vec::new(), is_whole: false }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// Returns the number of keys.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    fn table(&mut self, table: &ProcessArc<TableState>) -> usize {
        // Searched from the end: consecutive reads of one table are the common case.
        self.tables.iter().rposition(|other| other.id == table.id).unwrap_or_else(|| {
            self.tables.push(table.clone());
            self.tables.len() - 1
        })
    }

    fn key(&self, read: &KeyRead) -> &[u8] {
        self.bytes.get(read.start..read.start + read.length).unwrap_or(&[])
    }

    /// Adds a key with its hash, and its stripe with the version before the read.
    pub(super) fn add_key(
        &mut self,
        table: &ProcessArc<TableState>,
        (key, hash): (&[u8], u64),
        (stripe, version): (StripeIndex, u64),
    ) {
        let table = self.table(table);
        if self.is_whole {
            return self.read_whole(table);
        }
        if self.has_key(table, (key, hash)) {
            return;
        }
        if self.keys.len() >= KEYS_MAX || self.bytes.len() + key.len() > KEY_BYTES_MAX {
            return self.widen();
        }
        if self.keys.len() == SEARCHED_MAX {
            self.seen = self.keys.iter().map(|read| (read.table, read.hash)).collect();
        }
        if self.keys.len() >= SEARCHED_MAX {
            self.seen.insert((table, hash));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.keys.push(KeyRead { table, hash, start, length: key.len(), stripe, version });
    }

    /// Returns whether a key was read before. May return `false` for one of two keys with one hash.
    fn has_key(&self, table: usize, (key, hash): (&[u8], u64)) -> bool {
        let is_many = self.keys.len() > SEARCHED_MAX;
        if is_many && !self.seen.contains(&(table, hash)) {
            return false;
        }
        let is_same = |read: &&KeyRead| read.table == table && read.hash == hash;
        // Among many keys the newest ones are compared: most repeated reads are close.
        let found = self.keys.iter().rev().find(is_same);
        found.is_some_and(|read| self.key(read) == key)
    }

    /// Makes every table that was read count as read whole.
    fn widen(&mut self) {
        self.is_whole = true;
        self.keys = Vec::new();
        self.bytes = Vec::new();
        self.seen = HashSet::new();
        self.ranges = Vec::new();
        (0..self.tables.len()).for_each(|table| self.read_whole(table));
    }

    fn read_whole(&mut self, table: usize) {
        if !self.ranges.iter().any(|read| read.table == table) {
            let range = KeyRange::default();
            self.ranges.push(RangeRead { table, range, low: None, high: None, is_complete: true });
        }
    }

    /// Adds a range of which nothing is read yet. Returns its number.
    pub(super) fn add_range(&mut self, table: &ProcessArc<TableState>, range: KeyRange) -> usize {
        let table = self.table(table);
        if !self.is_whole && self.ranges.len() >= RANGES_MAX {
            self.widen();
        }
        if self.is_whole {
            self.read_whole(table);
            return usize::MAX;
        }
        self.ranges.push(RangeRead { table, range, low: None, high: None, is_complete: false });
        self.ranges.len() - 1
    }

    /// Adds a table that was read whole.
    pub(super) fn add_table(&mut self, table: &ProcessArc<TableState>) {
        let table = self.table(table);
        let is_known = |read: &RangeRead| {
            read.table == table && read.is_complete && read.range == KeyRange::default()
        };
        if !self.ranges.iter().any(is_known) {
            let range = KeyRange::default();
            self.ranges.push(RangeRead { table, range, low: None, high: None, is_complete: true });
        }
    }

    /// Extends a range to the key that its iterator returned, from the front or from the back.
    /// `None`: the ends have met.
    pub(super) fn extend_range(&mut self, number: usize, key: Option<&[u8]>, is_front: bool) {
        if self.is_whole {
            return;
        }
        let Some(read) = self.ranges.get_mut(number) else { return };
        match key {
            None => {
                mutant!(RangeEndNotRead => return);
                read.is_complete = true;
            }
            Some(key) => {
                let end = if is_front { &mut read.low } else { &mut read.high };
                let end = end.get_or_insert_with(Vec::new);
                end.clear();
                end.extend_from_slice(key);
            }
        }
    }

    /// Adds the stripes of the keys to `indexes`. Returns whether all stripes are needed instead.
    pub(super) fn add_stripes(&self, stripes: &Stripes, indexes: &mut Vec<StripeIndex>) -> bool {
        if !self.ranges.is_empty() || self.keys.len() > stripes.count() {
            return true;
        }
        indexes.extend(self.keys.iter().map(|read| read.stripe));
        false
    }

    /// Returns the stripe of the reads with its version, if they are of one stripe and of `table`.
    pub(super) fn only_stripe(&self, table: &TableState) -> Option<(StripeIndex, u64)> {
        let [first, rest @ ..] = self.keys.as_slice() else { return None };
        let is_table = self.tables.iter().all(|other| other.id == table.id);
        let is_stripe =
            |read: &KeyRead| (read.stripe, read.version) == (first.stripe, first.version);
        (is_table && self.ranges.is_empty() && rest.iter().all(is_stripe))
            .then_some((first.stripe, first.version))
    }

    /// Finds a key whose stripe does not have the version any more with which it was read.
    pub(super) fn find_new_version(&self, stripes: &Stripes) -> Option<ChangedRead<'_>> {
        let is_changed = |read: &&KeyRead| !stripes.is_unchanged(read.stripe, read.version);
        self.keys.iter().find(is_changed).and_then(|read| self.changed(read.table, self.key(read)))
    }

    /// Fails unless all tables take writes: a sorted load may add keys without a stripe.
    pub(super) fn check_tables(&self, core: &Core) -> Result<()> {
        self.tables.iter().try_for_each(|table| core.tables.check_takes_writes(table))
    }

    /// Finds a read that a commit after the snapshot has changed. The caller holds the stripes.
    pub(super) fn find_changed(
        &self,
        core: &Core,
        snapshot: &SnapshotState,
    ) -> Result<Option<ChangedRead<'_>>> {
        for read in &self.keys {
            let Some(table) = self.tables.get(read.table) else { continue };
            if core.is_key_changed(snapshot, table, self.key(read))? {
                return Ok(self.changed(read.table, self.key(read)));
            }
        }
        mutant!(TransactionSkipsRanges => return Ok(None));
        for read in &self.ranges {
            let Some(table) = self.tables.get(read.table) else { continue };
            for range in read.parts() {
                if let Some(key) = core.changed_key_in(snapshot, table, &range)? {
                    return Ok(self.changed(read.table, &key));
                }
            }
        }
        Ok(None)
    }

    fn changed(&self, table: usize, key: &[u8]) -> Option<ChangedRead<'_>> {
        Some(ChangedRead { table: self.tables.get(table)?, key: key.to_vec() })
    }
}

impl ChangedRead<'_> {
    /// Returns the error of a transaction with this read.
    pub(crate) fn conflict(self, core: &Core) -> Error {
        Error::Conflict { table: core.tables.name_of(self.table), key: self.key }
    }
}

impl RangeRead {
    /// Returns the parts of the range that were read.
    fn parts(&self) -> Vec<KeyRange> {
        if self.is_complete {
            return vec![self.range.clone()];
        }
        let low = self.low.as_ref().map(|low| KeyRange {
            start: self.range.start.clone(),
            // The first key above `low`.
            end: Some([low.as_slice(), &[0]].concat()),
        });
        let high = self
            .high
            .as_ref()
            .map(|high| KeyRange { start: Some(high.clone()), end: self.range.end.clone() });
        low.into_iter().chain(high).collect()
    }
}
