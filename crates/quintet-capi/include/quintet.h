/* Quintet: a persistent key-value store. The C interface; the guide is docs/c.md.
 *
 * Errors: a function returns QUINTET_OK or the code of an error. `error` may be null. If it is not
 * and the call fails, it gets an object with the message, which quintet_error_free frees. It is
 * written only if the call fails. A result is written only if the call succeeds.
 *
 * Ownership: a function that stores a handle gives it to the caller, who frees it. An argument is
 * not kept. Bytes that a function returns are in a buffer of the caller (quintet_buffer_free), or
 * stay with their handle, as the function says.
 *
 * Threads: databases, tables and snapshots may be used by any number of threads at once, options,
 * iterators, cursors, batches, loads and transactions by one at a time.
 *
 * Generated from crates/quintet-capi/src by `UPDATE=1 cargo test -p quintet-capi --test header`.
 */

#ifndef QUINTET_H
#define QUINTET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 The result of a function. The numbers do not change between releases.
 */
enum quintet_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   Success.
   */
  QUINTET_OK = 0,
  /*
   The directory is open elsewhere.
   */
  QUINTET_LOCKED = 1,
  /*
   The directory is missing or holds no database.
   */
  QUINTET_NOT_A_DATABASE = 2,
  /*
   The operating system refused a file operation.
   */
  QUINTET_IO = 3,
  /*
   The disk or the quota is full.
   */
  QUINTET_DISK_FULL = 4,
  /*
   Bytes on disk differ from what was written.
   */
  QUINTET_CORRUPTION = 5,
  /*
   A newer release wrote the file.
   */
  QUINTET_NEWER_FORMAT = 6,
  /*
   A sync of the log failed earlier. Writes fail until the database is opened again.
   */
  QUINTET_LOG_FAILED = 7,
  /*
   A write could not be applied. The table fails until the database is opened again.
   */
  QUINTET_TABLE_FAILED = 8,
  /*
   The operation needs more memory than the budget leaves.
   */
  QUINTET_OUT_OF_MEMORY = 9,
  /*
   A key, value, batch, name or expiry is outside its limits.
   */
  QUINTET_LIMIT = 10,
  /*
   An option does not exist, or its value is not allowed.
   */
  QUINTET_INVALID_OPTION = 11,
  /*
   A sorted load received a key that is not greater than the previous one.
   */
  QUINTET_OUT_OF_ORDER = 12,
  /*
   A sorted load of the table is in progress.
   */
  QUINTET_LOADING = 13,
  /*
   No table has this name.
   */
  QUINTET_NO_SUCH_TABLE = 14,
  /*
   The name exists.
   */
  QUINTET_TABLE_EXISTS = 15,
  /*
   The snapshot has ended.
   */
  QUINTET_SNAPSHOT_EXPIRED = 16,
  /*
   The table was dropped.
   */
  QUINTET_STALE_TABLE = 17,
  /*
   A key or value does not have the table's type.
   */
  QUINTET_TYPE_MISMATCH = 18,
  /*
   A value cannot be encoded.
   */
  QUINTET_NOT_ENCODABLE = 19,
  /*
   The table belongs to another database.
   */
  QUINTET_OTHER_DATABASE = 20,
  /*
   A mount cannot be created or used.
   */
  QUINTET_MOUNT = 21,
  /*
   The engine keeps no key order.
   */
  QUINTET_UNORDERED = 22,
  /*
   The merge operator of the table is not registered.
   */
  QUINTET_MERGE_OPERATOR_MISSING = 23,
  /*
   The merge operator refuses the operand.
   */
  QUINTET_MERGE_REFUSED = 24,
  /*
   This build has no engine of that name.
   */
  QUINTET_UNKNOWN_ENGINE = 25,
  /*
   Another commit changed what the transaction depends on. Run it again.
   */
  QUINTET_CONFLICT = 26,
  /*
   Transactions wait for each other. Run this one again.
   */
  QUINTET_DEADLOCK = 27,
  /*
   A lock was not free in time.
   */
  QUINTET_LOCK_TIMEOUT = 28,
  /*
   The database was opened read-only.
   */
  QUINTET_READ_ONLY = 29,
  /*
   The database was closed.
   */
  QUINTET_CLOSED = 30,
  /*
   The handle belongs to the parent of this process.
   */
  QUINTET_FORKED = 31,
  /*
   An error that this header does not know.
   */
  QUINTET_OTHER = 99,
  /*
   A required pointer or handle is null.
   */
  QUINTET_NULL_ARGUMENT = 100,
  /*
   The handle was freed, or is no handle.
   */
  QUINTET_BAD_HANDLE = 101,
  /*
   The handle is one of another kind.
   */
  QUINTET_WRONG_HANDLE = 102,
  /*
   Another thread uses the handle, which is for one thread at a time; or a callback uses it.
   */
  QUINTET_BUSY = 103,
  /*
   The memory of the caller is too small. The needed size was stored.
   */
  QUINTET_BUFFER_TOO_SMALL = 104,
  /*
   Text is not UTF-8.
   */
  QUINTET_NOT_UTF8 = 105,
  /*
   The operation is not possible through this handle, for example a write through a snapshot.
   */
  QUINTET_UNSUPPORTED = 106,
  /*
   The transaction has ended.
   */
  QUINTET_ENDED = 107,
  /*
   A callback failed.
   */
  QUINTET_CALLBACK_FAILED = 108,
  /*
   A panic was caught: a defect of the library or of a callback. Close the database.
   */
  QUINTET_PANIC = 109,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum quintet_code quintet_code;
#else
typedef int32_t quintet_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 Writes to be committed together. For one thread at a time.
 */
typedef struct quintet_batch quintet_batch;

/*
 A position in an ordered table. For one thread at a time.
 */
typedef struct quintet_cursor quintet_cursor;

/*
 An open database.
 */
typedef struct quintet_database quintet_database;

/*
 The details of a failed call.
 */
typedef struct quintet_error quintet_error;

/*
 An iterator over entries. For one thread at a time.
 */
typedef struct quintet_iterator quintet_iterator;

/*
 A sorted load. For one thread at a time.
 */
typedef struct quintet_load quintet_load;

/*
 A list of options by name and value.
 */
typedef struct quintet_options quintet_options;

/*
 A point of a transaction to which it can return.
 */
typedef struct quintet_savepoint quintet_savepoint;

/*
 All tables of a database at one moment.
 */
typedef struct quintet_snapshot quintet_snapshot;

/*
 A table, or a table as a snapshot or a transaction shows it.
 */
typedef struct quintet_table quintet_table;

/*
 A transaction. For one thread at a time.
 */
typedef struct quintet_transaction quintet_transaction;

/*
 Bytes of the caller or of the library: an address and a size. The bytes are not copied.

 As an argument, the bytes must stay unchanged until the function returns. Null with size 0 is
 the absent value where a function says so, and empty bytes elsewhere. See `quintet_string`.
 */
typedef struct {
  const uint8_t *data;
  size_t size;
} quintet_slice;

/*
 Bytes that the library allocated and the program frees.

 A buffer begins as `{0}`. A function that returns bytes replaces its content and uses its memory
 again. `quintet_buffer_free` frees the memory; the buffer may be used again afterwards. The
 program reads `data` and `size`, and changes no field. One thread at a time uses a buffer.
 */
typedef struct {
  uint8_t *data;
  size_t size;
  size_t capacity;
} quintet_buffer;

/*
 A merge operator: sets `merged` from `old` and `operand` by `quintet_buffer_set`, and returns 0.
 `old` is null if the key is absent. Another result refuses the operand; the text in `merged` is
 the reason then. It may run in several threads at once, and more than once for one merge.
 */
typedef int (*quintet_merge_function)(void *context,
                                      quintet_slice key,
                                      const quintet_slice *old,
                                      quintet_slice operand,
                                      quintet_buffer *merged);

/*
 How a write is done. `{0}` and a null pointer are the defaults. A write to which a field does
 not apply is refused with `QUINTET_UNSUPPORTED`.
 */
typedef struct {
  /*
   Milliseconds until the value expires. 0: not set.
   */
  uint64_t ttl_ms;
  /*
   When the value expires, in milliseconds since 1970. 0: not set.
   */
  uint64_t expires_at_ms;
  /*
   The type of the value, such as `u64`. Absent: none.
   */
  quintet_slice type_tag;
  /*
   Not 0: writes only if the key is absent.
   */
  uint8_t if_absent;
  /*
   Not 0: writes only if the key is present.
   */
  uint8_t if_present;
  /*
   Not 0: an update removes the expiry of the value, which it keeps otherwise.
   */
  uint8_t without_expiry;
  /*
   0: as the database; 1: buffered; 2: sync.
   */
  uint8_t durability;
} quintet_write_options;

/*
 A range of keys. `{0}` and a null pointer are the whole table. All fields that are set apply.
 */
typedef struct {
  /*
   Only keys that start with these bytes. Absent or empty: all.
   */
  quintet_slice prefix;
  /*
   The lower bound, in the range unless `start_excluded`. Absent: none.
   */
  quintet_slice start;
  /*
   The upper bound, not in the range unless `end_included`. Absent: none.
   */
  quintet_slice end;
  /*
   Not 0: the range begins after `start`.
   */
  uint8_t start_excluded;
  /*
   Not 0: the range contains `end`.
   */
  uint8_t end_included;
  /*
   Not 0: from the greatest key to the least.
   */
  uint8_t reverse;
} quintet_range;

/*
 A function that changes a value: sets `new` from `old` by `quintet_buffer_set`. `old` is null if
 the key is absent. It may run more than once.
 */
typedef int (*quintet_update_function)(void *context, const quintet_slice *old, quintet_buffer *new);

/*
 A function that gets entries. The slices are valid until it returns. 0: go on; otherwise stop.
 */
typedef int (*quintet_visit_function)(void *context, quintet_slice key, quintet_slice value);

/*
 What is stored with a value.
 */
typedef struct {
  /*
   Number of bytes of the value.
   */
  size_t size;
  /*
   When the value expires, in milliseconds since 1970. 0: never.
   */
  uint64_t expires_at_ms;
  /*
   The type of the value, such as `u64`. Absent: none. Valid for ever.
   */
  quintet_slice type_tag;
} quintet_value_info;

/*
 A function that gets the values of several keys: the index of the key, and null for an absent
 one. The slice is valid until it returns.
 */
typedef void (*quintet_each_function)(void *context, size_t index, const quintet_slice *value);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the message of an error, terminated by 0. It is valid until the error is freed. Of a
 null or freed handle: an empty text.
 */
const char *quintet_error_message(quintet_error *error);

/*
 Returns the code of an error; `QUINTET_BAD_HANDLE` of a null or freed one.
 */
quintet_code quintet_error_code(quintet_error *error);

/*
 Returns the name of a code, such as `Conflict`, terminated by 0 and valid for ever.
 */
const char *quintet_code_name(int32_t code);

/*
 Frees an error. Null is allowed.
 */
void quintet_error_free(quintet_error *error);

/*
 Copies a detail of an error to `value` and stores whether it has one. Names: `table`, `key`,
 `name` (of a table or option), `file`, `offset`, `path`, `needed`, `budget`, `os_error`.
 */
quintet_code quintet_error_detail(quintet_error *of,
                                  quintet_slice name,
                                  quintet_buffer *value,
                                  bool *found,
                                  quintet_error **error);

/*
 Replaces the content of a buffer by a copy of `bytes`. For callbacks that return bytes.
 `bytes` must not name the buffer's own content.
 */
quintet_code quintet_buffer_set(quintet_buffer *buffer, quintet_slice bytes, quintet_error **error);

/*
 Frees the memory of a buffer and empties it. A null pointer and an empty buffer are allowed.
 */
quintet_code quintet_buffer_free(quintet_buffer *buffer, quintet_error **error);

/*
 Makes an empty list of options. `quintet_options_free` frees it, also while objects that
 were opened with it are in use.

 Databases: `durability` (`buffered` or `sync`), `memory_budget`, `recovery_budget`,
 `segment_bytes` and `snapshot_limit` in bytes, `sync_interval` and `snapshot_max_age` in
 milliseconds, `read_only`, `create` and `allow_missing_merge_operators` (`true` or `false`).

 Tables: the options of the engine, `merge` (the name of a merge operator) and `types`
 (`string,u64 -> blob`).

 Transactions: `isolation` (`serializable` or `snapshot`), `durability`, `lock_timeout` in
 milliseconds. Sorted loads: `logged`, `durability`.
 */
quintet_code quintet_options_new(quintet_options **options, quintet_error **error);

/*
 Sets an option to a value. It is checked by the function that gets the list.
 */
quintet_code quintet_options_set(quintet_options *options,
                                 quintet_slice name,
                                 quintet_slice value,
                                 quintet_error **error);

/*
 Adds a merge operator to the options of a database. `context` is passed to each call; it must
 stay valid until the database and its tables are freed, and usable by several threads.
 */
quintet_code quintet_options_merge_operator(quintet_options *options,
                                            quintet_slice name,
                                            quintet_merge_function merge,
                                            void *context,
                                            quintet_error **error);

/*
 Frees a list of options. Null is allowed.
 */
quintet_code quintet_options_free(quintet_options *options, quintet_error **error);

/*
 Opens the database in directory `path` (UTF-8), and creates it if the options allow. `options`
 may be null. Free the handle with `quintet_database_free`. Any number of threads may use it.
 */
quintet_code quintet_open(quintet_slice path,
                          quintet_options *options,
                          quintet_database **database,
                          quintet_error **error);

/*
 Closes a database: writes what is in memory and releases the directory. Handles of its tables
 and snapshots fail with `QUINTET_CLOSED` from then on; free them all the same. The handle of
 the database stays until it is freed.
 */
quintet_code quintet_close(quintet_database *database, quintet_error **error);

/*
 Frees the handle of a database. Null is allowed. Without `quintet_close`, the database stays
 open until its tables, snapshots, batches and transactions are freed too.
 */
quintet_code quintet_database_free(quintet_database *database, quintet_error **error);

/*
 Makes every returned write durable in the log: it survives a power loss.
 */
quintet_code quintet_sync(quintet_database *database, quintet_error **error);

/*
 Checkpoints all tables, so that opening the database replays nothing.
 */
quintet_code quintet_persist(quintet_database *database, quintet_error **error);

/*
 Stores whether the database was opened read-only.
 */
quintet_code quintet_is_read_only(quintet_database *database,
                                  bool *read_only,
                                  quintet_error **error);

/*
 Checks the database: the catalog and the log, and if `deep` every file and entry. Stores
 whether it is sound, and one line for each defect or fact in `report`. Damage is no error of
 this function.
 */
quintet_code quintet_check(quintet_database *database,
                           bool deep,
                           bool *sound,
                           quintet_buffer *report,
                           quintet_error **error);

/*
 Stores the statistics of a database as a JSON object: a number for each statistic, and under
 `tables` an object for each open table.
 */
quintet_code quintet_stats_json(quintet_database *database,
                                quintet_buffer *json,
                                quintet_error **error);

/*
 Stores a statistic of a database by the name that the JSON has. An unknown name is
 `QUINTET_INVALID_OPTION`.
 */
quintet_code quintet_stat(quintet_database *database,
                          quintet_slice name,
                          uint64_t *value,
                          quintet_error **error);

/*
 Takes a snapshot: all tables at one moment. Free it with `quintet_snapshot_free`. Any number
 of threads may use it.
 */
quintet_code quintet_snapshot_new(quintet_database *database,
                                  quintet_snapshot **snapshot,
                                  quintet_error **error);

/*
 Frees a snapshot. Null is allowed. Tables that were opened in it keep it.
 */
quintet_code quintet_snapshot_free(quintet_snapshot *snapshot, quintet_error **error);

/*
 Creates a table. `engine` is `naive`, `hashlog`, `trie`, `btree`, `slm` or `tph`; the options
 are those of the engine, or null. Free the handle with `quintet_table_free`.
 */
quintet_code quintet_create_table(quintet_database *database,
                                  quintet_slice name,
                                  quintet_slice engine,
                                  quintet_options *options,
                                  quintet_table **table,
                                  quintet_error **error);

/*
 Creates a table with the default options of its directory.
 */
quintet_code quintet_create_default_table(quintet_database *database,
                                          quintet_slice name,
                                          quintet_table **table,
                                          quintet_error **error);

/*
 Opens a table. Fails with `QUINTET_NO_SUCH_TABLE`.
 */
quintet_code quintet_open_table(quintet_database *database,
                                quintet_slice name,
                                quintet_table **table,
                                quintet_error **error);

/*
 Opens a table, or creates it as `quintet_create_table` does.
 */
quintet_code quintet_open_or_create_table(quintet_database *database,
                                          quintet_slice name,
                                          quintet_slice engine,
                                          quintet_options *options,
                                          quintet_table **table,
                                          quintet_error **error);

/*
 Renames a table or a directory of tables.
 */
quintet_code quintet_rename(quintet_database *database,
                            quintet_slice from,
                            quintet_slice to,
                            quintet_error **error);

/*
 Drops a table. Its handles fail with `QUINTET_STALE_TABLE` from then on.
 */
quintet_code quintet_drop_table(quintet_database *database,
                                quintet_slice name,
                                quintet_error **error);

/*
 Drops a directory with all tables in it.
 */
quintet_code quintet_drop_tree(quintet_database *database,
                               quintet_slice directory,
                               quintet_error **error);

/*
 Stores the tables in a directory and below it (the empty text: of the database) as a JSON
 array of objects with `name`, `engine` and `types`.
 */
quintet_code quintet_tables_json(quintet_database *database,
                                 quintet_slice directory,
                                 quintet_buffer *json,
                                 quintet_error **error);

/*
 Stores what is directly in a directory (the empty text: the top) as a JSON array of objects
 with `name` and `kind`: the engine of a table, `directory` or `mount`.
 */
quintet_code quintet_children_json(quintet_database *database,
                                   quintet_slice directory,
                                   quintet_buffer *json,
                                   quintet_error **error);

/*
 Sets the options of tables that are created in a directory by default. An absent engine
 removes them.
 */
quintet_code quintet_set_default_options(quintet_database *database,
                                         quintet_slice directory,
                                         quintet_slice engine,
                                         quintet_options *options,
                                         quintet_error **error);

/*
 Stores the default options of a directory as lines of a name and a value, the engine first,
 and whether there are any.
 */
quintet_code quintet_default_options(quintet_database *database,
                                     quintet_slice directory,
                                     quintet_buffer *options,
                                     bool *found,
                                     quintet_error **error);

/*
 Mounts a directory of tables (`subtree`, empty for all) of the database in directory `target`
 at a path.
 */
quintet_code quintet_mount(quintet_database *database,
                           quintet_slice path,
                           quintet_slice target,
                           quintet_slice subtree,
                           bool read_only,
                           quintet_error **error);

/*
 Removes a mount. The mounted database is not changed.
 */
quintet_code quintet_unmount(quintet_database *database, quintet_slice path, quintet_error **error);

/*
 Opens a handle of the database behind a mount, for batches, snapshots and transactions of it.
 */
quintet_code quintet_mounted(quintet_database *database,
                             quintet_slice path,
                             quintet_database **mounted,
                             quintet_error **error);

/*
 Stores the mounts as a JSON array of objects with `name`, `target`, `subtree`, `read_only`.
 */
quintet_code quintet_mounts_json(quintet_database *database,
                                 quintet_buffer *json,
                                 quintet_error **error);

/*
 Opens a table as a snapshot shows it. The handle takes gets, ranges and scans. It keeps the
 snapshot. Free it with `quintet_table_free`.
 */
quintet_code quintet_snapshot_table(quintet_snapshot *snapshot,
                                    quintet_table *table,
                                    quintet_table **view,
                                    quintet_error **error);

/*
 Frees the handle of a table. Null is allowed. Calls that use it in other threads go on.
 */
quintet_code quintet_table_free(quintet_table *table, quintet_error **error);

/*
 Stores the path of a table, and nothing else about it.
 */
quintet_code quintet_table_name(quintet_table *table, quintet_buffer *name, quintet_error **error);

/*
 Stores the engine of a table by name.
 */
quintet_code quintet_table_engine(quintet_table *table,
                                  quintet_buffer *engine,
                                  quintet_error **error);

/*
 Stores the types of a table, such as `string,u64 -> blob`. Empty: the table is untyped.
 */
quintet_code quintet_table_types(quintet_table *table,
                                 quintet_buffer *types,
                                 quintet_error **error);

/*
 Stores a value under a key. `options` may be null. `written` (may be null) tells whether a
 condition of the options held.
 */
quintet_code quintet_put(quintet_table *table,
                         quintet_slice key,
                         quintet_slice value,
                         const quintet_write_options *options,
                         bool *written,
                         quintet_error **error);

/*
 Deletes a key, present or not. `options` may be null. `written` (may be null) tells whether a
 condition of the options held.
 */
quintet_code quintet_delete(quintet_table *table,
                            quintet_slice key,
                            const quintet_write_options *options,
                            bool *written,
                            quintet_error **error);

/*
 Deletes the keys of a range, whose direction does not matter. Ordered engines only.
 */
quintet_code quintet_delete_range(quintet_table *table,
                                  const quintet_range *range,
                                  quintet_error **error);

/*
 Merges an operand into the value of a key, by the merge operator of the table. In a
 transaction, `options` must be null.
 */
quintet_code quintet_merge(quintet_table *table,
                           quintet_slice key,
                           quintet_slice operand,
                           const quintet_write_options *options,
                           quintet_error **error);

/*
 Sets a key from its value by a function, atomically. The function returns 0 to store `new`,
 1 to delete the key, and another number to change nothing: the call fails with
 `QUINTET_CALLBACK_FAILED` then. It runs again if the key has changed meanwhile. It may use
 the table. `value` (may be null) gets the new value, `found` whether there is one.
 */
quintet_code quintet_update(quintet_table *table,
                            quintet_slice key,
                            const quintet_write_options *options,
                            quintet_update_function function,
                            void *context,
                            quintet_buffer *value,
                            bool *found,
                            quintet_error **error);

/*
 Sets a key to `new` if its value is `expected`. Absent slices are an absent key. Stores
 whether it did; otherwise `current` (may be null) gets the present value and `found` (may be
 null) whether there is one.
 */
quintet_code quintet_compare_and_swap(quintet_table *table,
                                      quintet_slice key,
                                      quintet_slice expected,
                                      quintet_slice new_,
                                      const quintet_write_options *options,
                                      bool *swapped,
                                      quintet_buffer *current,
                                      bool *found,
                                      quintet_error **error);

/*
 Adds to the integer value of a key (absent: 0) and stores the value before in `before` (may
 be null). Untyped values are 8 bytes, little-endian, signed.
 */
quintet_code quintet_fetch_and_add(quintet_table *table,
                                   quintet_slice key,
                                   int64_t delta,
                                   const quintet_write_options *options,
                                   int64_t *before,
                                   quintet_error **error);

/*
 Deletes a key and returns the value that it had.
 */
quintet_code quintet_take(quintet_table *table,
                          quintet_slice key,
                          quintet_buffer *value,
                          bool *found,
                          quintet_error **error);

/*
 Stores a value and returns the one that it replaced.
 */
quintet_code quintet_replace(quintet_table *table,
                             quintet_slice key,
                             quintet_slice new_,
                             quintet_buffer *value,
                             bool *found,
                             quintet_error **error);

/*
 Removes the first entry, or the last if `last`, and returns it. Ordered engines only.
 */
quintet_code quintet_pop(quintet_table *table,
                         bool last,
                         quintet_buffer *key,
                         quintet_buffer *value,
                         bool *found,
                         quintet_error **error);

/*
 Removes all entries, in constant time.
 */
quintet_code quintet_clear(quintet_table *table, quintet_error **error);

/*
 Checkpoints a table.
 */
quintet_code quintet_table_persist(quintet_table *table, quintet_error **error);

/*
 Rewrites the files of a table without what is dead.
 */
quintet_code quintet_table_compact(quintet_table *table, quintet_error **error);

/*
 Stores the statistics of a table as a JSON object.
 */
quintet_code quintet_table_stats_json(quintet_table *table,
                                      quintet_buffer *json,
                                      quintet_error **error);

/*
 Stores a statistic of a table by the name that the JSON has.
 */
quintet_code quintet_table_stat(quintet_table *table,
                                quintet_slice name,
                                uint64_t *value,
                                quintet_error **error);

/*
 Stores whether a table of this name exists. Opens it, so a damaged table is an error.
 */
quintet_code quintet_is_table(quintet_database *database,
                              quintet_slice name,
                              bool *exists,
                              quintet_error **error);

/*
 Copies the value of a key to `value` and stores whether the key is present. The memory of
 the buffer is used again, so repeated gets allocate nothing.
 */
quintet_code quintet_get(quintet_table *table,
                         quintet_slice key,
                         quintet_buffer *value,
                         bool *found,
                         quintet_error **error);

/*
 Copies the value of a key to `capacity` bytes of the caller at `memory`, and stores its size
 and whether the key is present. Fails with `QUINTET_BUFFER_TOO_SMALL`, having stored both and
 copied nothing, if the value is larger.
 */
quintet_code quintet_get_into(quintet_table *table,
                              quintet_slice key,
                              uint8_t *memory,
                              size_t capacity,
                              size_t *size,
                              bool *found,
                              quintet_error **error);

/*
 Passes the value of a key to a function without copying it to memory of the caller. `found`
 (may be null) tells whether the key is present; the function is called only then.
 */
quintet_code quintet_get_with(quintet_table *table,
                              quintet_slice key,
                              quintet_visit_function function,
                              void *context,
                              bool *found,
                              quintet_error **error);

/*
 Stores what is known about the value of a key: size, expiry, type.
 */
quintet_code quintet_get_info(quintet_table *table,
                              quintet_slice key,
                              quintet_value_info *info,
                              bool *found,
                              quintet_error **error);

/*
 Stores whether a key is present.
 */
quintet_code quintet_contains(quintet_table *table,
                              quintet_slice key,
                              bool *found,
                              quintet_error **error);

/*
 Reads the values of `count` keys at once and passes each to a function, in any order.
 */
quintet_code quintet_multi_get(quintet_table *table,
                               const quintet_slice *keys,
                               size_t count,
                               quintet_each_function function,
                               void *context,
                               quintet_error **error);

/*
 Passes the entries of a range to a function, in ascending order, until it returns another
 value than 0. Copies no values. Ordered engines only; not in a transaction.
 */
quintet_code quintet_visit(quintet_table *table,
                           const quintet_range *range,
                           quintet_visit_function function,
                           void *context,
                           quintet_error **error);

/*
 Stores the exact number of entries. Reads the whole table.
 */
quintet_code quintet_count(quintet_table *table, uint64_t *count, quintet_error **error);

/*
 Stores an estimate of the number of keys in a range. Cheap. Ordered engines only.
 */
quintet_code quintet_estimate_count(quintet_table *table,
                                    const quintet_range *range,
                                    uint64_t *count,
                                    quintet_error **error);

/*
 Copies the first entry, or the last if `last`. Ordered engines only.
 */
quintet_code quintet_end(quintet_table *table,
                         bool last,
                         quintet_buffer *key,
                         quintet_buffer *value,
                         bool *found,
                         quintet_error **error);

/*
 Opens an iterator over a range, in the direction of the range. Ordered engines only. Of a
 table it shows the moment of this call; of a transaction, its writes too. Free it with
 `quintet_iterator_free`. It keeps what it reads from.
 */
quintet_code quintet_iterate(quintet_table *table,
                             const quintet_range *range,
                             quintet_iterator **entries,
                             quintet_error **error);

/*
 Opens an iterator over all entries of a table of any engine, in no promised order. Entries
 that are present throughout are returned at least once; one may be returned twice.
 */
quintet_code quintet_scan(quintet_table *table, quintet_iterator **entries, quintet_error **error);

/*
 Moves to the next entry and stores its key, its value and whether there is one. The slices
 are valid until the next call with this iterator.
 */
quintet_code quintet_next(quintet_iterator *entries,
                          quintet_slice *key,
                          quintet_slice *value,
                          bool *found,
                          quintet_error **error);

/*
 Frees an iterator. Null is allowed.
 */
quintet_code quintet_iterator_free(quintet_iterator *entries, quintet_error **error);

/*
 Opens a cursor of an ordered table, at no entry. It follows the table: entries may be some
 steps old, and a seek always reads the table. Not of snapshots and transactions. Free it with
 `quintet_cursor_free`.
 */
quintet_code quintet_cursor_new(quintet_table *table,
                                quintet_cursor **cursor,
                                quintet_error **error);

/*
 Moves a cursor to the first entry at `key` or above. `found` (may be null) tells whether
 there is one, also in the functions below.
 */
quintet_code quintet_cursor_seek(quintet_cursor *cursor,
                                 quintet_slice key,
                                 bool *found,
                                 quintet_error **error);

/*
 Moves a cursor to the last entry at `key` or below.
 */
quintet_code quintet_cursor_seek_for_prev(quintet_cursor *cursor,
                                          quintet_slice key,
                                          bool *found,
                                          quintet_error **error);

/*
 Moves a cursor to the first entry.
 */
quintet_code quintet_cursor_first(quintet_cursor *cursor, bool *found, quintet_error **error);

/*
 Moves a cursor to the last entry.
 */
quintet_code quintet_cursor_last(quintet_cursor *cursor, bool *found, quintet_error **error);

/*
 Moves a cursor to the next greater key. From no entry: to the first.
 */
quintet_code quintet_cursor_next(quintet_cursor *cursor, bool *found, quintet_error **error);

/*
 Moves a cursor to the next lesser key. From no entry: to the last.
 */
quintet_code quintet_cursor_prev(quintet_cursor *cursor, bool *found, quintet_error **error);

/*
 Stores the entry at a cursor, and whether it is at one. The slices are valid until the
 cursor moves or is freed.
 */
quintet_code quintet_cursor_entry(quintet_cursor *cursor,
                                  quintet_slice *key,
                                  quintet_slice *value,
                                  bool *found,
                                  quintet_error **error);

/*
 Frees a cursor. Null is allowed.
 */
quintet_code quintet_cursor_free(quintet_cursor *cursor, quintet_error **error);

/*
 Makes an empty batch. Free it with `quintet_batch_free`.
 */
quintet_code quintet_batch_new(quintet_database *database,
                               quintet_batch **batch,
                               quintet_error **error);

/*
 Adds a put. `options` (may be null) have an expiry and a type only. A refused operation makes
 `quintet_batch_commit` fail.
 */
quintet_code quintet_batch_put(quintet_batch *batch,
                               quintet_table *table,
                               quintet_slice key,
                               quintet_slice value,
                               const quintet_write_options *options,
                               quintet_error **error);

/*
 Adds a delete.
 */
quintet_code quintet_batch_delete(quintet_batch *batch,
                                  quintet_table *table,
                                  quintet_slice key,
                                  quintet_error **error);

/*
 Adds a merge.
 */
quintet_code quintet_batch_merge(quintet_batch *batch,
                                 quintet_table *table,
                                 quintet_slice key,
                                 quintet_slice operand,
                                 quintet_error **error);

/*
 Stores the number of operations and of bytes (each may be null).
 */
quintet_code quintet_batch_size(quintet_batch *batch,
                                size_t *operations,
                                uint64_t *bytes,
                                quintet_error **error);

/*
 Removes all operations, and a refusal.
 */
quintet_code quintet_batch_clear(quintet_batch *batch, quintet_error **error);

/*
 Commits a batch: all of it or nothing. `durability`: 0 as the database, 1 buffered, 2 sync.
 The batch is empty afterwards and may be used again; after a failure it is unchanged.
 */
quintet_code quintet_batch_commit(quintet_batch *batch, uint8_t durability, quintet_error **error);

/*
 Frees a batch. Null is allowed. What was not committed is discarded.
 */
quintet_code quintet_batch_free(quintet_batch *batch, quintet_error **error);

/*
 Begins a sorted load. `options` may be null. Until it ends, other writes of the table fail
 with `QUINTET_LOADING` where the load bypasses the log. Free it with `quintet_load_free`.
 */
quintet_code quintet_load_new(quintet_table *table,
                              quintet_options *options,
                              quintet_load **load,
                              quintet_error **error);

/*
 Adds an entry. Its key must be greater than the one before. `options` (may be null) have an
 expiry and a type only.
 */
quintet_code quintet_load_put(quintet_load *load,
                              quintet_slice key,
                              quintet_slice value,
                              const quintet_write_options *options,
                              quintet_error **error);

/*
 Ends a load and stores the number of entries (may be null).
 */
quintet_code quintet_load_commit(quintet_load *load, uint64_t *count, quintet_error **error);

/*
 Frees a load. Null is allowed. A load that was not committed is abandoned.
 */
quintet_code quintet_load_free(quintet_load *load, quintet_error **error);

/*
 Begins a transaction. `options` may be null: serializable. Free it with
 `quintet_transaction_free`.
 */
quintet_code quintet_begin(quintet_database *database,
                           quintet_options *options,
                           quintet_transaction **transaction,
                           quintet_error **error);

/*
 Opens a table as a transaction shows it. The handle takes gets, ranges, scans, puts, deletes
 and merges. After the end of the transaction it fails with `QUINTET_ENDED`. Free it with
 `quintet_table_free`.
 */
quintet_code quintet_transaction_table(quintet_transaction *transaction,
                                       quintet_table *table,
                                       quintet_table **view,
                                       quintet_error **error);

/*
 Locks a key and copies its value. `table` is of a transaction. Waits up to `lock_timeout`.
 */
quintet_code quintet_get_for_update(quintet_table *table,
                                    quintet_slice key,
                                    quintet_buffer *value,
                                    bool *found,
                                    quintet_error **error);

/*
 Marks a point to which the transaction can return. Free it with `quintet_savepoint_free`.
 */
quintet_code quintet_savepoint_new(quintet_transaction *transaction,
                                   quintet_savepoint **savepoint,
                                   quintet_error **error);

/*
 Undoes the writes since a savepoint, which can be used again.
 */
quintet_code quintet_rollback_to(quintet_transaction *transaction,
                                 quintet_savepoint *savepoint,
                                 quintet_error **error);

/*
 Frees a savepoint. Null is allowed. The writes stay.
 */
quintet_code quintet_savepoint_free(quintet_savepoint *savepoint, quintet_error **error);

/*
 Commits a transaction, which ends in any case. `QUINTET_CONFLICT` and `QUINTET_DEADLOCK`:
 nothing was committed, and it should run again.
 */
quintet_code quintet_commit(quintet_transaction *transaction, quintet_error **error);

/*
 Rolls a transaction back and frees it. Null is allowed. After `quintet_commit` it only frees
 the handle. Fails with `QUINTET_BUSY`, freeing nothing, while another call uses it.
 */
quintet_code quintet_transaction_free(quintet_transaction *transaction, quintet_error **error);

/*
 Appends a `u32` to a key.
 */
quintet_code quintet_key_u32(quintet_buffer *key, uint32_t number, quintet_error **error);

/*
 Appends a `u64` to a key.
 */
quintet_code quintet_key_u64(quintet_buffer *key, uint64_t number, quintet_error **error);

/*
 Appends an `i64` to a key.
 */
quintet_code quintet_key_i64(quintet_buffer *key, int64_t number, quintet_error **error);

/*
 Appends an `f32` to a key.
 */
quintet_code quintet_key_f32(quintet_buffer *key, float number, quintet_error **error);

/*
 Appends an `f64` to a key.
 */
quintet_code quintet_key_f64(quintet_buffer *key, double number, quintet_error **error);

/*
 Appends a `string` (UTF-8) or `blob` part to a key. `last`: it is the last part.
 */
quintet_code quintet_key_bytes(quintet_buffer *key,
                               quintet_slice bytes,
                               bool last,
                               quintet_error **error);

/*
 Reads a `u32` from the front of `rest`, and moves `rest` behind it.
 */
quintet_code quintet_key_read_u32(quintet_slice *rest, uint32_t *number, quintet_error **error);

/*
 Reads a `u64` from the front of `rest`, and moves `rest` behind it.
 */
quintet_code quintet_key_read_u64(quintet_slice *rest, uint64_t *number, quintet_error **error);

/*
 Reads an `i64` from the front of `rest`, and moves `rest` behind it.
 */
quintet_code quintet_key_read_i64(quintet_slice *rest, int64_t *number, quintet_error **error);

/*
 Reads an `f32` from the front of `rest`, and moves `rest` behind it.
 */
quintet_code quintet_key_read_f32(quintet_slice *rest, float *number, quintet_error **error);

/*
 Reads an `f64` from the front of `rest`, and moves `rest` behind it.
 */
quintet_code quintet_key_read_f64(quintet_slice *rest, double *number, quintet_error **error);

/*
 Reads a `string` or `blob` part from the front of `rest` into `bytes`, and moves `rest`
 behind it. `last`: it is the last part, which is all of `rest`.
 */
quintet_code quintet_key_read_bytes(quintet_slice *rest,
                                    quintet_buffer *bytes,
                                    bool last,
                                    quintet_error **error);

/*
 Encodes a key of the types (`string,u64 -> blob`) from text, as the command line does: a
 composite key is a JSON array.
 */
quintet_code quintet_key_from_text(quintet_slice types,
                                   quintet_slice text,
                                   quintet_buffer *key,
                                   quintet_error **error);

/*
 Formats a key of the types as text.
 */
quintet_code quintet_key_to_text(quintet_slice types,
                                 quintet_slice key,
                                 quintet_buffer *text,
                                 quintet_error **error);

/*
 Reads a `u32` value: 4 bytes, little-endian. Values of numbers are their bytes in that order.
 */
quintet_code quintet_value_u32(quintet_slice value, uint32_t *number, quintet_error **error);

/*
 Reads a `u64` value: 8 bytes, little-endian.
 */
quintet_code quintet_value_u64(quintet_slice value, uint64_t *number, quintet_error **error);

/*
 Reads an `i64` value: 8 bytes, little-endian.
 */
quintet_code quintet_value_i64(quintet_slice value, int64_t *number, quintet_error **error);

/*
 Reads an `f32` value: 4 bytes, little-endian.
 */
quintet_code quintet_value_f32(quintet_slice value, float *number, quintet_error **error);

/*
 Reads an `f64` value: 8 bytes, little-endian.
 */
quintet_code quintet_value_f64(quintet_slice value, double *number, quintet_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/**
 * Returns a slice of a text that ends with 0, without the 0. Null: the absent slice.
 */
static inline quintet_slice quintet_string(const char *text) {
  quintet_slice slice = {(const uint8_t *)text, text ? strlen(text) : 0};
  return slice;
}

/**
 * Returns a slice of bytes.
 */
static inline quintet_slice quintet_bytes(const void *data, size_t size) {
  quintet_slice slice = {(const uint8_t *)data, size};
  return slice;
}

/**
 * Returns a slice of the content of a buffer, valid until the buffer changes.
 */
static inline quintet_slice quintet_content(const quintet_buffer *buffer) {
  return quintet_bytes(buffer->data, buffer->size);
}

#endif  /* QUINTET_H */
