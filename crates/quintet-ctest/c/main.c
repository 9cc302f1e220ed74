/* Runs the tests that are named: main DIRECTORY NAME... The file `tests.def` of the library lists
 * its tests, each as TEST(name); `test_name` gets a directory of its own. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEST(name) void test_##name(const char *directory);
#include "tests.def"
#undef TEST

static const struct {
  const char *name;
  void (*run)(const char *directory);
} tests[] = {
#define TEST(name) {#name, test_##name},
#include "tests.def"
};

int main(int count, char **arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: main DIRECTORY NAME...\n");
    return 2;
  }
  for (int i = 2; i < count; i++) {
    bool is_known = false;
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++) {
      if (strcmp(tests[t].name, arguments[i]) != 0) continue;
      char directory[4096];
      int size = snprintf(directory, sizeof directory, "%s.%s", arguments[1], arguments[i]);
      if (size <= 0 || (size_t)size >= sizeof directory) return 2;
      tests[t].run(directory);
      is_known = true;
    }
    if (!is_known) {
      fprintf(stderr, "there is no test %s\n", arguments[i]);
      return 2;
    }
  }
  return 0;
}
