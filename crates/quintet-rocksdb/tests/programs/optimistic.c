/* Transactions that find conflicts at the commit. */
#include "test.h"

void test_optimistic(const char *directory) {
  char *err = NULL;
  size_t size = 0;
  test_db base = new_options(directory);
  rocksdb_optimistictransactiondb_t *db =
      rocksdb_optimistictransactiondb_open(base.options, directory, &err);
  OK(err);
  base.db = rocksdb_optimistictransactiondb_get_base_db(db);
  rocksdb_optimistictransaction_options_t *rules = rocksdb_optimistictransaction_options_create();
  put(&base, "k", "0");

  rocksdb_transaction_t *tx =
      rocksdb_optimistictransaction_begin(db, base.write, rules, NULL);
  rocksdb_transaction_put(tx, "k", 1, "1", 1, &err);
  OK(err);
  put(&base, "other", "x");
  has(&base, "k", "0");
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  has(&base, "k", "1");

  /* Another commit changes the key. */
  tx = rocksdb_optimistictransaction_begin(db, base.write, rules, tx);
  rocksdb_transaction_put(tx, "k", 1, "2", 1, &err);
  OK(err);
  put(&base, "k", "between");
  rocksdb_transaction_commit(tx, &err);
  failed(&err, "Resource busy");
  has(&base, "k", "between");
  rocksdb_transaction_destroy(tx);

  /* A key that was read for an update is checked too; a key that was only read is not. */
  tx = rocksdb_optimistictransaction_begin(db, base.write, rules, NULL);
  char *value = rocksdb_transaction_get_for_update(tx, base.read, "k", 1, &size, 1, &err);
  expect_value(value, size, "between");
  rocksdb_transaction_put(tx, "new", 3, "1", 1, &err);
  OK(err);
  put(&base, "k", "later");
  rocksdb_transaction_commit(tx, &err);
  failed(&err, "Resource busy");
  rocksdb_transaction_destroy(tx);
  tx = rocksdb_optimistictransaction_begin(db, base.write, rules, NULL);
  value = rocksdb_transaction_get(tx, base.read, "k", 1, &size, &err);
  expect_value(value, size, "later");
  rocksdb_transaction_put(tx, "new", 3, "1", 1, &err);
  OK(err);
  put(&base, "k", "last");
  rocksdb_transaction_commit(tx, &err);
  OK(err);
  rocksdb_transaction_destroy(tx);
  has(&base, "new", "1");

  /* A transaction with a snapshot reads the moment of its begin. */
  rocksdb_optimistictransaction_options_set_set_snapshot(rules, 1);
  tx = rocksdb_optimistictransaction_begin(db, base.write, rules, NULL);
  put(&base, "k", "after");
  value = rocksdb_transaction_get(tx, base.read, "k", 1, &size, &err);
  expect_value(value, size, "last");
  rocksdb_transaction_put(tx, "k", 1, "x", 1, &err);
  OK(err);
  rocksdb_transaction_commit(tx, &err);
  failed(&err, "Resource busy");
  rocksdb_transaction_destroy(tx);

  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "batch", 5, "1", 1);
  rocksdb_optimistictransactiondb_write(db, base.write, batch, &err);
  OK(err);
  rocksdb_writebatch_destroy(batch);
  has(&base, "batch", "1");
  value = rocksdb_optimistictransactiondb_property_value(db, "rocksdb.estimate-num-keys");
  EXPECT(value != NULL);
  rocksdb_free(value);
  uint64_t number = 0;
  EXPECT(rocksdb_optimistictransactiondb_property_int(db, "rocksdb.estimate-num-keys", &number) ==
         0);
  rocksdb_optimistictransactiondb_close_base_db(base.db);
  rocksdb_optimistictransactiondb_close(db);

  const char *names[] = {"default", "cf"};
  const rocksdb_options_t *options[] = {base.options, base.options};
  family *handles[2];
  db = rocksdb_optimistictransactiondb_open_column_families(base.options, directory, 2, names,
                                                            options, handles, &err);
  OK(err);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_optimistictransactiondb_close(db);
  rocksdb_optimistictransaction_options_destroy(rules);
  free_options(&base);
}
