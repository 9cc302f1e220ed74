/* Runs the tests that are named: main DIRECTORY NAME... */
#include "test.h"

static const struct {
  const char *name;
  void (*run)(const char *directory);
} tests[] = {
    {"callbacks", test_callbacks},
    {"closed", test_closed},
    {"forked", test_forked},
    {"keys", test_keys},
    {"loads", test_loads},
    {"merges", test_merges},
    {"mounts", test_mounts},
    {"nulls", test_nulls},
    {"reads", test_reads},
    {"snapshots", test_snapshots},
    {"tables", test_tables},
    {"threads", test_threads},
    {"transactions", test_transactions},
    {"tree", test_tree},
    {"wrong_handles", test_wrong_handles},
};

int main(int count, char **arguments) {
  EXPECT(count >= 3);
  for (int i = 2; i < count; i++) {
    bool is_known = false;
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++) {
      if (strcmp(tests[t].name, arguments[i]) != 0) continue;
      char directory[4096];
      int size = snprintf(directory, sizeof directory, "%s.%s", arguments[1], arguments[i]);
      EXPECT(size > 0 && (size_t)size < sizeof directory);
      tests[t].run(directory);
      is_known = true;
    }
    EXPECT(is_known);
  }
  return 0;
}
