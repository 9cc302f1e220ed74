/* Opening, destroying and repairing. */
#include "test.h"

static void write_file(const char *directory, const char *name, const char *text) {
  char path[4200];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "w");
  EXPECT(file != NULL);
  fputs(text, file);
  fclose(file);
}

void test_management(const char *directory) {
  char *err = NULL;
  char path[4200];
  test_db t = open_new(directory);
  put(&t, "key", "value");

  /* The directory is locked. */
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "IO error: lock ");
  leveldb_destroy_db(t.options, directory, &err);
  failed(&err, "IO error: lock ");
  leveldb_repair_db(t.options, directory, &err);
  failed(&err, "IO error: lock ");
  leveldb_close(t.db);

  leveldb_options_set_error_if_exists(t.options, 1);
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "exists (error_if_exists is true)");
  leveldb_options_set_error_if_exists(t.options, 0);
  leveldb_options_set_create_if_missing(t.options, 0);
  leveldb_repair_db(t.options, directory, &err);
  OK(err);
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  has(&t, "key", "value");
  leveldb_close(t.db);

  /* Files of others stay. */
  write_file(directory, "notes", "mine");
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  snprintf(path, sizeof path, "%s/notes", directory);
  EXPECT(access(path, F_OK) == 0);
  snprintf(path, sizeof path, "%s/catalog", directory);
  EXPECT(access(path, F_OK) != 0);
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "does not exist (create_if_missing is false)");
  leveldb_repair_db(t.options, directory, &err);
  failed(&err, "there is no database");

  /* A directory of LevelDB is not read and not written. */
  write_file(directory, "CURRENT", "MANIFEST-000001\n");
  leveldb_options_set_create_if_missing(t.options, 1);
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "is a database of LevelDB or RocksDB");
  snprintf(path, sizeof path, "%s/CURRENT", directory);
  unlink(path);
  snprintf(path, sizeof path, "%s/notes", directory);
  unlink(path);

  /* A directory without files of others is removed. */
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  leveldb_close(t.db);
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);
  EXPECT(access(directory, F_OK) != 0);

  /* Damage is found by a repair. */
  t.db = leveldb_open(t.options, directory, &err);
  OK(err);
  put(&t, "key", "value");
  leveldb_close(t.db);
  write_file(directory, "catalog", "this is no catalog of a database, and it is long enough");
  leveldb_repair_db(t.options, directory, &err);
  failed(&err, "Corruption: ");
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "Corruption: ");
  leveldb_destroy_db(t.options, directory, &err);
  OK(err);

  /* Engines of the environment. */
  const char *engines[] = {"slm", "btree", "tph", "default=btree,slm"};
  for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
    setenv("QUINTET_ENGINE", engines[i], 1);
    t.db = leveldb_open(t.options, directory, &err);
    OK(err);
    put(&t, "key", engines[i]);
    leveldb_close(t.db);
    /* An existing table keeps its engine, so the variable is not read. */
    setenv("QUINTET_ENGINE", "none", 1);
    t.db = leveldb_open(t.options, directory, &err);
    OK(err);
    has(&t, "key", engines[i]);
    leveldb_close(t.db);
    leveldb_destroy_db(t.options, directory, &err);
    OK(err);
  }
  setenv("QUINTET_ENGINE", "trie", 1);
  EXPECT(leveldb_open(t.options, directory, &err) == NULL);
  failed(&err, "keeps no key order");
  unsetenv("QUINTET_ENGINE");
  free_options(&t);
}
