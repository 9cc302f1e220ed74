/* Callbacks that refuse, return nonsense, use the library, or write to their own key. */
#include "test.h"

typedef struct {
  quintet_table *table;
  int calls, result;
} Context;

static int return_result(void *context, const quintet_slice *old, quintet_buffer *value) {
  Context *own = context;
  EXPECT(value->size == 0 && (old == NULL || old->data != NULL));
  own->calls++;
  return own->result;
}

static int set_twice(void *context, const quintet_slice *old, quintet_buffer *value) {
  (void)old, (void)context;
  quintet_buffer_set(value, S("a long text that is replaced"), NULL);
  quintet_buffer_set(value, S("short"), NULL);
  return 0;
}

static int set_and_delete(void *context, const quintet_slice *old, quintet_buffer *value) {
  (void)old, (void)context;
  quintet_buffer_set(value, S("this is not stored"), NULL);
  return 1;
}

static int free_value(void *context, const quintet_slice *old, quintet_buffer *value) {
  (void)old, (void)context;
  quintet_buffer_set(value, S("this is freed"), NULL);
  quintet_buffer_free(value, NULL);
  return 0;
}

/* Writes to the key that it updates, so its own round is always lost. */
static int write_own_key(void *context, const quintet_slice *old, quintet_buffer *value) {
  Context *own = context;
  char text[32];
  (void)old;
  snprintf(text, sizeof text, "%d", ++own->calls);
  put(own->table, "own", text);
  quintet_buffer_set(value, S("lost"), NULL);
  return 0;
}

/* Writes to it once, so the second round is good. */
static int write_once(void *context, const quintet_slice *old, quintet_buffer *value) {
  Context *own = context;
  if (own->calls++ == 0) put(own->table, "own", "between");
  return (int)quintet_buffer_set(value, old ? *old : S("none"), NULL);
}

static void update(Context *own) {
  quintet_table *table = own->table;
  quintet_buffer value = {0};
  quintet_error *busy = NULL;
  bool found = true;
  put(table, "k", "v");
  const int nonsense[] = {2, -1, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
    own->result = nonsense[i];
    FAILS(QUINTET_CALLBACK_FAILED,
          quintet_update(table, S("k"), NULL, return_result, own, NULL, NULL, NULL));
    expect_value(table, "k", "v");
  }
  own->result = 0;
  CHECK(quintet_update(table, S("k"), NULL, return_result, own, &value, &found, &error));
  EXPECT(found && value.size == 0);
  own->result = 1;
  CHECK(quintet_update(table, S("k"), NULL, return_result, own, &value, &found, &error));
  EXPECT(!found && value.size == 0);
  CHECK(quintet_update(table, S("k"), NULL, set_twice, NULL, &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "short"));
  CHECK(quintet_update(table, S("k"), NULL, set_and_delete, NULL, &value, &found, &error));
  EXPECT(!found);
  CHECK(quintet_update(table, S("k"), NULL, free_value, NULL, &value, &found, &error));
  EXPECT(found && value.size == 0);
  FAILS(QUINTET_NULL_ARGUMENT, quintet_update(table, S("k"), NULL, NULL, NULL, NULL, NULL, NULL));

  own->calls = 0;
  EXPECT(quintet_update(table, S("own"), NULL, write_own_key, own, NULL, NULL, &busy) ==
         QUINTET_BUSY);
  EXPECT(own->calls == 1000 && strstr(quintet_error_message(busy), "1000 rounds") != NULL);
  quintet_error_free(busy);
  expect_value(table, "own", "1000");
  own->calls = 0;
  CHECK(quintet_update(table, S("own"), NULL, write_once, own, &value, NULL, &error));
  EXPECT(own->calls == 2 && equals(quintet_content(&value), "between"));
  CHECK(quintet_buffer_free(&value, &error));
}

/* Reads the table of the transaction whose commit or read runs it, and refuses then. */
static quintet_table *transaction_view;
static quintet_code code_in_merge;

static int read_transaction(void *context, quintet_slice key, const quintet_slice *old,
                            quintet_slice operand, quintet_buffer *merged) {
  bool found = false;
  (void)context, (void)old;
  code_in_merge = quintet_contains(transaction_view, key, &found, NULL);
  return (int)quintet_buffer_set(merged, operand, NULL);
}

static void merge_in_transaction(quintet_database *database) {
  quintet_options *options = NULL;
  quintet_table *table = NULL;
  quintet_transaction *transaction = NULL;
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("merge"), S("read"), &error));
  CHECK(quintet_create_table(database, S("merge"), S("btree"), options, &table, &error));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, table, &transaction_view, &error));
  CHECK(quintet_merge(transaction_view, S("k"), S("x"), NULL, &error));
  expect_value(transaction_view, "k", "x");
  EXPECT(code_in_merge == QUINTET_BUSY);
  CHECK(quintet_transaction_free(transaction, &error));
  CHECK(quintet_table_free(transaction_view, &error));
  CHECK(quintet_table_free(table, &error));
}

/* Frees the handle of the table that it visits, and writes to the table before. */
static int free_table(void *context, quintet_slice key, quintet_slice value) {
  Context *own = context;
  EXPECT(key.size == 1 && value.size == 1);
  if (own->calls++ == 0) {
    put(own->table, "a", "new");
    CHECK(quintet_table_free(own->table, &error));
  }
  FAILS(QUINTET_BAD_HANDLE, quintet_put(own->table, S("a"), S("b"), NULL, NULL, NULL));
  return 0;
}

/* Reads and writes the key that it is called for, and another one. */
static void change(Context *own, quintet_slice key) {
  bool found = false;
  own->calls++;
  CHECK(quintet_put(own->table, key, S("new"), NULL, NULL, &error));
  CHECK(quintet_contains(own->table, key, &found, &error));
  EXPECT(found);
  put(own->table, "other", "x");
  CHECK(quintet_delete(own->table, S("other"), NULL, NULL, &error));
}

static int change_visited(void *context, quintet_slice key, quintet_slice value) {
  EXPECT(equals(value, "old"));
  change(context, key);
  return 0;
}

static void change_read(void *context, size_t index, const quintet_slice *value) {
  EXPECT(index < 2 && (value != NULL) == (index == 0) && (!value || equals(*value, "old")));
  change(context, S("a"));
}

/* Callbacks of reads may write to the table, also to the key that is read. */
static void write_while_reading(quintet_database *database, Context *own) {
  quintet_snapshot *snapshot = NULL;
  quintet_table *view = NULL;
  quintet_slice keys[] = {S("a"), S("absent")};
  quintet_code code;
  CHECK(quintet_clear(own->table, &error));
  put(own->table, "a", "old");
  CHECK(quintet_snapshot_new(database, &snapshot, &error));
  CHECK(quintet_snapshot_table(snapshot, own->table, &view, &error));
  own->calls = 0;
  CHECK(quintet_multi_get(own->table, keys, 2, change_read, own, &error));
  put(own->table, "a", "old");
  CHECK(quintet_multi_get(view, keys, 2, change_read, own, &error));
  EXPECT(own->calls == 4);
  put(own->table, "a", "old");
  CHECK(quintet_get_with(own->table, S("a"), change_visited, own, NULL, &error));
  CHECK(quintet_get_with(view, S("a"), change_visited, own, NULL, &error));
  EXPECT(own->calls == 6);
  code = quintet_visit(view, NULL, change_visited, own, NULL);
  if (code == QUINTET_OK) {
    put(own->table, "a", "old");
    CHECK(quintet_visit(own->table, NULL, change_visited, own, &error));
    EXPECT(own->calls == 8);
  } else {
    EXPECT(code == QUINTET_UNORDERED && own->calls == 6);
  }
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_snapshot_free(snapshot, &error));
}

void test_callbacks(const char *directory) {
  const char *engines[] = {"naive", "hashlog", "trie", "btree", "slm", "tph"};
  quintet_database *database = NULL;
  quintet_options *options = NULL;
  options = small_options();
  CHECK(quintet_options_add_merge_operator(options, S("read"), read_transaction, NULL, &error));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_options_add_merge_operator(options, S("x"), NULL, NULL, NULL));
  CHECK(quintet_open(S(directory), options, &database, &error));
  CHECK(quintet_options_free(options, &error));
  for (int i = 0; i < 6; i++) {
    Context own = {.table = create_table(database, engines[i], engines[i])};
    update(&own);
    write_while_reading(database, &own);
    CHECK(quintet_table_free(own.table, &error));
  }
  merge_in_transaction(database);

  Context own = {.table = create_table(database, "visit", "slm")};
  put(own.table, "a", "1");
  put(own.table, "b", "2");
  CHECK(quintet_visit(own.table, NULL, free_table, &own, &error));
  EXPECT(own.calls == 2);
  close_database(database);
}
