/* Merge operators and comparators of the program, good ones and bad ones. */
#include "test.h"

static int destroyed;

static void on_destroy(void *state) {
  (void)state;
  destroyed++;
}

static const char *name(void *state) {
  (void)state;
  return "append";
}

/* Joins the existing value and the operands with commas. Refuses the operand "bad". */
static char *append(void *state, const char *key, size_t key_size, const char *existing,
                    size_t existing_size, const char *const *operands, const size_t *sizes,
                    int count, unsigned char *success, size_t *size) {
  (void)state, (void)key, (void)key_size;
  char *joined = calloc(1, 1000);
  size_t used = 0;
  *success = 1;
  if (existing != NULL) {
    memcpy(joined, existing, existing_size);
    used = existing_size;
  }
  for (int i = 0; i < count; i++) {
    if (used > 0) joined[used++] = ',';
    memcpy(joined + used, operands[i], sizes[i]);
    used += sizes[i];
    if (is("bad", operands[i], sizes[i])) *success = 0;
  }
  *size = used;
  return joined;
}

static char *nonsense(void *state, const char *key, size_t key_size, const char *existing,
                      size_t existing_size, const char *const *operands, const size_t *sizes,
                      int count, unsigned char *success, size_t *size) {
  (void)state, (void)key, (void)key_size, (void)existing, (void)existing_size;
  (void)operands, (void)sizes, (void)count;
  *success = 1;
  *size = (size_t)-1;
  return NULL;
}

static char *partial(void *state, const char *key, size_t key_size, const char *const *operands,
                     const size_t *sizes, int count, unsigned char *success, size_t *size) {
  (void)state, (void)key, (void)key_size, (void)operands, (void)sizes, (void)count, (void)size;
  *success = 0;
  return NULL;
}

static void delete_value(void *state, const char *value, size_t size) {
  (void)state, (void)size;
  free((char *)value);
}

static void merge(test_db *t, const char *operand, char **err) {
  rocksdb_merge(t->db, t->write, "k", 1, operand, strlen(operand), err);
}

static int compare_reverse(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state;
  size_t least = alen < blen ? alen : blen;
  int order = least ? memcmp(a, b, least) : 0;
  return order != 0 ? -order : (alen < blen) - (alen > blen);
}

static void numbers(const char *directory) {
  char *err = NULL;
  uint64_t one = 1, seen = 0;
  size_t size = 0;
  test_db t = new_options(directory);
  rocksdb_options_set_uint64add_merge_operator(t.options);
  open_db(&t, directory);
  for (int i = 0; i < 5; i++) {
    rocksdb_merge(t.db, t.write, "n", 1, (const char *)&one, sizeof one, &err);
    OK(err);
  }
  char *value = rocksdb_get(t.db, t.read, "n", 1, &size, &err);
  EXPECT(size == sizeof seen);
  memcpy(&seen, value, size);
  EXPECT(seen == 5);
  rocksdb_free(value);
  rocksdb_merge(t.db, t.write, "n", 1, "x", 1, &err);
  failed(&err, "8 bytes");
  close_db(&t);
}

void test_merges(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  merge(&t, "x", &err);
  failed(&err, "Not implemented: Provide a merge_operator when opening DB");
  rocksdb_close(t.db);

  /* An operator may be given to a database that exists. */
  rocksdb_mergeoperator_t *operator =
      rocksdb_mergeoperator_create(NULL, on_destroy, append, partial, NULL, name);
  rocksdb_options_set_merge_operator(t.options, operator);
  open_db(&t, directory);
  merge(&t, "1", &err);
  OK(err);
  merge(&t, "2", &err);
  OK(err);
  merge(&t, "bad", &err);
  failed(&err, "Could not perform merge. Merge operator");
  has(&t, "k", "1,2");
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  family *cf = rocksdb_create_column_family(t.db, t.options, "other", &err);
  OK(err);
  rocksdb_writebatch_merge(batch, "k", 1, "3", 1);
  rocksdb_writebatch_merge(batch, "k", 1, "4", 1);
  rocksdb_writebatch_merge_cf(batch, cf, "k", 1, "5", 1);
  rocksdb_write(t.db, t.write, batch, &err);
  OK(err);
  has(&t, "k", "1,2,3,4");
  has_in(&t, cf, "k", "5");
  rocksdb_merge_cf(t.db, t.write, cf, "k", 1, "6", 1, &err);
  OK(err);
  has_in(&t, cf, "k", "5,6");
  /* A batch with a range delete, and a merge after it. */
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_delete_range(batch, "a", 1, "z", 1);
  rocksdb_writebatch_merge(batch, "k", 1, "7", 1);
  rocksdb_write(t.db, t.write, batch, &err);
  OK(err);
  has(&t, "k", "7");
  rocksdb_writebatch_destroy(batch);
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
  EXPECT(destroyed == 1);

  t = new_options(directory);
  operator = rocksdb_mergeoperator_create(NULL, on_destroy, nonsense, partial, delete_value, name);
  rocksdb_options_set_merge_operator(t.options, operator);
  open_db(&t, directory);
  merge(&t, "1", &err);
  failed(&err, "Corruption");
  has(&t, "k", NULL);
  rocksdb_close(t.db);
  rocksdb_destroy_db(t.options, directory, &err);
  OK(err);

  rocksdb_comparator_t *reverse =
      rocksdb_comparator_create(NULL, on_destroy, compare_reverse, name);
  rocksdb_options_set_comparator(t.options, reverse);
  EXPECT(rocksdb_open(t.options, directory, &err) == NULL);
  failed(&err, "does not order keys by their bytes");
  free_options(&t);
  EXPECT(destroyed == 2);
  rocksdb_comparator_destroy(reverse);
  EXPECT(destroyed == 3);
  rocksdb_mergeoperator_destroy(
      rocksdb_mergeoperator_create(NULL, on_destroy, append, partial, NULL, name));
  EXPECT(destroyed == 4);
  numbers(directory);
}
