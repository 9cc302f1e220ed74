/* Iterators: both ways, seeks, a state that later writes do not change. */
#include "test.h"

#define COUNT 3000

static void fill(test_db *t) {
  char key[16], value[16];
  for (int i = 0; i < COUNT; i++) {
    snprintf(key, sizeof key, "k%05d", i * 2);
    snprintf(value, sizeof value, "v%d", i * 2);
    put(t, key, value);
  }
}

static void at_number(leveldb_iterator_t *it, int number) {
  char key[16], value[16];
  snprintf(key, sizeof key, "k%05d", number);
  snprintf(value, sizeof value, "v%d", number);
  at(it, key, value);
}

static void walks(test_db *t) {
  leveldb_iterator_t *it = leveldb_create_iterator(t->db, t->read);
  int count = 0;
  for (leveldb_iter_seek_to_first(it); leveldb_iter_valid(it); leveldb_iter_next(it)) {
    at_number(it, count++ * 2);
  }
  EXPECT(count == COUNT);
  for (leveldb_iter_seek_to_last(it); leveldb_iter_valid(it); leveldb_iter_prev(it)) {
    at_number(it, --count * 2);
  }
  EXPECT(count == 0);
  leveldb_iter_destroy(it);
}

static void turns(test_db *t) {
  leveldb_iterator_t *it = leveldb_create_iterator(t->db, t->read);
  unsigned state = 1;
  int position = 100;
  leveldb_iter_seek(it, "k00100", 6);
  for (int i = 0; i < 2000; i++) {
    at_number(it, position);
    state = state * 1103515245 + 12345;
    if ((state >> 16) % 2 && position > 0) {
      position -= 2;
      leveldb_iter_prev(it);
    } else {
      position += 2;
      leveldb_iter_next(it);
    }
  }
  /* Seeks between keys, below the first and above the last. */
  leveldb_iter_seek(it, "k00101", 6);
  at_number(it, 102);
  leveldb_iter_prev(it);
  at_number(it, 100);
  leveldb_iter_seek(it, "", 0);
  at_number(it, 0);
  leveldb_iter_prev(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_next(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_seek(it, "l", 1);
  EXPECT(!leveldb_iter_valid(it));
  size_t size = 7;
  EXPECT(leveldb_iter_key(it, &size) == NULL && size == 0);
  EXPECT(leveldb_iter_value(it, &size) == NULL);
  char *err = NULL;
  leveldb_iter_get_error(it, &err);
  OK(err);
  leveldb_iter_destroy(it);
}

static void shows_one_moment(test_db *t) {
  leveldb_iterator_t *it = leveldb_create_iterator(t->db, t->read);
  put(t, "k00000", "new");
  put(t, "k00001", "new");
  delete_key(t, "k00002");
  leveldb_iter_seek_to_first(it);
  at_number(it, 0);
  leveldb_iter_next(it);
  at_number(it, 2);
  delete_key(t, "k00004");
  leveldb_iter_next(it);
  at_number(it, 4);
  leveldb_iter_prev(it);
  at_number(it, 2);
  leveldb_iter_destroy(it);
  it = leveldb_create_iterator(t->db, t->read);
  leveldb_iter_seek_to_first(it);
  at(it, "k00000", "new");
  leveldb_iter_next(it);
  at(it, "k00001", "new");
  leveldb_iter_next(it);
  at_number(it, 6);
  leveldb_iter_destroy(it);
}

void test_iterators(const char *directory) {
  test_db t = open_new(directory);
  leveldb_iterator_t *it = leveldb_create_iterator(t.db, t.read);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_seek_to_first(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_seek_to_last(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_destroy(it);
  fill(&t);
  walks(&t);
  turns(&t);
  leveldb_compact_range(t.db, NULL, 0, NULL, 0);
  walks(&t);
  shows_one_moment(&t);

  /* An iterator that outlives its database fails. */
  it = leveldb_create_iterator(t.db, t.read);
  leveldb_iter_seek_to_first(it);
  EXPECT(leveldb_iter_valid(it));
  close_db(&t);
  leveldb_iter_seek_to_first(it);
  EXPECT(!leveldb_iter_valid(it));
  char *err = NULL;
  leveldb_iter_get_error(it, &err);
  failed(&err, "IO error");
  leveldb_iter_destroy(it);
}
