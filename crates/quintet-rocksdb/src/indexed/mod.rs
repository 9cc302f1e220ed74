//! Write batches with an index: reads and iterators see the batch over a database.
//!
//! How: the batch is a plain one. An index by column family and key is brought up to date when a
//! read needs it, so adding an operation costs what it costs in a plain batch. An iterator shares
//! the index as it is when the iterator is made; later operations copy what they change.
//!
//! Start at [`IndexedBatch`].

mod functions;
pub mod overlay;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quintet_compat::{
    boundary::Reference,
    keys,
    operations::{Action, Operations, Record},
    status::{Code, Status},
    timestamps,
};

use crate::callbacks::MergeOperator;

/// `rocksdb_writebatch_wi_t`: a batch of the program, or that of a transaction.
pub type IndexedObject = Reference<IndexedCell>;

/// A batch that one thread at a time uses.
#[derive(Debug, Default)]
pub struct IndexedCell(Mutex<IndexedBatch>);

impl IndexedCell {
    /// Makes a cell with a batch.
    pub fn new(operations: Operations) -> Self {
        Self(Mutex::new(IndexedBatch { operations, ..IndexedBatch::default() }))
    }

    /// Locks the batch. No callback runs under the lock.
    pub fn lock(&self) -> MutexGuard<'_, IndexedBatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch with an index.
#[derive(Debug, Default)]
pub struct IndexedBatch {
    operations: Operations,
    index: BTreeMap<u32, Arc<FamilyIndex>>,
    /// Bytes of the batch that are in the index.
    indexed_bytes: usize,
}

/// What a batch does to a column family.
#[derive(Clone, Debug, Default)]
pub struct FamilyIndex {
    /// By keys in stored form.
    keys: BTreeMap<Vec<u8>, Change>,
    /// Ranges that were deleted, in stored form. Keys in `keys` count before them.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a batch does to a key.
#[derive(Clone, Debug, Default)]
pub struct Change {
    base: Base,
    /// Operands that are merged into the base, in order.
    operands: Vec<Vec<u8>>,
}

/// The value to which operands are merged.
#[derive(Clone, Debug, Default)]
enum Base {
    /// That of the database.
    #[default]
    Unchanged,
    Deleted,
    Value(Vec<u8>),
}

impl Change {
    fn of(base: Base) -> Self {
        Self { base, operands: Vec::new() }
    }

    /// Returns whether the value depends on that of the database.
    pub fn needs_base(&self) -> bool {
        matches!(self.base, Base::Unchanged)
    }

    /// Returns the value of a key, given as it is stored. `below` is that of the database. Fails if
    /// there are operands and no merge operator.
    pub fn value(
        &self,
        operator: Option<&MergeOperator>,
        key: &[u8],
        below: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, Status> {
        let base = match &self.base {
            Base::Unchanged => below,
            Base::Deleted => None,
            Base::Value(value) => Some(&**value),
        };
        if self.operands.is_empty() {
            return Ok(base.map(<[u8]>::to_vec));
        }
        let none = || Status::unsupported("Provide a merge_operator when opening DB");
        let operator = operator.ok_or_else(none)?;
        let mut merged = base.map(<[u8]>::to_vec);
        // One operand at a time, as a write of the batch merges them.
        for operand in &self.operands {
            let new = operator.merge(keys::key(key), merged.as_deref(), &[operand]);
            merged = Some(new.map_err(Status::corruption)?);
        }
        Ok(merged)
    }
}

impl FamilyIndex {
    /// Returns what the batch does to a key.
    pub fn find(&self, key: &[u8]) -> Option<Change> {
        if let Some(change) = self.keys.get(key) {
            return Some(change.clone());
        }
        self.is_deleted(key).then(|| Change::of(Base::Deleted))
    }

    /// Returns what the batch does to a table with versions, if its puts and deletes have a
    /// timestamp. Such a batch has neither merges nor range deletes.
    #[must_use]
    pub fn versions_at(&self, timestamp: u64) -> Self {
        let version = |(key, change): (&Vec<u8>, &Change)| {
            let value = match &change.base {
                Base::Value(value) => Some(&**value),
                Base::Unchanged | Base::Deleted => None,
            };
            let value = timestamps::stored_value(value);
            (timestamps::stored(keys::key(key), timestamp), Change::of(Base::Value(value)))
        };
        Self { keys: self.keys.iter().map(version).collect(), ranges: Vec::new() }
    }

    /// Returns whether the key is in a range that was deleted.
    pub fn is_deleted(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|(start, end)| **start <= *key && *key < **end)
    }

    fn add(&mut self, record: &Record<'_>) {
        let key = keys::stored(record.key);
        match record.action {
            Action::Put => {
                self.keys.insert(key.into_owned(), Change::of(Base::Value(record.value.to_vec())));
            }
            Action::Delete | Action::SingleDelete => {
                self.keys.insert(key.into_owned(), Change::of(Base::Deleted));
            }
            Action::Merge => {
                let change = self.find(&key).unwrap_or_default();
                let change = self.keys.entry(key.into_owned()).or_insert(change);
                change.operands.push(record.value.to_vec());
            }
            Action::DeleteRange => {
                let (start, end) = (key.into_owned(), keys::stored(record.value).into_owned());
                if start < end {
                    for (_, change) in self.keys.range_mut(start.clone()..end.clone()) {
                        *change = Change::of(Base::Deleted);
                    }
                    self.ranges.push((start, end));
                }
            }
            Action::LogData => {}
        }
    }
}

impl IndexedBatch {
    /// Returns the batch.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Changes the batch.
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut Operations) -> T) -> T {
        let result = change(&mut self.operations);
        if self.operations.bytes().len() < self.indexed_bytes {
            (self.index, self.indexed_bytes) = (BTreeMap::new(), 0);
        }
        result
    }

    /// Returns what the batch does to a column family. Fails if the batch is malformed.
    pub fn family(&mut self, family: u32) -> Result<Arc<FamilyIndex>, Status> {
        for record in self.operations.records_from(self.indexed_bytes) {
            let record = record?;
            Arc::make_mut(self.index.entry(record.family).or_default()).add(&record);
        }
        self.indexed_bytes = self.operations.bytes().len();
        Ok(self.index.get(&family).cloned().unwrap_or_default())
    }
}

/// Returns the failure of a read that finds operands without a value below them in the batch.
fn in_progress() -> Status {
    Status::new(Code::MergeInProgress, "the batch has operands and no value of the key")
}
