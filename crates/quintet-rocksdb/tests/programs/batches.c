/* Write batches: several families, save points, ranges, parts, the encoded form. */
#include "test.h"

typedef struct {
  char text[256];
} trace;

static void add(trace *t, const char *kind, const char *bytes, size_t size) {
  size_t used = strlen(t->text);
  snprintf(t->text + used, sizeof t->text - used, "%s%.*s ", kind, (int)size, bytes);
}

static void on_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
  add(state, "+", k, klen);
  add(state, "=", v, vlen);
}

static void on_delete(void *state, const char *k, size_t klen) { add(state, "-", k, klen); }

static void write_batch(test_db *t, rocksdb_writebatch_t *batch) {
  char *err = NULL;
  rocksdb_write(t->db, t->write, batch, &err);
  OK(err);
}

static void parts(test_db *t, family *cf) {
  const char *key[] = {"pa", "rt"}, *value[] = {"1", "2", "3"}, *end[] = {"pa", "rz"};
  const size_t two[] = {2, 2}, ones[] = {1, 1, 1};
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_putv(batch, 2, key, two, 3, value, ones);
  rocksdb_writebatch_putv_cf(batch, cf, 2, key, two, 3, value, ones);
  write_batch(t, batch);
  has(t, "part", "123");
  has_in(t, cf, "part", "123");
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_deletev(batch, 2, key, two);
  rocksdb_writebatch_delete_rangev_cf(batch, cf, 2, key, two, end, two);
  write_batch(t, batch);
  has(t, "part", NULL);
  has_in(t, cf, "part", NULL);
  put_in(t, cf, "part", "x");
  put(t, "part", "x");
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_delete_rangev(batch, 2, key, two, end, two);
  rocksdb_writebatch_deletev_cf(batch, cf, 2, key, two);
  write_batch(t, batch);
  has(t, "part", NULL);
  has_in(t, cf, "part", NULL);
  /* Merges need an operator. */
  char *err = NULL;
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_mergev(batch, 2, key, two, 3, value, ones);
  rocksdb_write(t->db, t->write, batch, &err);
  failed(&err, "merge_operator");
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_mergev_cf(batch, cf, 2, key, two, 3, value, ones);
  rocksdb_write(t->db, t->write, batch, &err);
  failed(&err, "merge_operator");
  rocksdb_writebatch_destroy(batch);
}

static void ranges(test_db *t, family *cf) {
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  for (char c = 'a'; c <= 'f'; c++) {
    rocksdb_writebatch_put(batch, &c, 1, "v", 1);
    rocksdb_writebatch_put_cf(batch, cf, &c, 1, "v", 1);
  }
  rocksdb_writebatch_delete_range(batch, "b", 1, "d", 1);
  rocksdb_writebatch_delete_range_cf(batch, cf, "a", 1, "f", 1);
  rocksdb_writebatch_put(batch, "c", 1, "again", 5);
  write_batch(t, batch);
  has(t, "a", "v");
  has(t, "b", NULL);
  has(t, "c", "again");
  has(t, "d", "v");
  has_in(t, cf, "e", NULL);
  has_in(t, cf, "f", "v");
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_delete(batch, "a", 1);
  rocksdb_writebatch_singledelete(batch, "d", 1);
  rocksdb_writebatch_delete_cf(batch, cf, "e", 1);
  rocksdb_writebatch_singledelete_cf(batch, cf, "f", 1);
  write_batch(t, batch);
  has(t, "a", NULL);
  has(t, "d", NULL);
  has_in(t, cf, "f", NULL);
  rocksdb_writebatch_destroy(batch);
}

void test_batches(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "other", &err);
  OK(err);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "a", 1, "1", 1);
  rocksdb_writebatch_set_save_point(batch);
  rocksdb_writebatch_put(batch, "b", 1, "2", 1);
  rocksdb_writebatch_set_save_point(batch);
  rocksdb_writebatch_delete(batch, "c", 1);
  rocksdb_writebatch_put_log_data(batch, "blob", 4);
  EXPECT(rocksdb_writebatch_count(batch) == 3);
  rocksdb_writebatch_pop_save_point(batch, &err);
  OK(err);
  trace seen = {""};
  rocksdb_writebatch_iterate(batch, &seen, on_put, on_delete);
  EXPECT(strcmp(seen.text, "+a =1 +b =2 -c ") == 0);
  rocksdb_writebatch_rollback_to_save_point(batch, &err);
  OK(err);
  EXPECT(rocksdb_writebatch_count(batch) == 1);
  rocksdb_writebatch_rollback_to_save_point(batch, &err);
  failed(&err, "NotFound");
  rocksdb_writebatch_pop_save_point(batch, &err);
  failed(&err, "NotFound");

  /* The encoded form makes an equal batch. */
  size_t size = 0;
  const char *bytes = rocksdb_writebatch_data(batch, &size);
  rocksdb_writebatch_t *copy = rocksdb_writebatch_create_from(bytes, size);
  rocksdb_writebatch_destroy(batch);
  write_batch(&t, copy);
  rocksdb_writebatch_destroy(copy);
  has(&t, "a", "1");
  copy = rocksdb_writebatch_create_from("\0\0\0\0\0\0\0\0\1\0\0\0\1\7short", 19);
  rocksdb_write(t.db, t.write, copy, &err);
  failed(&err, "Corruption: malformed write batch");
  rocksdb_writebatch_destroy(copy);

  parts(&t, cf);
  ranges(&t, cf);
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
}
