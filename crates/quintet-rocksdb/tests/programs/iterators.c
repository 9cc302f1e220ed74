/* Iterators: both ways, bounds, prefixes, tailing. */
#include "test.h"

static rocksdb_iterator_t *iterator(test_db *t) { return rocksdb_create_iterator(t->db, t->read); }

static void bounds(test_db *t) {
  rocksdb_readoptions_set_iterate_lower_bound(t->read, "a2", 2);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, "b2", 2);
  rocksdb_iterator_t *it = iterator(t);
  rocksdb_iter_seek_to_first(it);
  at(it, "a2", "a2");
  rocksdb_iter_prev(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_seek(it, "a", 1);
  at(it, "a2", "a2");
  rocksdb_iter_seek_to_last(it);
  at(it, "b1", "b1");
  rocksdb_iter_next(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_seek_for_prev(it, "z", 1);
  at(it, "b1", "b1");
  rocksdb_iter_seek_for_prev(it, "a1", 2);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_lower_bound(t->read, NULL, 0);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, NULL, 0);
}

static void tailing(test_db *t) {
  rocksdb_readoptions_set_tailing(t->read, 1);
  rocksdb_iterator_t *it = iterator(t);
  put(t, "tail", "1");
  rocksdb_iter_seek(it, "tail", 4);
  at(it, "tail", "1");
  put(t, "tail", "2");
  rocksdb_iter_seek(it, "tail", 4);
  at(it, "tail", "2");
  /* A step too. */
  put(t, "tail2", "3");
  rocksdb_iter_next(it);
  at(it, "tail2", "3");
  delete_key(t, "tail");
  put(t, "tail1", "4");
  rocksdb_iter_prev(it);
  at(it, "tail1", "4");
  rocksdb_iter_destroy(it);
  delete_key(t, "tail1");
  delete_key(t, "tail2");
  rocksdb_readoptions_set_tailing(t->read, 0);
}

/* An end has the prefix of its bound, or else of its entry. */
static void prefixes_of_ends(test_db *t) {
  rocksdb_iterator_t *it = iterator(t);
  rocksdb_iter_seek_to_first(it);
  at(it, "a1", "a1");
  int count = 0;
  for (; rocksdb_iter_valid(it); rocksdb_iter_next(it)) count++;
  EXPECT(count == 3);
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_lower_bound(t->read, "b2", 2);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, "b3", 2);
  it = iterator(t);
  rocksdb_iter_seek_to_first(it);
  at(it, "b2", "b2");
  rocksdb_iter_next(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_seek_to_last(it);
  at(it, "b2", "b2");
  rocksdb_iter_prev(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_lower_bound(t->read, NULL, 0);
  /* The upper bound has a prefix that no entry has. */
  rocksdb_readoptions_set_iterate_upper_bound(t->read, "d", 1);
  it = iterator(t);
  rocksdb_iter_seek_to_last(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, NULL, 0);
}

static void prefixes(test_db *t) {
  rocksdb_readoptions_set_prefix_same_as_start(t->read, 1);
  rocksdb_iterator_t *it = iterator(t);
  int count = 0;
  for (rocksdb_iter_seek(it, "a", 1); rocksdb_iter_valid(it); rocksdb_iter_next(it)) count++;
  EXPECT(count == 3);
  rocksdb_iter_seek(it, "b2", 2);
  at(it, "b2", "b2");
  rocksdb_iter_next(it);
  at(it, "b3", "b3");
  rocksdb_iter_next(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  prefixes_of_ends(t);
  rocksdb_readoptions_set_prefix_same_as_start(t->read, 0);
}

static char *first_byte(void *state, const char *key, size_t size, size_t *prefix) {
  (void)state;
  *prefix = size ? 1 : 0;
  return (char *)key;
}

static unsigned char always(void *state, const char *key, size_t size) {
  (void)state, (void)key, (void)size;
  return 1;
}

static char *nonsense(void *state, const char *key, size_t size, size_t *prefix) {
  (void)state, (void)key, (void)size;
  *prefix = (size_t)-1;
  return NULL;
}

static int destroyed;
static void on_destroy(void *state) {
  (void)state;
  destroyed++;
}

static const char *name(void *state) {
  (void)state;
  return "first";
}

static void fill(test_db *t) {
  const char *keys[] = {"a1", "a2", "a3", "b1", "b2", "b3", "c1"};
  for (int i = 0; i < 7; i++) put(t, keys[i], keys[i]);
}

void test_iterators(const char *directory) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_options_set_prefix_extractor(t.options, rocksdb_slicetransform_create_fixed_prefix(1));
  open_db(&t, directory);
  fill(&t);
  rocksdb_iterator_t *it = iterator(&t);
  int count = 0;
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) count++;
  for (rocksdb_iter_seek_to_last(it); rocksdb_iter_valid(it); rocksdb_iter_prev(it)) count++;
  EXPECT(count == 14);
  rocksdb_iter_get_error(it, &err);
  OK(err);
  rocksdb_iter_destroy(it);
  bounds(&t);
  tailing(&t);
  prefixes(&t);

  /* Iterators of several families show one moment. */
  family *cf = rocksdb_create_column_family(t.db, t.options, "other", &err);
  OK(err);
  put_in(&t, cf, "k", "in");
  family *families[] = {cf, cf};
  rocksdb_iterator_t *both[2];
  rocksdb_create_iterators(t.db, t.read, families, both, 2, &err);
  OK(err);
  put_in(&t, cf, "k", "later");
  for (int i = 0; i < 2; i++) {
    rocksdb_iter_seek_to_first(both[i]);
    at(both[i], "k", "in");
    rocksdb_iter_destroy(both[i]);
  }
  it = rocksdb_create_iterator_cf(t.db, t.read, cf);
  rocksdb_iter_seek_to_first(it);
  at(it, "k", "later");
  rocksdb_iter_destroy(it);
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t.db);
  rocksdb_destroy_db(t.options, directory, &err);
  OK(err);

  /* Extractors of the program, a good one and a bad one. */
  rocksdb_options_set_prefix_extractor(
      t.options, rocksdb_slicetransform_create(NULL, on_destroy, first_byte, always, always, name));
  open_db(&t, directory);
  fill(&t);
  prefixes(&t);
  rocksdb_close(t.db);
  EXPECT(destroyed == 0);
  rocksdb_options_set_prefix_extractor(
      t.options, rocksdb_slicetransform_create(NULL, on_destroy, nonsense, always, always, name));
  EXPECT(destroyed == 1);
  open_db(&t, directory);
  rocksdb_readoptions_set_prefix_same_as_start(t.read, 1);
  it = iterator(&t);
  rocksdb_iter_seek(it, "a", 1);
  at(it, "a1", "a1");
  rocksdb_iter_destroy(it);
  close_db(&t);
  EXPECT(destroyed == 2);
  rocksdb_slicetransform_destroy(rocksdb_slicetransform_create_noop());
}
