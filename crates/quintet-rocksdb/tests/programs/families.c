/* Column families: each is a table, and each may have an engine of its own. */
#include "test.h"

void test_families(const char *directory) {
  char *err = NULL;
  size_t count = 0;
  test_db t = open_new(directory);
  rocksdb_options_t *tree = rocksdb_options_create();
  rocksdb_get_options_from_string(t.options, "engine=btree", tree, &err);
  OK(err);
  family *users = rocksdb_create_column_family(t.db, tree, "users", &err);
  OK(err);
  family *odd = rocksdb_create_column_family(t.db, t.options, "a name/of: its own", &err);
  OK(err);
  EXPECT(rocksdb_create_column_family(t.db, t.options, "users", &err) == NULL);
  failed(&err, "exists");
  EXPECT(rocksdb_column_family_handle_get_id(users) != rocksdb_column_family_handle_get_id(odd));
  char *name = rocksdb_column_family_handle_get_name(odd, &count);
  EXPECT(is("a name/of: its own", name, count));
  rocksdb_free(name);
  put(&t, "k", "default");
  put_in(&t, users, "k", "users");
  put_in(&t, odd, "k", "odd");
  family *first = rocksdb_get_default_column_family_handle(t.db);
  EXPECT(rocksdb_column_family_handle_get_id(first) == 0);
  has_in(&t, first, "k", "default");
  rocksdb_column_family_handle_destroy(first);
  rocksdb_delete_cf(t.db, t.write, odd, "k", 1, &err);
  OK(err);
  has(&t, "k", "default");
  has_in(&t, users, "k", "users");
  has_in(&t, odd, "k", NULL);
  put_in(&t, odd, "k", "odd");
  rocksdb_column_family_handle_destroy(users);
  rocksdb_column_family_handle_destroy(odd);
  /* Also while the database is open. */
  char **open_names = rocksdb_list_column_families(t.options, directory, &count, &err);
  OK(err);
  EXPECT(count == 3 && strcmp(open_names[2], "users") == 0);
  rocksdb_list_column_families_destroy(open_names, count);
  rocksdb_close(t.db);

  char **names = rocksdb_list_column_families(t.options, directory, &count, &err);
  OK(err);
  EXPECT(count == 3 && strcmp(names[0], "default") == 0 && strcmp(names[2], "users") == 0);
  EXPECT(strcmp(names[1], "a name/of: its own") == 0);

  /* All families must be opened. */
  EXPECT(rocksdb_open(t.options, directory, &err) == NULL);
  failed(&err, "Column families not opened: a name/of: its own, users");
  const char *order[] = {names[2], names[0], names[1]};
  const rocksdb_options_t *options[] = {tree, t.options, t.options};
  family *handles[3] = {NULL, NULL, NULL};
  EXPECT(rocksdb_open_column_families(t.options, directory, 1, order, options, handles, &err) ==
         NULL);
  failed(&err, "Default column family not specified");
  t.db = rocksdb_open_column_families(t.options, directory, 3, order, options, handles, &err);
  OK(err);
  EXPECT(rocksdb_column_family_handle_get_id(handles[1]) == 0);
  has_in(&t, handles[0], "k", "users");
  has_in(&t, handles[1], "k", "default");
  has_in(&t, handles[2], "k", "odd");
  has(&t, "k", "default");

  /* A dropped family can be read no more; the default one cannot be dropped. */
  rocksdb_drop_column_family(t.db, handles[1], &err);
  failed(&err, "default");
  rocksdb_drop_column_family(t.db, handles[0], &err);
  OK(err);
  EXPECT(rocksdb_get_cf(t.db, t.read, handles[0], "k", 1, &count, &err) == NULL);
  failed(&err, "NotFound");
  for (int i = 0; i < 3; i++) rocksdb_column_family_handle_destroy(handles[i]);
  rocksdb_close(t.db);
  rocksdb_list_column_families_destroy(names, 3);
  names = rocksdb_list_column_families(t.options, directory, &count, &err);
  OK(err);
  EXPECT(count == 2);
  rocksdb_list_column_families_destroy(names, count);

  /* Reading only, some families are enough. */
  const char *one[] = {"default"};
  t.db = rocksdb_open_for_read_only_column_families(t.options, directory, 1, one, options, handles,
                                                    0, &err);
  OK(err);
  has(&t, "k", "default");
  rocksdb_put(t.db, t.write, "k", 1, "v", 1, &err);
  failed(&err, "read-only");
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_options_destroy(tree);
  close_db(&t);
}
