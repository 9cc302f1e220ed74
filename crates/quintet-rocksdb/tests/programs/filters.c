/* Compaction filters: entries are removed and changed. Expiry. */
#include "test.h"

static int destroyed;
static int asked;

static void destructor(void *state) {
  EXPECT(state == &destroyed);
  destroyed++;
}

static const char *name(void *state) {
  (void)state;
  return "filter";
}

/* Removes keys that begin with "r", changes those that begin with "c". */
static unsigned char filter(void *state, int level, const char *key, size_t key_size,
                            const char *value, size_t size, char **new_value, size_t *new_size,
                            unsigned char *changed) {
  EXPECT(state == &destroyed && level >= 0 && value != NULL && size > 0);
  asked++;
  if (key_size > 0 && key[0] == 'r') return 1;
  if (key_size > 0 && key[0] == 'c') {
    *new_value = "changed";
    *new_size = 7;
    *changed = 1;
  }
  return 0;
}

/* Returns nonsense: a changed value without an address. */
static unsigned char nonsense(void *state, int level, const char *key, size_t key_size,
                              const char *value, size_t size, char **new_value, size_t *new_size,
                              unsigned char *changed) {
  (void)state, (void)level, (void)key, (void)key_size, (void)value, (void)size;
  *new_value = NULL;
  *new_size = 5;
  *changed = 1;
  return 0;
}

static rocksdb_compactionfilter_t *create(void *state, rocksdb_compactionfiltercontext_t *context) {
  EXPECT(state == &destroyed);
  EXPECT(rocksdb_compactionfiltercontext_is_manual_compaction(context) == 1);
  if (!rocksdb_compactionfiltercontext_is_full_compaction(context)) return NULL;
  return rocksdb_compactionfilter_create(state, destructor, filter, name);
}

static void fill(test_db *t) {
  put(t, "k", "kept");
  put(t, "r1", "removed");
  put(t, "r2", "removed");
  put(t, "c", "old");
}

static void one_filter(const char *directory) {
  test_db t = new_options(directory);
  rocksdb_compactionfilter_t *one =
      rocksdb_compactionfilter_create(&destroyed, destructor, filter, name);
  rocksdb_compactionfilter_set_ignore_snapshots(one, 1);
  rocksdb_options_set_compaction_filter(t.options, one);
  open_db(&t, directory);
  fill(&t);
  const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(t.db);
  rocksdb_compact_range(t.db, "r2", 2, NULL, 0);
  EXPECT(asked == 1);
  has(&t, "r1", "removed");
  has(&t, "r2", NULL);
  rocksdb_compact_range(t.db, NULL, 0, NULL, 0);
  EXPECT(asked == 4);
  has(&t, "r1", NULL);
  has(&t, "k", "kept");
  has(&t, "c", "changed");
  rocksdb_readoptions_set_snapshot(t.read, snapshot);
  has(&t, "r1", "removed");
  has(&t, "c", "old");
  rocksdb_readoptions_set_snapshot(t.read, NULL);
  rocksdb_release_snapshot(t.db, snapshot);
  EXPECT(destroyed == 0);
  close_db(&t);
  rocksdb_compactionfilter_destroy(one);
  EXPECT(destroyed == 1);
}

static void factory(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_compactionfilterfactory_destroy(
      rocksdb_compactionfilterfactory_create(&destroyed, destructor, create, name));
  EXPECT(destroyed == 2);
  rocksdb_options_set_compaction_filter_factory(
      t.options, rocksdb_compactionfilterfactory_create(&destroyed, destructor, create, name));
  open_db(&t, directory);
  fill(&t);
  rocksdb_compact_range(t.db, "a", 1, "z", 1);
  has(&t, "r1", "removed");
  rocksdb_suggest_compact_range(t.db, NULL, 0, NULL, 0, &err);
  OK(err);
  EXPECT(destroyed == 3);
  has(&t, "r1", NULL);
  has(&t, "c", "changed");
  close_db(&t);
  EXPECT(destroyed == 4);

  t = new_options(directory);
  rocksdb_compactionfilter_t *wrong =
      rocksdb_compactionfilter_create(&destroyed, destructor, nonsense, name);
  rocksdb_options_set_compaction_filter(t.options, wrong);
  open_db(&t, directory);
  fill(&t);
  rocksdb_suggest_compact_range(t.db, NULL, 0, NULL, 0, &err);
  failed(&err, "null");
  has(&t, "c", "old");
  close_db(&t);
  rocksdb_compactionfilter_destroy(wrong);
}

/* Waits until a key has no value. */
static void expires(test_db *t, family *cf, const char *key) {
  char *err = NULL;
  for (int i = 0; i < 600; i++) {
    size_t size = 0;
    char *value = rocksdb_get_cf(t->db, t->read, cf, key, strlen(key), &size, &err);
    OK(err);
    rocksdb_free(value);
    if (value == NULL) return;
    usleep(100000);
  }
  fprintf(stderr, "%s does not expire\n", key);
  abort();
}

/* Entries of a range are deleted. */
static void ranges(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "cf", &err);
  OK(err);
  fill(&t);
  put_in(&t, cf, "a", "1");
  put_in(&t, cf, "b", "1");
  rocksdb_delete_file_in_range(t.db, "r", 1, "r2", 2, &err);
  OK(err);
  has(&t, "r1", NULL);
  has(&t, "r2", "removed");
  rocksdb_delete_file_in_range_cf(t.db, cf, "b", 1, NULL, 0, &err);
  OK(err);
  has_in(&t, cf, "a", "1");
  has_in(&t, cf, "b", NULL);
  rocksdb_delete_file_in_range_cf(t.db, NULL, NULL, 0, NULL, 0, &err);
  failed(&err, "the column family is null");
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
}

/* A cache counts the databases that were opened with it. */
static void caches(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_cache_t *cache = rocksdb_cache_create_lru(64 << 20);
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_options_set_block_based_table_factory(t.options, table);
  rocksdb_block_based_options_destroy(table);
  rocksdb_dbpath_t *path = rocksdb_dbpath_create(directory, 1000);
  const rocksdb_dbpath_t *paths[] = {path};
  rocksdb_options_set_db_paths(t.options, paths, 1);
  rocksdb_dbpath_destroy(path);
  EXPECT(rocksdb_cache_get_usage(cache) == 0);
  open_db(&t, directory);
  for (int i = 0; i < 2000; i++) {
    char key[16], value[200];
    snprintf(key, sizeof key, "%06d", i);
    memset(value, 'v', sizeof value);
    rocksdb_put(t.db, t.write, key, 6, value, sizeof value, &err);
    OK(err);
  }
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_flush(t.db, flush, &err);
  OK(err);
  rocksdb_flushoptions_destroy(flush);
  has(&t, "none", NULL);
  size_t size = 0;
  rocksdb_free(rocksdb_get(t.db, t.read, "000100", 6, &size, &err));
  EXPECT(size == 200 && rocksdb_cache_get_usage(cache) > 0);
  EXPECT(rocksdb_cache_get_pinned_usage(cache) == 0);
  /* The database is counted once, whether it is in the list or its cache is. */
  rocksdb_memory_consumers_t *consumers = rocksdb_memory_consumers_create();
  for (int i = 0; i < 2; i++) {
    rocksdb_memory_consumers_add_cache(consumers, cache);
    rocksdb_memory_usage_t *usage = rocksdb_approximate_memory_usage_create(consumers, &err);
    OK(err);
    EXPECT(rocksdb_approximate_memory_usage_get_cache_total(usage) ==
           rocksdb_cache_get_usage(cache));
    rocksdb_approximate_memory_usage_destroy(usage);
    rocksdb_memory_consumers_add_db(consumers, t.db);
  }
  rocksdb_memory_consumers_destroy(consumers);
  close_db(&t);
  EXPECT(rocksdb_cache_get_usage(cache) == 0);
  rocksdb_cache_destroy(cache);
}

static void lifetimes(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_options_set_uint64add_merge_operator(t.options);
  t.db = rocksdb_open_with_ttl(t.options, directory, 0, &err);
  OK(err);
  put(&t, "k", "stays");
  family *cf = rocksdb_create_column_family_with_ttl(t.db, t.options, "cf", 1, &err);
  OK(err);
  put_in(&t, cf, "plain", "1");
  const uint64_t one = 1;
  rocksdb_merge_cf(t.db, t.write, cf, "merged", 6, (const char *)&one, 8, &err);
  OK(err);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf(batch, cf, "in batch", 8, "1", 1);
  rocksdb_writebatch_merge_cf(batch, cf, "added", 5, (const char *)&one, 8);
  rocksdb_write(t.db, t.write, batch, &err);
  OK(err);
  rocksdb_writebatch_destroy(batch);
  expires(&t, cf, "plain");
  expires(&t, cf, "merged");
  expires(&t, cf, "in batch");
  expires(&t, cf, "added");
  has(&t, "k", "stays");
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t.db);
  const char *names[] = {"default", "cf"};
  const rocksdb_options_t *options[] = {t.options, t.options};
  const int ttls[] = {1, 0};
  family *handles[2];
  t.db = rocksdb_open_column_families_with_ttl(t.options, directory, 2, names, options, handles,
                                               ttls, &err);
  OK(err);
  put(&t, "short", "1");
  put_in(&t, handles[1], "long", "1");
  expires(&t, handles[0], "short");
  has(&t, "k", "stays");
  has_in(&t, handles[1], "long", "1");
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  close_db(&t);
}

void test_filters(const char *directory) {
  destroyed = asked = 0;
  one_filter(directory);
  factory(directory);
  ranges(directory);
  caches(directory);
  lifetimes(directory);
}
