//! Write batches.

use std::ffi::c_int;

use quintet_compat::{
    boundary::{Array, Bytes, Context, Out, View, give, required},
    export, export_fallible,
    operations::{Action, Operations, Record},
    status::Status,
    timestamps,
};

use crate::{
    core::Db,
    families::{FamilyHandle, family_of},
    options::writes::WriteOptions,
};

/// Gets a put of a batch.
pub type PutFunction =
    extern "C-unwind" fn(state: Context, key: View, key_size: usize, value: View, size: usize);
/// Gets a delete of a batch.
pub type DeletedFunction = extern "C-unwind" fn(state: Context, key: View, key_size: usize);

/// An object with a batch.
pub trait BatchObject {
    /// Changes the batch. `None`: the program may not change it.
    fn edit<T>(&mut self, change: impl FnOnce(&mut Operations) -> T) -> Option<T>;
    /// Makes an object of a batch.
    fn boxed(operations: Operations) -> Box<Self>;
}

impl BatchObject for Operations {
    fn edit<T>(&mut self, change: impl FnOnce(&mut Operations) -> T) -> Option<T> {
        Some(change(self))
    }

    fn boxed(operations: Operations) -> Box<Self> {
        Box::new(operations)
    }
}

/// The arguments of a record: of a family, or of the default one.
pub type FamilyArgument<'a> = Option<Option<&'a FamilyHandle>>;

/// Adds a record. An unsuitable argument makes the write of the batch fail.
pub fn add<B: BatchObject>(
    batch: Option<&mut B>,
    action: Action,
    family: FamilyArgument<'_>,
    key: Result<&[u8], Status>,
    value: Result<&[u8], Status>,
) {
    let Some(batch) = batch else { return };
    let is_default = family.is_none();
    let family = family.map_or(Ok(0), |handle| {
        let family = family_of(handle)?;
        match family.history {
            Some(_) => Err(timestamps::without_timestamp()),
            None => Ok(family.id),
        }
    });
    match (family, key, value) {
        (Ok(family), Ok(key), Ok(value)) => {
            let record = Record { action, family, key, value };
            let _ = batch
                .edit(|batch| if is_default { batch.add_plain(record) } else { batch.add(record) });
        }
        (Err(status), ..) | (_, Err(status), _) | (.., Err(status)) => {
            let _ = batch.edit(|batch| batch.refuse(status));
        }
    }
}

/// A list of byte strings of the program: addresses, sizes and their number.
pub type List = (c_int, Array<Bytes>, Array<usize>);

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
pub fn add_joined<B: BatchObject>(
    batch: Option<&mut B>,
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

/// Returns the batch that bytes of the program encode. The write of a malformed one fails.
pub fn operations_of(bytes: Bytes, size: usize) -> Operations {
    bytes.items(size).map_or_else(|_| Operations::from_bytes(&[]), Operations::from_bytes)
}

/// Exports the functions that change a batch, for a type of objects.
macro_rules! batch_functions {
    ($object:ty {
        create: $create:ident,
        destroy: $destroy:ident,
        clear: $clear:ident,
        put: $put:ident, $put_cf:ident,
        putv: $putv:ident, $putv_cf:ident,
        merge: $merge:ident, $merge_cf:ident,
        mergev: $mergev:ident, $mergev_cf:ident,
        delete: $delete:ident, $delete_cf:ident,
        single: $single:ident, $single_cf:ident,
        deletev: $deletev:ident, $deletev_cf:ident,
        range: $range:ident, $range_cf:ident,
        rangev: $rangev:ident, $rangev_cf:ident,
        log_data: $log_data:ident,
        set_save_point: $set_save_point:ident,
        rollback: $rollback:ident,
    }) => {
        quintet_compat::export! {
            /// Makes a batch of encoded bytes.
            pub fn $create(bytes: Bytes, size: usize) -> Option<Box<$object>>, None, {
                Some(BatchObject::boxed(operations_of(bytes, size)))
            }

            /// Frees a batch.
            pub fn $destroy(batch: Option<Box<$object>>) {
                drop(batch);
            }

            /// Removes the operations and save points of a batch.
            pub fn $clear(batch: Option<&mut $object>) {
                let _ = batch.map(|batch| BatchObject::edit(batch, Operations::clear));
            }

            /// Adds a put.
            pub fn $put(
                batch: Option<&mut $object>, key: Bytes, key_size: usize, value: Bytes, size: usize,
            ) {
                add(batch, Action::Put, None, key.items(key_size), value.items(size));
            }

            /// Adds a put to a column family.
            pub fn $put_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, key: Bytes,
                key_size: usize, value: Bytes, size: usize,
            ) {
                add(batch, Action::Put, Some(family), key.items(key_size), value.items(size));
            }

            /// Adds a put whose key and value are in parts.
            pub fn $putv(
                batch: Option<&mut $object>, keys: c_int, key_list: Array<Bytes>,
                key_sizes: Array<usize>, values: c_int, value_list: Array<Bytes>,
                value_sizes: Array<usize>,
            ) {
                let value = Some((values, value_list, value_sizes));
                add_joined(batch, Action::Put, None, (keys, key_list, key_sizes), value);
            }

            /// Adds a put to a column family, whose key and value are in parts.
            pub fn $putv_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, keys: c_int,
                key_list: Array<Bytes>, key_sizes: Array<usize>, values: c_int,
                value_list: Array<Bytes>, value_sizes: Array<usize>,
            ) {
                let value = Some((values, value_list, value_sizes));
                add_joined(batch, Action::Put, Some(family), (keys, key_list, key_sizes), value);
            }

            /// Adds a merge.
            pub fn $merge(
                batch: Option<&mut $object>, key: Bytes, key_size: usize, value: Bytes, size: usize,
            ) {
                add(batch, Action::Merge, None, key.items(key_size), value.items(size));
            }

            /// Adds a merge to a column family.
            pub fn $merge_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, key: Bytes,
                key_size: usize, value: Bytes, size: usize,
            ) {
                add(batch, Action::Merge, Some(family), key.items(key_size), value.items(size));
            }

            /// Adds a merge whose key and operand are in parts.
            pub fn $mergev(
                batch: Option<&mut $object>, keys: c_int, key_list: Array<Bytes>,
                key_sizes: Array<usize>, values: c_int, value_list: Array<Bytes>,
                value_sizes: Array<usize>,
            ) {
                let value = Some((values, value_list, value_sizes));
                add_joined(batch, Action::Merge, None, (keys, key_list, key_sizes), value);
            }

            /// Adds a merge to a column family, whose key and operand are in parts.
            pub fn $mergev_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, keys: c_int,
                key_list: Array<Bytes>, key_sizes: Array<usize>, values: c_int,
                value_list: Array<Bytes>, value_sizes: Array<usize>,
            ) {
                let value = Some((values, value_list, value_sizes));
                add_joined(batch, Action::Merge, Some(family), (keys, key_list, key_sizes), value);
            }

            /// Adds a delete.
            pub fn $delete(
                batch: Option<&mut $object>, key: Bytes, key_size: usize,
            ) {
                add(batch, Action::Delete, None, key.items(key_size), Ok(&[]));
            }

            /// Adds a delete to a column family.
            pub fn $delete_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, key: Bytes,
                key_size: usize,
            ) {
                add(batch, Action::Delete, Some(family), key.items(key_size), Ok(&[]));
            }

            /// Adds a delete of a key that was written once.
            pub fn $single(
                batch: Option<&mut $object>, key: Bytes, key_size: usize,
            ) {
                add(batch, Action::SingleDelete, None, key.items(key_size), Ok(&[]));
            }

            /// Adds a delete of a key that was written once to a column family.
            pub fn $single_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, key: Bytes,
                key_size: usize,
            ) {
                add(batch, Action::SingleDelete, Some(family), key.items(key_size), Ok(&[]));
            }

            /// Adds a delete whose key is in parts.
            pub fn $deletev(
                batch: Option<&mut $object>, keys: c_int, key_list: Array<Bytes>,
                key_sizes: Array<usize>,
            ) {
                add_joined(batch, Action::Delete, None, (keys, key_list, key_sizes), None);
            }

            /// Adds a delete to a column family, whose key is in parts.
            pub fn $deletev_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, keys: c_int,
                key_list: Array<Bytes>, key_sizes: Array<usize>,
            ) {
                add_joined(batch, Action::Delete, Some(family), (keys, key_list, key_sizes), None);
            }

            /// Adds a delete of the keys from `start` to `end`, which is not included.
            pub fn $range(
                batch: Option<&mut $object>, start: Bytes, start_size: usize, end: Bytes,
                end_size: usize,
            ) {
                add(batch, Action::DeleteRange, None, start.items(start_size), end.items(end_size));
            }

            /// Adds a delete of a range to a column family.
            pub fn $range_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, start: Bytes,
                start_size: usize, end: Bytes, end_size: usize,
            ) {
                let (start, end) = (start.items(start_size), end.items(end_size));
                add(batch, Action::DeleteRange, Some(family), start, end);
            }

            /// Adds a delete of a range whose ends are in parts.
            pub fn $rangev(
                batch: Option<&mut $object>, parts: c_int, starts: Array<Bytes>,
                start_sizes: Array<usize>, ends: Array<Bytes>, end_sizes: Array<usize>,
            ) {
                let end = Some((parts, ends, end_sizes));
                add_joined(batch, Action::DeleteRange, None, (parts, starts, start_sizes), end);
            }

            /// Adds a delete of a range to a column family, whose ends are in parts.
            pub fn $rangev_cf(
                batch: Option<&mut $object>, family: Option<&FamilyHandle>, parts: c_int,
                starts: Array<Bytes>, start_sizes: Array<usize>, ends: Array<Bytes>,
                end_sizes: Array<usize>,
            ) {
                let start = (parts, starts, start_sizes);
                let end = Some((parts, ends, end_sizes));
                add_joined(batch, Action::DeleteRange, Some(family), start, end);
            }

            /// Adds bytes that are not applied.
            pub fn $log_data(
                batch: Option<&mut $object>, bytes: Bytes, size: usize,
            ) {
                add(batch, Action::LogData, None, bytes.items(size), Ok(&[]));
            }

            /// Remembers the present operations.
            pub fn $set_save_point(batch: Option<&mut $object>) {
                let _ = batch.map(|batch| BatchObject::edit(batch, Operations::set_save_point));
            }
        }

        quintet_compat::export_fallible! {
            /// Removes the operations since the last save point, and the save point.
            pub fn $rollback(batch: Option<&mut $object>) {
                let batch = required(batch, "the batch")?;
                let fixed = || Status::invalid("the batch is that of a transaction");
                BatchObject::edit(batch, Operations::rollback_to_save_point).ok_or_else(fixed)?
            }
        }
    };
}
pub(crate) use batch_functions;

batch_functions! { Operations {
    create: rocksdb_writebatch_create_from,
    destroy: rocksdb_writebatch_destroy,
    clear: rocksdb_writebatch_clear,
    put: rocksdb_writebatch_put, rocksdb_writebatch_put_cf,
    putv: rocksdb_writebatch_putv, rocksdb_writebatch_putv_cf,
    merge: rocksdb_writebatch_merge, rocksdb_writebatch_merge_cf,
    mergev: rocksdb_writebatch_mergev, rocksdb_writebatch_mergev_cf,
    delete: rocksdb_writebatch_delete, rocksdb_writebatch_delete_cf,
    single: rocksdb_writebatch_singledelete, rocksdb_writebatch_singledelete_cf,
    deletev: rocksdb_writebatch_deletev, rocksdb_writebatch_deletev_cf,
    range: rocksdb_writebatch_delete_range, rocksdb_writebatch_delete_range_cf,
    rangev: rocksdb_writebatch_delete_rangev, rocksdb_writebatch_delete_rangev_cf,
    log_data: rocksdb_writebatch_put_log_data,
    set_save_point: rocksdb_writebatch_set_save_point,
    rollback: rocksdb_writebatch_rollback_to_save_point,
} }

/// Calls a callback for each put and each delete of the default column family, in order.
pub fn iterate(
    batch: &Operations,
    state: Context,
    put: Option<PutFunction>,
    deleted: Option<DeletedFunction>,
) {
    for record in batch.records().flatten() {
        let key = (View::of(record.key), record.key.len());
        let value = (View::of(record.value), record.value.len());
        match (record.action, put, deleted) {
            _ if record.family != 0 => {}
            (Action::Put, Some(put), _) => put(state, key.0, key.1, value.0, value.1),
            (Action::Delete, _, Some(deleted)) => deleted(state, key.0, key.1),
            _ => {}
        }
    }
}

export! {
    /// Makes an empty batch.
    pub fn rocksdb_writebatch_create() -> Option<Box<Operations>>, None, {
        Some(Box::default())
    }

    /// Returns the number of operations.
    pub fn rocksdb_writebatch_count(batch: Option<&Operations>) -> c_int, 0, {
        batch.map_or(0, |batch| c_int::try_from(batch.count()).unwrap_or(c_int::MAX))
    }

    /// Calls a callback for each put and each delete of the default column family, in order.
    pub fn rocksdb_writebatch_iterate(
        batch: Option<&Operations>, state: Context, put: Option<PutFunction>,
        deleted: Option<DeletedFunction>,
    ) {
        if let Some(batch) = batch {
            iterate(batch, state, put, deleted);
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
}

export_fallible! {
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
