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
      leveldb_writebatch_t *batch = leveldb_writebatch_create();
      leveldb_writebatch_put(batch, key, strlen(key), value, strlen(value));
      snprintf(key, sizeof key, "u%02d-%03d", thread, i);
      leveldb_writebatch_put(batch, key, strlen(key), value, strlen(value));
      leveldb_write(shared.db, shared.write, batch, &err);
      OK(err);
      leveldb_writebatch_destroy(batch);
    } else {
      put(&shared, key, value);
    }
    if (i % 10 == 0) {
      const leveldb_snapshot_t *snapshot = leveldb_create_snapshot(shared.db);
      leveldb_readoptions_t *read = leveldb_readoptions_create();
      leveldb_readoptions_set_snapshot(read, snapshot);
      leveldb_iterator_t *it = leveldb_create_iterator(shared.db, read);
      snprintf(key, sizeof key, "t%02d-", thread);
      leveldb_iter_seek(it, key, strlen(key));
      for (int seen = 0; seen <= i; seen++) {
        EXPECT(leveldb_iter_valid(it));
        leveldb_iter_next(it);
      }
      leveldb_iter_get_error(it, &err);
      OK(err);
      leveldb_iter_destroy(it);
      leveldb_readoptions_destroy(read);
      leveldb_release_snapshot(shared.db, snapshot);
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
  leveldb_iterator_t *it = leveldb_create_iterator(shared.db, shared.read);
  int count = 0;
  for (leveldb_iter_seek_to_first(it); leveldb_iter_valid(it); leveldb_iter_next(it)) count++;
  leveldb_iter_get_error(it, &err);
  OK(err);
  leveldb_iter_destroy(it);
  EXPECT(count == THREADS * (KEYS + KEYS / 4));
  close_db(&shared);
}
