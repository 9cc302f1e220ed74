/* The scenario of LevelDB's own test of its C interface, in our words: one database through all its
 * life, with a comparator and all options set. */
#include "test.h"

static void nothing(void *state) { (void)state; }

static int compare(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state;
  size_t least = alen < blen ? alen : blen;
  int order = least ? memcmp(a, b, least) : 0;
  return order != 0 ? order : (alen > blen) - (alen < blen);
}

static const char *name(void *state) {
  (void)state;
  return "foo";
}

static void writes(test_db *t) {
  char *err = NULL;
  leveldb_writebatch_t *batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "foo", 3, "a", 1);
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "bar", 3, "b", 1);
  leveldb_writebatch_put(batch, "box", 3, "c", 1);
  leveldb_writebatch_delete(batch, "bar", 3);
  leveldb_write(t->db, t->write, batch, &err);
  OK(err);
  leveldb_writebatch_destroy(batch);
  has(t, "foo", "hello");
  has(t, "bar", NULL);
  has(t, "box", "c");
}

static void iterates(test_db *t) {
  leveldb_iterator_t *it = leveldb_create_iterator(t->db, t->read);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_seek_to_first(it);
  at(it, "box", "c");
  leveldb_iter_next(it);
  at(it, "foo", "hello");
  leveldb_iter_prev(it);
  at(it, "box", "c");
  leveldb_iter_prev(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_seek_to_last(it);
  at(it, "foo", "hello");
  leveldb_iter_seek(it, "b", 1);
  at(it, "box", "c");
  char *err = NULL;
  leveldb_iter_get_error(it, &err);
  OK(err);
  leveldb_iter_destroy(it);
}

static void sizes(test_db *t) {
  const char *starts[2] = {"a", "k00000000000000010000"};
  const char *limits[2] = {"k00000000000000010000", "z"};
  size_t start_sizes[2] = {1, 21}, limit_sizes[2] = {21, 1};
  uint64_t results[2] = {0, 0};
  char key[32], value[32];
  leveldb_writeoptions_set_sync(t->write, 0);
  for (int i = 0; i < 20000; i++) {
    snprintf(key, sizeof key, "k%020d", i);
    snprintf(value, sizeof value, "v%020d", i);
    put(t, key, value);
  }
  leveldb_approximate_sizes(t->db, 2, starts, start_sizes, limits, limit_sizes, results);
  EXPECT(results[0] > 0 && results[1] > 0);
}

static void snapshots(test_db *t) {
  const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(t->db);
  delete_key(t, "foo");
  leveldb_readoptions_set_snapshot(t->read, snapshot);
  has(t, "foo", "hello");
  leveldb_readoptions_set_snapshot(t->read, NULL);
  has(t, "foo", NULL);
  leveldb_release_snapshot(t->db, snapshot);
}

void test_scenario(const char *directory) {
  char *err = NULL;
  leveldb_comparator_t *comparator = leveldb_comparator_create(NULL, nothing, compare, name);
  leveldb_env_t *env = leveldb_create_default_env();
  leveldb_cache_t *cache = leveldb_cache_create_lru(100000);
  test_db t = {NULL, leveldb_options_create(), leveldb_readoptions_create(),
               leveldb_writeoptions_create()};
  leveldb_options_set_comparator(t.options, comparator);
  leveldb_options_set_error_if_exists(t.options, 1);
  leveldb_options_set_cache(t.options, cache);
  leveldb_options_set_env(t.options, env);
  leveldb_options_set_info_log(t.options, NULL);
  leveldb_options_set_write_buffer_size(t.options, 100000);
  leveldb_options_set_paranoid_checks(t.options, 1);
  leveldb_options_set_max_open_files(t.options, 10);
  leveldb_options_set_block_size(t.options, 1024);
  leveldb_options_set_block_restart_interval(t.options, 8);
  leveldb_options_set_max_file_size(t.options, 3 << 20);
  leveldb_options_set_compression(t.options, leveldb_no_compression);
  leveldb_readoptions_set_verify_checksums(t.read, 1);
  leveldb_readoptions_set_fill_cache(t.read, 0);
  leveldb_writeoptions_set_sync(t.write, 1);

  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "does not exist");
  leveldb_options_set_create_if_missing(t.options, 1);
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  has(&t, "foo", NULL);
  put(&t, "foo", "hello");
  has(&t, "foo", "hello");
  leveldb_compact_range(t.db, NULL, 0, NULL, 0);
  leveldb_compact_range(t.db, "a", 1, "z", 1);
  has(&t, "foo", "hello");
  writes(&t);
  iterates(&t);
  sizes(&t);
  EXPECT(leveldb_property_value(t.db, "nosuchprop") == NULL);
  char *stats = leveldb_property_value(t.db, "leveldb.stats");
  EXPECT(stats != NULL);
  leveldb_free(stats);
  snapshots(&t);
  leveldb_close(t.db);

  leveldb_options_set_create_if_missing(t.options, 0);
  leveldb_options_set_error_if_exists(t.options, 0);
  leveldb_repair_db(t.options, directory, &err);
  OK(err);
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  has(&t, "foo", NULL);
  has(&t, "bar", NULL);
  has(&t, "box", "c");
  close_db(&t);
  leveldb_cache_destroy(cache);
  leveldb_comparator_destroy(comparator);
  leveldb_env_destroy(env);
}
