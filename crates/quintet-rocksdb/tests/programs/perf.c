/* Counters of a thread. */
#include "test.h"

#include <pthread.h>

static uint64_t metric(rocksdb_perfcontext_t *context, int number) {
  return rocksdb_perfcontext_metric(context, number);
}

/* Expects that a report has a text, or that it does not. */
static void reports(rocksdb_perfcontext_t *context, int exclude_zeros, const char *text, int has) {
  char *report = rocksdb_perfcontext_report(context, exclude_zeros);
  EXPECT((strstr(report, text) != NULL) == has);
  size_t size = strlen(report);
  EXPECT(size == 0 || report[size - 1] != ' ');
  rocksdb_free(report);
}

static void *other_thread(void *argument) {
  rocksdb_perfcontext_t *context = argument;
  for (int number = 0; number < rocksdb_total_metric_count; number++) {
    EXPECT(metric(context, number) == 0);
  }
  reports(context, 1, "=", 0);
  return NULL;
}

static void disabled(test_db *t, rocksdb_perfcontext_t *context) {
  put(t, "a", "value");
  has(t, "a", "value");
  reports(context, 1, "=", 0);
  reports(context, 0, "user_key_comparison_count = 0, block_cache_hit_count = 0, ", 1);
  reports(context, 0, ", iter_seek_cpu_nanos = 0, number_async_seek = 0", 1);
}

static void gets(test_db *t, family *cf, rocksdb_perfcontext_t *context) {
  char *err = NULL;
  rocksdb_perfcontext_reset(context);
  has(t, "a", "value");
  has(t, "none", NULL);
  EXPECT(metric(context, rocksdb_get_read_bytes) == 5);
  put_in(t, cf, "b", "four");
  rocksdb_pinnableslice_destroy(rocksdb_get_pinned_cf(t->db, t->read, cf, "b", 1, &err));
  OK(err);
  EXPECT(metric(context, rocksdb_get_read_bytes) == 9);
  const char *keys[] = {"a", "none"};
  const size_t sizes[] = {1, 4};
  char *values[2], *errors[2];
  size_t value_sizes[2];
  rocksdb_multi_get(t->db, t->read, 2, keys, sizes, values, value_sizes, errors);
  rocksdb_free(values[0]);
  rocksdb_pinnableslice_t *pinned[2];
  rocksdb_batched_multi_get_cf(t->db, t->read, cf, 1, keys + 1, sizes + 1, pinned, errors, false);
  EXPECT(pinned[0] == NULL);
  EXPECT(metric(context, rocksdb_multiget_read_bytes) == 5);
  EXPECT(metric(context, rocksdb_get_read_bytes) == 9);
  reports(context, 1, "get_read_bytes = 9, multiget_read_bytes = 5", 1);
}

static void times(test_db *t, rocksdb_perfcontext_t *context, int are_counted) {
  rocksdb_perfcontext_reset(context);
  put(t, "c", "c");
  delete_key(t, "c");
  rocksdb_iterator_t *it = rocksdb_create_iterator(t->db, t->read);
  rocksdb_iter_seek_to_first(it);
  EXPECT(metric(context, rocksdb_iter_read_bytes) == 6);
  rocksdb_iter_next(it);
  rocksdb_iter_seek(it, "a", 1);
  EXPECT(metric(context, rocksdb_iter_read_bytes) == 12);
  rocksdb_iter_destroy(it);
  const int counted[] = {rocksdb_write_wal_time, rocksdb_write_memtable_time,
                         rocksdb_write_pre_and_post_process_time, rocksdb_get_snapshot_time,
                         rocksdb_seek_internal_seek_time, rocksdb_find_next_user_entry_time};
  for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
    EXPECT((metric(context, counted[i]) > 0) == are_counted);
  }
  reports(context, 1, "write_wal_time = ", are_counted);
}

/* A database that is opened again reads from its files. */
static void files(const char *directory, rocksdb_perfcontext_t *context) {
  char *err = NULL;
  test_db t = open_new(directory);
  char key[16], value[4096];
  memset(value, 'v', sizeof value);
  for (int i = 0; i < 100; i++) {
    snprintf(key, sizeof key, "key%03d", i);
    rocksdb_put(t.db, t.write, key, 6, value, sizeof value, &err);
    OK(err);
  }
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_flush(t.db, flush, &err);
  OK(err);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_close(t.db);
  t.db = rocksdb_open(t.options, directory, &err);
  OK(err);
  rocksdb_perfcontext_reset(context);
  size_t size = 0;
  rocksdb_free(rocksdb_get(t.db, t.read, "key050", 6, &size, &err));
  OK(err);
  EXPECT(size == sizeof value);
  EXPECT(metric(context, rocksdb_block_read_count) > 0);
  EXPECT(metric(context, rocksdb_block_read_byte) >= sizeof value);
  EXPECT(metric(context, rocksdb_block_read_time) > 0);
  close_db(&t);
}

void test_perf(const char *directory) {
  char *err = NULL;
  char other[1024];
  test_db t = open_new(directory);
  family *cf = rocksdb_create_column_family(t.db, t.options, "other", &err);
  OK(err);
  rocksdb_perfcontext_t *context = rocksdb_perfcontext_create();
  /* A thread that has set no level counts events. */
  put(&t, "a", "value");
  has(&t, "a", "value");
  reports(context, 1, "get_read_bytes = 5", 1);
  rocksdb_perfcontext_reset(context);
  rocksdb_set_perf_level(rocksdb_disable);
  disabled(&t, context);
  rocksdb_set_perf_level(rocksdb_enable_count);
  gets(&t, cf, context);
  times(&t, context, 0);
  rocksdb_set_perf_level(rocksdb_enable_time);
  times(&t, context, 1);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, other_thread, context) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(metric(context, -1) == 0);
  EXPECT(metric(context, rocksdb_total_metric_count) == 0);
  EXPECT(rocksdb_internal_range_del_reseek_count == 75);
  snprintf(other, sizeof other, "%s-files", directory);
  files(other, context);

  /* The counters stay when the level is disabled, and without an object. */
  rocksdb_set_perf_level(rocksdb_disable);
  uint64_t bytes = metric(context, rocksdb_get_read_bytes);
  has(&t, "a", "value");
  rocksdb_perfcontext_destroy(context);
  context = rocksdb_perfcontext_create();
  EXPECT(bytes == 4096 && metric(context, rocksdb_get_read_bytes) == bytes);
  rocksdb_perfcontext_reset(context);
  reports(context, 1, "=", 0);
  rocksdb_perfcontext_destroy(context);

  rocksdb_perfcontext_reset(NULL);
  EXPECT(rocksdb_perfcontext_report(NULL, 0) == NULL);
  EXPECT(rocksdb_perfcontext_metric(NULL, 0) == 0);
  rocksdb_perfcontext_destroy(NULL);
  rocksdb_column_family_handle_destroy(cf);
  close_db(&t);
}
