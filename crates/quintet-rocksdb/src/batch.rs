//! Write batches.

use std::ffi::c_int;

use quintet_compat::{
    boundary::{Array, Bytes, Context, Out, View, give, required},
    export, export_fallible,
    operations::{Action, Operations, Record},
    status::Status,
};

use crate::{
    core::Db,
    families::{FamilyHandle, family_of},
    options::writes::WriteOptions,
};

/// Gets a put of a batch.
pub type PutFunction =
    extern "C-unwind" fn(state: Context, key: Bytes, key_size: usize, value: Bytes, size: usize);
/// Gets a delete of a batch.
pub type DeletedFunction = extern "C-unwind" fn(state: Context, key: Bytes, key_size: usize);

/// The arguments of a record: of a family, or of the default one.
type FamilyArgument<'a> = Option<Option<&'a FamilyHandle>>;

/// Adds a record. An unsuitable argument makes the write of the batch fail.
fn add(
    batch: Option<&mut Operations>,
    action: Action,
    family: FamilyArgument<'_>,
    key: Result<&[u8], Status>,
    value: Result<&[u8], Status>,
) {
    let Some(batch) = batch else { return };
    let family = family.map_or(Ok(0), |handle| family_of(handle).map(|family| family.id));
    match (family, key, value) {
        (Ok(family), Ok(key), Ok(value)) => batch.add(Record { action, family, key, value }),
        (Err(status), ..) | (_, Err(status), _) | (.., Err(status)) => batch.refuse(status),
    }
}

/// A list of byte strings of the program: addresses, sizes and their number.
type List = (c_int, Array<Bytes>, Array<usize>);

/// Returns the strings of a list, joined.
fn joined((count, parts, sizes): List) -> Result<Vec<u8>, Status> {
    let count = usize::try_from(count).map_err(|_| Status::invalid("the count is negative"))?;
    let (parts, sizes) = (parts.items(count)?, sizes.items(count)?);
    let mut joined = Vec::new();
    for (part, size) in parts.iter().zip(sizes) {
        joined.extend_from_slice(part.items(*size)?);
    }
    Ok(joined)
}

/// Adds a record whose key and value are in parts.
fn add_joined(
    batch: Option<&mut Operations>,
    action: Action,
    family: FamilyArgument<'_>,
    key: List,
    value: Option<List>,
) {
    let value = value.map_or(Ok(Vec::new()), joined);
    match (joined(key), value) {
        (Ok(key), Ok(value)) => add(batch, action, family, Ok(&key), Ok(&value)),
        (Err(status), _) | (_, Err(status)) => add(batch, action, family, Err(status), Ok(&[])),
    }
}

export! {
    /// Makes an empty batch.
    pub fn rocksdb_writebatch_create() -> Option<Box<Operations>>, None, {
        Some(Box::default())
    }

    /// Makes a batch of encoded bytes.
    pub fn rocksdb_writebatch_create_from(
        bytes: Bytes, size: usize,
    ) -> Option<Box<Operations>>, None, {
        Some(Box::new(match bytes.items(size) {
            Ok(bytes) => Operations::from_bytes(bytes),
            Err(_) => Operations::from_bytes(&[]),
        }))
    }

    /// Frees a batch.
    pub fn rocksdb_writebatch_destroy(batch: Option<Box<Operations>>) {
        drop(batch);
    }

    /// Removes the operations and save points of a batch.
    pub fn rocksdb_writebatch_clear(batch: Option<&mut Operations>) {
        if let Some(batch) = batch {
            batch.clear();
        }
    }

    /// Returns the number of operations.
    pub fn rocksdb_writebatch_count(batch: Option<&Operations>) -> c_int, 0, {
        batch.map_or(0, |batch| c_int::try_from(batch.count()).unwrap_or(c_int::MAX))
    }

    /// Adds a put.
    pub fn rocksdb_writebatch_put(
        batch: Option<&mut Operations>, key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        add(batch, Action::Put, None, key.items(key_size), value.items(size));
    }

    /// Adds a put to a column family.
    pub fn rocksdb_writebatch_put_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, value: Bytes, size: usize,
    ) {
        add(batch, Action::Put, Some(family), key.items(key_size), value.items(size));
    }

    /// Adds a put whose key and value are in parts.
    pub fn rocksdb_writebatch_putv(
        batch: Option<&mut Operations>, keys: c_int, key_list: Array<Bytes>,
        key_sizes: Array<usize>, values: c_int, value_list: Array<Bytes>,
        value_sizes: Array<usize>,
    ) {
        let value = Some((values, value_list, value_sizes));
        add_joined(batch, Action::Put, None, (keys, key_list, key_sizes), value);
    }

    /// Adds a put to a column family, whose key and value are in parts.
    pub fn rocksdb_writebatch_putv_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, keys: c_int,
        key_list: Array<Bytes>, key_sizes: Array<usize>, values: c_int,
        value_list: Array<Bytes>, value_sizes: Array<usize>,
    ) {
        let value = Some((values, value_list, value_sizes));
        add_joined(batch, Action::Put, Some(family), (keys, key_list, key_sizes), value);
    }

    /// Adds a merge.
    pub fn rocksdb_writebatch_merge(
        batch: Option<&mut Operations>, key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        add(batch, Action::Merge, None, key.items(key_size), value.items(size));
    }

    /// Adds a merge to a column family.
    pub fn rocksdb_writebatch_merge_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, value: Bytes, size: usize,
    ) {
        add(batch, Action::Merge, Some(family), key.items(key_size), value.items(size));
    }

    /// Adds a merge whose key and operand are in parts.
    pub fn rocksdb_writebatch_mergev(
        batch: Option<&mut Operations>, keys: c_int, key_list: Array<Bytes>,
        key_sizes: Array<usize>, values: c_int, value_list: Array<Bytes>,
        value_sizes: Array<usize>,
    ) {
        let value = Some((values, value_list, value_sizes));
        add_joined(batch, Action::Merge, None, (keys, key_list, key_sizes), value);
    }

    /// Adds a merge to a column family, whose key and operand are in parts.
    pub fn rocksdb_writebatch_mergev_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, keys: c_int,
        key_list: Array<Bytes>, key_sizes: Array<usize>, values: c_int,
        value_list: Array<Bytes>, value_sizes: Array<usize>,
    ) {
        let value = Some((values, value_list, value_sizes));
        add_joined(batch, Action::Merge, Some(family), (keys, key_list, key_sizes), value);
    }

    /// Adds a delete.
    pub fn rocksdb_writebatch_delete(
        batch: Option<&mut Operations>, key: Bytes, key_size: usize,
    ) {
        add(batch, Action::Delete, None, key.items(key_size), Ok(&[]));
    }

    /// Adds a delete to a column family.
    pub fn rocksdb_writebatch_delete_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize,
    ) {
        add(batch, Action::Delete, Some(family), key.items(key_size), Ok(&[]));
    }

    /// Adds a delete of a key that was written once.
    pub fn rocksdb_writebatch_singledelete(
        batch: Option<&mut Operations>, key: Bytes, key_size: usize,
    ) {
        add(batch, Action::SingleDelete, None, key.items(key_size), Ok(&[]));
    }

    /// Adds a delete of a key that was written once to a column family.
    pub fn rocksdb_writebatch_singledelete_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize,
    ) {
        add(batch, Action::SingleDelete, Some(family), key.items(key_size), Ok(&[]));
    }

    /// Adds a delete whose key is in parts.
    pub fn rocksdb_writebatch_deletev(
        batch: Option<&mut Operations>, keys: c_int, key_list: Array<Bytes>,
        key_sizes: Array<usize>,
    ) {
        add_joined(batch, Action::Delete, None, (keys, key_list, key_sizes), None);
    }

    /// Adds a delete to a column family, whose key is in parts.
    pub fn rocksdb_writebatch_deletev_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, keys: c_int,
        key_list: Array<Bytes>, key_sizes: Array<usize>,
    ) {
        add_joined(batch, Action::Delete, Some(family), (keys, key_list, key_sizes), None);
    }

    /// Adds a delete of the keys from `start` to `end`, which is not included.
    pub fn rocksdb_writebatch_delete_range(
        batch: Option<&mut Operations>, start: Bytes, start_size: usize, end: Bytes,
        end_size: usize,
    ) {
        add(batch, Action::DeleteRange, None, start.items(start_size), end.items(end_size));
    }

    /// Adds a delete of a range to a column family.
    pub fn rocksdb_writebatch_delete_range_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, start: Bytes,
        start_size: usize, end: Bytes, end_size: usize,
    ) {
        let (start, end) = (start.items(start_size), end.items(end_size));
        add(batch, Action::DeleteRange, Some(family), start, end);
    }

    /// Adds a delete of a range whose ends are in parts.
    pub fn rocksdb_writebatch_delete_rangev(
        batch: Option<&mut Operations>, parts: c_int, starts: Array<Bytes>,
        start_sizes: Array<usize>, ends: Array<Bytes>, end_sizes: Array<usize>,
    ) {
        let end = Some((parts, ends, end_sizes));
        add_joined(batch, Action::DeleteRange, None, (parts, starts, start_sizes), end);
    }

    /// Adds a delete of a range to a column family, whose ends are in parts.
    pub fn rocksdb_writebatch_delete_rangev_cf(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, parts: c_int,
        starts: Array<Bytes>, start_sizes: Array<usize>, ends: Array<Bytes>,
        end_sizes: Array<usize>,
    ) {
        let end = Some((parts, ends, end_sizes));
        add_joined(batch, Action::DeleteRange, Some(family), (parts, starts, start_sizes), end);
    }

    /// Adds bytes that are not applied.
    pub fn rocksdb_writebatch_put_log_data(
        batch: Option<&mut Operations>, bytes: Bytes, size: usize,
    ) {
        add(batch, Action::LogData, None, bytes.items(size), Ok(&[]));
    }

    /// Calls a callback for each put and each delete of the default column family, in order.
    pub fn rocksdb_writebatch_iterate(
        batch: Option<&Operations>, state: Context, put: Option<PutFunction>,
        deleted: Option<DeletedFunction>,
    ) {
        for record in batch.iter().flat_map(|batch| batch.records()).flatten() {
            let key = (Bytes::of(record.key), record.key.len());
            let value = (Bytes::of(record.value), record.value.len());
            match record.action {
                _ if record.family != 0 => {}
                Action::Put => {
                    if let Some(put) = put {
                        put(state, key.0, key.1, value.0, value.1);
                    }
                }
                Action::Delete => {
                    if let Some(deleted) = deleted {
                        deleted(state, key.0, key.1);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the encoded batch, which is valid until the batch changes.
    pub fn rocksdb_writebatch_data(
        batch: Option<&Operations>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        let bytes = batch.map(Operations::bytes);
        give(size, bytes.map_or(0, <[u8]>::len));
        bytes.map_or(View::NULL, View::of)
    }

    /// Remembers the present operations.
    pub fn rocksdb_writebatch_set_save_point(batch: Option<&mut Operations>) {
        if let Some(batch) = batch {
            batch.set_save_point();
        }
    }
}

export_fallible! {
    /// Removes the operations since the last save point, and the save point.
    pub fn rocksdb_writebatch_rollback_to_save_point(batch: Option<&mut Operations>) {
        required(batch, "the batch")?.rollback_to_save_point()
    }

    /// Removes the last save point.
    pub fn rocksdb_writebatch_pop_save_point(batch: Option<&mut Operations>) {
        required(batch, "the batch")?.pop_save_point()
    }

    /// Writes a batch: all of it or nothing.
    pub fn rocksdb_write(
        db: Option<&Db>, options: Option<&WriteOptions>, batch: Option<&Operations>,
    ) {
        let (db, batch) = (required(db, "the database")?, required(batch, "the batch")?);
        db.core.write(required(options, "the write options")?, batch)
    }
}
