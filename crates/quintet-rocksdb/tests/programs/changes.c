/* Options of open databases, options of the last open, and statistics. */
#include "test.h"

static void set(test_db *t, family *cf, const char *name, const char *value, const char *message) {
  char *err = NULL;
  const char *names[] = {"write_buffer_size", name};
  const char *values[] = {"4M", value};
  if (cf == NULL) {
    rocksdb_set_options(t->db, 2, names, values, &err);
  } else {
    rocksdb_set_options_cf(t->db, cf, 2, names, values, &err);
  }
  if (message == NULL) {
    OK(err);
  } else {
    failed(&err, message);
  }
}

static void test_set(test_db *t, family *cf) {
  set(t, cf, "disable_auto_compactions", "true", NULL);
  set(t, cf, "max_bytes_for_level_multiplier", "1.5", NULL);
  set(t, cf, "disable_auto_compactions", "yes", "yes is not true or false");
  set(t, cf, "level0_stop_writes_trigger", "many", "many is not a number of 32 bits");
  set(t, cf, "compression", "kZSTD", "keeps the options with which it was created");
  set(t, cf, "create_if_missing", "true", "there is no such option");
}

/* Returns a counter of the text of the statistics. */
static unsigned long counter(rocksdb_options_t *options, const char *name) {
  unsigned long count = 0;
  char *text = rocksdb_options_statistics_get_string(options);
  EXPECT(text != NULL);
  char *line = strstr(text, name);
  EXPECT(line != NULL);
  EXPECT(sscanf(line + strlen(name), " COUNT : %lu", &count) == 1);
  rocksdb_free(text);
  return count;
}

static void test_statistics(test_db *t) {
  rocksdb_options_t *others = rocksdb_options_create();
  rocksdb_options_enable_statistics(others);
  const unsigned long commits = counter(t->options, "quintet.commits");
  const unsigned long bytes = counter(t->options, "rocksdb.wal.bytes");
  put(t, "k", "v");
  EXPECT(counter(t->options, "quintet.commits") == commits + 1);
  EXPECT(counter(t->options, "rocksdb.wal.bytes") > bytes);
  EXPECT(counter(others, "quintet.commits") == 0);
  rocksdb_options_t *copy = rocksdb_options_create_copy(t->options);
  EXPECT(counter(copy, "quintet.commits") == commits + 1);
  rocksdb_options_destroy(copy);
  rocksdb_options_destroy(others);
}

static void test_latest(test_db *t, const char *directory) {
  char *err = NULL;
  rocksdb_env_t *env = rocksdb_create_default_env();
  rocksdb_cache_t *cache = rocksdb_cache_create_lru(100 << 20);
  rocksdb_options_t *options = NULL;
  rocksdb_options_t **family_options = NULL;
  char **names = NULL;
  size_t count = 9;
  rocksdb_load_latest_options("/none", env, true, cache, &options, &count, &names, &family_options,
                              &err);
  failed(&err, "there is no database");
  EXPECT(options == NULL && names == NULL && family_options == NULL && count == 0);
  /* Also while the database is open. */
  for (int i = 0; i < 2; i++) {
    rocksdb_load_latest_options(directory, env, true, cache, &options, &count, &names,
                                &family_options, &err);
    OK(err);
    EXPECT(count == 2 && strcmp(names[0], "default") == 0 && strcmp(names[1], "users") == 0);
    if (i == 0) {
      rocksdb_close(t->db);
      rocksdb_load_latest_options_destroy(options, names, family_options, count);
    }
  }
  family *handles[2] = {NULL, NULL};
  t->db = rocksdb_open_column_families(options, directory, 2, (const char *const *)names,
                                       (const rocksdb_options_t *const *)family_options, handles,
                                       &err);
  OK(err);
  has_in(t, handles[0], "k", "v");
  char *memory = rocksdb_property_value(t->db, "rocksdb.block-cache-capacity");
  /* The cache and four write buffers of 64 MiB. */
  EXPECT(memory != NULL && strtoul(memory, NULL, 10) == 356UL << 20);
  rocksdb_free(memory);
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_load_latest_options_destroy(options, names, family_options, count);
  rocksdb_cache_destroy(cache);
  rocksdb_env_destroy(env);
}

void test_changes(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  EXPECT(rocksdb_options_statistics_get_string(t.options) == NULL);
  EXPECT(rocksdb_options_statistics_get_string(NULL) == NULL);
  rocksdb_options_enable_statistics(t.options);
  EXPECT(counter(t.options, "quintet.commits") == 0);
  open_db(&t, directory);
  family *users = rocksdb_create_column_family(t.db, t.options, "users", &err);
  OK(err);
  test_set(&t, NULL);
  test_set(&t, users);
  rocksdb_set_options(t.db, 0, NULL, NULL, &err);
  failed(&err, "there are no options to set");
  rocksdb_set_options(t.db, -1, NULL, NULL, &err);
  failed(&err, "the count is negative");
  rocksdb_set_options(t.db, 1, NULL, NULL, &err);
  failed(&err, "null");
  rocksdb_set_options_cf(t.db, NULL, 1, NULL, NULL, &err);
  failed(&err, "the column family is null");
  test_statistics(&t);
  rocksdb_column_family_handle_destroy(users);
  test_latest(&t, directory);
  close_db(&t);
}
