//! Operations that make the version of a record from the version that they read.
//!
//! Each makes a valid value of the record in its next version, so that the sum over all versions
//! tells how many operations took effect. Versions wrap around: a transfer takes one from records
//! whose version may be 0.

use super::{
    super::version_sums::{SOURCE_STEP, TARGET_STEP, UPDATE_STEP},
    PreparedOperation, Worker,
};
use crate::{
    data::{ReadMatch, RecordShape},
    expected_state::wrong_read,
    failure::Outcome,
    random::{mix, scale},
    store::{StoreFeature, StoreTable, StoreTransaction, TransactionalStore, missing},
};

/// Buffers of an operation.
struct VersionBuffers<'a> {
    shape: &'a RecordShape,
    /// Whether to check the whole value, not only that it has a version.
    verify: bool,
    read: &'a mut Vec<u8>,
    value: &'a mut Vec<u8>,
    scratch: &'a mut Vec<u8>,
}

impl VersionBuffers<'_> {
    /// Overwrites a record by the version that is `step` above the one that it has.
    fn advance(
        &mut self,
        transaction: &mut dyn StoreTransaction,
        (table, number, key): (StoreTable, u64, &[u8]),
        step: u64,
    ) -> Outcome {
        let found = transaction.get_into(table, key, self.read)?;
        let found = found.then_some(self.read.as_slice());
        let version = version_of(self.shape, number, found, (self.verify, self.scratch))?;
        self.shape.value(number, version.wrapping_add(step), self.value);
        transaction.put(table, key, self.value)
    }
}

/// Returns the version in a value. Fails if the record is absent or damaged.
fn version_of(
    shape: &RecordShape,
    number: u64,
    value: Option<&[u8]>,
    (verify, scratch): (bool, &mut Vec<u8>),
) -> Outcome<u64> {
    let found = match value {
        None => ReadMatch::Absent,
        Some(value) if verify => shape.check(number, value, scratch),
        Some(value) => RecordShape::version(value).map_or(ReadMatch::Foreign, ReadMatch::Version),
    };
    match found {
        ReadMatch::Version(version) => Ok(version),
        other => Err(wrong_read(number, other)),
    }
}

impl<'a> Worker<'a> {
    fn transactional(&self) -> Outcome<&'a dyn TransactionalStore> {
        let transactions = self.shared.store.transactions();
        transactions.ok_or_else(|| missing(StoreFeature::Transactions))
    }

    fn version_buffers<'b>(&'b mut self) -> (VersionBuffers<'b>, &'b [u8])
    where
        'a: 'b,
    {
        let buffers = VersionBuffers {
            shape: self.shared.task.shape,
            verify: self.shared.task.verify,
            read: &mut self.read,
            value: &mut self.value,
            scratch: &mut self.scratch,
        };
        (buffers, &self.key)
    }

    /// Counts a record that was read and overwritten.
    fn count_overwritten(&mut self, number: u64) {
        self.found += 1;
        self.bytes_written += self.shared.task.shape.record_bytes(number);
    }

    /// Reads and overwrites a record in a transaction.
    pub(super) fn update_in_transaction(&mut self, op: &PreparedOperation) -> Outcome {
        let store = self.transactional()?;
        let mode = self.shared.task.workload.mode;
        let (mut buffers, key) = self.version_buffers();
        let conflicts = store.transact(mode, &mut |transaction| {
            buffers.advance(transaction, (StoreTable::First, op.number, key), UPDATE_STEP)
        })?;
        self.conflicts += conflicts;
        self.count_overwritten(op.number);
        Ok(())
    }

    /// Takes one from a record of the first table and adds it to one of the second, chosen by the
    /// version that the operation would write.
    pub(super) fn transfer(&mut self, op: &PreparedOperation) -> Outcome {
        let store = self.transactional()?;
        let (shape, task) = (self.shared.task.shape, self.shared.task);
        let target = scale(mix(op.version ^ task.amount.seed), task.amount.records);
        let mut target_key = std::mem::take(&mut self.second_key);
        shape.key(target, &mut target_key);
        let (mut buffers, key) = self.version_buffers();
        let outcome = store.transact(task.workload.mode, &mut |transaction| {
            let source = (StoreTable::First, op.number, key);
            buffers.advance(transaction, source, SOURCE_STEP)?;
            let target = (StoreTable::Second, target, target_key.as_slice());
            buffers.advance(transaction, target, TARGET_STEP)
        });
        self.second_key = target_key;
        self.conflicts += outcome?;
        self.count_overwritten(op.number);
        self.count_overwritten(target);
        Ok(())
    }

    /// Overwrites a record by one atomic operation.
    pub(super) fn update_atomically(&mut self, op: &PreparedOperation) -> Outcome {
        let store = self.shared.store;
        let (buffers, key) = self.version_buffers();
        let VersionBuffers { shape, verify, scratch, .. } = buffers;
        store.atomic_update(key, &mut |old, new| {
            let version = version_of(shape, op.number, old, (verify, scratch))?;
            shape.value(op.number, version.wrapping_add(UPDATE_STEP), new);
            Ok(())
        })?;
        self.count_overwritten(op.number);
        Ok(())
    }
}
