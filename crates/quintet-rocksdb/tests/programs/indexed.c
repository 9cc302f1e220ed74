/* Batches with an index: reads and iterators over a database, and the parts of all kinds. */
#include "test.h"

static rocksdb_writebatch_wi_t *batch;

static void in_batch(test_db *t, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 9;
  char *value =
      rocksdb_writebatch_wi_get_from_batch(batch, t->options, key, strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

static void over_db(test_db *t, const char *key, const char *expected) {
  char *err = NULL;
  size_t size = 9;
  char *value = rocksdb_writebatch_wi_get_from_batch_and_db(batch, t->db, t->read, key,
                                                            strlen(key), &size, &err);
  OK(err);
  expect_value(value, size, expected);
}

/* Fails unless an iterator shows the keys, forwards and backwards. Frees it. */
static void shows(rocksdb_iterator_t *it, const char *expected) {
  char seen[512] = "";
  char *err = NULL;
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
    size_t size = 0;
    const char *key = rocksdb_iter_key(it, &size);
    strncat(seen, key, size);
    strcat(seen, " ");
  }
  strcat(seen, "|");
  for (rocksdb_iter_seek_to_last(it); rocksdb_iter_valid(it); rocksdb_iter_prev(it)) {
    size_t size = 0;
    const char *key = rocksdb_iter_key(it, &size);
    strcat(seen, " ");
    strncat(seen, key, size);
  }
  rocksdb_iter_get_error(it, &err);
  OK(err);
  if (strcmp(seen, expected) != 0) fprintf(stderr, "%s\n", seen);
  EXPECT(strcmp(seen, expected) == 0);
  rocksdb_iter_destroy(it);
}

static rocksdb_iterator_t *over(test_db *t) {
  return rocksdb_writebatch_wi_create_iterator_with_base(batch,
                                                         rocksdb_create_iterator(t->db, t->read));
}

static void reads(test_db *t) {
  char *err = NULL;
  put(t, "a", "db");
  put(t, "c", "db");
  put(t, "e", "db");
  batch = rocksdb_writebatch_wi_create(0, 1);
  in_batch(t, "a", NULL);
  over_db(t, "a", "db");
  rocksdb_writebatch_wi_put(batch, "b", 1, "batch", 5);
  rocksdb_writebatch_wi_put(batch, "c", 1, "batch", 5);
  rocksdb_writebatch_wi_delete(batch, "e", 1);
  rocksdb_writebatch_wi_put(batch, "g", 1, "batch", 5);
  in_batch(t, "c", "batch");
  in_batch(t, "e", NULL);
  over_db(t, "c", "batch");
  over_db(t, "e", NULL);
  over_db(t, "a", "db");
  shows(over(t), "a b c g | g c b a");
  rocksdb_iterator_t *it = over(t);
  rocksdb_writebatch_wi_put(batch, "bb", 2, "later", 5);
  rocksdb_iter_seek(it, "b", 1);
  at(it, "b", "batch");
  rocksdb_iter_next(it);
  at(it, "c", "batch");
  rocksdb_iter_prev(it);
  at(it, "b", "batch");
  rocksdb_iter_seek_for_prev(it, "f", 1);
  at(it, "c", "batch");
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, "c", 1);
  shows(over(t), "a b bb | bb b a");
  rocksdb_readoptions_set_iterate_upper_bound(t->read, NULL, 0);

  rocksdb_writebatch_wi_set_save_point(batch);
  rocksdb_writebatch_wi_delete_range(batch, "a", 1, "c", 1);
  over_db(t, "a", NULL);
  over_db(t, "bb", NULL);
  rocksdb_writebatch_wi_put(batch, "aa", 2, "new", 3);
  shows(over(t), "aa c g | g c aa");
  rocksdb_writebatch_wi_rollback_to_save_point(batch, &err);
  OK(err);
  over_db(t, "a", "db");
  in_batch(t, "aa", NULL);
  rocksdb_writebatch_wi_rollback_to_save_point(batch, &err);
  failed(&err, "NotFound");
  EXPECT(rocksdb_writebatch_wi_count(batch) == 5);
  rocksdb_write_writebatch_wi(t->db, t->write, batch, &err);
  OK(err);
  has(t, "c", "batch");
  has(t, "e", NULL);
  rocksdb_writebatch_wi_clear(batch);
  EXPECT(rocksdb_writebatch_wi_count(batch) == 0);
  in_batch(t, "c", NULL);
  rocksdb_writebatch_wi_destroy(batch);
}

static void merges(test_db *t, family *cf) {
  char *err = NULL;
  const uint64_t one = 1;
  size_t size = 0;
  batch = rocksdb_writebatch_wi_create(0, 0);
  rocksdb_writebatch_wi_merge(batch, "sum", 3, (const char *)&one, 8);
  rocksdb_writebatch_wi_merge_cf(batch, cf, "sum", 3, (const char *)&one, 8);
  rocksdb_writebatch_wi_merge_cf(batch, cf, "sum", 3, (const char *)&one, 8);
  EXPECT(rocksdb_writebatch_wi_get_from_batch(batch, t->options, "sum", 3, &size, &err) == NULL);
  failed(&err, "Merge in progress");
  rocksdb_put(t->db, t->write, "sum", 3, (const char *)&one, 8, &err);
  OK(err);
  char *value =
      rocksdb_writebatch_wi_get_from_batch_and_db(batch, t->db, t->read, "sum", 3, &size, &err);
  OK(err);
  EXPECT(size == 8 && value[0] == 2);
  rocksdb_free(value);
  value = rocksdb_writebatch_wi_get_from_batch_and_db_cf(batch, t->db, t->read, cf, "sum", 3, &size,
                                                         &err);
  OK(err);
  EXPECT(size == 8 && value[0] == 2);
  rocksdb_free(value);
  rocksdb_iterator_t *it = rocksdb_writebatch_wi_create_iterator_with_base_cf(
      batch, rocksdb_create_iterator_cf(t->db, t->read, cf), cf);
  rocksdb_iter_seek_to_first(it);
  EXPECT(rocksdb_iter_valid(it) && rocksdb_iter_value(it, &size)[0] == 2);
  rocksdb_iter_destroy(it);
  rocksdb_writebatch_wi_merge(batch, "a", 1, "x", 1);
  EXPECT(rocksdb_writebatch_wi_get_from_batch_and_db(batch, t->db, t->read, "a", 1, &size, &err) ==
         NULL);
  failed(&err, "8 bytes");
  it = over(t);
  rocksdb_iter_seek(it, "a", 1);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_get_error(it, &err);
  failed(&err, "8 bytes");
  rocksdb_iter_destroy(it);
  rocksdb_writebatch_wi_destroy(batch);
}

enum { KEYS = 1000 };

/* The number of each key that exists: 0 for none, 1 for one of the database, 2 of the batch. */
static char model[KEYS];
static uint32_t seed = 7;

static uint32_t chance(uint32_t count) {
  seed = seed * 1664525 + 1013904223;
  return (seed >> 8) % count;
}

static void name_of(char *key, uint32_t number) { snprintf(key, 16, "m%06u", number); }

/* Fails unless the iterator is at the key of the model from `number` on, in a direction. */
static void is_at(rocksdb_iterator_t *it, int number, int step) {
  while (number >= 0 && number < KEYS && model[number] == 0) number += step;
  EXPECT(rocksdb_iter_valid(it) == (number >= 0 && number < KEYS));
  if (number < 0 || number >= KEYS) return;
  char key[16];
  name_of(key, (uint32_t)number);
  at(it, key, model[number] == 1 ? "db" : "batch");
}

static void change_at_random(void) {
  for (int i = 0; i < 150; i++) {
    uint32_t number = chance(KEYS), end = number + chance(20);
    char key[16], limit[16];
    name_of(key, number);
    name_of(limit, end);
    switch (chance(4)) {
      case 0:
        rocksdb_writebatch_wi_delete(batch, key, 7);
        model[number] = 0;
        break;
      case 1:
        rocksdb_writebatch_wi_delete_range(batch, key, 7, limit, 7);
        for (uint32_t k = number; k < end && k < KEYS; k++) model[k] = 0;
        break;
      default:
        rocksdb_writebatch_wi_put(batch, key, 7, "batch", 5);
        model[number] = 2;
    }
  }
}

/* A batch over many entries, which are read in pages, against a model. */
static void pages(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  char key[16];
  for (uint32_t i = 0; i < KEYS; i++) {
    model[i] = chance(3) != 0;
    name_of(key, i);
    if (model[i]) put(&t, key, "db");
  }
  batch = rocksdb_writebatch_wi_create(0, 1);
  for (int round = 0; round < 4; round++) {
    change_at_random();
    rocksdb_iterator_t *it = over(&t);
    int steps = 0;
    for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) steps++;
    for (int i = 0; i < KEYS; i++) steps -= model[i] != 0;
    EXPECT(steps == 0);
    for (int i = 0; i < 40; i++) {
      int number = (int)chance(KEYS);
      name_of(key, (uint32_t)number);
      rocksdb_iter_seek(it, key, 7);
      is_at(it, number, 1);
      rocksdb_iter_seek_for_prev(it, key, 7);
      is_at(it, number, -1);
      for (int k = 0; k < 100 && rocksdb_iter_valid(it); k++) {
        size_t size = 0;
        const char *bytes = rocksdb_iter_key(it, &size);
        EXPECT(size == 7);
        memcpy(key, bytes, size);
        key[size] = 0;
        int here = atoi(key + 1);
        int step = k < 80 ? -1 : 1;
        if (step < 0) rocksdb_iter_prev(it);
        if (step > 0) rocksdb_iter_next(it);
        is_at(it, here + step, step);
      }
    }
    rocksdb_iter_destroy(it);
  }
  rocksdb_write_writebatch_wi(t.db, t.write, batch, &err);
  OK(err);
  rocksdb_writebatch_wi_destroy(batch);
  rocksdb_iterator_t *it = rocksdb_create_iterator(t.db, t.read);
  rocksdb_iter_seek_to_first(it);
  for (int i = 0; i < KEYS; i++) {
    if (model[i] == 0) continue;
    is_at(it, i, 1);
    rocksdb_iter_next(it);
  }
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  close_db(&t);
}

static int puts_seen, deletes_seen;

static void on_put(void *state, const char *key, size_t key_size, const char *value, size_t size) {
  EXPECT(state == NULL && is("kk", key, key_size) && is("vv", value, size));
  puts_seen++;
}

static void on_delete(void *state, const char *key, size_t size) {
  EXPECT(state == NULL && is("kk", key, size));
  deletes_seen++;
}

static void parts(test_db *t, family *cf) {
  char *err = NULL;
  const char *k[] = {"k", "k"}, *v[] = {"v", "v"};
  const size_t sizes[] = {1, 1};
  size_t size = 0;
  batch = rocksdb_writebatch_wi_create(100, 1);
  rocksdb_writebatch_wi_putv(batch, 2, k, sizes, 2, v, sizes);
  rocksdb_writebatch_wi_putv_cf(batch, cf, 2, k, sizes, 2, v, sizes);
  char *value = rocksdb_writebatch_wi_get_from_batch_cf(batch, t->options, cf, "kk", 2, &size, &err);
  OK(err);
  expect_value(value, size, "vv");
  rocksdb_writebatch_wi_deletev(batch, 2, k, sizes);
  rocksdb_writebatch_wi_deletev_cf(batch, cf, 2, k, sizes);
  rocksdb_writebatch_wi_iterate(batch, NULL, on_put, on_delete);
  EXPECT(puts_seen == 1 && deletes_seen == 1);
  rocksdb_writebatch_wi_mergev(batch, 2, k, sizes, 2, v, sizes);
  rocksdb_writebatch_wi_mergev_cf(batch, cf, 2, k, sizes, 2, v, sizes);
  rocksdb_writebatch_wi_put_cf(batch, cf, "p", 1, "1", 1);
  rocksdb_writebatch_wi_delete_cf(batch, cf, "p", 1);
  rocksdb_writebatch_wi_singledelete(batch, "p", 1);
  rocksdb_writebatch_wi_singledelete_cf(batch, cf, "p", 1);
  rocksdb_writebatch_wi_delete_range_cf(batch, cf, "a", 1, "b", 1);
  rocksdb_writebatch_wi_delete_rangev(batch, 1, k, sizes, v, sizes);
  rocksdb_writebatch_wi_delete_rangev_cf(batch, cf, 1, k, sizes, v, sizes);
  rocksdb_writebatch_wi_put_log_data(batch, "log", 3);
  EXPECT(rocksdb_writebatch_wi_count(batch) == 13);
  const char *bytes = rocksdb_writebatch_wi_data(batch, &size);
  rocksdb_writebatch_wi_t *copy = rocksdb_writebatch_wi_create_from(bytes, size);
  EXPECT(rocksdb_writebatch_wi_count(copy) == 13);
  rocksdb_writebatch_wi_destroy(copy);
  copy = rocksdb_writebatch_wi_create_from("nonsense", 8);
  rocksdb_write_writebatch_wi(t->db, t->write, copy, &err);
  failed(&err, "malformed");
  rocksdb_writebatch_wi_destroy(copy);
  rocksdb_writebatch_wi_destroy(batch);
  /* A count that is not that of the records. */
  batch = rocksdb_writebatch_wi_create_from("\0\0\0\0\0\0\0\0\2\0\0\0\0\1k", 15);
  rocksdb_write_writebatch_wi(t->db, t->write, batch, &err);
  failed(&err, "wrong count");
  rocksdb_writebatch_wi_destroy(batch);
}

static void nulls(test_db *t) {
  char *err = NULL;
  size_t size = 9;
  batch = NULL;
  EXPECT(rocksdb_writebatch_wi_count(NULL) == 0);
  EXPECT(rocksdb_writebatch_wi_data(NULL, &size) == NULL && size == 0);
  rocksdb_writebatch_wi_put(NULL, "k", 1, "v", 1);
  EXPECT(rocksdb_writebatch_wi_get_from_batch(NULL, NULL, "k", 1, &size, &err) == NULL);
  failed(&err, "the batch is null");
  rocksdb_write_writebatch_wi(t->db, t->write, NULL, &err);
  failed(&err, "the batch is null");
  rocksdb_iterator_t *it = over(t);
  rocksdb_iter_seek_to_first(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_get_error(it, &err);
  failed(&err, "the batch is null");
  rocksdb_iter_destroy(it);
  rocksdb_writebatch_wi_destroy(NULL);
}

void test_indexed(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_options_set_uint64add_merge_operator(t.options);
  open_db(&t, directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "cf", &err);
  OK(err);
  reads(&t);
  merges(&t, cf);
  parts(&t, cf);
  nulls(&t);
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
  pages(directory);
}
