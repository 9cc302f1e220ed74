/* Runs the tests that are named: main DIRECTORY NAME... */
#include "test.h"

static const struct {
  const char *name;
  void (*run)(const char *directory);
} tests[] = {
    {"batches", test_batches},
    {"families", test_families},
    {"gets", test_gets},
    {"iterators", test_iterators},
    {"management", test_management},
    {"merges", test_merges},
    {"nulls", test_nulls},
    {"numbers", test_numbers},
    {"objects", test_objects},
    {"threads", test_threads},
    {"optimistic", test_optimistic},
    {"transactions", test_transactions},
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
