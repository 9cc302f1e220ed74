/* What the examples share: a call must succeed, a directory for the database. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>

#include "quintet.h"

/* Runs a call whose last argument is `&error`, and ends the program if it fails. */
#define CHECK(call)                                                             \
  do {                                                                          \
    quintet_error *error = NULL;                                                \
    if ((call) != QUINTET_OK) {                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,                        \
              quintet_error_message(error));                                    \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

/* Ends the program if a condition does not hold. */
#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__,          \
              #condition);                                                      \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

#define S quintet_string

static inline bool equals(quintet_slice slice, const char *text) {
  return slice.size == strlen(text) && memcmp(slice.data, text, slice.size) == 0;
}

/* Opens a database with a memory budget of 32 MiB. The address space that a database reserves
 * grows with the budget, and valgrind has little of it. */
static inline quintet_database *open_small(const char *directory) {
  quintet_options *options = NULL;
  quintet_database *database = NULL;
  CHECK(quintet_options_new(&options, &error));
  CHECK(quintet_options_set(options, S("memory_budget"), S("33554432"), &error));
  CHECK(quintet_open(S(directory), options, &database, &error));
  CHECK(quintet_options_free(options, &error));
  return database;
}

/* Opens the database in the directory of the first argument. */
static inline quintet_database *open_database(int count, char **arguments) {
  EXPECT(count == 2);
  return open_small(arguments[1]);
}

static inline void close_database(quintet_database *database) {
  CHECK(quintet_close(database, &error));
  CHECK(quintet_database_free(database, &error));
}

#endif
