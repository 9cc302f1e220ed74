/* Write batches: atomic, iterated in order, appended, and usable again. */
#include "test.h"

typedef struct {
  char text[256];
} trace;

static void add(trace *t, const char *kind, const char *bytes, size_t size) {
  size_t used = strlen(t->text);
  EXPECT(used + size + 4 < sizeof t->text);
  snprintf(t->text + used, sizeof t->text - used, "%s%.*s ", kind, (int)size, bytes);
}

static void on_put(void *state, const char *k, size_t klen, const char *v, size_t vlen) {
  add(state, "+", k, klen);
  add(state, "=", v, vlen);
}

static void on_delete(void *state, const char *k, size_t klen) { add(state, "-", k, klen); }

void test_batches(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  leveldb_writebatch_t *batch = leveldb_writebatch_create();
  leveldb_writebatch_put(batch, "gone", 4, "x", 1);
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "a", 1, "1", 1);
  leveldb_writebatch_put(batch, "b", 1, "2", 1);
  leveldb_writebatch_delete(batch, "a", 1);

  leveldb_writebatch_t *more = leveldb_writebatch_create();
  leveldb_writebatch_put(more, "c", 1, "", 0);
  leveldb_writebatch_append(batch, more);
  leveldb_writebatch_destroy(more);

  trace seen = {""};
  leveldb_writebatch_iterate(batch, &seen, on_put, on_delete);
  EXPECT(strcmp(seen.text, "+a =1 +b =2 -a +c = ") == 0);
  /* Null callbacks are passed over. */
  leveldb_writebatch_iterate(batch, &seen, NULL, NULL);

  leveldb_write(t.db, t.write, batch, &err);
  OK(err);
  has(&t, "gone", NULL);
  has(&t, "a", NULL);
  has(&t, "b", "2");
  has(&t, "c", "");

  /* A batch is unchanged by its write. */
  delete_key(&t, "b");
  leveldb_writeoptions_set_sync(t.write, 1);
  leveldb_write(t.db, t.write, batch, &err);
  OK(err);
  has(&t, "b", "2");

  /* One operation, and none. */
  leveldb_writebatch_clear(batch);
  leveldb_write(t.db, t.write, batch, &err);
  OK(err);
  leveldb_writebatch_put(batch, "one", 3, "1", 1);
  leveldb_write(t.db, t.write, batch, &err);
  OK(err);
  has(&t, "one", "1");
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_delete(batch, "one", 3);
  leveldb_write(t.db, t.write, batch, &err);
  OK(err);
  has(&t, "one", NULL);

  /* A key that is too large refuses the whole batch. */
  char *large = calloc(1, 70000);
  memset(large, 'k', 70000);
  leveldb_writebatch_clear(batch);
  leveldb_writebatch_put(batch, "good", 4, "1", 1);
  leveldb_writebatch_put(batch, large, 70000, "1", 1);
  leveldb_write(t.db, t.write, batch, &err);
  failed(&err, "Invalid argument");
  has(&t, "good", NULL);
  free(large);
  leveldb_writebatch_destroy(batch);
  close_db(&t);
}
