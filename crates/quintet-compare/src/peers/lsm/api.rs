//! The functions that the C interfaces of `RocksDB` and `LevelDB` have in common.
#![expect(unsafe_code, reason = "calls into C libraries")]

use std::ffi::{c_char, c_int, c_uchar, c_void};

use quintet_bench::failure::Outcome;

use super::super::{
    library::{self, functions},
    peer::failed,
};

/// An opaque object of the library.
pub(super) type Object = *mut c_void;
/// Location for an error message, which is memory of the library that the caller frees.
pub(super) type ErrorOut = *mut *mut c_char;

/// Bits per key of the Bloom filters: the papers' setting, and the advice of both projects.
pub(super) const BLOOM_BITS: u8 = 10;
/// Minimum size of a memtable.
pub(super) const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// No compression, in both libraries.
pub(super) const COMPRESSION_NONE: c_int = 0;

functions! {
    /// Functions of both libraries.
    CommonApi {
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

/// Turns an error message of the library into a failure.
pub(super) fn check(library: &str, api: &CommonApi, error: *mut c_char) -> Outcome {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a message that is not null is a terminated string that the caller must free.
    let what = unsafe {
        let what = library::text(error);
        (api.free)(error.cast());
        what
    };
    Err(failed(library, what))
}
