/* Transactions: iteration with own writes, savepoints, isolation, locks, ends. */
#include "test.h"

#define ENTRIES 300

static void iterate(quintet_table *view, bool reverse, int expected) {
  quintet_iterator *entries = NULL;
  quintet_range range = {.reverse = reverse};
  int count = 0;
  CHECK(quintet_iterate(view, &range, &entries, &error));
  for (;;) {
    quintet_slice key, value;
    bool found = false;
    char wanted[16];
    CHECK(quintet_iterator_next(entries, &key, &value, &found, &error));
    if (!found) break;
    snprintf(wanted, sizeof wanted, "%05d", reverse ? expected - 1 - count : count);
    EXPECT(equals(key, wanted) && equals(value, count % 2 == reverse ? "even" : "odd") &&
           count < expected);
    count++;
  }
  EXPECT(count == expected);
  CHECK(quintet_iterator_next(entries, NULL, NULL, &(bool){false}, &error));
  CHECK(quintet_iterator_free(entries, &error));
}

/* An iterator of a transaction reads page by page: more entries than a page, both ways. */
static void iterate_with_own_writes(quintet_database *database, const char *engine) {
  quintet_table *table = create_table(database, engine, engine), *view = NULL;
  quintet_transaction *transaction = NULL;
  quintet_iterator *entries = NULL;
  uint64_t count = 0;
  bool found = false;
  char key[16];
  for (int i = 0; i < ENTRIES; i += 2) {
    snprintf(key, sizeof key, "%05d", i);
    put(table, key, "even");
  }
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, table, &view, &error));
  for (int i = 1; i < ENTRIES; i += 2) {
    snprintf(key, sizeof key, "%05d", i);
    put(view, key, "odd");
  }
  iterate(view, false, ENTRIES);
  iterate(view, true, ENTRIES);
  CHECK(quintet_scan(view, &entries, &error));
  for (found = true; found; count += found) {
    CHECK(quintet_iterator_next(entries, NULL, NULL, &found, &error));
  }
  EXPECT(count >= ENTRIES);
  CHECK(quintet_iterator_free(entries, &error));

  /* A delete behind the page that was read is seen; the iterator fails after the end. */
  CHECK(quintet_iterate(view, NULL, &entries, &error));
  CHECK(quintet_iterator_next(entries, NULL, NULL, &found, &error));
  CHECK(quintet_delete_range(view, &(quintet_range){.start = S("00200")}, &error));
  for (count = 1; found; count += found) {
    CHECK(quintet_iterator_next(entries, NULL, NULL, &found, &error));
  }
  EXPECT(count == 200);
  CHECK(quintet_iterator_free(entries, &error));
  CHECK(quintet_iterate(view, NULL, &entries, &error));
  CHECK(quintet_commit(transaction, &error));
  FAILS(QUINTET_ENDED, quintet_iterator_next(entries, NULL, NULL, &found, NULL));
  FAILS(QUINTET_ENDED, quintet_count(view, &count, NULL));
  FAILS(QUINTET_ENDED, quintet_commit(transaction, NULL));
  CHECK(quintet_iterator_free(entries, &error));
  CHECK(quintet_transaction_free(transaction, &error));
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_count(table, &count, &error));
  EXPECT(count == 200);
  CHECK(quintet_table_free(table, &error));
}

static quintet_transaction *begin(quintet_database *database, const char *isolation,
                                  const char *timeout) {
  quintet_options *options = NULL;
  quintet_transaction *transaction = NULL;
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("isolation"), S(isolation), &error));
  CHECK(quintet_options_set(options, S("lock_timeout"), S(timeout), &error));
  CHECK(quintet_options_set(options, S("durability"), S("sync"), &error));
  CHECK(quintet_begin(database, options, &transaction, &error));
  CHECK(quintet_options_free(options, &error));
  return transaction;
}

static void conflicts(quintet_database *database) {
  quintet_table *table = create_table(database, "conflicts", "trie"), *first, *second;
  quintet_transaction *one, *two;
  quintet_buffer value = {0};
  bool found = true;
  put(table, "k", "0");
  one = begin(database, "serializable", "1000");
  two = begin(database, "snapshot", "1");
  CHECK(quintet_transaction_table(one, table, &first, &error));
  CHECK(quintet_transaction_table(two, table, &second, &error));
  FAILS(QUINTET_UNSUPPORTED, quintet_transaction_table(two, first, &second, NULL));
  expect_value(second, "k", "0");
  CHECK(quintet_get_for_update(first, S("k"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "0"));
  FAILS(QUINTET_LOCK_TIMEOUT, quintet_get_for_update(second, S("k"), &value, &found, NULL));
  CHECK(quintet_put(first, S("k"), S("1"), NULL, NULL, &error));
  CHECK(quintet_commit(one, &error));
  /* The second read before that commit. */
  expect_value(second, "k", "0");
  CHECK(quintet_delete(second, S("k"), NULL, NULL, &error));
  FAILS(QUINTET_CONFLICT, quintet_commit(two, NULL));
  expect_value(table, "k", "1");
  CHECK(quintet_transaction_free(one, &error));
  CHECK(quintet_transaction_free(two, &error));
  CHECK(quintet_table_free(first, &error));
  CHECK(quintet_table_free(second, &error));
  CHECK(quintet_table_free(table, &error));
  CHECK(quintet_buffer_free(&value, &error));
}

static void savepoints(quintet_database *database) {
  quintet_table *table = create_table(database, "savepoints", "btree"), *view = NULL;
  quintet_transaction *transaction = begin(database, "serializable", "1000"), *other = NULL;
  quintet_savepoint *first = NULL, *second = NULL;
  CHECK(quintet_transaction_table(transaction, table, &view, &error));
  put(view, "a", "1");
  CHECK(quintet_savepoint_new(transaction, &first, &error));
  put(view, "b", "2");
  CHECK(quintet_savepoint_new(transaction, &second, &error));
  CHECK(quintet_rollback_to(transaction, first, &error));
  expect_range(view, NULL, "a ");
  FAILS(QUINTET_INVALID_OPTION, quintet_rollback_to(transaction, second, NULL));
  CHECK(quintet_begin(database, NULL, &other, &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_rollback_to(other, first, NULL));
  CHECK(quintet_transaction_free(other, &error));
  CHECK(quintet_savepoint_free(first, &error));
  CHECK(quintet_savepoint_free(second, &error));
  /* Freed without a commit: rolled back. */
  CHECK(quintet_transaction_free(transaction, &error));
  FAILS(QUINTET_ENDED, quintet_put(view, S("a"), S("1"), NULL, NULL, NULL));
  expect_value(table, "a", NULL);
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_table_free(table, &error));
}

void test_transactions(const char *directory) {
  const char *engines[] = {"btree", "slm", "tph"};
  quintet_database *database = open_small(directory);
  quintet_options *options = NULL;
  quintet_transaction *transaction = NULL;
  for (int i = 0; i < 3; i++) iterate_with_own_writes(database, engines[i]);
  conflicts(database);
  savepoints(database);
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("isolation"), S("none"), &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_begin(database, options, &transaction, NULL));
  CHECK(quintet_options_free(options, &error));
  close_database(database);
}
