/* Mounts: tables of another database under a path. */
#include "test.h"

void test_mounts(const char *directory) {
  char other_directory[4200];
  snprintf(other_directory, sizeof other_directory, "%s.other", directory);
  quintet_database *other = open_small(other_directory), *database, *behind = NULL;
  quintet_table *table = create_table(other, "shop/orders", "btree"), *own = NULL;
  quintet_batch *batch = NULL;
  quintet_buffer text = {0};
  put(table, "k", "v");
  CHECK(quintet_table_free(table, &error));
  close_database(other);

  database = open_small(directory);
  own = create_table(database, "own", "btree");
  FAILS(QUINTET_MOUNT, quintet_mount(database, S("m"), S("/nowhere"), S(""), false, NULL));
  CHECK(quintet_mount(database, S("m"), S(other_directory), S("shop"), false, &error));
  FAILS(QUINTET_TABLE_EXISTS,
        quintet_mount(database, S("own"), S(other_directory), S(""), false, NULL));
  CHECK(quintet_mounts_json(database, &text, &error));
  EXPECT(contains(&text, "\"name\":\"m\"") && contains(&text, "\"subtree\":\"shop\""));
  EXPECT(contains(&text, "\"read_only\":false") && contains(&text, other_directory));
  CHECK(quintet_children_json(database, S(""), &text, &error));
  EXPECT(contains(&text, "{\"name\":\"m\",\"kind\":\"mount\"}"));
  CHECK(quintet_open_table(database, S("m/orders"), &table, &error));
  expect_value(table, "k", "v");

  /* A batch of this database refuses the table; one of the mounted database takes it. */
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_put(batch, table, S("b"), S("1"), NULL, &error));
  FAILS(QUINTET_OTHER_DATABASE, quintet_batch_commit(batch, 0, NULL));
  CHECK(quintet_batch_free(batch, &error));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_mounted(database, S("own"), &behind, NULL));
  CHECK(quintet_mounted(database, S("m"), &behind, &error));
  CHECK(quintet_batch_new(behind, &batch, &error));
  CHECK(quintet_batch_put(batch, table, S("b"), S("1"), NULL, &error));
  CHECK(quintet_batch_commit(batch, 0, &error));
  CHECK(quintet_batch_free(batch, &error));
  expect_value(table, "b", "1");
  CHECK(quintet_database_free(behind, &error));
  CHECK(quintet_table_free(table, &error));

  FAILS(QUINTET_MOUNT, quintet_rename(database, S("own"), S("m/own"), NULL));
  CHECK(quintet_unmount(database, S("m"), &error));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_unmount(database, S("m"), NULL));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_open_table(database, S("m/orders"), &table, NULL));
  CHECK(quintet_mount(database, S("r"), S(other_directory), quintet_string(NULL), true, &error));
  CHECK(quintet_open_table(database, S("r/shop/orders"), &table, &error));
  expect_value(table, "b", "1");
  FAILS(QUINTET_READ_ONLY, quintet_put(table, S("b"), S("2"), NULL, NULL, NULL));
  CHECK(quintet_table_free(table, &error));
  CHECK(quintet_table_free(own, &error));
  CHECK(quintet_buffer_free(&text, &error));
  close_database(database);
}
