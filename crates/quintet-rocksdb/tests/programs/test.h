/* What the tests share. */
#ifndef TEST_H
#define TEST_H

#include <rocksdb/c.h>

#define API(name) rocksdb_##name
#define PREPARE_OPTIONS(options) rocksdb_options_set_create_missing_column_families(options, 1)
#include "store.h"

/* Sets an option, which its getter returns then. */
#define BOTH(object, set, get, value) \
  do {                                \
    set(object, value);               \
    EXPECT(get(object) == (value));   \
  } while (0)

typedef rocksdb_column_family_handle_t family;

static inline void put_in(test_db *t, family *cf, const char *key, const char *value) {
  char *err = NULL;
  rocksdb_put_cf(t->db, t->write, cf, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static inline void has_in(test_db *t, family *cf, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 99;
  char *value = rocksdb_get_cf(t->db, t->read, cf, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

#define TEST(name) void test_##name(const char *directory);
#include "tests.def"
#undef TEST

#endif
