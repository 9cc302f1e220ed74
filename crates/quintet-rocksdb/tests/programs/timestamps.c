/* User-defined timestamps. RocksDB 7.8 passes this too, without `history_ends`, `refusals`,
 * `logs` and `unsupported`. */
#include "timestamps.h"

static uint64_t number(const char *bytes, size_t size) {
  EXPECT(size == 8);
  return decode(bytes);
}

static int oldest_first(void *state, const char *a, size_t a_size, const char *b, size_t b_size) {
  int keys = compare_keys(state, a, a_size, 1, b, b_size, 1);
  return keys != 0 ? keys : compare_timestamps(state, a + a_size - 8, 8, b + b_size - 8, 8);
}

static int backwards(void *state, const char *a, size_t a_size, unsigned char a_has, const char *b,
                     size_t b_size, unsigned char b_has) {
  return -compare_keys(state, a, a_size, a_has, b, b_size, b_has);
}

static void delete_at(test_db *t, family *cf, const char *key, uint64_t time) {
  char *err = NULL;
  rocksdb_delete_cf_with_ts(t->db, t->write, cf, key, strlen(key), ts(time), 8, &err);
  OK(err);
}

static void has_at(test_db *t, family *cf, const char *key, uint64_t time, const char *expected,
                   uint64_t expected_time) {
  char *err = NULL, *found = NULL;
  size_t size = 99, found_size = 99;
  read_at(t, time);
  char *value =
      rocksdb_get_cf_with_ts(t->db, t->read, cf, key, strlen(key), &size, &found, &found_size, &err);
  OK(err);
  if (expected == NULL) {
    EXPECT(found_size == 0);
  } else {
    EXPECT(number(found, found_size) == expected_time);
    rocksdb_free(found);
  }
  expect_value(value, size, expected);
  has_in(t, cf, key, expected);
}

static void fill(test_db *t, family *cf) {
  const char *const keys[] = {"a", "b", "c"};
  char value[8];
  for (int i = 0; i < 3; i++) {
    for (uint64_t time = 10; time <= 30; time += 10) {
      snprintf(value, sizeof value, "%s%d", keys[i], (int)time);
      put_at(t, cf, keys[i], time, value);
    }
  }
  delete_at(t, cf, "b", 25);
  char *err = NULL;
  rocksdb_put_cf_with_ts(t->db, t->write, cf, "a\0x", 3, ts(15), 8, "a0x", 3, &err);
  OK(err);
}

static void gets(test_db *t, family *cf) {
  has_at(t, cf, "b", 9, NULL, 0);
  has_at(t, cf, "b", 10, "b10", 10);
  has_at(t, cf, "b", 24, "b20", 20);
  has_at(t, cf, "b", 25, NULL, 0);
  has_at(t, cf, "b", 29, NULL, 0);
  has_at(t, cf, "b", UINT64_MAX, "b30", 30);
  has_at(t, cf, "none", 30, NULL, 0);
  const char *keys[] = {"a", "b", "c"};
  const size_t sizes[] = {1, 1, 1};
  const family *families[] = {cf, cf, cf};
  char *values[3], *times[3], *errors[3];
  size_t value_sizes[3], time_sizes[3];
  read_at(t, 27);
  rocksdb_multi_get_cf_with_ts(t->db, t->read, families, 3, keys, sizes, values, value_sizes, times,
                               time_sizes, errors);
  for (int i = 0; i < 3; i++) {
    OK(errors[i]);
    expect_value(values[i], value_sizes[i], i == 1 ? NULL : i == 0 ? "a20" : "c20");
    EXPECT(i == 1 ? time_sizes[i] == 0 : number(times[i], time_sizes[i]) == 20);
    rocksdb_free(i == 1 ? NULL : times[i]);
  }
  EXPECT(rocksdb_key_may_exist_cf(t->db, t->read, cf, "b", 1, NULL, NULL, NULL, 0, NULL) == 0);
  EXPECT(rocksdb_key_may_exist_cf(t->db, t->read, cf, "c", 1, NULL, NULL, NULL, 0, NULL) == 1);
}

/* Expects an iterator at a key, or at no entry. */
static void shows(rocksdb_iterator_t *it, const char *key, const char *value, uint64_t time) {
  char *err = NULL;
  size_t size = 0;
  rocksdb_iter_get_error(it, &err);
  OK(err);
  if (key == NULL) {
    EXPECT(!rocksdb_iter_valid(it));
    return;
  }
  at(it, key, value);
  const char *bytes = rocksdb_iter_timestamp(it, &size);
  EXPECT(number(bytes, size) == time);
}

static void iterators(test_db *t, family *cf) {
  size_t size = 0;
  read_at(t, 27);
  rocksdb_iterator_t *it = rocksdb_create_iterator_cf(t->db, t->read, cf);
  rocksdb_iter_seek_to_first(it);
  shows(it, "a", "a20", 20);
  rocksdb_iter_next(it);
  EXPECT(compare_bytes("a\0x", 3, rocksdb_iter_key(it, &size), 3) == 0 && size == 3);
  rocksdb_iter_next(it);
  shows(it, "c", "c20", 20);
  rocksdb_iter_next(it);
  shows(it, NULL, NULL, 0);
  rocksdb_iter_seek_to_last(it);
  shows(it, "c", "c20", 20);
  rocksdb_iter_prev(it);
  rocksdb_iter_prev(it);
  shows(it, "a", "a20", 20);
  rocksdb_iter_next(it);
  rocksdb_iter_next(it);
  shows(it, "c", "c20", 20);
  rocksdb_iter_prev(it);
  rocksdb_iter_prev(it);
  rocksdb_iter_prev(it);
  shows(it, NULL, NULL, 0);
  rocksdb_iter_seek(it, "b", 1);
  shows(it, "c", "c20", 20);
  rocksdb_iter_seek_for_prev(it, "bz", 2);
  EXPECT(rocksdb_iter_valid(it));
  rocksdb_iter_seek_for_prev(it, "a", 1);
  shows(it, "a", "a20", 20);
  rocksdb_iter_seek_for_prev(it, "", 0);
  shows(it, NULL, NULL, 0);
  rocksdb_iter_seek(it, "d", 1);
  shows(it, NULL, NULL, 0);
  rocksdb_iter_destroy(it);

  rocksdb_readoptions_set_iterate_lower_bound(t->read, "a\0", 2);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, "c", 1);
  it = rocksdb_create_iterator_cf(t->db, t->read, cf);
  rocksdb_iter_seek_to_first(it);
  rocksdb_iter_key(it, &size);
  EXPECT(size == 3);
  rocksdb_iter_next(it);
  shows(it, NULL, NULL, 0);
  rocksdb_iter_seek_to_last(it);
  rocksdb_iter_key(it, &size);
  EXPECT(size == 3);
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iterate_lower_bound(t->read, NULL, 0);
  rocksdb_readoptions_set_iterate_upper_bound(t->read, NULL, 0);
}

/* Expects an iterator over a history at a version of a key of one byte. */
static void shows_version(rocksdb_iterator_t *it, const char *key, uint64_t time, char type) {
  size_t size = 0;
  EXPECT(rocksdb_iter_valid(it));
  const char *bytes = rocksdb_iter_key(it, &size);
  EXPECT(size == 17 && *bytes == *key && number(bytes + 1, 8) == time && bytes[9] == type);
  bytes = rocksdb_iter_timestamp(it, &size);
  EXPECT(number(bytes, size) == time);
}

static void histories(test_db *t, family *cf) {
  size_t size = 9;
  char start[8];
  memcpy(start, ts(20), 8);
  read_at(t, 30);
  rocksdb_readoptions_set_iter_start_ts(t->read, start, 8);
  rocksdb_iterator_t *it = rocksdb_create_iterator_cf(t->db, t->read, cf);
  const struct {
    const char *key;
    uint64_t time;
    char type;
  } versions[] = {{"a", 30, 1}, {"a", 20, 1}, {"b", 30, 1},  {"b", 25, 0x14},
                  {"b", 20, 1}, {"c", 30, 1}, {"c", 20, 1}};
  rocksdb_iter_seek_to_first(it);
  for (int i = 0; i < 7; i++, rocksdb_iter_next(it)) {
    shows_version(it, versions[i].key, versions[i].time, versions[i].type);
    if (versions[i].type != 1) {
      rocksdb_iter_value(it, &size);
      EXPECT(size == 0);
    }
  }
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_seek(it, "b", 1);
  shows_version(it, "b", 30, 1);
  rocksdb_iter_seek_for_prev(it, "b", 1);
  EXPECT(rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iter_start_ts(t->read, NULL, 0);
}

static void batches(test_db *t, family *cf) {
  char *err = NULL;
  size_t size = 0;
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf_with_ts(batch, cf, "w", 1, ts(40), 8, "w40", 3);
  rocksdb_writebatch_delete_cf_with_ts(batch, cf, "c", 1, ts(40), 8);
  rocksdb_writebatch_singledelete_cf_with_ts(batch, cf, "w2", 2, ts(40), 8);
  const char *bytes = rocksdb_writebatch_data(batch, &size);
  EXPECT(size == 53 && memcmp(bytes + 14, "\x09w", 2) == 0 &&
         memcmp(bytes + 16, ts(40), 8) == 0 && memcmp(bytes + 24, "\x03w40", 4) == 0);
  rocksdb_write(t->db, t->write, batch, &err);
  OK(err);
  has_at(t, cf, "w", 39, NULL, 0);
  has_at(t, cf, "w", 40, "w40", 40);
  has_at(t, cf, "c", 40, NULL, 0);
  has_at(t, cf, "c", 39, "c30", 30);
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_put_cf(batch, cf, "w", 1, "v", 1);
  rocksdb_write(t->db, t->write, batch, &err);
  failed(&err, "must have timestamp(s) set");
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_delete_range_cf(batch, cf, "a", 1, "z", 1);
  rocksdb_write(t->db, t->write, batch, &err);
  failed(&err, "must have timestamp(s) set");
  rocksdb_writebatch_destroy(batch);
}

static void failures(test_db *t, family *cf) {
  char *err = NULL;
  size_t size = 0;
  const char *enabled = "column family ts that enables timestamp";
  const char *disabled = "column family default that does not enable timestamp";
  rocksdb_put_cf(t->db, t->write, cf, "k", 1, "v", 1, &err);
  failed(&err, enabled);
  rocksdb_delete_cf(t->db, t->write, cf, "k", 1, &err);
  failed(&err, enabled);
  rocksdb_delete_range_cf(t->db, t->write, cf, "a", 1, "z", 1, &err);
  failed(&err, enabled);
  rocksdb_merge_cf(t->db, t->write, cf, "k", 1, "v", 1, &err);
  failed(&err, enabled);
  rocksdb_put_cf_with_ts(t->db, t->write, cf, "k", 1, ts(1), 4, "v", 1, &err);
  failed(&err, "Timestamp sizes mismatch: expect 8, 4 given");
  rocksdb_put_with_ts(t->db, t->write, "k", 1, ts(1), 8, "v", 1, &err);
  failed(&err, disabled);
  rocksdb_delete_with_ts(t->db, t->write, "k", 1, ts(1), 8, &err);
  failed(&err, disabled);
  rocksdb_singledelete_with_ts(t->db, t->write, "k", 1, ts(1), 8, &err);
  failed(&err, disabled);
  rocksdb_readoptions_set_timestamp(t->read, NULL, 0);
  EXPECT(rocksdb_get_cf(t->db, t->read, cf, "a", 1, &size, &err) == NULL);
  failed(&err, enabled);
  rocksdb_iterator_t *it = rocksdb_create_iterator_cf(t->db, t->read, cf);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_get_error(it, &err);
  failed(&err, enabled);
  rocksdb_iter_destroy(it);
  read_at(t, 5);
  EXPECT(rocksdb_get(t->db, t->read, "a", 1, &size, &err) == NULL);
  failed(&err, disabled);
  it = rocksdb_create_iterator(t->db, t->read);
  rocksdb_iter_get_error(it, &err);
  failed(&err, disabled);
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_timestamp(t->read, read_time, 4);
  EXPECT(rocksdb_get_cf(t->db, t->read, cf, "a", 1, &size, &err) == NULL);
  failed(&err, "Timestamp sizes mismatch: expect 8, 4 given");
}

/* A snapshot shows what was written before it, at any timestamp. */
static void snapshots(test_db *t, family *cf) {
  const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(t->db);
  put_at(t, cf, "s", 50, "s50");
  has_at(t, cf, "s", 60, "s50", 50);
  rocksdb_readoptions_set_snapshot(t->read, snapshot);
  has_at(t, cf, "s", 60, NULL, 0);
  rocksdb_readoptions_set_snapshot(t->read, NULL);
  rocksdb_release_snapshot(t->db, snapshot);
}

/* The low timestamp: reads below it fail, and a compaction removes what they would show. */
static void low_timestamps(test_db *t, family *cf) {
  char *err = NULL;
  size_t size = 0;
  rocksdb_increase_full_history_ts_low(t->db, cf, ts(22), 4, &err);
  failed(&err, "ts_low size mismatch");
  rocksdb_increase_full_history_ts_low(t->db, cf, ts(22), 8, &err);
  OK(err);
  rocksdb_increase_full_history_ts_low(t->db, cf, ts(21), 8, &err);
  failed(&err, "Cannot decrease full_history_ts_low");
  char *low = rocksdb_get_full_history_ts_low(t->db, cf, &size, &err);
  OK(err);
  EXPECT(number(low, size) == 22);
  rocksdb_free(low);
  rocksdb_compact_range_cf(t->db, cf, NULL, 0, NULL, 0);
  read_at(t, 20);
  EXPECT(rocksdb_get_cf(t->db, t->read, cf, "a", 1, &size, &err) == NULL);
  failed(&err, is_big_endian
                   ? "0000000000000014 is smaller than full_history_ts_low: 0000000000000016"
                   : "1400000000000000 is smaller than full_history_ts_low: 1600000000000000");
  has_at(t, cf, "a", 22, "a20", 20);
  has_at(t, cf, "b", 24, "b20", 20);
  has_at(t, cf, "b", 26, NULL, 0);
  rocksdb_compactoptions_t *compact = rocksdb_compactoptions_create();
  char raised[8];
  memcpy(raised, ts(27), 8);
  rocksdb_compactoptions_set_full_history_ts_low(compact, raised, 8);
  rocksdb_compact_range_cf_opt(t->db, cf, compact, NULL, 0, NULL, 0);
  rocksdb_compactoptions_destroy(compact);
  low = rocksdb_get_full_history_ts_low(t->db, cf, &size, &err);
  EXPECT(number(low, size) == 27);
  rocksdb_free(low);
}

/* What the compactions have left: RocksDB may keep more. */
static void history_ends(test_db *t, family *cf) {
  char start[8];
  memcpy(start, ts(0), 8);
  read_at(t, 30);
  rocksdb_readoptions_set_iter_start_ts(t->read, start, 8);
  rocksdb_iterator_t *it = rocksdb_create_iterator_cf(t->db, t->read, cf);
  rocksdb_iter_seek_to_first(it);
  shows_version(it, "a", 30, 1);
  rocksdb_iter_next(it);
  shows_version(it, "a", 20, 1);
  rocksdb_iter_next(it);
  rocksdb_iter_next(it);
  shows_version(it, "b", 30, 1);
  rocksdb_iter_next(it);
  shows_version(it, "c", 30, 1);
  rocksdb_iter_prev(it);
  shows_version(it, "b", 30, 1);
  rocksdb_iter_seek_to_last(it);
  shows_version(it, "c", 20, 1);
  rocksdb_iter_seek_for_prev(it, "a", 1);
  shows_version(it, "a", 20, 1);
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_iter_start_ts(t->read, NULL, 0);
}

/* The default family may have timestamps too. */
static void default_family(const char *directory) {
  char *err = NULL, *found = NULL;
  size_t size = 0, found_size = 0;
  test_db t = new_options(directory);
  rocksdb_comparator_t *order = comparator();
  rocksdb_options_set_comparator(t.options, order);
  open_db(&t, directory);
  rocksdb_put_with_ts(t.db, t.write, "", 0, ts(UINT64_MAX), 8, "", 0, &err);
  OK(err);
  rocksdb_put_with_ts(t.db, t.write, "", 0, ts(5), 8, "five", 4, &err);
  OK(err);
  read_at(&t, UINT64_MAX);
  has(&t, "", "");
  read_at(&t, UINT64_MAX - 1);
  const char *keys[] = {"", "k"};
  const size_t sizes[] = {0, 1};
  char *values[2], *times[2], *errors[2];
  size_t value_sizes[2], time_sizes[2];
  rocksdb_multi_get_with_ts(t.db, t.read, 2, keys, sizes, values, value_sizes, times, time_sizes,
                            errors);
  expect_value(values[0], value_sizes[0], "five");
  rocksdb_free(times[0]);
  EXPECT(values[1] == NULL && errors[0] == NULL && errors[1] == NULL);
  rocksdb_singledelete_with_ts(t.db, t.write, "", 0, ts(6), 8, &err);
  OK(err);
  EXPECT(rocksdb_get_with_ts(t.db, t.read, "", 0, &size, &found, &found_size, &err) == NULL);
  OK(err);
  rocksdb_delete_with_ts(t.db, t.write, "k", 1, ts(6), 8, &err);
  OK(err);
  rocksdb_put(t.db, t.write, "k", 1, "v", 1, &err);
  failed(&err, "enables timestamp");
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "a key with nine bytes", 21, "v", 1);
  rocksdb_write(t.db, t.write, batch, &err);
  failed(&err, "must have timestamp(s) set");
  rocksdb_writebatch_destroy(batch);
  close_db(&t);
  rocksdb_comparator_destroy(order);
}

/* Fails to create a family with a comparator. */
static void refused(test_db *t, rocksdb_comparator_t *order, const char *reason) {
  char *err = NULL;
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_options_set_comparator(options, order);
  EXPECT(rocksdb_create_column_family(t->db, options, "refused", &err) == NULL);
  failed(&err, reason);
  rocksdb_options_destroy(options);
  rocksdb_comparator_destroy(order);
}

/* The log has the versions with their timestamps. */
static void logs(test_db *t, family *cf) {
  char *err = NULL;
  size_t size = 0;
  uint64_t sequence = 0;
  uint64_t start = rocksdb_get_latest_sequence_number(t->db) + 1;
  put_at(t, cf, "l", 70, "l70");
  delete_at(t, cf, "l", 71);
  rocksdb_wal_iterator_t *it = rocksdb_get_updates_since(t->db, start, NULL, &err);
  OK(err);
  char records[2][16] = {"\x05\x01\x09l--------\x03l7", "\x04\x01\x09l"};
  records[0][15] = '0';
  encode(records[0] + 4, 70);
  encode(records[1] + 4, 71);
  const size_t sizes[] = {16, 12};
  for (int i = 0; i < 2; i++, rocksdb_wal_iter_next(it)) {
    EXPECT(rocksdb_wal_iter_valid(it));
    rocksdb_writebatch_t *batch = rocksdb_wal_iter_get_batch(it, &sequence);
    const char *bytes = rocksdb_writebatch_data(batch, &size);
    EXPECT(size == 12 + sizes[i] && memcmp(bytes + 12, records[i], sizes[i]) == 0);
    rocksdb_writebatch_destroy(batch);
  }
  EXPECT(!rocksdb_wal_iter_valid(it));
  rocksdb_wal_iter_destroy(it);
}

/* What fails in a family with timestamps, or with such a comparator. */
static void unsupported(test_db *t, family *cf, rocksdb_comparator_t *order) {
  char *err = NULL;
  rocksdb_delete_file_in_range_cf(t->db, cf, NULL, 0, NULL, 0, &err);
  failed(&err, "enables timestamp");
  read_at(t, 60);
  rocksdb_writebatch_wi_t *batch = rocksdb_writebatch_wi_create(0, 1);
  rocksdb_writebatch_wi_put_cf(batch, cf, "k", 1, "v", 1);
  rocksdb_write_writebatch_wi(t->db, t->write, batch, &err);
  failed(&err, "must have timestamp(s) set");
  rocksdb_iterator_t *it = rocksdb_writebatch_wi_create_iterator_with_base_cf(
      batch, rocksdb_create_iterator_cf(t->db, t->read, cf), cf);
  rocksdb_iter_get_error(it, &err);
  failed(&err, "enables timestamp");
  rocksdb_iter_destroy(it);
  rocksdb_writebatch_wi_destroy(batch);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_options_set_comparator(options, order);
  EXPECT(rocksdb_create_column_family_with_ttl(t->db, options, "ttl", 9, &err) == NULL);
  failed(&err, "cannot have both timestamps and a TTL");
  rocksdb_options_destroy(options);
}

static void refusals(test_db *t, family *cf) {
  char *err = NULL;
  size_t size = 0;
  refused(t, rocksdb_comparator_with_ts_create(NULL, nothing, compare, compare_timestamps,
                                               compare_keys, name, 4),
          "timestamps of 4 bytes");
  refused(t, rocksdb_comparator_with_ts_create(NULL, nothing, oldest_first, compare_timestamps,
                                               compare_keys, name, 8),
          "does not order timestamps");
  refused(t, rocksdb_comparator_with_ts_create(NULL, nothing, compare, compare_timestamps,
                                               backwards, name, 8),
          "does not order keys by their bytes");
  refused(t, rocksdb_comparator_with_ts_create(NULL, nothing, compare, NULL, NULL, name, 8),
          "cannot compare");
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf_with_ts(batch, cf, "k", 1, ts(1), 4, "v", 1);
  rocksdb_write(t->db, t->write, batch, &err);
  failed(&err, "Timestamp sizes mismatch");
  rocksdb_writebatch_clear(batch);
  family *plain = rocksdb_get_default_column_family_handle(t->db);
  rocksdb_writebatch_put_cf_with_ts(batch, plain, "k", 1, ts(1), 8, "v", 1);
  rocksdb_write(t->db, t->write, batch, &err);
  failed(&err, "does not enable timestamp");
  rocksdb_writebatch_destroy(batch);
  EXPECT(rocksdb_get_full_history_ts_low(t->db, plain, &size, &err) == NULL && size == 0);
  failed(&err, "does not enable timestamp");
  rocksdb_column_family_handle_destroy(plain);
  read_at(t, 60);
  rocksdb_readoptions_set_tailing(t->read, 1);
  rocksdb_iterator_t *it = rocksdb_create_iterator_cf(t->db, t->read, cf);
  rocksdb_iter_get_error(it, &err);
  failed(&err, "not tailing");
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_tailing(t->read, 0);
  rocksdb_put_cf_with_ts(t->db, t->write, NULL, "k", 1, ts(1), 8, "v", 1, &err);
  failed(&err, "the column family is null");
  rocksdb_put_cf_with_ts(t->db, t->write, cf, "k", 1, NULL, 8, "v", 1, &err);
  failed(&err, "Invalid argument");
  rocksdb_singledelete_cf_with_ts(t->db, NULL, cf, "k", 1, ts(1), 8, &err);
  failed(&err, "the write options is null");
  EXPECT(rocksdb_get_with_ts(NULL, t->read, "k", 1, &size, NULL, NULL, &err) == NULL);
  failed(&err, "the database is null");
  rocksdb_multi_get_with_ts(t->db, t->read, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
  rocksdb_writebatch_put_cf_with_ts(NULL, cf, "k", 1, ts(1), 8, "v", 1);
  EXPECT(rocksdb_iter_timestamp(NULL, &size) == NULL && size == 0);
  rocksdb_readoptions_set_timestamp(NULL, NULL, 0);
}

static void run(const char *directory) {
  char *err = NULL;
  char other[1024];
  test_db t = open_new(directory);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_comparator_t *order = comparator();
  rocksdb_options_set_comparator(options, order);
  family *cf = rocksdb_create_column_family(t.db, options, "ts", &err);
  OK(err);
  fill(&t, cf);
  gets(&t, cf);
  iterators(&t, cf);
  histories(&t, cf);
  batches(&t, cf);
  failures(&t, cf);
  snapshots(&t, cf);
  low_timestamps(&t, cf);
  history_ends(&t, cf);
  refusals(&t, cf);
  logs(&t, cf);
  unsupported(&t, cf, order);
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t.db);

  /* A family keeps its timestamps. */
  const char *names[] = {"default", "ts"};
  const rocksdb_options_t *plain[] = {t.options, t.options};
  family *families[2];
  EXPECT(rocksdb_open_column_families(t.options, directory, 2, names, plain, families, &err) ==
         NULL);
  failed(&err, "comparator");
  const rocksdb_options_t *both[] = {t.options, options};
  t.db = rocksdb_open_column_families(t.options, directory, 2, names, both, families, &err);
  OK(err);
  has_at(&t, families[1], "a", 30, "a30", 30);
  read_at(&t, 26);
  size_t size = 0;
  EXPECT(rocksdb_get_cf(t.db, t.read, families[1], "a", 1, &size, &err) == NULL);
  failed(&err, "is smaller than full_history_ts_low");
  rocksdb_column_family_handle_destroy(families[0]);
  rocksdb_column_family_handle_destroy(families[1]);
  rocksdb_options_destroy(options);
  close_db(&t);
  rocksdb_comparator_destroy(order);

  snprintf(other, sizeof other, "%s-default", directory);
  default_family(other);
}

void test_timestamps(const char *directory) { in_both_byte_orders(run, directory); }
