//! The check of workloads that count versions: the sums over the versions of all records.
//!
//! A read-modify-write adds one to the sum of the first table. A transfer takes one from the first
//! table and adds one to the second. So the sums after a run follow from the sums before it and the
//! number of operations, and an update that was lost or applied twice shows. Sums wrap around, as
//! versions do.

use super::Task;
use crate::{
    data::{ReadMatch, RecordShape},
    expected_state::wrong_read,
    failure::{Failure, Outcome},
    store::{Store, StoreFeature, TransactionalStore, missing},
    workload::{VERSION_FIRST, Workload},
};

/// What a read-modify-write adds to the version of its record.
pub(super) const UPDATE_STEP: u64 = 1;
/// What a transfer adds to the version of its record in the first table: it takes one away.
pub(super) const SOURCE_STEP: u64 = u64::MAX;
/// What a transfer adds to the version of its record in the second table.
pub(super) const TARGET_STEP: u64 = 1;
/// Records in one atomic write while loading the second table.
const LOAD_BATCH: u64 = 1000;

/// Sums over the versions of all records of both tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionSums {
    /// Sum over the first table.
    pub first: u64,
    /// Sum over the second table; `None` if it is not loaded.
    pub second: Option<u64>,
}

impl VersionSums {
    /// Returns the sums after loading `records` records into the first table.
    pub fn loaded(records: u64) -> Self {
        Self { first: records.wrapping_mul(VERSION_FIRST), second: None }
    }

    /// Returns the sum over both tables.
    pub fn total(&self) -> u64 {
        self.first.wrapping_add(self.second.unwrap_or(0))
    }

    /// Returns the sums after `operations` operations of a workload that counts versions.
    #[must_use]
    pub fn after(self, workload: &Workload, operations: u64) -> Self {
        let add = |sum: u64, step: u64| sum.wrapping_add(operations.wrapping_mul(step));
        if workload.has_transfers() {
            let second = self.second.map(|sum| add(sum, TARGET_STEP));
            return Self { first: add(self.first, SOURCE_STEP), second };
        }
        Self { first: add(self.first, UPDATE_STEP), ..self }
    }

    /// Reads both tables, the second one if it is loaded, and checks every value. Nothing else may
    /// use the store.
    pub fn read(
        store: &dyn Store,
        shape: &RecordShape,
        records: u64,
        has_second: bool,
    ) -> Outcome<Self> {
        let mut sum = TableSum::new(shape, records);
        store.scan(&mut |key, value| sum.add(key, value))?;
        let first = sum.finish()?;
        let second = if has_second {
            let mut sum = TableSum::new(shape, records);
            transactional(store)?.scan_second(&mut |key, value| sum.add(key, value))?;
            Some(sum.finish()?)
        } else {
            None
        };
        Ok(Self { first, second })
    }

    /// Fails unless the tables have these sums.
    pub fn check(&self, store: &dyn Store, shape: &RecordShape, records: u64) -> Outcome {
        let found = Self::read(store, shape, records, self.second.is_some())?;
        if found == *self {
            return Ok(());
        }
        Err(Failure::Damage(format!(
            "the versions of all records add up to {found:?}, not {self:?}: updates were lost or \
             applied twice"
        )))
    }
}

/// Loads the records of the first table into the second one. Returns the sum of their versions.
pub fn load_second(store: &dyn Store, task: &Task<'_>) -> Outcome<u64> {
    let (store, shape, records) = (transactional(store)?, task.shape, task.amount.records);
    for first in (0..records).step_by(usize::try_from(LOAD_BATCH).unwrap_or(usize::MAX)) {
        let numbers = first..records.min(first + LOAD_BATCH);
        let entries: Vec<_> = numbers
            .map(|number| {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                shape.key(number, &mut key);
                shape.value(number, VERSION_FIRST, &mut value);
                (key, value)
            })
            .collect();
        store.batch_second(&entries)?;
    }
    Ok(records.wrapping_mul(VERSION_FIRST))
}

fn transactional(store: &dyn Store) -> Outcome<&dyn TransactionalStore> {
    store.transactions().ok_or_else(|| missing(StoreFeature::Transactions))
}

/// The sum over a table that is being scanned.
struct TableSum<'a> {
    shape: &'a RecordShape,
    records: u64,
    sum: u64,
    count: u64,
    wrong: Option<Failure>,
    expected_key: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'a> TableSum<'a> {
    fn new(shape: &'a RecordShape, records: u64) -> Self {
        let (expected_key, scratch) = (Vec::new(), Vec::new());
        Self { shape, records, sum: 0, count: 0, wrong: None, expected_key, scratch }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let number = RecordShape::number(value).unwrap_or(u64::MAX);
        self.shape.key(number, &mut self.expected_key);
        let is_own = number < self.records && key == self.expected_key;
        match self.shape.check(number, value, &mut self.scratch) {
            ReadMatch::Version(version) if is_own => {
                self.sum = self.sum.wrapping_add(version);
                self.count += 1;
            }
            _ => self.wrong = Some(wrong_read(number, ReadMatch::Foreign)),
        }
    }

    fn finish(self) -> Outcome<u64> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if self.count != self.records {
            let what = format!("a scan gave {} entries of {}", self.count, self.records);
            return Err(Failure::Damage(what));
        }
        Ok(self.sum)
    }
}
