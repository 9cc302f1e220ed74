/* What the tests share. */
#ifndef TEST_H
#define TEST_H

#include <leveldb/c.h>
#include <pthread.h>
#include <stdbool.h>
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
#define OK(err)                                                           \
  do {                                                                    \
    if ((err) != NULL) {                                                  \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (err));          \
      abort();                                                            \
    }                                                                     \
  } while (0)

/* A database with its options. */
typedef struct {
  leveldb_t *db;
  leveldb_options_t *options;
  leveldb_readoptions_t *read;
  leveldb_writeoptions_t *write;
} test_db;

/* Fails unless there is a message that contains `text`, and releases it. */
static inline void failed(char **err, const char *text) {
  if (*err == NULL || strstr(*err, text) == NULL) {
    fprintf(stderr, "expected %s, got %s\n", text, *err ? *err : "no failure");
    abort();
  }
  leveldb_free(*err);
  *err = NULL;
}

static inline bool is(const char *text, const char *bytes, size_t size) {
  return bytes != NULL && size == strlen(text) && memcmp(text, bytes, size) == 0;
}

static inline test_db open_new(const char *directory) {
  char *err = NULL;
  test_db t = {NULL, leveldb_options_create(), leveldb_readoptions_create(),
               leveldb_writeoptions_create()};
  leveldb_options_set_create_if_missing(t.options, 1);
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  return t;
}

static inline void free_options(test_db *t) {
  leveldb_options_destroy(t->options);
  leveldb_readoptions_destroy(t->read);
  leveldb_writeoptions_destroy(t->write);
}

static inline void close_db(test_db *t) {
  leveldb_close(t->db);
  free_options(t);
}

static inline void put(test_db *t, const char *key, const char *value) {
  char *err = NULL;
  leveldb_put(t->db, t->write, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static inline void delete_key(test_db *t, const char *key) {
  char *err = NULL;
  leveldb_delete(t->db, t->write, key, strlen(key), &err);
  OK(err);
}

/* Fails unless the key has the value. Null: unless it has none. */
static inline void has(test_db *t, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 99;
  char *value = leveldb_get(t->db, t->read, key, strlen(key), &size, &err);
  OK(err);
  if (expected == NULL) {
    EXPECT(value == NULL && size == 0);
  } else {
    EXPECT(is(expected, value, size));
  }
  leveldb_free(value);
}

/* Fails unless the iterator is at the entry. */
static inline void at(leveldb_iterator_t *it, const char *key, const char *value) {
  size_t size = 0;
  EXPECT(leveldb_iter_valid(it));
  const char *bytes = leveldb_iter_key(it, &size);
  EXPECT(is(key, bytes, size));
  bytes = leveldb_iter_value(it, &size);
  EXPECT(is(value, bytes, size));
}

void test_batches(const char *directory);
void test_callbacks(const char *directory);
void test_iterators(const char *directory);
void test_keys(const char *directory);
void test_management(const char *directory);
void test_nulls(const char *directory);
void test_objects(const char *directory);
void test_properties(const char *directory);
void test_scenario(const char *directory);
void test_snapshots(const char *directory);
void test_threads(const char *directory);

#endif
