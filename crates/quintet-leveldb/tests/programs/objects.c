/* Options, caches, environments and the version. */
#include "test.h"

void test_objects(const char *directory) {
  char *err = NULL;
  EXPECT(leveldb_major_version() == 1 && leveldb_minor_version() >= 23);
  leveldb_env_t *env = leveldb_create_default_env();
  char *temporary = leveldb_env_get_test_directory(env);
  EXPECT(temporary != NULL && access(temporary, W_OK) == 0);
  leveldb_free(temporary);

  test_db t = open_new(directory);
  leveldb_close(t.db);
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  leveldb_cache_t *cache = leveldb_cache_create_lru(100000);
  leveldb_options_set_cache(t.options, cache);
  leveldb_options_set_env(t.options, env);
  leveldb_options_set_info_log(t.options, NULL);
  leveldb_options_set_paranoid_checks(t.options, 1);
  leveldb_options_set_write_buffer_size(t.options, 1);
  leveldb_options_set_max_open_files(t.options, 10);
  leveldb_options_set_block_size(t.options, (size_t)-1);
  leveldb_options_set_block_restart_interval(t.options, 1);
  leveldb_options_set_max_file_size(t.options, 1);
  leveldb_options_set_compression(t.options, leveldb_snappy_compression);
  leveldb_readoptions_set_verify_checksums(t.read, 1);
  leveldb_readoptions_set_fill_cache(t.read, 0);
  leveldb_writeoptions_set_sync(t.write, 1);
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  put(&t, "key", "value");
  has(&t, "key", "value");
  close_db(&t);
  leveldb_cache_destroy(cache);
  leveldb_env_destroy(env);
}
