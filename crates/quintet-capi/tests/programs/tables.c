/* Tables: their properties, and operations on one key and on whole tables. */
#include "test.h"

static void use_keys(quintet_table *table) {
  quintet_buffer value = {0};
  quintet_write_options present = {.if_present = 1}, hour = {.ttl_ms = 3600000};
  quintet_write_options later = {.expires_at_ms = UINT64_C(4102444800000)};
  quintet_write_options lasting = {.without_expiry = 1}, bad = {.durability = 3};
  quintet_value_info info;
  int64_t before = 7;
  bool found = false, done = true;

  CHECK(quintet_replace(table, S("k"), S("1"), &value, &found, &error));
  EXPECT(!found && value.size == 0);
  CHECK(quintet_replace(table, S("k"), S("2"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "1"));
  CHECK(quintet_take(table, S("k"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "2"));
  CHECK(quintet_take(table, S("k"), &value, &found, &error));
  EXPECT(!found && value.size == 0);
  CHECK(quintet_take(table, S("k"), NULL, NULL, &error));

  CHECK(quintet_put(table, S("k"), S("1"), &present, &done, &error));
  EXPECT(!done);
  CHECK(quintet_delete(table, S("k"), &present, &done, &error));
  EXPECT(!done);
  FAILS(QUINTET_UNSUPPORTED, quintet_delete(table, S("k"), &hour, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_put(table, S("k"), S("1"), &lasting, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_put(table, S("k"), S("1"), &bad, NULL, NULL));

  /* Expiry and type: an update keeps both, unless its options say otherwise. */
  later.type_tag = S("i64");
  CHECK(quintet_put(table, S("n"), quintet_bytes("\x05\0\0\0\0\0\0", 8), &later, NULL, &error));
  CHECK(quintet_fetch_and_add(table, S("n"), -6, NULL, &before, &error));
  EXPECT(before == 5);
  CHECK(quintet_get_info(table, S("n"), &info, &found, &error));
  EXPECT(found && info.expires_at_ms == later.expires_at_ms && equals(info.type_tag, "i64"));
  CHECK(quintet_fetch_and_add(table, S("n"), 0, &lasting, &before, &error));
  EXPECT(before == -1);
  CHECK(quintet_get_info(table, S("n"), &info, &found, &error));
  EXPECT(found && info.expires_at_ms == 0 && info.size == 8);
  CHECK(quintet_get_info(table, S("absent"), &info, &found, &error));
  EXPECT(!found && info.size == 0 && info.expires_at_ms == 0 && info.type_tag.data == NULL);
  CHECK(quintet_fetch_and_add(table, S("big"), INT64_MAX, NULL, NULL, &error));
  FAILS(QUINTET_LIMIT, quintet_fetch_and_add(table, S("big"), 1, NULL, NULL, NULL));
  put(table, "text", "five!");
  FAILS(QUINTET_TYPE_MISMATCH, quintet_fetch_and_add(table, S("text"), 1, NULL, NULL, NULL));

  /* Compare-and-swap: absent slices are absent keys. */
  quintet_slice none = quintet_string(NULL);
  CHECK(quintet_compare_and_swap(table, S("c"), none, S("1"), NULL, &done, NULL, NULL, &error));
  EXPECT(done);
  CHECK(quintet_compare_and_swap(table, S("c"), none, S("2"), NULL, &done, &value, &found, &error));
  EXPECT(!done && found && equals(quintet_content(&value), "1"));
  CHECK(quintet_compare_and_swap(table, S("c"), S("1"), none, NULL, &done, NULL, NULL, &error));
  EXPECT(done);
  CHECK(quintet_compare_and_swap(table, S("c"), S("1"), S("2"), NULL, &done, &value, &found,
                                 &error));
  EXPECT(!done && !found && value.size == 0);
  CHECK(quintet_buffer_free(&value, &error));
}

static void use_properties(quintet_database *database, quintet_table *table, const char *engine) {
  quintet_buffer text = {0};
  uint64_t number = 0;
  bool found = false;
  CHECK(quintet_table_name(table, &text, &error));
  EXPECT(equals(quintet_content(&text), engine));
  CHECK(quintet_table_engine(table, &text, &error));
  EXPECT(equals(quintet_content(&text), engine));
  CHECK(quintet_table_types(table, &text, &error));
  EXPECT(text.size == 0);
  CHECK(quintet_table_persist(table, &error));
  CHECK(quintet_table_compact(table, &error));
  CHECK(quintet_table_stat(table, S("memory_bytes"), &number, &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_table_stat(table, S("mood"), &number, NULL));
  CHECK(quintet_table_stats_json(table, &text, &error));
  EXPECT(contains(&text, "\"live_bytes\":") && contains(&text, engine));
  CHECK(quintet_is_table(database, S(engine), &found, &error));
  EXPECT(found);
  CHECK(quintet_is_table(database, S("none"), &found, &error));
  EXPECT(!found);
  CHECK(quintet_clear(table, &error));
  CHECK(quintet_count(table, &number, &error));
  EXPECT(number == 0);
  put(table, "a", "1");
  expect_value(table, "a", "1");
  CHECK(quintet_buffer_free(&text, &error));
}

static void pop(quintet_database *database) {
  const char *engines[] = {"btree", "slm", "tph"};
  for (int i = 0; i < 3; i++) {
    char name[32];
    snprintf(name, sizeof name, "pop/%s", engines[i]);
    quintet_table *table = create_table(database, name, engines[i]);
    quintet_buffer key = {0}, value = {0};
    bool found = false;
    put(table, "a", "1");
    put(table, "b", "2");
    put(table, "c", "3");
    CHECK(quintet_pop_first(table, &key, &value, &found, &error));
    EXPECT(found && equals(quintet_content(&key), "a") && equals(quintet_content(&value), "1"));
    CHECK(quintet_pop_last(table, &key, NULL, NULL, &error));
    EXPECT(equals(quintet_content(&key), "c"));
    CHECK(quintet_pop_last(table, NULL, &value, &found, &error));
    EXPECT(found && equals(quintet_content(&value), "2"));
    CHECK(quintet_pop_last(table, &key, &value, &found, &error));
    EXPECT(!found && key.size == 0 && value.size == 0);
    CHECK(quintet_buffer_free(&key, &error));
    CHECK(quintet_buffer_free(&value, &error));
    CHECK(quintet_table_free(table, &error));
  }
}

static void use_batch(quintet_database *database, quintet_table *table) {
  quintet_batch *batch = NULL;
  quintet_write_options wrong = {.if_absent = 1}, hour = {.ttl_ms = 3600000};
  size_t operations = 0;
  uint64_t bytes = 0;
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_put(batch, table, S("x"), S("1"), &hour, &error));
  CHECK(quintet_batch_delete(batch, table, S("y"), &error));
  CHECK(quintet_batch_size(batch, &operations, &bytes, &error));
  EXPECT(operations == 2 && bytes > 0);
  FAILS(QUINTET_INVALID_OPTION, quintet_batch_commit(batch, 9, NULL));
  CHECK(quintet_batch_clear(batch, &error));
  CHECK(quintet_batch_size(batch, &operations, NULL, &error));
  EXPECT(operations == 0);
  /* A put that a batch does not do makes the commit fail, until the batch is cleared. */
  CHECK(quintet_batch_put(batch, table, S("x"), S("1"), NULL, &error));
  CHECK(quintet_batch_put(batch, table, S("y"), S("1"), &wrong, &error));
  EXPECT(quintet_batch_commit(batch, 0, NULL) != QUINTET_OK);
  expect_value(table, "x", NULL);
  CHECK(quintet_batch_clear(batch, &error));
  CHECK(quintet_batch_commit(batch, 0, &error));
  CHECK(quintet_batch_free(batch, &error));
}

void test_tables(const char *directory) {
  const char *engines[] = {"naive", "hashlog", "trie", "btree", "slm", "tph"};
  quintet_database *database = open_small(directory), *second = NULL;
  quintet_buffer text = {0};
  quintet_options *options = NULL;
  bool is_true = true;
  uint64_t number = 0;
  for (int i = 0; i < 6; i++) {
    quintet_table *table = create_table(database, engines[i], engines[i]);
    use_keys(table);
    use_batch(database, table);
    use_properties(database, table, engines[i]);
    CHECK(quintet_table_free(table, &error));
  }
  pop(database);

  FAILS(QUINTET_LOCKED, quintet_open(S(directory), NULL, &second, NULL));
  CHECK(quintet_is_read_only(database, &is_true, &error));
  EXPECT(!is_true);
  CHECK(quintet_sync(database, &error));
  CHECK(quintet_persist(database, &error));
  CHECK(quintet_stat(database, S("commits_total"), &number, &error));
  EXPECT(number > 0);
  FAILS(QUINTET_INVALID_OPTION, quintet_stat(database, S("mood"), &number, NULL));
  CHECK(quintet_stats_json(database, &text, &error));
  EXPECT(contains(&text, "\"commits_total\":") && contains(&text, "\"tables\":["));
  CHECK(quintet_check(database, false, &is_true, &text, &error));
  EXPECT(is_true);
  close_database(database);

  options = small_options();
  CHECK(quintet_options_set(options, S("checkpoint_interval"), S("60000"), &error));
  CHECK(quintet_options_set(options, S("read_only"), S("true"), &error));
  CHECK(quintet_open(S(directory), options, &database, &error));
  CHECK(quintet_is_read_only(database, &is_true, &error));
  EXPECT(is_true);
  quintet_table *table = NULL;
  CHECK(quintet_open_table(database, S("trie"), &table, &error));
  expect_value(table, "a", "1");
  FAILS(QUINTET_READ_ONLY, quintet_put(table, S("a"), S("2"), NULL, NULL, NULL));
  CHECK(quintet_table_free(table, &error));
  close_database(database);
  CHECK(quintet_options_set(options, S("read_only"), S("maybe"), &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_open(S(directory), options, &database, NULL));
  CHECK(quintet_options_set(options, S("read_only"), S("false"), &error));
  CHECK(quintet_options_set(options, S("colour"), S("red"), &error));
  FAILS(QUINTET_INVALID_OPTION, quintet_open(S(directory), options, &database, NULL));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_buffer_free(&text, &error));
}
