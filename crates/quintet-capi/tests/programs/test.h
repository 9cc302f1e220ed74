/* The tests of the C interface. `tests.def` lists them; each gets a directory of its own. */
#ifndef TEST_H
#define TEST_H

#include "example.h"

/* Expects the code of a call whose last argument is null. */
#define FAILS(expected, call)                                                     \
  do {                                                                            \
    quintet_code code = (call);                                                   \
    if (code != (expected)) {                                                     \
      fprintf(stderr, "%s:%d: %s returned %s, not %s\n", __FILE__, __LINE__,      \
              #call, quintet_code_name(code), quintet_code_name(expected));       \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

/* Returns options with a memory budget of 32 MiB, as those of `open_small`. */
static inline quintet_options *small_options(void) {
  quintet_options *options = NULL;
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("memory_budget"), S("33554432"), &error));
  return options;
}

static inline quintet_table *create_table(quintet_database *database, const char *name,
                                          const char *engine) {
  quintet_table *table = NULL;
  CHECK(quintet_create_table(database, S(name), S(engine), NULL, &table, &error));
  return table;
}

static inline void put(quintet_table *table, const char *key, const char *value) {
  CHECK(quintet_put(table, S(key), S(value), NULL, NULL, &error));
}

/* Expects a value of a key; null: an absent key. */
#define expect_value(table, key, value) expect_value_at(table, key, value, __FILE__, __LINE__)

static inline void expect_value_at(quintet_table *table, const char *key, const char *value,
                                   const char *file, int line) {
  quintet_buffer buffer = {0};
  bool found = false;
  CHECK(quintet_get(table, S(key), &buffer, &found, &error));
  if (found != (value != NULL) || !equals(quintet_content(&buffer), value ? value : "")) {
    fprintf(stderr, "%s:%d: %s has another value\n", file, line, key);
    exit(1);
  }
  CHECK(quintet_buffer_free(&buffer, &error));
}

/* Expects the keys of an iterator, each followed by a blank. Frees the iterator. */
static inline void expect_entries(quintet_iterator *entries, const char *expected) {
  char keys[256] = {0};
  for (;;) {
    quintet_slice key;
    bool found = false;
    CHECK(quintet_iterator_next(entries, &key, NULL, &found, &error));
    if (!found) break;
    strncat(keys, (const char *)key.data, key.size);
    strcat(keys, " ");
  }
  if (strcmp(keys, expected) != 0) {
    fprintf(stderr, "expected %s, found %s\n", expected, keys);
    exit(1);
  }
  CHECK(quintet_iterator_free(entries, &error));
}

static inline void expect_range(quintet_table *table, const quintet_range *range,
                                const char *expected) {
  quintet_iterator *entries = NULL;
  CHECK(quintet_iterate(table, range, &entries, &error));
  expect_entries(entries, expected);
}

static inline bool contains(const quintet_buffer *buffer, const char *text) {
  size_t size = strlen(text);
  for (size_t i = 0; i + size <= buffer->size; i++) {
    if (memcmp(buffer->data + i, text, size) == 0) return true;
  }
  return false;
}

/* Returns the decimal number of a value. */
static inline long long number(quintet_slice value) {
  char text[32] = {0};
  EXPECT(value.size < sizeof text);
  memcpy(text, value.data, value.size);
  return atoll(text);
}

#define TEST(name) void test_##name(const char *directory);
#include "tests.def"
#undef TEST

#endif
