//! Options of databases and column families that are numbers. [`super::database`] uses some of
//! them; the others are kept for their getters. The defaults are those of RocksDB.

use super::database::DatabaseOptions;
use crate::kept::kept;

kept! { DatabaseOptions {
    rocksdb_options_set_allow_ingest_behind(u8)
        => rocksdb_options_get_allow_ingest_behind -> u8 = 0;
    rocksdb_options_compaction_readahead_size(usize)
        => rocksdb_options_get_compaction_readahead_size -> usize = 0;
    rocksdb_options_set_create_if_missing(u8) => rocksdb_options_get_create_if_missing -> u8 = 0;
    rocksdb_options_set_create_missing_column_families(u8)
        => rocksdb_options_get_create_missing_column_families -> u8 = 0;
    rocksdb_options_set_error_if_exists(u8) => rocksdb_options_get_error_if_exists -> u8 = 0;
    rocksdb_options_set_paranoid_checks(u8) => rocksdb_options_get_paranoid_checks -> u8 = 1;
    rocksdb_options_set_info_log_level(i32) => rocksdb_options_get_info_log_level -> i32 = 1;
    rocksdb_options_set_write_buffer_size(usize)
        => rocksdb_options_get_write_buffer_size -> usize = 67_108_864;
    rocksdb_options_set_db_write_buffer_size(usize)
        => rocksdb_options_get_db_write_buffer_size -> usize = 0;
    rocksdb_options_set_max_open_files(i32) => rocksdb_options_get_max_open_files -> i32 = -1;
    rocksdb_options_set_max_file_opening_threads(i32)
        => rocksdb_options_get_max_file_opening_threads -> i32 = 16;
    rocksdb_options_set_max_total_wal_size(u64)
        => rocksdb_options_get_max_total_wal_size -> u64 = 0;
    rocksdb_options_set_compression_options_zstd_max_train_bytes(i32)
        => rocksdb_options_get_compression_options_zstd_max_train_bytes -> i32 = 0;
    rocksdb_options_set_compression_options_use_zstd_dict_trainer(u8)
        => rocksdb_options_get_compression_options_use_zstd_dict_trainer -> u8 = 1;
    rocksdb_options_set_compression_options_parallel_threads(i32)
        => rocksdb_options_get_compression_options_parallel_threads -> i32 = 1;
    rocksdb_options_set_compression_options_max_dict_buffer_bytes(u64)
        => rocksdb_options_get_compression_options_max_dict_buffer_bytes -> u64 = 0;
    rocksdb_options_set_num_levels(i32) => rocksdb_options_get_num_levels -> i32 = 7;
    rocksdb_options_set_level0_file_num_compaction_trigger(i32)
        => rocksdb_options_get_level0_file_num_compaction_trigger -> i32 = 4;
    rocksdb_options_set_level0_slowdown_writes_trigger(i32)
        => rocksdb_options_get_level0_slowdown_writes_trigger -> i32 = 20;
    rocksdb_options_set_level0_stop_writes_trigger(i32)
        => rocksdb_options_get_level0_stop_writes_trigger -> i32 = 36;
    rocksdb_options_set_target_file_size_base(u64)
        => rocksdb_options_get_target_file_size_base -> u64 = 67_108_864;
    rocksdb_options_set_target_file_size_multiplier(i32)
        => rocksdb_options_get_target_file_size_multiplier -> i32 = 1;
    rocksdb_options_set_max_bytes_for_level_base(u64)
        => rocksdb_options_get_max_bytes_for_level_base -> u64 = 268_435_456;
    rocksdb_options_set_level_compaction_dynamic_level_bytes(u8)
        => rocksdb_options_get_level_compaction_dynamic_level_bytes -> u8 = 1;
    rocksdb_options_set_max_bytes_for_level_multiplier(f64)
        => rocksdb_options_get_max_bytes_for_level_multiplier -> f64 = 10.0;
    rocksdb_options_set_skip_stats_update_on_db_open(u8)
        => rocksdb_options_get_skip_stats_update_on_db_open -> u8 = 0;
    rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open(u8)
        => rocksdb_options_get_skip_checking_sst_file_sizes_on_db_open -> u8 = 0;
    rocksdb_options_set_enable_blob_files(u8) => rocksdb_options_get_enable_blob_files -> u8 = 0;
    rocksdb_options_set_min_blob_size(u64) => rocksdb_options_get_min_blob_size -> u64 = 0;
    rocksdb_options_set_blob_file_size(u64)
        => rocksdb_options_get_blob_file_size -> u64 = 268_435_456;
    rocksdb_options_set_blob_compression_type(i32)
        => rocksdb_options_get_blob_compression_type -> i32 = 0;
    rocksdb_options_set_enable_blob_gc(u8) => rocksdb_options_get_enable_blob_gc -> u8 = 0;
    rocksdb_options_set_blob_gc_age_cutoff(f64)
        => rocksdb_options_get_blob_gc_age_cutoff -> f64 = 0.25;
    rocksdb_options_set_blob_gc_force_threshold(f64)
        => rocksdb_options_get_blob_gc_force_threshold -> f64 = 1.0;
    rocksdb_options_set_blob_compaction_readahead_size(u64)
        => rocksdb_options_get_blob_compaction_readahead_size -> u64 = 0;
    rocksdb_options_set_blob_file_starting_level(i32)
        => rocksdb_options_get_blob_file_starting_level -> i32 = 0;
    rocksdb_options_set_prepopulate_blob_cache(i32)
        => rocksdb_options_get_prepopulate_blob_cache -> i32 = 0;
    rocksdb_options_set_max_write_buffer_number(i32)
        => rocksdb_options_get_max_write_buffer_number -> i32 = 2;
    rocksdb_options_set_min_write_buffer_number_to_merge(i32)
        => rocksdb_options_get_min_write_buffer_number_to_merge -> i32 = 1;
    rocksdb_options_set_max_write_buffer_number_to_maintain(i32)
        => rocksdb_options_get_max_write_buffer_number_to_maintain -> i32 = 0;
    rocksdb_options_set_max_write_buffer_size_to_maintain(i64)
        => rocksdb_options_get_max_write_buffer_size_to_maintain -> i64 = 0;
    rocksdb_options_set_enable_pipelined_write(u8)
        => rocksdb_options_get_enable_pipelined_write -> u8 = 0;
    rocksdb_options_set_unordered_write(u8) => rocksdb_options_get_unordered_write -> u8 = 0;
    rocksdb_options_set_max_subcompactions(u32)
        => rocksdb_options_get_max_subcompactions -> u32 = 1;
    rocksdb_options_set_max_background_jobs(i32)
        => rocksdb_options_get_max_background_jobs -> i32 = 2;
    rocksdb_options_set_max_background_compactions(i32)
        => rocksdb_options_get_max_background_compactions -> i32 = -1;
    rocksdb_options_set_max_background_flushes(i32)
        => rocksdb_options_get_max_background_flushes -> i32 = -1;
    rocksdb_options_set_max_log_file_size(usize)
        => rocksdb_options_get_max_log_file_size -> usize = 0;
    rocksdb_options_set_log_file_time_to_roll(usize)
        => rocksdb_options_get_log_file_time_to_roll -> usize = 0;
    rocksdb_options_set_keep_log_file_num(usize)
        => rocksdb_options_get_keep_log_file_num -> usize = 1000;
    rocksdb_options_set_recycle_log_file_num(usize)
        => rocksdb_options_get_recycle_log_file_num -> usize = 0;
    rocksdb_options_set_soft_pending_compaction_bytes_limit(usize)
        => rocksdb_options_get_soft_pending_compaction_bytes_limit -> usize = 68_719_476_736;
    rocksdb_options_set_hard_pending_compaction_bytes_limit(usize)
        => rocksdb_options_get_hard_pending_compaction_bytes_limit -> usize = 274_877_906_944;
    rocksdb_options_set_max_manifest_file_size(usize)
        => rocksdb_options_get_max_manifest_file_size -> usize = 1_073_741_824;
    rocksdb_options_set_table_cache_numshardbits(i32)
        => rocksdb_options_get_table_cache_numshardbits -> i32 = 6;
    rocksdb_options_set_arena_block_size(usize)
        => rocksdb_options_get_arena_block_size -> usize = 0;
    rocksdb_options_set_use_fsync(i32) => rocksdb_options_get_use_fsync -> i32 = 0;
    rocksdb_options_set_WAL_ttl_seconds(u64) => rocksdb_options_get_WAL_ttl_seconds -> u64 = 0;
    rocksdb_options_set_WAL_size_limit_MB(u64) => rocksdb_options_get_WAL_size_limit_MB -> u64 = 0;
    rocksdb_options_set_manifest_preallocation_size(usize)
        => rocksdb_options_get_manifest_preallocation_size -> usize = 4_194_304;
    rocksdb_options_set_allow_mmap_reads(u8) => rocksdb_options_get_allow_mmap_reads -> u8 = 0;
    rocksdb_options_set_allow_mmap_writes(u8) => rocksdb_options_get_allow_mmap_writes -> u8 = 0;
    rocksdb_options_set_use_direct_reads(u8) => rocksdb_options_get_use_direct_reads -> u8 = 0;
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(u8)
        => rocksdb_options_get_use_direct_io_for_flush_and_compaction -> u8 = 0;
    rocksdb_options_set_is_fd_close_on_exec(u8)
        => rocksdb_options_get_is_fd_close_on_exec -> u8 = 1;
    rocksdb_options_set_stats_dump_period_sec(u32)
        => rocksdb_options_get_stats_dump_period_sec -> u32 = 600;
    rocksdb_options_set_stats_persist_period_sec(u32)
        => rocksdb_options_get_stats_persist_period_sec -> u32 = 600;
    rocksdb_options_set_advise_random_on_open(u8)
        => rocksdb_options_get_advise_random_on_open -> u8 = 1;
    rocksdb_options_set_access_hint_on_compaction_start(i32)
        => rocksdb_options_get_access_hint_on_compaction_start -> i32 = 1;
    rocksdb_options_set_use_adaptive_mutex(u8) => rocksdb_options_get_use_adaptive_mutex -> u8 = 0;
    rocksdb_options_set_bytes_per_sync(u64) => rocksdb_options_get_bytes_per_sync -> u64 = 0;
    rocksdb_options_set_wal_bytes_per_sync(u64)
        => rocksdb_options_get_wal_bytes_per_sync -> u64 = 0;
    rocksdb_options_set_writable_file_max_buffer_size(u64)
        => rocksdb_options_get_writable_file_max_buffer_size -> u64 = 1_048_576;
    rocksdb_options_set_allow_concurrent_memtable_write(u8)
        => rocksdb_options_get_allow_concurrent_memtable_write -> u8 = 1;
    rocksdb_options_set_enable_write_thread_adaptive_yield(u8)
        => rocksdb_options_get_enable_write_thread_adaptive_yield -> u8 = 1;
    rocksdb_options_set_max_sequential_skip_in_iterations(u64)
        => rocksdb_options_get_max_sequential_skip_in_iterations -> u64 = 8;
    rocksdb_options_set_disable_auto_compactions(i32)
        => rocksdb_options_get_disable_auto_compactions -> u8 = 0;
    rocksdb_options_set_optimize_filters_for_hits(i32)
        => rocksdb_options_get_optimize_filters_for_hits -> u8 = 0;
    rocksdb_options_set_delete_obsolete_files_period_micros(u64)
        => rocksdb_options_get_delete_obsolete_files_period_micros -> u64 = 21_600_000_000;
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(f64)
        => rocksdb_options_get_memtable_prefix_bloom_size_ratio -> f64 = 0.0;
    rocksdb_options_set_max_compaction_bytes(u64)
        => rocksdb_options_get_max_compaction_bytes -> u64 = 0;
    rocksdb_options_set_hash_link_list_rep(usize);
    rocksdb_options_set_min_level_to_compress(i32);
    rocksdb_options_set_memtable_huge_page_size(usize)
        => rocksdb_options_get_memtable_huge_page_size -> usize = 0;
    rocksdb_options_set_max_successive_merges(usize)
        => rocksdb_options_get_max_successive_merges -> usize = 0;
    rocksdb_options_set_bloom_locality(u32) => rocksdb_options_get_bloom_locality -> u32 = 0;
    rocksdb_options_set_inplace_update_support(u8)
        => rocksdb_options_get_inplace_update_support -> u8 = 0;
    rocksdb_options_set_inplace_update_num_locks(usize)
        => rocksdb_options_get_inplace_update_num_locks -> usize = 10000;
    rocksdb_options_set_report_bg_io_stats(i32)
        => rocksdb_options_get_report_bg_io_stats -> u8 = 0;
    rocksdb_options_set_avoid_unnecessary_blocking_io(u8)
        => rocksdb_options_get_avoid_unnecessary_blocking_io -> u8 = 0;
    rocksdb_options_set_experimental_mempurge_threshold(f64)
        => rocksdb_options_get_experimental_mempurge_threshold -> f64 = 0.0;
    rocksdb_options_set_wal_recovery_mode(i32) => rocksdb_options_get_wal_recovery_mode -> i32 = 2;
    rocksdb_options_set_compression(i32) => rocksdb_options_get_compression -> i32 = 1;
    rocksdb_options_set_bottommost_compression(i32)
        => rocksdb_options_get_bottommost_compression -> i32 = 255;
    rocksdb_options_set_compaction_style(i32) => rocksdb_options_get_compaction_style -> i32 = 0;
    rocksdb_options_set_atomic_flush(u8) => rocksdb_options_get_atomic_flush -> u8 = 0;
    rocksdb_options_set_manual_wal_flush(u8) => rocksdb_options_get_manual_wal_flush -> u8 = 0;
    rocksdb_options_set_wal_compression(i32) => rocksdb_options_get_wal_compression -> i32 = 0;
    rocksdb_options_set_dump_malloc_stats(u8);
    rocksdb_options_set_memtable_whole_key_filtering(u8);
} }
