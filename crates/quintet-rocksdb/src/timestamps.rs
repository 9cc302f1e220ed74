//! Functions with a timestamp: writes, reads, batches, and the history that is kept.
//!
//! `core::versions` has how versions are stored and which are removed.

use quintet_compat::{
    boundary::{Allocated, Array, Bytes, Context, Out, OutArray, give, required},
    comparator::{
        Comparator, CompareFunction, CompareKeysFunction, Destructor, NameFunction, TimestampCalls,
    },
    export, export_fallible,
    operations::{Action, Operations, Record},
    status::Status,
    timestamps::TIMESTAMP_BYTES,
};

use crate::{
    core::{Core, Db, Family, ReadValue},
    families::{FamilyHandle, family_of},
    options::{reads::ReadOptions, writes::WriteOptions},
    perf::{self, Stopwatch},
    reads::key_at,
};

/// The value of a version, and its timestamp.
type Found = Option<(ReadValue, [u8; TIMESTAMP_BYTES])>;
/// A key of the program with its timestamp.
type KeyAndTimestamp<'a> = (&'a [u8], &'a [u8]);

fn core(db: Option<&Db>) -> Result<&Core, Status> {
    Ok(&required(db, "the database")?.core)
}

fn family_in<'f>(db: Option<&Db>, family: Option<&'f FamilyHandle>) -> Result<&'f Family, Status> {
    core(db)?;
    Ok(family_of(family)?)
}

/// Stores a version of a key. `None`: a delete.
fn write(
    options: Option<&WriteOptions>,
    family: &Family,
    key: KeyAndTimestamp<'_>,
    value: Option<&[u8]>,
) -> Result<(), Status> {
    let options = required(options, "the write options")?;
    let watch = Stopwatch::start();
    let written = family.put_version(options, key, value);
    watch.stop(|counters, time| counters.write_time += time);
    written
}

/// Returns copies of a value and its timestamp, and stores their sizes.
fn copied(
    found: Result<Found, Status>,
    (size, timestamp, timestamp_size): (Out<'_, usize>, Out<'_, Allocated>, Out<'_, usize>),
) -> Result<Allocated, Status> {
    let copied = found.and_then(|found| {
        let value = found.as_ref().map(|(value, _)| &**value);
        perf::count_get(value);
        let timestamp = found.as_ref().map(|(_, timestamp)| *timestamp);
        Ok((Allocated::of(value)?, value.map_or(0, <[u8]>::len), timestamp))
    });
    let (value, bytes, found) = match copied {
        Ok((value, bytes, found)) => (Ok(value), bytes, found),
        Err(status) => (Err(status), 0, None),
    };
    // The program releases the copy, so there is none without a place for it.
    let found = found.filter(|_| timestamp.is_some());
    let copy = found.map_or(Allocated::NULL, |found| Allocated::copy(&found));
    give(size, bytes);
    give(timestamp_size, if copy.is_null() { 0 } else { TIMESTAMP_BYTES });
    give(timestamp, copy);
    value
}

/// Where a get of several keys writes its results.
struct VersionResults {
    values: OutArray<Allocated>,
    sizes: OutArray<usize>,
    timestamps: OutArray<Allocated>,
    timestamp_sizes: OutArray<usize>,
    errors: OutArray<Allocated>,
}

/// Gets several keys. `get` returns the version of a key by its index.
fn multi_get(
    count: usize,
    results: VersionResults,
    get: impl Fn(usize) -> Result<Found, Status>,
) -> Result<(), Status> {
    let VersionResults { mut values, mut sizes, mut timestamps, mut timestamp_sizes, mut errors } =
        results;
    let (values, sizes) = (values.items(count)?, sizes.items(count)?);
    let (timestamps, timestamp_sizes) = (timestamps.items(count)?, timestamp_sizes.items(count)?);
    let outputs = values.iter_mut().zip(sizes).zip(timestamps).zip(timestamp_sizes);
    for (index, (output, error)) in outputs.zip(errors.items(count)?).enumerate() {
        let (((value, size), timestamp), timestamp_size) = output;
        let outs = (Some(size), Some(timestamp), Some(timestamp_size));
        let (copy, message) = match copied(get(index), outs) {
            Ok(copy) => (copy, Allocated::NULL),
            Err(status) => (Allocated::NULL, Allocated::copy(status.to_string().as_bytes())),
        };
        value.write(copy);
        error.write(message);
    }
    Ok(())
}

/// Adds a version to a batch. An unsuitable argument makes the write of the batch fail.
fn add(
    batch: Option<&mut Operations>,
    action: Action,
    family: Option<&FamilyHandle>,
    key: Result<KeyAndTimestamp<'_>, Status>,
    value: Result<&[u8], Status>,
) {
    let Some(batch) = batch else { return };
    let add = || {
        let (family, (key, timestamp), value) = (family_of(family)?, key?, value?);
        let _ = family.history()?.order.number(timestamp)?;
        let joined = [key, timestamp].concat();
        batch.add(Record { action, family: family.id, key: &joined, value });
        Ok(())
    };
    if let Err(status) = add() {
        batch.refuse(status);
    }
}

/// Returns a key and its timestamp.
fn joined<'a>(
    key: &'a Bytes,
    key_size: usize,
    timestamp: &'a Bytes,
    size: usize,
) -> Result<KeyAndTimestamp<'a>, Status> {
    Ok((key.items(key_size)?, timestamp.items(size)?))
}

export! {
    /// Makes a comparator of callbacks for keys with timestamps. Opening fails unless keys are
    /// ordered by their bytes, and timestamps are numbers of eight bytes in either byte order.
    pub fn rocksdb_comparator_with_ts_create(
        state: Context, destructor: Option<Destructor>, compare: Option<CompareFunction>,
        compare_timestamps: Option<CompareFunction>, compare_keys: Option<CompareKeysFunction>,
        name: Option<NameFunction>, size: usize,
    ) -> Option<Box<Comparator>>, None, {
        let calls = TimestampCalls { compare: compare_timestamps, compare_keys, size };
        Some(Box::new(Comparator::new(state, destructor, compare, name).with_timestamps(calls)))
    }

    /// Adds a put of a version to a column family.
    pub fn rocksdb_writebatch_put_cf_with_ts(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, timestamp: Bytes, timestamp_size: usize, value: Bytes, size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size);
        add(batch, Action::Put, family, key, value.items(size));
    }

    /// Adds a delete with a timestamp to a column family.
    pub fn rocksdb_writebatch_delete_cf_with_ts(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, timestamp: Bytes, timestamp_size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size);
        add(batch, Action::Delete, family, key, Ok(&[]));
    }

    /// Adds a delete with a timestamp, of a key that was written once, to a column family.
    pub fn rocksdb_writebatch_singledelete_cf_with_ts(
        batch: Option<&mut Operations>, family: Option<&FamilyHandle>, key: Bytes,
        key_size: usize, timestamp: Bytes, timestamp_size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size);
        add(batch, Action::SingleDelete, family, key, Ok(&[]));
    }

    /// Gets several keys with their timestamps. Results are to be released by `rocksdb_free`.
    pub fn rocksdb_multi_get_with_ts(
        db: Option<&Db>, options: Option<&ReadOptions>, count: usize, keys: Array<Bytes>,
        key_sizes: Array<usize>, values: OutArray<Allocated>, sizes: OutArray<usize>,
        timestamps: OutArray<Allocated>, timestamp_sizes: OutArray<usize>,
        errors: OutArray<Allocated>,
    ) {
        let results = VersionResults { values, sizes, timestamps, timestamp_sizes, errors };
        // Without arrays there is no place for a failure.
        let _ = multi_get(count, results, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            core(db)?.default_family()?.get_version(options, key)
        });
    }

    /// Gets several keys, each of its column family, with their timestamps.
    pub fn rocksdb_multi_get_cf_with_ts(
        db: Option<&Db>, options: Option<&ReadOptions>, families: Array<Option<&FamilyHandle>>,
        count: usize, keys: Array<Bytes>, key_sizes: Array<usize>, values: OutArray<Allocated>,
        sizes: OutArray<usize>, timestamps: OutArray<Allocated>,
        timestamp_sizes: OutArray<usize>, errors: OutArray<Allocated>,
    ) {
        let results = VersionResults { values, sizes, timestamps, timestamp_sizes, errors };
        let _ = multi_get(count, results, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            let handle = families.items(count)?.get(index).copied().flatten();
            family_in(db, handle)?.get_version(options, key)
        });
    }
}

export_fallible! {
    /// Stores a version of a key.
    pub fn rocksdb_put_with_ts(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        timestamp: Bytes, timestamp_size: usize, value: Bytes, size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size)?;
        write(options, core(db)?.default_family()?, key, Some(value.items(size)?))
    }

    /// Stores a version of a key of a column family.
    pub fn rocksdb_put_cf_with_ts(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, timestamp: Bytes, timestamp_size: usize, value: Bytes,
        size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size)?;
        write(options, family_in(db, family)?, key, Some(value.items(size)?))
    }

    /// Deletes a key from a timestamp on.
    pub fn rocksdb_delete_with_ts(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        timestamp: Bytes, timestamp_size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size)?;
        write(options, core(db)?.default_family()?, key, None)
    }

    /// Deletes a key of a column family from a timestamp on.
    pub fn rocksdb_delete_cf_with_ts(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, timestamp: Bytes, timestamp_size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size)?;
        write(options, family_in(db, family)?, key, None)
    }

    /// Deletes a key that was written once from a timestamp on.
    pub fn rocksdb_singledelete_with_ts(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        timestamp: Bytes, timestamp_size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size)?;
        write(options, core(db)?.default_family()?, key, None)
    }

    /// Deletes a key of a column family that was written once from a timestamp on.
    pub fn rocksdb_singledelete_cf_with_ts(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, timestamp: Bytes, timestamp_size: usize,
    ) {
        let key = joined(&key, key_size, &timestamp, timestamp_size)?;
        write(options, family_in(db, family)?, key, None)
    }

    /// Returns the value of a key at the timestamp of the options, and stores the value's own
    /// timestamp. Both are to be released by `rocksdb_free`.
    pub fn rocksdb_get_with_ts(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
        size: Out<'_, usize>, timestamp: Out<'_, Allocated>, timestamp_size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let get = || core(db)?.default_family()?.get_version(options, key.items(key_size)?);
        copied(get(), (size, timestamp, timestamp_size))
    }

    /// Returns the value of a key of a column family at the timestamp of the options, and stores
    /// the value's own timestamp.
    pub fn rocksdb_get_cf_with_ts(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, size: Out<'_, usize>, timestamp: Out<'_, Allocated>,
        timestamp_size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let get = || family_in(db, family)?.get_version(options, key.items(key_size)?);
        copied(get(), (size, timestamp, timestamp_size))
    }

    /// Raises the timestamp below which a compaction may remove old versions. Reads below it fail.
    pub fn rocksdb_increase_full_history_ts_low(
        db: Option<&Db>, family: Option<&FamilyHandle>, timestamp: Bytes, size: usize,
    ) {
        core(db)?.raise_history_low(family_of(family)?, timestamp.items(size)?)
    }

    /// Returns the timestamp below which a compaction may remove old versions, to be released by
    /// `rocksdb_free`. Zeros if none was set.
    pub fn rocksdb_get_full_history_ts_low(
        db: Option<&Db>, family: Option<&FamilyHandle>, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let low = family_in(db, family).and_then(|family| {
            let history = family.history()?;
            Ok(history.order.bytes(history.low()))
        });
        give(size, if low.is_ok() { TIMESTAMP_BYTES } else { 0 });
        Ok(Allocated::copy(&low?))
    }
}
