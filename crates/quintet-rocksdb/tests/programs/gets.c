/* Gets: pinned, several at a time, of a snapshot. */
#include "test.h"

static void several(test_db *t, family *cf) {
  const char *keys[] = {"a", "none", "b"};
  const size_t sizes[] = {1, 4, 1};
  const family *families[] = {cf, cf, cf};
  char *values[3], *errors[3];
  size_t value_sizes[3];
  rocksdb_multi_get(t->db, t->read, 3, keys, sizes, values, value_sizes, errors);
  for (int i = 0; i < 3; i++) {
    OK(errors[i]);
    expect_value(values[i], value_sizes[i], i == 1 ? NULL : keys[i]);
  }
  rocksdb_multi_get_cf(t->db, t->read, families, 3, keys, sizes, values, value_sizes, errors);
  for (int i = 0; i < 3; i++) {
    OK(errors[i]);
    expect_value(values[i], value_sizes[i], i == 0 ? "in" : NULL);
  }
  rocksdb_pinnableslice_t *pinned[3];
  rocksdb_batched_multi_get_cf(t->db, t->read, cf, 3, keys, sizes, pinned, errors, false);
  EXPECT(pinned[0] != NULL && pinned[1] == NULL && pinned[2] == NULL);
  const char *value = rocksdb_pinnableslice_value(pinned[0], value_sizes);
  EXPECT(is("in", value, value_sizes[0]));
  rocksdb_pinnableslice_destroy(pinned[0]);
}

void test_gets(const char *directory) {
  char *err = NULL;
  size_t size = 0;
  test_db t = open_new(directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "other", &err);
  OK(err);
  put(&t, "a", "a");
  put(&t, "b", "b");
  put_in(&t, cf, "a", "in");
  several(&t, cf);

  rocksdb_pinnableslice_t *pinned = rocksdb_get_pinned(t.db, t.read, "a", 1, &err);
  OK(err);
  put(&t, "a", "new");
  const char *value = rocksdb_pinnableslice_value(pinned, &size);
  EXPECT(is("a", value, size));
  rocksdb_pinnableslice_destroy(pinned);
  EXPECT(rocksdb_get_pinned_cf(t.db, t.read, cf, "none", 4, &err) == NULL);
  OK(err);

  unsigned char found = 9;
  char *copy = NULL;
  EXPECT(rocksdb_key_may_exist(t.db, t.read, "b", 1, &copy, &size, NULL, 0, &found) == 1);
  EXPECT(found == 1);
  expect_value(copy, size, "b");
  EXPECT(rocksdb_key_may_exist(t.db, t.read, "c", 1, NULL, NULL, NULL, 0, &found) == 0);
  /* As in RocksDB: the result is certain, and the value is empty. */
  EXPECT(found == 1);
  EXPECT(rocksdb_key_may_exist(t.db, t.read, "c", 1, &copy, &size, NULL, 0, &found) == 0);
  expect_value(copy, size, "");
  EXPECT(rocksdb_key_may_exist_cf(t.db, t.read, cf, "a", 1, NULL, NULL, NULL, 0, NULL) == 1);

  /* A snapshot shows all families at one moment. */
  const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(t.db);
  uint64_t before = rocksdb_get_latest_sequence_number(t.db);
  put_in(&t, cf, "a", "later");
  rocksdb_delete(t.db, t.write, "b", 1, &err);
  OK(err);
  rocksdb_singledelete(t.db, t.write, "none", 4, &err);
  OK(err);
  rocksdb_singledelete_cf(t.db, t.write, cf, "none", 4, &err);
  OK(err);
  EXPECT(rocksdb_get_latest_sequence_number(t.db) > before);
  rocksdb_readoptions_set_snapshot(t.read, snapshot);
  has(&t, "b", "b");
  has_in(&t, cf, "a", "in");
  rocksdb_release_snapshot(t.db, snapshot);
  EXPECT(rocksdb_get(t.db, t.read, "b", 1, &size, &err) == NULL);
  failed(&err, "was released");
  rocksdb_readoptions_set_snapshot(t.read, NULL);
  has(&t, "b", NULL);
  has_in(&t, cf, "a", "later");
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
}
