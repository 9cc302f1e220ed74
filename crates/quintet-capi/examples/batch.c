/* A batch over two tables: all of it or nothing. */
#include "example.h"

int main(int count, char **arguments) {
  quintet_database *database = open_database(count, arguments);
  quintet_table *users = NULL, *orders = NULL;
  quintet_batch *batch = NULL;
  bool found = true;
  CHECK(quintet_create_table(database, S("users"), S("hashlog"), NULL, &users, &error));
  CHECK(quintet_create_table(database, S("orders"), S("btree"), NULL, &orders, &error));
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_put(batch, users, S("bob"), S("Bob"), NULL, &error));
  CHECK(quintet_batch_put(batch, orders, S("1"), S("bob"), NULL, &error));
  CHECK(quintet_contains(users, S("bob"), &found, &error));
  EXPECT(!found);
  CHECK(quintet_batch_commit(batch, 0, &error));
  CHECK(quintet_contains(users, S("bob"), &found, &error));
  EXPECT(found);

  size_t operations = 1;
  CHECK(quintet_batch_size(batch, &operations, NULL, &error));
  EXPECT(operations == 0);
  CHECK(quintet_batch_free(batch, &error));
  CHECK(quintet_table_free(users, &error));
  CHECK(quintet_table_free(orders, &error));
  close_database(database);
  return 0;
}
