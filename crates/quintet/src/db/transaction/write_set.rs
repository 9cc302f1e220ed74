//! The writes of a transaction.
//!
//! They are kept encoded, in the order in which they were made: as the body of the log record that
//! the commit writes. The index ([`super::write_index`]) is built when the transaction first reads
//! after a write, and then completed at each read. A transaction that reads before it writes has
//! none.
//!
//! A savepoint is a length of the body: a rollback to it cuts the body off. Once the body has
//! doubled, the writes since the last savepoint are encoded again without those that were replaced.
//!
//! Limits: [`BATCH_BYTES_MAX`], and the memory budget: beyond [`FREE_BYTES`] the memory is reserved
//! before a write is added.

use std::{cell::Cell, ops::Bound, sync::Arc};

use super::write_index::{OwnValue, WriteIndex};
use crate::{
    Error, Result,
    contract::{self, Op},
    db::{encoding::operations::put_op, limits::BATCH_BYTES_MAX, tables::state::TableState},
    io::process::ProcessArc,
    util::{
        budget::Budget,
        codec::{round_up, to_u64},
        mutant::mutant,
    },
};

/// Memory that a transaction uses without a reservation, in bytes: most stay below it.
const FREE_BYTES: u64 = 16 << 10;
/// Memory is reserved in multiples of this many bytes.
const RESERVED_STEP: u64 = 64 << 10;
/// Memory of an operation besides its bytes and its key: its entry of the index.
const OPERATION_BYTES: u64 = 96;
/// Bytes of an encoded operation besides its key and value, at most.
const FRAME_BYTES: usize = 32;
/// Buffers of at most this many bytes are kept for the next transaction of the thread.
const SPARE_BYTES_MAX: usize = 4 << 10;
/// Minimum size of a body that is encoded again, in bytes.
const COMPACTED_MIN: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };

/// The buffers of an empty write set.
type SpareBuffers = (Vec<u8>, Vec<ProcessArc<TableState>>);

thread_local! {
    /// Buffers of an earlier write set: most transactions allocate none.
    static SPARE: Cell<Option<SpareBuffers>> = const { Cell::new(None) };
}

/// The writes of a transaction.
#[derive(Debug)]
pub(crate) struct WriteSet {
    /// Encoded operations, in order.
    body: Vec<u8>,
    operations: u64,
    tables: Vec<ProcessArc<TableState>>,
    index: WriteIndex,
    /// Number of bytes of the body that the index has.
    indexed: usize,
    /// The savepoints that a rollback may name, in order.
    savepoints: Vec<SavedLength>,
    savepoints_total: u64,
    /// Size at which the body is encoded again.
    compact_at: usize,
    reserved: Option<(Arc<Budget>, u64)>,
}

/// What a write set held at a savepoint.
#[derive(Clone, Copy, Debug)]
struct SavedLength {
    number: u64,
    body: usize,
    operations: u64,
    tables: usize,
}

impl WriteSet {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let (body, tables) = spare.unwrap_or_default();
        Self {
            body,
            operations: 0,
            tables,
            index: WriteIndex::default(),
            indexed: 0,
            savepoints: Vec::new(),
            savepoints_total: 0,
            compact_at: COMPACTED_MIN,
            reserved: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Returns the number of operations of the body.
    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    /// Returns the encoded operations.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the tables of the operations.
    pub(crate) fn tables(&self) -> &[ProcessArc<TableState>] {
        &self.tables
    }

    /// Adds an operation. Fails with [`Error::Limit`] or [`Error::OutOfMemory`] if the set would be
    /// too large; it is unchanged then.
    pub(crate) fn add(
        &mut self,
        budget: &Arc<Budget>,
        table: &ProcessArc<TableState>,
        op: &Op<'_>,
    ) -> Result<()> {
        let added = match *op {
            Op::Put { key, head, body } => key.len() + head.len() + body.len(),
            Op::Delete { key } => key.len(),
            Op::DeleteRange { start, end } => start.len() + end.len(),
        };
        self.reserve(budget, added)?;
        let before = self.body.len();
        self.body.reserve(added + FRAME_BYTES);
        put_op(&mut self.body, table.id, op);
        if to_u64(self.body.len()) > BATCH_BYTES_MAX {
            let what = format!(
                "a transaction writes more than {} bytes; transactions write at most \
                 {BATCH_BYTES_MAX}",
                self.body.len()
            );
            self.body.truncate(before);
            return Err(Error::Limit { what });
        }
        self.operations += 1;
        // Searched from the end: consecutive operations on one table are the common case.
        if !self.tables.iter().rev().any(|other| other.id == table.id) {
            self.tables.push(table.clone());
        }
        if self.body.len() >= self.compact_at {
            self.compact();
        }
        Ok(())
    }

    /// Reserves the memory of the set with an operation of about `added` bytes.
    fn reserve(&mut self, budget: &Arc<Budget>, added: usize) -> Result<()> {
        // Keys are in the body and in the index.
        let bytes = 2 * to_u64(self.body.len() + added) + OPERATION_BYTES * (self.operations + 1);
        if bytes <= FREE_BYTES {
            return Ok(());
        }
        let (budget, reserved) = self.reserved.get_or_insert_with(|| (Arc::clone(budget), 0));
        let missing = bytes.saturating_sub(*reserved);
        if missing > 0 {
            // A part of the size: the number of reservations grows with its logarithm.
            let step = round_up(missing.max(*reserved / 4), RESERVED_STEP);
            budget.reserve(step).map_err(|error| match error {
                Error::OutOfMemory { budget, .. } => Error::OutOfMemory { budget, needed: bytes },
                other => other,
            })?;
            *reserved += step;
        }
        Ok(())
    }

    /// Encodes the operations since the last savepoint again, without those that have no effect.
    fn compact(&mut self) {
        let saved = self.savepoints.last();
        let (from, before) = saved.map_or((0, 0), |saved| (saved.body, saved.operations));
        let mut index = WriteIndex::default();
        index.add(&self.body, from);
        let mut suffix = Vec::new();
        self.operations = before + index.encode(&self.body, &mut suffix);
        self.body.truncate(from);
        self.body.append(&mut suffix);
        self.forget_index();
        self.compact_at = (2 * self.body.len()).max(COMPACTED_MIN);
    }

    fn forget_index(&mut self) {
        self.index = WriteIndex::default();
        self.indexed = 0;
    }

    /// Completes the index.
    fn index(&mut self) -> &WriteIndex {
        if self.indexed < self.body.len() {
            self.index.add(&self.body, self.indexed);
            self.indexed = self.body.len();
        }
        &self.index
    }

    /// Returns what was written to a key.
    pub(crate) fn find(&mut self, table_id: u64, key: &[u8]) -> OwnValue {
        if self.body.is_empty() { OwnValue::Unwritten } else { self.index().find(table_id, key) }
    }

    /// Returns the value of [`OwnValue::Stored`], envelope included.
    pub(crate) fn stored(&self, place: std::ops::Range<usize>) -> contract::Value {
        contract::Value::copy(self.body.get(place).unwrap_or(&[]))
    }

    /// Returns the first key within the bounds that was put or deleted.
    pub(crate) fn first(
        &mut self,
        table_id: u64,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(Vec<u8>, OwnValue)> {
        mutant!(RangeMissesOwnWrites => return None);
        self.index().first(table_id, bounds).map(|(key, own)| (key.to_vec(), own))
    }

    /// Returns the last key within the bounds that was put or deleted.
    pub(crate) fn last(
        &mut self,
        table_id: u64,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Option<(Vec<u8>, OwnValue)> {
        self.index().last(table_id, bounds).map(|(key, own)| (key.to_vec(), own))
    }

    /// Makes a savepoint. Returns its number.
    pub(crate) fn save(&mut self) -> u64 {
        self.savepoints_total += 1;
        self.savepoints.push(SavedLength {
            number: self.savepoints_total,
            body: self.body.len(),
            operations: self.operations,
            tables: self.tables.len(),
        });
        self.savepoints_total
    }

    /// Undoes the writes since a savepoint, and forgets later savepoints. The savepoint stays.
    /// Returns `false`, and changes nothing, if there is no such savepoint any more.
    pub(crate) fn roll_back_to(&mut self, number: u64) -> bool {
        let Some(at) = self.savepoints.iter().rposition(|saved| saved.number == number) else {
            return false;
        };
        self.savepoints.truncate(at + 1);
        let Some(saved) = self.savepoints.last().copied() else { return false };
        mutant!(SavepointForgotten => return true);
        self.body.truncate(saved.body);
        self.operations = saved.operations;
        self.tables.truncate(saved.tables);
        self.forget_index();
        true
    }
}

impl Drop for WriteSet {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = &self.reserved {
            budget.release(*bytes);
        }
        if self.body.capacity() > SPARE_BYTES_MAX || self.tables.len() > SPARE_BYTES_MAX / 16 {
            return;
        }
        self.body.clear();
        self.tables.clear();
        let spare = (std::mem::take(&mut self.body), std::mem::take(&mut self.tables));
        let _ = SPARE.try_with(|kept| kept.set(Some(spare)));
    }
}
