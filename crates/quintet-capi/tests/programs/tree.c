/* The tree of tables: rename, drop, directories, default options. */
#include "test.h"

static void expect_text(const quintet_buffer *buffer, const char *text) {
  if (!equals(quintet_content(buffer), text)) {
    fprintf(stderr, "expected %s, found %.*s\n", text, (int)buffer->size, (char *)buffer->data);
    exit(1);
  }
}

static void rename_and_drop(quintet_database *database) {
  quintet_table *one = create_table(database, "a/one", "btree");
  quintet_table *two = create_table(database, "a/two", "trie"), *missing = NULL;
  quintet_buffer text = {0};
  put(one, "k", "1");
  FAILS(QUINTET_TABLE_EXISTS, quintet_create_table(database, S("a/one"), S("btree"), NULL, &missing,
                                                   NULL));
  FAILS(QUINTET_TABLE_EXISTS, quintet_rename(database, S("a/one"), S("a/two"), NULL));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_rename(database, S("none"), S("other"), NULL));
  CHECK(quintet_rename(database, S("a/one"), S("b/first"), &error));
  CHECK(quintet_rename(database, S("b"), S("c"), &error));
  CHECK(quintet_table_name(one, &text, &error));
  expect_text(&text, "c/first");
  expect_value(one, "k", "1");
  CHECK(quintet_tables_json(database, S(""), &text, &error));
  expect_text(&text, "[{\"name\":\"a/two\",\"engine\":\"trie\",\"types\":null},"
                     "{\"name\":\"c/first\",\"engine\":\"btree\",\"types\":null}]");
  CHECK(quintet_children_json(database, S(""), &text, &error));
  expect_text(&text, "[{\"name\":\"a\",\"kind\":\"directory\"},"
                     "{\"name\":\"c\",\"kind\":\"directory\"}]");
  CHECK(quintet_children_json(database, S("c"), &text, &error));
  expect_text(&text, "[{\"name\":\"first\",\"kind\":\"btree\"}]");
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_tables_json(database, S("none"), &text, NULL));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_children_json(database, S("none"), &text, NULL));

  CHECK(quintet_drop_table(database, S("c/first"), &error));
  FAILS(QUINTET_STALE_TABLE, quintet_put(one, S("k"), S("2"), NULL, NULL, NULL));
  FAILS(QUINTET_STALE_TABLE, quintet_get(one, S("k"), &text, NULL, NULL));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_drop_table(database, S("c/first"), NULL));
  CHECK(quintet_drop_tree(database, S("a"), &error));
  FAILS(QUINTET_STALE_TABLE, quintet_delete(two, S("k"), NULL, NULL, NULL));
  FAILS(QUINTET_NO_SUCH_TABLE, quintet_drop_tree(database, S("none"), NULL));
  CHECK(quintet_table_free(one, &error));
  CHECK(quintet_table_free(two, &error));
  CHECK(quintet_buffer_free(&text, &error));
}

static void use_defaults(quintet_database *database) {
  quintet_options *options = NULL;
  quintet_table *table = NULL;
  quintet_buffer text = {0};
  bool found = true;
  FAILS(QUINTET_INVALID_OPTION, quintet_create_default_table(database, S("d/x"), &table, NULL));
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("types"), S("string -> u64"), &error));
  CHECK(quintet_set_default_options(database, S("d"), S("slm"), options, &error));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_default_options(database, S("d"), &text, &found, &error));
  EXPECT(found && contains(&text, "engine slm\ntypes string -> u64\n"));
  CHECK(quintet_create_default_table(database, S("d/sub/x"), &table, &error));
  CHECK(quintet_table_engine(table, &text, &error));
  expect_text(&text, "slm");
  CHECK(quintet_table_types(table, &text, &error));
  expect_text(&text, "string -> u64");
  FAILS(QUINTET_TYPE_MISMATCH, quintet_put(table, S("k"), S("short"), NULL, NULL, NULL));
  CHECK(quintet_table_free(table, &error));
  CHECK(quintet_set_default_options(database, S("d"), quintet_string(NULL), NULL, &error));
  CHECK(quintet_default_options(database, S("d"), &text, &found, &error));
  EXPECT(!found && text.size == 0);
  FAILS(QUINTET_UNKNOWN_ENGINE,
        quintet_set_default_options(database, S("d"), S("oak"), NULL, NULL));
  CHECK(quintet_buffer_free(&text, &error));
}

void test_tree(const char *directory) {
  quintet_database *database = open_small(directory);
  quintet_table *table = NULL;
  rename_and_drop(database);
  use_defaults(database);
  CHECK(quintet_open_or_create_table(database, S("t"), S("naive"), NULL, &table, &error));
  CHECK(quintet_table_free(table, &error));
  CHECK(quintet_open_or_create_table(database, S("t"), S("naive"), NULL, &table, &error));
  CHECK(quintet_table_free(table, &error));
  FAILS(QUINTET_LIMIT, quintet_create_table(database, S(""), S("naive"), NULL, &table, NULL));
  FAILS(QUINTET_NOT_UTF8, quintet_create_table(database, quintet_bytes("\xc3", 1), S("naive"), NULL,
                                               &table, NULL));
  close_database(database);
}
