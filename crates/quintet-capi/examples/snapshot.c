/* A snapshot shows one moment. */
#include "example.h"

int main(int count, char **arguments) {
  quintet_database *database = open_database(count, arguments);
  quintet_table *table = NULL, *view = NULL;
  quintet_snapshot *snapshot = NULL;
  quintet_buffer value = {0};
  bool found = false;
  CHECK(quintet_create_table(database, S("table"), S("tph"), NULL, &table, &error));
  CHECK(quintet_put(table, S("key"), S("before"), NULL, NULL, &error));
  CHECK(quintet_snapshot_new(database, &snapshot, &error));
  CHECK(quintet_put(table, S("key"), S("after"), NULL, NULL, &error));
  CHECK(quintet_snapshot_table(snapshot, table, &view, &error));
  CHECK(quintet_get(view, S("key"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "before"));
  EXPECT(quintet_put(view, S("key"), S("x"), NULL, NULL, NULL) == QUINTET_UNSUPPORTED);
  CHECK(quintet_buffer_free(&value, &error));
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_snapshot_free(snapshot, &error));
  CHECK(quintet_table_free(table, &error));
  close_database(database);
  return 0;
}
