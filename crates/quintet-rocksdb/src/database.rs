//! Writes of single keys, flushes, compactions and snapshots.

use quintet::{DeleteOptions, KeyRange, UpdateOptions};
use quintet_compat::{
    boundary::{Bytes, required},
    export, export_fallible, keys,
    operations::{Action, Operations, Record},
    snapshot::{SnapshotCell, SnapshotObject},
    status::Status,
    timestamps,
};

use crate::{
    core::{Core, Db, Family},
    families::{FamilyHandle, family_of},
    filters::{FilterCalls, Verdict},
    options::writes::{CompactOptions, FlushOptions, WriteOptions},
    perf::Stopwatch,
};

/// Stores a value under a key.
pub fn put(
    options: Option<&WriteOptions>,
    family: &Family,
    key: &[u8],
    value: &[u8],
) -> Result<(), Status> {
    let durability = required(options, "the write options")?.durability();
    let options = family.target().put_options().durability(durability);
    family.check_writable()?;
    family.check_plain()?;
    let watch = Stopwatch::start();
    let written = family.table.put_with(keys::stored(key), value, options);
    watch.stop(|counters, time| counters.write_time += time);
    written?;
    Ok(())
}

/// Deletes a key.
pub fn delete(options: Option<&WriteOptions>, family: &Family, key: &[u8]) -> Result<(), Status> {
    let durability = required(options, "the write options")?.durability();
    let options = DeleteOptions::new().durability(durability);
    family.check_writable()?;
    family.check_plain()?;
    let watch = Stopwatch::start();
    let written = family.table.delete_with(keys::stored(key), options);
    watch.stop(|counters, time| counters.write_time += time);
    written?;
    Ok(())
}

/// Merges an operand into the value of a key.
pub fn merge(
    options: Option<&WriteOptions>,
    family: &Family,
    key: &[u8],
    operand: &[u8],
) -> Result<(), Status> {
    let durability = required(options, "the write options")?.durability();
    family.check_writable()?;
    family.check_plain()?;
    let operand = family.target().operand(operand)?;
    let mut options = UpdateOptions::new().durability(durability);
    if let Some(ttl) = family.ttl {
        options = options.ttl(ttl);
    }
    let watch = Stopwatch::start();
    let written = family.table.merge_with(keys::stored(key), operand, options);
    watch.stop(|counters, time| counters.write_time += time);
    written?;
    Ok(())
}

fn core(db: Option<&Db>) -> Result<&Core, Status> {
    Ok(&required(db, "the database")?.core)
}

export_fallible! {
    /// Stores a value under a key.
    pub fn rocksdb_put(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        value: Bytes, size: usize,
    ) {
        let family = core(db)?.default_family()?;
        put(options, family, key.items(key_size)?, value.items(size)?)
    }

    /// Stores a value under a key of a column family.
    pub fn rocksdb_put_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        core(db)?;
        put(options, family_of(family)?, key.items(key_size)?, value.items(size)?)
    }

    /// Deletes a key. An absent key is no failure.
    pub fn rocksdb_delete(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
    ) {
        delete(options, core(db)?.default_family()?, key.items(key_size)?)
    }

    /// Deletes a key of a column family.
    pub fn rocksdb_delete_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize,
    ) {
        core(db)?;
        delete(options, family_of(family)?, key.items(key_size)?)
    }

    /// Deletes a key that was written once.
    pub fn rocksdb_singledelete(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
    ) {
        delete(options, core(db)?.default_family()?, key.items(key_size)?)
    }

    /// Deletes a key of a column family that was written once.
    pub fn rocksdb_singledelete_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize,
    ) {
        core(db)?;
        delete(options, family_of(family)?, key.items(key_size)?)
    }

    /// Deletes the keys of a column family from `start` to `end`, which is not included.
    pub fn rocksdb_delete_range_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        start: Bytes, start_size: usize, end: Bytes, end_size: usize,
    ) {
        let (start, end) = (start.items(start_size)?, end.items(end_size)?);
        let mut batch = Operations::default();
        let family = family_of(family)?;
        family.check_plain()?;
        let family = family.id;
        batch.add(Record { action: Action::DeleteRange, family, key: start, value: end });
        core(db)?.write(required(options, "the write options")?, &batch)
    }

    /// Merges an operand into the value of a key. The value is read and written at once.
    pub fn rocksdb_merge(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        value: Bytes, size: usize,
    ) {
        let family = core(db)?.default_family()?;
        merge(options, family, key.items(key_size)?, value.items(size)?)
    }

    /// Merges an operand into the value of a key of a column family.
    pub fn rocksdb_merge_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        core(db)?;
        merge(options, family_of(family)?, key.items(key_size)?, value.items(size)?)
    }

    /// Checkpoints the default column family.
    pub fn rocksdb_flush(db: Option<&Db>, _options: Option<&FlushOptions>) {
        Ok(core(db)?.default_family()?.table.persist()?)
    }

    /// Checkpoints a column family.
    pub fn rocksdb_flush_cf(
        db: Option<&Db>, _options: Option<&FlushOptions>, family: Option<&FamilyHandle>,
    ) {
        core(db)?;
        Ok(family_of(family)?.table.persist()?)
    }

    /// Syncs the log if `sync` is not 0. Writes are in the log when they return.
    pub fn rocksdb_flush_wal(db: Option<&Db>, sync: u8) {
        let core = core(db)?;
        if sync == 0 { Ok(()) } else { Ok(core.store.database.sync()?) }
    }

    /// Compacts the default column family, and filters the range.
    pub fn rocksdb_suggest_compact_range(
        db: Option<&Db>, start: Bytes, start_size: usize, limit: Bytes, limit_size: usize,
    ) {
        let family = core(db)?.default_family()?;
        compact_range(family, (start, start_size), (limit, limit_size))
    }

    /// Compacts a column family, and filters the range.
    pub fn rocksdb_suggest_compact_range_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, start: Bytes, start_size: usize,
        limit: Bytes, limit_size: usize,
    ) {
        core(db)?;
        compact_range(family_of(family)?, (start, start_size), (limit, limit_size))
    }

    /// Deletes the entries of a range of the default column family. A null bound is none.
    pub fn rocksdb_delete_file_in_range(
        db: Option<&Db>, start: Bytes, start_size: usize, limit: Bytes, limit_size: usize,
    ) {
        let range = range((start, start_size), (limit, limit_size))?;
        delete_range(default_family(db)?, range)
    }

    /// Deletes the entries of a range of a column family. A null bound is none.
    pub fn rocksdb_delete_file_in_range_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, start: Bytes, start_size: usize,
        limit: Bytes, limit_size: usize,
    ) {
        core(db)?;
        let range = range((start, start_size), (limit, limit_size))?;
        delete_range(family_of(family)?, range)
    }

    /// Does nothing: a copy of a database is made by other means.
    pub fn rocksdb_disable_file_deletions(db: Option<&Db>) {
        core(db).map(drop)
    }

    /// Does nothing.
    pub fn rocksdb_enable_file_deletions(db: Option<&Db>, _force: u8) {
        core(db).map(drop)
    }
}

/// A key of the program with its size.
type KeyArgument = (Bytes, usize);

/// Returns a range of keys in stored form. A null bound is none.
fn range(start: KeyArgument, limit: KeyArgument) -> Result<KeyRange, Status> {
    let bound = |(key, size): KeyArgument| {
        let key = (!key.is_null()).then(|| key.items(size).map(|key| keys::stored(key).into()));
        key.transpose()
    };
    Ok(KeyRange { start: bound(start)?, end: bound(limit)? })
}

/// Deletes the entries of a range.
fn delete_range(family: &Family, range: KeyRange) -> Result<(), Status> {
    family.check_writable()?;
    family.check_plain()?;
    Ok(family.table.delete_range(range)?)
}

/// Filters the entries of a range, or removes its old versions, and compacts the table of a family.
fn compact_range(family: &Family, start: KeyArgument, limit: KeyArgument) -> Result<(), Status> {
    family.check_writable()?;
    if family.history.is_some() {
        let start_of = |(key, size): KeyArgument| {
            (!key.is_null()).then(|| key.items(size).map(timestamps::start)).transpose()
        };
        family.trim(KeyRange { start: start_of(start)?, end: start_of(limit)? })?;
        return Ok(family.table.compact()?);
    }
    let range = range(start, limit)?;
    if let Some(filter) = &family.filter {
        let is_full = range.start.is_none() && range.end.is_none();
        filter.filter(is_full, |calls| sweep(family, range, calls))?;
    }
    Ok(family.table.compact()?)
}

/// Asks a filter for each entry of a range.
fn sweep(family: &Family, range: KeyRange, calls: &FilterCalls) -> Result<(), Status> {
    for entry in family.table.range(range)? {
        let (key, value) = entry?;
        let new = match calls.decide(keys::key(&key), &value)? {
            Verdict::Keep => continue,
            Verdict::Remove => None,
            Verdict::Change(new) => Some(new),
        };
        // Keeps the expiry. An entry that has another value by now waits for the next compaction.
        let options = UpdateOptions::new();
        family.table.compare_and_swap_with(&key, Some(&value), new.as_deref(), options)?;
    }
    Ok(())
}

/// Compacts a column family. The interface has no way to report a failure; the next compaction
/// repeats it.
fn compact(family: Result<&Family, Status>, start: KeyArgument, limit: KeyArgument) {
    let _ = family.and_then(|family| compact_range(family, start, limit));
}

/// Compacts a column family after raising its low timestamp to that of the options.
fn compact_with(
    core: Result<&Core, Status>,
    family: Result<&Family, Status>,
    options: Option<&CompactOptions>,
    (start, limit): (KeyArgument, KeyArgument),
) {
    let low = options.and_then(|options| options.history_low.as_ref());
    if let (Some(low), Ok(core), Ok(family)) = (low, core, &family) {
        // A lower one than before is no failure of the compaction.
        let _ = core.raise_history_low(family, low);
    }
    compact(family, start, limit);
}

/// Returns the default column family.
fn default_family(db: Option<&Db>) -> Result<&Family, Status> {
    Ok(core(db)?.default_family()?)
}

export! {
    /// Compacts the default column family, and filters the range.
    pub fn rocksdb_compact_range(
        db: Option<&Db>, start: Bytes, start_size: usize, limit: Bytes, limit_size: usize,
    ) {
        compact(default_family(db), (start, start_size), (limit, limit_size));
    }

    /// Compacts a column family, and filters the range.
    pub fn rocksdb_compact_range_cf(
        _db: Option<&Db>, family: Option<&FamilyHandle>, start: Bytes, start_size: usize,
        limit: Bytes, limit_size: usize,
    ) {
        compact(family_of(family).map(|f| &**f), (start, start_size), (limit, limit_size));
    }

    /// Compacts the default column family, and filters the range. Of the options, the low timestamp
    /// has an effect.
    pub fn rocksdb_compact_range_opt(
        db: Option<&Db>, options: Option<&CompactOptions>, start: Bytes, start_size: usize,
        limit: Bytes, limit_size: usize,
    ) {
        let range = ((start, start_size), (limit, limit_size));
        compact_with(core(db), default_family(db), options, range);
    }

    /// Compacts a column family, and filters the range. Of the options, the low timestamp has an
    /// effect.
    pub fn rocksdb_compact_range_cf_opt(
        db: Option<&Db>, family: Option<&FamilyHandle>, options: Option<&CompactOptions>,
        start: Bytes, start_size: usize, limit: Bytes, limit_size: usize,
    ) {
        let range = ((start, start_size), (limit, limit_size));
        compact_with(core(db), family_of(family).map(|f| &**f), options, range);
    }

    /// Takes a snapshot of all column families. Returns null if the database was closed.
    pub fn rocksdb_create_snapshot(db: Option<&Db>) -> Option<Box<SnapshotObject>>, None, {
        let snapshot = db?.core.present().ok()?;
        Some(SnapshotObject::new(SnapshotCell::new(snapshot)))
    }

    /// Releases a snapshot. Read options that name it fail from then on.
    pub fn rocksdb_release_snapshot(_db: Option<&Db>, snapshot: Option<Box<SnapshotObject>>) {
        drop(snapshot);
    }

    /// Does nothing: closing a database ends its work.
    pub fn rocksdb_cancel_all_background_work(_db: Option<&Db>, _wait: u8) {}

    /// Does nothing.
    pub fn rocksdb_disable_manual_compaction(_db: Option<&Db>) {}

    /// Does nothing.
    pub fn rocksdb_enable_manual_compaction(_db: Option<&Db>) {}
}
