//! Properties, sizes and numbers of databases.

use std::{ffi::c_int, mem::MaybeUninit};

use quintet_compat::{
    boundary::{Allocated, Array, Bytes, Out, OutArray, Text, give, required},
    export, export_fallible, sizes,
    status::Status,
    timestamps,
};

use crate::{
    core::{Core, Db, Family},
    families::{FamilyHandle, family_of},
};

/// Number of levels of RocksDB. Here all files are of level 0.
const LEVELS: usize = 7;

/// Returns a property that is a number. `None`: there is no such property.
fn number(core: &Core, family: &Family, name: &str) -> Result<Option<u64>, Status> {
    let table = family.table.stats()?;
    let detail = |name| {
        let found = table.details.iter().find(|(other, _)| *other == name);
        found.map_or(0, |(_, value)| *value)
    };
    let database = || core.store.database.stats();
    Ok(Some(match name {
        "estimate-num-keys" => table.keys,
        "estimate-live-data-size" => table.live_bytes,
        "total-sst-files-size" | "live-sst-files-size" => table.file_bytes,
        "estimate-table-readers-mem" => table.index_bytes,
        "estimate-pending-compaction-bytes" => table.dead_bytes,
        "cur-size-active-mem-table" | "cur-size-all-mem-tables" | "size-all-mem-tables" => {
            detail("memtable_bytes")
        }
        "block-cache-usage" => detail("cache_bytes"),
        "block-cache-capacity" => database().memory_budget_bytes,
        "num-snapshots" => database().open_snapshots,
        "num-live-versions" => 1,
        "background-errors" => u64::from(database().background_failure.is_some()),
        "min-log-number-to-keep"
        | "num-entries-active-mem-table"
        | "num-entries-imm-mem-tables"
        | "num-deletes-active-mem-table"
        | "num-deletes-imm-mem-tables"
        | "num-immutable-mem-table"
        | "num-immutable-mem-table-flushed"
        | "mem-table-flush-pending"
        | "compaction-pending"
        | "num-running-flushes"
        | "num-running-compactions"
        | "block-cache-pinned-usage"
        | "actual-delayed-write-rate"
        | "is-write-stopped"
        | "is-file-deletions-enabled"
        | "oldest-snapshot-time"
        | "base-level" => 0,
        _ => return Ok(None),
    }))
}

/// Returns the statistics of a column family as a text.
fn family_stats(family: &Family) -> Result<String, Status> {
    let levels = sizes::levels_text(&family.table.stats()?);
    Ok(format!("** Compaction Stats [{}] **\n{levels}", family.name))
}

/// Returns the statistics of a database as a text.
fn database_stats(core: &Core) -> String {
    let stats = core.store.database.stats();
    let (commits, stalls) = (stats.commits_total, stats.write_stalls_total);
    format!("** DB Stats **\nCommits: {commits}\nStalls: {stalls}\n")
}

/// Returns the text of a property. `None`: there is no such property.
fn property(core: &Core, family: &Family, name: &[u8]) -> Result<Option<String>, Status> {
    let name = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix("rocksdb."));
    let Some(name) = name else { return Ok(None) };
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let level = level.parse::<usize>().ok().filter(|level| *level < LEVELS);
        let files = sizes::files(&family.table.stats()?);
        return Ok(level.map(|level| if level == 0 { files } else { 0 }.to_string()));
    }
    match name {
        "levelstats" | "sstables" => Ok(Some(sizes::levels_text(&family.table.stats()?))),
        "cfstats" | "cfstats-no-file-histogram" => Ok(Some(family_stats(family)?)),
        "dbstats" => Ok(Some(database_stats(core))),
        "stats" => Ok(Some(family_stats(family)? + &database_stats(core))),
        _ => Ok(number(core, family, name)?.map(|number| number.to_string())),
    }
}

fn copied(value: Result<Option<String>, Status>) -> Allocated {
    let value = value.ok().flatten();
    value.map_or(Allocated::NULL, |value| Allocated::copy(value.as_bytes()))
}

/// Stores a property that is a number. Returns 0, or -1 if there is none.
pub fn give_number(
    core: &Core,
    family: &Family,
    name: Text,
    out: Out<'_, u64>,
) -> Result<c_int, Status> {
    let name = name.text()?;
    let name = name.strip_prefix("rocksdb.");
    let found = name.map(|name| number(core, family, name)).transpose()?.flatten();
    Ok(found.map_or(-1, |number| {
        give(out, number);
        0
    }))
}

/// Returns the text of a property of the default family.
pub fn default_property(core: &Core, name: Text) -> Allocated {
    copied((|| property(core, core.default_family()?, name.bytes()?))())
}

fn core(db: Option<&Db>) -> Result<&Core, Status> {
    Ok(&required(db, "the database")?.core)
}

/// Ranges of keys of the program.
struct Ranges {
    count: c_int,
    starts: Array<Bytes>,
    start_sizes: Array<usize>,
    limits: Array<Bytes>,
    limit_sizes: Array<usize>,
}

fn approximate_sizes(
    family: &Family,
    ranges: &Ranges,
    results: &mut OutArray<u64>,
) -> Result<(), Status> {
    let negative = |_| Status::invalid("the count is negative");
    let count = usize::try_from(ranges.count).map_err(negative)?;
    let starts = ranges.starts.items(count)?.iter().zip(ranges.start_sizes.items(count)?);
    let limits = ranges.limits.items(count)?.iter().zip(ranges.limit_sizes.items(count)?);
    let results: &mut [MaybeUninit<u64>] = results.items(count)?;
    for (((start, start_size), (limit, limit_size)), result) in starts.zip(limits).zip(results) {
        let (start, limit) = (start.items(*start_size)?, limit.items(*limit_size)?);
        result.write(match family.history {
            Some(_) => {
                let (start, limit) = (timestamps::start(start), timestamps::start(limit));
                sizes::approximate_bytes(&family.table, &start, &limit)?
            }
            None => sizes::approximate_bytes(&family.table, start, limit)?,
        });
    }
    Ok(())
}

export_fallible! {
    /// Stores about how many bytes the entries of each range take.
    pub fn rocksdb_approximate_sizes(
        db: Option<&Db>, count: c_int, starts: Array<Bytes>, start_sizes: Array<usize>,
        limits: Array<Bytes>, limit_sizes: Array<usize>, results: OutArray<u64>,
    ) {
        let mut results = results;
        let ranges = Ranges { count, starts, start_sizes, limits, limit_sizes };
        approximate_sizes(core(db)?.default_family()?, &ranges, &mut results)
    }

    /// Stores about how many bytes the entries of each range of a column family take.
    pub fn rocksdb_approximate_sizes_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, count: c_int, starts: Array<Bytes>,
        start_sizes: Array<usize>, limits: Array<Bytes>, limit_sizes: Array<usize>,
        results: OutArray<u64>,
    ) {
        core(db)?;
        let mut results = results;
        let ranges = Ranges { count, starts, start_sizes, limits, limit_sizes };
        approximate_sizes(family_of(family)?, &ranges, &mut results)
    }
}

export! {
    /// Returns the text of a property, to be released by `rocksdb_free`. Null if there is none.
    pub fn rocksdb_property_value(db: Option<&Db>, name: Text) -> Allocated, Allocated::NULL, {
        db.map_or(Allocated::NULL, |db| default_property(&db.core, name))
    }

    /// Returns the text of a property of a column family, to be released by `rocksdb_free`.
    pub fn rocksdb_property_value_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, name: Text,
    ) -> Allocated, Allocated::NULL, {
        copied((|| property(core(db)?, family_of(family)?, name.bytes()?))())
    }

    /// Stores a property that is a number. Returns 0, or -1 if there is none.
    pub fn rocksdb_property_int(
        db: Option<&Db>, name: Text, out: Out<'_, u64>,
    ) -> c_int, -1, {
        let give = || give_number(core(db)?, core(db)?.default_family()?, name, out);
        give().unwrap_or(-1)
    }

    /// Stores a property of a column family that is a number. Returns 0, or -1 if there is none.
    pub fn rocksdb_property_int_cf(
        db: Option<&Db>, family: Option<&FamilyHandle>, name: Text, out: Out<'_, u64>,
    ) -> c_int, -1, {
        (|| give_number(core(db)?, family_of(family)?, name, out))().unwrap_or(-1)
    }

    /// Returns a number that grows with each commit.
    pub fn rocksdb_get_latest_sequence_number(db: Option<&Db>) -> u64, 0, {
        let snapshot = db.and_then(|db| db.core.present().ok());
        snapshot.map_or(0, |snapshot| snapshot.lsn().0)
    }
}
