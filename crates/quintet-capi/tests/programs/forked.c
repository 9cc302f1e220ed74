/* Handles in a forked child: each use fails, and changes nothing of the parent. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static quintet_database *database;
static quintet_table *table, *snapshot_view, *transaction_view;
static quintet_snapshot *snapshot;
static quintet_transaction *transaction;
static quintet_iterator *entries;
static quintet_cursor *cursor;
static quintet_batch *batch;
static quintet_feed *feed;

/* Uses handles of the parent. A failed expectation ends the child with another code than 0. */
static void use_handles(void) {
  quintet_error *failure = NULL;
  quintet_buffer value = {0};
  quintet_snapshot *other = NULL;
  quintet_transaction *later = NULL;
  quintet_feed *later_feed = NULL;
  uint64_t count = 0, start = 7, end = 7;
  FAILS(QUINTET_FORKED, quintet_put(table, S("k"), S("child"), NULL, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_get(table, S("k"), &value, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_get(snapshot_view, S("k"), &value, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_get(transaction_view, S("k"), &value, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_put(transaction_view, S("k"), S("child"), NULL, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_count(table, &count, NULL));
  FAILS(QUINTET_FORKED, quintet_batch_commit(batch, 0, NULL));
  FAILS(QUINTET_FORKED, quintet_cursor_first(cursor, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_iterator_next(entries, NULL, NULL, &(bool){false}, NULL));
  FAILS(QUINTET_FORKED, quintet_commit(transaction, NULL));
  FAILS(QUINTET_FORKED, quintet_begin(database, NULL, &later, NULL));
  FAILS(QUINTET_FORKED, quintet_snapshot_new(database, &other, NULL));
  FAILS(QUINTET_FORKED, quintet_persist(database, NULL));
  FAILS(QUINTET_FORKED, quintet_close(database, NULL));
  FAILS(QUINTET_FORKED, quintet_feed_next(feed, &(bool){false}, NULL));
  FAILS(QUINTET_FORKED, quintet_feed_new(database, 0, NULL, &later_feed, NULL));
  FAILS(QUINTET_OK, quintet_log_range(database, &start, &end, NULL));
  EXPECT(start == 0 && end == 0);
  FAILS(QUINTET_OK, quintet_feed_position(feed, &end, NULL));
  EXPECT(end == 0);
  /* The error is the first handle that the child makes. */
  EXPECT(quintet_put(table, S("k"), S("child"), NULL, NULL, &failure) == QUINTET_FORKED);
  EXPECT(quintet_error_code(failure) == QUINTET_FORKED);
  quintet_error_free(failure);
}

/* Makes and frees handles in a thread of the child. */
static void *iterate(void *argument) {
  quintet_table *own = argument;
  for (int i = 0; i < 50; i++) {
    quintet_iterator *all = NULL;
    bool found = false;
    CHECK(quintet_scan(own, &all, &error));
    CHECK(quintet_iterator_next(all, NULL, NULL, &found, &error));
    EXPECT(found);
    CHECK(quintet_iterator_free(all, &error));
  }
  return NULL;
}

/* A child may open a database of its own, and use it in many threads. */
static void open_own(const char *directory) {
  quintet_database *own = open_small(directory);
  quintet_table *own_table = create_table(own, "t", "btree");
  pthread_t threads[8];
  put(own_table, "k", "child");
  for (int i = 0; i < 8; i++) {
    EXPECT(pthread_create(&threads[i], NULL, iterate, own_table) == 0);
  }
  for (int i = 0; i < 8; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
  expect_value(own_table, "k", "child");
  FAILS(QUINTET_FORKED, quintet_put(transaction_view, S("k"), S("child"), NULL, NULL, NULL));
  FAILS(QUINTET_FORKED, quintet_sync(database, NULL));
  CHECK(quintet_table_free(own_table, &error));
  close_database(own);
}

static void free_handles(void) {
  CHECK(quintet_feed_free(feed, &error));
  CHECK(quintet_batch_free(batch, &error));
  CHECK(quintet_cursor_free(cursor, &error));
  CHECK(quintet_iterator_free(entries, &error));
  CHECK(quintet_transaction_free(transaction, &error));
  CHECK(quintet_table_free(transaction_view, &error));
  CHECK(quintet_table_free(snapshot_view, &error));
  CHECK(quintet_snapshot_free(snapshot, &error));
  CHECK(quintet_table_free(table, &error));
}

static void open_handles(const char *directory) {
  uint64_t end = 0;
  database = open_small(directory);
  table = create_table(database, "t", "slm");
  put(table, "k", "parent");
  CHECK(quintet_snapshot_new(database, &snapshot, &error));
  CHECK(quintet_snapshot_table(snapshot, table, &snapshot_view, &error));
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, table, &transaction_view, &error));
  CHECK(quintet_iterate(table, NULL, &entries, &error));
  CHECK(quintet_cursor_new(table, &cursor, &error));
  CHECK(quintet_log_range(database, NULL, &end, &error));
  CHECK(quintet_feed_new(database, end, NULL, &feed, &error));
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_put(batch, table, S("k"), S("batch"), NULL, &error));
}

static void close_handles(void) {
  CHECK(quintet_batch_commit(batch, 0, &error));
  expect_value(table, "k", "batch");
  free_handles();
  close_database(database);
}

/* Runs a child that frees the handles, and that uses them and makes its own before if it should. */
static void run_child(const char *own_directory, bool makes_handles) {
  int status = -1;
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    if (makes_handles) {
      use_handles();
      open_own(own_directory);
    }
    free_handles();
    CHECK(quintet_database_free(database, &error));
    _exit(0);
  }
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  expect_value(table, "k", "parent");
}

void test_forked(const char *directory) {
  char own_directory[4200];
  snprintf(own_directory, sizeof own_directory, "%s.child", directory);
  open_handles(directory);
  run_child(own_directory, false);
  run_child(own_directory, true);
  close_handles();
}
