//! Options of databases and column families.

mod statistics;
mod table;

use std::sync::Arc;

use quintet::Options;
use quintet_compat::{
    boundary::{Aliased, Allocated, Foreign, Text},
    comparator::{Comparator, ComparatorCalls},
    engines::TableRequest,
    export, export_fallible,
    status::Status,
    store::FamilyRequest,
};

use crate::{
    callbacks::{MergeOperator, PrefixExtractor},
    environment::Environment,
    filters::{CompactionFilter, FilterFactory, FilterSource},
    kept::OptionNumbers,
    objects::{Cache, Env, RateLimiter},
};

use statistics::Statistics;
use table::BlockBasedOptions;

/// Size of a write buffer in bytes, as RocksDB has it.
const WRITE_BUFFER_BYTES: u64 = 64 << 20;
/// Least memory budget of a database in bytes. A smaller cache of RocksDB has write buffers, files
/// and indexes beside it.
const MEMORY_BUDGET_MIN: u64 = 64 << 20;
/// Write buffers that are in memory at a time, with those that are being written.
const WRITE_BUFFERS: u64 = 4;
/// Most bytes of log that a database keeps for iterators over it.
const LOG_RETENTION_MAX: u64 = 1 << 40;
/// Bytes of log that are kept if RocksDB's options limit the time and not the size. An open
/// iterator keeps as much.
const LOG_RETENTION_TIMED: u64 = 1 << 30;
/// No compression, as RocksDB numbers it.
const NO_COMPRESSION: i32 = 0;
/// Zstandard, as RocksDB numbers it.
const ZSTD: i32 = 7;

/// The options that keep the log: its size in MiB, and its age.
const WAL_SIZE_LIMIT: &str = "rocksdb_options_set_WAL_size_limit_MB";
const WAL_TTL: &str = "rocksdb_options_set_WAL_ttl_seconds";

/// `rocksdb_options_t`.
#[derive(Clone, Debug, Default)]
pub struct DatabaseOptions {
    pub(crate) kept: OptionNumbers,
    pub(crate) table: Option<BlockBasedOptions>,
    statistics: Option<Statistics>,
    comparator: Option<ComparatorCalls>,
    merge: Option<Arc<MergeOperator>>,
    prefix: Option<Arc<PrefixExtractor>>,
    filter: Option<FilterSource>,
    engine: Option<String>,
    environment: Environment,
}

impl DatabaseOptions {
    /// Makes options with the defaults of RocksDB and a cache.
    pub fn cached(cache: Option<&Cache>) -> Self {
        let table = cache.map(|cache| BlockBasedOptions::cached(cache.clone()));
        Self { table, ..Self::default() }
    }

    fn is_set(&self, name: &str) -> bool {
        self.kept.get::<u8>(name).is_some_and(|value| value != 0)
    }

    /// Returns where the files of databases are.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns where the files of databases of options are. Null: on disk.
    pub fn environment_of(options: Option<&Self>) -> Environment {
        options.map(|options| options.environment.clone()).unwrap_or_default()
    }

    /// Returns options of databases in an environment.
    pub fn of_environment(mut self, environment: &Environment) -> Self {
        self.environment = environment.clone();
        self
    }

    /// Returns whether a missing database is created.
    pub fn creates_missing(&self) -> bool {
        self.is_set("rocksdb_options_set_create_if_missing")
    }

    /// Returns whether missing column families are created.
    pub fn creates_missing_families(&self) -> bool {
        self.is_set("rocksdb_options_set_create_missing_column_families")
    }

    /// Returns whether an existing database is refused.
    pub fn refuses_existing(&self) -> bool {
        self.is_set("rocksdb_options_set_error_if_exists")
    }

    /// Returns the size of a write buffer, if it was set.
    fn write_buffer_bytes(&self) -> Option<u64> {
        let size = self.kept.get::<usize>("rocksdb_options_set_write_buffer_size");
        size.and_then(|size| u64::try_from(size).ok())
    }

    /// Returns the bytes of log that stay for iterators although no table needs them.
    fn log_retention(&self) -> u64 {
        let number = |name| self.kept.get::<u64>(name).unwrap_or(0);
        match number(WAL_SIZE_LIMIT) {
            0 if number(WAL_TTL) > 0 => LOG_RETENTION_TIMED,
            megabytes => megabytes.saturating_mul(1 << 20).min(LOG_RETENTION_MAX),
        }
    }

    /// Returns the options of the database.
    pub fn options(&self) -> Options {
        let options = Options::new().log_retention(self.log_retention());
        let cache = self.table.as_ref().and_then(BlockBasedOptions::cache_bytes);
        let Some(cache) = cache.and_then(|bytes| u64::try_from(bytes).ok()) else {
            return options;
        };
        let buffer = self.write_buffer_bytes().unwrap_or(WRITE_BUFFER_BYTES);
        let bytes = cache.saturating_add(buffer.saturating_mul(WRITE_BUFFERS));
        options.memory_budget(bytes.max(MEMORY_BUDGET_MIN))
    }

    /// Returns what the table of a column family is asked for.
    pub fn family(&self, name: String) -> FamilyRequest {
        let compression = self.kept.get::<i32>("rocksdb_options_set_compression");
        let compression = compression.map(|kind| match kind {
            NO_COMPRESSION => "none",
            ZSTD => "zstd",
            _ => "lz4",
        });
        let block_bytes = self.table.as_ref().and_then(BlockBasedOptions::block_bytes);
        let table = TableRequest {
            memtable_bytes: self.write_buffer_bytes(),
            block_bytes: block_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            compression,
            engine: self.engine.clone(),
        };
        FamilyRequest { name, table, comparator: self.comparator }
    }

    /// Returns the merge operator.
    pub fn merge(&self) -> Option<&Arc<MergeOperator>> {
        self.merge.as_ref()
    }

    /// Returns the cache.
    pub fn cache(&self) -> Option<&Cache> {
        self.table.as_ref().and_then(BlockBasedOptions::cache)
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> Option<&Statistics> {
        self.statistics.as_ref()
    }

    /// Returns the callbacks of the comparator.
    pub fn comparator(&self) -> Option<ComparatorCalls> {
        self.comparator
    }

    /// Returns the compaction filter.
    pub fn filter(&self) -> Option<&FilterSource> {
        self.filter.as_ref()
    }

    /// Returns whether files may be ingested behind the entries.
    pub fn allows_ingest_behind(&self) -> bool {
        self.is_set("rocksdb_options_set_allow_ingest_behind")
    }

    /// Returns the prefix extractor.
    pub fn prefix(&self) -> Option<&Arc<PrefixExtractor>> {
        self.prefix.as_ref()
    }
}

fn set<T>(object: Option<&mut T>, change: impl FnOnce(&mut T)) {
    if let Some(object) = object {
        change(object);
    }
}

/// Sets the options of a text such as `engine=btree;write_buffer_size=1000000`.
fn set_from_text(options: &mut DatabaseOptions, text: &str) -> Result<(), Status> {
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) =
            part.split_once('=').ok_or_else(|| Status::invalid(format!("no value: {part}")))?;
        let flag = || match value.trim() {
            "true" | "1" => Ok(1_u8),
            "false" | "0" => Ok(0_u8),
            _ => Err(Status::invalid(format!("{name}: {value} is neither true nor false"))),
        };
        let number = || {
            let number = value.trim().parse::<u64>();
            number.map_err(|_| Status::invalid(format!("{name}: {value} is no number")))
        };
        match name.trim() {
            "engine" => options.engine = Some(value.trim().to_owned()),
            "create_if_missing" => {
                options.kept.set("rocksdb_options_set_create_if_missing", flag()?);
            }
            "create_missing_column_families" => {
                options.kept.set("rocksdb_options_set_create_missing_column_families", flag()?);
            }
            "error_if_exists" => options.kept.set("rocksdb_options_set_error_if_exists", flag()?),
            "write_buffer_size" => {
                let size = usize::try_from(number()?).unwrap_or(usize::MAX);
                options.kept.set("rocksdb_options_set_write_buffer_size", size);
            }
            "WAL_size_limit_MB" => options.kept.set(WAL_SIZE_LIMIT, number()?),
            "WAL_ttl_seconds" => options.kept.set(WAL_TTL, number()?),
            // Options that would have no effect are accepted by their setters too.
            _ => {}
        }
    }
    Ok(())
}

export! {
    /// Makes options with the defaults of RocksDB.
    pub fn rocksdb_options_create() -> Option<Box<DatabaseOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options.
    pub fn rocksdb_options_destroy(options: Option<Box<DatabaseOptions>>) {
        drop(options);
    }

    /// Makes a copy of options.
    pub fn rocksdb_options_create_copy(
        options: Option<&DatabaseOptions>,
    ) -> Option<Box<DatabaseOptions>>, None, {
        options.map(|options| Box::new(options.clone()))
    }

    /// Sets the comparator, which must live longer than the databases. Opening fails unless it
    /// orders keys by their bytes.
    pub fn rocksdb_options_set_comparator(
        options: Option<&mut DatabaseOptions>, comparator: Option<&Comparator>,
    ) {
        set(options, |options| options.comparator = comparator.map(Comparator::calls));
    }

    /// Sets the merge operator, which belongs to the options and to the databases then.
    pub fn rocksdb_options_set_merge_operator(
        options: Option<&mut DatabaseOptions>, operator: Option<Box<MergeOperator>>,
    ) {
        set(options, |options| options.merge = operator.map(Arc::from));
    }

    /// Sets the compaction filter, which must live longer than the databases.
    pub fn rocksdb_options_set_compaction_filter(
        options: Option<&mut DatabaseOptions>, filter: Option<&CompactionFilter>,
    ) {
        let filter = filter.map(|filter| FilterSource::One(filter.calls()));
        set(options, |options| options.filter = filter);
    }

    /// Sets what makes compaction filters, which belongs to the options and to the databases then.
    pub fn rocksdb_options_set_compaction_filter_factory(
        options: Option<&mut DatabaseOptions>, factory: Option<Box<FilterFactory>>,
    ) {
        let factory = factory.map(|factory| FilterSource::Factory(factory.into()));
        set(options, |options| options.filter = factory);
    }

    /// Sets the merge operator that adds numbers of 64 bits, little-endian.
    pub fn rocksdb_options_set_uint64add_merge_operator(options: Option<&mut DatabaseOptions>) {
        set(options, |options| options.merge = Some(Arc::new(MergeOperator::ADD)));
    }

    /// Sets the size of blocks of a new column family, and the cache.
    pub fn rocksdb_options_set_block_based_table_factory(
        options: Option<&mut DatabaseOptions>, table: Option<&BlockBasedOptions>,
    ) {
        if let Some(options) = options {
            options.table = table.cloned();
        }
    }

    /// Sets the prefix extractor, which belongs to the options and to the databases then.
    pub fn rocksdb_options_set_prefix_extractor(
        options: Option<&mut DatabaseOptions>, extractor: Option<Box<PrefixExtractor>>,
    ) {
        set(options, |options| options.prefix = extractor.map(Arc::from));
    }

    /// Sets the environment of databases. Null: the default one. The options keep it.
    pub fn rocksdb_options_set_env(options: Option<&mut DatabaseOptions>, env: Option<&Env>) {
        set(options, |options| options.environment = Env::environment(env));
    }

    /// Does nothing: there is no log of messages.
    pub fn rocksdb_options_set_info_log(_options: Option<&mut DatabaseOptions>, _log: Foreign) {}

    /// Does nothing: all files are in the directory of the database.
    pub fn rocksdb_options_set_db_paths(
        _options: Option<&mut DatabaseOptions>, _paths: Foreign, _count: usize,
    ) {}

    /// Does nothing: all files are in the directory of the database.
    pub fn rocksdb_options_set_db_log_dir(_options: Option<&mut DatabaseOptions>, _path: Text) {}

    /// Does nothing: the log is in the directory of the database.
    pub fn rocksdb_options_set_wal_dir(_options: Option<&mut DatabaseOptions>, _path: Text) {}

    /// Does nothing: background work limits itself.
    pub fn rocksdb_options_set_ratelimiter(
        _options: Option<&mut DatabaseOptions>, _limiter: Option<&RateLimiter>,
    ) {}

    /// Does nothing: there is one cache.
    pub fn rocksdb_options_set_row_cache(
        _options: Option<&mut DatabaseOptions>, _cache: Option<&Cache>,
    ) {}

    /// Does nothing: there is one cache.
    pub fn rocksdb_options_set_blob_cache(
        _options: Option<&mut DatabaseOptions>, _cache: Option<&Cache>,
    ) {}

    /// Starts the statistics of the databases that are opened with the options or a copy of them.
    pub fn rocksdb_options_enable_statistics(options: Option<&mut DatabaseOptions>) {
        set(options, |options| options.statistics = Some(Statistics::default()));
    }

    /// Returns a line for each counter, to be released by `rocksdb_free`. Null if the options have
    /// no statistics.
    pub fn rocksdb_options_statistics_get_string(
        options: Option<&DatabaseOptions>,
    ) -> Allocated, Allocated::NULL, {
        let statistics = options.and_then(|options| options.statistics.as_ref());
        statistics.map_or(Allocated::NULL, |all| Allocated::copy(all.text().as_bytes()))
    }

    /// Does nothing: a load needs no other options.
    pub fn rocksdb_options_prepare_for_bulk_load(_options: Option<&mut DatabaseOptions>) {}

    /// Does nothing: the engine compacts what has many deletes.
    pub fn rocksdb_options_add_compact_on_deletion_collector_factory(
        _options: Option<&mut DatabaseOptions>, _window: usize, _trigger: usize,
    ) {}
}

export_fallible! {
    /// Copies options, and changes those that a text names. `engine` is the engine of new column
    /// families. Names without an effect are ignored.
    pub fn rocksdb_get_options_from_string(
        base: Aliased<DatabaseOptions>, text: Text, options: Aliased<DatabaseOptions>,
    ) {
        let mut options = options;
        let mut new = base.cloned().unwrap_or_default();
        set_from_text(&mut new, &text.text()?)?;
        options.replace(new);
        Ok(())
    }
}
