/* Flushes, compactions, sizes, properties, destroying and repairing. */
#include "test.h"

static void properties(test_db *t, family *cf) {
  const char *texts[] = {"rocksdb.stats", "rocksdb.levelstats", "rocksdb.dbstats",
                         "rocksdb.num-files-at-level0", "rocksdb.num-files-at-level6",
                         "rocksdb.estimate-num-keys", "rocksdb.total-sst-files-size"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char *value = rocksdb_property_value(t->db, texts[i]);
    EXPECT(value != NULL && strlen(value) > 0);
    rocksdb_free(value);
  }
  char *stats = rocksdb_property_value(t->db, "rocksdb.stats");
  EXPECT(strstr(stats, "** Compaction Stats [default] **") && strstr(stats, "** DB Stats **"));
  rocksdb_free(stats);
  EXPECT(rocksdb_property_value(t->db, "rocksdb.none") == NULL);
  EXPECT(rocksdb_property_value(t->db, "rocksdb.num-files-at-level7") == NULL);
  EXPECT(rocksdb_property_value_cf(t->db, cf, "none") == NULL);
  uint64_t number = 0;
  EXPECT(rocksdb_property_int(t->db, "rocksdb.estimate-num-keys", &number) == 0);
  EXPECT(number > 500 && number < 2000);
  EXPECT(rocksdb_property_int_cf(t->db, cf, "rocksdb.estimate-num-keys", &number) == 0);
  EXPECT(number == 0);
  EXPECT(rocksdb_property_int(t->db, "rocksdb.stats", &number) == -1);
}

static void sizes(test_db *t, family *cf) {
  char *err = NULL;
  const char *start[] = {"k0"}, *limit[] = {"l"};
  size_t start_size[] = {2}, limit_size[] = {1};
  uint64_t size = 0;
  rocksdb_approximate_sizes(t->db, 1, start, start_size, limit, limit_size, &size, &err);
  OK(err);
  EXPECT(size > 1000);
  rocksdb_approximate_sizes_cf(t->db, cf, 1, start, start_size, limit, limit_size, &size, &err);
  OK(err);
  EXPECT(size == 0);
  rocksdb_approximate_sizes(t->db, -1, start, start_size, limit, limit_size, &size, &err);
  failed(&err, "negative");
}

static void compactions(test_db *t, family *cf) {
  char *err = NULL;
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_compactoptions_t *compact = rocksdb_compactoptions_create();
  rocksdb_flush(t->db, flush, &err);
  OK(err);
  rocksdb_flush_cf(t->db, flush, cf, &err);
  OK(err);
  rocksdb_flush_wal(t->db, 1, &err);
  OK(err);
  rocksdb_compact_range(t->db, NULL, 0, NULL, 0);
  rocksdb_compact_range_cf(t->db, cf, "a", 1, "b", 1);
  rocksdb_compact_range_opt(t->db, compact, NULL, 0, NULL, 0);
  rocksdb_compact_range_cf_opt(t->db, cf, compact, NULL, 0, NULL, 0);
  rocksdb_suggest_compact_range(t->db, NULL, 0, NULL, 0, &err);
  OK(err);
  rocksdb_suggest_compact_range_cf(t->db, cf, NULL, 0, NULL, 0, &err);
  OK(err);
  rocksdb_disable_file_deletions(t->db, &err);
  OK(err);
  rocksdb_enable_file_deletions(t->db, 1, &err);
  OK(err);
  rocksdb_disable_manual_compaction(t->db);
  rocksdb_enable_manual_compaction(t->db);
  rocksdb_cancel_all_background_work(t->db, 1);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_compactoptions_destroy(compact);
}

void test_management(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "other", &err);
  OK(err);
  char key[16];
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "k%04d", i);
    put(&t, key, key);
  }
  properties(&t, cf);
  sizes(&t, cf);
  compactions(&t, cf);
  put_in(&t, cf, "a", "1");
  put_in(&t, cf, "b", "1");
  rocksdb_delete_range_cf(t.db, t.write, cf, "a", 1, "b", 1, &err);
  OK(err);
  has_in(&t, cf, "a", NULL);
  has_in(&t, cf, "b", "1");
  EXPECT(rocksdb_open(t.options, directory, &err) == NULL);
  failed(&err, "IO error: lock ");
  rocksdb_drop_column_family(t.db, cf, &err);
  OK(err);
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t.db);

  rocksdb_options_set_error_if_exists(t.options, 1);
  EXPECT(rocksdb_open(t.options, directory, &err) == NULL);
  failed(&err, "error_if_exists is true");
  rocksdb_repair_db(t.options, directory, &err);
  OK(err);
  t.db = rocksdb_open_for_read_only(t.options, directory, 0, &err);
  OK(err);
  has(&t, "k0001", "k0001");
  rocksdb_delete(t.db, t.write, "k0001", 5, &err);
  failed(&err, "read-only");
  rocksdb_close(t.db);
  rocksdb_destroy_db(t.options, directory, &err);
  OK(err);
  rocksdb_options_set_create_if_missing(t.options, 0);
  EXPECT(rocksdb_open(t.options, directory, &err) == NULL);
  failed(&err, "create_if_missing is false");
  size_t count = 0;
  EXPECT(rocksdb_list_column_families(t.options, directory, &count, &err) == NULL);
  failed(&err, "IO error");
  free_options(&t);
}
