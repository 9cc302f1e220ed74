/* Sorted loads. */
#include "test.h"

static quintet_load *begin(quintet_table *table, const char *option, const char *value) {
  quintet_options *options = NULL;
  quintet_load *load = NULL;
  if (option) {
    CHECK(quintet_options_new(&options, &error));
    CHECK(quintet_options_set(options, S(option), S(value), &error));
  }
  CHECK(quintet_load_new(table, options, &load, &error));
  CHECK(quintet_options_free(options, &error));
  return load;
}

/* On `btree` a load is taken whole at its end. */
static void load_of_btree(quintet_database *database) {
  quintet_table *table = create_table(database, "btree", "btree");
  quintet_load *load = begin(table, NULL, NULL);
  quintet_write_options hour = {.ttl_ms = 3600000}, wrong = {.without_expiry = 1};
  quintet_value_info info;
  uint64_t count = 0;
  bool found = true;
  char key[16];
  for (int i = 0; i < 500; i++) {
    snprintf(key, sizeof key, "%05d", i);
    CHECK(quintet_load_put(load, S(key), S("v"), i == 7 ? &hour : NULL, &error));
  }
  FAILS(QUINTET_OUT_OF_ORDER, quintet_load_put(load, S("00001"), S("v"), NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_load_put(load, S("1"), S("v"), &wrong, NULL));
  FAILS(QUINTET_LIMIT, quintet_load_put(load, S(""), S("v"), NULL, NULL));
  FAILS(QUINTET_LOADING, quintet_put(table, S("x"), S("v"), NULL, NULL, NULL));
  CHECK(quintet_contains(table, S("00000"), &found, &error));
  EXPECT(!found);
  CHECK(quintet_load_commit(load, &count, &error));
  EXPECT(count == 500);
  FAILS(QUINTET_ENDED, quintet_load_put(load, S("2"), S("v"), NULL, NULL));
  FAILS(QUINTET_ENDED, quintet_load_commit(load, NULL, NULL));
  CHECK(quintet_load_free(load, &error));
  CHECK(quintet_count(table, &count, &error));
  EXPECT(count == 500);
  CHECK(quintet_get_info(table, S("00007"), &info, &found, &error));
  EXPECT(found && info.size == 1 && info.expires_at_ms > 0);

  /* A load that is not committed adds nothing, and ends when it is freed. */
  load = begin(table, NULL, NULL);
  CHECK(quintet_load_put(load, S("1"), S("v"), NULL, &error));
  CHECK(quintet_load_free(load, &error));
  expect_value(table, "1", NULL);
  put(table, "1", "put");
  CHECK(quintet_table_free(table, &error));
}

/* On other engines, and with the log, entries are committed in batches. */
static void load_in_batches(quintet_database *database, const char *engine) {
  quintet_table *table = create_table(database, engine, engine);
  quintet_load *load = begin(table, "durability", "sync");
  uint64_t count = 0;
  CHECK(quintet_load_put(load, S("a"), S("1"), NULL, &error));
  put(table, "between", "x");
  CHECK(quintet_load_put(load, S("b"), S("2"), NULL, &error));
  CHECK(quintet_load_commit(load, NULL, &error));
  CHECK(quintet_load_free(load, &error));
  CHECK(quintet_count(table, &count, &error));
  EXPECT(count == 3);
  expect_value(table, "b", "2");
  CHECK(quintet_table_free(table, &error));
}

void test_loads(const char *directory) {
  const char *engines[] = {"naive", "hashlog", "trie", "slm", "tph"};
  quintet_database *database = open_small(directory);
  quintet_table *table = NULL;
  quintet_options *options = NULL;
  quintet_load *load = NULL;
  load_of_btree(database);
  for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) load_in_batches(database, engines[i]);

  table = create_table(database, "logged", "btree");
  load = begin(table, "logged", "true");
  CHECK(quintet_load_put(load, S("a"), S("1"), NULL, &error));
  put(table, "between", "x");
  CHECK(quintet_load_commit(load, NULL, &error));
  CHECK(quintet_load_free(load, &error));

  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("logged"), S("perhaps"), &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_load_new(table, options, &load, NULL));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_table_free(table, &error));
  close_database(database);
}
