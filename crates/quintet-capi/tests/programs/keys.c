/* Typed keys and values: encoding keeps their order, and decoding refuses other bytes. */
#include <math.h>

#include "test.h"

/* Expects that the first key is less than the second, and frees both. */
static void expect_order(quintet_buffer *less, quintet_buffer *greater) {
  size_t size = less->size < greater->size ? less->size : greater->size;
  int order = memcmp(less->data, greater->data, size);
  EXPECT(order < 0 || (order == 0 && less->size < greater->size));
  CHECK(quintet_buffer_free(less, &error));
  CHECK(quintet_buffer_free(greater, &error));
}

static void keep_order(void) {
  quintet_buffer a = {0}, b = {0};
  CHECK(quintet_key_append_u32(&a, 255, &error));
  CHECK(quintet_key_append_u32(&b, 256, &error));
  expect_order(&a, &b);
  CHECK(quintet_key_append_u64(&a, UINT32_MAX, &error));
  CHECK(quintet_key_append_u64(&b, UINT64_MAX, &error));
  expect_order(&a, &b);
  CHECK(quintet_key_append_i64(&a, -1, &error));
  CHECK(quintet_key_append_i64(&b, 0, &error));
  expect_order(&a, &b);
  CHECK(quintet_key_append_f32(&a, -1.5f, &error));
  CHECK(quintet_key_append_f32(&b, 0.25f, &error));
  expect_order(&a, &b);
  CHECK(quintet_key_append_f64(&a, -INFINITY, &error));
  CHECK(quintet_key_append_f64(&b, -1e300, &error));
  expect_order(&a, &b);
  CHECK(quintet_key_append_bytes(&a, quintet_bytes("a", 1), false, &error));
  CHECK(quintet_key_append_u32(&a, 9, &error));
  CHECK(quintet_key_append_bytes(&b, quintet_bytes("a\0", 2), false, &error));
  CHECK(quintet_key_append_u32(&b, 1, &error));
  expect_order(&a, &b);
}

static void read_parts(void) {
  quintet_buffer key = {0}, part = {0};
  uint32_t u32 = 0;
  uint64_t u64 = 0;
  int64_t i64 = 0;
  float f32 = 0;
  double f64 = 0;
  CHECK(quintet_key_append_u32(&key, 7, &error));
  CHECK(quintet_key_append_u64(&key, UINT64_MAX, &error));
  CHECK(quintet_key_append_i64(&key, INT64_MIN, &error));
  CHECK(quintet_key_append_f32(&key, 0.5f, &error));
  CHECK(quintet_key_append_f64(&key, -2.5, &error));
  CHECK(quintet_key_append_bytes(&key, quintet_bytes("x\0y", 3), false, &error));
  CHECK(quintet_key_append_bytes(&key, S("last"), true, &error));
  quintet_slice rest = quintet_content(&key);
  CHECK(quintet_key_read_u32(&rest, &u32, &error));
  CHECK(quintet_key_read_u64(&rest, &u64, &error));
  CHECK(quintet_key_read_i64(&rest, &i64, &error));
  CHECK(quintet_key_read_f32(&rest, &f32, &error));
  CHECK(quintet_key_read_f64(&rest, &f64, &error));
  CHECK(quintet_key_read_bytes(&rest, &part, false, &error));
  EXPECT(u32 == 7 && u64 == UINT64_MAX && i64 == INT64_MIN && f32 == 0.5f && f64 == -2.5);
  EXPECT(part.size == 3 && memcmp(part.data, "x\0y", 3) == 0);
  CHECK(quintet_key_read_bytes(&rest, &part, true, &error));
  EXPECT(equals(quintet_content(&part), "last") && rest.size == 0);

  /* Bytes that are not of the type: `rest` and the number stay. */
  rest = S("ab");
  FAILS(QUINTET_TYPE_MISMATCH, quintet_key_read_u32(&rest, &u32, NULL));
  FAILS(QUINTET_TYPE_MISMATCH, quintet_key_read_bytes(&rest, &part, false, NULL));
  EXPECT(equals(rest, "ab") && u32 == 7);
  CHECK(quintet_buffer_free(&key, &error));
  CHECK(quintet_buffer_free(&part, &error));
}

static void read_values(void) {
  const uint8_t bytes[] = {1, 2, 0, 0, 0, 0, 0, 0};
  const uint8_t half[] = {0, 0, 0, 0x3f}, minus_one[] = {0, 0, 0, 0, 0, 0, 0xf0, 0xbf};
  uint32_t u32 = 0;
  uint64_t u64 = 0;
  int64_t i64 = 0;
  float f32 = 0;
  double f64 = 0;
  CHECK(quintet_value_read_u32(quintet_bytes(bytes, 4), &u32, &error));
  CHECK(quintet_value_read_u64(quintet_bytes(bytes, 8), &u64, &error));
  CHECK(quintet_value_read_i64(quintet_bytes(bytes, 8), &i64, &error));
  CHECK(quintet_value_read_f32(quintet_bytes(half, 4), &f32, &error));
  CHECK(quintet_value_read_f64(quintet_bytes(minus_one, 8), &f64, &error));
  EXPECT(u32 == 513 && u64 == 513 && i64 == 513 && f32 == 0.5f && f64 == -1);
  FAILS(QUINTET_TYPE_MISMATCH, quintet_value_read_u32(quintet_bytes(bytes, 8), &u32, NULL));
  FAILS(QUINTET_TYPE_MISMATCH, quintet_value_read_u64(quintet_bytes(bytes, 7), &u64, NULL));
  FAILS(QUINTET_TYPE_MISMATCH, quintet_value_read_i64(quintet_bytes(NULL, 0), &i64, NULL));
  FAILS(QUINTET_TYPE_MISMATCH, quintet_value_read_f32(quintet_bytes(bytes, 8), &f32, NULL));
  FAILS(QUINTET_TYPE_MISMATCH, quintet_value_read_f64(quintet_bytes(bytes, 4), &f64, NULL));
}

static void use_text(void) {
  quintet_buffer key = {0}, other = {0}, text = {0};
  quintet_slice types = S("string,u64 -> blob");
  CHECK(quintet_key_from_text(types, S("[\"door\", 7]"), &key, &error));
  CHECK(quintet_key_append_bytes(&other, S("door"), false, &error));
  CHECK(quintet_key_append_u64(&other, 7, &error));
  EXPECT(key.size == other.size && memcmp(key.data, other.data, key.size) == 0);
  CHECK(quintet_key_to_text(types, quintet_content(&key), &text, &error));
  EXPECT(contains(&text, "\"door\"") && contains(&text, "7"));
  FAILS(QUINTET_TYPE_MISMATCH, quintet_key_to_text(types, S("x"), &text, NULL));
  FAILS(QUINTET_INVALID_OPTION, quintet_key_from_text(S("u64"), S("7"), &key, NULL));
  EXPECT(quintet_key_from_text(types, S("seven"), &key, NULL) != QUINTET_OK);
  CHECK(quintet_buffer_free(&key, &error));
  CHECK(quintet_buffer_free(&other, &error));
  CHECK(quintet_buffer_free(&text, &error));
}

void test_keys(const char *directory) {
  (void)directory;
  keep_order();
  read_parts();
  read_values();
  use_text();
}
