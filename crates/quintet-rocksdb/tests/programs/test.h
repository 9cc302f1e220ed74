/* What the tests share. */
#ifndef TEST_H
#define TEST_H

#include <pthread.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                 \
    }                                                                          \
  } while (0)

/* Fails if a function stored a message. */
#define OK(err)                                                  \
  do {                                                           \
    if ((err) != NULL) {                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (err)); \
      abort();                                                   \
    }                                                            \
  } while (0)

/* A database with its options. */
typedef struct {
  rocksdb_t *db;
  rocksdb_options_t *options;
  rocksdb_readoptions_t *read;
  rocksdb_writeoptions_t *write;
} test_db;

typedef rocksdb_column_family_handle_t family;

/* Fails unless there is a message that contains `text`, and releases it. */
static inline void failed(char **err, const char *text) {
  if (*err == NULL || strstr(*err, text) == NULL) {
    fprintf(stderr, "expected %s, got %s\n", text, *err ? *err : "no failure");
    abort();
  }
  rocksdb_free(*err);
  *err = NULL;
}

static inline bool is(const char *text, const char *bytes, size_t size) {
  return bytes != NULL && size == strlen(text) && memcmp(text, bytes, size) == 0;
}

/* Makes options for a new database, and removes an old one. */
static inline test_db new_options(const char *directory) {
  char *err = NULL;
  test_db t = {NULL, rocksdb_options_create(), rocksdb_readoptions_create(),
               rocksdb_writeoptions_create()};
  rocksdb_options_set_create_if_missing(t.options, 1);
  rocksdb_options_set_create_missing_column_families(t.options, 1);
  rocksdb_destroy_db(t.options, directory, &err);
  OK(err);
  return t;
}

static inline void open_db(test_db *t, const char *directory) {
  char *err = NULL;
  t->db = rocksdb_open(t->options, directory, &err);
  OK(err);
}

static inline test_db open_new(const char *directory) {
  test_db t = new_options(directory);
  open_db(&t, directory);
  return t;
}

static inline void free_options(test_db *t) {
  rocksdb_options_destroy(t->options);
  rocksdb_readoptions_destroy(t->read);
  rocksdb_writeoptions_destroy(t->write);
}

static inline void close_db(test_db *t) {
  rocksdb_close(t->db);
  free_options(t);
}

static inline void put(test_db *t, const char *key, const char *value) {
  char *err = NULL;
  rocksdb_put(t->db, t->write, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static inline void put_in(test_db *t, family *cf, const char *key, const char *value) {
  char *err = NULL;
  rocksdb_put_cf(t->db, t->write, cf, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

/* Fails unless the value is the expected one. Null: unless there is none. Releases it. */
static inline void expect_value(char *value, size_t size, const char *expected) {
  if (expected == NULL) {
    EXPECT(value == NULL && size == 0);
  } else {
    EXPECT(is(expected, value, size));
  }
  rocksdb_free(value);
}

static inline void has(test_db *t, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 99;
  char *value = rocksdb_get(t->db, t->read, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

static inline void has_in(test_db *t, family *cf, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 99;
  char *value = rocksdb_get_cf(t->db, t->read, cf, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

/* Fails unless the iterator is at the entry. */
static inline void at(rocksdb_iterator_t *it, const char *key, const char *value) {
  size_t size = 0;
  EXPECT(rocksdb_iter_valid(it));
  const char *bytes = rocksdb_iter_key(it, &size);
  EXPECT(is(key, bytes, size));
  bytes = rocksdb_iter_value(it, &size);
  EXPECT(is(value, bytes, size));
}

void test_batches(const char *directory);
void test_families(const char *directory);
void test_gets(const char *directory);
void test_iterators(const char *directory);
void test_management(const char *directory);
void test_merges(const char *directory);
void test_nulls(const char *directory);
void test_numbers(const char *directory);
void test_objects(const char *directory);
void test_threads(const char *directory);
void test_optimistic(const char *directory);
void test_transactions(const char *directory);

#endif
