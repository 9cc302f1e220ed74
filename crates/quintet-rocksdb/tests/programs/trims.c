/* Opening a database without the versions that are newer than a timestamp. RocksDB 7.8 passes this
 * too, without `refusals`. */
#include "timestamps.h"

static const char *const names[] = {"default", "ts"};

/* Fills a family with timestamps and one without, and closes both. */
static void fill(test_db *t, const char *directory, const rocksdb_options_t *options) {
  char *err = NULL;
  open_db(t, directory);
  family *cf = rocksdb_create_column_family(t->db, options, "ts", &err);
  OK(err);
  put(t, "plain", "value");
  for (uint64_t time = 10; time <= 40; time += 10) {
    char value[8];
    snprintf(value, sizeof value, "a%d", (int)time);
    put_at(t, cf, "a", time, value);
  }
  put_at(t, cf, "b", 10, "b10");
  rocksdb_delete_cf_with_ts(t->db, t->write, cf, "b", 1, ts(30), 8, &err);
  OK(err);
  put_at(t, cf, "c", 40, "c40");
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t->db);
}

/* Opens both families. Returns that with timestamps. */
static family *trimmed(test_db *t, const char *directory, const rocksdb_options_t *options,
                       char *time, size_t size) {
  char *err = NULL;
  const rocksdb_options_t *each[] = {t->options, options};
  family *handles[2];
  t->db = rocksdb_open_and_trim_history(t->options, directory, 2, names, each, handles, time, size,
                                        &err);
  OK(err);
  has(t, "plain", "value");
  rocksdb_column_family_handle_destroy(handles[0]);
  return handles[1];
}

static void shows(test_db *t, family *cf, const char *a, const char *b, const char *c) {
  const char *const keys[] = {"a", "b", "c"}, *const values[] = {a, b, c};
  read_at(t, UINT64_MAX);
  for (int i = 0; i < 3; i++) has_in(t, cf, keys[i], values[i]);
  rocksdb_readoptions_set_timestamp(t->read, NULL, 0);
}

static void reopened(test_db *t, family *cf) {
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t->db);
}

static void refusals(test_db *t, const char *directory, const rocksdb_options_t *options) {
  char *err = NULL;
  const rocksdb_options_t *each[] = {t->options, options};
  family *handles[2] = {NULL, NULL};
  EXPECT(rocksdb_open_and_trim_history(t->options, directory, 2, names, each, handles, ts(1), 4,
                                       &err) == NULL);
  failed(&err, "Timestamp sizes mismatch");
  EXPECT(rocksdb_open_and_trim_history(t->options, directory, 2, names, each, handles, NULL, 8,
                                       &err) == NULL);
  failed(&err, "Invalid argument");
  EXPECT(rocksdb_open_and_trim_history(NULL, directory, 2, names, each, handles, ts(1), 8, &err) ==
         NULL);
  failed(&err, "options is null");
  EXPECT(rocksdb_open_and_trim_history(t->options, directory, 1, names, each, handles, ts(1), 8,
                                       &err) == NULL);
  failed(&err, "Column families not opened");
  EXPECT(handles[0] == NULL && handles[1] == NULL);
}

static void run(const char *directory) {
  test_db t = new_options(directory);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_comparator_t *order = comparator();
  rocksdb_options_set_comparator(options, order);
  fill(&t, directory, options);
  refusals(&t, directory, options);
  /* An empty timestamp removes nothing. */
  family *cf = trimmed(&t, directory, options, ts(0), 0);
  shows(&t, cf, "a40", NULL, "c40");
  reopened(&t, cf);
  cf = trimmed(&t, directory, options, ts(30), 8);
  shows(&t, cf, "a30", NULL, NULL);
  reopened(&t, cf);
  cf = trimmed(&t, directory, options, ts(29), 8);
  shows(&t, cf, "a20", "b10", NULL);
  put_at(&t, cf, "a", 25, "a25");
  reopened(&t, cf);
  cf = trimmed(&t, directory, options, ts(UINT64_MAX), 8);
  shows(&t, cf, "a25", "b10", NULL);
  reopened(&t, cf);
  cf = trimmed(&t, directory, options, ts(9), 8);
  shows(&t, cf, NULL, NULL, NULL);
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_options_destroy(options);
  close_db(&t);
  rocksdb_comparator_destroy(order);
}

void test_trims(const char *directory) { in_both_byte_orders(run, directory); }
