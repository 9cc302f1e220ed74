//! The functions, flags and structures of `lmdb.h` and `mdbx.h`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::super::library::functions;

/// An opaque object of the library.
pub(super) type Object = *mut c_void;

/// A key or a value: length and start, in the order of the flavour.
pub(super) type Pair = [usize; 2];

functions! {
    /// What both libraries have with the same arguments.
    CommonApi {
        env_create: fn(*mut Object) -> c_int;
        env_open: fn(Object, *const c_char, c_uint, c_uint) -> c_int;
        txn_abort: fn(Object) -> c_int;
        txn_reset: fn(Object) -> c_int;
        txn_renew: fn(Object) -> c_int;
        dbi_open: fn(Object, *const c_char, c_uint, *mut c_uint) -> c_int;
        get: fn(Object, c_uint, *const Pair, *mut Pair) -> c_int;
        put: fn(Object, c_uint, *const Pair, *const Pair, c_uint) -> c_int;
        del: fn(Object, c_uint, *const Pair, *const Pair) -> c_int;
        cursor_open: fn(Object, c_uint, *mut Object) -> c_int;
        cursor_close: fn(Object);
        cursor_get: fn(Object, *mut Pair, *mut Pair, c_uint) -> c_int;
        strerror: fn(c_int) -> *const c_char;
    }
}

functions! {
    /// LMDB's form of what differs.
    LmdbApi {
        env_set_mapsize: fn(Object, usize) -> c_int;
        env_set_maxreaders: fn(Object, c_uint) -> c_int;
        env_close: fn(Object);
        env_sync: fn(Object, c_int) -> c_int;
        txn_begin: fn(Object, Object, c_uint, *mut Object) -> c_int;
        txn_commit: fn(Object) -> c_int;
        stat: fn(Object, c_uint, *mut Stat) -> c_int;
    }
}

functions! {
    /// MDBX's form of what differs.
    MdbxApi {
        env_set_geometry: fn(Object, isize, isize, isize, isize, isize, isize) -> c_int;
        env_set_option: fn(Object, c_uint, u64) -> c_int;
        env_close_ex: fn(Object, bool) -> c_int;
        env_sync_ex: fn(Object, bool, bool) -> c_int;
        txn_begin_ex: fn(Object, Object, c_uint, *mut Object, Object) -> c_int;
        txn_commit_ex: fn(Object, Object) -> c_int;
        dbi_stat: fn(Object, c_uint, *mut Stat, usize) -> c_int;
    }
}

/// `MDB_stat`; `MDBX_stat` begins the same way and has one word more.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stat {
    pub(super) page_bytes: u32,
    pub(super) depth: u32,
    pub(super) branch_pages: u64,
    pub(super) leaf_pages: u64,
    pub(super) overflow_pages: u64,
    pub(super) entries: u64,
    pub(super) transaction: u64,
}

/// Flags with the same value in both libraries.
pub(super) const WRITE_MAP: c_uint = 0x8_0000;
/// LMDB's `NOSYNC`.
pub(super) const NO_SYNC: c_uint = 0x1_0000;
/// MDBX's `UTTERLY_NOSYNC`, which is the same: `SAFE_NOSYNC` alone may not reuse a page until the
/// next sync and made four thousand puts a second here.
pub(super) const UTTERLY_NO_SYNC: c_uint = NO_SYNC | 0x10_0000;
pub(super) const MAP_ASYNC: c_uint = 0x10_0000;
pub(super) const NO_TLS: c_uint = 0x20_0000;
pub(super) const NO_READ_AHEAD: c_uint = 0x80_0000;
pub(super) const NO_MEMORY_INIT: c_uint = 0x100_0000;
pub(super) const TXN_READ_ONLY: c_uint = 0x2_0000;
/// MDBX makes the unnamed table only when asked to; LMDB takes no notice.
pub(super) const CREATE: c_uint = 0x4_0000;
pub(super) const NOT_FOUND: c_int = -30798;
pub(super) const CURSOR_FIRST: c_uint = 0;
pub(super) const CURSOR_NEXT: c_uint = 8;
pub(super) const CURSOR_SET_RANGE: c_uint = 17;
pub(super) const MODE: c_uint = 0o644;
pub(super) const READERS_MAX: u16 = 1024;
pub(super) const MDBX_OPTION_READERS_MAX: c_uint = 1;
/// The map is as large as the file can get; address space costs nothing.
pub(super) const MAP_BYTES_MIN: u64 = 16 << 30;
pub(super) const MAP_BYTES_PER_BYTE: u64 = 4;

/// `MDB_APPEND` and `MDBX_APPEND`: the key goes behind all others.
pub(super) const APPEND: c_uint = 0x2_0000;

/// Names of flags for the command line: LMDB's, without their prefix.
pub(super) const FLAGS: [(&str, c_uint); 6] = [
    ("NOSYNC", NO_SYNC),
    ("UTTERLY_NOSYNC", UTTERLY_NO_SYNC),
    ("MAPASYNC", MAP_ASYNC),
    ("WRITEMAP", WRITE_MAP),
    ("NORDAHEAD", NO_READ_AHEAD),
    ("NOMEMINIT", NO_MEMORY_INIT),
];
