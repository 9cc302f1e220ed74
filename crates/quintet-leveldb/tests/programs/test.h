/* What the tests share. */
#ifndef TEST_H
#define TEST_H

#include <leveldb/c.h>

#define API(name) leveldb_##name
#include "store.h"

#define TEST(name) void test_##name(const char *directory);
#include "tests.def"
#undef TEST

#endif
