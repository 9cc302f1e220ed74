/* Merge operators: built-in ones, and one of the program. */
#include "test.h"

/* Joins values with a comma. Refuses "bad" with a reason, and "mute" without one. */
static int join(void *context, quintet_slice key, const quintet_slice *old, quintet_slice operand,
                quintet_buffer *merged) {
  char text[256] = {0};
  EXPECT(strcmp(context, "context") == 0 && key.size > 0 && merged->size == 0);
  if (equals(operand, "bad")) {
    quintet_buffer_set(merged, S("the operand is bad"), NULL);
    return -1;
  }
  if (equals(operand, "mute")) return 2;
  if (equals(operand, "nothing")) return 0;
  if (old) {
    strncat(text, (const char *)old->data, old->size);
    strcat(text, ",");
  }
  strncat(text, (const char *)operand.data, operand.size);
  return (int)quintet_buffer_set(merged, S(text), NULL);
}

static quintet_table *create(quintet_database *database, const char *name, const char *engine,
                             const char *operator) {
  quintet_options *options = NULL;
  quintet_table *table = NULL;
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("merge"), S(operator), &error));
  CHECK(quintet_create_table(database, S(name), S(engine), options, &table, &error));
  CHECK(quintet_options_free(options, &error));
  return table;
}

static void use_operator(quintet_database *database, const char *engine) {
  quintet_table *table = create(database, engine, engine, "join");
  CHECK(quintet_merge(table, S("k"), S("a"), NULL, &error));
  CHECK(quintet_merge(table, S("k"), S("b"), NULL, &error));
  expect_value(table, "k", "a,b");

  quintet_error *refusal = NULL;
  quintet_buffer detail = {0};
  bool found = false;
  EXPECT(quintet_merge(table, S("k"), S("bad"), NULL, &refusal) == QUINTET_MERGE_REFUSED);
  EXPECT(strstr(quintet_error_message(refusal), "the operand is bad") != NULL);
  CHECK(quintet_error_detail(refusal, S("key"), &detail, &found, &error));
  EXPECT(found && equals(quintet_content(&detail), "k"));
  CHECK(quintet_error_detail(refusal, S("path"), &detail, &found, &error));
  EXPECT(!found && detail.size == 0);
  quintet_error_free(refusal);
  CHECK(quintet_buffer_free(&detail, &error));
  FAILS(QUINTET_MERGE_REFUSED, quintet_merge(table, S("k"), S("mute"), NULL, NULL));
  expect_value(table, "k", "a,b");

  quintet_batch *batch = NULL;
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_merge(batch, table, S("k"), S("c"), &error));
  CHECK(quintet_batch_merge(batch, table, S("new"), S("x"), &error));
  CHECK(quintet_batch_commit(batch, 2, &error));
  expect_value(table, "k", "a,b,c");
  expect_value(table, "new", "x");
  CHECK(quintet_batch_merge(batch, table, S("k"), S("bad"), &error));
  CHECK(quintet_batch_put(batch, table, S("other"), S("x"), NULL, &error));
  FAILS(QUINTET_MERGE_REFUSED, quintet_batch_commit(batch, 0, NULL));
  expect_value(table, "other", NULL);
  CHECK(quintet_batch_free(batch, &error));

  /* An operator that succeeds without setting its result stores the empty value. */
  CHECK(quintet_merge(table, S("k"), S("nothing"), NULL, &error));
  expect_value(table, "k", "");

  quintet_write_options wrong = {.if_absent = 1};
  FAILS(QUINTET_UNSUPPORTED, quintet_merge(table, S("k"), S("a"), &wrong, NULL));
  CHECK(quintet_table_free(table, &error));
}

static void merge_in_transaction(quintet_database *database) {
  quintet_table *table = create(database, "transaction", "trie", "join"), *view = NULL;
  quintet_transaction *transaction = NULL;
  quintet_write_options options = {.durability = 1};
  put(table, "k", "a");
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, table, &view, &error));
  CHECK(quintet_merge(view, S("k"), S("b"), NULL, &error));
  FAILS(QUINTET_UNSUPPORTED, quintet_merge(view, S("k"), S("b"), &options, NULL));
  expect_value(view, "k", "a,b");
  expect_value(table, "k", "a");
  CHECK(quintet_commit(transaction, &error));
  expect_value(table, "k", "a,b");
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_transaction_free(transaction, &error));
  CHECK(quintet_table_free(table, &error));
}

void test_merges(const char *directory) {
  static char context[] = "context";
  const char *engines[] = {"naive", "hashlog", "trie", "btree", "slm", "tph"};
  quintet_options *options = NULL;
  quintet_database *database = NULL;
  quintet_table *table = NULL;
  options = small_options();
  CHECK(quintet_options_add_merge_operator(options, S("join"), join, context, &error));
  CHECK(quintet_open(S(directory), options, &database, &error));
  for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) use_operator(database, engines[i]);
  merge_in_transaction(database);

  table = create(database, "sum", "btree", "add_u64");
  uint8_t one[8] = {1}, two[8] = {2};
  quintet_buffer sum = {0};
  uint64_t value = 0;
  CHECK(quintet_merge(table, S("n"), quintet_bytes(one, 8), NULL, &error));
  CHECK(quintet_merge(table, S("n"), quintet_bytes(two, 8), NULL, &error));
  CHECK(quintet_get(table, S("n"), &sum, NULL, &error));
  CHECK(quintet_value_read_u64(quintet_content(&sum), &value, &error));
  EXPECT(value == 3);
  FAILS(QUINTET_MERGE_REFUSED, quintet_merge(table, S("n"), S("short"), NULL, NULL));
  CHECK(quintet_buffer_free(&sum, &error));
  CHECK(quintet_table_free(table, &error));

  table = create_table(database, "none", "btree");
  FAILS(QUINTET_INVALID_OPTION, quintet_merge(table, S("k"), S("a"), NULL, NULL));
  CHECK(quintet_table_free(table, &error));
  close_database(database);

  /* Without the operator, a table opens only if the options of the database say so. */
  database = open_small(directory);
  FAILS(QUINTET_MERGE_OPERATOR_MISSING, quintet_open_table(database, S("trie"), &table, NULL));
  close_database(database);
  CHECK(quintet_options_free(options, &error));
  options = small_options();
  CHECK(quintet_options_set(options, S("allow_missing_merge_operators"), S("true"), &error));
  CHECK(quintet_open(S(directory), options, &database, &error));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_open_table(database, S("trie"), &table, &error));
  FAILS(QUINTET_MERGE_OPERATOR_MISSING, quintet_merge(table, S("k"), S("a"), NULL, NULL));
  CHECK(quintet_table_free(table, &error));
  close_database(database);
}
