/* Handles that are null, freed, of another kind, or of a closed database, in every function. */
#include "test.h"

static quintet_database *database;
static quintet_table *table;

static int update(void *context, const quintet_slice *old, quintet_buffer *value) {
  (void)context, (void)old, (void)value;
  return 1;
}

static int visit(void *context, quintet_slice key, quintet_slice value) {
  (void)context, (void)key, (void)value;
  return 0;
}

static void each(void *context, size_t index, const quintet_slice *value) {
  (void)context, (void)index, (void)value;
}

static int merge(void *context, quintet_slice key, const quintet_slice *old, quintet_slice operand,
                 quintet_buffer *merged) {
  (void)context, (void)key, (void)old, (void)operand, (void)merged;
  return 0;
}

/* Calls all functions of databases with `handle`. */
static void call_databases(quintet_code expected, void *handle) {
  quintet_database *result = NULL;
  quintet_table *opened = NULL;
  quintet_snapshot *snapshot = NULL;
  quintet_batch *batch = NULL;
  quintet_transaction *transaction = NULL;
  quintet_feed *feed = NULL;
  quintet_buffer text = {0};
  uint64_t number = 7;
  bool flag = true;
  FAILS(expected, quintet_close(handle, NULL));
  FAILS(expected, quintet_sync(handle, NULL));
  FAILS(expected, quintet_persist(handle, NULL));
  FAILS(expected, quintet_is_read_only(handle, &flag, NULL));
  FAILS(expected, quintet_check(handle, true, &flag, &text, NULL));
  FAILS(expected, quintet_stats_json(handle, &text, NULL));
  FAILS(expected, quintet_stat(handle, S("open_tables"), &number, NULL));
  FAILS(expected, quintet_snapshot_new(handle, &snapshot, NULL));
  FAILS(expected, quintet_create_table(handle, S("x"), S("btree"), NULL, &opened, NULL));
  FAILS(expected, quintet_create_default_table(handle, S("x"), &opened, NULL));
  FAILS(expected, quintet_open_table(handle, S("x"), &opened, NULL));
  FAILS(expected, quintet_open_or_create_table(handle, S("x"), S("btree"), NULL, &opened, NULL));
  FAILS(expected, quintet_is_table(handle, S("x"), &flag, NULL));
  FAILS(expected, quintet_rename(handle, S("x"), S("y"), NULL));
  FAILS(expected, quintet_drop_table(handle, S("x"), NULL));
  FAILS(expected, quintet_drop_tree(handle, S("x"), NULL));
  FAILS(expected, quintet_tables_json(handle, S(""), &text, NULL));
  FAILS(expected, quintet_children_json(handle, S(""), &text, NULL));
  FAILS(expected, quintet_set_default_options(handle, S("x"), S("btree"), NULL, NULL));
  FAILS(expected, quintet_default_options(handle, S("x"), &text, &flag, NULL));
  FAILS(expected, quintet_mount(handle, S("m"), S("/x"), S(""), false, NULL));
  FAILS(expected, quintet_unmount(handle, S("m"), NULL));
  FAILS(expected, quintet_mounted(handle, S("m"), &result, NULL));
  FAILS(expected, quintet_mounts_json(handle, &text, NULL));
  FAILS(expected, quintet_batch_new(handle, &batch, NULL));
  FAILS(expected, quintet_begin(handle, NULL, &transaction, NULL));
  FAILS(expected, quintet_feed_new(handle, 0, NULL, &feed, NULL));
  FAILS(expected, quintet_log_range(handle, &number, &number, NULL));
  EXPECT(!result && !opened && !snapshot && !batch && !transaction && !feed);
  EXPECT(flag && number == 7 && text.data == NULL);
}

/* Calls all functions of tables with `handle`. */
static void call_tables(quintet_code expected, void *handle) {
  quintet_buffer text = {0};
  quintet_slice key = S("k");
  quintet_iterator *entries = NULL;
  quintet_cursor *cursor = NULL;
  quintet_load *load = NULL;
  quintet_value_info info;
  uint8_t memory[8];
  size_t size = 7;
  uint64_t number = 7;
  bool flag = true;
  FAILS(expected, quintet_table_name(handle, &text, NULL));
  FAILS(expected, quintet_table_engine(handle, &text, NULL));
  FAILS(expected, quintet_table_types(handle, &text, NULL));
  FAILS(expected, quintet_put(handle, key, S("v"), NULL, &flag, NULL));
  FAILS(expected, quintet_delete(handle, key, NULL, &flag, NULL));
  FAILS(expected, quintet_delete_range(handle, NULL, NULL));
  FAILS(expected, quintet_merge(handle, key, S("v"), NULL, NULL));
  FAILS(expected, quintet_update(handle, key, NULL, update, NULL, &text, &flag, NULL));
  FAILS(expected,
        quintet_compare_and_swap(handle, key, key, key, NULL, &flag, &text, &flag, NULL));
  FAILS(expected, quintet_fetch_and_add(handle, key, 1, NULL, NULL, NULL));
  FAILS(expected, quintet_take(handle, key, &text, &flag, NULL));
  FAILS(expected, quintet_replace(handle, key, S("v"), &text, &flag, NULL));
  FAILS(expected, quintet_pop_first(handle, &text, NULL, &flag, NULL));
  FAILS(expected, quintet_pop_last(handle, &text, NULL, &flag, NULL));
  FAILS(expected, quintet_clear(handle, NULL));
  FAILS(expected, quintet_table_persist(handle, NULL));
  FAILS(expected, quintet_table_compact(handle, NULL));
  FAILS(expected, quintet_table_stats_json(handle, &text, NULL));
  FAILS(expected, quintet_table_stat(handle, S("keys"), &number, NULL));
  FAILS(expected, quintet_get(handle, key, &text, &flag, NULL));
  FAILS(expected, quintet_get_into(handle, key, memory, sizeof memory, &size, &flag, NULL));
  FAILS(expected, quintet_get_with(handle, key, visit, NULL, &flag, NULL));
  FAILS(expected, quintet_get_info(handle, key, &info, &flag, NULL));
  FAILS(expected, quintet_contains(handle, key, &flag, NULL));
  FAILS(expected, quintet_multi_get(handle, &key, 1, each, NULL, NULL));
  FAILS(expected, quintet_prefetch(handle, &key, 1, NULL));
  FAILS(expected, quintet_visit(handle, NULL, visit, NULL, NULL));
  FAILS(expected, quintet_count(handle, &number, NULL));
  FAILS(expected, quintet_estimate_count(handle, NULL, &number, NULL));
  FAILS(expected, quintet_first(handle, &text, NULL, &flag, NULL));
  FAILS(expected, quintet_last(handle, &text, NULL, &flag, NULL));
  FAILS(expected, quintet_iterate(handle, NULL, &entries, NULL));
  FAILS(expected, quintet_scan(handle, &entries, NULL));
  FAILS(expected, quintet_cursor_new(handle, &cursor, NULL));
  FAILS(expected, quintet_load_new(handle, NULL, &load, NULL));
  FAILS(expected, quintet_get_for_update(handle, key, &text, &flag, NULL));
  EXPECT(!entries && !cursor && !load && flag && number == 7 && size == 7 && text.data == NULL);
}

/* Calls all functions of the other kinds with `handle`. */
static void call_others(quintet_code expected, void *handle) {
  quintet_slice slice = S("k");
  quintet_buffer text = {0};
  quintet_table *view = NULL;
  quintet_savepoint *savepoint = NULL;
  quintet_change change = {.table_number = 7};
  uint64_t number = 7;
  bool flag = true;
  FAILS(expected, quintet_feed_next(handle, &flag, NULL));
  FAILS(expected, quintet_feed_wait(handle, 0, &flag, NULL));
  FAILS(expected, quintet_feed_commit(handle, &number, &number, &flag, NULL));
  FAILS(expected, quintet_feed_change(handle, &change, &flag, NULL));
  FAILS(expected, quintet_feed_position(handle, &number, NULL));
  FAILS(expected, quintet_snapshot_lsn(handle, &number, NULL));
  EXPECT(change.table_number == 7 && number == 7);
  FAILS(expected, quintet_options_set(handle, S("a"), S("b"), NULL));
  FAILS(expected, quintet_options_add_merge_operator(handle, S("a"), merge, NULL, NULL));
  FAILS(expected, quintet_snapshot_table(handle, table, &view, NULL));
  FAILS(expected, quintet_iterator_next(handle, &slice, NULL, &flag, NULL));
  FAILS(expected, quintet_cursor_seek(handle, S("k"), &flag, NULL));
  FAILS(expected, quintet_cursor_seek_for_prev(handle, S("k"), &flag, NULL));
  FAILS(expected, quintet_cursor_first(handle, &flag, NULL));
  FAILS(expected, quintet_cursor_last(handle, &flag, NULL));
  FAILS(expected, quintet_cursor_next(handle, &flag, NULL));
  FAILS(expected, quintet_cursor_prev(handle, &flag, NULL));
  FAILS(expected, quintet_cursor_entry(handle, &slice, NULL, &flag, NULL));
  FAILS(expected, quintet_batch_put(handle, table, S("k"), S("v"), NULL, NULL));
  FAILS(expected, quintet_batch_delete(handle, table, S("k"), NULL));
  FAILS(expected, quintet_batch_merge(handle, table, S("k"), S("v"), NULL));
  FAILS(expected, quintet_batch_size(handle, NULL, NULL, NULL));
  FAILS(expected, quintet_batch_clear(handle, NULL));
  FAILS(expected, quintet_batch_commit(handle, 0, NULL));
  FAILS(expected, quintet_load_put(handle, S("k"), S("v"), NULL, NULL));
  FAILS(expected, quintet_load_commit(handle, NULL, NULL));
  FAILS(expected, quintet_transaction_table(handle, table, &view, NULL));
  FAILS(expected, quintet_savepoint_new(handle, &savepoint, NULL));
  FAILS(expected, quintet_rollback_to(handle, handle, NULL));
  FAILS(expected, quintet_commit(handle, NULL));
  FAILS(expected, quintet_error_detail(handle, S("key"), &text, &flag, NULL));
  EXPECT(!view && !savepoint && flag && equals(slice, "k") && text.data == NULL);
}

/* Frees `handle` as each kind but errors. */
static void call_frees(quintet_code expected, void *handle) {
  FAILS(expected, quintet_options_free(handle, NULL));
  FAILS(expected, quintet_snapshot_free(handle, NULL));
  FAILS(expected, quintet_iterator_free(handle, NULL));
  FAILS(expected, quintet_cursor_free(handle, NULL));
  FAILS(expected, quintet_batch_free(handle, NULL));
  FAILS(expected, quintet_load_free(handle, NULL));
  FAILS(expected, quintet_transaction_free(handle, NULL));
  FAILS(expected, quintet_feed_free(handle, NULL));
}

static void open_table(const char *directory) {
  database = open_small(directory);
  table = create_table(database, "t", "btree");
}

static void free_table(void) {
  CHECK(quintet_table_free(table, &error));
  close_database(database);
}

void test_nulls(const char *directory) {
  quintet_buffer buffer = {0};
  quintet_slice rest = S("");
  open_table(directory);
  call_databases(QUINTET_NULL_ARGUMENT, NULL);
  call_tables(QUINTET_NULL_ARGUMENT, NULL);
  call_others(QUINTET_NULL_ARGUMENT, NULL);
  call_frees(QUINTET_OK, NULL);
  FAILS(QUINTET_OK, quintet_database_free(NULL, NULL));
  FAILS(QUINTET_OK, quintet_table_free(NULL, NULL));
  FAILS(QUINTET_OK, quintet_savepoint_free(NULL, NULL));
  FAILS(QUINTET_OK, quintet_buffer_free(NULL, NULL));
  EXPECT(quintet_error_code(NULL) == QUINTET_BAD_HANDLE && *quintet_error_message(NULL) == 0);
  quintet_error_free(NULL);
  EXPECT(strcmp(quintet_code_name(12345), "unknown") == 0);

  /* Results and buffers that must be given. */
  FAILS(QUINTET_NULL_ARGUMENT, quintet_options_new(NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_open(S(directory), NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_open_table(database, S("t"), NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_snapshot_new(database, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_begin(database, NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_batch_new(database, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_feed_new(database, 0, NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_get(table, S("k"), NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_count(table, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_iterate(table, NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_table_name(table, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_put(table, quintet_bytes(NULL, 1), S("v"), NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_buffer_set(NULL, S("x"), NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_buffer_set(&buffer, quintet_bytes(NULL, 1), NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_key_append_u64(NULL, 1, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_key_append_bytes(NULL, S("x"), true, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_key_read_u64(NULL, NULL, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_key_read_bytes(&rest, NULL, true, NULL));
  free_table();
}

void test_wrong_handles(const char *directory) {
  quintet_transaction *transaction = NULL;
  quintet_savepoint *savepoint = NULL;
  open_table(directory);
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_savepoint_new(transaction, &savepoint, &error));
  call_databases(QUINTET_WRONG_HANDLE, table);
  call_tables(QUINTET_WRONG_HANDLE, database);
  call_others(QUINTET_WRONG_HANDLE, database);
  call_frees(QUINTET_WRONG_HANDLE, savepoint);
  FAILS(QUINTET_WRONG_HANDLE, quintet_savepoint_free((void *)transaction, NULL));
  FAILS(QUINTET_WRONG_HANDLE, quintet_database_free((void *)table, NULL));
  FAILS(QUINTET_WRONG_HANDLE, quintet_table_free((void *)database, NULL));

  /* A freed handle, and addresses of other memory. */
  CHECK(quintet_savepoint_free(savepoint, &error));
  void *bad[] = {savepoint, &transaction, (void *)1, (void *)UINTPTR_MAX, "text"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    call_databases(QUINTET_BAD_HANDLE, bad[i]);
    call_tables(QUINTET_BAD_HANDLE, bad[i]);
    call_others(QUINTET_BAD_HANDLE, bad[i]);
    call_frees(QUINTET_BAD_HANDLE, bad[i]);
    EXPECT(quintet_error_code(bad[i]) == QUINTET_BAD_HANDLE);
    EXPECT(*quintet_error_message(bad[i]) == 0);
    quintet_error_free(bad[i]);
  }
  CHECK(quintet_transaction_free(transaction, &error));
  free_table();
}

/* After `quintet_close`, handles fail until they are freed. */
void test_closed(const char *directory) {
  quintet_snapshot *snapshot = NULL, *other = NULL;
  quintet_transaction *transaction = NULL, *later = NULL;
  quintet_table *view = NULL, *own = NULL, *opened = NULL;
  quintet_iterator *entries = NULL;
  quintet_cursor *cursor = NULL;
  quintet_batch *batch = NULL;
  quintet_load *load = NULL;
  quintet_feed *feed = NULL, *later_feed = NULL;
  quintet_buffer value = {0};
  uint64_t number = 0;
  open_table(directory);
  put(table, "k", "v");
  CHECK(quintet_snapshot_new(database, &snapshot, &error));
  CHECK(quintet_snapshot_table(snapshot, table, &view, &error));
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_transaction_table(transaction, table, &own, &error));
  put(own, "k", "3");
  CHECK(quintet_iterate(table, NULL, &entries, &error));
  CHECK(quintet_cursor_new(table, &cursor, &error));
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_put(batch, table, S("k"), S("2"), NULL, &error));
  CHECK(quintet_load_new(table, NULL, &load, &error));
  CHECK(quintet_load_put(load, S("z"), S("v"), NULL, &error));
  CHECK(quintet_snapshot_lsn(snapshot, &number, &error));
  CHECK(quintet_feed_new(database, number, NULL, &feed, &error));
  CHECK(quintet_close(database, &error));
  FAILS(QUINTET_CLOSED, quintet_put(table, S("k"), S("2"), NULL, NULL, NULL));
  FAILS(QUINTET_CLOSED, quintet_get(table, S("k"), &value, NULL, NULL));
  FAILS(QUINTET_CLOSED, quintet_get(view, S("k"), &value, NULL, NULL));
  FAILS(QUINTET_CLOSED, quintet_count(table, &number, NULL));
  FAILS(QUINTET_CLOSED, quintet_batch_commit(batch, 0, NULL));
  FAILS(QUINTET_CLOSED, quintet_cursor_first(cursor, NULL, NULL));
  FAILS(QUINTET_CLOSED, quintet_load_commit(load, NULL, NULL));
  FAILS(QUINTET_CLOSED, quintet_commit(transaction, NULL));
  FAILS(QUINTET_CLOSED, quintet_begin(database, NULL, &later, NULL));
  FAILS(QUINTET_CLOSED, quintet_snapshot_new(database, &other, NULL));
  FAILS(QUINTET_CLOSED, quintet_open_table(database, S("t"), &opened, NULL));
  FAILS(QUINTET_CLOSED, quintet_sync(database, NULL));
  FAILS(QUINTET_CLOSED, quintet_feed_next(feed, &(bool){false}, NULL));
  FAILS(QUINTET_CLOSED, quintet_feed_wait(feed, 60000, &(bool){false}, NULL));
  FAILS(QUINTET_CLOSED, quintet_feed_new(database, number, NULL, &later_feed, NULL));
  FAILS(QUINTET_SNAPSHOT_EXPIRED, quintet_iterator_next(entries, NULL, NULL, &(bool){false}, NULL));
  FAILS(QUINTET_OK, quintet_close(database, NULL));
  CHECK(quintet_feed_free(feed, &error));
  CHECK(quintet_load_free(load, &error));
  CHECK(quintet_batch_free(batch, &error));
  CHECK(quintet_cursor_free(cursor, &error));
  CHECK(quintet_iterator_free(entries, &error));
  CHECK(quintet_transaction_free(transaction, &error));
  CHECK(quintet_table_free(own, &error));
  CHECK(quintet_table_free(view, &error));
  CHECK(quintet_snapshot_free(snapshot, &error));
  CHECK(quintet_table_free(table, &error));
  CHECK(quintet_database_free(database, &error));
  CHECK(quintet_buffer_free(&value, &error));
  FAILS(QUINTET_BAD_HANDLE, quintet_close(database, NULL));
}
