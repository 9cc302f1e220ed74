/* Reads: several keys at once, by callback, into memory of the program; cursors; both ends. */
#include "test.h"

typedef struct {
  int present, absent;
  bool is_seen[8];
} Seen;

static void see(void *context, size_t index, const quintet_slice *value) {
  Seen *seen = context;
  EXPECT(index < 8 && !seen->is_seen[index]);
  seen->is_seen[index] = true;
  if (value) {
    EXPECT(equals(*value, index == 0 ? "1" : "3"));
    seen->present++;
  } else {
    seen->absent++;
  }
}

/* Reads three keys of a table with a = 1 and c = 3. */
static void get_several(quintet_table *table) {
  quintet_slice keys[] = {S("a"), S("b"), S("c")};
  Seen seen = {0};
  CHECK(quintet_multi_get(table, keys, 3, see, &seen, &error));
  EXPECT(seen.present == 2 && seen.absent == 1);
  EXPECT(seen.is_seen[0] && seen.is_seen[1] && seen.is_seen[2]);
  CHECK(quintet_multi_get(table, NULL, 0, see, &seen, &error));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_multi_get(table, NULL, 1, see, &seen, NULL));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_multi_get(table, keys, 1, NULL, NULL, NULL));
  FAILS(QUINTET_LIMIT, quintet_multi_get(table, keys, SIZE_MAX, see, &seen, NULL));
}

static void prefetch_several(quintet_table *table) {
  quintet_slice keys[] = {S("a"), S(""), S("c")};
  CHECK(quintet_prefetch(table, keys, 3, &error));
  CHECK(quintet_prefetch(table, NULL, 0, &error));
  FAILS(QUINTET_NULL_ARGUMENT, quintet_prefetch(table, NULL, 1, NULL));
  FAILS(QUINTET_LIMIT, quintet_prefetch(table, keys, SIZE_MAX, NULL));
}

static int expect_a(void *context, quintet_slice key, quintet_slice value) {
  EXPECT(equals(key, "a") && equals(value, "1"));
  ++*(int *)context;
  return -7;
}

static void get_one(quintet_table *table) {
  char memory[4] = "....";
  size_t size = 99;
  bool found = false;
  int calls = 0;
  CHECK(quintet_get_with(table, S("a"), expect_a, &calls, &found, &error));
  EXPECT(found && calls == 1);
  CHECK(quintet_get_with(table, S("b"), expect_a, &calls, &found, &error));
  EXPECT(!found && calls == 1);
  CHECK(quintet_get_into(table, S("a"), (uint8_t *)memory, sizeof memory, &size, &found, &error));
  EXPECT(found && size == 1 && memcmp(memory, "1...", 4) == 0);
  /* Too little memory: the size and `found` are written, the memory is not. */
  size = 99, found = false;
  FAILS(QUINTET_BUFFER_TOO_SMALL,
        quintet_get_into(table, S("a"), (uint8_t *)memory, 0, &size, &found, NULL));
  EXPECT(found && size == 1 && memcmp(memory, "1...", 4) == 0);
  CHECK(quintet_get_into(table, S("b"), NULL, 0, &size, &found, &error));
  EXPECT(!found && size == 0);
  /* Another error: neither is written. */
  size = 99, found = true;
  FAILS(QUINTET_LIMIT, quintet_get_into(table, S(""), NULL, 0, &size, &found, NULL));
  EXPECT(found && size == 99);
}

static int stop_at_second(void *context, quintet_slice key, quintet_slice value) {
  (void)value;
  EXPECT(equals(key, *(int *)context == 0 ? "a" : "c"));
  return ++*(int *)context == 2 ? INT32_MIN : 0;
}

static void read_in_order(quintet_table *table) {
  quintet_buffer key = {0}, value = {0};
  quintet_slice slice;
  quintet_cursor *cursor = NULL;
  uint64_t estimate = 0;
  bool found = false;
  int calls = 0;
  put(table, "d", "4");
  CHECK(quintet_visit(table, NULL, stop_at_second, &calls, &error));
  EXPECT(calls == 2);
  FAILS(QUINTET_UNSUPPORTED, quintet_visit(table, &(quintet_range){.reverse = 1}, stop_at_second,
                                           &calls, NULL));
  CHECK(quintet_first(table, &key, &value, &found, &error));
  EXPECT(found && equals(quintet_content(&key), "a") && equals(quintet_content(&value), "1"));
  CHECK(quintet_last(table, &key, NULL, NULL, &error));
  EXPECT(equals(quintet_content(&key), "d"));
  CHECK(quintet_estimate_count(table, NULL, &estimate, &error));

  CHECK(quintet_cursor_new(table, &cursor, &error));
  CHECK(quintet_cursor_entry(cursor, &slice, NULL, &found, &error));
  EXPECT(!found && slice.data == NULL && slice.size == 0);
  CHECK(quintet_cursor_first(cursor, &found, &error));
  EXPECT(found);
  CHECK(quintet_cursor_next(cursor, &found, &error));
  CHECK(quintet_cursor_entry(cursor, &slice, NULL, &found, &error));
  EXPECT(found && equals(slice, "c"));
  CHECK(quintet_cursor_last(cursor, &found, &error));
  CHECK(quintet_cursor_entry(cursor, NULL, &slice, &found, &error));
  EXPECT(found && equals(slice, "4"));
  CHECK(quintet_cursor_next(cursor, &found, &error));
  EXPECT(!found);
  CHECK(quintet_cursor_prev(cursor, &found, &error));
  EXPECT(found);
  CHECK(quintet_cursor_seek_for_prev(cursor, S("b"), &found, &error));
  CHECK(quintet_cursor_entry(cursor, &slice, NULL, &found, &error));
  EXPECT(found && equals(slice, "a"));
  CHECK(quintet_cursor_seek(cursor, S("e"), &found, &error));
  EXPECT(!found);
  CHECK(quintet_cursor_free(cursor, &error));

  CHECK(quintet_delete_range(table, &(quintet_range){.start = S("d")}, &error));
  expect_range(table, NULL, "a c ");
  CHECK(quintet_buffer_free(&key, &error));
  CHECK(quintet_buffer_free(&value, &error));
}

static void refuse_order(quintet_table *table) {
  quintet_iterator *entries = NULL;
  quintet_cursor *cursor = NULL;
  uint64_t estimate = 0;
  int calls = 0;
  FAILS(QUINTET_UNORDERED, quintet_iterate(table, NULL, &entries, NULL));
  FAILS(QUINTET_UNORDERED, quintet_cursor_new(table, &cursor, NULL));
  FAILS(QUINTET_UNORDERED, quintet_visit(table, NULL, stop_at_second, &calls, NULL));
  FAILS(QUINTET_UNORDERED, quintet_last(table, NULL, NULL, NULL, NULL));
  FAILS(QUINTET_UNORDERED, quintet_pop_last(table, NULL, NULL, NULL, NULL));
  FAILS(QUINTET_UNORDERED, quintet_delete_range(table, NULL, NULL));
  FAILS(QUINTET_UNORDERED, quintet_estimate_count(table, NULL, &estimate, NULL));
  EXPECT(entries == NULL && cursor == NULL && calls == 0);
}

/* What a table shows, a snapshot and a transaction show too. */
static void read_all_views(quintet_database *database, quintet_table *table) {
  quintet_snapshot *snapshot = NULL;
  quintet_transaction *transaction = NULL;
  quintet_table *views[2] = {0};
  CHECK(quintet_snapshot_new(database, &snapshot, &error));
  CHECK(quintet_begin(database, NULL, &transaction, &error));
  CHECK(quintet_snapshot_table(snapshot, table, &views[0], &error));
  CHECK(quintet_transaction_table(transaction, table, &views[1], &error));
  for (int i = 0; i < 2; i++) {
    uint64_t count = 0;
    bool found = false;
    quintet_value_info info;
    get_several(views[i]);
    get_one(views[i]);
    CHECK(quintet_count(views[i], &count, &error));
    EXPECT(count == 2);
    CHECK(quintet_contains(views[i], S("c"), &found, &error));
    EXPECT(found);
    CHECK(quintet_get_info(views[i], S("c"), &info, &found, &error));
    EXPECT(found && info.size == 1 && info.expires_at_ms == 0 && info.type_tag.size == 0);
    CHECK(quintet_table_free(views[i], &error));
  }
  CHECK(quintet_transaction_free(transaction, &error));
  CHECK(quintet_snapshot_free(snapshot, &error));
}

void test_reads(const char *directory) {
  const char *engines[] = {"naive", "hashlog", "trie", "btree", "slm", "tph"};
  quintet_database *database = open_small(directory);
  for (int i = 0; i < 6; i++) {
    quintet_table *table = create_table(database, engines[i], engines[i]);
    put(table, "a", "1");
    put(table, "c", "3");
    get_several(table);
  prefetch_several(table);
    get_one(table);
    read_all_views(database, table);
    if (quintet_first(table, NULL, NULL, NULL, NULL) == QUINTET_OK) {
      read_in_order(table);
    } else {
      refuse_order(table);
    }
    CHECK(quintet_table_free(table, &error));
  }
  close_database(database);
}
