/* Two-phase commit, also across a restart and the end of a process; snapshots and batches of
 * transactions. */
#include "test.h"

#include <sys/wait.h>

typedef struct {
  rocksdb_transactiondb_t *db;
  rocksdb_transactiondb_options_t *locks;
  test_db base;
  family *handles[2];
} two_phase_db;

static void open_it(two_phase_db *t, const char *directory) {
  char *err = NULL;
  const char *names[] = {"default", "cf"};
  const rocksdb_options_t *options[] = {t->base.options, t->base.options};
  t->db = rocksdb_transactiondb_open_column_families(t->base.options, t->locks, directory, 2, names,
                                                     options, t->handles, &err);
  OK(err);
}

static void close_it(two_phase_db *t) {
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(t->handles[i]);
  rocksdb_transactiondb_close(t->db);
}

static rocksdb_transaction_t *begin(two_phase_db *t, const char *name) {
  char *err = NULL;
  rocksdb_transaction_t *tx = rocksdb_transaction_begin(t->db, t->base.write, NULL, NULL);
  EXPECT(tx != NULL);
  if (name != NULL) {
    rocksdb_transaction_set_name(tx, name, strlen(name), &err);
    OK(err);
  }
  return tx;
}

static void set(rocksdb_transaction_t *tx, const char *key, const char *value) {
  char *err = NULL;
  rocksdb_transaction_put(tx, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static void prepare(rocksdb_transaction_t *tx) {
  char *err = NULL;
  rocksdb_transaction_prepare(tx, &err);
  OK(err);
}

static void stored(two_phase_db *t, family *cf, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 9;
  char *value =
      rocksdb_transactiondb_get_cf(t->db, t->base.read, cf, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

static size_t prepared_count(two_phase_db *t) {
  size_t count = 9;
  rocksdb_transaction_t **list = rocksdb_transactiondb_get_prepared_transactions(t->db, &count);
  for (size_t i = 0; i < count; i++) rocksdb_transaction_destroy(list[i]);
  rocksdb_free(list);
  return count;
}

static void names(two_phase_db *t) {
  char *err = NULL;
  size_t size = 0;
  rocksdb_transaction_t *tx = begin(t, NULL);
  char *name = rocksdb_transaction_get_name(tx, &size);
  EXPECT(size == 0);
  rocksdb_free(name);
  rocksdb_transaction_prepare(tx, &err);
  failed(&err, "has not been named");
  rocksdb_transaction_set_name(tx, "", 0, &err);
  failed(&err, "between 1 and 512");
  rocksdb_transaction_set_name(tx, "one", 3, &err);
  OK(err);
  rocksdb_transaction_set_name(tx, "two", 3, &err);
  failed(&err, "already been named");
  name = rocksdb_transaction_get_name(tx, &size);
  EXPECT(is("one", name, size));
  rocksdb_free(name);
  rocksdb_transaction_t *other = begin(t, NULL);
  rocksdb_transaction_set_name(other, "one", 3, &err);
  failed(&err, "must be unique");
  rocksdb_transaction_destroy(tx);
  rocksdb_transaction_set_name(other, "one", 3, &err);
  OK(err);
  rocksdb_transaction_destroy(other);
}

static void one_process(two_phase_db *t) {
  char *err = NULL;
  rocksdb_transaction_t *tx = begin(t, "committed");
  set(tx, "k", "1");
  prepare(tx);
  rocksdb_transaction_prepare(tx, &err);
  failed(&err, "is prepared");
  EXPECT(prepared_count(t) == 1);
  stored(t, t->handles[0], "k", NULL);
  rocksdb_transactiondb_put(t->db, t->base.write, "k", 1, "other", 5, &err);
  failed(&err, "Operation timed out");
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  rocksdb_transaction_destroy(tx);
  stored(t, t->handles[0], "k", "1");
  EXPECT(prepared_count(t) == 0);

  /* The commit has writes that came after that too. */
  tx = begin(t, "committed");
  set(tx, "k", "2");
  prepare(tx);
  set(tx, "k", "1");
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  rocksdb_transaction_destroy(tx);
  stored(t, t->handles[0], "k", "1");

  tx = begin(t, "rolled back");
  set(tx, "k", "2");
  prepare(tx);
  rocksdb_transaction_rollback(tx, &err);
  OK(err);
  EXPECT(prepared_count(t) == 0);
  rocksdb_transaction_destroy(tx);
  rocksdb_transactiondb_put(t->db, t->base.write, "k", 1, "3", 1, &err);
  OK(err);
}

static void restarts(two_phase_db *t, const char *directory) {
  char *err = NULL;
  size_t count = 0, size = 0;
  const uint64_t one = 1;
  rocksdb_transaction_t *tx = begin(t, "first");
  set(tx, "r", "1");
  rocksdb_transaction_delete(tx, "k", 1, &err);
  OK(err);
  rocksdb_transaction_put_cf(tx, t->handles[1], "c", 1, "cf", 2, &err);
  OK(err);
  rocksdb_transaction_merge_cf(tx, t->handles[1], "sum", 3, (const char *)&one, 8, &err);
  OK(err);
  prepare(tx);
  rocksdb_transaction_t *second = begin(t, "second");
  set(second, "s", "1");
  prepare(second);
  rocksdb_transaction_t *lost = begin(t, "lost");
  set(lost, "l", "1");
  /* The objects may be freed before the database is closed, or not be used any more. */
  rocksdb_transaction_destroy(tx);
  rocksdb_transaction_destroy(second);
  rocksdb_transaction_destroy(lost);
  close_it(t);
  open_it(t, directory);
  rocksdb_transaction_t **list = rocksdb_transactiondb_get_prepared_transactions(t->db, &count);
  EXPECT(count == 2);
  rocksdb_transaction_t *found[2] = {list[0], list[1]};
  rocksdb_free(list);
  char *name = rocksdb_transaction_get_name(found[0], &size);
  EXPECT(is("first", name, size));
  rocksdb_free(name);
  rocksdb_transactiondb_put(t->db, t->base.write, "r", 1, "other", 5, &err);
  failed(&err, "Operation timed out");
  rocksdb_transactiondb_put(t->db, t->base.write, "l", 1, "other", 5, &err);
  OK(err);
  tx = begin(t, NULL);
  rocksdb_transaction_set_name(tx, "second", 6, &err);
  failed(&err, "must be unique");
  rocksdb_transaction_destroy(tx);
  stored(t, t->handles[0], "r", NULL);
  stored(t, t->handles[0], "k", "3");
  rocksdb_transaction_commit(found[0], &err);
  OK(err);
  rocksdb_transaction_rollback(found[1], &err);
  OK(err);
  rocksdb_transaction_destroy(found[0]);
  rocksdb_transaction_destroy(found[1]);
  stored(t, t->handles[0], "r", "1");
  stored(t, t->handles[0], "k", NULL);
  stored(t, t->handles[0], "s", NULL);
  stored(t, t->handles[1], "c", "cf");
  char *value =
      rocksdb_transactiondb_get_cf(t->db, t->base.read, t->handles[1], "sum", 3, &size, &err);
  EXPECT(size == 8 && value[0] == 1);
  rocksdb_free(value);
  close_it(t);
  open_it(t, directory);
  EXPECT(prepared_count(t) == 0);
  stored(t, t->handles[0], "r", "1");
}

/* A process that ends without closing leaves what it prepared. */
static void dies(two_phase_db *t, const char *directory) {
  char *err = NULL;
  close_it(t);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    open_it(t, directory);
    rocksdb_transaction_t *tx = begin(t, "orphan");
    set(tx, "o", "1");
    prepare(tx);
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  open_it(t, directory);
  size_t count = 0;
  rocksdb_transaction_t **list = rocksdb_transactiondb_get_prepared_transactions(t->db, &count);
  EXPECT(count == 1);
  rocksdb_transaction_commit(list[0], &err);
  OK(err);
  rocksdb_transaction_destroy(list[0]);
  rocksdb_free(list);
  stored(t, t->handles[0], "o", "1");
}

static void batches(two_phase_db *t) {
  char *err = NULL;
  size_t size = 0;
  rocksdb_transaction_t *tx = begin(t, NULL);
  set(tx, "x", "1");
  rocksdb_writebatch_wi_t *own = rocksdb_transaction_get_writebatch_wi(tx);
  EXPECT(rocksdb_writebatch_wi_count(own) == 1);
  char *value = rocksdb_writebatch_wi_get_from_batch(own, t->base.options, "x", 1, &size, &err);
  expect_value(value, size, "1");
  /* The batch changes with its transaction, and not otherwise. */
  rocksdb_writebatch_wi_put(own, "y", 1, "2", 1);
  rocksdb_writebatch_wi_clear(own);
  rocksdb_writebatch_wi_rollback_to_save_point(own, &err);
  failed(&err, "of a transaction");
  rocksdb_transaction_set_savepoint(tx);
  set(tx, "y", "2");
  EXPECT(rocksdb_writebatch_wi_count(own) == 2);
  const char *bytes = rocksdb_writebatch_wi_data(own, &size);
  rocksdb_writebatch_t *copy = rocksdb_writebatch_create_from(bytes, size);
  rocksdb_transaction_rollback_to_savepoint(tx, &err);
  OK(err);
  EXPECT(rocksdb_writebatch_wi_count(own) == 1);
  rocksdb_transaction_rebuild_from_writebatch(tx, copy, &err);
  OK(err);
  EXPECT(rocksdb_writebatch_wi_count(own) == 3);
  rocksdb_transaction_t *other = rocksdb_transaction_begin(t->db, t->base.write, NULL, NULL);
  rocksdb_transaction_rebuild_from_writebatch_wi(other, own, &err);
  failed(&err, "Operation timed out");
  rocksdb_transaction_rebuild_from_writebatch(other, NULL, &err);
  failed(&err, "the batch is null");
  rocksdb_transaction_destroy(other);
  rocksdb_free(own);
  rocksdb_writebatch_destroy(copy);
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  rocksdb_transaction_destroy(tx);
  stored(t, t->handles[0], "y", "2");
}

static void snapshots(two_phase_db *t) {
  char *err = NULL;
  rocksdb_transaction_options_t *rules = rocksdb_transaction_options_create();
  rocksdb_transaction_options_set_set_snapshot(rules, 1);
  rocksdb_transaction_t *tx = rocksdb_transaction_begin(t->db, t->base.write, rules, NULL);
  const rocksdb_snapshot_t *snapshot = rocksdb_transaction_get_snapshot(tx);
  EXPECT(snapshot != NULL);
  rocksdb_transactiondb_put(t->db, t->base.write, "moment", 6, "1", 1, &err);
  OK(err);
  rocksdb_readoptions_set_snapshot(t->base.read, snapshot);
  stored(t, t->handles[0], "moment", NULL);
  stored(t, t->handles[0], "x", "1");
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  size_t size = 0;
  EXPECT(rocksdb_transactiondb_get(t->db, t->base.read, "x", 1, &size, &err) == NULL);
  failed(&err, "was released");
  rocksdb_readoptions_set_snapshot(t->base.read, NULL);
  rocksdb_free((void *)snapshot);
  rocksdb_transaction_destroy(tx);
  rocksdb_transaction_options_destroy(rules);
  /* Without a snapshot of its own, reads show the present state. */
  tx = begin(t, NULL);
  snapshot = rocksdb_transaction_get_snapshot(tx);
  rocksdb_readoptions_set_snapshot(t->base.read, snapshot);
  rocksdb_transactiondb_put(t->db, t->base.write, "moment", 6, "2", 1, &err);
  OK(err);
  stored(t, t->handles[0], "moment", "2");
  rocksdb_readoptions_set_snapshot(t->base.read, NULL);
  rocksdb_free((void *)snapshot);
  rocksdb_transaction_destroy(tx);
}

static void copies(two_phase_db *t, const char *directory) {
  char *err = NULL;
  char target[4200];
  snprintf(target, sizeof target, "%s.checkpoint", directory);
  rocksdb_destroy_db(t->base.options, target, &err);
  OK(err);
  rocksdb_transaction_t *tx = begin(t, "copied");
  set(tx, "z", "1");
  prepare(tx);
  rocksdb_checkpoint_t *checkpoint = rocksdb_transactiondb_checkpoint_object_create(t->db, &err);
  OK(err);
  rocksdb_checkpoint_create(checkpoint, target, 0, &err);
  OK(err);
  rocksdb_checkpoint_object_destroy(checkpoint);
  rocksdb_transaction_rollback(tx, &err);
  OK(err);
  rocksdb_transaction_destroy(tx);
  close_it(t);
  open_it(t, target);
  EXPECT(prepared_count(t) == 1);
  close_it(t);
  rocksdb_destroy_db(t->base.options, target, &err);
  OK(err);
}

static void optimistic(two_phase_db *t, const char *directory) {
  char *err = NULL;
  char target[4200];
  snprintf(target, sizeof target, "%s.optimistic", directory);
  rocksdb_optimistictransactiondb_t *db =
      rocksdb_optimistictransactiondb_open(t->base.options, target, &err);
  OK(err);
  rocksdb_transaction_t *tx = rocksdb_optimistictransaction_begin(db, t->base.write, NULL, NULL);
  rocksdb_transaction_set_name(tx, "name", 4, &err);
  OK(err);
  rocksdb_transaction_prepare(tx, &err);
  failed(&err, "not supported for optimistic");
  rocksdb_transaction_destroy(tx);
  rocksdb_checkpoint_t *checkpoint =
      rocksdb_optimistictransactiondb_checkpoint_object_create(db, &err);
  OK(err);
  rocksdb_checkpoint_object_destroy(checkpoint);
  rocksdb_optimistictransactiondb_close(db);
  rocksdb_destroy_db(t->base.options, target, &err);
  OK(err);
}

void test_prepared(const char *directory) {
  char *err = NULL;
  two_phase_db t = {.base = new_options(directory), .locks = rocksdb_transactiondb_options_create()};
  rocksdb_options_set_uint64add_merge_operator(t.base.options);
  rocksdb_transactiondb_options_set_transaction_lock_timeout(t.locks, 20);
  open_it(&t, directory);
  names(&t);
  one_process(&t);
  restarts(&t, directory);
  dies(&t, directory);
  batches(&t);
  snapshots(&t);
  copies(&t, directory);
  optimistic(&t, directory);
  size_t count = 9;
  EXPECT(rocksdb_transactiondb_get_prepared_transactions(NULL, &count) == NULL && count == 0);
  rocksdb_transaction_set_name(NULL, "x", 1, &err);
  failed(&err, "the transaction is null");
  EXPECT(rocksdb_transaction_get_writebatch_wi(NULL) == NULL);
  rocksdb_transactiondb_options_destroy(t.locks);
  free_options(&t.base);
}
