//! Options of the block-based table format. The size of blocks and the cache have an effect.

use quintet_compat::export;

use crate::{
    kept::{OptionNumbers, kept},
    objects::{Cache, FilterPolicy},
};

/// `rocksdb_block_based_table_options_t`.
#[derive(Clone, Debug, Default)]
pub struct BlockBasedOptions {
    pub(crate) kept: OptionNumbers,
    cache: Option<Cache>,
}

impl BlockBasedOptions {
    /// Makes options with a cache.
    pub fn cached(cache: Cache) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }

    /// Returns the size of a block, if it was set.
    pub fn block_bytes(&self) -> Option<usize> {
        self.kept.get("rocksdb_block_based_options_set_block_size")
    }

    /// Returns the cache.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// Returns the capacity of the cache, if it was set.
    pub fn cache_bytes(&self) -> Option<usize> {
        self.cache.as_ref().map(Cache::capacity)
    }
}

export! {
    /// Makes table options with the defaults of RocksDB.
    pub fn rocksdb_block_based_options_create() -> Option<Box<BlockBasedOptions>>, None, {
        Some(Box::default())
    }

    /// Frees table options.
    pub fn rocksdb_block_based_options_destroy(options: Option<Box<BlockBasedOptions>>) {
        drop(options);
    }

    /// Does nothing: the engines find absent keys without a filter. Frees the policy, which belongs
    /// to the options in RocksDB too.
    pub fn rocksdb_block_based_options_set_filter_policy(
        _options: Option<&mut BlockBasedOptions>, policy: Option<Box<FilterPolicy>>,
    ) {
        drop(policy);
    }

    /// Bounds the memory of a database: the cache and four write buffers, at least 64 MiB.
    pub fn rocksdb_block_based_options_set_block_cache(
        options: Option<&mut BlockBasedOptions>, cache: Option<&Cache>,
    ) {
        if let Some(options) = options {
            options.cache = cache.cloned();
        }
    }

    /// Does nothing: there is no cache of compressed blocks.
    pub fn rocksdb_block_based_options_set_block_cache_compressed(
        _options: Option<&mut BlockBasedOptions>, _cache: Option<&Cache>,
    ) {}
}

kept! { BlockBasedOptions {
    rocksdb_block_based_options_set_checksum(i8);
    rocksdb_block_based_options_set_block_size(usize);
    rocksdb_block_based_options_set_block_size_deviation(i32);
    rocksdb_block_based_options_set_block_restart_interval(i32);
    rocksdb_block_based_options_set_index_block_restart_interval(i32);
    rocksdb_block_based_options_set_metadata_block_size(u64);
    rocksdb_block_based_options_set_partition_filters(u8);
    rocksdb_block_based_options_set_use_delta_encoding(u8);
    rocksdb_block_based_options_set_no_block_cache(u8);
    rocksdb_block_based_options_set_whole_key_filtering(u8);
    rocksdb_block_based_options_set_format_version(i32);
    rocksdb_block_based_options_set_index_type(i32);
    rocksdb_block_based_options_set_data_block_index_type(i32);
    rocksdb_block_based_options_set_data_block_hash_ratio(f64);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(u8);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(u8);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(u8);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(u8);
} }
