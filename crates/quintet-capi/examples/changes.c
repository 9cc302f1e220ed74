/* A change feed returns what was committed, in its order. */
#include "example.h"

int main(int count, char **arguments) {
  quintet_database *database = open_database(count, arguments);
  quintet_table *users = NULL;
  quintet_feed *feed = NULL;
  quintet_change change;
  uint64_t start = 0, end = 0;
  bool found = false;
  CHECK(quintet_create_table(database, S("app/users"), S("trie"), NULL, &users, &error));
  CHECK(quintet_log_range(database, &start, &end, &error));
  CHECK(quintet_feed_new(database, end, NULL, &feed, &error));
  CHECK(quintet_put(users, S("alice"), S("Alice"), NULL, NULL, &error));
  CHECK(quintet_delete(users, S("alice"), NULL, NULL, &error));

  /* A feed returns what is durable, by default some 100 ms after the write. */
  CHECK(quintet_feed_wait(feed, 10000, &found, &error));
  EXPECT(found);
  CHECK(quintet_feed_change(feed, &change, &found, &error));
  EXPECT(found && change.kind == QUINTET_CHANGE_PUT && equals(change.table, "app/users"));
  EXPECT(equals(change.key, "alice") && equals(change.value, "Alice"));
  CHECK(quintet_feed_wait(feed, 10000, &found, &error));
  EXPECT(found);
  CHECK(quintet_feed_change(feed, &change, &found, &error));
  EXPECT(found && change.kind == QUINTET_CHANGE_DELETE && equals(change.key, "alice"));

  /* With this position, a later feed continues behind the delete. */
  CHECK(quintet_feed_commit(feed, NULL, &end, &found, &error));
  EXPECT(found && end > start);
  CHECK(quintet_feed_free(feed, &error));
  CHECK(quintet_table_free(users, &error));
  close_database(database);
  return 0;
}
