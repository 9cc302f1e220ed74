/* What the tests of the libraries with the interfaces of LevelDB and RocksDB share. Both name their
 * functions alike: API(put) is `leveldb_put` or `rocksdb_put`. */
#ifndef STORE_H
#define STORE_H

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
#define OK(err)                                                  \
  do {                                                           \
    if ((err) != NULL) {                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (err)); \
      abort();                                                   \
    }                                                            \
  } while (0)

/* Sets more options of a new database. A library may define it before. */
#ifndef PREPARE_OPTIONS
#define PREPARE_OPTIONS(options) ((void)(options))
#endif

/* A database with its options. */
typedef struct {
  API(t) *db;
  API(options_t) *options;
  API(readoptions_t) *read;
  API(writeoptions_t) *write;
} test_db;

/* Fails unless there is a message that contains `text`, and releases it. */
static inline void failed(char **err, const char *text) {
  if (*err == NULL || strstr(*err, text) == NULL) {
    fprintf(stderr, "expected %s, got %s\n", text, *err ? *err : "no failure");
    abort();
  }
  API(free)(*err);
  *err = NULL;
}

static inline bool is(const char *text, const char *bytes, size_t size) {
  return bytes != NULL && size == strlen(text) && memcmp(text, bytes, size) == 0;
}

/* Makes options for a new database, and removes an old one. */
static inline test_db new_options(const char *directory) {
  char *err = NULL;
  test_db t = {NULL, API(options_create)(), API(readoptions_create)(), API(writeoptions_create)()};
  API(options_set_create_if_missing)(t.options, 1);
  PREPARE_OPTIONS(t.options);
  API(destroy_db)(t.options, directory, &err);
  OK(err);
  return t;
}

static inline void open_db(test_db *t, const char *directory) {
  char *err = NULL;
  t->db = API(open)(t->options, directory, &err);
  OK(err);
}

static inline test_db open_new(const char *directory) {
  test_db t = new_options(directory);
  open_db(&t, directory);
  return t;
}

static inline void free_options(test_db *t) {
  API(options_destroy)(t->options);
  API(readoptions_destroy)(t->read);
  API(writeoptions_destroy)(t->write);
}

static inline void close_db(test_db *t) {
  API(close)(t->db);
  free_options(t);
}

static inline void put(test_db *t, const char *key, const char *value) {
  char *err = NULL;
  API(put)(t->db, t->write, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static inline void delete_key(test_db *t, const char *key) {
  char *err = NULL;
  API(delete)(t->db, t->write, key, strlen(key), &err);
  OK(err);
}

/* Fails unless the value is the expected one. Null: unless there is none. Releases it. */
static inline void expect_value(char *value, size_t size, const char *expected) {
  if (expected == NULL) {
    EXPECT(value == NULL && size == 0);
  } else {
    EXPECT(is(expected, value, size));
  }
  API(free)(value);
}

static inline void has(test_db *t, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 99;
  char *value = API(get)(t->db, t->read, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

/* Fails unless the iterator is at the entry. */
static inline void at(API(iterator_t) *it, const char *key, const char *value) {
  size_t size = 0;
  EXPECT(API(iter_valid)(it));
  const char *bytes = API(iter_key)(it, &size);
  EXPECT(is(key, bytes, size));
  bytes = API(iter_value)(it, &size);
  EXPECT(is(value, bytes, size));
}

#endif
