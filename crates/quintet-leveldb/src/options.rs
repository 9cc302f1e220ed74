//! Options of databases, reads and writes.

use std::ffi::c_int;

use quintet::{Durability, Options};
use quintet_compat::{
    boundary::Foreign,
    comparator::{Comparator, ComparatorCalls},
    engines::{TableRequest, without_merges},
    export,
    snapshot::{SnapshotObject, SnapshotReference},
    store::{DEFAULT_FAMILY, FamilyRequest, FamilyRules, OpenRequest},
};

use crate::objects::{Cache, Env, FilterPolicy};

/// No compression, as LevelDB numbers it. The other number is Snappy.
const NO_COMPRESSION: c_int = 0;
/// Least memory budget of a database in bytes. A smaller cache of LevelDB has write buffers, files
/// and indexes beside it.
const MEMORY_BUDGET_MIN: u64 = 64 << 20;
/// Write buffers that are in memory at a time, with those that are being written.
const WRITE_BUFFERS: u64 = 4;

/// `leveldb_options_t`.
#[derive(Debug, Default)]
pub struct DatabaseOptions {
    comparator: Option<ComparatorCalls>,
    create_if_missing: bool,
    error_if_exists: bool,
    write_buffer_size: Option<usize>,
    cache_bytes: Option<usize>,
    block_size: Option<usize>,
    compression: Option<c_int>,
}

impl DatabaseOptions {
    /// Returns the options of the database.
    pub fn options(&self) -> Options {
        let Some(cache) = self.cache_bytes else { return Options::new() };
        let buffers =
            bytes(self.write_buffer_size.unwrap_or_default()).saturating_mul(WRITE_BUFFERS);
        Options::new().memory_budget(bytes(cache).saturating_add(buffers).max(MEMORY_BUDGET_MIN))
    }

    /// Returns the callbacks of the comparator, unless it is the default one.
    pub fn comparator(&self) -> Option<ComparatorCalls> {
        self.comparator
    }

    /// Returns how the database is opened.
    pub fn request(&self) -> OpenRequest {
        let compression =
            self.compression.map(|kind| if kind == NO_COMPRESSION { "none" } else { "lz4" });
        let table = TableRequest {
            memtable_bytes: self.write_buffer_size.map(bytes),
            block_bytes: self.block_size.map(bytes),
            compression,
            ..TableRequest::default()
        };
        let family =
            FamilyRequest { name: DEFAULT_FAMILY.to_owned(), table, comparator: self.comparator };
        OpenRequest {
            create_if_missing: self.create_if_missing,
            error_if_exists: self.error_if_exists,
            family_rules: FamilyRules::default(),
            // Tables name the operator, so that programs of RocksDB's interface can merge later.
            options: without_merges(self.options()),
            families: vec![family],
        }
    }
}

fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// `leveldb_readoptions_t`.
#[derive(Debug, Default)]
pub struct ReadOptions {
    pub(crate) snapshot: SnapshotReference,
}

/// `leveldb_writeoptions_t`.
#[derive(Debug, Default)]
pub struct WriteOptions {
    sync: bool,
}

impl WriteOptions {
    /// Returns the durability of a write.
    pub fn durability(&self) -> Durability {
        if self.sync { Durability::Sync } else { Durability::Buffered }
    }
}

fn set<T>(object: Option<&mut T>, change: impl FnOnce(&mut T)) {
    if let Some(object) = object {
        change(object);
    }
}

export! {
    /// Makes options with LevelDB's defaults.
    pub fn leveldb_options_create() -> Option<Box<DatabaseOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options.
    pub fn leveldb_options_destroy(options: Option<Box<DatabaseOptions>>) {
        drop(options);
    }

    /// Sets the comparator, which must live longer than the databases. Opening fails unless it
    /// orders keys by their bytes.
    pub fn leveldb_options_set_comparator(
        options: Option<&mut DatabaseOptions>, comparator: Option<&Comparator>,
    ) {
        set(options, |options| options.comparator = comparator.map(Comparator::calls));
    }

    /// Does nothing: the engines find absent keys without a filter.
    pub fn leveldb_options_set_filter_policy(
        _options: Option<&mut DatabaseOptions>, _policy: Option<&FilterPolicy>,
    ) {}

    /// Sets whether a missing database is created.
    pub fn leveldb_options_set_create_if_missing(
        options: Option<&mut DatabaseOptions>, value: u8,
    ) {
        set(options, |options| options.create_if_missing = value != 0);
    }

    /// Sets whether an existing database is refused.
    pub fn leveldb_options_set_error_if_exists(
        options: Option<&mut DatabaseOptions>, value: u8,
    ) {
        set(options, |options| options.error_if_exists = value != 0);
    }

    /// Does nothing: checksums are always verified.
    pub fn leveldb_options_set_paranoid_checks(
        _options: Option<&mut DatabaseOptions>, _value: u8,
    ) {}

    /// Does nothing: there is one environment.
    pub fn leveldb_options_set_env(_options: Option<&mut DatabaseOptions>, _env: Option<&Env>) {}

    /// Does nothing: there is no log of messages.
    pub fn leveldb_options_set_info_log(_options: Option<&mut DatabaseOptions>, _log: Foreign) {}

    /// Sets the size of a memtable of a new database.
    pub fn leveldb_options_set_write_buffer_size(
        options: Option<&mut DatabaseOptions>, size: usize,
    ) {
        set(options, |options| options.write_buffer_size = Some(size));
    }

    /// Does nothing: the database bounds its open files by itself.
    pub fn leveldb_options_set_max_open_files(
        _options: Option<&mut DatabaseOptions>, _count: c_int,
    ) {}

    /// Bounds the memory of the database: the cache and four write buffers, at least 64 MiB.
    pub fn leveldb_options_set_cache(
        options: Option<&mut DatabaseOptions>, cache: Option<&Cache>,
    ) {
        set(options, |options| options.cache_bytes = cache.map(Cache::capacity));
    }

    /// Sets the size of a block of a new database.
    pub fn leveldb_options_set_block_size(options: Option<&mut DatabaseOptions>, size: usize) {
        set(options, |options| options.block_size = Some(size));
    }

    /// Does nothing: blocks have an offset for each entry.
    pub fn leveldb_options_set_block_restart_interval(
        _options: Option<&mut DatabaseOptions>, _interval: c_int,
    ) {}

    /// Does nothing: the engine chooses the size of its files.
    pub fn leveldb_options_set_max_file_size(
        _options: Option<&mut DatabaseOptions>, _size: usize,
    ) {}

    /// Sets whether blocks of a new database are compressed: 0 is no, other numbers are LZ4.
    pub fn leveldb_options_set_compression(options: Option<&mut DatabaseOptions>, kind: c_int) {
        set(options, |options| options.compression = Some(kind));
    }

    /// Makes read options without a snapshot.
    pub fn leveldb_readoptions_create() -> Option<Box<ReadOptions>>, None, {
        Some(Box::default())
    }

    /// Frees read options.
    pub fn leveldb_readoptions_destroy(options: Option<Box<ReadOptions>>) {
        drop(options);
    }

    /// Does nothing: checksums are always verified.
    pub fn leveldb_readoptions_set_verify_checksums(
        _options: Option<&mut ReadOptions>, _value: u8,
    ) {}

    /// Does nothing: the cache admits blocks by their use.
    pub fn leveldb_readoptions_set_fill_cache(_options: Option<&mut ReadOptions>, _value: u8) {}

    /// Sets the snapshot to read. Null: the present state.
    pub fn leveldb_readoptions_set_snapshot(
        options: Option<&mut ReadOptions>, snapshot: Option<&SnapshotObject>,
    ) {
        let snapshot = SnapshotReference::to(snapshot);
        set(options, |options| options.snapshot = snapshot);
    }

    /// Makes write options without `sync`.
    pub fn leveldb_writeoptions_create() -> Option<Box<WriteOptions>>, None, {
        Some(Box::default())
    }

    /// Frees write options.
    pub fn leveldb_writeoptions_destroy(options: Option<Box<WriteOptions>>) {
        drop(options);
    }

    /// Sets whether a write returns only when it survives a power loss.
    pub fn leveldb_writeoptions_set_sync(options: Option<&mut WriteOptions>, value: u8) {
        set(options, |options| options.sync = value != 0);
    }
}
