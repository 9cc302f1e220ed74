/* Transactions that lock keys: conflicts wait, save points, families, iterators, threads. */
#include "test.h"

typedef struct {
  rocksdb_transactiondb_t *db;
  rocksdb_transactiondb_options_t *locks;
  rocksdb_transaction_options_t *rules;
  rocksdb_readoptions_t *read;
  rocksdb_writeoptions_t *write;
} locked_db;

static rocksdb_transaction_t *begin(locked_db *t) {
  rocksdb_transaction_t *tx = rocksdb_transaction_begin(t->db, t->write, t->rules, NULL);
  EXPECT(tx != NULL);
  return tx;
}

static void commit(rocksdb_transaction_t *tx) {
  char *err = NULL;
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  rocksdb_transaction_destroy(tx);
}

static void set(rocksdb_transaction_t *tx, const char *key, const char *value) {
  char *err = NULL;
  rocksdb_transaction_put(tx, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static void shows(locked_db *t, rocksdb_transaction_t *tx, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 9;
  char *value = rocksdb_transaction_get(tx, t->read, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

static void stored(locked_db *t, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 9;
  char *value = rocksdb_transactiondb_get(t->db, t->read, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

static void conflicts(locked_db *t) {
  char *err = NULL;
  rocksdb_transaction_t *one = begin(t), *two = begin(t);
  set(one, "k", "one");
  rocksdb_transaction_put(two, "k", 1, "two", 3, &err);
  failed(&err, "Operation timed out");
  rocksdb_transactiondb_put(t->db, t->write, "k", 1, "plain", 5, &err);
  failed(&err, "Operation timed out");
  size_t size = 0;
  EXPECT(rocksdb_transaction_get_for_update(two, t->read, "k", 1, &size, 1, &err) == NULL);
  failed(&err, "Operation timed out");
  stored(t, "k", NULL);
  commit(one);
  stored(t, "k", "one");
  set(two, "k", "two");
  commit(two);
  stored(t, "k", "two");
}

static void save_points(locked_db *t) {
  char *err = NULL;
  rocksdb_transaction_t *tx = begin(t);
  set(tx, "a", "1");
  rocksdb_transaction_set_savepoint(tx);
  set(tx, "a", "2");
  rocksdb_transaction_delete(tx, "k", 1, &err);
  OK(err);
  shows(t, tx, "a", "2");
  shows(t, tx, "k", NULL);
  rocksdb_transaction_rollback_to_savepoint(tx, &err);
  OK(err);
  shows(t, tx, "a", "1");
  shows(t, tx, "k", "two");
  rocksdb_transaction_rollback_to_savepoint(tx, &err);
  failed(&err, "NotFound");
  rocksdb_transaction_rollback(tx, &err);
  OK(err);
  shows(t, tx, "a", NULL);
  set(tx, "a", "3");
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  rocksdb_transaction_put(tx, "a", 1, "4", 1, &err);
  failed(&err, "was committed");
  rocksdb_transaction_commit(tx, &err);
  failed(&err, "was committed");
  /* The object may be used for another transaction. */
  tx = rocksdb_transaction_begin(t->db, t->write, t->rules, tx);
  shows(t, tx, "a", "3");
  rocksdb_transaction_destroy(tx);
  stored(t, "a", "3");
}

static void iterates(locked_db *t, rocksdb_iterator_t *it, const char *expected) {
  (void)t;
  char seen[256] = "";
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
    size_t size = 0;
    const char *key = rocksdb_iter_key(it, &size);
    strncat(seen, key, size);
    strcat(seen, " ");
  }
  for (rocksdb_iter_seek_to_last(it); rocksdb_iter_valid(it); rocksdb_iter_prev(it)) {
    size_t size = 0;
    const char *key = rocksdb_iter_key(it, &size);
    strncat(seen, key, size);
  }
  char *err = NULL;
  rocksdb_iter_get_error(it, &err);
  OK(err);
  if (strcmp(seen, expected) != 0) fprintf(stderr, "%s\n", seen);
  EXPECT(strcmp(seen, expected) == 0);
  rocksdb_iter_destroy(it);
}

static void families(locked_db *t, rocksdb_options_t *options) {
  char *err = NULL;
  size_t size = 0;
  family *cf = rocksdb_transactiondb_create_column_family(t->db, options, "cf", &err);
  OK(err);
  rocksdb_transaction_t *tx = begin(t);
  const char *keys[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; i++) {
    rocksdb_transaction_put_cf(tx, cf, keys[i], 1, "v", 1, &err);
    OK(err);
  }
  rocksdb_transaction_delete_cf(tx, cf, "b", 1, &err);
  OK(err);
  char *value = rocksdb_transaction_get_cf(tx, t->read, cf, "a", 1, &size, &err);
  expect_value(value, size, "v");
  value = rocksdb_transaction_get_for_update_cf(tx, t->read, cf, "c", 1, &size, 1, &err);
  expect_value(value, size, "v");
  rocksdb_pinnableslice_destroy(
      rocksdb_transaction_get_pinned_for_update_cf(tx, t->read, cf, "c", 1, 1, &err));
  EXPECT(rocksdb_transaction_get_pinned_cf(tx, t->read, cf, "b", 1, &err) == NULL);
  OK(err);
  iterates(t, rocksdb_transaction_create_iterator_cf(tx, t->read, cf), "a c d dca");
  EXPECT(rocksdb_transactiondb_get_cf(t->db, t->read, cf, "a", 1, &size, &err) == NULL);
  OK(err);
  const family *of_keys[] = {cf, cf};
  const size_t sizes[] = {1, 1};
  char *values[2], *errors[2];
  size_t value_sizes[2];
  rocksdb_transaction_multi_get_cf(tx, t->read, of_keys, 2, keys, sizes, values, value_sizes,
                                   errors);
  expect_value(values[0], value_sizes[0], "v");
  expect_value(values[1], value_sizes[1], NULL);
  commit(tx);
  rocksdb_transactiondb_multi_get_cf(t->db, t->read, of_keys, 2, keys, sizes, values, value_sizes,
                                     errors);
  expect_value(values[0], value_sizes[0], "v");
  expect_value(values[1], value_sizes[1], NULL);
  iterates(t, rocksdb_transactiondb_create_iterator_cf(t->db, t->read, cf), "a c d dca");
  rocksdb_transactiondb_put_cf(t->db, t->write, cf, "n", 1, "x", 1, &err);
  OK(err);
  rocksdb_transactiondb_merge_cf(t->db, t->write, cf, "n", 1, "x", 1, &err);
  failed(&err, "8 bytes");
  rocksdb_transactiondb_delete_cf(t->db, t->write, cf, "n", 1, &err);
  OK(err);
  EXPECT(rocksdb_transactiondb_get_pinned_cf(t->db, t->read, cf, "n", 1, &err) == NULL);
  tx = begin(t);
  uint64_t one = 1;
  rocksdb_transaction_merge_cf(tx, cf, "n", 1, (const char *)&one, 8, &err);
  OK(err);
  rocksdb_transaction_merge(tx, "n", 1, (const char *)&one, 8, &err);
  OK(err);
  commit(tx);
  value = rocksdb_transactiondb_get_cf(t->db, t->read, cf, "n", 1, &size, &err);
  EXPECT(size == 8 && memcmp(value, &one, 8) == 0);
  rocksdb_free(value);
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_transactiondb_flush_cf(t->db, flush, cf, &err);
  OK(err);
  rocksdb_transactiondb_flush(t->db, flush, &err);
  OK(err);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_column_family_handle_destroy(cf);
}

static locked_db *counted;

/* Adds 1 to a counter by transactions that lock it. */
static void *count(void *argument) {
  (void)argument;
  for (int i = 0; i < 25; i++) {
    char *err = NULL;
    size_t size = 0;
    rocksdb_transaction_t *tx =
        rocksdb_transaction_begin(counted->db, counted->write, NULL, NULL);
    char *value =
        rocksdb_transaction_get_for_update(tx, counted->read, "count", 5, &size, 1, &err);
    OK(err);
    char text[32] = "0";
    if (value != NULL) memcpy(text, value, size);
    if (value != NULL) text[size] = 0;
    rocksdb_free(value);
    snprintf(text, sizeof text, "%d", atoi(text) + 1);
    rocksdb_transaction_put(tx, "count", 5, text, strlen(text), &err);
    OK(err);
    rocksdb_transaction_commit(tx, &err);
    OK(err);
    rocksdb_transaction_destroy(tx);
  }
  return NULL;
}

static void others(locked_db *t) {
  char *err = NULL;
  size_t size = 0;
  rocksdb_transaction_options_set_set_snapshot(t->rules, 1);
  rocksdb_transaction_t *tx = begin(t);
  rocksdb_transactiondb_put(t->db, t->write, "later", 5, "x", 1, &err);
  OK(err);
  shows(t, tx, "later", NULL);
  rocksdb_transaction_put(tx, "later", 5, "y", 1, &err);
  failed(&err, "Resource busy");
  rocksdb_transaction_destroy(tx);
  rocksdb_transaction_options_set_set_snapshot(t->rules, 0);
  tx = begin(t);
  rocksdb_pinnableslice_t *pinned = rocksdb_transaction_get_pinned(tx, t->read, "later", 5, &err);
  EXPECT(is("x", rocksdb_pinnableslice_value(pinned, &size), 1));
  rocksdb_pinnableslice_destroy(pinned);
  pinned = rocksdb_transaction_get_pinned_for_update(tx, t->read, "later", 5, 1, &err);
  rocksdb_pinnableslice_destroy(pinned);
  const char *keys[] = {"later", "none"};
  const size_t sizes[] = {5, 4};
  char *values[2], *errors[2];
  size_t value_sizes[2];
  rocksdb_transaction_multi_get(tx, t->read, 2, keys, sizes, values, value_sizes, errors);
  expect_value(values[0], value_sizes[0], "x");
  expect_value(values[1], value_sizes[1], NULL);
  rocksdb_transaction_destroy(tx);
  rocksdb_transactiondb_multi_get(t->db, t->read, 2, keys, sizes, values, value_sizes, errors);
  expect_value(values[0], value_sizes[0], "x");
  expect_value(values[1], value_sizes[1], NULL);
  pinned = rocksdb_transactiondb_get_pinned(t->db, t->read, "later", 5, &err);
  EXPECT(pinned != NULL);
  rocksdb_pinnableslice_destroy(pinned);
  const rocksdb_snapshot_t *snapshot = rocksdb_transactiondb_create_snapshot(t->db);
  rocksdb_transactiondb_delete(t->db, t->write, "later", 5, &err);
  OK(err);
  rocksdb_readoptions_set_snapshot(t->read, snapshot);
  stored(t, "later", "x");
  rocksdb_readoptions_set_snapshot(t->read, NULL);
  rocksdb_transactiondb_release_snapshot(t->db, snapshot);
  rocksdb_transactiondb_merge(t->db, t->write, "k", 1, "x", 1, &err);
  failed(&err, "8 bytes");
  rocksdb_transactiondb_flush_wal(t->db, 1, &err);
  OK(err);
  char *text = rocksdb_transactiondb_property_value(t->db, "rocksdb.stats");
  EXPECT(text != NULL);
  rocksdb_free(text);
  uint64_t number = 0;
  EXPECT(rocksdb_transactiondb_property_int(t->db, "rocksdb.num-snapshots", &number) == 0);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "w1", 2, "1", 1);
  rocksdb_writebatch_delete_range(batch, "w0", 2, "w9", 2);
  rocksdb_writebatch_put(batch, "w2", 2, "2", 1);
  rocksdb_transactiondb_write(t->db, t->write, batch, &err);
  OK(err);
  stored(t, "w1", NULL);
  stored(t, "w2", "2");
  rocksdb_writebatch_destroy(batch);
}

void test_transactions(const char *directory) {
  char *err = NULL;
  test_db base = new_options(directory);
  rocksdb_options_set_uint64add_merge_operator(base.options);
  locked_db t = {NULL, rocksdb_transactiondb_options_create(), rocksdb_transaction_options_create(),
                 base.read, base.write};
  rocksdb_transactiondb_options_set_max_num_locks(t.locks, 1000);
  rocksdb_transactiondb_options_set_num_stripes(t.locks, 4);
  rocksdb_transactiondb_options_set_default_lock_timeout(t.locks, 10);
  rocksdb_transactiondb_options_set_transaction_lock_timeout(t.locks, 50);
  rocksdb_transaction_options_set_deadlock_detect(t.rules, 1);
  rocksdb_transaction_options_set_deadlock_detect_depth(t.rules, 5);
  rocksdb_transaction_options_set_expiration(t.rules, -1);
  rocksdb_transaction_options_set_max_write_batch_size(t.rules, 0);
  rocksdb_transaction_options_set_skip_prepare(t.rules, 1);
  rocksdb_transaction_options_set_lock_timeout(t.rules, 20);
  t.db = rocksdb_transactiondb_open(base.options, t.locks, directory, &err);
  OK(err);
  conflicts(&t);
  save_points(&t);
  rocksdb_transaction_t *tx = begin(&t);
  set(tx, "b", "1");
  iterates(&t, rocksdb_transaction_create_iterator(tx, t.read), "a b k kba");
  rocksdb_transaction_destroy(tx);
  iterates(&t, rocksdb_transactiondb_create_iterator(t.db, t.read), "a k ka");
  families(&t, base.options);
  others(&t);
  rocksdb_transactiondb_close(t.db);

  /* Threads wait for the lock, as long as it takes. */
  const char *names[] = {"default", "cf"};
  const rocksdb_options_t *options[] = {base.options, base.options};
  family *handles[2];
  rocksdb_transactiondb_options_set_transaction_lock_timeout(t.locks, -1);
  t.db = rocksdb_transactiondb_open_column_families(base.options, t.locks, directory, 2, names,
                                                    options, handles, &err);
  OK(err);
  counted = &t;
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) EXPECT(pthread_create(&threads[i], NULL, count, NULL) == 0);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  stored(&t, "count", "200");
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_transactiondb_close(t.db);
  rocksdb_transactiondb_options_destroy(t.locks);
  rocksdb_transaction_options_destroy(t.rules);
  free_options(&base);
}
