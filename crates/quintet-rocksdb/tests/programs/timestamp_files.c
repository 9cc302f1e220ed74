/* Files of versions: written, refused, ingested. RocksDB 7.8 passes `order_of_keys`,
 * and `entries` into an empty family. */
#include "timestamps.h"

static rocksdb_sstfilewriter_t *writer;

static void begin(const char *file) {
  char *err = NULL;
  rocksdb_sstfilewriter_open(writer, file, &err);
  OK(err);
}

static void version(const char *key, uint64_t time, const char *value) {
  char *err = NULL;
  if (value != NULL) {
    rocksdb_sstfilewriter_put_with_ts(writer, key, strlen(key), ts(time), 8, value, strlen(value),
                                      &err);
  } else {
    rocksdb_sstfilewriter_delete_with_ts(writer, key, strlen(key), ts(time), 8, &err);
  }
  OK(err);
}

static void finish(void) {
  char *err = NULL;
  rocksdb_sstfilewriter_finish(writer, &err);
  OK(err);
}

static void reads(test_db *t, family *cf, const char *key, uint64_t time, const char *expected) {
  read_at(t, time);
  has_in(t, cf, key, expected);
  rocksdb_readoptions_set_timestamp(t->read, NULL, 0);
}

/* Keys ascend, and timestamps of a key descend. Nothing else is written. */
static void order_of_keys(const char *file) {
  char *err = NULL;
  begin(file);
  version("a", 20, "a20");
  rocksdb_sstfilewriter_put_with_ts(writer, "a", 1, ts(20), 8, "", 0, &err);
  failed(&err, "strict ascending order");
  rocksdb_sstfilewriter_put_with_ts(writer, "a", 1, ts(21), 8, "", 0, &err);
  failed(&err, "strict ascending order");
  version("a", 10, "a10");
  version("b", 30, NULL);
  rocksdb_sstfilewriter_delete_with_ts(writer, "a", 1, ts(1), 8, &err);
  failed(&err, "strict ascending order");
  rocksdb_sstfilewriter_put_with_ts(writer, "c", 1, ts(1), 4, "", 0, &err);
  failed(&err, "mismatch");
  rocksdb_sstfilewriter_delete_with_ts(writer, "c", 1, ts(1), 0, &err);
  failed(&err, "mismatch");
  rocksdb_sstfilewriter_put(writer, "c", 1, "", 0, &err);
  failed(&err, "mismatch");
  rocksdb_sstfilewriter_delete(writer, "c", 1, &err);
  failed(&err, "mismatch");
  rocksdb_sstfilewriter_delete_range(writer, "c", 1, "d", 1, &err);
  failed(&err, "mismatch");
  version("c", UINT64_MAX - 1, "new");
  version("c", 0, "old");
  finish();
}

static void entries(test_db *t, family *cf, const char *file,
                    rocksdb_ingestexternalfileoptions_t *rules) {
  char *err = NULL;
  put_at(t, cf, "a", 15, "a15");
  put_at(t, cf, "b", 25, "b25");
  rocksdb_ingest_external_file_cf(t->db, cf, &file, 1, rules, &err);
  OK(err);
  reads(t, cf, "a", 9, NULL);
  reads(t, cf, "a", 14, "a10");
  reads(t, cf, "a", 19, "a15");
  reads(t, cf, "a", 20, "a20");
  reads(t, cf, "b", 29, "b25");
  reads(t, cf, "b", 30, NULL);
  reads(t, cf, "c", 5, "old");
  reads(t, cf, "c", UINT64_MAX, "new");
}

/* A file behind the entries changes no version that is there. */
static void behind(test_db *t, family *cf, const char *file,
                   rocksdb_ingestexternalfileoptions_t *rules) {
  char *err = NULL;
  begin(file);
  version("a", 20, "other");
  version("a", 12, NULL);
  version("z", 5, "z5");
  finish();
  rocksdb_ingestexternalfileoptions_set_ingest_behind(rules, 1);
  rocksdb_ingest_external_file_cf(t->db, cf, &file, 1, rules, &err);
  OK(err);
  rocksdb_ingestexternalfileoptions_set_ingest_behind(rules, 0);
  reads(t, cf, "a", 20, "a20");
  reads(t, cf, "a", 12, NULL);
  reads(t, cf, "a", 11, "a10");
  reads(t, cf, "z", 5, "z5");
}

/* Files and families that do not fit. */
static void refusals(test_db *t, family *cf, const char *file,
                     rocksdb_ingestexternalfileoptions_t *rules) {
  char *err = NULL;
  rocksdb_ingest_external_file(t->db, &file, 1, rules, &err);
  failed(&err, "has timestamps, and column family default has none");
  rocksdb_envoptions_t *none = rocksdb_envoptions_create();
  rocksdb_sstfilewriter_t *plain = rocksdb_sstfilewriter_create(none, t->options);
  rocksdb_sstfilewriter_put_with_ts(plain, "k", 1, ts(1), 8, "v", 1, &err);
  failed(&err, "the comparator has no timestamps");
  rocksdb_sstfilewriter_open(plain, file, &err);
  OK(err);
  rocksdb_sstfilewriter_put(plain, "a key of many bytes", 19, "v", 1, &err);
  OK(err);
  rocksdb_sstfilewriter_finish(plain, &err);
  OK(err);
  rocksdb_sstfilewriter_destroy(plain);
  rocksdb_envoptions_destroy(none);
  rocksdb_ingest_external_file_cf(t->db, cf, &file, 1, rules, &err);
  failed(&err, "has no timestamps, and column family ts has them");
  rocksdb_sstfilewriter_put_with_ts(writer, "k", 1, ts(1), 8, "v", 1, &err);
  failed(&err, "not opened");
  /* The other byte order. */
  is_big_endian = !is_big_endian;
  begin(file);
  version("k", 1, "v");
  finish();
  is_big_endian = !is_big_endian;
  rocksdb_ingest_external_file_cf(t->db, cf, &file, 1, rules, &err);
  failed(&err, "the byte order of timestamps is not that of column family ts");
  rocksdb_sstfilewriter_put_with_ts(writer, "k", 1, NULL, 8, "v", 1, &err);
  failed(&err, "Invalid argument");
  rocksdb_sstfilewriter_delete_with_ts(NULL, "k", 1, ts(1), 8, &err);
  failed(&err, "the writer is null");
  reads(t, cf, "a", 20, "a20");
}

static void run(const char *directory) {
  char *err = NULL;
  char file[4200];
  snprintf(file, sizeof file, "%s.versions", directory);
  test_db t = new_options(directory);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_comparator_t *order = comparator();
  rocksdb_options_set_comparator(options, order);
  rocksdb_options_set_allow_ingest_behind(options, 1);
  open_db(&t, directory);
  family *cf = rocksdb_create_column_family(t.db, options, "ts", &err);
  OK(err);
  rocksdb_envoptions_t *none = rocksdb_envoptions_create();
  rocksdb_ingestexternalfileoptions_t *rules = rocksdb_ingestexternalfileoptions_create();
  writer = rocksdb_sstfilewriter_create_with_comparator(none, options, order);
  order_of_keys(file);
  entries(&t, cf, file, rules);
  behind(&t, cf, file, rules);
  refusals(&t, cf, file, rules);
  unlink(file);
  rocksdb_sstfilewriter_destroy(writer);
  rocksdb_ingestexternalfileoptions_destroy(rules);
  rocksdb_envoptions_destroy(none);
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_options_destroy(options);
  close_db(&t);
  rocksdb_comparator_destroy(order);
}

void test_timestamp_files(const char *directory) { in_both_byte_orders(run, directory); }
