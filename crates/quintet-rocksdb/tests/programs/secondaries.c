/* Secondary instances read what a primary one has written. */
#include "test.h"

static const char *const refused = "Not supported operation in secondary mode.";

/* A secondary instance writes nothing, by any function. */
static void test_refused(test_db *s, family *users, const char *file) {
  char *err = NULL;
  rocksdb_put(s->db, s->write, "k", 1, "x", 1, &err);
  failed(&err, refused);
  rocksdb_delete_cf(s->db, s->write, users, "k", 1, &err);
  failed(&err, refused);
  rocksdb_merge(s->db, s->write, "k", 1, "x", 1, &err);
  failed(&err, refused);
  rocksdb_delete_range_cf(s->db, s->write, users, "a", 1, "z", 1, &err);
  failed(&err, refused);
  rocksdb_delete_file_in_range(s->db, NULL, 0, NULL, 0, &err);
  failed(&err, refused);
  rocksdb_delete_file_in_range_cf(s->db, users, NULL, 0, NULL, 0, &err);
  failed(&err, refused);
  rocksdb_suggest_compact_range(s->db, "a", 1, "z", 1, &err);
  failed(&err, refused);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "k", 1, "x", 1);
  rocksdb_write(s->db, s->write, batch, &err);
  failed(&err, refused);
  rocksdb_writebatch_destroy(batch);
  EXPECT(rocksdb_create_column_family(s->db, s->options, "new", &err) == NULL);
  failed(&err, refused);
  rocksdb_drop_column_family(s->db, users, &err);
  failed(&err, refused);
  rocksdb_ingestexternalfileoptions_t *ingest = rocksdb_ingestexternalfileoptions_create();
  rocksdb_ingest_external_file(s->db, &file, 1, ingest, &err);
  failed(&err, refused);
  rocksdb_ingestexternalfileoptions_destroy(ingest);
  EXPECT(rocksdb_get_updates_since(s->db, 0, NULL, &err) == NULL);
  failed(&err, refused);
}

static void test_reads(test_db *p, test_db *s, family *of_p, family *of_s) {
  char *err = NULL;
  rocksdb_iterator_t *it = rocksdb_create_iterator(s->db, s->read);
  const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(s->db);
  const uint64_t number = rocksdb_get_latest_sequence_number(s->db);
  put(p, "k", "2");
  put(p, "l", "2");
  put_in(p, of_p, "k", "users 2");
  has(s, "k", "1");
  has(s, "l", NULL);
  has_in(s, of_s, "k", "users 1");
  EXPECT(rocksdb_get_latest_sequence_number(s->db) == number);
  rocksdb_try_catch_up_with_primary(s->db, &err);
  OK(err);
  has(s, "k", "2");
  has(s, "l", "2");
  has_in(s, of_s, "k", "users 2");
  EXPECT(rocksdb_get_latest_sequence_number(s->db) > number);
  /* Iterators and snapshots stay at their moment. */
  rocksdb_iter_seek_to_first(it);
  size_t size = 0;
  const char *value = rocksdb_iter_value(it, &size);
  EXPECT(is("1", value, size));
  rocksdb_iter_next(it);
  EXPECT(!rocksdb_iter_valid(it));
  rocksdb_iter_destroy(it);
  rocksdb_readoptions_set_snapshot(s->read, snapshot);
  has(s, "k", "1");
  rocksdb_readoptions_set_snapshot(s->read, NULL);
  rocksdb_release_snapshot(s->db, snapshot);
}

void test_secondaries(const char *directory) {
  char *err = NULL;
  char file[512];
  snprintf(file, sizeof file, "%s.sst", directory);
  test_db p = open_new(directory);
  family *users = rocksdb_create_column_family(p.db, p.options, "users", &err);
  OK(err);
  put(&p, "k", "1");
  put_in(&p, users, "k", "users 1");
  test_db s = {NULL, rocksdb_options_create(), rocksdb_readoptions_create(),
               rocksdb_writeoptions_create()};
  const char *names[] = {"default", "users"};
  const rocksdb_options_t *options[] = {s.options, s.options};
  family *handles[2] = {NULL, NULL};
  EXPECT(rocksdb_open_as_secondary(s.options, "/none", "/none", &err) == NULL);
  failed(&err, "does not exist");
  s.db = rocksdb_open_as_secondary_column_families(s.options, directory, "/none", 2, names,
                                                   options, handles, &err);
  OK(err);
  test_reads(&p, &s, users, handles[1]);
  test_refused(&s, handles[1], file);
  has(&p, "k", "2");
  has_in(&p, users, "k", "users 2");
  rocksdb_try_catch_up_with_primary(p.db, &err);
  failed(&err, "Supported only by secondary instance");
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_column_family_handle_destroy(users);
  rocksdb_close(s.db);
  /* The primary instance goes on after it. */
  put(&p, "k", "3");
  s.db = rocksdb_open_as_secondary(s.options, directory, "/none", &err);
  OK(err);
  has(&s, "k", "3");
  rocksdb_close(s.db);
  rocksdb_close(p.db);
  /* Without a primary instance. */
  s.db = rocksdb_open_as_secondary(s.options, directory, "/none", &err);
  OK(err);
  has(&s, "k", "3");
  rocksdb_try_catch_up_with_primary(s.db, &err);
  OK(err);
  rocksdb_put(s.db, s.write, "k", 1, "x", 1, &err);
  failed(&err, "read");
  close_db(&s);
  free_options(&p);
}
