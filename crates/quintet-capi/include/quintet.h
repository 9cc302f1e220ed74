/*
 * Quintet: a persistent key-value store. The C interface; the guide is docs/c.md.
 *
 * Results. A function returns QUINTET_OK (0) or the code of an error. The last parameter,
 * 'error', may be null. If it is not null and the call fails, '*error' gets an object with the
 * message, which quintet_error_free() frees. It is written only if the call fails. Other
 * results are written only if the call succeeds, with two exceptions: a call that fails may empty
 * the buffers that it was given, and quintet_get_into() says what it writes. Pointers for results
 * must not name the same memory.
 *
 * Ownership. A function that stores a handle gives it to the caller, who frees it. Handles may be
 * freed in any order. No argument is kept, except a callback and its context where a function says
 * so. Bytes that a function returns are in a buffer of the caller, which quintet_buffer_free()
 * frees, or in a slice, which is valid as long as the function says.
 *
 * Threads. "Any" means that any number of threads may make the call at once with the same
 * handle. "One at a time" means that a second call fails with QUINTET_BUSY while the first one
 * runs; the handle may move between threads. Lists of options are for all threads, buffers for one.
 *
 * Errors. Each function names those that a program may want to treat. Every function can fail with
 * QUINTET_NULL_ARGUMENT, QUINTET_BAD_HANDLE, QUINTET_WRONG_HANDLE, QUINTET_FORKED,
 * QUINTET_NOT_UTF8, QUINTET_LIMIT and QUINTET_PANIC.
 *   A read can also fail with QUINTET_CLOSED, QUINTET_STALE_TABLE, QUINTET_TABLE_FAILED,
 *   QUINTET_IO, QUINTET_CORRUPTION, QUINTET_NEWER_FORMAT and QUINTET_OUT_OF_MEMORY. In a snapshot
 *   it can fail with QUINTET_SNAPSHOT_EXPIRED, in a transaction with QUINTET_ENDED and
 *   QUINTET_OTHER_DATABASE.
 *   A write can also fail as a read, and with QUINTET_READ_ONLY, QUINTET_LOG_FAILED,
 *   QUINTET_DISK_FULL, QUINTET_LOADING, QUINTET_TYPE_MISMATCH, QUINTET_UNSUPPORTED and, in a
 *   transaction, QUINTET_LOCK_TIMEOUT and QUINTET_DEADLOCK.
 *
 * Generated from crates/quintet-capi/src by the command
 *   UPDATE=1 cargo test -p quintet-capi --test header
 */

#ifndef QUINTET_H
#define QUINTET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** The result of a function. The numbers do not change between releases. */
enum quintet_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** Success. */
  QUINTET_OK = 0,
  /** The directory is open elsewhere. */
  QUINTET_LOCKED = 1,
  /** The directory is missing or holds no database. */
  QUINTET_NOT_A_DATABASE = 2,
  /** The operating system refused a file operation. */
  QUINTET_IO = 3,
  /** The disk or the quota is full. */
  QUINTET_DISK_FULL = 4,
  /** Bytes on disk differ from what was written. */
  QUINTET_CORRUPTION = 5,
  /** A newer release wrote the file. */
  QUINTET_NEWER_FORMAT = 6,
  /** A sync of the log failed earlier. Writes fail until the database is opened again. */
  QUINTET_LOG_FAILED = 7,
  /** A write could not be applied. The table fails until the database is opened again. */
  QUINTET_TABLE_FAILED = 8,
  /** The operation needs more memory than the budget leaves. */
  QUINTET_OUT_OF_MEMORY = 9,
  /** A key, value, batch, name or expiry is outside its limits. */
  QUINTET_LIMIT = 10,
  /** An option does not exist, or its value is not allowed. */
  QUINTET_INVALID_OPTION = 11,
  /** A sorted load received a key that is not greater than the previous one. */
  QUINTET_OUT_OF_ORDER = 12,
  /** A sorted load of the table is in progress. */
  QUINTET_LOADING = 13,
  /** No table has this name. */
  QUINTET_NO_SUCH_TABLE = 14,
  /** The name exists. */
  QUINTET_TABLE_EXISTS = 15,
  /** The snapshot has ended. */
  QUINTET_SNAPSHOT_EXPIRED = 16,
  /** The table was dropped. */
  QUINTET_STALE_TABLE = 17,
  /** A key or value does not have the table's type. */
  QUINTET_TYPE_MISMATCH = 18,
  /** A value cannot be encoded. */
  QUINTET_NOT_ENCODABLE = 19,
  /** The table belongs to another database. */
  QUINTET_OTHER_DATABASE = 20,
  /** A mount cannot be created or used. */
  QUINTET_MOUNT = 21,
  /** The engine keeps no key order. */
  QUINTET_UNORDERED = 22,
  /** The merge operator of the table is not registered. */
  QUINTET_MERGE_OPERATOR_MISSING = 23,
  /** The merge operator refuses the operand. */
  QUINTET_MERGE_REFUSED = 24,
  /** This build has no engine of that name. */
  QUINTET_UNKNOWN_ENGINE = 25,
  /** Another commit changed what the transaction depends on. Run it again. */
  QUINTET_CONFLICT = 26,
  /** Transactions wait for each other. Run this one again. */
  QUINTET_DEADLOCK = 27,
  /** A lock was not free in time. */
  QUINTET_LOCK_TIMEOUT = 28,
  /** The database was opened read-only. */
  QUINTET_READ_ONLY = 29,
  /** The database was closed. */
  QUINTET_CLOSED = 30,
  /** The handle belongs to the parent of this process. */
  QUINTET_FORKED = 31,
  /** The log does not have the position of a change feed. Begin again with a snapshot. */
  QUINTET_CHANGES_LOST = 32,
  /** An error that this header does not know. */
  QUINTET_OTHER = 99,
  /** A required pointer or handle is null. */
  QUINTET_NULL_ARGUMENT = 100,
  /** The handle was freed, or is no handle. */
  QUINTET_BAD_HANDLE = 101,
  /** The handle is one of another kind. */
  QUINTET_WRONG_HANDLE = 102,
  /**
   * Another call uses an object that is for one call at a time: of another thread, or the call
   * that runs this callback. Or an update lost all its rounds to other writes of the key.
   */
  QUINTET_BUSY = 103,
  /** The memory of the caller is too small. Nothing was copied. The needed size was stored. */
  QUINTET_BUFFER_TOO_SMALL = 104,
  /** Text is not UTF-8. */
  QUINTET_NOT_UTF8 = 105,
  /**
   * The operation is not possible through this handle, for example a write through a snapshot.
   */
  QUINTET_UNSUPPORTED = 106,
  /** The transaction has ended. */
  QUINTET_ENDED = 107,
  /** A callback failed. */
  QUINTET_CALLBACK_FAILED = 108,
  /** A panic was caught: a defect of the library or of a callback. Close the database. */
  QUINTET_PANIC = 109,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum quintet_code quintet_code;
#else
typedef int32_t quintet_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What was changed in a table. */
typedef enum {
  /** The table was created or cleared: it is empty here. */
  QUINTET_CHANGE_BEGIN = 0,
  /** A key got a value. */
  QUINTET_CHANGE_PUT = 1,
  /** A key was deleted, or its expired value was removed. It may have had no value. */
  QUINTET_CHANGE_DELETE = 2,
  /** The keys of a range were deleted. */
  QUINTET_CHANGE_DELETE_RANGE = 3,
} quintet_change_kind;

/** Writes to be committed together. For one thread at a time. */
typedef struct quintet_batch quintet_batch;

/** A position in an ordered table. For one thread at a time. */
typedef struct quintet_cursor quintet_cursor;

/** An open database. */
typedef struct quintet_database quintet_database;

/** The details of a failed call. */
typedef struct quintet_error quintet_error;

/** The commits of a database in their order. For one thread at a time. */
typedef struct quintet_feed quintet_feed;

/** An iterator over entries. For one thread at a time. */
typedef struct quintet_iterator quintet_iterator;

/** A sorted load. For one thread at a time. */
typedef struct quintet_load quintet_load;

/** A list of options by name and value. */
typedef struct quintet_options quintet_options;

/** A point of a transaction to which it can return. */
typedef struct quintet_savepoint quintet_savepoint;

/** All tables of a database at one moment. */
typedef struct quintet_snapshot quintet_snapshot;

/** A table, or a table as a snapshot or a transaction shows it. */
typedef struct quintet_table quintet_table;

/** A transaction. For one thread at a time. */
typedef struct quintet_transaction quintet_transaction;

/**
 * An address and a size: bytes of the caller or of the library. A slice does not own its
 * bytes.
 *
 * The bytes of an argument must stay unchanged until the function returns. Null with size 0 is
 * the absent slice where a function says so. Elsewhere it has no bytes. quintet_string() makes
 * a slice of a text, quintet_bytes() of other bytes, and quintet_content() of a buffer.
 */
typedef struct {
  const uint8_t *data;
  size_t size;
} quintet_slice;

/**
 * Bytes that the library allocates and the program frees.
 *
 * A buffer begins as {0}. A function that returns bytes replaces its content and reuses its
 * memory. quintet_buffer_free() frees the memory. The program reads 'data' and 'size', and
 * must change no field. A buffer is for one thread at a time.
 */
typedef struct {
  uint8_t *data;
  size_t size;
  size_t capacity;
} quintet_buffer;

/**
 * A merge operator: computes 'merged' from 'old' and 'operand'. 'old' is null for an absent
 * key.
 *
 * Returns 0 and sets 'merged' by quintet_buffer_set(). Another number refuses the operand, and
 * 'merged' may have a text with the reason then. 'merged' is empty at each call. It may run in
 * several threads at once, and more than once for one merge, so equal arguments must have
 * equal results. It runs without a lock.
 */
typedef int (*quintet_merge_function)(void *context,
                                      quintet_slice key,
                                      const quintet_slice *old,
                                      quintet_slice operand,
                                      quintet_buffer *merged);

/**
 * How a write is done. {0} and a null pointer are the defaults. A write that does not have a
 * field which is set fails with QUINTET_UNSUPPORTED.
 */
typedef struct {
  /** Milliseconds until the value expires. 0: not set. */
  uint64_t ttl_ms;
  /** When the value expires, in milliseconds since 1970. 0: not set. */
  uint64_t expires_at_ms;
  /** The type of the value, such as "u64". Absent: none. */
  quintet_slice type_tag;
  /** Not 0: writes only if the key is absent. */
  uint8_t if_absent;
  /** Not 0: writes only if the key is present. */
  uint8_t if_present;
  /** Not 0: an update removes the expiry of the value. Otherwise it keeps it. */
  uint8_t without_expiry;
  /** 0: as the database; 1: buffered; 2: sync. */
  uint8_t durability;
} quintet_write_options;

/**
 * A range of keys. {0} and a null pointer are the whole table. A key is in the range if all
 * fields that are set allow it.
 */
typedef struct {
  /** Only keys that start with these bytes. Absent or empty: all. */
  quintet_slice prefix;
  /** The lower bound, in the range unless 'start_excluded'. Absent: none. */
  quintet_slice start;
  /** The upper bound, not in the range unless 'end_included'. Absent: none. */
  quintet_slice end;
  /** Not 0: the range begins after 'start'. */
  uint8_t start_excluded;
  /** Not 0: the range contains 'end'. */
  uint8_t end_included;
  /** Not 0: from the greatest key to the least. */
  uint8_t reverse;
} quintet_range;

/**
 * Computes a new value of a key for quintet_update(). 'old' is null if the key is absent.
 *
 * Returns 0 to store the content of 'value', which quintet_buffer_set() sets, and 1 to delete
 * the key. Another number refuses the update. It runs without a lock, so it may use the table,
 * and may run more than once. 'value' is empty at each call; the library frees it.
 */
typedef int (*quintet_update_function)(void *context,
                                       const quintet_slice *old,
                                       quintet_buffer *value);

/**
 * Gets entries from quintet_visit() and quintet_get_with(). The slices are valid until it
 * returns. Returns 0 to go on, and another number to stop.
 */
typedef int (*quintet_visit_function)(void *context, quintet_slice key, quintet_slice value);

/** The size of a value, and the data that is stored with it. */
typedef struct {
  /** Number of bytes of the value. */
  size_t size;
  /** When the value expires, in milliseconds since 1970. 0: never. */
  uint64_t expires_at_ms;
  /** The type of the value, such as "u64". Absent: none. Valid until the program ends. */
  quintet_slice type_tag;
} quintet_value_info;

/**
 * Gets values from quintet_multi_get(): the index of the key, and its value, or null for an
 * absent key. The slice is valid until it returns.
 */
typedef void (*quintet_each_function)(void *context, size_t index, const quintet_slice *value);

/** One change of a commit. Fields that a kind does not have are absent or 0. */
typedef struct {
  /** What was changed. */
  quintet_change_kind kind;
  /** The path of the table when the commit was read. */
  quintet_slice table;
  /** The number of the table. A table that is cleared, or created again, has another one. */
  uint64_t table_number;
  /** The key; of a range, its first key. */
  quintet_slice key;
  /** The value; of a range, the first key behind it, and empty if there is none. */
  quintet_slice value;
  /** When the value expires, in milliseconds since 1970. 0: never. */
  uint64_t expires_at_ms;
  /** The type of the value, such as "u64". Absent: none. Valid until the program ends. */
  quintet_slice type_tag;
} quintet_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the message of an error, terminated by 0. It is valid until the error is freed.
 * Returns an empty text for null or a freed error.
 *
 * Threads: any.
 */
const char *quintet_error_message(quintet_error *error);

/**
 * Returns the code of an error, or QUINTET_BAD_HANDLE for null or a freed error.
 *
 * Threads: any.
 */
quintet_code quintet_error_code(quintet_error *error);

/**
 * Returns the name of a code, such as "Conflict", terminated by 0, or "unknown". The text is
 * valid until the program ends.
 *
 * Threads: any.
 */
const char *quintet_code_name(int32_t code);

/**
 * Frees an error. Null and a freed error are ignored.
 *
 * Threads: any.
 */
void quintet_error_free(quintet_error *error);

/**
 * Copies a detail of an error to 'value'. Stores whether the error has it in 'found', which
 * may be null. The names are "table", "key", "name" (of a table or an option), "file",
 * "offset", "path", "needed", "budget", "os_error", and of lost changes "position", "start"
 * and "end". Numbers are decimal text.
 *
 * Ownership: the caller frees 'value' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_error_detail(quintet_error *of,
                                  quintet_slice name,
                                  quintet_buffer *value,
                                  bool *found,
                                  quintet_error **error);

/**
 * Replaces the content of a buffer by a copy of 'bytes'. Callbacks return bytes by this
 * function. 'bytes' must not name the buffer's own content.
 *
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_buffer_set(quintet_buffer *buffer, quintet_slice bytes, quintet_error **error);

/**
 * Frees the memory of a buffer and empties it. The buffer can be used again. Null and an empty
 * buffer are allowed.
 *
 * Threads: one for each buffer.
 * Errors: none.
 */
quintet_code quintet_buffer_free(quintet_buffer *buffer, quintet_error **error);

/**
 * Makes an empty list of options. Names and values are text.
 *
 * Of databases: "durability" is "buffered" or "sync". "memory_budget", "recovery_budget",
 * "space_reserve", "segment_bytes", "log_retention" and "snapshot_limit" are in bytes.
 * "sync_interval", "checkpoint_interval" and "snapshot_max_age" are in milliseconds.
 * "read_only", "create" and "allow_missing_merge_operators" are "true" or "false".
 *
 * Of tables: the options of the engine, "merge" (the name of a merge operator) and "types"
 * (such as "string,u64 -> blob").
 *
 * Of transactions: "isolation" is "serializable" or "snapshot", "lock_timeout" is in
 * milliseconds, "durability" as above. Of sorted loads: "logged" is "true" or "false",
 * "durability" as above.
 *
 * Of change feeds: each "path" adds a table, or a directory with the tables below it; without
 * any, the feed shows all tables. "unsynced" is "true" for commits that a power loss can undo.
 *
 * Ownership: the caller frees '*options' with quintet_options_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_options_new(quintet_options **options, quintet_error **error);

/**
 * Sets an option to a value. The function that gets the list checks both. The last value of a
 * name counts, except for "path".
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_options_set(quintet_options *options,
                                 quintet_slice name,
                                 quintet_slice value,
                                 quintet_error **error);

/**
 * Adds a merge operator to the options of a database. The tables name it by the option
 * "merge". Each call of 'merge' gets 'context', which must stay valid until the database and
 * its tables are freed, and usable by several threads.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_options_add_merge_operator(quintet_options *options,
                                                quintet_slice name,
                                                quintet_merge_function merge,
                                                void *context,
                                                quintet_error **error);

/**
 * Frees a list of options. Null is allowed. Objects that were opened with it stay as they are.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_options_free(quintet_options *options, quintet_error **error);

/**
 * Opens the database in directory 'path', which is UTF-8. Creates it unless option "create" is
 * "false". 'options' may be null. A directory can be open once at a time.
 *
 * Ownership: the caller frees '*database' with quintet_database_free().
 * Threads: any.
 * Errors: QUINTET_LOCKED, QUINTET_NOT_A_DATABASE, QUINTET_INVALID_OPTION,
 *   QUINTET_MERGE_OPERATOR_MISSING, QUINTET_CORRUPTION, QUINTET_NEWER_FORMAT, QUINTET_IO,
 *   QUINTET_DISK_FULL, QUINTET_OUT_OF_MEMORY.
 */
quintet_code quintet_open(quintet_slice path,
                          quintet_options *options,
                          quintet_database **database,
                          quintet_error **error);

/**
 * Closes a database: writes what is in memory, stops its threads and releases the directory.
 * Handles of its tables and snapshots fail with QUINTET_CLOSED from then on. They and
 * 'database' must still be freed.
 *
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_close(quintet_database *database, quintet_error **error);

/**
 * Frees the handle of a database. Null is allowed. Without quintet_close(), the database stays
 * open until its tables, snapshots, batches and transactions are freed too.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_database_free(quintet_database *database, quintet_error **error);

/**
 * Waits until every write that has returned is in the log on disk. Such a write survives a
 * power loss.
 *
 * Threads: any.
 * Errors: QUINTET_CLOSED, QUINTET_LOG_FAILED, QUINTET_IO, QUINTET_DISK_FULL.
 */
quintet_code quintet_sync(quintet_database *database, quintet_error **error);

/**
 * Checkpoints all tables, so that the next open replays nothing of the log.
 *
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_persist(quintet_database *database, quintet_error **error);

/**
 * Stores whether the database was opened read-only.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_is_read_only(quintet_database *database,
                                  bool *read_only,
                                  quintet_error **error);

/**
 * Checks the catalog and the log, and if 'deep' every file and entry. Stores whether the
 * database is sound. 'report' (may be null) gets one line for each defect or fact. Damage is
 * reported and is no error of this function.
 *
 * Ownership: the caller frees 'report' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a read.
 */
quintet_code quintet_check(quintet_database *database,
                           bool deep,
                           bool *sound,
                           quintet_buffer *report,
                           quintet_error **error);

/**
 * Stores the statistics of a database as a JSON object: a number for each statistic, and under
 * "tables" an object for each open table.
 *
 * Ownership: the caller frees 'json' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_stats_json(quintet_database *database,
                                quintet_buffer *json,
                                quintet_error **error);

/**
 * Stores a statistic of a database. 'name' is a name of quintet_stats_json().
 *
 * Threads: any.
 * Errors: QUINTET_INVALID_OPTION if there is no such statistic.
 */
quintet_code quintet_stat(quintet_database *database,
                          quintet_slice name,
                          uint64_t *value,
                          quintet_error **error);

/**
 * Takes a snapshot: all tables at one moment. Its cost is independent of the size of the
 * tables.
 *
 * Ownership: the caller frees '*snapshot' with quintet_snapshot_free().
 * Threads: any.
 * Errors: those of every function; QUINTET_CLOSED.
 */
quintet_code quintet_snapshot_new(quintet_database *database,
                                  quintet_snapshot **snapshot,
                                  quintet_error **error);

/**
 * Stores the LSN of a snapshot: the commits below it are in the snapshot.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_snapshot_lsn(quintet_snapshot *snapshot, uint64_t *lsn, quintet_error **error);

/**
 * Frees a snapshot. Null is allowed. Tables that were opened in it keep it until they are
 * freed.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_snapshot_free(quintet_snapshot *snapshot, quintet_error **error);

/**
 * Creates a table and opens it. 'engine' is "naive", "hashlog", "trie", "btree", "slm" or
 * "tph". 'options' may be null; see quintet_options_new(). A / in the name separates
 * directories.
 *
 * Ownership: the caller frees '*table' with quintet_table_free().
 * Threads: any.
 * Errors: those of a write, QUINTET_TABLE_EXISTS, QUINTET_UNKNOWN_ENGINE,
 *   QUINTET_INVALID_OPTION, QUINTET_MERGE_OPERATOR_MISSING, QUINTET_MOUNT.
 */
quintet_code quintet_create_table(quintet_database *database,
                                  quintet_slice name,
                                  quintet_slice engine,
                                  quintet_options *options,
                                  quintet_table **table,
                                  quintet_error **error);

/**
 * Creates a table with the default options of its directory and opens it. See
 * quintet_set_default_options().
 *
 * Ownership: the caller frees '*table' with quintet_table_free().
 * Threads: any.
 * Errors: those of quintet_create_table(); QUINTET_INVALID_OPTION if the directory has no
 *   default options.
 */
quintet_code quintet_create_default_table(quintet_database *database,
                                          quintet_slice name,
                                          quintet_table **table,
                                          quintet_error **error);

/**
 * Opens a table. Several handles of one table are allowed.
 *
 * Ownership: the caller frees '*table' with quintet_table_free().
 * Threads: any.
 * Errors: those of a read, QUINTET_NO_SUCH_TABLE, QUINTET_MERGE_OPERATOR_MISSING,
 *   QUINTET_MOUNT.
 */
quintet_code quintet_open_table(quintet_database *database,
                                quintet_slice name,
                                quintet_table **table,
                                quintet_error **error);

/**
 * Opens a table, or creates it as quintet_create_table() does. Engine and options of a table
 * that exists stay as they are.
 *
 * Ownership: the caller frees '*table' with quintet_table_free().
 * Threads: any.
 * Errors: those of quintet_create_table(), except QUINTET_TABLE_EXISTS for a table.
 */
quintet_code quintet_open_or_create_table(quintet_database *database,
                                          quintet_slice name,
                                          quintet_slice engine,
                                          quintet_options *options,
                                          quintet_table **table,
                                          quintet_error **error);

/**
 * Renames a table or a directory of tables. Handles of the tables stay valid.
 *
 * Threads: any.
 * Errors: those of a write, QUINTET_NO_SUCH_TABLE, QUINTET_TABLE_EXISTS, QUINTET_MOUNT.
 */
quintet_code quintet_rename(quintet_database *database,
                            quintet_slice from,
                            quintet_slice to,
                            quintet_error **error);

/**
 * Drops a table. Its handles fail with QUINTET_STALE_TABLE from then on; they must still be
 * freed.
 *
 * Threads: any.
 * Errors: those of a write, QUINTET_NO_SUCH_TABLE, QUINTET_MOUNT.
 */
quintet_code quintet_drop_table(quintet_database *database,
                                quintet_slice name,
                                quintet_error **error);

/**
 * Drops a directory with all tables in it, as quintet_drop_table() does.
 *
 * Threads: any.
 * Errors: those of a write, QUINTET_NO_SUCH_TABLE, QUINTET_MOUNT.
 */
quintet_code quintet_drop_tree(quintet_database *database,
                               quintet_slice directory,
                               quintet_error **error);

/**
 * Stores the tables in a directory and below it as a JSON array of objects with "name",
 * "engine" and "types". The empty directory is the whole database.
 *
 * Ownership: the caller frees 'json' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a read, QUINTET_NO_SUCH_TABLE, QUINTET_MOUNT.
 */
quintet_code quintet_tables_json(quintet_database *database,
                                 quintet_slice directory,
                                 quintet_buffer *json,
                                 quintet_error **error);

/**
 * Stores the children of a directory as a JSON array of objects with "name" and "kind": the
 * engine of a table, "directory" or "mount". The empty directory is the top of the database.
 *
 * Ownership: the caller frees 'json' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a read, QUINTET_NO_SUCH_TABLE, QUINTET_MOUNT.
 */
quintet_code quintet_children_json(quintet_database *database,
                                   quintet_slice directory,
                                   quintet_buffer *json,
                                   quintet_error **error);

/**
 * Sets the options for tables that quintet_create_default_table() creates in a directory and
 * below it. An absent 'engine' removes them. 'options' may be null.
 *
 * Threads: any.
 * Errors: those of a write, QUINTET_UNKNOWN_ENGINE, QUINTET_INVALID_OPTION, QUINTET_MOUNT.
 */
quintet_code quintet_set_default_options(quintet_database *database,
                                         quintet_slice directory,
                                         quintet_slice engine,
                                         quintet_options *options,
                                         quintet_error **error);

/**
 * Stores the default options of a directory, one line for each name and value, the engine
 * first. Stores whether there are any in 'found'.
 *
 * Ownership: the caller frees 'options' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a read.
 */
quintet_code quintet_default_options(quintet_database *database,
                                     quintet_slice directory,
                                     quintet_buffer *options,
                                     bool *found,
                                     quintet_error **error);

/**
 * Mounts the database in directory 'target' at 'path'. 'subtree' is a directory of its tables,
 * or empty for all of them.
 *
 * Threads: any.
 * Errors: those of a write, QUINTET_MOUNT, QUINTET_TABLE_EXISTS.
 */
quintet_code quintet_mount(quintet_database *database,
                           quintet_slice path,
                           quintet_slice target,
                           quintet_slice subtree,
                           bool read_only,
                           quintet_error **error);

/**
 * Removes a mount. The mounted database is not changed.
 *
 * Threads: any.
 * Errors: those of a write, QUINTET_MOUNT, QUINTET_NO_SUCH_TABLE.
 */
quintet_code quintet_unmount(quintet_database *database, quintet_slice path, quintet_error **error);

/**
 * Opens a handle of the database behind a mount. Batches, snapshots and transactions of
 * mounted tables need it.
 *
 * Ownership: the caller frees '*mounted' with quintet_database_free().
 * Threads: any.
 * Errors: those of a read, QUINTET_MOUNT, QUINTET_NO_SUCH_TABLE.
 */
quintet_code quintet_mounted(quintet_database *database,
                             quintet_slice path,
                             quintet_database **mounted,
                             quintet_error **error);

/**
 * Stores the mounts as a JSON array of objects with "name", "target", "subtree" and
 * "read_only".
 *
 * Ownership: the caller frees 'json' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_mounts_json(quintet_database *database,
                                 quintet_buffer *json,
                                 quintet_error **error);

/**
 * Opens a table as a snapshot shows it. The handle takes gets, ranges and scans. It keeps the
 * snapshot.
 *
 * Ownership: the caller frees '*view' with quintet_table_free().
 * Threads: any.
 * Errors: QUINTET_UNSUPPORTED if 'table' is of a snapshot or a transaction.
 */
quintet_code quintet_snapshot_table(quintet_snapshot *snapshot,
                                    quintet_table *table,
                                    quintet_table **view,
                                    quintet_error **error);

/**
 * Frees the handle of a table. Null is allowed. Calls that use it in other threads end as
 * usual.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_table_free(quintet_table *table, quintet_error **error);

/**
 * Stores the path of a table.
 *
 * Ownership: the caller frees 'name' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_table_name(quintet_table *table, quintet_buffer *name, quintet_error **error);

/**
 * Stores the name of a table's engine.
 *
 * Ownership: the caller frees 'engine' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_table_engine(quintet_table *table,
                                  quintet_buffer *engine,
                                  quintet_error **error);

/**
 * Stores the types of a table, such as "string,u64 -> blob". Empty for an untyped table.
 *
 * Ownership: the caller frees 'types' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_table_types(quintet_table *table,
                                 quintet_buffer *types,
                                 quintet_error **error);

/**
 * Stores a value under a key, and replaces an earlier one. 'options' may be null. 'written'
 * (may be null) gets false if a condition of the options did not hold.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a write.
 */
quintet_code quintet_put(quintet_table *table,
                         quintet_slice key,
                         quintet_slice value,
                         const quintet_write_options *options,
                         bool *written,
                         quintet_error **error);

/**
 * Deletes a key; an absent key is no error. 'options' may be null. 'written' (may be null)
 * gets false if a condition of the options did not hold.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a write.
 */
quintet_code quintet_delete(quintet_table *table,
                            quintet_slice key,
                            const quintet_write_options *options,
                            bool *written,
                            quintet_error **error);

/**
 * Deletes the keys of a range. Its direction has no effect. A null range is the whole table.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a write; QUINTET_UNORDERED if the engine keeps no key order.
 */
quintet_code quintet_delete_range(quintet_table *table,
                                  const quintet_range *range,
                                  quintet_error **error);

/**
 * Merges an operand into the value of a key, by the merge operator of the table. 'options' may
 * be null. In a transaction it must be null.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a write, QUINTET_MERGE_REFUSED, QUINTET_MERGE_OPERATOR_MISSING,
 *   QUINTET_INVALID_OPTION if the table has no operator.
 */
quintet_code quintet_merge(quintet_table *table,
                           quintet_slice key,
                           quintet_slice operand,
                           const quintet_write_options *options,
                           quintet_error **error);

/**
 * Replaces the value of a key by one that 'function' computes from it. The new value is stored
 * only if no other write of the key came between. Otherwise the function runs again, 1000
 * times in all. 'options' may be null. 'value' (may be null) gets the new value, 'found' (may
 * be null) whether there is one.
 *
 * Ownership: the caller frees 'value' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a write; QUINTET_CALLBACK_FAILED if the function refuses; QUINTET_BUSY if
 *   another write came between each time. Nothing is written then.
 */
quintet_code quintet_update(quintet_table *table,
                            quintet_slice key,
                            const quintet_write_options *options,
                            quintet_update_function function,
                            void *context,
                            quintet_buffer *value,
                            bool *found,
                            quintet_error **error);

/**
 * Sets a key to 'value' if its value is 'expected'. An absent slice stands for an absent key:
 * as 'value' it deletes. 'swapped' gets whether the key was set. If not, 'current' (may be
 * null) gets the present value and 'found' (may be null) whether there is one. 'options' may
 * be null.
 *
 * Ownership: the caller frees 'current' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_compare_and_swap(quintet_table *table,
                                      quintet_slice key,
                                      quintet_slice expected,
                                      quintet_slice value,
                                      const quintet_write_options *options,
                                      bool *swapped,
                                      quintet_buffer *current,
                                      bool *found,
                                      quintet_error **error);

/**
 * Adds 'delta' to the integer value of a key, 0 if absent. 'before' (may be null) gets the
 * value before. The value of an untyped table has 8 bytes, signed, little-endian. 'options'
 * may be null.
 *
 * Threads: any.
 * Errors: those of a write; QUINTET_TYPE_MISMATCH if the value is no integer; QUINTET_LIMIT if
 *   the sum overflows.
 */
quintet_code quintet_fetch_and_add(quintet_table *table,
                                   quintet_slice key,
                                   int64_t delta,
                                   const quintet_write_options *options,
                                   int64_t *before,
                                   quintet_error **error);

/**
 * Deletes a key. 'value' (may be null) gets the value that it had, 'found' (may be null)
 * whether it had one.
 *
 * Ownership: the caller frees 'value' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_take(quintet_table *table,
                          quintet_slice key,
                          quintet_buffer *value,
                          bool *found,
                          quintet_error **error);

/**
 * Stores 'value' under a key. 'old' (may be null) gets the value that the key had, 'found'
 * (may be null) whether it had one.
 *
 * Ownership: the caller frees 'old' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_replace(quintet_table *table,
                             quintet_slice key,
                             quintet_slice value,
                             quintet_buffer *old,
                             bool *found,
                             quintet_error **error);

/**
 * Deletes the first entry. 'key' and 'value' (may be null) get the entry, 'found' (may be
 * null) whether there was one.
 *
 * Ownership: the caller frees 'key' and 'value' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a write; QUINTET_UNORDERED if the engine keeps no key order.
 */
quintet_code quintet_pop_first(quintet_table *table,
                               quintet_buffer *key,
                               quintet_buffer *value,
                               bool *found,
                               quintet_error **error);

/**
 * Deletes the last entry. Otherwise as quintet_pop_first().
 *
 * Ownership: the caller frees 'key' and 'value' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a write; QUINTET_UNORDERED if the engine keeps no key order.
 */
quintet_code quintet_pop_last(quintet_table *table,
                              quintet_buffer *key,
                              quintet_buffer *value,
                              bool *found,
                              quintet_error **error);

/**
 * Removes all entries. The time does not depend on their number. Handles of the table stay
 * valid.
 *
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_clear(quintet_table *table, quintet_error **error);

/**
 * Checkpoints a table.
 *
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_table_persist(quintet_table *table, quintet_error **error);

/**
 * Rewrites the files of a table without deleted and replaced entries.
 *
 * Threads: any.
 * Errors: those of a write.
 */
quintet_code quintet_table_compact(quintet_table *table, quintet_error **error);

/**
 * Stores the statistics of a table as a JSON object.
 *
 * Ownership: the caller frees 'json' with quintet_buffer_free().
 * Threads: any.
 * Errors: those of a read; QUINTET_UNSUPPORTED in a snapshot or a transaction.
 */
quintet_code quintet_table_stats_json(quintet_table *table,
                                      quintet_buffer *json,
                                      quintet_error **error);

/**
 * Stores a statistic of a table. 'name' is a name of quintet_table_stats_json().
 *
 * Threads: any.
 * Errors: those of a read; QUINTET_INVALID_OPTION if there is no such statistic;
 *   QUINTET_UNSUPPORTED in a snapshot or a transaction.
 */
quintet_code quintet_table_stat(quintet_table *table,
                                quintet_slice name,
                                uint64_t *value,
                                quintet_error **error);

/**
 * Stores whether a table of this name exists. Opens it, so damage of the table is an error.
 *
 * Threads: any.
 * Errors: those of quintet_open_table(), except QUINTET_NO_SUCH_TABLE.
 */
quintet_code quintet_is_table(quintet_database *database,
                              quintet_slice name,
                              bool *exists,
                              quintet_error **error);

/**
 * Copies the value of a key to 'value'. 'found' (may be null) gets whether the key is present.
 * A buffer that has enough memory is filled without an allocation.
 *
 * Ownership: the caller frees 'value' with quintet_buffer_free().
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_get(quintet_table *table,
                         quintet_slice key,
                         quintet_buffer *value,
                         bool *found,
                         quintet_error **error);

/**
 * Copies the value of a key to 'capacity' bytes at 'memory'. 'size' and 'found' (may be null)
 * get its size and whether the key is present. They are written also with
 * QUINTET_BUFFER_TOO_SMALL: 'memory' is unchanged then, and 'size' bytes suffice.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read; QUINTET_BUFFER_TOO_SMALL if the value has more than 'capacity'
 *   bytes.
 */
quintet_code quintet_get_into(quintet_table *table,
                              quintet_slice key,
                              uint8_t *memory,
                              size_t capacity,
                              size_t *size,
                              bool *found,
                              quintet_error **error);

/**
 * Passes the value of a key to 'function', whose result is ignored. 'found' (may be null) gets
 * whether the key is present; otherwise the function is not called.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_get_with(quintet_table *table,
                              quintet_slice key,
                              quintet_visit_function function,
                              void *context,
                              bool *found,
                              quintet_error **error);

/**
 * Stores the size, the expiry and the type of a value. 'found' (may be null) gets whether the
 * key is present; otherwise 'info' gets zeros.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_get_info(quintet_table *table,
                              quintet_slice key,
                              quintet_value_info *info,
                              bool *found,
                              quintet_error **error);

/**
 * Stores whether a key is present.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_contains(quintet_table *table,
                              quintet_slice key,
                              bool *found,
                              quintet_error **error);

/**
 * Reads the values of 'count' keys and passes each to 'function', in any order. Cheaper than
 * single gets. The values may be of different moments, except in a snapshot.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_multi_get(quintet_table *table,
                               const quintet_slice *keys,
                               size_t count,
                               quintet_each_function function,
                               void *context,
                               quintet_error **error);

/**
 * Prefetches what gets of 'count' keys will read, for a caller that reads them one at a time
 * soon afterwards. Changes nothing but the time of these reads. Does nothing in a snapshot or
 * a transaction, and for the engines 'naive', 'slm' and 'tph'.
 *
 * Threads: any.
 * Errors: those of a read, but none because of a key.
 */
quintet_code quintet_prefetch(quintet_table *table,
                              const quintet_slice *keys,
                              size_t count,
                              quintet_error **error);

/**
 * Passes the entries of a range to 'function' in ascending order, until it returns another
 * value than 0. Copies no entry. A null range is the whole table.
 *
 * Threads: any.
 * Errors: those of a read; QUINTET_UNORDERED if the engine keeps no key order;
 *   QUINTET_UNSUPPORTED for a reverse range or in a transaction.
 */
quintet_code quintet_visit(quintet_table *table,
                           const quintet_range *range,
                           quintet_visit_function function,
                           void *context,
                           quintet_error **error);

/**
 * Stores the exact number of entries. Reads the whole table.
 *
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_count(quintet_table *table, uint64_t *count, quintet_error **error);

/**
 * Stores an estimate of the number of keys in a range. Reads the index only. A null range is
 * the whole table.
 *
 * Threads: any.
 * Errors: those of a read; QUINTET_UNORDERED if the engine keeps no key order;
 *   QUINTET_UNSUPPORTED in a snapshot or a transaction.
 */
quintet_code quintet_estimate_count(quintet_table *table,
                                    const quintet_range *range,
                                    uint64_t *count,
                                    quintet_error **error);

/**
 * Copies the first entry. 'key' and 'value' (may be null) get the entry, 'found' (may be null)
 * whether there is one.
 *
 * Ownership: the caller frees 'key' and 'value' with quintet_buffer_free().
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read; QUINTET_UNORDERED if the engine keeps no key order.
 */
quintet_code quintet_first(quintet_table *table,
                           quintet_buffer *key,
                           quintet_buffer *value,
                           bool *found,
                           quintet_error **error);

/**
 * Copies the last entry. Otherwise as quintet_first().
 *
 * Ownership: the caller frees 'key' and 'value' with quintet_buffer_free().
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read; QUINTET_UNORDERED if the engine keeps no key order.
 */
quintet_code quintet_last(quintet_table *table,
                          quintet_buffer *key,
                          quintet_buffer *value,
                          bool *found,
                          quintet_error **error);

/**
 * Opens an iterator over a range, in the direction of the range. A null range is the whole
 * table. It shows the table at the moment of this call. In a transaction it also shows later
 * writes of the transaction. It keeps the table open.
 *
 * Ownership: the caller frees '*iterator' with quintet_iterator_free().
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read; QUINTET_UNORDERED if the engine keeps no key order.
 */
quintet_code quintet_iterate(quintet_table *table,
                             const quintet_range *range,
                             quintet_iterator **iterator,
                             quintet_error **error);

/**
 * Opens an iterator over all entries of a table of any engine, in no order. An entry that is
 * present throughout is returned at least once, and may be returned twice.
 *
 * Ownership: the caller frees '*iterator' with quintet_iterator_free().
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a read.
 */
quintet_code quintet_scan(quintet_table *table, quintet_iterator **iterator, quintet_error **error);

/**
 * Moves an iterator to the next entry. 'key' and 'value' (may be null) get slices that are
 * valid until the next call with this iterator. 'found' gets false at the end. After an error
 * the iterator is at no entry.
 *
 * Threads: one at a time for each iterator.
 * Errors: those of a read. An iterator over a range of a table reads a snapshot, so it can
 *   also fail with QUINTET_SNAPSHOT_EXPIRED, as it does after quintet_close().
 */
quintet_code quintet_iterator_next(quintet_iterator *iterator,
                                   quintet_slice *key,
                                   quintet_slice *value,
                                   bool *found,
                                   quintet_error **error);

/**
 * Frees an iterator and the entry that its slices name. Null is allowed.
 *
 * Threads: one at a time for each iterator.
 * Errors: those of every function.
 */
quintet_code quintet_iterator_free(quintet_iterator *iterator, quintet_error **error);

/**
 * Opens a cursor of an ordered table, at no entry. A seek reads the table; a step may return
 * an entry as it was some steps before.
 *
 * Ownership: the caller frees '*cursor' with quintet_cursor_free().
 * Threads: any.
 * Errors: those of a read; QUINTET_UNORDERED if the engine keeps no key order;
 *   QUINTET_UNSUPPORTED in a snapshot or a transaction.
 */
quintet_code quintet_cursor_new(quintet_table *table,
                                quintet_cursor **cursor,
                                quintet_error **error);

/**
 * Moves a cursor to the first entry whose key is 'key' or greater. 'found' (may be null) gets
 * whether there is one.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of a read.
 */
quintet_code quintet_cursor_seek(quintet_cursor *cursor,
                                 quintet_slice key,
                                 bool *found,
                                 quintet_error **error);

/**
 * Moves a cursor to the last entry whose key is 'key' or less. 'found' (may be null) gets
 * whether there is one.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of a read.
 */
quintet_code quintet_cursor_seek_for_prev(quintet_cursor *cursor,
                                          quintet_slice key,
                                          bool *found,
                                          quintet_error **error);

/**
 * Moves a cursor to the first entry. 'found' (may be null) gets whether there is one.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of a read.
 */
quintet_code quintet_cursor_first(quintet_cursor *cursor, bool *found, quintet_error **error);

/**
 * Moves a cursor to the last entry. 'found' (may be null) gets whether there is one.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of a read.
 */
quintet_code quintet_cursor_last(quintet_cursor *cursor, bool *found, quintet_error **error);

/**
 * Moves a cursor to the next greater key, or from no entry to the first. 'found' (may be null)
 * gets whether there is one.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of a read.
 */
quintet_code quintet_cursor_next(quintet_cursor *cursor, bool *found, quintet_error **error);

/**
 * Moves a cursor to the next lesser key, or from no entry to the last. 'found' (may be null)
 * gets whether there is one.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of a read.
 */
quintet_code quintet_cursor_prev(quintet_cursor *cursor, bool *found, quintet_error **error);

/**
 * Stores the entry at a cursor. 'key' and 'value' (may be null) get slices that are valid
 * until the cursor moves or is freed. 'found' (may be null) gets whether the cursor is at an
 * entry.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of every function.
 */
quintet_code quintet_cursor_entry(quintet_cursor *cursor,
                                  quintet_slice *key,
                                  quintet_slice *value,
                                  bool *found,
                                  quintet_error **error);

/**
 * Frees a cursor. Null is allowed.
 *
 * Threads: one at a time for each cursor.
 * Errors: those of every function.
 */
quintet_code quintet_cursor_free(quintet_cursor *cursor, quintet_error **error);

/**
 * Makes an empty batch.
 *
 * Ownership: the caller frees '*batch' with quintet_batch_free().
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_batch_new(quintet_database *database,
                               quintet_batch **batch,
                               quintet_error **error);

/**
 * Adds a put. Of 'options' (may be null), the expiry and the type apply. A write that the
 * table refuses makes quintet_batch_commit() fail.
 *
 * Threads: one at a time for each batch.
 * Errors: QUINTET_UNSUPPORTED if 'table' is of a snapshot or a transaction.
 */
quintet_code quintet_batch_put(quintet_batch *batch,
                               quintet_table *table,
                               quintet_slice key,
                               quintet_slice value,
                               const quintet_write_options *options,
                               quintet_error **error);

/**
 * Adds a delete.
 *
 * Threads: one at a time for each batch.
 * Errors: QUINTET_UNSUPPORTED if 'table' is of a snapshot or a transaction.
 */
quintet_code quintet_batch_delete(quintet_batch *batch,
                                  quintet_table *table,
                                  quintet_slice key,
                                  quintet_error **error);

/**
 * Adds a merge.
 *
 * Threads: one at a time for each batch.
 * Errors: QUINTET_UNSUPPORTED if 'table' is of a snapshot or a transaction.
 */
quintet_code quintet_batch_merge(quintet_batch *batch,
                                 quintet_table *table,
                                 quintet_slice key,
                                 quintet_slice operand,
                                 quintet_error **error);

/**
 * Stores the number of operations and the number of their bytes. Both may be null.
 *
 * Threads: one at a time for each batch.
 * Errors: those of every function.
 */
quintet_code quintet_batch_size(quintet_batch *batch,
                                size_t *operations,
                                uint64_t *bytes,
                                quintet_error **error);

/**
 * Removes all operations, also one that makes the commit fail.
 *
 * Threads: one at a time for each batch.
 * Errors: those of every function.
 */
quintet_code quintet_batch_clear(quintet_batch *batch, quintet_error **error);

/**
 * Commits a batch: all of it or nothing. 'durability' is 0 as the database has it, 1 for
 * buffered, 2 for sync. The batch is empty afterwards and can be used again. After an error it
 * is unchanged.
 *
 * Threads: one at a time for each batch.
 * Errors: those of a write, QUINTET_OTHER_DATABASE, QUINTET_MERGE_REFUSED,
 *   QUINTET_INVALID_OPTION, QUINTET_UNSUPPORTED.
 */
quintet_code quintet_batch_commit(quintet_batch *batch, uint8_t durability, quintet_error **error);

/**
 * Frees a batch and discards what was not committed. Null is allowed.
 *
 * Threads: one at a time for each batch.
 * Errors: those of every function.
 */
quintet_code quintet_batch_free(quintet_batch *batch, quintet_error **error);

/**
 * Begins a sorted load of a table. 'options' may be null. On "btree", each key must be greater
 * than every key of the table, and other writes of the table fail with QUINTET_LOADING until
 * the load ends. It takes effect at quintet_load_commit(). On other engines, and with option
 * "logged", entries are committed in batches, which stay if the load is not committed.
 *
 * Ownership: the caller frees '*load' with quintet_load_free().
 * Threads: any.
 * Errors: those of a write, QUINTET_INVALID_OPTION.
 */
quintet_code quintet_load_new(quintet_table *table,
                              quintet_options *options,
                              quintet_load **load,
                              quintet_error **error);

/**
 * Adds an entry. Its key must be greater than the one before. Of 'options' (may be null), the
 * expiry and the type apply.
 *
 * Threads: one at a time for each load.
 * Errors: those of a write, QUINTET_OUT_OF_ORDER, QUINTET_ENDED.
 */
quintet_code quintet_load_put(quintet_load *load,
                              quintet_slice key,
                              quintet_slice value,
                              const quintet_write_options *options,
                              quintet_error **error);

/**
 * Ends a load. 'count' (may be null) gets the number of its entries. The load ends in any
 * case.
 *
 * Threads: one at a time for each load.
 * Errors: those of a write, QUINTET_ENDED.
 */
quintet_code quintet_load_commit(quintet_load *load, uint64_t *count, quintet_error **error);

/**
 * Frees a load. Null is allowed. A load that was not committed ends as quintet_load_new()
 * says.
 *
 * Threads: one at a time for each load.
 * Errors: those of every function.
 */
quintet_code quintet_load_free(quintet_load *load, quintet_error **error);

/**
 * Begins a transaction. 'options' may be null: it is serializable then.
 *
 * Ownership: the caller frees '*transaction' with quintet_transaction_free().
 * Threads: any.
 * Errors: those of every function; QUINTET_CLOSED, QUINTET_INVALID_OPTION.
 */
quintet_code quintet_begin(quintet_database *database,
                           quintet_options *options,
                           quintet_transaction **transaction,
                           quintet_error **error);

/**
 * Opens a table as a transaction shows it. The handle takes gets, ranges, scans, puts, deletes
 * and merges. After the end of the transaction it fails with QUINTET_ENDED.
 *
 * Ownership: the caller frees '*view' with quintet_table_free().
 * Threads: one at a time for each transaction.
 * Errors: QUINTET_UNSUPPORTED if 'table' is of a snapshot or a transaction.
 */
quintet_code quintet_transaction_table(quintet_transaction *transaction,
                                       quintet_table *table,
                                       quintet_table **view,
                                       quintet_error **error);

/**
 * Locks a key and copies its value. 'table' is one of a transaction. 'value' and 'found' may
 * be null. Waits for the lock up to option "lock_timeout".
 *
 * Ownership: the caller frees 'value' with quintet_buffer_free().
 * Threads: any; in a transaction, one at a time.
 * Errors: those of a write; QUINTET_UNSUPPORTED if 'table' is not of a transaction.
 */
quintet_code quintet_get_for_update(quintet_table *table,
                                    quintet_slice key,
                                    quintet_buffer *value,
                                    bool *found,
                                    quintet_error **error);

/**
 * Marks a point to which the transaction can return.
 *
 * Ownership: the caller frees '*savepoint' with quintet_savepoint_free().
 * Threads: one at a time for each transaction.
 * Errors: QUINTET_ENDED.
 */
quintet_code quintet_savepoint_new(quintet_transaction *transaction,
                                   quintet_savepoint **savepoint,
                                   quintet_error **error);

/**
 * Undoes the writes since a savepoint, which can be used again.
 *
 * Threads: one at a time for each transaction.
 * Errors: QUINTET_ENDED; QUINTET_INVALID_OPTION for a savepoint that is not of this
 *   transaction, or that a rollback to an earlier one has ended.
 */
quintet_code quintet_rollback_to(quintet_transaction *transaction,
                                 quintet_savepoint *savepoint,
                                 quintet_error **error);

/**
 * Frees a savepoint. Null is allowed. The transaction is not changed.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_savepoint_free(quintet_savepoint *savepoint, quintet_error **error);

/**
 * Commits a transaction, which ends in any case. After QUINTET_CONFLICT or QUINTET_DEADLOCK
 * nothing is committed, and the program should run the transaction again.
 *
 * Threads: one at a time for each transaction.
 * Errors: those of a write, QUINTET_CONFLICT, QUINTET_ENDED.
 */
quintet_code quintet_commit(quintet_transaction *transaction, quintet_error **error);

/**
 * Rolls a transaction back and frees it. Null is allowed. After quintet_commit() it only frees
 * the handle.
 *
 * Threads: one at a time for each transaction.
 * Errors: QUINTET_BUSY while another call uses the transaction; it is not freed then.
 */
quintet_code quintet_transaction_free(quintet_transaction *transaction, quintet_error **error);

/**
 * Opens a feed of the commits at and behind position 'from' of the log, at no commit. The
 * position is the 'end' of quintet_feed_commit(), that of quintet_feed_position(), or one of
 * quintet_log_range(). To copy tables and follow them, open the feed at the end first, then
 * take a snapshot, and apply all that the feed returns to the copy of the snapshot. 'options'
 * may be null; see quintet_options_new().
 *
 * An open feed keeps the log from its position on, but not more than 1 GiB or option
 * "log_retention" of the database, and on a full disk nothing. It shows no tables behind a
 * mount, no drops and no renames.
 *
 * Ownership: the caller frees '*feed' with quintet_feed_free().
 * Threads: any.
 * Errors: QUINTET_CHANGES_LOST if the log does not have the position, QUINTET_NO_SUCH_TABLE if
 *   a path is neither a table nor a directory, QUINTET_INVALID_OPTION, QUINTET_CLOSED.
 */
quintet_code quintet_feed_new(quintet_database *database,
                              uint64_t from,
                              quintet_options *options,
                              quintet_feed **feed,
                              quintet_error **error);

/**
 * Moves a feed to the next commit with changes of its tables. Does not wait: 'found' gets
 * false if there is none yet, and a later call may find one. Slices of the commit before are
 * not valid any more. After an error the feed is at no commit.
 *
 * Threads: one at a time for each feed.
 * Errors: QUINTET_CHANGES_LOST if the log there was removed, because the feed was too far
 *   behind or the disk full; QUINTET_CLOSED, QUINTET_IO, QUINTET_CORRUPTION.
 */
quintet_code quintet_feed_next(quintet_feed *feed, bool *found, quintet_error **error);

/**
 * Same as quintet_feed_next(), but waits up to 'timeout_ms' milliseconds for a commit. If the
 * database is closed meanwhile, the call fails.
 *
 * Threads: one at a time for each feed.
 * Errors: those of quintet_feed_next().
 */
quintet_code quintet_feed_wait(quintet_feed *feed,
                               uint64_t timeout_ms,
                               bool *found,
                               quintet_error **error);

/**
 * Stores the LSN of the commit at which a feed is, and the position behind it. A feed that
 * begins at 'end' continues with the next commit. Results may be null. 'found' gets false, and
 * both are 0, if the feed is at no commit.
 *
 * Threads: one at a time for each feed.
 * Errors: those of every function.
 */
quintet_code quintet_feed_commit(quintet_feed *feed,
                                 uint64_t *lsn,
                                 uint64_t *end,
                                 bool *found,
                                 quintet_error **error);

/**
 * Stores the next change of the commit at which a feed is. 'found' gets false after the last
 * one, and if the feed is at no commit; 'change' is not written then. Its slices are valid
 * until the feed moves to another commit or is freed.
 *
 * Threads: one at a time for each feed.
 * Errors: those of every function.
 */
quintet_code quintet_feed_change(quintet_feed *feed,
                                 quintet_change *change,
                                 bool *found,
                                 quintet_error **error);

/**
 * Stores the position of a feed: behind the commits that it returned or left out. A feed that
 * begins there continues with the next one. 0 in a forked child.
 *
 * Threads: one at a time for each feed.
 * Errors: those of every function.
 */
quintet_code quintet_feed_position(quintet_feed *feed, uint64_t *position, quintet_error **error);

/**
 * Frees a feed and its commit. The log is not kept for it any more. Null is allowed.
 *
 * Threads: one at a time for each feed.
 * Errors: those of every function.
 */
quintet_code quintet_feed_free(quintet_feed *feed, quintet_error **error);

/**
 * Stores the first position of the log at which a feed can begin, and the present end. Results
 * may be null. Both are 0 in a forked child.
 *
 * Threads: any.
 * Errors: those of every function.
 */
quintet_code quintet_log_range(quintet_database *database,
                               uint64_t *start,
                               uint64_t *end,
                               quintet_error **error);

/**
 * Appends an unsigned 32-bit number to a key: a "u32" part.
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_key_append_u32(quintet_buffer *key, uint32_t number, quintet_error **error);

/**
 * Appends an unsigned 64-bit number to a key: a "u64" part.
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_key_append_u64(quintet_buffer *key, uint64_t number, quintet_error **error);

/**
 * Appends a signed 64-bit number to a key: a "i64" part.
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_key_append_i64(quintet_buffer *key, int64_t number, quintet_error **error);

/**
 * Appends a 32-bit floating-point number to a key: a "f32" part.
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_key_append_f32(quintet_buffer *key, float number, quintet_error **error);

/**
 * Appends a 64-bit floating-point number to a key: a "f64" part.
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_key_append_f64(quintet_buffer *key, double number, quintet_error **error);

/**
 * Appends bytes to a key: a "string" part, which is UTF-8, or a "blob" part. 'last' must be
 * true for the last part of a key, and false for the others.
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: one for each buffer.
 * Errors: QUINTET_NULL_ARGUMENT.
 */
quintet_code quintet_key_append_bytes(quintet_buffer *key,
                                      quintet_slice bytes,
                                      bool last,
                                      quintet_error **error);

/**
 * Reads a "u32" part of a key from the front of 'rest', and moves 'rest' behind it.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_key_read_u32(quintet_slice *rest, uint32_t *number, quintet_error **error);

/**
 * Reads a "u64" part of a key from the front of 'rest', and moves 'rest' behind it.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_key_read_u64(quintet_slice *rest, uint64_t *number, quintet_error **error);

/**
 * Reads a "i64" part of a key from the front of 'rest', and moves 'rest' behind it.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_key_read_i64(quintet_slice *rest, int64_t *number, quintet_error **error);

/**
 * Reads a "f32" part of a key from the front of 'rest', and moves 'rest' behind it.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_key_read_f32(quintet_slice *rest, float *number, quintet_error **error);

/**
 * Reads a "f64" part of a key from the front of 'rest', and moves 'rest' behind it.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_key_read_f64(quintet_slice *rest, double *number, quintet_error **error);

/**
 * Reads a "string" or "blob" part of a key from the front of 'rest' into 'bytes', and moves
 * 'rest' behind it. 'last' is that of quintet_key_append_bytes(): the last part is all of
 * 'rest'.
 *
 * Ownership: the caller frees 'bytes' with quintet_buffer_free().
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_key_read_bytes(quintet_slice *rest,
                                    quintet_buffer *bytes,
                                    bool last,
                                    quintet_error **error);

/**
 * Encodes a key from text, as the command line does. A key of several parts is a JSON array.
 * 'types' are such as "string,u64 -> blob".
 *
 * Ownership: the caller frees 'key' with quintet_buffer_free().
 * Threads: any.
 * Errors: QUINTET_INVALID_OPTION for bad types, QUINTET_TYPE_MISMATCH for text that is no such
 *   key.
 */
quintet_code quintet_key_from_text(quintet_slice types,
                                   quintet_slice text,
                                   quintet_buffer *key,
                                   quintet_error **error);

/**
 * Formats a key as text, as the command line does. 'types' are such as "string,u64 -> blob".
 *
 * Ownership: the caller frees 'text' with quintet_buffer_free().
 * Threads: any.
 * Errors: QUINTET_INVALID_OPTION for bad types, QUINTET_TYPE_MISMATCH for bytes that are no
 *   such key.
 */
quintet_code quintet_key_to_text(quintet_slice types,
                                 quintet_slice key,
                                 quintet_buffer *text,
                                 quintet_error **error);

/**
 * Reads a "u32" value: 4 bytes, little-endian.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_value_read_u32(quintet_slice value, uint32_t *number, quintet_error **error);

/**
 * Reads a "u64" value: 8 bytes, little-endian.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_value_read_u64(quintet_slice value, uint64_t *number, quintet_error **error);

/**
 * Reads a "i64" value: 8 bytes, little-endian.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_value_read_i64(quintet_slice value, int64_t *number, quintet_error **error);

/**
 * Reads a "f32" value: 4 bytes, little-endian.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_value_read_f32(quintet_slice value, float *number, quintet_error **error);

/**
 * Reads a "f64" value: 8 bytes, little-endian.
 *
 * Threads: any.
 * Errors: QUINTET_TYPE_MISMATCH if the bytes are not of this type.
 */
quintet_code quintet_value_read_f64(quintet_slice value, double *number, quintet_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/** Returns a slice of a text that ends with 0, without the 0; of null, the absent slice. */
static inline quintet_slice quintet_string(const char *text) {
  quintet_slice slice = {(const uint8_t *)text, text ? strlen(text) : 0};
  return slice;
}

/** Returns a slice of size bytes at data. */
static inline quintet_slice quintet_bytes(const void *data, size_t size) {
  quintet_slice slice = {(const uint8_t *)data, size};
  return slice;
}

/** Returns a slice of the content of a buffer, valid until the buffer changes. */
static inline quintet_slice quintet_content(const quintet_buffer *buffer) {
  return quintet_bytes(buffer->data, buffer->size);
}

#endif  /* QUINTET_H */
