//! `LevelDB`: the functions that only its C interface has, and its settings.
#![expect(unsafe_code, reason = "calls into a C library")]

use std::ffi::c_int;

use quintet_bench::{
    failure::Outcome,
    store::{Setting, StoreOptions},
};

use super::{
    super::{
        library::functions,
        peer::{budget, failed, override_settings, setting, size},
    },
    api::{BLOOM_BITS, CommonApi, MEMTABLE_BYTES_MIN, Object},
};

functions! {
    /// Functions of `LevelDB` that differ from those of `RocksDB`.
    LevelApi {
        options_set_cache: fn(Object, Object);
        options_set_filter_policy: fn(Object, Object);
        options_set_max_file_size: fn(Object, usize);
        options_set_block_size: fn(Object, usize);
        options_set_block_restart_interval: fn(Object, c_int);
        filterpolicy_create_bloom: fn(c_int) -> Object;
    }
}

/// Number of memtables: one that is active and one that is flushed.
const MEMTABLES: u64 = 2;
/// Maximum size of a memtable; see the settings.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of open files. `LevelDB` reopens files beyond it; this is enough for 20 GB.
const FILES_MAX: u64 = 10_000;
/// Size of a table file: its default.
const FILE_BYTES: u64 = 2 << 20;

/// Settings under the names of its options.
#[derive(Clone, Copy, Debug)]
struct LevelTuning {
    write_buffer_size: u64,
    block_cache: u64,
    max_file_size: u64,
    block_size: u64,
    block_restart_interval: u64,
    bloom_bits: u64,
    max_open_files: u64,
}

impl LevelTuning {
    /// Returns the settings for a memory budget: up to half for the memtables, the rest for the
    /// cache.
    fn new(budget: u64) -> Self {
        let memtable = (budget / 2 / MEMTABLES).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        let memtables = (memtable * MEMTABLES).min(budget / 2);
        Self {
            write_buffer_size: memtable,
            block_cache: budget.saturating_sub(memtables),
            max_file_size: FILE_BYTES,
            block_size: 4096,
            block_restart_interval: 16,
            bloom_bits: BLOOM_BITS.into(),
            max_open_files: FILES_MAX,
        }
    }

    /// Overrides settings by options of the command line.
    fn change(&mut self, asked: &[(String, String)]) -> Outcome {
        override_settings(
            "leveldb",
            asked,
            &mut [
                ("write_buffer_size", &mut self.write_buffer_size),
                ("block_cache", &mut self.block_cache),
                ("max_file_size", &mut self.max_file_size),
                ("block_size", &mut self.block_size),
                ("block_restart_interval", &mut self.block_restart_interval),
                ("bloom_bits", &mut self.bloom_bits),
                ("max_open_files", &mut self.max_open_files),
            ],
        )
    }
}

/// Returns the settings, each with its reason.
pub(super) fn settings(options: &StoreOptions) -> Vec<Setting> {
    let tuning = LevelTuning::new(budget(options));
    vec![
        setting("filter", "Bloom, 10 bits a key", "the papers' setting and the usual advice"),
        setting("compression", "none", "as in the papers' comparisons; values do not compress"),
        setting("block cache bytes", tuning.block_cache, "the budget less the memtables"),
        setting(
            "write_buffer_size",
            tuning.write_buffer_size,
            "half of the budget at most; loads 1.8 times as fast with 16 MiB as with 128",
        ),
        setting(
            "sync",
            options.is_synced(),
            "a log without sync is the promise of our buffered writes",
        ),
        setting("max_open_files", tuning.max_open_files, "no file is opened twice"),
        setting(
            "max_file_size",
            tuning.max_file_size,
            "its default: short merges; 64 MiB loads half as fast",
        ),
    ]
}

/// Sets the options of `native`.
///
/// # Safety
/// `native` is a live object of the library of `api` and `level`.
pub(super) unsafe fn tune(
    api: &CommonApi,
    level: &LevelApi,
    native: Object,
    options: &StoreOptions,
) -> Outcome {
    let mut tuning = LevelTuning::new(budget(options));
    tuning.change(&options.settings)?;
    let int = |value: u64| c_int::try_from(value).map_err(|error| failed("leveldb", error));
    let (restart, bits, files) =
        (int(tuning.block_restart_interval)?, int(tuning.bloom_bits)?, int(tuning.max_open_files)?);
    // SAFETY: as the caller promises; cache and filter live as long as the process.
    unsafe {
        (api.options_set_write_buffer_size)(native, size(tuning.write_buffer_size));
        (api.options_set_max_open_files)(native, files);
        (level.options_set_cache)(native, (api.cache_create_lru)(size(tuning.block_cache)));
        (level.options_set_max_file_size)(native, size(tuning.max_file_size));
        (level.options_set_block_size)(native, size(tuning.block_size));
        (level.options_set_block_restart_interval)(native, restart);
        if bits > 0 {
            (level.options_set_filter_policy)(native, (level.filterpolicy_create_bloom)(bits));
        }
    }
    Ok(())
}
