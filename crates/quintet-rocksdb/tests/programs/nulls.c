/* Null arguments are failures where the original would crash. */
#include "test.h"

void test_nulls(const char *directory) {
  char *err = NULL;
  size_t size = 1;
  test_db t = open_new(directory);
  EXPECT(rocksdb_open(NULL, directory, &err) == NULL);
  failed(&err, "options is null");
  EXPECT(rocksdb_open(t.options, NULL, &err) == NULL);
  failed(&err, "Invalid argument");
  rocksdb_put(NULL, t.write, "k", 1, "v", 1, &err);
  failed(&err, "the database is null");
  rocksdb_put(t.db, NULL, "k", 1, "v", 1, &err);
  failed(&err, "the write options is null");
  rocksdb_put_cf(t.db, t.write, NULL, "k", 1, "v", 1, &err);
  failed(&err, "the column family is null");
  rocksdb_put(t.db, t.write, NULL, 1, "v", 1, &err);
  failed(&err, "Invalid argument");
  rocksdb_write(t.db, t.write, NULL, &err);
  failed(&err, "the batch is null");
  EXPECT(rocksdb_get(NULL, NULL, "k", 1, &size, &err) == NULL && size == 0);
  failed(&err, "the database is null");
  EXPECT(rocksdb_get(t.db, NULL, "k", 1, NULL, &err) == NULL);
  OK(err);
  rocksdb_multi_get(t.db, t.read, 3, NULL, NULL, NULL, NULL, NULL);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf(batch, NULL, "k", 1, "v", 1);
  rocksdb_write(t.db, t.write, batch, &err);
  failed(&err, "the column family is null");
  rocksdb_writebatch_destroy(batch);
  batch = rocksdb_writebatch_create_from(NULL, 5);
  rocksdb_write(t.db, t.write, batch, &err);
  failed(&err, "malformed");
  rocksdb_writebatch_destroy(batch);
  rocksdb_iterator_t *it = rocksdb_create_iterator(NULL, NULL);
  rocksdb_iter_seek_to_first(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_get_error(it, &err);
  failed(&err, "the database is null");
  rocksdb_iter_destroy(it);
  EXPECT(rocksdb_property_value(NULL, NULL) == NULL);
  EXPECT(rocksdb_create_snapshot(NULL) == NULL);
  EXPECT(rocksdb_options_get_max_open_files(NULL) == -1);
  rocksdb_options_set_max_open_files(NULL, 1);
  rocksdb_options_set_merge_operator(t.options, NULL);
  rocksdb_options_set_block_based_table_factory(t.options, NULL);
  rocksdb_close(NULL);
  rocksdb_iter_destroy(NULL);
  rocksdb_free(NULL);
  close_db(&t);
}
