/* Checkpoints, backups, live files and memory. */
#include "test.h"

#include <sys/stat.h>

static void name_in(char *name, const char *directory, const char *what) {
  int size = snprintf(name, 4200, "%s.%s", directory, what);
  EXPECT(size > 0 && size < 4200);
}

/* Fails unless the database in a directory has the families and the entry. */
static void holds(test_db *t, const char *directory, const char *key, const char *value,
                  const char *value_of_cf) {
  char *err = NULL;
  const char *names[] = {"cf", "default"};
  const rocksdb_options_t *options[] = {t->options, t->options};
  family *handles[2];
  test_db other = *t;
  other.db = rocksdb_open_column_families(t->options, directory, 2, names, options, handles, &err);
  OK(err);
  has(&other, key, value);
  has_in(&other, handles[0], key, value_of_cf);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(other.db);
}

static void checkpoints(test_db *t, const char *directory) {
  char *err = NULL;
  char target[4200];
  name_in(target, directory, "checkpoint");
  rocksdb_destroy_db(t->options, target, &err);
  OK(err);
  rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(t->db, &err);
  OK(err);
  rocksdb_checkpoint_create(checkpoint, target, 0, &err);
  OK(err);
  put(t, "k", "later");
  rocksdb_checkpoint_create(checkpoint, target, 0, &err);
  failed(&err, "Directory exists");
  rocksdb_checkpoint_create(checkpoint, NULL, 0, &err);
  failed(&err, "Invalid argument");
  rocksdb_checkpoint_create(checkpoint, "/dev/null/checkpoint", 0, &err);
  failed(&err, "/dev/null/checkpoint");
  rocksdb_checkpoint_object_destroy(checkpoint);
  EXPECT(rocksdb_checkpoint_object_create(NULL, &err) == NULL);
  failed(&err, "the database is null");
  holds(t, target, "k", "1", "of cf");
  has(t, "k", "later");
  rocksdb_destroy_db(t->options, target, &err);
  OK(err);
}

static void remove_backups(test_db *t, const char *directory) {
  char *err = NULL;
  rocksdb_backup_engine_options_t *options = rocksdb_backup_engine_options_create(directory);
  rocksdb_env_t *env = rocksdb_create_default_env();
  rocksdb_backup_engine_options_set_env(options, env);
  rocksdb_backup_engine_options_set_backup_dir(options, directory);
  BOTH(options, rocksdb_backup_engine_options_set_share_table_files,
       rocksdb_backup_engine_options_get_share_table_files, 0);
  BOTH(options, rocksdb_backup_engine_options_set_sync,
       rocksdb_backup_engine_options_get_sync, 0);
  BOTH(options, rocksdb_backup_engine_options_set_backup_log_files,
       rocksdb_backup_engine_options_get_backup_log_files, 0);
  BOTH(options, rocksdb_backup_engine_options_set_backup_rate_limit,
       rocksdb_backup_engine_options_get_backup_rate_limit, 5);
  BOTH(options, rocksdb_backup_engine_options_set_restore_rate_limit,
       rocksdb_backup_engine_options_get_restore_rate_limit, 5);
  BOTH(options, rocksdb_backup_engine_options_set_max_background_operations,
       rocksdb_backup_engine_options_get_max_background_operations, 5);
  BOTH(options, rocksdb_backup_engine_options_set_callback_trigger_interval_size,
       rocksdb_backup_engine_options_get_callback_trigger_interval_size, 5);
  BOTH(options, rocksdb_backup_engine_options_set_max_valid_backups_to_open,
       rocksdb_backup_engine_options_get_max_valid_backups_to_open, 5);
  BOTH(options, rocksdb_backup_engine_options_set_share_files_with_checksum_naming,
       rocksdb_backup_engine_options_get_share_files_with_checksum_naming, 1);
  EXPECT(rocksdb_backup_engine_options_get_destroy_old_data(options) == 0);
  rocksdb_backup_engine_options_set_destroy_old_data(options, 1);
  EXPECT(rocksdb_backup_engine_options_get_destroy_old_data(options) == 1);
  rocksdb_backup_engine_t *engine = rocksdb_backup_engine_open_opts(options, env, &err);
  OK(err);
  const rocksdb_backup_engine_info_t *info = rocksdb_backup_engine_get_backup_info(engine);
  EXPECT(rocksdb_backup_engine_info_count(info) == 0);
  rocksdb_backup_engine_info_destroy(info);
  rocksdb_backup_engine_restore_db_from_latest_backup(engine, directory, directory, NULL, &err);
  failed(&err, "NotFound");
  rocksdb_backup_engine_close(engine);
  rocksdb_backup_engine_options_destroy(options);
  rocksdb_env_destroy(env);
  (void)t;
}

static void backups(test_db *t, const char *directory) {
  char *err = NULL;
  char target[4200], restored[4200];
  name_in(target, directory, "backups");
  name_in(restored, directory, "restored");
  remove_backups(t, target);
  rocksdb_backup_engine_t *engine = rocksdb_backup_engine_open(t->options, target, &err);
  OK(err);
  put(t, "k", "1");
  rocksdb_backup_engine_create_new_backup(engine, t->db, &err);
  OK(err);
  put(t, "k", "2");
  rocksdb_backup_engine_create_new_backup_flush(engine, t->db, 1, &err);
  OK(err);
  put(t, "k", "3");
  rocksdb_backup_engine_create_new_backup_flush(engine, t->db, 0, &err);
  OK(err);
  rocksdb_backup_engine_create_new_backup(engine, NULL, &err);
  failed(&err, "the database is null");
  const rocksdb_backup_engine_info_t *info = rocksdb_backup_engine_get_backup_info(engine);
  EXPECT(rocksdb_backup_engine_info_count(info) == 3);
  for (int i = 0; i < 3; i++) {
    EXPECT(rocksdb_backup_engine_info_backup_id(info, i) == (uint32_t)i + 1);
    EXPECT(rocksdb_backup_engine_info_timestamp(info, i) > 1600000000);
    EXPECT(rocksdb_backup_engine_info_size(info, i) > 0);
    EXPECT(rocksdb_backup_engine_info_number_files(info, i) > 0);
    rocksdb_backup_engine_verify_backup(engine, (uint32_t)i + 1, &err);
    OK(err);
  }
  EXPECT(rocksdb_backup_engine_info_backup_id(info, 3) == 0);
  EXPECT(rocksdb_backup_engine_info_size(info, -1) == 0);
  rocksdb_backup_engine_info_destroy(info);
  rocksdb_backup_engine_verify_backup(engine, 9, &err);
  failed(&err, "NotFound");

  rocksdb_restore_options_t *rules = rocksdb_restore_options_create();
  rocksdb_restore_options_set_keep_log_files(rules, 0);
  rocksdb_backup_engine_restore_db_from_latest_backup(engine, restored, restored, rules, &err);
  OK(err);
  holds(t, restored, "k", "3", "of cf");
  rocksdb_backup_engine_restore_db_from_backup(engine, restored, restored, rules, 1, &err);
  OK(err);
  holds(t, restored, "k", "1", "of cf");
  rocksdb_backup_engine_restore_db_from_backup(engine, restored, restored, rules, 9, &err);
  failed(&err, "NotFound");
  holds(t, restored, "k", "1", "of cf");
  /* A restore that was interrupted leaves no catalog. */
  char path[4300];
  snprintf(path, sizeof path, "%s/restoring", restored);
  FILE *marker = fopen(path, "wb");
  EXPECT(marker != NULL && fclose(marker) == 0);
  snprintf(path, sizeof path, "%s/catalog", restored);
  EXPECT(unlink(path) == 0);
  rocksdb_backup_engine_restore_db_from_backup(engine, restored, restored, rules, 2, &err);
  OK(err);
  holds(t, restored, "k", "2", "of cf");
  /* A database that is open is not replaced. */
  rocksdb_backup_engine_restore_db_from_backup(engine, directory, directory, rules, 1, &err);
  failed(&err, "already held");
  rocksdb_restore_options_destroy(rules);

  rocksdb_backup_engine_purge_old_backups(engine, 1, &err);
  OK(err);
  info = rocksdb_backup_engine_get_backup_info(engine);
  EXPECT(rocksdb_backup_engine_info_count(info) == 1);
  EXPECT(rocksdb_backup_engine_info_backup_id(info, 0) == 3);
  rocksdb_backup_engine_info_destroy(info);
  rocksdb_backup_engine_create_new_backup(engine, t->db, &err);
  OK(err);
  rocksdb_backup_engine_verify_backup(engine, 4, &err);
  OK(err);
  /* A file that is cut off is found. */
  char file[4300];
  snprintf(file, sizeof file, "%s/4/catalog", target);
  EXPECT(truncate(file, 10) == 0);
  rocksdb_backup_engine_verify_backup(engine, 4, &err);
  failed(&err, "Corruption");
  rocksdb_backup_engine_close(engine);
  remove_backups(t, target);
  rocksdb_destroy_db(t->options, restored, &err);
  OK(err);
}

static void live_files(test_db *t, family *cf) {
  char *err = NULL;
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_flush(t->db, flush, &err);
  OK(err);
  rocksdb_flush_cf(t->db, flush, cf, &err);
  OK(err);
  rocksdb_flushoptions_destroy(flush);
  const rocksdb_livefiles_t *files = rocksdb_livefiles(t->db);
  EXPECT(rocksdb_livefiles_count(files) == 2);
  EXPECT(strcmp(rocksdb_livefiles_column_family_name(files, 0), "default") == 0);
  EXPECT(strcmp(rocksdb_livefiles_name(files, 1), "/cf/cf") == 0);
  EXPECT(rocksdb_livefiles_level(files, 0) == 0);
  EXPECT(rocksdb_livefiles_size(files, 0) > 0);
  EXPECT(rocksdb_livefiles_entries(files, 0) == 1);
  EXPECT(rocksdb_livefiles_deletions(files, 0) == 0);
  size_t size = 0;
  EXPECT(is("k", rocksdb_livefiles_smallestkey(files, 0, &size), 1) && size == 1);
  EXPECT(is("k", rocksdb_livefiles_largestkey(files, 0, &size), 1));
  EXPECT(rocksdb_livefiles_name(files, 2) == NULL);
  EXPECT(rocksdb_livefiles_largestkey(files, -1, &size) == NULL && size == 0);
  rocksdb_livefiles_destroy(files);
  /* A file has all entries of its family: none is deleted. */
  rocksdb_delete_file(t->db, "/default/default");
  rocksdb_delete_file(t->db, NULL);
  rocksdb_delete_file(NULL, "/default/default");
  char *value = rocksdb_get(t->db, t->read, "k", 1, &size, &err);
  OK(err);
  EXPECT(value != NULL);
  rocksdb_free(value);

  rocksdb_column_family_metadata_t *meta = rocksdb_get_column_family_metadata(t->db);
  EXPECT(rocksdb_column_family_metadata_get_size(meta) > 0);
  rocksdb_column_family_metadata_destroy(meta);
  meta = rocksdb_get_column_family_metadata_cf(t->db, cf);
  EXPECT(rocksdb_column_family_metadata_get_file_count(meta) == 1);
  char *name = rocksdb_column_family_metadata_get_name(meta);
  EXPECT(strcmp(name, "cf") == 0);
  rocksdb_free(name);
  EXPECT(rocksdb_column_family_metadata_get_level_count(meta) == 1);
  EXPECT(rocksdb_column_family_metadata_get_level_metadata(meta, 1) == NULL);
  rocksdb_level_metadata_t *level = rocksdb_column_family_metadata_get_level_metadata(meta, 0);
  EXPECT(rocksdb_level_metadata_get_level(level) == 0);
  EXPECT(rocksdb_level_metadata_get_size(level) > 0);
  EXPECT(rocksdb_level_metadata_get_file_count(level) == 1);
  rocksdb_sst_file_metadata_t *file = rocksdb_level_metadata_get_sst_file_metadata(level, 0);
  EXPECT(rocksdb_level_metadata_get_sst_file_metadata(level, 1) == NULL);
  name = rocksdb_sst_file_metadata_get_relative_filename(file);
  EXPECT(strcmp(name, "/cf/cf") == 0);
  rocksdb_free(name);
  EXPECT(rocksdb_sst_file_metadata_get_size(file) > 0);
  name = rocksdb_sst_file_metadata_get_smallestkey(file, &size);
  EXPECT(is("k", name, size));
  rocksdb_free(name);
  name = rocksdb_sst_file_metadata_get_largestkey(file, &size);
  EXPECT(is("k", name, size));
  rocksdb_free(name);
  rocksdb_sst_file_metadata_destroy(file);
  rocksdb_level_metadata_destroy(level);
  rocksdb_column_family_metadata_destroy(meta);
}

static void memory(test_db *t) {
  char *err = NULL;
  rocksdb_memory_consumers_t *consumers = rocksdb_memory_consumers_create();
  rocksdb_memory_usage_t *usage = rocksdb_approximate_memory_usage_create(consumers, &err);
  OK(err);
  EXPECT(rocksdb_approximate_memory_usage_get_mem_table_total(usage) == 0);
  rocksdb_approximate_memory_usage_destroy(usage);
  rocksdb_cache_t *cache = rocksdb_cache_create_lru(1000);
  rocksdb_memory_consumers_add_cache(consumers, cache);
  rocksdb_memory_consumers_add_db(consumers, t->db);
  for (int i = 0; i < 1000; i++) {
    char key[16];
    snprintf(key, sizeof key, "m%d", i);
    put(t, key, "a value that takes some bytes in memory");
  }
  usage = rocksdb_approximate_memory_usage_create(consumers, &err);
  OK(err);
  uint64_t total = rocksdb_approximate_memory_usage_get_mem_table_total(usage);
  EXPECT(rocksdb_approximate_memory_usage_get_mem_table_unflushed(usage) == total);
  total += rocksdb_approximate_memory_usage_get_mem_table_readers_total(usage);
  total += rocksdb_approximate_memory_usage_get_cache_total(usage);
  EXPECT(total > 0);
  rocksdb_approximate_memory_usage_destroy(usage);
  rocksdb_memory_consumers_destroy(consumers);
  rocksdb_cache_destroy(cache);
  EXPECT(rocksdb_approximate_memory_usage_create(NULL, &err) == NULL);
  failed(&err, "is null");
}

void test_copies(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "cf", &err);
  OK(err);
  put(&t, "k", "1");
  put_in(&t, cf, "k", "of cf");
  checkpoints(&t, directory);
  backups(&t, directory);
  live_files(&t, cf);
  memory(&t);
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
}
