//! Operations of a transaction.

use std::sync::Arc;

use quintet_compat::{
    boundary::{Allocated, AllocatedArray, Array, Bytes, Out, OutArray, give, required},
    export, export_fallible,
    iterator::Source,
    operations::{Action, Operations, Record},
    snapshot::SnapshotObject,
    status::Status,
};

use super::handle::TransactionObject;
use crate::{
    core::{Family, ReadValue},
    families::{FamilyHandle, family_of},
    indexed::IndexedObject,
    iterator::{IteratorObject, object},
    options::reads::ReadOptions,
    reads::{KeyAndValue, PinnedValue, Results, copied, key_at, multi_get},
};

/// A family of the arguments: one that the program names, or the default one.
type FamilyArgument<'a> = Option<Option<&'a FamilyHandle>>;

type Object<'a> = Option<&'a TransactionObject>;

/// Runs `body` with the transaction and the family.
fn with<T>(
    transaction: Object<'_>,
    family: FamilyArgument<'_>,
    body: impl FnOnce(&TransactionObject, &Arc<Family>) -> Result<T, Status>,
) -> Result<T, Status> {
    let transaction = required(transaction, "the transaction")?;
    match family {
        Some(handle) => body(transaction, family_of(handle)?),
        None => body(transaction, transaction.core.default_family()?),
    }
}

/// Returns the value of a key, as the transaction shows it.
fn get(
    transaction: Object<'_>,
    options: Option<&ReadOptions>,
    family: FamilyArgument<'_>,
    key: (Bytes, usize),
    is_for_update: bool,
) -> Result<Option<ReadValue>, Status> {
    let key = key.0.items(key.1)?;
    with(transaction, family, |transaction, family| {
        if is_for_update {
            transaction.get_for_update(family, options, key)
        } else {
            transaction.get(family, options, key)
        }
    })
}

fn write(
    transaction: Object<'_>,
    family: FamilyArgument<'_>,
    action: Action,
    (key, value): KeyAndValue<'_>,
) -> Result<(), Status> {
    let (key, value) = (key?, value?);
    with(transaction, family, |transaction, family| {
        transaction.write(family, &Record { action, family: family.id, key, value })
    })
}

export_fallible! {
    /// Commits a transaction, which takes no other operation then.
    pub fn rocksdb_transaction_commit(transaction: Option<&TransactionObject>) {
        required(transaction, "the transaction")?.commit()
    }

    /// Discards the writes of a transaction. It can be used again.
    pub fn rocksdb_transaction_rollback(transaction: Option<&TransactionObject>) {
        required(transaction, "the transaction")?.rollback()
    }

    /// Discards the writes since the last save point, and the save point.
    pub fn rocksdb_transaction_rollback_to_savepoint(transaction: Option<&TransactionObject>) {
        required(transaction, "the transaction")?.rollback_to_save_point()
    }

    /// Names a transaction, which it needs for two-phase commit. Fails if another one has the name.
    pub fn rocksdb_transaction_set_name(
        transaction: Option<&TransactionObject>, name: Bytes, size: usize,
    ) {
        required(transaction, "the transaction")?.set_name(name.items(size)?)
    }

    /// Stores the writes of a transaction durably. It stays until it is committed or rolled back:
    /// by this process, or by one that opens the database later. Later writes end with the process.
    pub fn rocksdb_transaction_prepare(transaction: Option<&TransactionObject>) {
        required(transaction, "the transaction")?.prepare()
    }

    /// Adds the operations of a batch.
    pub fn rocksdb_transaction_rebuild_from_writebatch(
        transaction: Option<&TransactionObject>, batch: Option<&Operations>,
    ) {
        let transaction = required(transaction, "the transaction")?;
        transaction.write_batch(required(batch, "the batch")?)
    }

    /// Adds the operations of a batch with an index.
    pub fn rocksdb_transaction_rebuild_from_writebatch_wi(
        transaction: Option<&TransactionObject>, batch: Option<&IndexedObject>,
    ) {
        let batch = required(batch.and_then(IndexedObject::get), "the batch")?;
        let operations = batch.lock().operations().clone();
        required(transaction, "the transaction")?.write_batch(&operations)
    }

    /// Returns the value of a key, to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>, key: Bytes,
        key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        copied(get(transaction, options, None, (key, key_size), false), size)
    }

    /// Returns the value of a key of a column family, to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get_cf(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
        family: Option<&FamilyHandle>, key: Bytes, key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        copied(get(transaction, options, Some(family), (key, key_size), false), size)
    }

    /// Returns the value of a key without a copy.
    pub fn rocksdb_transaction_get_pinned(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>, key: Bytes,
        key_size: usize,
    ) -> Option<Box<PinnedValue>>, None, {
        Ok(PinnedValue::of(get(transaction, options, None, (key, key_size), false)?))
    }

    /// Returns the value of a key of a column family without a copy.
    pub fn rocksdb_transaction_get_pinned_cf(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
        family: Option<&FamilyHandle>, key: Bytes, key_size: usize,
    ) -> Option<Box<PinnedValue>>, None, {
        Ok(PinnedValue::of(get(transaction, options, Some(family), (key, key_size), false)?))
    }

    /// Locks a key and returns its value, to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get_for_update(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>, key: Bytes,
        key_size: usize, size: Out<'_, usize>, _exclusive: u8,
    ) -> Allocated, Allocated::NULL, {
        copied(get(transaction, options, None, (key, key_size), true), size)
    }

    /// Locks a key of a column family and returns its value, to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get_for_update_cf(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
        family: Option<&FamilyHandle>, key: Bytes, key_size: usize, size: Out<'_, usize>,
        _exclusive: u8,
    ) -> Allocated, Allocated::NULL, {
        copied(get(transaction, options, Some(family), (key, key_size), true), size)
    }

    /// Locks a key and returns its value without a copy.
    pub fn rocksdb_transaction_get_pinned_for_update(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>, key: Bytes,
        key_size: usize, _exclusive: u8,
    ) -> Option<Box<PinnedValue>>, None, {
        Ok(PinnedValue::of(get(transaction, options, None, (key, key_size), true)?))
    }

    /// Locks a key of a column family and returns its value without a copy.
    pub fn rocksdb_transaction_get_pinned_for_update_cf(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
        family: Option<&FamilyHandle>, key: Bytes, key_size: usize, _exclusive: u8,
    ) -> Option<Box<PinnedValue>>, None, {
        Ok(PinnedValue::of(get(transaction, options, Some(family), (key, key_size), true)?))
    }

    /// Stores a value under a key at the commit.
    pub fn rocksdb_transaction_put(
        transaction: Option<&TransactionObject>, key: Bytes, key_size: usize, value: Bytes,
        size: usize,
    ) {
        write(transaction, None, Action::Put, (key.items(key_size), value.items(size)))
    }

    /// Stores a value under a key of a column family at the commit.
    pub fn rocksdb_transaction_put_cf(
        transaction: Option<&TransactionObject>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, value: Bytes, size: usize,
    ) {
        write(transaction, Some(family), Action::Put, (key.items(key_size), value.items(size)))
    }

    /// Merges an operand into the value of a key at the commit.
    pub fn rocksdb_transaction_merge(
        transaction: Option<&TransactionObject>, key: Bytes, key_size: usize, value: Bytes,
        size: usize,
    ) {
        write(transaction, None, Action::Merge, (key.items(key_size), value.items(size)))
    }

    /// Merges an operand into the value of a key of a column family at the commit.
    pub fn rocksdb_transaction_merge_cf(
        transaction: Option<&TransactionObject>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, value: Bytes, size: usize,
    ) {
        write(transaction, Some(family), Action::Merge, (key.items(key_size), value.items(size)))
    }

    /// Deletes a key at the commit.
    pub fn rocksdb_transaction_delete(
        transaction: Option<&TransactionObject>, key: Bytes, key_size: usize,
    ) {
        write(transaction, None, Action::Delete, (key.items(key_size), Ok(&[])))
    }

    /// Deletes a key of a column family at the commit.
    pub fn rocksdb_transaction_delete_cf(
        transaction: Option<&TransactionObject>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize,
    ) {
        write(transaction, Some(family), Action::Delete, (key.items(key_size), Ok(&[])))
    }
}

/// Makes an iterator over what the transaction shows.
fn iterator(
    transaction: Object<'_>,
    options: Option<&ReadOptions>,
    family: FamilyArgument<'_>,
) -> Box<IteratorObject> {
    object(with(transaction, family, |transaction, family| {
        if family.history.is_some() {
            return transaction.version_iterator(options, family);
        }
        Ok(IteratorObject::in_source(Source::Pages(transaction.pages()), options, family))
    }))
}

export! {
    /// Frees a transaction, and discards its writes unless it was committed.
    pub fn rocksdb_transaction_destroy(transaction: Option<Box<TransactionObject>>) {
        drop(transaction);
    }

    /// Returns the name of a transaction, to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get_name(
        transaction: Option<&TransactionObject>, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let name = transaction.and_then(TransactionObject::name).unwrap_or_default();
        give(size, name.len());
        Allocated::copy(&name)
    }

    /// Returns the snapshot of a transaction that was begun with one, else an object without a
    /// snapshot. It is valid while the transaction is, and to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get_snapshot(
        transaction: Option<&TransactionObject>,
    ) -> AllocatedArray<SnapshotObject>, AllocatedArray::NULL, {
        SnapshotObject::to(transaction.map(TransactionObject::snapshot))
    }

    /// Returns the operations of a transaction. They are valid while the transaction is, and change
    /// with it only. The object is to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_get_writebatch_wi(
        transaction: Option<&TransactionObject>,
    ) -> AllocatedArray<IndexedObject>, AllocatedArray::NULL, {
        match transaction {
            Some(transaction) => IndexedObject::to(Some(transaction.batch())),
            None => AllocatedArray::NULL,
        }
    }

    /// Sets the timestamp of the writes to column families with timestamps. Has no effect unless it
    /// is above the read timestamp, if that was set.
    pub fn rocksdb_transaction_set_commit_timestamp(
        transaction: Option<&TransactionObject>, timestamp: u64,
    ) {
        if let Some(transaction) = transaction {
            transaction.timestamps(|timestamps| timestamps.set_commit(timestamp));
        }
    }

    /// Sets the timestamp at which keys are read for update: a key with a newer version fails. Has
    /// no effect if it is less than before.
    pub fn rocksdb_transaction_set_read_timestamp_for_validation(
        transaction: Option<&TransactionObject>, timestamp: u64,
    ) {
        if let Some(transaction) = transaction {
            transaction.timestamps(|timestamps| timestamps.set_read(timestamp));
        }
    }

    /// Remembers the present writes.
    pub fn rocksdb_transaction_set_savepoint(transaction: Option<&TransactionObject>) {
        // The interface has no way to report that the transaction was committed.
        let _ = transaction.map(TransactionObject::set_save_point);
    }

    /// Gets several keys. Values and messages are to be released by `rocksdb_free`.
    pub fn rocksdb_transaction_multi_get(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>, count: usize,
        keys: Array<Bytes>, key_sizes: Array<usize>, values: OutArray<Allocated>,
        sizes: OutArray<usize>, errors: OutArray<Allocated>,
    ) {
        multi_get(count, Results { values, sizes, errors }, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            with(transaction, None, |transaction, family| transaction.get(family, options, key))
        });
    }

    /// Gets several keys, each of its column family.
    pub fn rocksdb_transaction_multi_get_cf(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
        families: Array<Option<&FamilyHandle>>, count: usize, keys: Array<Bytes>,
        key_sizes: Array<usize>, values: OutArray<Allocated>, sizes: OutArray<usize>,
        errors: OutArray<Allocated>,
    ) {
        multi_get(count, Results { values, sizes, errors }, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            let family = families.items(count)?.get(index).copied().flatten();
            with(transaction, Some(family), |transaction, family| {
                transaction.get(family, options, key)
            })
        });
    }

    /// Makes an iterator of the default column family over what the transaction shows.
    pub fn rocksdb_transaction_create_iterator(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
    ) -> Option<Box<IteratorObject>>, None, {
        Some(iterator(transaction, options, None))
    }

    /// Makes an iterator of a column family over what the transaction shows.
    pub fn rocksdb_transaction_create_iterator_cf(
        transaction: Option<&TransactionObject>, options: Option<&ReadOptions>,
        family: Option<&FamilyHandle>,
    ) -> Option<Box<IteratorObject>>, None, {
        Some(iterator(transaction, options, Some(family)))
    }
}
