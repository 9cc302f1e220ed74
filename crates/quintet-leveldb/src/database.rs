//! Databases: opening, closing, writes, gets, snapshots, properties and management.

use std::{
    ffi::{OsStr, c_int},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use quintet::{DeleteOptions, PutOptions, Table};
use quintet_compat::{
    boundary::{Allocated, Array, Bytes, Out, OutArray, Text, give, required},
    comparator::ComparatorCalls,
    destroy, export, export_fallible, keys,
    operations::{Operations, Target},
    sizes,
    snapshot::{SnapshotCell, SnapshotObject},
    status::Status,
    store::Store,
};

use crate::options::{DatabaseOptions, ReadOptions, WriteOptions};

/// Number of levels of LevelDB. Here all files are of level 0.
const LEVELS: usize = 7;

/// `leveldb_t`. Any number of threads use it.
#[derive(Debug)]
pub struct Db {
    pub(crate) store: Store,
    pub(crate) table: Table,
    pub(crate) comparator: Option<ComparatorCalls>,
}

/// Returns the path that a text names.
fn path(name: &Text) -> Result<&Path, Status> {
    Ok(Path::new(OsStr::from_bytes(name.bytes()?)))
}

fn open(options: Option<&DatabaseOptions>, name: Text) -> Result<Box<Db>, Status> {
    let options = required(options, "options")?;
    let (store, tables) = Store::open(path(&name)?, &options.request())?;
    let table = tables.into_iter().next();
    let table = table.ok_or_else(|| Status::corruption("the database has no table"))?;
    Ok(Box::new(Db { store, table, comparator: options.comparator() }))
}

/// Returns the text of a property. `None`: there is no such property.
fn property(db: &Db, name: &[u8]) -> Result<Option<String>, Status> {
    let Some(name) = name.strip_prefix(b"leveldb.") else { return Ok(None) };
    let stats = db.table.stats()?;
    if let Some(level) = name.strip_prefix(b"num-files-at-level") {
        let level = std::str::from_utf8(level).ok().and_then(|level| level.parse::<usize>().ok());
        let files = level.map(|level| if level == 0 { sizes::files(&stats) } else { 0 });
        return Ok(files
            .filter(|_| level.is_some_and(|level| level < LEVELS))
            .map(|n| n.to_string()));
    }
    Ok(match name {
        b"stats" => Some(sizes::levels_text(&stats)),
        b"sstables" => {
            let levels = (0..LEVELS).map(|level| format!("--- level {level} ---\n"));
            let files = format!(" {} files:{} bytes\n", sizes::files(&stats), stats.file_bytes);
            let mut lines: Vec<_> = levels.collect();
            lines.insert(1, files);
            Some(lines.concat())
        }
        b"approximate-memory-usage" => Some(stats.memory_bytes.to_string()),
        _ => None,
    })
}

fn get(
    db: Option<&Db>,
    options: Option<&ReadOptions>,
    key: &[u8],
) -> Result<Option<quintet::Value>, Status> {
    let (db, key) = (required(db, "the database")?, keys::stored(key));
    Ok(match options.map(|options| options.snapshot.get()).transpose()?.flatten() {
        Some(snapshot) => snapshot.get(&db.table, key)?,
        None => db.table.get(key)?,
    })
}

export_fallible! {
    /// Opens a database. Returns null after a failure.
    pub fn leveldb_open(
        options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<Db>>, None, {
        open(options, name).map(Some)
    }

    /// Stores a value under a key.
    pub fn leveldb_put(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        value: Bytes, value_size: usize,
    ) {
        let db = required(db, "the database")?;
        let key = keys::stored(key.items(key_size)?);
        let durability = required(options, "the write options")?.durability();
        let options = PutOptions::new().durability(durability);
        db.table.put_with(key, value.items(value_size)?, options)?;
        Ok(())
    }

    /// Deletes a key. An absent key is no failure.
    pub fn leveldb_delete(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
    ) {
        let db = required(db, "the database")?;
        let key = keys::stored(key.items(key_size)?);
        let durability = required(options, "the write options")?.durability();
        db.table.delete_with(key, DeleteOptions::new().durability(durability))?;
        Ok(())
    }

    /// Writes a batch: all of it or nothing.
    pub fn leveldb_write(
        db: Option<&Db>, options: Option<&WriteOptions>, batch: Option<&Operations>,
    ) {
        let (db, batch) = (required(db, "the database")?, required(batch, "the batch")?);
        let durability = required(options, "the write options")?.durability();
        let target = Target {
            table: &db.table,
            operator: None,
            ttl: None,
            timestamps: None,
        };
        batch.commit(&db.store.database, durability, |_| Ok(target))
    }

    /// Returns the value of a key, to be released by `leveldb_free`. Null if there is none.
    pub fn leveldb_get(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
        value_size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let value = key.items(key_size).and_then(|key| get(db, options, key));
        give(value_size, value.as_ref().map_or(0, |value| value.as_ref().map_or(0, |v| v.len())));
        Allocated::of(value?.as_deref())
    }

    /// Removes a database. Does nothing if there is none. Fails if it is open.
    pub fn leveldb_destroy_db(_options: Option<&DatabaseOptions>, name: Text) {
        destroy::destroy(path(&name)?)
    }

    /// Checks every file and entry of a database. Fails if one is damaged; nothing is removed.
    pub fn leveldb_repair_db(options: Option<&DatabaseOptions>, name: Text) {
        let options = required(options, "options")?.options();
        Store::repair(path(&name)?, &options)
    }
}

export! {
    /// Closes a database.
    pub fn leveldb_close(db: Option<Box<Db>>) {
        if let Some(db) = db {
            // The interface has no way to report a failure. Writes that returned are in the log.
            let _ = db.store.close();
        }
    }

    /// Takes a snapshot. Returns null if the database was closed.
    pub fn leveldb_create_snapshot(db: Option<&Db>) -> Option<Box<SnapshotObject>>, None, {
        let snapshot = db?.store.database.snapshot().ok()?;
        Some(SnapshotObject::new(SnapshotCell::new(snapshot)))
    }

    /// Releases a snapshot. Read options that name it fail from then on.
    pub fn leveldb_release_snapshot(_db: Option<&Db>, snapshot: Option<Box<SnapshotObject>>) {
        drop(snapshot);
    }

    /// Returns the text of a property, to be released by `leveldb_free`. Null if there is no such
    /// property.
    pub fn leveldb_property_value(db: Option<&Db>, name: Text) -> Allocated, Allocated::NULL, {
        let value = db.and_then(|db| property(db, name.bytes().ok()?).ok().flatten());
        value.map_or(Allocated::NULL, |value| Allocated::copy(value.as_bytes()))
    }

    /// Stores about how many bytes the entries of each range take.
    pub fn leveldb_approximate_sizes(
        db: Option<&Db>, count: c_int, starts: Array<Bytes>, start_sizes: Array<usize>,
        limits: Array<Bytes>, limit_sizes: Array<usize>, results: OutArray<u64>,
    ) {
        let Ok(count) = usize::try_from(count) else { return };
        let mut results = results;
        let Ok(results) = results.items(count) else { return };
        for (index, result) in results.iter_mut().enumerate() {
            let bytes = || {
                let (starts, sizes) = (starts.items(count)?, start_sizes.items(count)?);
                let (limits, limit_sizes) = (limits.items(count)?, limit_sizes.items(count)?);
                let start = starts[index].items(sizes[index])?;
                let limit = limits[index].items(limit_sizes[index])?;
                sizes::approximate_bytes(&required(db, "the database")?.table, start, limit)
            };
            result.write(bytes().unwrap_or(0));
        }
    }

    /// Compacts the whole table, whatever the range is.
    pub fn leveldb_compact_range(
        db: Option<&Db>, _start: Bytes, _start_size: usize, _limit: Bytes, _limit_size: usize,
    ) {
        if let Some(db) = db {
            // The interface has no way to report a failure. The next compaction repeats it.
            let _ = db.table.compact();
        }
    }
}
