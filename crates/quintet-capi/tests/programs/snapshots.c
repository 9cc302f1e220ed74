/* Snapshots: isolation from all writes, on every engine; views outlive their snapshot. */
#include "test.h"

static void change(quintet_database *database, quintet_table *table) {
  quintet_batch *batch = NULL;
  int64_t before = 0;
  put(table, "a", "changed");
  put(table, "z", "new");
  CHECK(quintet_delete(table, S("b"), NULL, NULL, &error));
  CHECK(quintet_fetch_and_add(table, S("n"), 5, NULL, &before, &error));
  CHECK(quintet_batch_new(database, &batch, &error));
  CHECK(quintet_batch_delete(batch, table, S("c"), &error));
  CHECK(quintet_batch_put(batch, table, S("d"), S("batch"), NULL, &error));
  CHECK(quintet_batch_commit(batch, 1, &error));
  CHECK(quintet_batch_free(batch, &error));
  CHECK(quintet_table_persist(table, &error));
}

static void expect_unchanged(quintet_table *view, bool is_ordered) {
  uint64_t count = 0;
  bool found = true;
  quintet_iterator *entries = NULL;
  expect_value(view, "a", "1");
  expect_value(view, "b", "2");
  expect_value(view, "c", "3");
  CHECK(quintet_contains(view, S("z"), &found, &error));
  EXPECT(!found);
  CHECK(quintet_count(view, &count, &error));
  EXPECT(count == 4);
  if (is_ordered) {
    expect_range(view, NULL, "a b c n ");
    expect_range(view, &(quintet_range){.reverse = 1, .prefix = S("b")}, "b ");
  }
  count = 0;
  CHECK(quintet_scan(view, &entries, &error));
  for (; found || count == 0; count += found) {
    CHECK(quintet_iterator_next(entries, NULL, NULL, &found, &error));
  }
  EXPECT(count == 4);
  CHECK(quintet_iterator_free(entries, &error));
}

static void refuse_writes(quintet_table *view) {
  quintet_buffer value = {0};
  quintet_batch *batch = NULL;
  quintet_cursor *cursor = NULL;
  quintet_load *load = NULL;
  bool done = false;
  FAILS(QUINTET_UNSUPPORTED, quintet_put(view, S("a"), S("x"), NULL, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_delete(view, S("a"), NULL, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_delete_range(view, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_merge(view, S("a"), S("x"), NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_take(view, S("a"), &value, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_replace(view, S("a"), S("x"), &value, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_pop_first(view, NULL, NULL, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_fetch_and_add(view, S("n"), 1, NULL, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_compare_and_swap(view, S("a"), S("1"), S("2"), NULL, &done,
                                                      NULL, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_clear(view, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_table_compact(view, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_table_persist(view, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_get_for_update(view, S("a"), &value, NULL, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_cursor_new(view, &cursor, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_load_new(view, NULL, &load, NULL));
  FAILS(QUINTET_UNSUPPORTED, quintet_batch_put(batch, view, S("a"), S("x"), NULL, NULL));
  CHECK(quintet_buffer_free(&value, &error));
}

void test_snapshots(const char *directory) {
  const char *engines[] = {"naive", "hashlog", "trie", "btree", "slm", "tph"};
  quintet_database *database = open_small(directory);
  uint64_t open = 0;
  for (int i = 0; i < 6; i++) {
    quintet_table *table = create_table(database, engines[i], engines[i]), *view = NULL, *again;
    quintet_snapshot *snapshot = NULL;
    bool is_ordered = quintet_first(table, NULL, NULL, NULL, NULL) == QUINTET_OK;
    put(table, "a", "1");
    put(table, "b", "2");
    put(table, "c", "3");
    CHECK(quintet_fetch_and_add(table, S("n"), 1, NULL, NULL, &error));
    CHECK(quintet_snapshot_new(database, &snapshot, &error));
    CHECK(quintet_snapshot_table(snapshot, table, &view, &error));
    FAILS(QUINTET_UNSUPPORTED, quintet_snapshot_table(snapshot, view, &again, NULL));
    CHECK(quintet_snapshot_free(snapshot, &error));
    change(database, table);
    expect_unchanged(view, is_ordered);
    refuse_writes(view);
    expect_value(table, "a", "changed");
    expect_value(table, "b", NULL);
    expect_value(table, "c", NULL);
    CHECK(quintet_stat(database, S("open_snapshots"), &open, &error));
    EXPECT(open == 1);
    CHECK(quintet_table_free(view, &error));
    CHECK(quintet_stat(database, S("open_snapshots"), &open, &error));
    EXPECT(open == 0);
    CHECK(quintet_table_free(table, &error));
  }
  close_database(database);
}
