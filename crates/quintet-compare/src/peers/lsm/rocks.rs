//! `RocksDB`: the functions that only its C interface has, and its settings.
#![expect(unsafe_code, reason = "calls into a C library")]

use std::{
    ffi::{CString, c_char, c_double, c_int, c_uchar},
    ptr,
};

use quintet_bench::{
    failure::Outcome,
    store::{Setting, StoreOptions},
};

use super::{
    super::{
        library::functions,
        peer::{budget, failed, setting, size},
    },
    api::{BLOOM_BITS, CommonApi, ErrorOut, MEMTABLE_BYTES_MIN, Object, check},
};

functions! {
    /// Functions of `RocksDB` that `LevelDB` does not have, or has in another form.
    RocksApi {
        get_options_from_string: fn(Object, *const c_char, Object, ErrorOut);
        options_increase_parallelism: fn(Object, c_int);
        options_set_max_write_buffer_number: fn(Object, c_int);
        options_set_memtable_whole_key_filtering: fn(Object, c_uchar);
        options_set_memtable_prefix_bloom_size_ratio: fn(Object, c_double);
        options_set_use_direct_reads: fn(Object, c_uchar);
        options_set_use_direct_io_for_flush_and_compaction: fn(Object, c_uchar);
        options_set_block_based_table_factory: fn(Object, Object);
        block_based_options_create: fn() -> Object;
        block_based_options_destroy: fn(Object);
        block_based_options_set_block_cache: fn(Object, Object);
        block_based_options_set_filter_policy: fn(Object, Object);
        block_based_options_set_data_block_index_type: fn(Object, c_int);
        block_based_options_set_data_block_hash_ratio: fn(Object, c_double);
        filterpolicy_create_bloom_full: fn(c_double) -> Object;
        get_pinned: fn(Object, Object, *const u8, usize, ErrorOut) -> Object;
        pinnableslice_value: fn(Object, *mut usize) -> *const u8;
        pinnableslice_destroy: fn(Object);
        get_default_column_family_handle: fn(Object) -> Object;
        batched_multi_get_cf: fn(
            Object, Object, Object, usize, *const *const u8, *const usize, *mut Object,
            *mut *mut c_char, c_uchar
        );
        property_int: fn(Object, *const c_char, *mut u64) -> c_int;
    }
}

/// Maximum number of memtables: the setting of the `CompassDB` paper.
const MEMTABLES: u8 = 4;
/// Maximum size of a memtable. A put into a larger one waits half of its time for nodes of the skip
/// list that have left the caches. Loads of five million records ran at 202, 173, 169 and 144
/// thousand per second with 16, 32, 64 and 128 MiB; gets did not differ beyond the noise.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
/// Index type of a data block: binary search and a hash table.
const BLOCK_INDEX_HASH: c_int = 1;
/// Entries per bucket of that hash table.
const BLOCK_HASH_RATIO: f64 = 0.75;
/// Size of the Bloom filter of a memtable, as a share of the memtable.
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

/// Division of the memory budget.
#[derive(Clone, Copy, Debug)]
struct RocksSizes {
    cache: u64,
    memtable: u64,
}

/// Divides a memory budget: up to half for the memtables, the rest for the cache.
fn sizes(budget: u64) -> RocksSizes {
    let count = u64::from(MEMTABLES);
    let memtable = (budget / 2 / count).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
    let memtables = (memtable * count).min(budget / 2);
    RocksSizes { cache: budget.saturating_sub(memtables), memtable }
}

/// Returns the settings, each with its reason.
pub(super) fn settings(options: &StoreOptions) -> Vec<Setting> {
    let sizes = sizes(budget(options));
    vec![
        setting("filter", "Bloom, 10 bits a key", "the papers' setting and the usual advice"),
        setting("compression", "none", "as in the papers' comparisons; values do not compress"),
        setting("block cache bytes", sizes.cache, "the budget less the memtables"),
        setting(
            "write_buffer_size",
            sizes.memtable,
            "loads 1.2 to 1.7 times as fast with 16 MiB as with 32 to 128",
        ),
        setting(
            "sync",
            options.is_synced(),
            "a log without sync is the promise of our buffered writes",
        ),
        setting("max_write_buffer_number", MEMTABLES, "as in the CompassDB paper"),
        setting("increase_parallelism", cpus(), "flush and compaction on all processors"),
        setting("data_block_index_type", "hash", "its own advice for point reads"),
        setting("memtable bloom", "whole key, ratio 0.02", "its own advice for point reads"),
        setting("direct reads, flushes, compactions", options.is_direct(), "as asked for"),
    ]
}

/// Sets the options of `native`.
///
/// # Safety
/// `native` is a live object of the library.
pub(super) unsafe fn tune(
    api: &CommonApi,
    rocks: &RocksApi,
    native: Object,
    options: &StoreOptions,
) {
    let sizes = sizes(budget(options));
    // SAFETY: as the caller promises; the table options are copied by the factory.
    unsafe {
        (api.options_set_write_buffer_size)(native, size(sizes.memtable));
        let cache = (api.cache_create_lru)(size(sizes.cache));
        let table = (rocks.block_based_options_create)();
        (rocks.block_based_options_set_block_cache)(table, cache);
        let filter = (rocks.filterpolicy_create_bloom_full)(c_double::from(BLOOM_BITS));
        (rocks.block_based_options_set_filter_policy)(table, filter);
        (rocks.block_based_options_set_data_block_index_type)(table, BLOCK_INDEX_HASH);
        (rocks.block_based_options_set_data_block_hash_ratio)(table, BLOCK_HASH_RATIO);
        (rocks.options_set_block_based_table_factory)(native, table);
        (rocks.block_based_options_destroy)(table);
        (rocks.options_increase_parallelism)(native, cpus());
        (rocks.options_set_max_write_buffer_number)(native, c_int::from(MEMTABLES));
        (rocks.options_set_memtable_whole_key_filtering)(native, 1);
        (rocks.options_set_memtable_prefix_bloom_size_ratio)(native, MEMTABLE_BLOOM_RATIO);
        let direct = c_uchar::from(options.is_direct());
        (rocks.options_set_use_direct_reads)(native, direct);
        (rocks.options_set_use_direct_io_for_flush_and_compaction)(native, direct);
    }
}

/// Overrides options by those of the command line, under their names in `RocksDB`.
///
/// # Safety
/// `native` is a live object of the library.
pub(super) unsafe fn override_options(
    api: &CommonApi,
    rocks: &RocksApi,
    native: Object,
    requested: &[(String, String)],
) -> Outcome {
    if requested.is_empty() {
        return Ok(());
    }
    let pairs: Vec<String> =
        requested.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = CString::new(pairs.join(";")).map_err(|error| failed("rocksdb", error))?;
    let mut error = ptr::null_mut();
    // SAFETY: as the caller promises; the library reads the base before it writes the result.
    unsafe {
        (rocks.get_options_from_string)(native, text.as_ptr(), native, &raw mut error);
    }
    check("rocksdb", api, error)
}

fn cpus() -> c_int {
    std::thread::available_parallelism()
        .ok()
        .and_then(|count| c_int::try_from(count.get()).ok())
        .unwrap_or(1)
}
