/* Ranges in both directions, a prefix, a cursor, and typed keys. */
#include "example.h"

static void expect_keys(quintet_table *table, const quintet_range *range, const char *expected) {
  quintet_iterator *entries = NULL;
  char keys[64] = {0};
  CHECK(quintet_iterate(table, range, &entries, &error));
  for (;;) {
    quintet_slice key;
    bool found = false;
    CHECK(quintet_iterator_next(entries, &key, NULL, &found, &error));
    if (!found) break;
    strncat(keys, (const char *)key.data, key.size);
    strcat(keys, " ");
  }
  CHECK(quintet_iterator_free(entries, &error));
  if (strcmp(keys, expected) != 0) {
    fprintf(stderr, "expected %s, found %s\n", expected, keys);
    exit(1);
  }
}

int main(int count, char **arguments) {
  quintet_database *database = open_database(count, arguments);
  quintet_table *table = NULL, *events = NULL;
  CHECK(quintet_create_table(database, S("table"), S("slm"), NULL, &table, &error));
  const char *keys[] = {"a1", "a2", "b1", "c1"};
  for (int i = 0; i < 4; i++) CHECK(quintet_put(table, S(keys[i]), S("v"), NULL, NULL, &error));
  expect_keys(table, NULL, "a1 a2 b1 c1 ");
  expect_keys(table, &(quintet_range){.reverse = 1}, "c1 b1 a2 a1 ");
  expect_keys(table, &(quintet_range){.prefix = S("a")}, "a1 a2 ");
  expect_keys(table, &(quintet_range){.start = S("a2"), .end = S("c1")}, "a2 b1 ");
  expect_keys(table,
              &(quintet_range){.start = S("a2"), .end = S("c1"), .start_excluded = 1,
                               .end_included = 1},
              "b1 c1 ");

  quintet_cursor *cursor = NULL;
  quintet_slice key;
  bool found = false;
  CHECK(quintet_cursor_new(table, &cursor, &error));
  CHECK(quintet_cursor_seek(cursor, S("b"), &found, &error));
  CHECK(quintet_cursor_prev(cursor, &found, &error));
  CHECK(quintet_cursor_entry(cursor, &key, NULL, &found, &error));
  EXPECT(found && equals(key, "a2"));
  CHECK(quintet_cursor_free(cursor, &error));

  quintet_options *options = NULL;
  quintet_buffer buffer = {0};
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("types"), S("string,i64 -> blob"), &error));
  CHECK(quintet_create_table(database, S("events"), S("btree"), options, &events, &error));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_key_append_bytes(&buffer, S("door"), false, &error));
  CHECK(quintet_key_append_i64(&buffer, -7, &error));
  CHECK(quintet_put(events, quintet_content(&buffer), S("open"), NULL, NULL, &error));
  EXPECT(quintet_put(events, S("door"), S("open"), NULL, NULL, NULL) == QUINTET_TYPE_MISMATCH);
  quintet_slice rest = quintet_content(&buffer);
  quintet_buffer name = {0};
  int64_t time = 0;
  CHECK(quintet_key_read_bytes(&rest, &name, false, &error));
  CHECK(quintet_key_read_i64(&rest, &time, &error));
  EXPECT(equals(quintet_content(&name), "door") && time == -7 && rest.size == 0);

  CHECK(quintet_buffer_free(&name, &error));
  CHECK(quintet_buffer_free(&buffer, &error));
  CHECK(quintet_table_free(events, &error));
  CHECK(quintet_table_free(table, &error));
  close_database(database);
  return 0;
}
