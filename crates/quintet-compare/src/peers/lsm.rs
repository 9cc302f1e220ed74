//! `RocksDB` and `LevelDB`, through their C interfaces.
//!
//! `RocksDB`'s interface is `LevelDB`'s and more: one adapter, with what only one of them has
//! behind [`Extra`]. Gets of `RocksDB` pin the block and copy once, `multi_get` is its batched form
//! that groups filter probes and reads.
//!
//! Thread rules: both stores allow any number of threads on one handle, and their read and write
//! options are only read after opening; that is what makes [`Lsm`] `Send` and `Sync`.
#![expect(unsafe_code, reason = "calls into C libraries")]

use std::{
    ffi::{CString, c_char, c_double, c_int, c_uchar, c_void},
    os::unix::ffi::OsStrExt as _,
    ptr,
};

use quintet_bench::{
    failure::{Failure, Outcome},
    store::{Durability, EachEntry, EachFound, Store, StoreStats},
};

use super::{
    Opening, Peer, UNUSED_KEY, failed,
    level::{self, Level},
    library::{self, functions},
    setting, size,
};
use crate::result::Setting;

/// An opaque object of the library.
pub(super) type Object = *mut c_void;
/// Where an error message is put: memory of the library, to be freed.
type ErrorOut = *mut *mut c_char;

functions! {
    /// What both libraries have.
    Common {
        open: fn(Object, *const c_char, ErrorOut) -> Object;
        close: fn(Object);
        put: fn(Object, Object, *const u8, usize, *const u8, usize, ErrorOut);
        delete: fn(Object, Object, *const u8, usize, ErrorOut);
        write: fn(Object, Object, Object, ErrorOut);
        get: fn(Object, Object, *const u8, usize, *mut usize, ErrorOut) -> *mut u8;
        create_iterator: fn(Object, Object) -> Object;
        iter_destroy: fn(Object);
        iter_valid: fn(Object) -> c_uchar;
        iter_seek_to_first: fn(Object);
        iter_seek: fn(Object, *const u8, usize);
        iter_next: fn(Object);
        iter_key: fn(Object, *mut usize) -> *const u8;
        iter_value: fn(Object, *mut usize) -> *const u8;
        iter_get_error: fn(Object, ErrorOut);
        writebatch_create: fn() -> Object;
        writebatch_destroy: fn(Object);
        writebatch_put: fn(Object, *const u8, usize, *const u8, usize);
        options_create: fn() -> Object;
        options_destroy: fn(Object);
        options_set_create_if_missing: fn(Object, c_uchar);
        options_set_write_buffer_size: fn(Object, usize);
        options_set_compression: fn(Object, c_int);
        options_set_max_open_files: fn(Object, c_int);
        cache_create_lru: fn(usize) -> Object;
        readoptions_create: fn() -> Object;
        readoptions_destroy: fn(Object);
        writeoptions_create: fn() -> Object;
        writeoptions_destroy: fn(Object);
        writeoptions_set_sync: fn(Object, c_uchar);
        free: fn(*mut c_void);
    }
}

functions! {
    /// What `RocksDB` has and `LevelDB` has not, or has in another form.
    Rocks {
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

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rocks,
    Level,
}

/// Bits a key of the filters: the papers' setting, and both projects' advice.
pub(super) const BLOOM_BITS: u8 = 10;
/// Memtables of `RocksDB` at most: the setting of the CompassDB paper.
const MEMTABLES: u8 = 4;
/// Of `RocksDB`: half of a put into a larger one is spent waiting for the nodes of its skip list
/// that have left the processor's caches. Five million records with 16, 32, 64 and 128 MiB loaded
/// at 202, 173, 169 and 144 thousand a second; gets did not differ beyond the noise.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
pub(super) const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// No compression, in both libraries.
const COMPRESSION_NONE: c_int = 0;
/// Binary search plus a hash table in each data block of `RocksDB`.
const BLOCK_INDEX_HASH: c_int = 1;
const BLOCK_HASH_RATIO: f64 = 0.75;
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

/// How `RocksDB`'s memory is divided.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    cache: u64,
    memtable: u64,
}

impl Kind {
    const fn library(self) -> &'static str {
        match self {
            Self::Rocks => "rocksdb",
            Self::Level => "leveldb",
        }
    }
}

/// Half for the cache, half for the memtables, as far as these are of use.
fn rocks_sizes(budget: u64) -> Sizes {
    let count = u64::from(MEMTABLES);
    let memtable = (budget / 2 / count).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
    let memtables = (memtable * count).min(budget / 2);
    Sizes { cache: budget.saturating_sub(memtables), memtable }
}

impl Peer for Kind {
    fn name(&self) -> &'static str {
        self.library()
    }

    fn version(&self) -> String {
        library::version(self.library())
    }

    fn is_there(&self) -> Outcome {
        library::find(self.library()).map(drop)
    }

    fn takes_options(&self) -> bool {
        true
    }

    fn promise(&self, _: Durability) -> &'static str {
        // Without sync the log is written to the page cache: it survives the process. That is what
        // ours promises; when a power loss may lose how much is not bounded in time.
        ""
    }

    fn settings(&self, opening: &Opening<'_>) -> Vec<Setting> {
        match self {
            Self::Rocks => rocks_settings(opening),
            Self::Level => level::settings(opening),
        }
    }

    fn open(&self, opening: &Opening<'_>) -> Outcome<Box<dyn Store>> {
        if *self == Self::Level && opening.is_direct() {
            return Err(Failure::Failed("leveldb has no direct I/O".to_owned()));
        }
        let library = library::load(self.library())?;
        // SAFETY: the declarations above are those of the libraries' headers, `rocksdb/c.h` and
        // `leveldb/c.h`.
        let (api, extra) = unsafe {
            let prefix = format!("{}_", self.library());
            let extra = match self {
                Self::Rocks => Extra::Rocks(Rocks::look_up(library, &prefix)?),
                Self::Level => Extra::Level(Level::look_up(library, &prefix)?),
            };
            (Common::look_up(library, &prefix)?, extra)
        };
        Ok(Box::new(Lsm::open(*self, api, extra, opening)?))
    }
}

fn rocks_settings(opening: &Opening<'_>) -> Vec<Setting> {
    let sizes = rocks_sizes(opening.budget());
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
            opening.is_synced(),
            "a log without sync is the promise of our buffered writes",
        ),
        setting("max_write_buffer_number", MEMTABLES, "as in the CompassDB paper"),
        setting("increase_parallelism", cpus(), "flush and compaction on all processors"),
        setting("data_block_index_type", "hash", "its own advice for point reads"),
        setting("memtable bloom", "whole key, ratio 0.02", "its own advice for point reads"),
        setting("direct reads, flushes, compactions", opening.is_direct(), "as asked for"),
    ]
}

/// What only one of the libraries has.
#[derive(Clone, Copy)]
enum Extra {
    Rocks(Rocks),
    Level(Level),
}

/// An open store of one of the two.
struct Lsm {
    kind: Kind,
    api: Common,
    extra: Extra,
    store: Object,
    read: Object,
    write: Object,
    write_synced: Object,
    column_family: Object,
}

// SAFETY: the module head: both libraries synchronise all functions that are called here on a
// shared handle, and the option objects are not changed after `open`.
unsafe impl Send for Lsm {}
// SAFETY: as above.
unsafe impl Sync for Lsm {}

impl Lsm {
    fn open(kind: Kind, api: Common, extra: Extra, opening: &Opening<'_>) -> Outcome<Self> {
        let path = CString::new(opening.options.dir.as_os_str().as_bytes())
            .map_err(|error| failed(kind.library(), error))?;
        // SAFETY: objects are made and used as the headers say; filter and cache objects live as
        // long as the process, which the store may rely on.
        unsafe {
            let options = (api.options_create)();
            (api.options_set_create_if_missing)(options, 1);
            (api.options_set_compression)(options, COMPRESSION_NONE);
            let tuned = match &extra {
                Extra::Rocks(rocks) => {
                    tune_rocks(&api, rocks, options, opening);
                    change_rocks(&api, rocks, options, &opening.options.settings)
                }
                Extra::Level(level) => level::tune(&api, level, options, opening),
            };
            tuned.inspect_err(|_| (api.options_destroy)(options))?;
            let mut error = ptr::null_mut();
            let store = (api.open)(options, path.as_ptr(), &raw mut error);
            (api.options_destroy)(options);
            check(kind, &api, error)?;
            let write = (api.writeoptions_create)();
            (api.writeoptions_set_sync)(write, c_uchar::from(opening.is_synced()));
            let write_synced = (api.writeoptions_create)();
            (api.writeoptions_set_sync)(write_synced, 1);
            let column_family = match &extra {
                Extra::Rocks(rocks) => (rocks.get_default_column_family_handle)(store),
                Extra::Level(_) => ptr::null_mut(),
            };
            let read = (api.readoptions_create)();
            Ok(Self { kind, api, extra, store, read, write, write_synced, column_family })
        }
    }

    fn check(&self, error: *mut c_char) -> Outcome {
        check(self.kind, &self.api, error)
    }

    /// Visits up to `limit` entries from `start` on.
    fn visit(
        &self,
        start: Option<&[u8]>,
        limit: usize,
        each: &mut EachEntry<'_>,
    ) -> Outcome<usize> {
        let api = &self.api;
        let mut count = 0;
        // SAFETY: the iterator is used by this thread alone and destroyed before the store; key
        // and value are valid until it moves.
        unsafe {
            let iterator = (api.create_iterator)(self.store, self.read);
            match start {
                Some(start) => (api.iter_seek)(iterator, start.as_ptr(), start.len()),
                None => (api.iter_seek_to_first)(iterator),
            }
            while count < limit && (api.iter_valid)(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = (api.iter_key)(iterator, &raw mut key_len);
                let value = (api.iter_value)(iterator, &raw mut value_len);
                each(bytes(key, key_len), bytes(value, value_len));
                (api.iter_next)(iterator);
                count += 1;
            }
            let mut error = ptr::null_mut();
            (api.iter_get_error)(iterator, &raw mut error);
            (api.iter_destroy)(iterator);
            self.check(error)?;
        }
        Ok(count)
    }

    /// A figure of `RocksDB` by its property's name.
    fn property(&self, name: &std::ffi::CStr) -> Option<u64> {
        let Extra::Rocks(rocks) = &self.extra else { return None };
        let mut value = 0;
        // SAFETY: the name is terminated, `value` outlives the call.
        let missing = unsafe { (rocks.property_int)(self.store, name.as_ptr(), &raw mut value) };
        (missing == 0).then_some(value)
    }
}

/// The settings that only `RocksDB` has.
///
/// # Safety
/// `options` is a live object of the library.
unsafe fn tune_rocks(api: &Common, rocks: &Rocks, options: Object, opening: &Opening<'_>) {
    let sizes = rocks_sizes(opening.budget());
    // SAFETY: as the caller promises; the table options are copied by the factory.
    unsafe {
        (api.options_set_write_buffer_size)(options, size(sizes.memtable));
        let cache = (api.cache_create_lru)(size(sizes.cache));
        let table = (rocks.block_based_options_create)();
        (rocks.block_based_options_set_block_cache)(table, cache);
        let filter = (rocks.filterpolicy_create_bloom_full)(c_double::from(BLOOM_BITS));
        (rocks.block_based_options_set_filter_policy)(table, filter);
        (rocks.block_based_options_set_data_block_index_type)(table, BLOCK_INDEX_HASH);
        (rocks.block_based_options_set_data_block_hash_ratio)(table, BLOCK_HASH_RATIO);
        (rocks.options_set_block_based_table_factory)(options, table);
        (rocks.block_based_options_destroy)(table);
        (rocks.options_increase_parallelism)(options, cpus());
        (rocks.options_set_max_write_buffer_number)(options, c_int::from(MEMTABLES));
        (rocks.options_set_memtable_whole_key_filtering)(options, 1);
        (rocks.options_set_memtable_prefix_bloom_size_ratio)(options, MEMTABLE_BLOOM_RATIO);
        let direct = c_uchar::from(opening.is_direct());
        (rocks.options_set_use_direct_reads)(options, direct);
        (rocks.options_set_use_direct_io_for_flush_and_compaction)(options, direct);
    }
}

/// What the command line asks for, under `RocksDB`'s own names.
///
/// # Safety
/// `options` is a live object of the library.
unsafe fn change_rocks(
    api: &Common,
    rocks: &Rocks,
    options: Object,
    asked: &[(String, String)],
) -> Outcome {
    if asked.is_empty() {
        return Ok(());
    }
    let pairs: Vec<String> = asked.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = CString::new(pairs.join(";")).map_err(|error| failed("rocksdb", error))?;
    let mut error = ptr::null_mut();
    // SAFETY: as the caller promises; the library reads the base before it writes the result.
    unsafe {
        (rocks.get_options_from_string)(options, text.as_ptr(), options, &raw mut error);
    }
    check(Kind::Rocks, api, error)
}

fn cpus() -> c_int {
    std::thread::available_parallelism()
        .ok()
        .and_then(|count| c_int::try_from(count.get()).ok())
        .unwrap_or(1)
}

/// Turns an error message of the library into a failure.
fn check(kind: Kind, api: &Common, error: *mut c_char) -> Outcome {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a message that is not null is a terminated string that is ours to free.
    let what = unsafe {
        let what = library::text(error);
        (api.free)(error.cast());
        what
    };
    Err(failed(kind.library(), what))
}

/// The bytes at a pointer of the library.
///
/// # Safety
/// `start` points to `len` bytes that nobody changes for as long as the result is used.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start, len) }
}

impl Store for Lsm {
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let mut error = ptr::null_mut();
        let mut len = 0;
        // SAFETY: pinned slices and returned memory are read before they are given back.
        unsafe {
            if let Extra::Rocks(rocks) = &self.extra {
                let slice = (rocks.get_pinned)(
                    self.store,
                    self.read,
                    key.as_ptr(),
                    key.len(),
                    &raw mut error,
                );
                self.check(error)?;
                if slice.is_null() {
                    return Ok(false);
                }
                let start = (rocks.pinnableslice_value)(slice, &raw mut len);
                value.clear();
                value.extend_from_slice(bytes(start, len));
                (rocks.pinnableslice_destroy)(slice);
                return Ok(true);
            }
            let start = (self.api.get)(
                self.store,
                self.read,
                key.as_ptr(),
                key.len(),
                &raw mut len,
                &raw mut error,
            );
            self.check(error)?;
            if start.is_null() {
                return Ok(false);
            }
            value.clear();
            value.extend_from_slice(bytes(start, len));
            (self.api.free)(start.cast());
        }
        Ok(true)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        let Extra::Rocks(rocks) = &self.extra else {
            let mut value = Vec::new();
            for (index, key) in keys.iter().enumerate() {
                let found = self.get_into(key, &mut value)?;
                each(index, found.then_some(value.as_slice()));
            }
            return Ok(());
        };
        let starts: Vec<*const u8> = keys.iter().map(|key| key.as_ptr()).collect();
        let lengths: Vec<usize> = keys.iter().map(|key| key.len()).collect();
        let mut slices: Vec<Object> = vec![ptr::null_mut(); keys.len()];
        let mut errors: Vec<*mut c_char> = vec![ptr::null_mut(); keys.len()];
        // SAFETY: all four arrays have as many elements as there are keys.
        unsafe {
            (rocks.batched_multi_get_cf)(
                self.store,
                self.read,
                self.column_family,
                keys.len(),
                starts.as_ptr(),
                lengths.as_ptr(),
                slices.as_mut_ptr(),
                errors.as_mut_ptr(),
                0,
            );
        }
        let mut outcome = Ok(());
        for (index, (slice, error)) in slices.into_iter().zip(errors).enumerate() {
            outcome = outcome.and(self.check(error));
            if slice.is_null() {
                each(index, None);
                continue;
            }
            let mut len = 0;
            // SAFETY: the slice is live until it is destroyed here.
            unsafe {
                let start = (rocks.pinnableslice_value)(slice, &raw mut len);
                each(index, Some(bytes(start, len)));
                (rocks.pinnableslice_destroy)(slice);
            }
        }
        outcome
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the library copies both before it returns.
        unsafe {
            (self.api.put)(
                self.store,
                self.write,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &raw mut error,
            );
        }
        self.check(error)
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the library copies the key before it returns.
        unsafe {
            let delete = self.api.delete;
            delete(self.store, self.write, key.as_ptr(), key.len(), &raw mut error);
        }
        self.check(error)
    }

    fn batch(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: the batch copies keys and values and is destroyed after it was written.
        unsafe {
            let batch = (self.api.writebatch_create)();
            for (key, value) in entries {
                let put = self.api.writebatch_put;
                put(batch, key.as_ptr(), key.len(), value.as_ptr(), value.len());
            }
            (self.api.write)(self.store, self.write, batch, &raw mut error);
            (self.api.writebatch_destroy)(batch);
        }
        self.check(error)
    }

    fn range(&self, start: &[u8], limit: usize, each: &mut EachEntry<'_>) -> Outcome<usize> {
        self.visit(Some(start), limit, each)
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        self.visit(None, usize::MAX, each).map(quintet_bench::numbers::to_u64)
    }

    /// A synced delete of a key that was never there: the log, and all before it, is then durable.
    fn sync(&self) -> Outcome {
        let mut error = ptr::null_mut();
        // SAFETY: as for `delete`.
        unsafe {
            let delete = self.api.delete;
            let (key, len) = (UNUSED_KEY.as_ptr(), UNUSED_KEY.len());
            delete(self.store, self.write_synced, key, len, &raw mut error);
        }
        self.check(error)
    }

    fn stats(&self) -> StoreStats {
        let tables = self.property(c"rocksdb.estimate-table-readers-mem");
        let memtables = self.property(c"rocksdb.cur-size-all-mem-tables");
        let cache = self.property(c"rocksdb.block-cache-usage");
        let memory_bytes = tables
            .zip(memtables)
            .zip(cache)
            .map(|((tables, memtables), cache)| tables + memtables + cache);
        StoreStats { memory_bytes, index_bytes: tables, ..StoreStats::default() }
    }

    fn close(self: Box<Self>) -> Outcome {
        // SAFETY: nobody else has the handle any more; nothing of the store is used afterwards.
        unsafe {
            (self.api.close)(self.store);
            (self.api.readoptions_destroy)(self.read);
            (self.api.writeoptions_destroy)(self.write);
            (self.api.writeoptions_destroy)(self.write_synced);
        }
        Ok(())
    }
}
