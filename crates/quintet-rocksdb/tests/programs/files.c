/* Files of sorted entries: written, refused, ingested. */
#include "test.h"

static rocksdb_sstfilewriter_t *writer;

static void begin(const char *file) {
  char *err = NULL;
  rocksdb_sstfilewriter_open(writer, file, &err);
  OK(err);
}

static void add(const char *key, const char *value) {
  char *err = NULL;
  rocksdb_sstfilewriter_put(writer, key, strlen(key), value, strlen(value), &err);
  OK(err);
}

static void finish(void) {
  char *err = NULL;
  rocksdb_sstfilewriter_finish(writer, &err);
  OK(err);
}

static void refusals(const char *file) {
  char *err = NULL;
  rocksdb_sstfilewriter_put(writer, "a", 1, "1", 1, &err);
  failed(&err, "not opened");
  rocksdb_sstfilewriter_finish(writer, &err);
  failed(&err, "not opened");
  rocksdb_sstfilewriter_open(writer, "/dev/null/file", &err);
  failed(&err, "IO error");
  begin(file);
  rocksdb_sstfilewriter_finish(writer, &err);
  failed(&err, "no entries");
  begin(file);
  add("b", "1");
  rocksdb_sstfilewriter_put(writer, "b", 1, "1", 1, &err);
  failed(&err, "ascending");
  rocksdb_sstfilewriter_delete(writer, "a", 1, &err);
  failed(&err, "ascending");
  finish();
  rocksdb_sstfilewriter_open(NULL, file, &err);
  failed(&err, "the writer is null");
}

/* Changes each byte of a file, and cuts it off: it is refused and nothing is written. */
static void damages(test_db *t, const char *file, const rocksdb_ingestexternalfileoptions_t *rules) {
  char bytes[4096];
  FILE *stream = fopen(file, "rb");
  size_t size = fread(bytes, 1, sizeof bytes, stream);
  fclose(stream);
  EXPECT(size > 0 && size < sizeof bytes);
  const char *files[] = {file};
  for (size_t i = 0; i < 2 * size; i++) {
    char *err = NULL;
    stream = fopen(file, "wb");
    if (i < size) bytes[i] ^= 1;
    EXPECT(fwrite(bytes, 1, i < size ? size : i - size, stream) == (i < size ? size : i - size));
    if (i < size) bytes[i] ^= 1;
    fclose(stream);
    rocksdb_ingest_external_file(t->db, files, 1, rules, &err);
    failed(&err, "Corruption");
  }
  has(t, "b", NULL);
  stream = fopen(file, "wb");
  EXPECT(fwrite(bytes, 1, size, stream) == size);
  fclose(stream);
}

void test_files(const char *directory) {
  char *err = NULL;
  char first[4200], second[4200];
  snprintf(first, sizeof first, "%s.first", directory);
  snprintf(second, sizeof second, "%s.second", directory);
  test_db t = new_options(directory);
  rocksdb_options_set_uint64add_merge_operator(t.options);
  rocksdb_options_set_allow_ingest_behind(t.options, 1);
  open_db(&t, directory);
  rocksdb_envoptions_t *env = rocksdb_envoptions_create();
  rocksdb_ingestexternalfileoptions_t *rules = rocksdb_ingestexternalfileoptions_create();
  rocksdb_ingestexternalfileoptions_set_snapshot_consistency(rules, 1);
  rocksdb_ingestexternalfileoptions_set_allow_global_seqno(rules, 1);
  rocksdb_ingestexternalfileoptions_set_allow_blocking_flush(rules, 1);
  writer = rocksdb_sstfilewriter_create(env, t.options);
  refusals(first);
  damages(&t, first, rules);

  /* Several blocks, with all kinds of entries. */
  uint64_t size = 0;
  const uint64_t two = 2;
  put(&t, "deleted", "1");
  put(&t, "range1", "1");
  put(&t, "range2", "1");
  rocksdb_put(t.db, t.write, "sum", 3, (const char *)&two, 8, &err);
  OK(err);
  begin(first);
  rocksdb_sstfilewriter_add(writer, "a", 1, "1", 1, &err);
  OK(err);
  rocksdb_sstfilewriter_delete(writer, "deleted", 7, &err);
  OK(err);
  rocksdb_sstfilewriter_delete_range(writer, "range", 5, "range9", 6, &err);
  OK(err);
  char key[16], value[200];
  memset(value, 'v', sizeof value);
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "k%06d", i);
    rocksdb_sstfilewriter_put(writer, key, strlen(key), value, sizeof value, &err);
    OK(err);
  }
  add("range2", "new");
  rocksdb_sstfilewriter_merge(writer, "sum", 3, (const char *)&two, 8, &err);
  OK(err);
  finish();
  rocksdb_sstfilewriter_file_size(writer, &size);
  EXPECT(size > 200000);
  begin(second);
  add("a", "2");
  finish();
  const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(t.db);
  const char *files[] = {first, second};
  rocksdb_ingest_external_file(t.db, files, 2, rules, &err);
  OK(err);
  has(&t, "a", "2");
  has(&t, "deleted", NULL);
  has(&t, "range1", NULL);
  has(&t, "range2", "new");
  size_t got = 0;
  char *sum = rocksdb_get(t.db, t.read, "sum", 3, &got, &err);
  OK(err);
  EXPECT(got == 8 && sum[0] == 4);
  rocksdb_free(sum);
  sum = rocksdb_get(t.db, t.read, "k000999", 7, &got, &err);
  EXPECT(got == sizeof value);
  rocksdb_free(sum);
  rocksdb_readoptions_set_snapshot(t.read, snapshot);
  has(&t, "a", NULL);
  has(&t, "deleted", "1");
  rocksdb_readoptions_set_snapshot(t.read, NULL);
  rocksdb_release_snapshot(t.db, snapshot);

  /* Into a family, behind what is there, and removed then. */
  family *cf = rocksdb_create_column_family(t.db, t.options, "cf", &err);
  OK(err);
  put_in(&t, cf, "a", "there");
  begin(second);
  add("a", "behind");
  add("b", "behind");
  finish();
  rocksdb_ingestexternalfileoptions_set_ingest_behind(rules, 1);
  rocksdb_ingestexternalfileoptions_set_move_files(rules, 1);
  files[0] = second;
  rocksdb_ingest_external_file_cf(t.db, cf, files, 1, rules, &err);
  OK(err);
  has_in(&t, cf, "a", "there");
  has_in(&t, cf, "b", "behind");
  EXPECT(access(second, F_OK) != 0);
  rocksdb_ingest_external_file_cf(t.db, cf, files, 1, rules, &err);
  failed(&err, "IO error");
  rocksdb_ingest_external_file_cf(t.db, cf, NULL, 1, rules, &err);
  failed(&err, "null");
  rocksdb_ingest_external_file(t.db, files, 1, NULL, &err);
  failed(&err, "options is null");
  rocksdb_sstfilewriter_destroy(writer);
  writer = rocksdb_sstfilewriter_create_with_comparator(env, t.options, NULL);
  rocksdb_sstfilewriter_destroy(writer);
  rocksdb_ingestexternalfileoptions_destroy(rules);
  rocksdb_envoptions_destroy(env);
  rocksdb_column_family_handle_destroy(cf);
  unlink(first);
  close_db(&t);
}
