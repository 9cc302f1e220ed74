/* Properties, sizes and compaction. */
#include "test.h"

static char *property(test_db *t, const char *name) { return leveldb_property_value(t->db, name); }

void test_properties(const char *directory) {
  test_db t = open_new(directory);
  const char *starts[] = {"a", "k0500", "z", "k"};
  const char *limits[] = {"k0500", "z", "zz", "a"};
  size_t start_sizes[] = {1, 5, 1, 1}, limit_sizes[] = {5, 1, 2, 1};
  uint64_t sizes[4] = {9, 9, 9, 9};
  leveldb_approximate_sizes(t.db, 4, starts, start_sizes, limits, limit_sizes, sizes);
  for (int i = 0; i < 4; i++) EXPECT(sizes[i] == 0);

  char key[16], value[201];
  memset(value, 'v', 200);
  value[200] = 0;
  for (int i = 0; i < 1000; i++) {
    snprintf(key, sizeof key, "k%04d", i);
    put(&t, key, value);
  }
  leveldb_approximate_sizes(t.db, 4, starts, start_sizes, limits, limit_sizes, sizes);
  EXPECT(sizes[0] > 20000 && sizes[0] < 1000000);
  EXPECT(sizes[1] > 20000 && sizes[1] < 1000000);
  EXPECT(sizes[2] < sizes[1] / 4 && sizes[3] == 0);

  leveldb_compact_range(t.db, "a", 1, NULL, 0);
  has(&t, "k0000", value);

  const char *names[] = {"leveldb.stats", "leveldb.sstables", "leveldb.num-files-at-level0",
                         "leveldb.num-files-at-level6", "leveldb.approximate-memory-usage"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *text = property(&t, names[i]);
    EXPECT(text != NULL && strlen(text) > 0);
    leveldb_free(text);
  }
  const char *others[] = {"leveldb.num-files-at-level7", "leveldb.num-files-at-level",
                          "leveldb.num-files-at-level-1", "leveldb.none", "stats", ""};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    EXPECT(property(&t, others[i]) == NULL);
  }
  char *memory = property(&t, "leveldb.approximate-memory-usage");
  EXPECT(atoll(memory) > 0);
  leveldb_free(memory);
  close_db(&t);
}
