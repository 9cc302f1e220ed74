/* Options that are numbers: what is set is returned, for each kind of options. */
#include "test.h"

static void options_numbers(void) {
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_options_increase_parallelism(options, 5);
  EXPECT(rocksdb_options_get_max_background_jobs(options) == 5);
  rocksdb_options_optimize_for_point_lookup(options, 1);
  EXPECT(rocksdb_options_get_memtable_prefix_bloom_size_ratio(options) == 0.02);
  rocksdb_options_optimize_level_style_compaction(options, 80 << 20);
  EXPECT(rocksdb_options_get_write_buffer_size(options) == 20 << 20);
  EXPECT(rocksdb_options_get_level0_file_num_compaction_trigger(options) == 2);
  EXPECT(rocksdb_options_get_target_file_size_base(options) == 10 << 20);
  EXPECT(rocksdb_options_get_max_bytes_for_level_base(options) == 80 << 20);
  EXPECT(rocksdb_options_get_compaction_style(options) == rocksdb_level_compaction);
  rocksdb_options_optimize_universal_style_compaction(options, 40 << 20);
  EXPECT(rocksdb_options_get_write_buffer_size(options) == 10 << 20);
  EXPECT(rocksdb_options_get_compaction_style(options) == rocksdb_universal_compaction);
  BOTH(options, rocksdb_options_set_allow_ingest_behind,
       rocksdb_options_get_allow_ingest_behind, 1);
  BOTH(options, rocksdb_options_compaction_readahead_size,
       rocksdb_options_get_compaction_readahead_size, 1);
  BOTH(options, rocksdb_options_set_create_if_missing, rocksdb_options_get_create_if_missing, 1);
  BOTH(options, rocksdb_options_set_create_missing_column_families,
       rocksdb_options_get_create_missing_column_families, 1);
  BOTH(options, rocksdb_options_set_error_if_exists, rocksdb_options_get_error_if_exists, 1);
  BOTH(options, rocksdb_options_set_paranoid_checks, rocksdb_options_get_paranoid_checks, 1);
  BOTH(options, rocksdb_options_set_info_log_level, rocksdb_options_get_info_log_level, 1);
  BOTH(options, rocksdb_options_set_write_buffer_size, rocksdb_options_get_write_buffer_size, 1);
  BOTH(options, rocksdb_options_set_db_write_buffer_size,
       rocksdb_options_get_db_write_buffer_size, 1);
  BOTH(options, rocksdb_options_set_max_open_files, rocksdb_options_get_max_open_files, 1);
  BOTH(options, rocksdb_options_set_max_file_opening_threads,
       rocksdb_options_get_max_file_opening_threads, 1);
  BOTH(options, rocksdb_options_set_max_total_wal_size, rocksdb_options_get_max_total_wal_size, 1);
  BOTH(options, rocksdb_options_set_compression_options_zstd_max_train_bytes,
       rocksdb_options_get_compression_options_zstd_max_train_bytes, 1);
  BOTH(options, rocksdb_options_set_compression_options_use_zstd_dict_trainer,
       rocksdb_options_get_compression_options_use_zstd_dict_trainer, 1);
  BOTH(options, rocksdb_options_set_compression_options_parallel_threads,
       rocksdb_options_get_compression_options_parallel_threads, 1);
  BOTH(options, rocksdb_options_set_compression_options_max_dict_buffer_bytes,
       rocksdb_options_get_compression_options_max_dict_buffer_bytes, 1);
  BOTH(options, rocksdb_options_set_num_levels, rocksdb_options_get_num_levels, 1);
  BOTH(options, rocksdb_options_set_level0_file_num_compaction_trigger,
       rocksdb_options_get_level0_file_num_compaction_trigger, 1);
  BOTH(options, rocksdb_options_set_level0_slowdown_writes_trigger,
       rocksdb_options_get_level0_slowdown_writes_trigger, 1);
  BOTH(options, rocksdb_options_set_level0_stop_writes_trigger,
       rocksdb_options_get_level0_stop_writes_trigger, 1);
  BOTH(options, rocksdb_options_set_target_file_size_base,
       rocksdb_options_get_target_file_size_base, 1);
  BOTH(options, rocksdb_options_set_target_file_size_multiplier,
       rocksdb_options_get_target_file_size_multiplier, 1);
  BOTH(options, rocksdb_options_set_max_bytes_for_level_base,
       rocksdb_options_get_max_bytes_for_level_base, 1);
  BOTH(options, rocksdb_options_set_level_compaction_dynamic_level_bytes,
       rocksdb_options_get_level_compaction_dynamic_level_bytes, 1);
  BOTH(options, rocksdb_options_set_max_bytes_for_level_multiplier,
       rocksdb_options_get_max_bytes_for_level_multiplier, 1);
  BOTH(options, rocksdb_options_set_skip_stats_update_on_db_open,
       rocksdb_options_get_skip_stats_update_on_db_open, 1);
  BOTH(options, rocksdb_options_set_skip_checking_sst_file_sizes_on_db_open,
       rocksdb_options_get_skip_checking_sst_file_sizes_on_db_open, 1);
  BOTH(options, rocksdb_options_set_enable_blob_files, rocksdb_options_get_enable_blob_files, 1);
  BOTH(options, rocksdb_options_set_min_blob_size, rocksdb_options_get_min_blob_size, 1);
  BOTH(options, rocksdb_options_set_blob_file_size, rocksdb_options_get_blob_file_size, 1);
  BOTH(options, rocksdb_options_set_blob_compression_type,
       rocksdb_options_get_blob_compression_type, 1);
  BOTH(options, rocksdb_options_set_enable_blob_gc, rocksdb_options_get_enable_blob_gc, 1);
  BOTH(options, rocksdb_options_set_blob_gc_age_cutoff, rocksdb_options_get_blob_gc_age_cutoff, 1);
  BOTH(options, rocksdb_options_set_blob_gc_force_threshold,
       rocksdb_options_get_blob_gc_force_threshold, 1);
  BOTH(options, rocksdb_options_set_blob_compaction_readahead_size,
       rocksdb_options_get_blob_compaction_readahead_size, 1);
  BOTH(options, rocksdb_options_set_blob_file_starting_level,
       rocksdb_options_get_blob_file_starting_level, 1);
  BOTH(options, rocksdb_options_set_prepopulate_blob_cache,
       rocksdb_options_get_prepopulate_blob_cache, 1);
  BOTH(options, rocksdb_options_set_max_write_buffer_number,
       rocksdb_options_get_max_write_buffer_number, 1);
  BOTH(options, rocksdb_options_set_min_write_buffer_number_to_merge,
       rocksdb_options_get_min_write_buffer_number_to_merge, 1);
  BOTH(options, rocksdb_options_set_max_write_buffer_number_to_maintain,
       rocksdb_options_get_max_write_buffer_number_to_maintain, 1);
  BOTH(options, rocksdb_options_set_max_write_buffer_size_to_maintain,
       rocksdb_options_get_max_write_buffer_size_to_maintain, 1);
  BOTH(options, rocksdb_options_set_enable_pipelined_write,
       rocksdb_options_get_enable_pipelined_write, 1);
  BOTH(options, rocksdb_options_set_unordered_write, rocksdb_options_get_unordered_write, 1);
  BOTH(options, rocksdb_options_set_max_subcompactions, rocksdb_options_get_max_subcompactions, 1);
  BOTH(options, rocksdb_options_set_max_background_jobs,
       rocksdb_options_get_max_background_jobs, 1);
  BOTH(options, rocksdb_options_set_max_background_compactions,
       rocksdb_options_get_max_background_compactions, 1);
  BOTH(options, rocksdb_options_set_max_background_flushes,
       rocksdb_options_get_max_background_flushes, 1);
  BOTH(options, rocksdb_options_set_max_log_file_size, rocksdb_options_get_max_log_file_size, 1);
  BOTH(options, rocksdb_options_set_log_file_time_to_roll,
       rocksdb_options_get_log_file_time_to_roll, 1);
  BOTH(options, rocksdb_options_set_keep_log_file_num, rocksdb_options_get_keep_log_file_num, 1);
  BOTH(options, rocksdb_options_set_recycle_log_file_num,
       rocksdb_options_get_recycle_log_file_num, 1);
  BOTH(options, rocksdb_options_set_soft_pending_compaction_bytes_limit,
       rocksdb_options_get_soft_pending_compaction_bytes_limit, 1);
  BOTH(options, rocksdb_options_set_hard_pending_compaction_bytes_limit,
       rocksdb_options_get_hard_pending_compaction_bytes_limit, 1);
  BOTH(options, rocksdb_options_set_max_manifest_file_size,
       rocksdb_options_get_max_manifest_file_size, 1);
  BOTH(options, rocksdb_options_set_table_cache_numshardbits,
       rocksdb_options_get_table_cache_numshardbits, 1);
  BOTH(options, rocksdb_options_set_arena_block_size, rocksdb_options_get_arena_block_size, 1);
  BOTH(options, rocksdb_options_set_use_fsync, rocksdb_options_get_use_fsync, 1);
  BOTH(options, rocksdb_options_set_WAL_ttl_seconds, rocksdb_options_get_WAL_ttl_seconds, 1);
  BOTH(options, rocksdb_options_set_WAL_size_limit_MB, rocksdb_options_get_WAL_size_limit_MB, 1);
  BOTH(options, rocksdb_options_set_manifest_preallocation_size,
       rocksdb_options_get_manifest_preallocation_size, 1);
  BOTH(options, rocksdb_options_set_allow_mmap_reads, rocksdb_options_get_allow_mmap_reads, 1);
  BOTH(options, rocksdb_options_set_allow_mmap_writes, rocksdb_options_get_allow_mmap_writes, 1);
  BOTH(options, rocksdb_options_set_use_direct_reads, rocksdb_options_get_use_direct_reads, 1);
  BOTH(options, rocksdb_options_set_use_direct_io_for_flush_and_compaction,
       rocksdb_options_get_use_direct_io_for_flush_and_compaction, 1);
  BOTH(options, rocksdb_options_set_is_fd_close_on_exec,
       rocksdb_options_get_is_fd_close_on_exec, 1);
  BOTH(options, rocksdb_options_set_stats_dump_period_sec,
       rocksdb_options_get_stats_dump_period_sec, 1);
  BOTH(options, rocksdb_options_set_stats_persist_period_sec,
       rocksdb_options_get_stats_persist_period_sec, 1);
  BOTH(options, rocksdb_options_set_advise_random_on_open,
       rocksdb_options_get_advise_random_on_open, 1);
  BOTH(options, rocksdb_options_set_access_hint_on_compaction_start,
       rocksdb_options_get_access_hint_on_compaction_start, 1);
  BOTH(options, rocksdb_options_set_use_adaptive_mutex, rocksdb_options_get_use_adaptive_mutex, 1);
  BOTH(options, rocksdb_options_set_bytes_per_sync, rocksdb_options_get_bytes_per_sync, 1);
  BOTH(options, rocksdb_options_set_wal_bytes_per_sync, rocksdb_options_get_wal_bytes_per_sync, 1);
  BOTH(options, rocksdb_options_set_writable_file_max_buffer_size,
       rocksdb_options_get_writable_file_max_buffer_size, 1);
  BOTH(options, rocksdb_options_set_allow_concurrent_memtable_write,
       rocksdb_options_get_allow_concurrent_memtable_write, 1);
  BOTH(options, rocksdb_options_set_enable_write_thread_adaptive_yield,
       rocksdb_options_get_enable_write_thread_adaptive_yield, 1);
  BOTH(options, rocksdb_options_set_max_sequential_skip_in_iterations,
       rocksdb_options_get_max_sequential_skip_in_iterations, 1);
  BOTH(options, rocksdb_options_set_disable_auto_compactions,
       rocksdb_options_get_disable_auto_compactions, 1);
  BOTH(options, rocksdb_options_set_optimize_filters_for_hits,
       rocksdb_options_get_optimize_filters_for_hits, 1);
  BOTH(options, rocksdb_options_set_delete_obsolete_files_period_micros,
       rocksdb_options_get_delete_obsolete_files_period_micros, 1);
  BOTH(options, rocksdb_options_set_memtable_prefix_bloom_size_ratio,
       rocksdb_options_get_memtable_prefix_bloom_size_ratio, 1);
  BOTH(options, rocksdb_options_set_max_compaction_bytes,
       rocksdb_options_get_max_compaction_bytes, 1);
  rocksdb_options_set_hash_link_list_rep(options, 1);
  rocksdb_options_set_min_level_to_compress(options, 1);
  BOTH(options, rocksdb_options_set_memtable_huge_page_size,
       rocksdb_options_get_memtable_huge_page_size, 1);
  BOTH(options, rocksdb_options_set_max_successive_merges,
       rocksdb_options_get_max_successive_merges, 1);
  BOTH(options, rocksdb_options_set_bloom_locality, rocksdb_options_get_bloom_locality, 1);
  BOTH(options, rocksdb_options_set_inplace_update_support,
       rocksdb_options_get_inplace_update_support, 1);
  BOTH(options, rocksdb_options_set_inplace_update_num_locks,
       rocksdb_options_get_inplace_update_num_locks, 1);
  BOTH(options, rocksdb_options_set_report_bg_io_stats, rocksdb_options_get_report_bg_io_stats, 1);
  BOTH(options, rocksdb_options_set_avoid_unnecessary_blocking_io,
       rocksdb_options_get_avoid_unnecessary_blocking_io, 1);
  BOTH(options, rocksdb_options_set_experimental_mempurge_threshold,
       rocksdb_options_get_experimental_mempurge_threshold, 1);
  BOTH(options, rocksdb_options_set_wal_recovery_mode, rocksdb_options_get_wal_recovery_mode, 1);
  BOTH(options, rocksdb_options_set_compression, rocksdb_options_get_compression, 1);
  EXPECT(rocksdb_options_get_bottommost_compression_options_use_zstd_dict_trainer(options) == 1);
  rocksdb_options_set_bottommost_compression_options_use_zstd_dict_trainer(options, 0, 1);
  EXPECT(rocksdb_options_get_bottommost_compression_options_use_zstd_dict_trainer(options) == 0);
  rocksdb_options_set_bottommost_compression_options_zstd_max_train_bytes(options, 1, 1);
  rocksdb_options_set_bottommost_compression_options_max_dict_buffer_bytes(options, 1, 1);
  BOTH(options, rocksdb_options_set_bottommost_compression,
       rocksdb_options_get_bottommost_compression, 1);
  BOTH(options, rocksdb_options_set_compaction_style, rocksdb_options_get_compaction_style, 1);
  BOTH(options, rocksdb_options_set_atomic_flush, rocksdb_options_get_atomic_flush, 1);
  BOTH(options, rocksdb_options_set_manual_wal_flush, rocksdb_options_get_manual_wal_flush, 1);
  BOTH(options, rocksdb_options_set_wal_compression, rocksdb_options_get_wal_compression, 1);
  rocksdb_options_set_dump_malloc_stats(options, 1);
  rocksdb_options_set_memtable_whole_key_filtering(options, 1);
  rocksdb_options_destroy(options);
}

static void table_numbers(void) {
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_block_based_options_set_checksum(table, 1);
  rocksdb_block_based_options_set_block_size(table, 1);
  rocksdb_block_based_options_set_block_size_deviation(table, 1);
  rocksdb_block_based_options_set_block_restart_interval(table, 1);
  rocksdb_block_based_options_set_index_block_restart_interval(table, 1);
  rocksdb_block_based_options_set_metadata_block_size(table, 1);
  rocksdb_block_based_options_set_partition_filters(table, 1);
  rocksdb_block_based_options_set_use_delta_encoding(table, 1);
  rocksdb_block_based_options_set_no_block_cache(table, 1);
  rocksdb_block_based_options_set_whole_key_filtering(table, 1);
  rocksdb_block_based_options_set_format_version(table, 1);
  rocksdb_block_based_options_set_index_type(table, 1);
  rocksdb_block_based_options_set_data_block_index_type(table, 1);
  rocksdb_block_based_options_set_data_block_hash_ratio(table, 1);
  rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
  rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(table, 1);
  rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
  rocksdb_block_based_options_set_pin_top_level_index_and_filter(table, 1);
  rocksdb_block_based_options_destroy(table);
}

static void read_numbers(void) {
  rocksdb_readoptions_t *read = rocksdb_readoptions_create();
  BOTH(read, rocksdb_readoptions_set_verify_checksums,
       rocksdb_readoptions_get_verify_checksums, 1);
  BOTH(read, rocksdb_readoptions_set_fill_cache, rocksdb_readoptions_get_fill_cache, 1);
  BOTH(read, rocksdb_readoptions_set_read_tier, rocksdb_readoptions_get_read_tier, 1);
  BOTH(read, rocksdb_readoptions_set_tailing, rocksdb_readoptions_get_tailing, 1);
  rocksdb_readoptions_set_managed(read, 1);
  BOTH(read, rocksdb_readoptions_set_readahead_size, rocksdb_readoptions_get_readahead_size, 1);
  BOTH(read, rocksdb_readoptions_set_prefix_same_as_start,
       rocksdb_readoptions_get_prefix_same_as_start, 1);
  BOTH(read, rocksdb_readoptions_set_pin_data, rocksdb_readoptions_get_pin_data, 1);
  BOTH(read, rocksdb_readoptions_set_total_order_seek,
       rocksdb_readoptions_get_total_order_seek, 1);
  BOTH(read, rocksdb_readoptions_set_max_skippable_internal_keys,
       rocksdb_readoptions_get_max_skippable_internal_keys, 1);
  BOTH(read, rocksdb_readoptions_set_background_purge_on_iterator_cleanup,
       rocksdb_readoptions_get_background_purge_on_iterator_cleanup, 1);
  BOTH(read, rocksdb_readoptions_set_ignore_range_deletions,
       rocksdb_readoptions_get_ignore_range_deletions, 1);
  BOTH(read, rocksdb_readoptions_set_deadline, rocksdb_readoptions_get_deadline, 1);
  BOTH(read, rocksdb_readoptions_set_io_timeout, rocksdb_readoptions_get_io_timeout, 1);
  rocksdb_readoptions_destroy(read);
}

static void write_numbers(void) {
  rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
  BOTH(write, rocksdb_writeoptions_set_sync, rocksdb_writeoptions_get_sync, 1);
  BOTH(write, rocksdb_writeoptions_disable_WAL, rocksdb_writeoptions_get_disable_WAL, 1);
  BOTH(write, rocksdb_writeoptions_set_ignore_missing_column_families,
       rocksdb_writeoptions_get_ignore_missing_column_families, 1);
  BOTH(write, rocksdb_writeoptions_set_no_slowdown, rocksdb_writeoptions_get_no_slowdown, 1);
  BOTH(write, rocksdb_writeoptions_set_low_pri, rocksdb_writeoptions_get_low_pri, 1);
  BOTH(write, rocksdb_writeoptions_set_memtable_insert_hint_per_batch,
       rocksdb_writeoptions_get_memtable_insert_hint_per_batch, 1);
  rocksdb_writeoptions_destroy(write);
}

static void compact_numbers(void) {
  rocksdb_compactoptions_t *compact = rocksdb_compactoptions_create();
  BOTH(compact, rocksdb_compactoptions_set_exclusive_manual_compaction,
       rocksdb_compactoptions_get_exclusive_manual_compaction, 1);
  BOTH(compact, rocksdb_compactoptions_set_bottommost_level_compaction,
       rocksdb_compactoptions_get_bottommost_level_compaction, 1);
  BOTH(compact, rocksdb_compactoptions_set_change_level,
       rocksdb_compactoptions_get_change_level, 1);
  BOTH(compact, rocksdb_compactoptions_set_target_level,
       rocksdb_compactoptions_get_target_level, 1);
  rocksdb_compactoptions_destroy(compact);
}

static void flush_numbers(void) {
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  BOTH(flush, rocksdb_flushoptions_set_wait, rocksdb_flushoptions_get_wait, 1);
  rocksdb_flushoptions_destroy(flush);
}

static void universal_numbers(void) {
  rocksdb_universal_compaction_options_t *universal = rocksdb_universal_compaction_options_create();
  BOTH(universal, rocksdb_universal_compaction_options_set_size_ratio,
       rocksdb_universal_compaction_options_get_size_ratio, 1);
  BOTH(universal, rocksdb_universal_compaction_options_set_min_merge_width,
       rocksdb_universal_compaction_options_get_min_merge_width, 1);
  BOTH(universal, rocksdb_universal_compaction_options_set_max_merge_width,
       rocksdb_universal_compaction_options_get_max_merge_width, 1);
  BOTH(universal, rocksdb_universal_compaction_options_set_max_size_amplification_percent,
       rocksdb_universal_compaction_options_get_max_size_amplification_percent, 1);
  BOTH(universal, rocksdb_universal_compaction_options_set_compression_size_percent,
       rocksdb_universal_compaction_options_get_compression_size_percent, 1);
  BOTH(universal, rocksdb_universal_compaction_options_set_stop_style,
       rocksdb_universal_compaction_options_get_stop_style, 1);
  rocksdb_universal_compaction_options_destroy(universal);
}

static void fifo_numbers(void) {
  rocksdb_fifo_compaction_options_t *fifo = rocksdb_fifo_compaction_options_create();
  BOTH(fifo, rocksdb_fifo_compaction_options_set_max_table_files_size,
       rocksdb_fifo_compaction_options_get_max_table_files_size, 1);
  rocksdb_fifo_compaction_options_destroy(fifo);
}

static void cuckoo_numbers(void) {
  rocksdb_cuckoo_table_options_t *cuckoo = rocksdb_cuckoo_options_create();
  rocksdb_cuckoo_options_set_hash_ratio(cuckoo, 1);
  rocksdb_cuckoo_options_set_max_search_depth(cuckoo, 1);
  rocksdb_cuckoo_options_set_cuckoo_block_size(cuckoo, 1);
  rocksdb_cuckoo_options_set_identity_as_first_hash(cuckoo, 1);
  rocksdb_cuckoo_options_set_use_module_hash(cuckoo, 1);
  rocksdb_cuckoo_options_destroy(cuckoo);
}

static void env_numbers(void) {
  rocksdb_env_t *env = rocksdb_create_default_env();
  BOTH(env, rocksdb_env_set_background_threads, rocksdb_env_get_background_threads, 1);
  BOTH(env, rocksdb_env_set_high_priority_background_threads,
       rocksdb_env_get_high_priority_background_threads, 1);
  BOTH(env, rocksdb_env_set_low_priority_background_threads,
       rocksdb_env_get_low_priority_background_threads, 1);
  BOTH(env, rocksdb_env_set_bottom_priority_background_threads,
       rocksdb_env_get_bottom_priority_background_threads, 1);
  rocksdb_env_destroy(env);
}

static void lru_numbers(void) {
  rocksdb_lru_cache_options_t *lru = rocksdb_lru_cache_options_create();
  rocksdb_lru_cache_options_set_capacity(lru, 1);
  rocksdb_lru_cache_options_set_num_shard_bits(lru, 1);
  rocksdb_lru_cache_options_set_memory_allocator(lru, NULL);
  rocksdb_lru_cache_options_destroy(lru);
}

void test_numbers(const char *directory) {
  (void)directory;
  options_numbers();
  table_numbers();
  read_numbers();
  write_numbers();
  compact_numbers();
  flush_numbers();
  universal_numbers();
  fifo_numbers();
  cuckoo_numbers();
  env_numbers();
  lru_numbers();
  /* Defaults, and a copy. */
  rocksdb_options_t *options = rocksdb_options_create();
  EXPECT(rocksdb_options_get_write_buffer_size(options) == 64 << 20);
  EXPECT(rocksdb_options_get_max_open_files(options) == -1);
  EXPECT(rocksdb_options_get_max_bytes_for_level_multiplier(options) == 10.0);
  rocksdb_options_set_max_open_files(options, 7);
  rocksdb_options_t *copy = rocksdb_options_create_copy(options);
  rocksdb_options_set_max_open_files(options, 8);
  EXPECT(rocksdb_options_get_max_open_files(copy) == 7);
  char *err = NULL;
  rocksdb_get_options_from_string(copy, "write_buffer_size=1000000;create_if_missing=true;x=y",
                                  options, &err);
  OK(err);
  EXPECT(rocksdb_options_get_write_buffer_size(options) == 1000000);
  EXPECT(rocksdb_options_get_create_if_missing(options) == 1);
  EXPECT(rocksdb_options_get_max_open_files(options) == 7);
  rocksdb_get_options_from_string(copy, "write_buffer_size=many", options, &err);
  failed(&err, "is no number");
  rocksdb_get_options_from_string(copy, "WAL_size_limit_MB=2; WAL_ttl_seconds=3", options, &err);
  OK(err);
  EXPECT(rocksdb_options_get_WAL_size_limit_MB(options) == 2);
  EXPECT(rocksdb_options_get_WAL_ttl_seconds(options) == 3);
  rocksdb_get_options_from_string(copy, "WAL_ttl_seconds=-1", options, &err);
  failed(&err, "is no number");
  rocksdb_get_options_from_string(copy, "create_if_missing", options, &err);
  failed(&err, "no value");
  rocksdb_options_destroy(copy);
  rocksdb_options_destroy(options);
}
