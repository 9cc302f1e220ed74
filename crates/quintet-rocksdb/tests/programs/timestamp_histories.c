/* The low timestamp of a family: of one that was dropped, and in a secondary instance. */
#include "timestamps.h"

/* The handle of a dropped family changes nothing of the family that has its name now. */
static void dropped(test_db *t, const rocksdb_options_t *options) {
  char *err = NULL;
  family *old = rocksdb_create_column_family(t->db, options, "again", &err);
  OK(err);
  rocksdb_drop_column_family(t->db, old, &err);
  OK(err);
  family *new = rocksdb_create_column_family(t->db, options, "again", &err);
  OK(err);
  rocksdb_increase_full_history_ts_low(t->db, old, ts(100), 8, &err);
  failed(&err, "was dropped");
  rocksdb_increase_full_history_ts_low(t->db, new, ts(1), 8, &err);
  OK(err);
  rocksdb_column_family_handle_destroy(old);
  rocksdb_column_family_handle_destroy(new);
}

/* A secondary instance learns the low timestamp when it catches up. */
static void secondary(test_db *t, const char *directory, const rocksdb_options_t *options) {
  char *err = NULL;
  size_t size = 0;
  family *cf = rocksdb_create_column_family(t->db, options, "ts", &err);
  OK(err);
  put_at(t, cf, "s", 10, "ten");
  put_at(t, cf, "s", 20, "twenty");
  const char *names[] = {"default", "again", "ts"};
  const rocksdb_options_t *each[] = {t->options, options, options};
  family *handles[3];
  rocksdb_t *second = rocksdb_open_as_secondary_column_families(t->options, directory, "/none", 3,
                                                                names, each, handles, &err);
  OK(err);
  read_at(t, 15);
  char *value = rocksdb_get_cf(second, t->read, handles[2], "s", 1, &size, &err);
  OK(err);
  expect_value(value, size, "ten");
  rocksdb_increase_full_history_ts_low(t->db, cf, ts(30), 8, &err);
  OK(err);
  rocksdb_compact_range_cf(t->db, cf, NULL, 0, NULL, 0);
  rocksdb_try_catch_up_with_primary(second, &err);
  OK(err);
  EXPECT(rocksdb_get_cf(second, t->read, handles[2], "s", 1, &size, &err) == NULL);
  failed(&err, "is smaller than full_history_ts_low");
  for (int i = 0; i < 3; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(second);
  rocksdb_column_family_handle_destroy(cf);
}

static void run(const char *directory) {
  test_db t = open_new(directory);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_comparator_t *order = comparator();
  rocksdb_options_set_comparator(options, order);
  dropped(&t, options);
  secondary(&t, directory, options);
  rocksdb_options_destroy(options);
  close_db(&t);
  rocksdb_comparator_destroy(order);
}

void test_timestamp_histories(const char *directory) { in_both_byte_orders(run, directory); }
