/* Opens a database with options, stores a value and reads it again. */
#include "example.h"

int main(int count, char **arguments) {
  EXPECT(count == 2);
  quintet_options *options = NULL;
  quintet_database *database = NULL;
  quintet_table *users = NULL;
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("memory_budget"), S("33554432"), &error));
  CHECK(quintet_options_set(options, S("durability"), S("sync"), &error));
  CHECK(quintet_open(S(arguments[1]), options, &database, &error));
  CHECK(quintet_options_free(options, &error));
  CHECK(quintet_open_or_create_table(database, S("app/users"), S("btree"), NULL, &users, &error));

  quintet_buffer value = {0};
  bool found = false;
  CHECK(quintet_put(users, S("alice"), S("Alice"), NULL, NULL, &error));
  CHECK(quintet_get(users, S("alice"), &value, &found, &error));
  EXPECT(found && equals(quintet_content(&value), "Alice"));
  CHECK(quintet_get(users, S("bob"), &value, &found, &error));
  EXPECT(!found && value.size == 0);

  uint8_t memory[2];
  size_t size = 0;
  EXPECT(quintet_get_into(users, S("alice"), memory, sizeof memory, &size, &found, NULL) ==
         QUINTET_BUFFER_TOO_SMALL);
  EXPECT(found && size == 5);

  bool sound = false;
  uint64_t keys = 0;
  CHECK(quintet_check(database, true, &sound, NULL, &error));
  CHECK(quintet_count(users, &keys, &error));
  EXPECT(sound && keys == 1);
  CHECK(quintet_stats_json(database, &value, &error));
  printf("%.*s\n", (int)value.size, (const char *)value.data);

  CHECK(quintet_buffer_free(&value, &error));
  CHECK(quintet_table_free(users, &error));
  close_database(database);
  return 0;
}
