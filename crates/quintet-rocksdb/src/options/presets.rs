//! Functions that set several options at once. They set what RocksDB sets, so that getters return
//! it. Of that, only the size of memtables has an effect.

use quintet_compat::export;

use super::database::DatabaseOptions;

/// Sets the options of memtables, which share a budget in bytes.
fn set_memtables(options: &mut DatabaseOptions, budget: u64) {
    let kept = &mut options.kept;
    kept.set("rocksdb_options_set_write_buffer_size", budget / 4);
    kept.set("rocksdb_options_set_min_write_buffer_number_to_merge", 2);
    kept.set("rocksdb_options_set_max_write_buffer_number", 6);
}

export! {
    /// Sets memtables of a quarter of a budget in bytes, and options that are only kept.
    pub fn rocksdb_options_optimize_level_style_compaction(
        options: Option<&mut DatabaseOptions>, budget: u64,
    ) {
        if let Some(options) = options {
            set_memtables(options, budget);
            let kept = &mut options.kept;
            kept.set("rocksdb_options_set_level0_file_num_compaction_trigger", 2);
            kept.set("rocksdb_options_set_target_file_size_base", budget / 8);
            kept.set("rocksdb_options_set_max_bytes_for_level_base", budget);
            kept.set("rocksdb_options_set_compaction_style", 0);
        }
    }

    /// Sets memtables of a quarter of a budget in bytes, and options that are only kept.
    pub fn rocksdb_options_optimize_universal_style_compaction(
        options: Option<&mut DatabaseOptions>, budget: u64,
    ) {
        if let Some(options) = options {
            set_memtables(options, budget);
            options.kept.set("rocksdb_options_set_compaction_style", 1);
        }
    }

    /// Keeps a number of background jobs.
    pub fn rocksdb_options_increase_parallelism(
        options: Option<&mut DatabaseOptions>, threads: i32,
    ) {
        if let Some(options) = options {
            options.kept.set("rocksdb_options_set_max_background_jobs", threads);
        }
    }

    /// Keeps a share of memtables for a filter.
    pub fn rocksdb_options_optimize_for_point_lookup(
        options: Option<&mut DatabaseOptions>, _cache_mib: u64,
    ) {
        if let Some(options) = options {
            options.kept.set("rocksdb_options_set_memtable_prefix_bloom_size_ratio", 0.02);
            options.kept.set("rocksdb_options_set_memtable_whole_key_filtering", 1_u8);
        }
    }
}
