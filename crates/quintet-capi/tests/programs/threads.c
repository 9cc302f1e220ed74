/* Threads: 64 share one handle of a table; two share handles that are for one at a time. */
#include <pthread.h>

#include "test.h"

#define THREADS 64
#define ROUNDS 10

static quintet_table *shared;
static quintet_batch *batch;
static quintet_iterator *entries;

static void run(void *(*work)(void *), int count) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < count; i++) {
    EXPECT(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  }
  for (int i = 0; i < count; i++) EXPECT(pthread_join(threads[i], NULL) == 0);
}

static int increment(void *context, const quintet_slice *old, quintet_buffer *value) {
  char text[32];
  (void)context;
  int size = snprintf(text, sizeof text, "%lld", (old ? number(*old) : 0) + 1);
  return (int)quintet_buffer_set(value, quintet_bytes(text, (size_t)size), NULL);
}

/* Counters of all threads, and a key of this one. */
static void *share_table(void *argument) {
  char key[32];
  quintet_buffer value = {0};
  bool found = false;
  snprintf(key, sizeof key, "thread %d", (int)(intptr_t)argument);
  for (int i = 0; i < ROUNDS; i++) {
    CHECK(quintet_fetch_and_add(shared, S("sum"), 1, NULL, NULL, &error));
    CHECK(quintet_update(shared, S("count"), NULL, increment, NULL, NULL, NULL, &error));
    CHECK(quintet_update(shared, S(key), NULL, increment, NULL, &value, &found, &error));
    EXPECT(found && number(quintet_content(&value)) == i + 1);
    CHECK(quintet_get(shared, S(key), &value, &found, &error));
    EXPECT(found && number(quintet_content(&value)) == i + 1);
  }
  CHECK(quintet_buffer_free(&value, &error));
  return NULL;
}

/* Calls on a handle for one thread at a time: each works, or another is at it. */
static void *share_batch(void *argument) {
  for (int i = 0; i < 20 * ROUNDS; i++) {
    quintet_code code = argument ? quintet_batch_put(batch, shared, S("k"), S("v"), NULL, NULL)
                                 : quintet_batch_commit(batch, 0, NULL);
    EXPECT(code == QUINTET_OK || code == QUINTET_BUSY);
    code = quintet_iterator_next(entries, NULL, NULL, &(bool){false}, NULL);
    EXPECT(code == QUINTET_OK || code == QUINTET_BUSY);
  }
  return NULL;
}

void test_threads(const char *directory) {
  const char *engines[] = {"hashlog", "btree", "tph"};
  quintet_database *database = open_small(directory);
  quintet_buffer value = {0};
  for (int i = 0; i < 3; i++) {
    int64_t sum = 0;
    shared = create_table(database, engines[i], engines[i]);
    run(share_table, THREADS);
    CHECK(quintet_fetch_and_add(shared, S("sum"), 0, NULL, &sum, &error));
    EXPECT(sum == THREADS * ROUNDS);
    CHECK(quintet_get(shared, S("count"), &value, NULL, &error));
    EXPECT(number(quintet_content(&value)) == THREADS * ROUNDS);
    CHECK(quintet_batch_new(database, &batch, &error));
    CHECK(quintet_scan(shared, &entries, &error));
    run(share_batch, 2);
    CHECK(quintet_iterator_free(entries, &error));
    CHECK(quintet_batch_free(batch, &error));
    CHECK(quintet_table_free(shared, &error));
  }
  CHECK(quintet_buffer_free(&value, &error));
  close_database(database);
}
