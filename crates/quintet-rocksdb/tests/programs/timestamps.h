/* Column families with timestamps: the comparator, and writes and reads at a time. */
#ifndef TIMESTAMPS_H
#define TIMESTAMPS_H
#include "test.h"

/* The byte order of timestamps. */
static bool is_big_endian;

static uint64_t decode(const char *bytes) {
  uint64_t number = 0;
  for (int i = 0; i < 8; i++) number |= (uint64_t)(unsigned char)bytes[i] << 8 * (is_big_endian ? 7 - i : i);
  return number;
}

static void encode(char *bytes, uint64_t number) {
  for (int i = 0; i < 8; i++) bytes[i] = (char)(number >> 8 * (is_big_endian ? 7 - i : i));
}

/* Runs a test twice, in directories of their own. */
static void in_both_byte_orders(void (*run)(const char *directory), const char *directory) {
  char other[4200];
  run(directory);
  snprintf(other, sizeof other, "%s-big-endian", directory);
  is_big_endian = true;
  run(other);
  is_big_endian = false;
}

static int order(int difference) { return difference < 0 ? -1 : difference > 0; }

static int compare_bytes(const char *a, size_t a_size, const char *b, size_t b_size) {
  int difference = memcmp(a, b, a_size < b_size ? a_size : b_size);
  return difference != 0 ? order(difference) : (a_size > b_size) - (a_size < b_size);
}

static int compare_timestamps(void *state, const char *a, size_t a_size, const char *b,
                              size_t b_size) {
  EXPECT(state == NULL && a_size == 8 && b_size == 8);
  uint64_t one = decode(a), other = decode(b);
  return (one > other) - (one < other);
}

static int compare_keys(void *state, const char *a, size_t a_size, unsigned char a_has,
                        const char *b, size_t b_size, unsigned char b_has) {
  EXPECT(state == NULL);
  return compare_bytes(a, a_size - (a_has ? 8 : 0), b, b_size - (b_has ? 8 : 0));
}

static int compare(void *state, const char *a, size_t a_size, const char *b, size_t b_size) {
  int keys = compare_keys(state, a, a_size, 1, b, b_size, 1);
  return keys != 0 ? keys : compare_timestamps(state, b + b_size - 8, 8, a + a_size - 8, 8);
}

static const char *name(void *state) {
  (void)state;
  return "test.u64ts";
}

static void nothing(void *state) { (void)state; }

static rocksdb_comparator_t *comparator(void) {
  return rocksdb_comparator_with_ts_create(NULL, nothing, compare, compare_timestamps,
                                           compare_keys, name, 8);
}

/* The bytes of a timestamp, valid for some calls. */
static char *ts(uint64_t number) {
  static char bytes[16][8];
  static int next;
  char *place = bytes[next++ % 16];
  encode(place, number);
  return place;
}

static inline void put_at(test_db *t, family *cf, const char *key, uint64_t time, const char *value) {
  char *err = NULL;
  rocksdb_put_cf_with_ts(t->db, t->write, cf, key, strlen(key), ts(time), 8, value, strlen(value),
                         &err);
  OK(err);
}

/* The read timestamp. RocksDB keeps its address. */
static char read_time[8];

static inline void read_at(test_db *t, uint64_t time) {
  encode(read_time, time);
  rocksdb_readoptions_set_timestamp(t->read, read_time, 8);
}

#endif
