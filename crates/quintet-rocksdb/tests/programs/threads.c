/* 64 threads use one database. */
#include "test.h"

#define THREADS 64
#define KEYS 40

static test_db shared;

/* Each thread writes its own keys, in batches and alone, and reads those of others. */
static void *run(void *argument) {
  int thread = (int)(size_t)argument;
  char key[16], value[16];
  char *err = NULL;
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "t%02d-%03d", thread, i);
    snprintf(value, sizeof value, "%d", i);
    if (i % 4 == 0) {
      rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
      rocksdb_writebatch_put(batch, key, strlen(key), value, strlen(value));
      snprintf(key, sizeof key, "u%02d-%03d", thread, i);
      rocksdb_writebatch_put(batch, key, strlen(key), value, strlen(value));
      rocksdb_write(shared.db, shared.write, batch, &err);
      OK(err);
      rocksdb_writebatch_destroy(batch);
    } else {
      put(&shared, key, value);
    }
    if (i % 10 == 0) {
      const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(shared.db);
      rocksdb_readoptions_t *read = rocksdb_readoptions_create();
      rocksdb_readoptions_set_snapshot(read, snapshot);
      rocksdb_iterator_t *it = rocksdb_create_iterator(shared.db, read);
      snprintf(key, sizeof key, "t%02d-", thread);
      rocksdb_iter_seek(it, key, strlen(key));
      for (int seen = 0; seen <= i; seen++) {
        EXPECT(rocksdb_iter_valid(it));
        rocksdb_iter_next(it);
      }
      rocksdb_iter_get_error(it, &err);
      OK(err);
      rocksdb_iter_destroy(it);
      rocksdb_readoptions_destroy(read);
      rocksdb_release_snapshot(shared.db, snapshot);
    }
  }
  return NULL;
}

void test_threads(const char *directory) {
  pthread_t threads[THREADS];
  shared = open_new(directory);
  for (size_t i = 0; i < THREADS; i++) {
    EXPECT(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
  }
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  char *err = NULL;
  rocksdb_iterator_t *it = rocksdb_create_iterator(shared.db, shared.read);
  int count = 0;
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) count++;
  rocksdb_iter_get_error(it, &err);
  OK(err);
  rocksdb_iter_destroy(it);
  EXPECT(count == THREADS * (KEYS + KEYS / 4));
  close_db(&shared);
}
