/* Snapshots: gets and iterators of an earlier state. */
#include "test.h"

void test_snapshots(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  put(&t, "a", "1");
  put(&t, "b", "1");
  const leveldb_snapshot_t *first = leveldb_create_snapshot(t.db);
  put(&t, "a", "2");
  delete_key(&t, "b");
  put(&t, "c", "2");
  const leveldb_snapshot_t *second = leveldb_create_snapshot(t.db);
  put(&t, "a", "3");
  delete_key(&t, "c");

  leveldb_readoptions_set_snapshot(t.read, first);
  has(&t, "a", "1");
  has(&t, "b", "1");
  has(&t, "c", NULL);
  leveldb_iterator_t *it = leveldb_create_iterator(t.db, t.read);
  leveldb_readoptions_set_snapshot(t.read, second);
  has(&t, "a", "2");
  has(&t, "b", NULL);
  has(&t, "c", "2");

  /* An iterator keeps the state after its snapshot was released. */
  leveldb_release_snapshot(t.db, first);
  leveldb_iter_seek_to_last(it);
  at(it, "b", "1");
  leveldb_iter_prev(it);
  at(it, "a", "1");
  leveldb_iter_destroy(it);

  /* Options that name a released snapshot fail. */
  leveldb_release_snapshot(t.db, second);
  size_t size = 0;
  EXPECT(leveldb_get(t.db, t.read, "a", 1, &size, &err) == NULL);
  failed(&err, "was released");
  it = leveldb_create_iterator(t.db, t.read);
  leveldb_iter_seek_to_first(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_get_error(it, &err);
  failed(&err, "was released");
  leveldb_iter_destroy(it);
  leveldb_readoptions_set_snapshot(t.read, NULL);
  has(&t, "a", "3");
  close_db(&t);
}
