/* Comparators and filter policies of the program, good ones and bad ones. */
#include "test.h"

static int destroyed;

static void on_destroy(void *state) {
  (void)state;
  destroyed++;
}

static int compare_bytes(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state;
  size_t least = alen < blen ? alen : blen;
  int order = least ? memcmp(a, b, least) : 0;
  if (order != 0) return order;
  return alen < blen ? -1 : alen > blen;
}

static int compare_reverse(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  return compare_bytes(state, b, blen, a, alen);
}

static int compare_nonsense(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state, (void)a, (void)alen, (void)b, (void)blen;
  return 1 - rand() % 3;
}

/* Differs from bytes only for keys that no check of an open asks for. */
static int compare_late(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  int order = compare_bytes(state, a, alen, b, blen);
  return alen > 4 && blen > 4 && memcmp(a, "late", 4) == 0 && memcmp(b, "late", 4) == 0 ? -order
                                                                                        : order;
}

static const char *own_name(void *state) {
  (void)state;
  return "own";
}

static const char *bytewise_name(void *state) {
  (void)state;
  return "leveldb.BytewiseComparator";
}

static const char *no_name(void *state) {
  (void)state;
  return NULL;
}

static char *create_filter(void *state, const char *const *keys, const size_t *sizes, int count,
                           size_t *size) {
  (void)state, (void)keys, (void)sizes, (void)count;
  *size = (size_t)-1;
  return NULL;
}

static uint8_t never_matches(void *state, const char *key, size_t length, const char *filter,
                             size_t filter_length) {
  (void)state, (void)key, (void)length, (void)filter, (void)filter_length;
  return 0;
}

typedef int (*compare_function)(void *, const char *, size_t, const char *, size_t);

static leveldb_comparator_t *comparator;

static void drop_comparator(test_db *t) {
  leveldb_comparator_destroy(comparator);
  leveldb_options_set_comparator(t->options, NULL);
}

/* Opens the database with a comparator. */
static leveldb_t *open_with(test_db *t, const char *directory, compare_function compare,
                            const char *(*name)(void *), char **err) {
  comparator = leveldb_comparator_create(NULL, on_destroy, compare, name);
  leveldb_options_set_comparator(t->options, comparator);
  leveldb_t *db = leveldb_open(t->options, directory, err);
  if (db == NULL) drop_comparator(t);
  return db;
}

static void filters_are_ignored(const char *directory) {
  char *err = NULL;
  test_db t = open_new(directory);
  leveldb_close(t.db);
  leveldb_filterpolicy_t *bloom = leveldb_filterpolicy_create_bloom(10);
  leveldb_options_set_filter_policy(t.options, bloom);
  leveldb_filterpolicy_t *own =
      leveldb_filterpolicy_create(NULL, on_destroy, create_filter, never_matches, own_name);
  leveldb_options_set_filter_policy(t.options, own);
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  put(&t, "key", "value");
  leveldb_compact_range(t.db, NULL, 0, NULL, 0);
  has(&t, "key", "value");
  close_db(&t);
  destroyed = 0;
  leveldb_filterpolicy_destroy(bloom);
  EXPECT(destroyed == 0);
  leveldb_filterpolicy_destroy(own);
  EXPECT(destroyed == 1);
}

void test_callbacks(const char *directory) {
  char *err = NULL;
  filters_are_ignored(directory);
  test_db t = open_new(directory);
  leveldb_close(t.db);

  /* A comparator with the name of the default order opens the database; another one does not. */
  destroyed = 0;
  EXPECT(open_with(&t, directory, compare_bytes, own_name, &err) == NULL);
  failed(&err, "leveldb.BytewiseComparator does not match existing comparator : own");
  EXPECT(destroyed == 1);
  t.db = open_with(&t, directory, compare_bytes, bytewise_name, &err);
  OK(err);
  put(&t, "a", "1");
  leveldb_close(t.db);
  drop_comparator(&t);
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);

  /* Other orders are refused, and nothing is created. */
  EXPECT(open_with(&t, directory, compare_reverse, own_name, &err) == NULL);
  failed(&err, "does not order keys by their bytes");
  EXPECT(open_with(&t, directory, compare_nonsense, own_name, &err) == NULL);
  failed(&err, "does not order keys by their bytes");
  EXPECT(open_with(&t, directory, compare_bytes, no_name, &err) == NULL);
  failed(&err, "Invalid argument");
  EXPECT(open_with(&t, directory, NULL, own_name, &err) == NULL);
  failed(&err, "Invalid argument");

  /* The name of a comparator is kept. */
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  t.db = open_with(&t, directory, compare_late, own_name, &err);
  OK(err);
  put(&t, "early", "1");
  put(&t, "late-1", "1");
  put(&t, "late-2", "2");

  /* An iterator notices an order that the open has not. */
  leveldb_iterator_t *it = leveldb_create_iterator(t.db, t.read);
  leveldb_iter_seek_to_first(it);
  at(it, "early", "1");
  leveldb_iter_next(it);
  at(it, "late-1", "1");
  leveldb_iter_next(it);
  EXPECT(!leveldb_iter_valid(it));
  leveldb_iter_get_error(it, &err);
  failed(&err, "does not order keys by their bytes");
  leveldb_iter_destroy(it);
  leveldb_close(t.db);
  drop_comparator(&t);
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "own does not match existing comparator : leveldb.BytewiseComparator");
  free_options(&t);
}
