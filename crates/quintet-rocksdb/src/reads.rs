//! Gets of one key and of several keys.

use std::{ops::Deref, sync::Arc};

use quintet_compat::{
    boundary::{Allocated, Array, Bytes, Out, OutArray, View, give, required},
    export, export_fallible,
    status::Status,
};

use crate::{
    core::{Core, Db, Family, ReadValue},
    families::{FamilyHandle, family_of},
    options::reads::ReadOptions,
    perf,
};

/// `rocksdb_pinnableslice_t`: a value without a copy for the program.
#[derive(Debug)]
pub struct PinnedValue(ReadValue);

impl PinnedValue {
    /// Makes the object of a value that a get returned.
    #[inline]
    pub fn of(value: Option<ReadValue>) -> Option<Box<Self>> {
        perf::count_get(value.as_deref());
        Some(Box::new(Self(value?)))
    }
}

/// The key and the value of a record, or why an argument is unsuitable.
pub type KeyAndValue<'a> = (Result<&'a [u8], Status>, Result<&'a [u8], Status>);

fn core(db: Option<&Db>) -> Result<&Core, Status> {
    Ok(&required(db, "the database")?.core)
}

/// Returns a copy of a value that was read, and stores its size.
pub fn copied(
    value: Result<Option<impl Deref<Target = [u8]>>, Status>,
    size: Out<'_, usize>,
) -> Result<Allocated, Status> {
    give(size, value.as_ref().map_or(0, |value| value.as_ref().map_or(0, |value| value.len())));
    let value = value?;
    perf::count_get(value.as_deref());
    Allocated::of(value.as_deref())
}

/// Where a get of several keys writes its results.
#[derive(Debug)]
pub struct Results {
    /// Values, null for an absent key.
    pub values: OutArray<Allocated>,
    /// Sizes of the values.
    pub sizes: OutArray<usize>,
    /// Messages, null for a key without a failure.
    pub errors: OutArray<Allocated>,
}

/// Gets several keys. `get` returns the value of a key by its index.
pub fn multi_get<V: Deref<Target = [u8]>>(
    count: usize,
    results: Results,
    get: impl Fn(usize) -> Result<Option<V>, Status>,
) {
    let Results { mut values, mut sizes, mut errors } = results;
    let (Ok(values), Ok(sizes), Ok(errors)) =
        (values.items(count), sizes.items(count), errors.items(count))
    else {
        return;
    };
    let outputs = values.iter_mut().zip(sizes).zip(errors);
    for (index, ((value, size), error)) in outputs.enumerate() {
        let copied = get(index).and_then(|found| {
            perf::count_multi_get(found.as_deref());
            Ok((Allocated::of(found.as_deref())?, found.map_or(0, |found| found.len())))
        });
        let (copy, bytes, message) = match copied {
            Ok((copy, bytes)) => (copy, bytes, Allocated::NULL),
            Err(status) => (Allocated::NULL, 0, Allocated::copy(status.to_string().as_bytes())),
        };
        value.write(copy);
        size.write(bytes);
        error.write(message);
    }
}

/// Returns the key of an index.
pub fn key_at(
    keys: &Array<Bytes>,
    sizes: Array<usize>,
    count: usize,
    index: usize,
) -> Result<&[u8], Status> {
    let none = || Status::invalid("there is no such key");
    let size = sizes.items(count)?.get(index).ok_or_else(none)?;
    keys.items(count)?.get(index).ok_or_else(none)?.items(*size)
}

/// Returns whether a key may exist, and its value where the program wants it. As in RocksDB,
/// `found` says that the result is certain, and an absent key has an empty value then.
fn may_exist(
    value: Result<Option<ReadValue>, Status>,
    out: Out<'_, Allocated>,
    size: Out<'_, usize>,
    found: Out<'_, u8>,
) -> u8 {
    let Some(found) = found else {
        return value.map_or(1, |value| value.is_some().into());
    };
    // A read that failed tells nothing.
    found.write(value.is_ok().into());
    let Ok(value) = value else { return 1 };
    if let Some(out) = out {
        let bytes = value.as_deref().unwrap_or_default();
        give(size, bytes.len());
        out.write(Allocated::copy(bytes));
    }
    value.is_some().into()
}

/// Returns the family of a handle, if there is a database.
fn family_in<'f>(
    db: Option<&Db>,
    family: Option<&'f FamilyHandle>,
) -> Result<&'f Arc<Family>, Status> {
    core(db)?;
    family_of(family)
}

fn family_at<'f>(
    db: Option<&Db>,
    families: &'f Array<Option<&FamilyHandle>>,
    count: usize,
    index: usize,
) -> Result<&'f Family, Status> {
    let handle = families.items(count)?.get(index).copied().flatten();
    Ok(family_in(db, handle)?)
}

export_fallible! {
    /// Returns the value of a key, to be released by `rocksdb_free`. Null if there is none.
    pub fn rocksdb_get(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
        size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let get = || core(db)?.default_family()?.get(options, key.items(key_size)?);
        copied(get(), size)
    }

    /// Returns the value of a key of a column family, to be released by `rocksdb_free`.
    pub fn rocksdb_get_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        copied((|| family_in(db, family)?.get(options, key.items(key_size)?))(), size)
    }

    /// Returns the value of a key without a copy. Null if there is none.
    pub fn rocksdb_get_pinned(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
    ) -> Option<Box<PinnedValue>>, None, {
        let family = core(db)?.default_family()?;
        Ok(PinnedValue::of(family.get(options, key.items(key_size)?)?))
    }

    /// Returns the value of a key of a column family without a copy. Null if there is none.
    pub fn rocksdb_get_pinned_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize,
    ) -> Option<Box<PinnedValue>>, None, {
        Ok(PinnedValue::of(family_in(db, family)?.get(options, key.items(key_size)?)?))
    }
}

export! {
    /// Frees a pinned value.
    pub fn rocksdb_pinnableslice_destroy(value: Option<Box<PinnedValue>>) {
        drop(value);
    }

    /// Returns the bytes of a pinned value, which are valid until it is freed.
    pub fn rocksdb_pinnableslice_value(
        value: Option<&PinnedValue>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        give(size, value.map_or(0, |value| value.0.len()));
        value.map_or(View::NULL, |value| View::of(&value.0))
    }

    /// Gets several keys. Values and messages are to be released by `rocksdb_free`.
    pub fn rocksdb_multi_get(
        db: Option<&Db>, options: Option<&ReadOptions>, count: usize, keys: Array<Bytes>,
        key_sizes: Array<usize>, values: OutArray<Allocated>, sizes: OutArray<usize>,
        errors: OutArray<Allocated>,
    ) {
        multi_get(count, Results { values, sizes, errors }, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            core(db)?.default_family()?.get(options, key)
        });
    }

    /// Gets several keys, each of its column family.
    pub fn rocksdb_multi_get_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, families: Array<Option<&FamilyHandle>>,
        count: usize, keys: Array<Bytes>, key_sizes: Array<usize>, values: OutArray<Allocated>,
        sizes: OutArray<usize>, errors: OutArray<Allocated>,
    ) {
        multi_get(count, Results { values, sizes, errors }, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            family_at(db, &families, count, index)?.get(options, key)
        });
    }

    /// Gets several keys of one column family without copies.
    pub fn rocksdb_batched_multi_get_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        count: usize, keys: Array<Bytes>, key_sizes: Array<usize>,
        values: OutArray<Option<Box<PinnedValue>>>, errors: OutArray<Allocated>,
        _sorted: bool,
    ) {
        let (mut values, mut errors) = (values, errors);
        let (Ok(values), Ok(errors)) = (values.items(count), errors.items(count)) else { return };
        for (index, (value, error)) in values.iter_mut().zip(errors).enumerate() {
            let get = || {
                let key = key_at(&keys, key_sizes, count, index)?;
                family_in(db, family)?.get(options, key)
            };
            let (found, message) = match get() {
                Ok(found) => {
                    perf::count_multi_get(found.as_deref());
                    (found.map(PinnedValue).map(Box::new), Allocated::NULL)
                }
                Err(status) => (None, Allocated::copy(status.to_string().as_bytes())),
            };
            value.write(found);
            error.write(message);
        }
    }

    /// Returns 0 if a key does not exist. Reads it.
    pub fn rocksdb_key_may_exist(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
        value: Out<'_, Allocated>, size: Out<'_, usize>, _timestamp: Bytes, _timestamp_size: usize,
        found: Out<'_, u8>,
    ) -> u8, 1, {
        let get = || core(db)?.default_family()?.get(options, key.items(key_size)?);
        may_exist(get(), value, size, found)
    }

    /// Returns 0 if a key of a column family does not exist. Reads it.
    pub fn rocksdb_key_may_exist_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, value: Out<'_, Allocated>, size: Out<'_, usize>,
        _timestamp: Bytes, _timestamp_size: usize, found: Out<'_, u8>,
    ) -> u8, 1, {
        let get = || family_in(db, family)?.get(options, key.items(key_size)?);
        may_exist(get(), value, size, found)
    }
}
