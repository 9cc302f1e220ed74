//! Options of compaction styles and of table formats. They are kept for their getters.

use quintet_compat::{boundary::Foreign, export};

use crate::{
    kept::{OptionNumbers, kept},
    options::database::DatabaseOptions,
};

/// The setter of an option that has a flag beside its value.
const BOTTOMMOST_TRAINER: &str =
    "rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer";

/// `rocksdb_universal_compaction_options_t`.
#[derive(Clone, Debug, Default)]
pub struct UniversalOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes options of universal compaction with the defaults of RocksDB.
    pub fn rocksdb_universal_compaction_options_create() -> Option<Box<UniversalOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of universal compaction.
    pub fn rocksdb_universal_compaction_options_destroy(options: Option<Box<UniversalOptions>>) {
        drop(options);
    }
}

kept! { UniversalOptions {
    rocksdb_universal_compaction_options_set_size_ratio(i32)
        => rocksdb_universal_compaction_options_get_size_ratio -> i32 = 1;
    rocksdb_universal_compaction_options_set_min_merge_width(i32)
        => rocksdb_universal_compaction_options_get_min_merge_width -> i32 = 2;
    rocksdb_universal_compaction_options_set_max_merge_width(i32)
        => rocksdb_universal_compaction_options_get_max_merge_width -> i32 = -1;
    rocksdb_universal_compaction_options_set_max_size_amplification_percent(i32)
        => rocksdb_universal_compaction_options_get_max_size_amplification_percent -> i32 = 200;
    rocksdb_universal_compaction_options_set_compression_size_percent(i32)
        => rocksdb_universal_compaction_options_get_compression_size_percent -> i32 = -1;
    rocksdb_universal_compaction_options_set_stop_style(i32)
        => rocksdb_universal_compaction_options_get_stop_style -> i32 = 1;
} }

/// `rocksdb_fifo_compaction_options_t`.
#[derive(Clone, Debug, Default)]
pub struct FifoOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes options of FIFO compaction with the defaults of RocksDB.
    pub fn rocksdb_fifo_compaction_options_create() -> Option<Box<FifoOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of FIFO compaction.
    pub fn rocksdb_fifo_compaction_options_destroy(options: Option<Box<FifoOptions>>) {
        drop(options);
    }
}

kept! { FifoOptions {
    rocksdb_fifo_compaction_options_set_max_table_files_size(u64)
        => rocksdb_fifo_compaction_options_get_max_table_files_size -> u64 = 1_073_741_824;
} }

/// `rocksdb_cuckoo_table_options_t`.
#[derive(Clone, Debug, Default)]
pub struct CuckooOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes options of cuckoo tables with the defaults of RocksDB.
    pub fn rocksdb_cuckoo_options_create() -> Option<Box<CuckooOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of cuckoo tables.
    pub fn rocksdb_cuckoo_options_destroy(options: Option<Box<CuckooOptions>>) {
        drop(options);
    }
}

kept! { CuckooOptions {
    rocksdb_cuckoo_options_set_hash_ratio(f64);
    rocksdb_cuckoo_options_set_max_search_depth(u32);
    rocksdb_cuckoo_options_set_cuckoo_block_size(u32);
    rocksdb_cuckoo_options_set_identity_as_first_hash(u8);
    rocksdb_cuckoo_options_set_use_module_hash(u8);
} }

export! {
    /// Does nothing: the engine has its own compaction.
    pub fn rocksdb_options_set_universal_compaction_options(
        _options: Option<&mut DatabaseOptions>, _style: Option<&UniversalOptions>,
    ) {}

    /// Does nothing: the engine has its own compaction.
    pub fn rocksdb_options_set_fifo_compaction_options(
        _options: Option<&mut DatabaseOptions>, _style: Option<&FifoOptions>,
    ) {}

    /// Does nothing: the engine has its own files.
    pub fn rocksdb_options_set_cuckoo_table_factory(
        _options: Option<&mut DatabaseOptions>, _table: Option<&CuckooOptions>,
    ) {}

    /// Does nothing: the engine has its own files.
    pub fn rocksdb_options_set_plain_table_factory(
        _options: Option<&mut DatabaseOptions>, _key_size: u32, _bloom_bits: i32, _ratio: f64,
        _sparseness: usize,
    ) {}

    /// Does nothing: the engine has its own memtables.
    pub fn rocksdb_options_set_memtable_vector_rep(_options: Option<&mut DatabaseOptions>) {}

    /// Does nothing: the engine has its own memtables.
    pub fn rocksdb_options_set_hash_skip_list_rep(
        _options: Option<&mut DatabaseOptions>, _buckets: usize, _height: i32, _branching: i32,
    ) {}

    /// Does nothing: the engine compresses all blocks alike.
    pub fn rocksdb_options_set_compression_per_level(
        _options: Option<&mut DatabaseOptions>, _levels: Foreign, _count: usize,
    ) {}

    /// Does nothing: compression has no options.
    pub fn rocksdb_options_set_compression_options(
        _options: Option<&mut DatabaseOptions>, _bits: i32, _level: i32, _strategy: i32,
        _dictionary: i32,
    ) {}

    /// Does nothing: the engine compresses all blocks alike.
    pub fn rocksdb_options_set_bottommost_compression_options(
        _options: Option<&mut DatabaseOptions>, _bits: i32, _level: i32, _strategy: i32,
        _dictionary: i32, _enabled: u8,
    ) {}

    /// Does nothing: there are no dictionaries of compression.
    pub fn rocksdb_options_set_bottommost_compression_options_zstd_max_train_bytes(
        _options: Option<&mut DatabaseOptions>, _bytes: i32, _enabled: u8,
    ) {}

    /// Does nothing: there are no dictionaries of compression.
    pub fn rocksdb_options_set_bottommost_compression_options_max_dict_buffer_bytes(
        _options: Option<&mut DatabaseOptions>, _bytes: u64, _enabled: u8,
    ) {}

    /// Keeps a value.
    pub fn rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(
        options: Option<&mut DatabaseOptions>, value: u8, _enabled: u8,
    ) {
        if let Some(options) = options {
            options.kept.set(BOTTOMMOST_TRAINER, value);
        }
    }

    /// Returns the value that was kept, or the default.
    pub fn rocksdb_options_get_bottommost_compression_options_use_zstd_dict_trainer(
        options: Option<&DatabaseOptions>,
    ) -> u8, 1, {
        options.and_then(|options| options.kept.get(BOTTOMMOST_TRAINER)).unwrap_or(1)
    }

    /// Does nothing: the engine has its own levels.
    pub fn rocksdb_options_set_max_bytes_for_level_multiplier_additional(
        _options: Option<&mut DatabaseOptions>, _levels: Foreign, _count: usize,
    ) {}
}
