//! The counters of a thread (`rocksdb_perfcontext_t`).
//!
//! How: the library of Quintet counts reads of files, waits, and the parts of a write
//! ([`ThreadCounters`]). This module adds what only the interface knows: the bytes that it gives to
//! the program, the time of callbacks and of movements of iterators. RocksDB's other counters
//! describe its own structures; they stay 0, and `docs/rocksdb.md` lists the ones that count.
//!
//! Cost: until a thread of the process sets a level, a call loads one static flag.
//!
//! Threads: each has its own counters. An object has none: it shows those of the thread that uses
//! it.

use std::{
    cell::Cell,
    ffi::c_int,
    fmt::Write as _,
    time::{Duration, Instant},
};

use quintet::{ThreadCounters, ThreadDetail};
use quintet_compat::{boundary::Allocated, export};

/// The first level that counts.
const LEVEL_COUNT: c_int = 2;
/// The first and the last level that measure times. The header and the classes of RocksDB number
/// them differently.
const LEVEL_TIME: c_int = 3;
const LEVEL_TIME_LAST: c_int = 5;

/// What the interface counts for a thread.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceCounters {
    /// Bytes of values that gets returned.
    pub get_bytes: u64,
    /// Bytes of values that gets of several keys returned.
    pub multi_get_bytes: u64,
    /// Bytes of keys and values that iterators came to.
    pub iterator_bytes: u64,
    /// Versions of keys that iterators passed over.
    pub skipped_versions: u64,
    /// Deletes with a timestamp that iterators passed over.
    pub skipped_deletes: u64,
    /// Time of taking snapshots for iterators.
    pub snapshot_time: Duration,
    /// Time of seeks of iterators.
    pub seek_time: Duration,
    /// Time of steps of iterators.
    pub step_time: Duration,
    /// Time of merge operators of the program.
    pub merge_time: Duration,
    /// Time of writes, as a whole.
    pub write_time: Duration,
}

impl InterfaceCounters {
    const ZERO: Self = Self {
        get_bytes: 0,
        multi_get_bytes: 0,
        iterator_bytes: 0,
        skipped_versions: 0,
        skipped_deletes: 0,
        snapshot_time: Duration::ZERO,
        seek_time: Duration::ZERO,
        step_time: Duration::ZERO,
        merge_time: Duration::ZERO,
        write_time: Duration::ZERO,
    };
}

thread_local! {
    static COUNTERS: Cell<InterfaceCounters> = const { Cell::new(InterfaceCounters::ZERO) };
    /// Whether the thread counts what a call has set.
    static HAS_LEVEL: Cell<bool> = const { Cell::new(false) };
}

/// Counts an event if the thread counts.
#[inline]
pub fn count(add: impl FnOnce(&mut InterfaceCounters)) {
    if ThreadCounters::detail() != ThreadDetail::Off {
        let mut counters = COUNTERS.get();
        add(&mut counters);
        COUNTERS.set(counters);
    }
}

/// Counts the value of a get.
#[inline]
pub fn count_get(value: Option<&[u8]>) {
    count(|counters| counters.get_bytes += value.map_or(0, size));
}

/// Counts a value of a get of several keys.
#[inline]
pub fn count_multi_get(value: Option<&[u8]>) {
    count(|counters| counters.multi_get_bytes += value.map_or(0, size));
}

/// Returns a size in bytes as counters have it.
pub fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Measures one event of the calling thread.
#[derive(Debug)]
#[must_use = "an event is counted when the watch is stopped"]
pub struct Stopwatch(Option<Instant>);

impl Stopwatch {
    /// Starts an event. Does nothing unless the thread counts times.
    #[inline]
    pub fn start() -> Self {
        Self((ThreadCounters::detail() == ThreadDetail::Times).then(Instant::now))
    }

    /// Ends the event. `add` gets the counters and the time.
    #[inline]
    pub fn stop(self, add: impl FnOnce(&mut InterfaceCounters, Duration)) {
        if let Some(start) = self.0 {
            let time = start.elapsed();
            count(|counters| add(counters, time));
        }
    }
}

/// Returns a counter by its name in RocksDB.
fn counter(name: &str) -> u64 {
    let (store, own) = (ThreadCounters::get(), COUNTERS.get());
    let time = match name {
        "block_read_count" => return store.file_reads,
        "block_read_byte" => return store.file_read_bytes,
        "get_read_bytes" => return own.get_bytes,
        "multiget_read_bytes" => return own.multi_get_bytes,
        "iter_read_bytes" => return own.iterator_bytes,
        "internal_key_skipped_count" => return own.skipped_versions,
        "internal_delete_skipped_count" => return own.skipped_deletes,
        "key_lock_wait_count" => return store.lock_waits,
        "block_read_time" => store.file_read_time,
        "get_snapshot_time" => own.snapshot_time,
        "seek_internal_seek_time" => own.seek_time,
        "find_next_user_entry_time" => own.step_time,
        "write_wal_time" => store.log_time,
        "write_memtable_time" => store.apply_time,
        "write_delay_time" => store.write_delay_time,
        "write_pre_and_post_process_time" => {
            let parts = store.log_time + store.apply_time + store.write_delay_time;
            own.write_time.saturating_sub(parts)
        }
        "merge_operator_time_nanos" => own.merge_time,
        "key_lock_wait_time" => store.lock_wait_time,
        _ => return 0,
    };
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a line of all counters, in RocksDB's format.
fn report(excludes_zeros: bool) -> String {
    let mut line = String::new();
    for name in REPORT {
        let value = counter(name);
        if value > 0 || !excludes_zeros {
            let comma = if line.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(line, "{comma}{name} = {value}");
        }
    }
    line
}

/// `rocksdb_perfcontext_t`.
#[derive(Debug)]
pub struct PerfContext(());

export! {
    /// Sets what the calling thread counts: nothing, events and bytes, or times too.
    pub fn rocksdb_set_perf_level(level: c_int) {
        HAS_LEVEL.set(true);
        ThreadCounters::set_detail(match level {
            LEVEL_COUNT => ThreadDetail::Counts,
            LEVEL_TIME..=LEVEL_TIME_LAST => ThreadDetail::Times,
            _ => ThreadDetail::Off,
        });
    }

    /// Makes an object that shows the counters of the calling thread. A thread that has set no
    /// level counts events from then on.
    pub fn rocksdb_perfcontext_create() -> Option<Box<PerfContext>>, None, {
        if !HAS_LEVEL.replace(true) {
            ThreadCounters::set_detail(ThreadDetail::Counts);
        }
        Some(Box::new(PerfContext(())))
    }

    /// Sets the counters of the calling thread to zero.
    pub fn rocksdb_perfcontext_reset(context: Option<&PerfContext>) {
        if context.is_some() {
            ThreadCounters::reset();
            COUNTERS.set(InterfaceCounters::ZERO);
        }
    }

    /// Returns the names and values of all counters, or of those that are not zero, to be released
    /// by `rocksdb_free`. Null if the object is null.
    pub fn rocksdb_perfcontext_report(
        context: Option<&PerfContext>, excludes_zeros: u8,
    ) -> Allocated, Allocated::NULL, {
        let line = context.map(|_| report(excludes_zeros != 0));
        line.map_or(Allocated::NULL, |line| Allocated::copy(line.as_bytes()))
    }

    /// Returns a counter by its number in the header. 0 for another number.
    pub fn rocksdb_perfcontext_metric(
        context: Option<&PerfContext>, metric: c_int,
    ) -> u64, 0, {
        let name = usize::try_from(metric).ok().and_then(|metric| METRICS.get(metric));
        context.and(name).map_or(0, |name| counter(name))
    }

    /// Frees the object. The counters stay.
    pub fn rocksdb_perfcontext_destroy(context: Option<Box<PerfContext>>) {
        drop(context);
    }
}

/// The counters that have a number in the header, in the order of the numbers.
const METRICS: [&str; 76] = [
    "user_key_comparison_count",
    "block_cache_hit_count",
    "block_read_count",
    "block_read_byte",
    "block_read_time",
    "block_checksum_time",
    "block_decompress_time",
    "get_read_bytes",
    "multiget_read_bytes",
    "iter_read_bytes",
    "internal_key_skipped_count",
    "internal_delete_skipped_count",
    "internal_recent_skipped_count",
    "internal_merge_count",
    "get_snapshot_time",
    "get_from_memtable_time",
    "get_from_memtable_count",
    "get_post_process_time",
    "get_from_output_files_time",
    "seek_on_memtable_time",
    "seek_on_memtable_count",
    "next_on_memtable_count",
    "prev_on_memtable_count",
    "seek_child_seek_time",
    "seek_child_seek_count",
    "seek_min_heap_time",
    "seek_max_heap_time",
    "seek_internal_seek_time",
    "find_next_user_entry_time",
    "write_wal_time",
    "write_memtable_time",
    "write_delay_time",
    "write_pre_and_post_process_time",
    "db_mutex_lock_nanos",
    "db_condition_wait_nanos",
    "merge_operator_time_nanos",
    "read_index_block_nanos",
    "read_filter_block_nanos",
    "new_table_block_iter_nanos",
    "new_table_iterator_nanos",
    "block_seek_nanos",
    "find_table_nanos",
    "bloom_memtable_hit_count",
    "bloom_memtable_miss_count",
    "bloom_sst_hit_count",
    "bloom_sst_miss_count",
    "key_lock_wait_time",
    "key_lock_wait_count",
    "env_new_sequential_file_nanos",
    "env_new_random_access_file_nanos",
    "env_new_writable_file_nanos",
    "env_reuse_writable_file_nanos",
    "env_new_random_rw_file_nanos",
    "env_new_directory_nanos",
    "env_file_exists_nanos",
    "env_get_children_nanos",
    "env_get_children_file_attributes_nanos",
    "env_delete_file_nanos",
    "env_create_dir_nanos",
    "env_create_dir_if_missing_nanos",
    "env_delete_dir_nanos",
    "env_get_file_size_nanos",
    "env_get_file_modification_time_nanos",
    "env_rename_file_nanos",
    "env_link_file_nanos",
    "env_lock_file_nanos",
    "env_unlock_file_nanos",
    "env_new_logger_nanos",
    "number_async_seek",
    "blob_cache_hit_count",
    "blob_read_count",
    "blob_read_byte",
    "blob_read_time",
    "blob_checksum_time",
    "blob_decompress_time",
    "internal_range_del_reseek_count",
];

/// The counters of a report, in its order.
const REPORT: [&str; 93] = [
    "user_key_comparison_count",
    "block_cache_hit_count",
    "block_read_count",
    "block_read_byte",
    "block_read_time",
    "block_cache_index_hit_count",
    "block_cache_standalone_handle_count",
    "block_cache_real_handle_count",
    "index_block_read_count",
    "block_cache_filter_hit_count",
    "filter_block_read_count",
    "compression_dict_block_read_count",
    "secondary_cache_hit_count",
    "compressed_sec_cache_insert_real_count",
    "compressed_sec_cache_insert_dummy_count",
    "compressed_sec_cache_uncompressed_bytes",
    "compressed_sec_cache_compressed_bytes",
    "block_checksum_time",
    "block_decompress_time",
    "get_read_bytes",
    "multiget_read_bytes",
    "iter_read_bytes",
    "blob_cache_hit_count",
    "blob_read_count",
    "blob_read_byte",
    "blob_read_time",
    "blob_checksum_time",
    "blob_decompress_time",
    "internal_key_skipped_count",
    "internal_delete_skipped_count",
    "internal_recent_skipped_count",
    "internal_merge_count",
    "internal_range_del_reseek_count",
    "write_wal_time",
    "get_snapshot_time",
    "get_from_memtable_time",
    "get_from_memtable_count",
    "get_post_process_time",
    "get_from_output_files_time",
    "seek_on_memtable_time",
    "seek_on_memtable_count",
    "next_on_memtable_count",
    "prev_on_memtable_count",
    "seek_child_seek_time",
    "seek_child_seek_count",
    "seek_min_heap_time",
    "seek_internal_seek_time",
    "find_next_user_entry_time",
    "write_pre_and_post_process_time",
    "write_memtable_time",
    "write_thread_wait_nanos",
    "write_scheduling_flushes_compactions_time",
    "db_mutex_lock_nanos",
    "db_condition_wait_nanos",
    "merge_operator_time_nanos",
    "write_delay_time",
    "read_index_block_nanos",
    "read_filter_block_nanos",
    "new_table_block_iter_nanos",
    "new_table_iterator_nanos",
    "block_seek_nanos",
    "find_table_nanos",
    "bloom_memtable_hit_count",
    "bloom_memtable_miss_count",
    "bloom_sst_hit_count",
    "bloom_sst_miss_count",
    "key_lock_wait_time",
    "key_lock_wait_count",
    "env_new_sequential_file_nanos",
    "env_new_random_access_file_nanos",
    "env_new_writable_file_nanos",
    "env_reuse_writable_file_nanos",
    "env_new_random_rw_file_nanos",
    "env_new_directory_nanos",
    "env_file_exists_nanos",
    "env_get_children_nanos",
    "env_get_children_file_attributes_nanos",
    "env_delete_file_nanos",
    "env_create_dir_nanos",
    "env_create_dir_if_missing_nanos",
    "env_delete_dir_nanos",
    "env_get_file_size_nanos",
    "env_get_file_modification_time_nanos",
    "env_rename_file_nanos",
    "env_link_file_nanos",
    "env_lock_file_nanos",
    "env_unlock_file_nanos",
    "env_new_logger_nanos",
    "get_cpu_nanos",
    "iter_next_cpu_nanos",
    "iter_prev_cpu_nanos",
    "iter_seek_cpu_nanos",
    "number_async_seek",
];
