/* Keys and values of all bytes: the empty key, zeros, and the limits. */
#include "test.h"

static void put_bytes(test_db *t, const char *key, size_t size) {
  char *err = NULL;
  leveldb_put(t->db, t->write, key, size, (const char *)&size, sizeof size, &err);
  OK(err);
}

void test_keys(const char *directory) {
  static const char keys[] = {0, 0, 0, 1, 0, 0};
  char *err = NULL;
  test_db t = open_new(directory);
  /* In order: "", 0, 00, 000, 0001, 01, 1. */
  const struct {
    const char *bytes;
    size_t size;
  } sorted[] = {{"", 0}, {keys, 1}, {keys, 2}, {keys, 3}, {keys, 4}, {keys + 2, 2}, {keys + 3, 1}};
  const int count = sizeof sorted / sizeof *sorted;
  for (int i = count - 1; i >= 0; i--) put_bytes(&t, sorted[i].bytes, sorted[i].size);
  for (int i = 0; i < count; i++) {
    size_t size = 0;
    char *value = leveldb_get(t.db, t.read, sorted[i].bytes, sorted[i].size, &size, &err);
    OK(err);
    EXPECT(size == sizeof size && memcmp(value, &sorted[i].size, size) == 0);
    leveldb_free(value);
  }
  leveldb_iterator_t *it = leveldb_create_iterator(t.db, t.read);
  leveldb_iter_seek(it, "", 0);
  for (int i = 0; i < count; i++) {
    size_t size = 99;
    const char *key = leveldb_iter_key(it, &size);
    EXPECT(size == sorted[i].size && memcmp(key, sorted[i].bytes, size) == 0);
    leveldb_iter_next(it);
  }
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_destroy(it);
  leveldb_delete(t.db, t.write, "", 0, &err);
  OK(err);
  has(&t, "", NULL);

  /* A value without bytes is no absent value. */
  put(&t, "empty", "");
  has(&t, "empty", "");

  /* The limits of a key are a failure, with its message. */
  char *large = malloc(70000);
  memset(large, 'x', 70000);
  leveldb_put(t.db, t.write, large, 65535, "v", 1, &err);
  OK(err);
  leveldb_put(t.db, t.write, large, 65536, "v", 1, &err);
  failed(&err, "Invalid argument: a key has 65536 bytes");
  size_t size = 0;
  EXPECT(leveldb_get(t.db, t.read, large, 65536, &size, &err) == NULL);
  failed(&err, "Invalid argument");
  /* The message that was there is released. */
  leveldb_put(t.db, t.write, large, 65536, "v", 1, &err);
  leveldb_delete(t.db, t.write, large, 65537, &err);
  failed(&err, "65537");
  free(large);
  close_db(&t);
}
