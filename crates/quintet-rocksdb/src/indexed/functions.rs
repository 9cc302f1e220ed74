//! Functions of batches with an index.

use std::ffi::c_int;

use quintet_compat::{
    boundary::{Allocated, Array, Bytes, Context, Out, View, give, required},
    export, export_fallible, keys,
    operations::{Action, Operations},
    status::Status,
};

use super::{Change, IndexedCell, IndexedObject, in_progress, overlay::Overlay};
use crate::{
    batch::{
        BatchObject, DeletedFunction, FamilyArgument, PutFunction, add, add_joined,
        batch_functions, iterate, operations_of,
    },
    callbacks::MergeOperator,
    core::{Db, Family},
    families::{FamilyHandle, family_of},
    iterator::{IteratorObject, object},
    options::{database::DatabaseOptions, reads::ReadOptions, writes::WriteOptions},
};

impl BatchObject for IndexedObject {
    /// Changes a batch of the program. That of a transaction changes with the transaction only.
    fn edit<T>(&mut self, change: impl FnOnce(&mut Operations) -> T) -> Option<T> {
        Some(self.owned()?.lock().edit(change))
    }

    fn boxed(operations: Operations) -> Box<Self> {
        Self::new(IndexedCell::new(operations))
    }
}

batch_functions! { IndexedObject {
    create: rocksdb_writebatch_wi_create_from,
    destroy: rocksdb_writebatch_wi_destroy,
    clear: rocksdb_writebatch_wi_clear,
    put: rocksdb_writebatch_wi_put, rocksdb_writebatch_wi_put_cf,
    putv: rocksdb_writebatch_wi_putv, rocksdb_writebatch_wi_putv_cf,
    merge: rocksdb_writebatch_wi_merge, rocksdb_writebatch_wi_merge_cf,
    mergev: rocksdb_writebatch_wi_mergev, rocksdb_writebatch_wi_mergev_cf,
    delete: rocksdb_writebatch_wi_delete, rocksdb_writebatch_wi_delete_cf,
    single: rocksdb_writebatch_wi_singledelete, rocksdb_writebatch_wi_singledelete_cf,
    deletev: rocksdb_writebatch_wi_deletev, rocksdb_writebatch_wi_deletev_cf,
    range: rocksdb_writebatch_wi_delete_range, rocksdb_writebatch_wi_delete_range_cf,
    rangev: rocksdb_writebatch_wi_delete_rangev, rocksdb_writebatch_wi_delete_rangev_cf,
    log_data: rocksdb_writebatch_wi_put_log_data,
    set_save_point: rocksdb_writebatch_wi_set_save_point,
    rollback: rocksdb_writebatch_wi_rollback_to_save_point,
} }

/// Returns the cell of a batch.
fn cell(batch: Option<&IndexedObject>) -> Result<&IndexedCell, Status> {
    required(batch.and_then(IndexedObject::get), "the batch")
}

fn change(
    batch: Option<&IndexedObject>,
    family: u32,
    key: &[u8],
) -> Result<Option<Change>, Status> {
    let index = cell(batch)?.lock().family(family)?;
    Ok(index.find(&keys::stored(key)))
}

/// Returns the value that a batch has for a key.
fn get_from_batch(
    batch: Option<&IndexedObject>,
    operator: Option<&MergeOperator>,
    family: u32,
    key: &[u8],
) -> Result<Option<Vec<u8>>, Status> {
    let Some(change) = change(batch, family, key)? else { return Ok(None) };
    if change.needs_base() {
        return Err(in_progress());
    }
    change.value(operator, &keys::stored(key), None)
}

/// Returns the value of a key in a batch over a column family.
fn get_over(
    batch: Option<&IndexedObject>,
    family: &Family,
    options: Option<&ReadOptions>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, Status> {
    let change = change(batch, family.id, key)?.unwrap_or_default();
    let below = if change.needs_base() { family.get(options, key)? } else { None };
    let operator = family.operator.as_deref();
    change.value(operator, &keys::stored(key), below.as_deref())
}

fn copied(
    value: Result<Option<Vec<u8>>, Status>,
    size: Out<'_, usize>,
) -> Result<Allocated, Status> {
    give(size, value.as_ref().map_or(0, |value| value.as_ref().map_or(0, Vec::len)));
    Allocated::of(value?.as_deref())
}

/// Puts a batch over an iterator. `family`: that of the batch, instead of the iterator's.
fn over(
    batch: Option<&IndexedObject>,
    below: Option<Box<IteratorObject>>,
    family: FamilyArgument<'_>,
) -> Result<IteratorObject, Status> {
    let below = required(below, "the iterator")?;
    let family = family.map(family_of).transpose()?.or(below.family()).cloned();
    let family = required(family, "the column family")?;
    family.check_plain()?;
    let index = cell(batch)?.lock().family(family.id)?;
    let operator = family.operator.clone();
    Ok(below.map_source(|below| Overlay::source(below, index, operator)))
}

export! {
    /// Makes an empty batch with an index. A later operation of a key replaces an earlier one in
    /// reads, whatever `overwrite` is.
    pub fn rocksdb_writebatch_wi_create(
        _reserved: usize, _overwrite: u8,
    ) -> Option<Box<IndexedObject>>, None, {
        Some(BatchObject::boxed(Operations::default()))
    }

    /// Returns the number of operations.
    pub fn rocksdb_writebatch_wi_count(batch: Option<&IndexedObject>) -> c_int, 0, {
        let count = cell(batch).map_or(0, |cell| cell.lock().operations().count());
        c_int::try_from(count).unwrap_or(c_int::MAX)
    }

    /// Returns the encoded batch, which is valid until the batch changes.
    pub fn rocksdb_writebatch_wi_data(
        batch: Option<&IndexedObject>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        let Ok(cell) = cell(batch) else {
            give(size, 0);
            return View::NULL;
        };
        let batch = cell.lock();
        give(size, batch.operations().bytes().len());
        View::of(batch.operations().bytes())
    }

    /// Calls a callback for each put and each delete of the default column family, in order.
    pub fn rocksdb_writebatch_wi_iterate(
        batch: Option<&IndexedObject>, state: Context, put: Option<PutFunction>,
        deleted: Option<DeletedFunction>,
    ) {
        if let Ok(cell) = cell(batch) {
            // A copy, because callbacks run without the lock.
            let operations = cell.lock().operations().clone();
            iterate(&operations, state, put, deleted);
        }
    }

    /// Puts a batch over an iterator of the default column family. Frees that iterator. Shows the
    /// batch as it is now.
    pub fn rocksdb_writebatch_wi_create_iterator_with_base(
        batch: Option<&IndexedObject>, below: Option<Box<IteratorObject>>,
    ) -> Option<Box<IteratorObject>>, None, {
        Some(object(over(batch, below, None)))
    }

    /// Puts a batch over an iterator of a column family. Frees that iterator.
    pub fn rocksdb_writebatch_wi_create_iterator_with_base_cf(
        batch: Option<&IndexedObject>, below: Option<Box<IteratorObject>>,
        family: Option<&FamilyHandle>,
    ) -> Option<Box<IteratorObject>>, None, {
        Some(object(over(batch, below, Some(family))))
    }
}

export_fallible! {
    /// Returns the value that a batch has for a key, to be released by `rocksdb_free`.
    pub fn rocksdb_writebatch_wi_get_from_batch(
        batch: Option<&IndexedObject>, options: Option<&DatabaseOptions>, key: Bytes,
        key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let operator = options.and_then(DatabaseOptions::merge).map(|operator| &**operator);
        let get = || get_from_batch(batch, operator, 0, key.items(key_size)?);
        copied(get(), size)
    }

    /// Returns the value that a batch has for a key of a column family.
    pub fn rocksdb_writebatch_wi_get_from_batch_cf(
        batch: Option<&IndexedObject>, options: Option<&DatabaseOptions>,
        family: Option<&FamilyHandle>, key: Bytes, key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let get = || {
            let family = family_of(family)?;
            let operator = options.and_then(DatabaseOptions::merge).or(family.operator.as_ref());
            let operator = operator.map(|operator| &**operator);
            get_from_batch(batch, operator, family.id, key.items(key_size)?)
        };
        copied(get(), size)
    }

    /// Returns the value of a key in a batch over a database, to be released by `rocksdb_free`.
    pub fn rocksdb_writebatch_wi_get_from_batch_and_db(
        batch: Option<&IndexedObject>, db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes,
        key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let get = || {
            let family = required(db, "the database")?.core.default_family()?;
            get_over(batch, family, options, key.items(key_size)?)
        };
        copied(get(), size)
    }

    /// Returns the value of a key of a column family in a batch over a database.
    pub fn rocksdb_writebatch_wi_get_from_batch_and_db_cf(
        batch: Option<&IndexedObject>, db: Option<&Db>, options: Option<&ReadOptions>,
        family: Option<&FamilyHandle>, key: Bytes, key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let get = || {
            required(db, "the database")?;
            get_over(batch, family_of(family)?, options, key.items(key_size)?)
        };
        copied(get(), size)
    }

    /// Writes a batch: all of it or nothing.
    pub fn rocksdb_write_writebatch_wi(
        db: Option<&Db>, options: Option<&WriteOptions>, batch: Option<&IndexedObject>,
    ) {
        let db = required(db, "the database")?;
        let options = required(options, "the write options")?;
        // A copy, because merge operators run without the lock.
        let operations = cell(batch)?.lock().operations().clone();
        db.core.write(options, &operations)
    }
}
