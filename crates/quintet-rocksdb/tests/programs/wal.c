/* The iterator over the log: order, sequence numbers, families, what is kept. */
#include "test.h"

typedef rocksdb_wal_iterator_t wal;

static wal *updates_since(test_db *t, uint64_t number) {
  char *err = NULL;
  wal *it = rocksdb_get_updates_since(t->db, number, NULL, &err);
  OK(err);
  return it;
}

static void at_end(wal *it) {
  char *err = NULL;
  uint64_t number = 7;
  EXPECT(!rocksdb_wal_iter_valid(it));
  EXPECT(rocksdb_wal_iter_get_batch(it, &number) == NULL && number == 0);
  rocksdb_wal_iter_status(it, &err);
  OK(err);
}

/* Fails unless the iterator is at a batch with the records, without the header. Returns the
 * sequence number, which is in the header too, and moves the iterator. */
static uint64_t next_is(wal *it, const char *records, size_t size, int count) {
  char *err = NULL;
  uint64_t number = 0, in_header = 0;
  size_t all = 0;
  EXPECT(rocksdb_wal_iter_valid(it));
  rocksdb_wal_iter_status(it, &err);
  OK(err);
  rocksdb_writebatch_t *batch = rocksdb_wal_iter_get_batch(it, &number);
  const char *data = rocksdb_writebatch_data(batch, &all);
  EXPECT(rocksdb_writebatch_count(batch) == count);
  EXPECT(all == 12 + size && memcmp(data + 12, records, size) == 0);
  memcpy(&in_header, data, sizeof in_header);
  EXPECT(number > 0 && in_header == number);
  rocksdb_writebatch_destroy(batch);
  rocksdb_wal_iter_next(it);
  return number;
}

#define NEXT_IS(it, records, count) next_is(it, records, sizeof records - 1, count)

/* The numbers that RocksDB's programs use lead to the next batch. */
static void numbers_lead(test_db *t) {
  char *err = NULL;
  put(t, "a", "1");
  const uint64_t latest = rocksdb_get_latest_sequence_number(t->db);
  wal *it = updates_since(t, latest);
  at_end(it);
  put(t, "b", "2");
  delete_key(t, "b");
  put(t, "c", "3");
  /* An iterator at the end goes on. */
  rocksdb_wal_iter_next(it);
  const uint64_t first = NEXT_IS(it, "\x01\x01" "b\x01" "2", 1);
  const uint64_t second = NEXT_IS(it, "\x00\x01" "b", 1);
  const uint64_t third = NEXT_IS(it, "\x01\x01" "c\x01" "3", 1);
  at_end(it);
  rocksdb_wal_iter_destroy(it);
  EXPECT(latest < first && first < second && second < third);
  EXPECT(third <= rocksdb_get_latest_sequence_number(t->db));
  const uint64_t numbers[] = {latest, latest + 1, first, first + 1, second, second + 1, third};
  const int skipped[] = {0, 0, 0, 1, 1, 2, 2};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const uint64_t expected[] = {first, second, third};
    uint64_t number = 0;
    it = updates_since(t, numbers[i]);
    for (int batch = skipped[i]; batch < 3; batch++) {
      EXPECT(rocksdb_wal_iter_valid(it));
      rocksdb_writebatch_destroy(rocksdb_wal_iter_get_batch(it, &number));
      EXPECT(number == expected[batch]);
      rocksdb_wal_iter_next(it);
    }
    at_end(it);
    rocksdb_wal_iter_destroy(it);
  }
  it = updates_since(t, third + 1);
  at_end(it);
  rocksdb_wal_iter_destroy(it);
  const uint64_t end = rocksdb_get_latest_sequence_number(t->db);
  EXPECT(rocksdb_get_updates_since(t->db, end + 1, NULL, &err) == NULL);
  failed(&err, "NotFound: Requested sequence not yet written in the db");
}

/* A batch has the records of the families that exist. */
static void families_are_numbered(test_db *t) {
  char *err = NULL;
  family *users = rocksdb_create_column_family(t->db, t->options, "users", &err);
  OK(err);
  family *gone = rocksdb_create_column_family(t->db, t->options, "a/gone", &err);
  OK(err);
  EXPECT(rocksdb_column_family_handle_get_id(users) == 1);
  wal *it = updates_since(t, rocksdb_get_latest_sequence_number(t->db));
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "", 0, "empty", 5);
  rocksdb_writebatch_put_cf(batch, users, "u", 1, "1", 1);
  rocksdb_writebatch_put_cf(batch, gone, "g", 1, "1", 1);
  rocksdb_writebatch_delete_cf(batch, users, "v", 1);
  rocksdb_write(t->db, t->write, batch, &err);
  OK(err);
  rocksdb_writebatch_destroy(batch);
  put_in(t, gone, "g", "2");
  rocksdb_drop_column_family(t->db, gone, &err);
  OK(err);
  rocksdb_delete_range_cf(t->db, t->write, users, "a", 1, "z", 1, &err);
  OK(err);
  /* A family that is created meanwhile. */
  family *late = rocksdb_create_column_family(t->db, t->options, "a/gone", &err);
  OK(err);
  put_in(t, late, "k", "v");
  rocksdb_wal_iter_next(it);
  NEXT_IS(it, "\x01\x00\x05" "empty\x05\x01\x01" "u\x01" "1\x04\x01\x01" "v", 3);
  NEXT_IS(it, "\x0e\x01\x01" "a\x01" "z", 1);
  NEXT_IS(it, "\x05\x03\x01" "k\x01" "v", 1);
  at_end(it);
  rocksdb_wal_iter_destroy(it);
  rocksdb_column_family_handle_destroy(users);
  rocksdb_column_family_handle_destroy(gone);
  rocksdb_column_family_handle_destroy(late);
}

/* A batch of the iterator can be written to another database. */
static void batch_is_copied(test_db *t, const char *directory) {
  char *err = NULL, path[4200];
  snprintf(path, sizeof path, "%s.copy", directory);
  test_db copy = open_new(path);
  wal *it = updates_since(t, rocksdb_get_latest_sequence_number(t->db));
  put(t, "copied", "yes");
  rocksdb_wal_iter_next(it);
  rocksdb_writebatch_t *batch = rocksdb_wal_iter_get_batch(it, NULL);
  rocksdb_write(copy.db, copy.write, batch, &err);
  OK(err);
  has(&copy, "copied", "yes");
  rocksdb_writebatch_destroy(batch);
  rocksdb_wal_iter_destroy(it);
  close_db(&copy);
}

/* Writes 10 MB, and waits until the tables have it. Each flush begins a new file of the log. */
static void write_much(test_db *t) {
  char *err = NULL;
  static char value[100000];
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < 10; i++) {
      rocksdb_put(t->db, t->write, "much", 4, value, sizeof value, &err);
      OK(err);
    }
    rocksdb_flush(t->db, flush, &err);
    OK(err);
  }
  rocksdb_flushoptions_destroy(flush);
}

/* The log stays for an open iterator, and as long as the options say. */
static void log_is_kept(const char *directory, const char *option, bool is_kept) {
  char *err = NULL;
  test_db t = new_options(directory);
  rocksdb_get_options_from_string(t.options, option, t.options, &err);
  OK(err);
  /* The memory of the database bounds the size of a file of the log. */
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rocksdb_cache_t *cache = rocksdb_cache_create_lru(1 << 20);
  rocksdb_block_based_options_set_block_cache(table, cache);
  rocksdb_options_set_block_based_table_factory(t.options, table);
  rocksdb_options_set_write_buffer_size(t.options, 1 << 20);
  open_db(&t, directory);
  const uint64_t before = rocksdb_get_latest_sequence_number(t.db);
  wal *it = updates_since(&t, before);
  put(&t, "first", "1");
  write_much(&t);
  rocksdb_wal_iter_next(it);
  NEXT_IS(it, "\x01\x05" "first\x01" "1", 1);
  rocksdb_wal_iter_destroy(it);
  rocksdb_close(t.db);
  open_db(&t, directory);
  if (is_kept) {
    it = updates_since(&t, before);
    NEXT_IS(it, "\x01\x05" "first\x01" "1", 1);
    rocksdb_wal_iter_destroy(it);
  } else {
    EXPECT(rocksdb_get_updates_since(t.db, before, NULL, &err) == NULL);
    failed(&err, "NotFound: ");
  }
  /* From the start of what there is. */
  it = updates_since(&t, 0);
  rocksdb_wal_iter_destroy(it);
  rocksdb_block_based_options_destroy(table);
  rocksdb_cache_destroy(cache);
  close_db(&t);
}

static void wrong_calls(test_db *t) {
  char *err = NULL;
  rocksdb_wal_readoptions_t *options = rocksdb_wal_readoptions_create();
  BOTH(options, rocksdb_wal_readoptions_set_verify_checksums,
       rocksdb_wal_readoptions_get_verify_checksums, 0);
  wal *it = rocksdb_get_updates_since(t->db, 0, options, &err);
  OK(err);
  rocksdb_wal_readoptions_destroy(options);
  rocksdb_wal_readoptions_destroy(NULL);
  EXPECT(rocksdb_get_updates_since(NULL, 0, NULL, &err) == NULL);
  failed(&err, "the database is null");
  rocksdb_wal_iter_status(NULL, &err);
  failed(&err, "the iterator is null");
  rocksdb_wal_iter_next(NULL);
  EXPECT(!rocksdb_wal_iter_valid(NULL) && rocksdb_wal_iter_get_batch(NULL, NULL) == NULL);
  rocksdb_wal_iter_destroy(NULL);
  /* After the database was closed. */
  rocksdb_close(t->db);
  rocksdb_wal_iter_next(it);
  EXPECT(!rocksdb_wal_iter_valid(it));
  rocksdb_wal_iter_status(it, &err);
  failed(&err, "closed");
  rocksdb_wal_iter_destroy(it);
}

void test_wal(const char *directory) {
  char path[4200];
  test_db t = open_new(directory);
  wal *it = updates_since(&t, 0);
  at_end(it);
  rocksdb_wal_iter_destroy(it);
  numbers_lead(&t);
  families_are_numbered(&t);
  batch_is_copied(&t, directory);
  wrong_calls(&t);
  free_options(&t);
  snprintf(path, sizeof path, "%s.kept", directory);
  log_is_kept(path, "WAL_size_limit_MB=0", false);
  log_is_kept(path, "WAL_size_limit_MB=1", false);
  log_is_kept(path, "WAL_size_limit_MB=100", true);
  log_is_kept(path, "WAL_ttl_seconds=60", true);
}
