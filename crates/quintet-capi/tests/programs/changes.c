/* Change feeds: order, filters, durable commits, waits, lost and kept positions. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "test.h"

static quintet_feed *open_feed(quintet_database *database, uint64_t from, const char *path,
                               const char *unsynced) {
  quintet_options *options = NULL;
  quintet_feed *feed = NULL;
  CHECK(quintet_options_new(&options, &error));
  if (path) CHECK(quintet_options_set(options, S("path"), S(path), &error));
  CHECK(quintet_options_set(options, S("unsynced"), S(unsynced), &error));
  CHECK(quintet_feed_new(database, from, options, &feed, &error));
  CHECK(quintet_options_free(options, &error));
  return feed;
}

static uint64_t end_of_log(quintet_database *database) {
  uint64_t start = 0, end = 0;
  CHECK(quintet_log_range(database, &start, &end, &error));
  EXPECT(start <= end);
  return end;
}

static bool next(quintet_feed *feed) {
  bool found = false;
  CHECK(quintet_feed_next(feed, &found, &error));
  return found;
}

static void append(char *text, quintet_slice slice) {
  strncat(text, (const char *)slice.data, slice.size);
}

/* Expects the changes of the commit at which a feed is: `+table key=value`, `-table key`,
 * `-table start..end` and `*table`, each followed by a blank. */
#define expect_changes(feed, expected) expect_changes_at(feed, expected, __LINE__)

static void expect_changes_at(quintet_feed *feed, const char *expected, int line) {
  static const char signs[] = {'*', '+', '-', '-'};
  char text[512] = {0};
  quintet_change change;
  bool found = false;
  for (;;) {
    CHECK(quintet_feed_change(feed, &change, &found, &error));
    if (!found) break;
    EXPECT(change.kind <= QUINTET_CHANGE_DELETE_RANGE && change.table_number > 0);
    EXPECT((change.key.data == NULL) == (change.kind == QUINTET_CHANGE_BEGIN));
    text[strlen(text)] = signs[change.kind];
    append(text, change.table);
    if (change.kind != QUINTET_CHANGE_BEGIN) strcat(text, " ");
    append(text, change.key);
    if (change.kind == QUINTET_CHANGE_PUT) strcat(text, "=");
    if (change.kind == QUINTET_CHANGE_DELETE_RANGE) strcat(text, "..");
    append(text, change.value);
    strcat(text, " ");
  }
  if (strcmp(text, expected) != 0) {
    fprintf(stderr, "line %d: expected %s, found %s\n", line, expected, text);
    exit(1);
  }
}

/* Commits of several tables in their order; two feeds, one of them of a directory. */
static void test_order(quintet_database *database) {
  quintet_batch *batch = NULL;
  uint64_t from = 0, lsn = 7, end = 7, next_lsn = 0, position = 0;
  bool found = true;
  quintet_table *users = create_table(database, "app/users", "trie");
  quintet_table *orders = create_table(database, "app/orders", "btree");
  quintet_table *logins = create_table(database, "apple", "hashlog");
  quintet_snapshot *snapshot = NULL;
  CHECK(quintet_snapshot_new(database, &snapshot, &error));
  CHECK(quintet_snapshot_lsn(snapshot, &from, &error));
  CHECK(quintet_snapshot_free(snapshot, &error));
  EXPECT(from == end_of_log(database));
  quintet_feed *all = open_feed(database, from, NULL, "true");
  quintet_feed *some = open_feed(database, from, "app", "true");
  CHECK(quintet_feed_commit(all, &lsn, &end, &found, &error));
  EXPECT(!found && lsn == 0 && end == 0);
  expect_changes(all, "");
  put(logins, "l", "1");
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_put(batch, users, S("u"), S("2"), NULL, &error));
  CHECK(quintet_batch_put(batch, logins, S("m"), S("3"), NULL, &error));
  CHECK(quintet_batch_delete(batch, orders, S("o"), &error));
  CHECK(quintet_batch_commit(batch, 0, &error));
  CHECK(quintet_batch_free(batch, &error));
  CHECK(quintet_delete_range(orders, &(quintet_range){.start = S("a"), .end = S("p")}, &error));
  EXPECT(next(all));
  expect_changes(all, "+apple l=1 ");
  CHECK(quintet_feed_commit(all, &lsn, &end, NULL, &error));
  EXPECT(lsn == from && end > lsn);
  EXPECT(next(all));
  expect_changes(all, "+app/users u=2 +apple m=3 -app/orders o ");
  expect_changes(all, "");
  CHECK(quintet_feed_commit(all, &next_lsn, NULL, &found, &error));
  EXPECT(found && next_lsn == end);
  EXPECT(next(all));
  expect_changes(all, "-app/orders a..p ");
  EXPECT(!next(all));
  CHECK(quintet_feed_position(all, &position, &error));
  EXPECT(position == end_of_log(database));
  EXPECT(next(some));
  expect_changes(some, "+app/users u=2 -app/orders o ");
  CHECK(quintet_feed_free(some, &error));
  /* A feed that begins behind the first commit. */
  some = open_feed(database, end, "app/users", "true");
  EXPECT(next(some));
  expect_changes(some, "+app/users u=2 ");
  EXPECT(!next(some));
  CHECK(quintet_clear(users, &error));
  EXPECT(next(some));
  expect_changes(some, "*app/users ");
  CHECK(quintet_feed_free(some, &error));
  CHECK(quintet_feed_free(all, &error));
  CHECK(quintet_table_free(users, &error));
  CHECK(quintet_table_free(orders, &error));
  CHECK(quintet_table_free(logins, &error));
}

/* What is stored with a value. */
static void test_details(quintet_database *database) {
  quintet_table *table = create_table(database, "typed", "tph");
  quintet_feed *feed = open_feed(database, end_of_log(database), "typed", "true");
  const uint64_t expiry = 4102444800000;
  quintet_write_options write = {.expires_at_ms = expiry, .type_tag = S("string")};
  quintet_change one, other;
  bool found = false;
  CHECK(quintet_put(table, S("k"), S(""), &write, NULL, &error));
  CHECK(quintet_put(table, S("l"), S("v"), NULL, NULL, &error));
  EXPECT(next(feed));
  CHECK(quintet_feed_change(feed, &one, &found, &error));
  EXPECT(found && one.kind == QUINTET_CHANGE_PUT && one.expires_at_ms == expiry);
  EXPECT(equals(one.type_tag, "string") && one.value.data != NULL && one.value.size == 0);
  EXPECT(next(feed));
  CHECK(quintet_feed_change(feed, &other, &found, &error));
  EXPECT(found && other.expires_at_ms == 0 && other.type_tag.data == NULL);
  EXPECT(other.table_number == one.table_number && equals(other.value, "v"));
  CHECK(quintet_feed_free(feed, &error));
  CHECK(quintet_table_free(table, &error));
}

static void *write_later(void *argument) {
  put(argument, "later", "1");
  CHECK(quintet_delete(argument, S("later"), &(quintet_write_options){.durability = 2}, NULL,
                       &error));
  return NULL;
}

static void *close_later(void *argument) {
  nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
  CHECK(quintet_close(argument, &error));
  return NULL;
}

/* A feed returns what is durable or, if asked, what is visible, and waits for it. */
static void test_wait(const char *directory) {
  quintet_options *options = small_options();
  quintet_database *database = NULL;
  pthread_t thread;
  bool found = true;
  /* Only a write that asks for it is synced. */
  CHECK(quintet_options_set(options, S("sync_interval"), S("3600000"), &error));
  CHECK(quintet_open(S(directory), options, &database, &error));
  CHECK(quintet_options_free(options, &error));
  quintet_table *table = create_table(database, "t", "hashlog");
  CHECK(quintet_sync(database, &error));
  quintet_feed *durable = open_feed(database, end_of_log(database), NULL, "false");
  quintet_feed *early = open_feed(database, end_of_log(database), NULL, "true");
  put(table, "k", "v");
  EXPECT(next(early));
  expect_changes(early, "+t k=v ");
  CHECK(quintet_feed_wait(early, 5, &found, &error));
  EXPECT(!found);
  /* The background may sync earlier, before a checkpoint. */
  CHECK(quintet_sync(database, &error));
  CHECK(quintet_feed_wait(durable, 60000, &found, &error));
  EXPECT(found);
  expect_changes(durable, "+t k=v ");
  EXPECT(pthread_create(&thread, NULL, write_later, table) == 0);
  CHECK(quintet_feed_wait(durable, 60000, &found, &error));
  EXPECT(found);
  expect_changes(durable, "+t later=1 ");
  CHECK(quintet_feed_wait(durable, 60000, &found, &error));
  EXPECT(found);
  expect_changes(durable, "-t later ");
  EXPECT(pthread_join(thread, NULL) == 0);
  /* Nothing is written any more. The end of the wait is that of the database. */
  EXPECT(pthread_create(&thread, NULL, close_later, database) == 0);
  FAILS(QUINTET_CLOSED, quintet_feed_wait(durable, 600000, &found, NULL));
  EXPECT(pthread_join(thread, NULL) == 0);
  CHECK(quintet_feed_free(durable, &error));
  CHECK(quintet_feed_free(early, &error));
  CHECK(quintet_table_free(table, &error));
  CHECK(quintet_database_free(database, &error));
}

static quintet_database *open_kept(const char *directory, const char *retention) {
  quintet_options *options = small_options();
  quintet_database *database = NULL;
  CHECK(quintet_options_set(options, S("segment_bytes"), S("65536"), &error));
  CHECK(quintet_options_set(options, S("log_retention"), S(retention), &error));
  CHECK(quintet_open(S(directory), options, &database, &error));
  CHECK(quintet_options_free(options, &error));
  return database;
}

/* Expects that the log does not have a position. */
static void expect_lost(quintet_database *database, uint64_t position) {
  quintet_error *error = NULL;
  quintet_feed *feed = NULL;
  quintet_buffer value = {0};
  bool found = false;
  char expected[32];
  EXPECT(quintet_feed_new(database, position, NULL, &feed, &error) == QUINTET_CHANGES_LOST);
  EXPECT(feed == NULL && quintet_error_code(error) == QUINTET_CHANGES_LOST);
  EXPECT(strcmp(quintet_code_name(QUINTET_CHANGES_LOST), "ChangesLost") == 0);
  snprintf(expected, sizeof expected, "%llu", (unsigned long long)position);
  FAILS(QUINTET_OK, quintet_error_detail(error, S("position"), &value, &found, NULL));
  EXPECT(found && equals(quintet_content(&value), expected));
  snprintf(expected, sizeof expected, "%llu", (unsigned long long)end_of_log(database));
  FAILS(QUINTET_OK, quintet_error_detail(error, S("end"), &value, &found, NULL));
  EXPECT(found && equals(quintet_content(&value), expected));
  FAILS(QUINTET_OK, quintet_error_detail(error, S("start"), &value, &found, NULL));
  EXPECT(found && value.size > 0);
  FAILS(QUINTET_OK, quintet_buffer_free(&value, NULL));
  quintet_error_free(error);
}

/* The log is there after the database was opened again, or not. */
static void test_retention(const char *directory) {
  static char value[60000];
  quintet_database *database = open_kept(directory, "16777216");
  quintet_table *table = create_table(database, "t", "naive");
  const uint64_t from = end_of_log(database);
  put(table, "first", "1");
  for (int i = 0; i < 20; i++) {
    CHECK(quintet_put(table, S("much"), quintet_bytes(value, sizeof value), NULL, NULL, &error));
  }
  CHECK(quintet_persist(database, &error));
  CHECK(quintet_table_free(table, &error));
  close_database(database);
  database = open_kept(directory, "16777216");
  quintet_feed *feed = open_feed(database, from, "t", "false");
  EXPECT(next(feed));
  expect_changes(feed, "+t first=1 ");
  for (int i = 0; i < 20; i++) EXPECT(next(feed));
  EXPECT(!next(feed));
  CHECK(quintet_feed_free(feed, &error));
  expect_lost(database, end_of_log(database) + 8);
  close_database(database);
  database = open_kept(directory, "0");
  expect_lost(database, from);
  close_database(database);
}

static void test_options(quintet_database *database) {
  quintet_options *options = NULL;
  quintet_feed *feed = NULL;
  const uint64_t end = end_of_log(database);
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("path"), S("app/none"), &error));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_feed_new(database, end, options, &feed, NULL));
  CHECK(quintet_options_set(options, S("colour"), S("red"), &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_feed_new(database, end, options, &feed, NULL));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_feed_new(database, end, NULL, &feed, &error));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_feed_next(feed, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_feed_position(feed, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_feed_change(feed, NULL, &(bool){false}, NULL));
  CHECK(quintet_feed_free(feed, &error));
  FAILS(QUINTET_BAD_HANDLE, quintet_feed_next(feed, &(bool){false}, NULL));
}

void test_changes(const char *directory) {
  char path[4200];
  quintet_database *database = open_small(directory);
  test_order(database);
  test_details(database);
  test_options(database);
  close_database(database);
  snprintf(path, sizeof path, "%s.wait", directory);
  test_wait(path);
  snprintf(path, sizeof path, "%s.kept", directory);
  test_retention(path);
}
