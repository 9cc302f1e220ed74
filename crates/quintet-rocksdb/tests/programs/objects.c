/* Caches, environments and the options that are objects. */
#include "test.h"

void test_objects(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_lru_cache_options_t *lru = rocksdb_lru_cache_options_create();
  rocksdb_lru_cache_options_set_capacity(lru, 1000);
  rocksdb_cache_t *cache = rocksdb_cache_create_lru_opts(lru);
  rocksdb_lru_cache_options_destroy(lru);
  EXPECT(rocksdb_cache_get_capacity(cache) == 1000);
  rocksdb_cache_set_capacity(cache, 8 << 20);
  EXPECT(rocksdb_cache_get_capacity(cache) == 8 << 20);
  rocksdb_cache_disown_data(cache);
  EXPECT(rocksdb_jemalloc_nodump_allocator_create(&err) == NULL);
  failed(&err, "Not implemented");
  rocksdb_memory_allocator_destroy(NULL);
  rocksdb_cache_destroy(rocksdb_cache_create_lru(1));
  rocksdb_cache_destroy(rocksdb_cache_create_lru_with_strict_capacity_limit(1));

  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_block_based_options_set_block_cache_compressed(table, cache);
  rocksdb_block_based_options_set_block_size(table, 1);
  rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10));
  rocksdb_options_set_block_based_table_factory(t.options, table);
  rocksdb_block_based_options_destroy(table);
  rocksdb_filterpolicy_destroy(rocksdb_filterpolicy_create_bloom_full(10));
  rocksdb_filterpolicy_destroy(rocksdb_filterpolicy_create_ribbon(10));
  rocksdb_filterpolicy_destroy(rocksdb_filterpolicy_create_ribbon_hybrid(10, 1));

  rocksdb_env_t *env = rocksdb_create_default_env();
  rocksdb_env_join_all_threads(env);
  rocksdb_env_lower_thread_pool_io_priority(env);
  rocksdb_env_lower_high_priority_thread_pool_io_priority(env);
  rocksdb_env_lower_thread_pool_cpu_priority(env);
  rocksdb_env_lower_high_priority_thread_pool_cpu_priority(env);
  rocksdb_envoptions_destroy(rocksdb_envoptions_create());
  rocksdb_create_dir_if_missing(env, "/tmp", &err);
  OK(err);
  rocksdb_create_dir_if_missing(env, "/none/none", &err);
  failed(&err, "IO error");
  rocksdb_ratelimiter_t *limiter = rocksdb_ratelimiter_create(1, 1, 1);
  rocksdb_options_set_env(t.options, env);
  rocksdb_options_set_info_log(t.options, NULL);
  rocksdb_options_set_db_log_dir(t.options, "/tmp");
  rocksdb_options_set_wal_dir(t.options, "/tmp");
  rocksdb_options_set_ratelimiter(t.options, limiter);
  rocksdb_options_set_row_cache(t.options, cache);
  rocksdb_options_set_blob_cache(t.options, cache);
  rocksdb_options_enable_statistics(t.options);
  rocksdb_options_prepare_for_bulk_load(t.options);
  rocksdb_options_add_compact_on_deletion_collector_factory(t.options, 1, 1);
  rocksdb_universal_compaction_options_t *universal = rocksdb_universal_compaction_options_create();
  rocksdb_options_set_universal_compaction_options(t.options, universal);
  rocksdb_universal_compaction_options_destroy(universal);
  rocksdb_fifo_compaction_options_t *fifo = rocksdb_fifo_compaction_options_create();
  rocksdb_options_set_fifo_compaction_options(t.options, fifo);
  rocksdb_fifo_compaction_options_destroy(fifo);
  rocksdb_cuckoo_table_options_t *cuckoo = rocksdb_cuckoo_options_create();
  rocksdb_options_set_cuckoo_table_factory(t.options, cuckoo);
  rocksdb_cuckoo_options_destroy(cuckoo);
  rocksdb_options_set_plain_table_factory(t.options, 1, 1, 1, 1);
  rocksdb_options_set_memtable_vector_rep(t.options);
  rocksdb_options_set_hash_skip_list_rep(t.options, 1, 1, 1);
  int levels[] = {0, 1};
  rocksdb_options_set_compression_per_level(t.options, levels, 2);
  rocksdb_options_set_max_bytes_for_level_multiplier_additional(t.options, levels, 2);
  rocksdb_options_set_compression_options(t.options, 1, 1, 1, 1);
  rocksdb_options_set_bottommost_compression_options(t.options, 1, 1, 1, 1, 1);
  rocksdb_options_set_write_buffer_size(t.options, 1);

  /* Kinds of compression: none, LZ4, Zstandard, and one that nobody has. */
  const int kinds[] = {0, 4, 7, 99};
  for (int i = 0; i < 4; i++) {
    rocksdb_options_set_compression(t.options, kinds[i]);
    rocksdb_writeoptions_set_sync(t.write, (unsigned char)(i % 2));
    open_db(&t, directory);
    put(&t, "key", "value");
    has(&t, "key", "value");
    rocksdb_close(t.db);
    rocksdb_destroy_db(t.options, directory, &err);
    OK(err);
  }
  free_options(&t);
  rocksdb_ratelimiter_destroy(limiter);
  rocksdb_cache_destroy(cache);
  rocksdb_env_destroy(env);
}
