/* Transactions in a family with timestamps, next to the default family without them. */
#include "timestamps.h"

typedef rocksdb_transaction_t transaction;

/* A database with transactions, and what its tests need. */
typedef struct {
  test_db base;
  rocksdb_transactiondb_t *db;
  const char *directory;
  const rocksdb_options_t *options[2];
  rocksdb_transactiondb_options_t *locks;
  rocksdb_transaction_options_t *rules;
  family *plain;
  family *cf;
} txn_db;

static const char *const names[] = {"default", "ts"};
static char *err;

static void open_txn_db(txn_db *t) {
  family *families[2];
  t->db = rocksdb_transactiondb_open_column_families(t->options[0], t->locks, t->directory, 2,
                                                     names, t->options, families, &err);
  OK(err);
  t->plain = families[0];
  t->cf = families[1];
}

static void close_txn_db(txn_db *t) {
  rocksdb_column_family_handle_destroy(t->plain);
  rocksdb_column_family_handle_destroy(t->cf);
  rocksdb_transactiondb_close(t->db);
}

static transaction *begin(txn_db *t) {
  return rocksdb_transaction_begin(t->db, t->base.write, t->rules, NULL);
}

static void put_of(txn_db *t, transaction *x, const char *key, const char *value) {
  rocksdb_transaction_put_cf(x, t->cf, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static void commit_at(transaction *x, uint64_t time) {
  rocksdb_transaction_set_commit_timestamp(x, time);
  rocksdb_transaction_commit(x, &err);
  OK(err);
  rocksdb_transaction_destroy(x);
}

static void commit_one(txn_db *t, const char *key, const char *value, uint64_t time) {
  transaction *x = begin(t);
  put_of(t, x, key, value);
  commit_at(x, time);
}

/* What the database shows at a time. */
static void shows(txn_db *t, const char *key, uint64_t time, const char *expected) {
  size_t size = 0;
  read_at(&t->base, time);
  char *value = rocksdb_transactiondb_get_cf(t->db, t->base.read, t->cf, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

/* What the transaction shows at a time. */
static void sees(txn_db *t, transaction *x, const char *key, uint64_t time, const char *expected) {
  size_t size = 0;
  read_at(&t->base, time);
  char *value = rocksdb_transaction_get_cf(x, t->base.read, t->cf, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
  rocksdb_pinnableslice_t *pinned =
      rocksdb_transaction_get_pinned_cf(x, t->base.read, t->cf, key, strlen(key), &err);
  OK(err);
  const char *bytes = rocksdb_pinnableslice_value(pinned, &size);
  EXPECT(expected == NULL ? pinned == NULL : is(expected, bytes, size));
  rocksdb_pinnableslice_destroy(pinned);
  const char *keys[] = {key};
  size_t key_size = strlen(key);
  char *values[1], *errors[1];
  const rocksdb_column_family_handle_t *const families[] = {t->cf};
  rocksdb_transaction_multi_get_cf(x, t->base.read, families, 1, keys, &key_size, values, &size, errors);
  OK(errors[0]);
  expect_value(values[0], values[0] == NULL ? 0 : size, expected);
}

/* Reads a key for update. Returns why that failed. */
static char *locks(txn_db *t, transaction *x, const char *key, const char *expected) {
  size_t size = 0;
  char *value = rocksdb_transaction_get_for_update_cf(x, t->base.read, t->cf, key, strlen(key), &size, 1,
                                                      &err);
  char *failure = err;
  err = NULL;
  if (failure == NULL) {
    expect_value(value, size, expected);
    rocksdb_pinnableslice_t *pinned = rocksdb_transaction_get_pinned_for_update_cf(
        x, t->base.read, t->cf, key, strlen(key), 1, &err);
    OK(err);
    EXPECT((pinned == NULL) == (expected == NULL));
    rocksdb_pinnableslice_destroy(pinned);
  }
  return failure;
}

/* Writes have the commit timestamp, and the transaction sees them before. */
static void commits(txn_db *t) {
  size_t size = 0;
  transaction *x = begin(t);
  put_of(t, x, "a", "a10");
  put_of(t, x, "gone", "never");
  rocksdb_transaction_delete_cf(x, t->cf, "gone", 4, &err);
  OK(err);
  rocksdb_transaction_put(x, "plain", 5, "value", 5, &err);
  OK(err);
  rocksdb_readoptions_set_timestamp(t->base.read, NULL, 0);
  EXPECT(rocksdb_transaction_get_cf(x, t->base.read, t->cf, "a", 1, &size, &err) == NULL);
  failed(&err, "Must specify timestamp");
  sees(t, x, "a", 1, "a10");
  sees(t, x, "gone", 99, NULL);
  shows(t, "a", 99, NULL);
  commit_at(x, 10);
  shows(t, "a", 9, NULL);
  shows(t, "a", 10, "a10");
  shows(t, "gone", 99, NULL);
  commit_one(t, "a", "a20", 20);
  x = begin(t);
  sees(t, x, "a", 10, "a10");
  sees(t, x, "a", 25, "a20");
  rocksdb_transaction_delete_cf(x, t->cf, "a", 1, &err);
  OK(err);
  sees(t, x, "a", 10, NULL);
  commit_at(x, 30);
  shows(t, "a", 29, "a20");
  shows(t, "a", 30, NULL);
  /* The value of a timestamp that two transactions have is the later one. */
  commit_one(t, "a", "again", 30);
  shows(t, "a", 30, "again");
  rocksdb_readoptions_set_timestamp(t->base.read, NULL, 0);
  char *value = rocksdb_transactiondb_get(t->db, t->base.read, "plain", 5, &size, &err);
  OK(err);
  expect_value(value, size, "value");
}

/* Without a commit timestamp the commit fails. In RocksDB the transaction has ended then. */
static void commit_timestamps(txn_db *t, bool may_go_on) {
  const uint64_t none[] = {UINT64_MAX, 0};
  for (int i = 0; i < 2; i++) {
    transaction *x = begin(t);
    put_of(t, x, "none", "none");
    if (none[i] != 0) rocksdb_transaction_set_commit_timestamp(x, none[i]);
    rocksdb_transaction_commit(x, &err);
    failed(&err, "Must assign a commit timestamp");
    if (may_go_on) {
      rocksdb_transaction_set_commit_timestamp(x, 50);
      rocksdb_transaction_commit(x, &err);
      OK(err);
      shows(t, "none", 50, "none");
    }
    rocksdb_transaction_destroy(x);
  }
  shows(t, "none", 49, NULL);
  /* A timestamp that is not above the read timestamp does not count. */
  transaction *x = begin(t);
  rocksdb_transaction_set_read_timestamp_for_validation(x, 60);
  rocksdb_transaction_set_commit_timestamp(x, 60);
  put_of(t, x, "b", "b");
  rocksdb_transaction_commit(x, &err);
  failed(&err, "Must assign a commit timestamp");
  rocksdb_transaction_destroy(x);
  /* A rollback discards the writes and keeps the timestamp. */
  x = begin(t);
  rocksdb_transaction_set_commit_timestamp(x, 60);
  put_of(t, x, "discarded", "value");
  rocksdb_transaction_rollback(x, &err);
  OK(err);
  put_of(t, x, "kept", "value");
  rocksdb_transaction_set_savepoint(x);
  put_of(t, x, "kept", "other");
  rocksdb_transaction_rollback_to_savepoint(x, &err);
  OK(err);
  rocksdb_transaction_commit(x, &err);
  OK(err);
  rocksdb_transaction_destroy(x);
  shows(t, "discarded", 99, NULL);
  shows(t, "kept", 60, "value");
  shows(t, "kept", 59, NULL);
  /* A transaction that writes no such family needs none. */
  x = begin(t);
  put_of(t, x, "k", "v");
  rocksdb_transaction_rollback(x, &err);
  rocksdb_transaction_destroy(x);
  x = begin(t);
  rocksdb_transaction_put(x, "plain", 5, "two", 3, &err);
  rocksdb_transaction_commit(x, &err);
  OK(err);
  rocksdb_transaction_destroy(x);
}

/* A key with a version that is newer than the read timestamp is refused. */
static void validation(txn_db *t) {
  commit_one(t, "v", "v100", 100);
  transaction *x = begin(t);
  read_at(&t->base, 100);
  char *failure = locks(t, x, "v", NULL);
  failed(&failure, "read_timestamp must be set for validation");
  rocksdb_transaction_set_read_timestamp_for_validation(x, 99);
  failure = locks(t, x, "v", NULL);
  failed(&failure, "Must read from the same read_timestamp");
  read_at(&t->base, 99);
  failure = locks(t, x, "v", NULL);
  failed(&failure, "Resource busy");
  rocksdb_transaction_put_cf(x, t->cf, "v", 1, "v", 1, &err);
  failed(&err, "Resource busy");
  rocksdb_transaction_delete_cf(x, t->cf, "v", 1, &err);
  failed(&err, "Resource busy");
  rocksdb_transaction_set_read_timestamp_for_validation(x, 100);
  /* A lesser one does not count. */
  rocksdb_transaction_set_read_timestamp_for_validation(x, 7);
  read_at(&t->base, 100);
  OK(locks(t, x, "v", "v100"));
  rocksdb_readoptions_set_timestamp(t->base.read, NULL, 0);
  OK(locks(t, x, "v", "v100"));
  put_of(t, x, "v", "v101");
  OK(locks(t, x, "v", "v101"));
  OK(locks(t, x, "absent", NULL));
  commit_at(x, 101);
  shows(t, "v", 101, "v101");
  shows(t, "v", 100, "v100");
}

/* With a snapshot, a key that was written since is refused, whatever its timestamp is. */
static void snapshots(txn_db *t) {
  rocksdb_transaction_options_set_set_snapshot(t->rules, 1);
  transaction *x = begin(t);
  commit_one(t, "s", "s110", 110);
  rocksdb_transaction_set_read_timestamp_for_validation(x, 110);
  read_at(&t->base, 110);
  char *failure = locks(t, x, "s", NULL);
  failed(&failure, "Resource busy");
  rocksdb_transaction_put_cf(x, t->cf, "s", 1, "s", 1, &err);
  failed(&err, "Resource busy");
  put_of(t, x, "other", "o120");
  commit_at(x, 120);
  shows(t, "other", 120, "o120");
  rocksdb_transaction_options_set_set_snapshot(t->rules, 0);
}

/* A lock is of all versions of a key, and of no other key. */
static void waits(txn_db *t) {
  transaction *x = begin(t), *y = begin(t);
  put_of(t, x, "l", "x");
  rocksdb_transaction_put_cf(y, t->cf, "l", 1, "y", 1, &err);
  failed(&err, "Operation timed out");
  put_of(t, y, "l2", "y");
  rocksdb_transaction_put_cf(y, t->plain, "l", 1, "y", 1, &err);
  OK(err);
  commit_at(x, 130);
  put_of(t, y, "l", "y");
  commit_at(y, 131);
  shows(t, "l", 130, "x");
  shows(t, "l", 131, "y");
}

static void next_is(rocksdb_iterator_t *it, const char *key, const char *value) {
  at(it, key, value);
  rocksdb_iter_next(it);
}

/* An iterator shows the versions at a time, with what the transaction has written. */
static void iterators(txn_db *t) {
  const char *const keys[] = {"ia", "ib", "ic", "id"};
  for (int i = 0; i < 4; i++) commit_one(t, keys[i], "old", 140);
  for (int i = 0; i < 2; i++) commit_one(t, keys[i], "new", 150);
  transaction *x = begin(t);
  put_of(t, x, "ib", "own");
  put_of(t, x, "ibb", "own");
  rocksdb_transaction_delete_cf(x, t->cf, "ic", 2, &err);
  OK(err);
  read_at(&t->base, 145);
  rocksdb_readoptions_set_iterate_upper_bound(t->base.read, "iz", 2);
  rocksdb_iterator_t *it = rocksdb_transaction_create_iterator_cf(x, t->base.read, t->cf);
  rocksdb_iter_seek(it, "ia", 2);
  next_is(it, "ia", "old");
  next_is(it, "ib", "own");
  next_is(it, "ibb", "own");
  next_is(it, "id", "old");
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_seek_to_last(it);
  at(it, "id", "old");
  rocksdb_iter_prev(it);
  at(it, "ibb", "own");
  rocksdb_iter_prev(it);
  at(it, "ib", "own");
  rocksdb_iter_prev(it);
  at(it, "ia", "old");
  rocksdb_iter_get_error(it, &err);
  OK(err);
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_timestamp(t->base.read, NULL, 0);
  it = rocksdb_transaction_create_iterator_cf(x, t->base.read, t->cf);
  rocksdb_iter_get_error(it, &err);
  failed(&err, "enables timestamp");
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_upper_bound(t->base.read, NULL, 0);
  rocksdb_transaction_destroy(x);
}

/* What fails in such a family. */
static void failures(txn_db *t) {
  transaction *x = begin(t);
  rocksdb_transaction_merge_cf(x, t->cf, "m", 1, "v", 1, &err);
  failed(&err, "Cannot call this method on column family enabling timestamp");
  rocksdb_transaction_destroy(x);
  rocksdb_transactiondb_put_cf(t->db, t->base.write, t->cf, "k", 1, "v", 1, &err);
  failed(&err, "must go through the transaction API");
  rocksdb_transactiondb_delete_cf(t->db, t->base.write, t->cf, "k", 1, &err);
  failed(&err, "must go through the transaction API");
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf_with_ts(batch, t->cf, "k", 1, ts(1), 8, "v", 1);
  rocksdb_transactiondb_write(t->db, t->base.write, batch, &err);
  failed(&err, "must go through");
  rocksdb_writebatch_destroy(batch);
}

/* RocksDB adds the records of such batches with wrong keys, and differs in the rest too. */
static void differences(txn_db *t) {
  size_t size = 0;
  rocksdb_transaction_set_commit_timestamp(NULL, 1);
  rocksdb_transaction_set_read_timestamp_for_validation(NULL, 1);
  transaction *x = begin(t), *y = begin(t);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf_with_ts(batch, t->cf, "k", 1, ts(1), 8, "v", 1);
  rocksdb_transaction_rebuild_from_writebatch(x, batch, &err);
  failed(&err, "enables timestamp");
  rocksdb_writebatch_destroy(batch);
  put_of(t, x, "a key of some bytes", "value");
  rocksdb_writebatch_wi_t *own = rocksdb_transaction_get_writebatch_wi(x);
  EXPECT(rocksdb_writebatch_wi_count(own) == 1);
  char *value = rocksdb_writebatch_wi_get_from_batch_cf(own, t->options[1], t->cf,
                                                        "a key of some bytes", 19, &size, &err);
  OK(err);
  expect_value(value, size, "value");
  rocksdb_transaction_rebuild_from_writebatch_wi(y, own, &err);
  failed(&err, "enables timestamp");
  /* Its records have no timestamps, and are never written with the end of a key as one. */
  rocksdb_write_writebatch_wi((rocksdb_t *)t->db, t->base.write, own, &err);
  failed(&err, "must have timestamp(s) set");
  rocksdb_free(own);
  rocksdb_transaction_destroy(x);
  rocksdb_transaction_destroy(y);
  /* Each version may be the subject of one commit since the first operation of a transaction. */
  x = begin(t);
  put_of(t, x, "first", "x");
  commit_one(t, "same", "y", 160);
  put_of(t, x, "same", "x");
  rocksdb_transaction_set_commit_timestamp(x, 160);
  rocksdb_transaction_commit(x, &err);
  failed(&err, "Resource busy");
  rocksdb_transaction_destroy(x);
  shows(t, "same", 160, "y");
  shows(t, "first", 160, NULL);
  /* An iterator shows the writes as they were when it was made. */
  x = begin(t);
  put_of(t, x, "zz", "before");
  read_at(&t->base, 160);
  rocksdb_iterator_t *it = rocksdb_transaction_create_iterator_cf(x, t->base.read, t->cf);
  put_of(t, x, "zz", "after");
  rocksdb_iter_seek_to_last(it);
  at(it, "zz", "before");
  const char *time = rocksdb_iter_timestamp(it, &size);
  EXPECT(size == 8 && memcmp(time, ts(160), 8) == 0);
  rocksdb_iter_destroy(it);
  char start[8] = {0};
  rocksdb_readoptions_set_iter_start_ts(t->base.read, start, 8);
  it = rocksdb_transaction_create_iterator_cf(x, t->base.read, t->cf);
  rocksdb_iter_get_error(it, &err);
  failed(&err, "shows one version of a key");
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iter_start_ts(t->base.read, NULL, 0);
  /* A family without timestamps has none to read at. */
  EXPECT(rocksdb_transaction_get(x, t->base.read, "plain", 5, &size, &err) == NULL);
  failed(&err, "does not enable timestamp");
  rocksdb_transaction_destroy(x);
}

/* A prepared transaction gets its timestamp at the commit, also after another open. */
static void prepared(txn_db *t) {
  transaction *x = begin(t);
  rocksdb_transaction_set_name(x, "one", 3, &err);
  put_of(t, x, "p", "p200");
  rocksdb_transaction_put(x, "pp", 2, "plain", 5, &err);
  rocksdb_transaction_prepare(x, &err);
  OK(err);
  shows(t, "p", UINT64_MAX - 1, NULL);
  commit_at(x, 200);
  shows(t, "p", 199, NULL);
  shows(t, "p", 200, "p200");
  x = begin(t);
  rocksdb_transaction_set_name(x, "two", 3, &err);
  put_of(t, x, "p", "p300");
  rocksdb_transaction_delete_cf(x, t->cf, "v", 1, &err);
  rocksdb_transaction_put(x, "pp", 2, "other", 5, &err);
  rocksdb_transaction_prepare(x, &err);
  OK(err);
  rocksdb_transaction_destroy(x);
}

static void recovered(txn_db *t, bool tries_without) {
  size_t count = 0, size = 0;
  close_txn_db(t);
  open_txn_db(t);
  shows(t, "p", 999, "p200");
  transaction *y = begin(t);
  rocksdb_transaction_put_cf(y, t->cf, "p", 1, "y", 1, &err);
  failed(&err, "Operation timed out");
  rocksdb_transaction_destroy(y);
  transaction **all = rocksdb_transactiondb_get_prepared_transactions(t->db, &count);
  EXPECT(count == 1);
  if (tries_without) {
    rocksdb_transaction_commit(all[0], &err);
    failed(&err, "Must assign a commit timestamp");
  }
  commit_at(all[0], 300);
  rocksdb_free(all);
  shows(t, "p", 299, "p200");
  shows(t, "p", 300, "p300");
  shows(t, "v", 299, "v101");
  shows(t, "v", 300, NULL);
  rocksdb_readoptions_set_timestamp(t->base.read, NULL, 0);
  char *value = rocksdb_transactiondb_get(t->db, t->base.read, "pp", 2, &size, &err);
  expect_value(value, size, "other");
  commit_one(t, "p", "p301", 301);
  shows(t, "p", 301, "p301");
}

/* An optimistic transaction fails there. RocksDB fails at the commit. */
static void optimistic(txn_db *t) {
  family *families[2];
  close_txn_db(t);
  rocksdb_optimistictransactiondb_t *db = rocksdb_optimistictransactiondb_open_column_families(
      t->options[0], t->directory, 2, names, t->options, families, &err);
  OK(err);
  transaction *x = rocksdb_optimistictransaction_begin(db, t->base.write, NULL, NULL);
  rocksdb_transaction_set_commit_timestamp(x, 400);
  rocksdb_transaction_put_cf(x, families[1], "o", 1, "v", 1, &err);
  failed(&err, "enables timestamp");
  rocksdb_transaction_commit(x, &err);
  OK(err);
  rocksdb_transaction_destroy(x);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(families[i]);
  rocksdb_optimistictransactiondb_close(db);
  open_txn_db(t);
}

static void run(const char *directory) {
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_comparator_t *order = comparator();
  rocksdb_options_set_comparator(options, order);
  txn_db t = {.base = new_options(directory),
              .directory = directory,
              .locks = rocksdb_transactiondb_options_create(),
              .rules = rocksdb_transaction_options_create()};
  t.options[0] = t.base.options;
  t.options[1] = options;
  rocksdb_transactiondb_options_set_transaction_lock_timeout(t.locks, 50);
  open_txn_db(&t);
  commits(&t);
  commit_timestamps(&t, true);
  validation(&t);
  snapshots(&t);
  waits(&t);
  iterators(&t);
  failures(&t);
  differences(&t);
  prepared(&t);
  recovered(&t, true);
  optimistic(&t);
  close_txn_db(&t);
  rocksdb_transaction_options_destroy(t.rules);
  rocksdb_transactiondb_options_destroy(t.locks);
  rocksdb_options_destroy(options);
  free_options(&t.base);
  rocksdb_comparator_destroy(order);
}

void test_timestamp_transactions(const char *directory) { in_both_byte_orders(run, directory); }
