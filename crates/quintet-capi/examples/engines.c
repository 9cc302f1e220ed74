/* A table of every engine: conditions, counters, updates, expiry, and a scan. */
#include "example.h"

static int append(void *context, const quintet_slice *old, quintet_buffer *value) {
  (void)context;
  if (old == NULL) return quintet_buffer_set(value, S("a"), NULL);
  return quintet_buffer_set(value, S("ab"), NULL);
}

static void use_table(quintet_table *table) {
  quintet_write_options options = {.if_absent = 1};
  quintet_buffer value = {0};
  bool done = false, found = false;
  int64_t before = 0;
  CHECK(quintet_put(table, S("key"), S("1"), &options, &done, &error));
  EXPECT(done);
  CHECK(quintet_put(table, S("key"), S("2"), &options, &done, &error));
  EXPECT(!done);
  CHECK(quintet_compare_and_swap(table, S("key"), S("1"), S("3"), NULL, &done, NULL, NULL, &error));
  EXPECT(done);
  CHECK(quintet_compare_and_swap(table, S("key"), S("1"), S("4"), NULL, &done, &value, &found,
                                 &error));
  EXPECT(!done && found && equals(quintet_content(&value), "3"));
  CHECK(quintet_fetch_and_add(table, S("counter"), 5, NULL, &before, &error));
  CHECK(quintet_fetch_and_add(table, S("counter"), 5, NULL, &before, &error));
  EXPECT(before == 5);
  CHECK(quintet_update(table, S("text"), NULL, append, NULL, NULL, NULL, &error));
  CHECK(quintet_update(table, S("text"), NULL, append, NULL, &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "ab"));

  quintet_write_options hour = {.ttl_ms = 3600000};
  quintet_value_info info;
  CHECK(quintet_put(table, S("session"), S("x"), &hour, NULL, &error));
  CHECK(quintet_get_info(table, S("session"), &info, &found, &error));
  EXPECT(found && info.size == 1 && info.expires_at_ms > 0);

  quintet_iterator *entries = NULL;
  quintet_slice key;
  int number = 0;
  CHECK(quintet_scan(table, &entries, &error));
  for (;;) {
    CHECK(quintet_iterator_next(entries, &key, NULL, &found, &error));
    if (!found) break;
    number++;
  }
  EXPECT(number == 4);
  CHECK(quintet_iterator_free(entries, &error));
  CHECK(quintet_delete(table, S("key"), NULL, NULL, &error));
  CHECK(quintet_contains(table, S("key"), &found, &error));
  EXPECT(!found);
  CHECK(quintet_buffer_free(&value, &error));
}

int main(int count, char **arguments) {
  const char *engines[] = {"naive", "hashlog", "trie", "btree", "slm", "tph"};
  quintet_database *database = open_database(count, arguments);
  for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
    quintet_table *table = NULL;
    CHECK(quintet_create_table(database, S(engines[i]), S(engines[i]), NULL, &table, &error));
    use_table(table);
    CHECK(quintet_table_free(table, &error));
  }
  close_database(database);
  return 0;
}
