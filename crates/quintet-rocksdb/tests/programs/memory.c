/* Environments in memory. RocksDB 7.8 passes this too, without `outlives`, `missing` and
 * `leftovers`. */
#include "test.h"

/* A path that no file of the machine has, so only memory has it. */
static const char path[] = "/quintet-none/above/db";

static test_db in(rocksdb_env_t *env) {
  test_db t = {NULL, rocksdb_options_create(), rocksdb_readoptions_create(),
               rocksdb_writeoptions_create()};
  rocksdb_options_set_create_if_missing(t.options, 1);
  rocksdb_options_set_env(t.options, env);
  return t;
}

/* A closed database stays under its environment and its path, and nowhere else. */
static void reopens(rocksdb_env_t *env, rocksdb_env_t *other) {
  char *err = NULL;
  size_t count = 0;
  test_db t = in(env), second = in(other);
  open_db(&t, path);
  put(&t, "key", "value");
  EXPECT(rocksdb_open(t.options, path, &err) == NULL);
  failed(&err, "lock");
  family *cf = rocksdb_create_column_family(t.db, t.options, "cf", &err);
  OK(err);
  rocksdb_column_family_handle_destroy(cf);
  rocksdb_close(t.db);
  EXPECT(access("/quintet-none", F_OK) != 0);
  open_db(&second, path);
  has(&second, "key", NULL);
  char **names = rocksdb_list_column_families(t.options, path, &count, &err);
  OK(err);
  EXPECT(count == 2 && strcmp(names[1], "cf") == 0);
  rocksdb_list_column_families_destroy(names, count);
  const char *families[] = {"default", "cf"};
  const rocksdb_options_t *options[] = {t.options, t.options};
  family *handles[2];
  t.db = rocksdb_open_column_families(t.options, "/quintet-none//above/db", 2, families, options,
                                      handles, &err);
  OK(err);
  has(&t, "key", "value");
  rocksdb_drop_column_family(t.db, handles[1], &err);
  OK(err);
  for (int i = 0; i < 2; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(t.db);
  rocksdb_options_set_create_if_missing(t.options, 0);
  open_db(&t, path);
  close_db(&t);
  close_db(&second);
}

/* Copies: a checkpoint in memory, and backups in memory and on disk. */
static void copies(rocksdb_env_t *env, rocksdb_env_t *disk, const char *directory) {
  char *err = NULL;
  test_db t = in(env);
  open_db(&t, path);
  put(&t, "key", "value");
  rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(t.db, &err);
  OK(err);
  rocksdb_checkpoint_create(checkpoint, "/quintet-none/above/copy", 0, &err);
  OK(err);
  rocksdb_checkpoint_object_destroy(checkpoint);
  rocksdb_backup_engine_options_t *options = rocksdb_backup_engine_options_create(directory);
  rocksdb_backup_engine_options_set_env(options, disk);
  rocksdb_backup_engine_t *engines[] = {rocksdb_backup_engine_open_opts(options, env, &err),
                                        rocksdb_backup_engine_open(t.options, "/q-none", &err)};
  OK(err);
  rocksdb_backup_engine_options_destroy(options);
  for (int i = 0; i < 2; i++) {
    rocksdb_backup_engine_create_new_backup(engines[i], t.db, &err);
    OK(err);
  }
  EXPECT(access(directory, F_OK) == 0 && access("/q-none", F_OK) != 0);
  rocksdb_close(t.db);
  rocksdb_restore_options_t *rules = rocksdb_restore_options_create();
  for (int i = 0; i < 2; i++) {
    rocksdb_destroy_db(t.options, path, &err);
    OK(err);
    rocksdb_backup_engine_restore_db_from_latest_backup(engines[i], path, path, rules, &err);
    OK(err);
    rocksdb_backup_engine_close(engines[i]);
    rocksdb_options_set_create_if_missing(t.options, 0);
    const char *const both[] = {path, "/quintet-none/above/copy"};
    for (int j = 0; j < 2; j++) {
      open_db(&t, both[j]);
      has(&t, "key", "value");
      rocksdb_close(t.db);
    }
  }
  rocksdb_restore_options_destroy(rules);
  free_options(&t);
}

/* Files to ingest, and the end of a database. */
static void ends(rocksdb_env_t *env) {
  char *err = NULL;
  size_t count = 0;
  const char *const files[] = {"/quintet-none/file"};
  test_db t = in(env);
  open_db(&t, path);
  rocksdb_envoptions_t *none = rocksdb_envoptions_create();
  rocksdb_sstfilewriter_t *writer = rocksdb_sstfilewriter_create(none, t.options);
  rocksdb_sstfilewriter_open(writer, files[0], &err);
  OK(err);
  rocksdb_sstfilewriter_put(writer, "of a file", 9, "v", 1, &err);
  OK(err);
  rocksdb_sstfilewriter_finish(writer, &err);
  OK(err);
  rocksdb_sstfilewriter_destroy(writer);
  rocksdb_envoptions_destroy(none);
  rocksdb_ingestexternalfileoptions_t *rules = rocksdb_ingestexternalfileoptions_create();
  rocksdb_ingest_external_file(t.db, files, 1, rules, &err);
  OK(err);
  rocksdb_ingestexternalfileoptions_destroy(rules);
  has(&t, "of a file", "v");
  rocksdb_destroy_db(t.options, path, &err);
  failed(&err, "lock");
  rocksdb_close(t.db);
  rocksdb_destroy_db(t.options, path, &err);
  OK(err);
  char **names = rocksdb_list_column_families(t.options, path, &count, &err);
  failed(&err, "IO error");
  EXPECT(count == 0);
  rocksdb_list_column_families_destroy(names, count);
  rocksdb_options_set_create_if_missing(t.options, 0);
  EXPECT(rocksdb_open(t.options, path, &err) == NULL);
  failed(&err, "does not exist");
  free_options(&t);
}

/* A database goes on after its environment was freed. RocksDB does not allow that. */
static void outlives(void) {
  char *err = NULL;
  rocksdb_env_t *env = rocksdb_create_mem_env();
  test_db t = in(env);
  rocksdb_create_dir_if_missing(env, "/quintet-none", &err);
  OK(err);
  open_db(&t, path);
  rocksdb_env_destroy(env);
  rocksdb_options_set_env(t.options, NULL);
  put(&t, "key", "value");
  rocksdb_flush_wal(t.db, 1, &err);
  OK(err);
  has(&t, "key", "value");
  close_db(&t);
}

/* Without a memory file system, each use of the environment fails. */
static void missing(const char *directory) {
  char *err = NULL;
  size_t count = 0;
  setenv("QUINTET_MEMORY_DIRECTORY", "/quintet-none", 1);
  rocksdb_env_t *env = rocksdb_create_mem_env();
  unsetenv("QUINTET_MEMORY_DIRECTORY");
  test_db t = in(env);
  EXPECT(rocksdb_open(t.options, directory, &err) == NULL);
  failed(&err, "there is no memory file system");
  rocksdb_destroy_db(t.options, directory, &err);
  failed(&err, "there is no memory file system");
  EXPECT(rocksdb_list_column_families(t.options, directory, &count, &err) == NULL);
  failed(&err, "there is no memory file system");
  rocksdb_create_dir_if_missing(env, directory, &err);
  failed(&err, "there is no memory file system");
  free_options(&t);
  rocksdb_env_destroy(env);
}

/* Environments in a directory that is named leave nothing there. */
static void leftovers(const char *directory) {
  char *err = NULL;
  setenv("QUINTET_MEMORY_DIRECTORY", directory, 1);
  rocksdb_env_t *disk = rocksdb_create_default_env();
  rocksdb_create_dir_if_missing(disk, directory, &err);
  OK(err);
  rocksdb_env_destroy(disk);
  rocksdb_env_t *env = rocksdb_create_mem_env();
  unsetenv("QUINTET_MEMORY_DIRECTORY");
  test_db t = in(env);
  rocksdb_env_destroy(env);
  open_db(&t, path);
  EXPECT(rmdir(directory) != 0);
  close_db(&t);
  EXPECT(rmdir(directory) == 0);
}

void test_memory(const char *directory) {
  char other[4200];
  rocksdb_env_t *env = rocksdb_create_mem_env(), *second = rocksdb_create_mem_env();
  rocksdb_env_t *disk = rocksdb_create_default_env();
  EXPECT(env != NULL && second != NULL);
  reopens(env, second);
  snprintf(other, sizeof other, "%s.backups", directory);
  copies(env, disk, other);
  ends(env);
  rocksdb_env_destroy(env);
  rocksdb_env_destroy(second);
  rocksdb_env_destroy(disk);
  outlives();
  missing(directory);
  snprintf(other, sizeof other, "%s.memory", directory);
  leftovers(other);
}
