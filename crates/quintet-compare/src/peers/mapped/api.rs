//! Functions, flags and structures of `lmdb.h` and `mdbx.h`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::super::library::functions;

/// An opaque object of the library.
pub(super) type Object = *mut c_void;

/// A key or a value: length and address, in the order of the flavour.
pub(super) type RawSlice = [usize; 2];

functions! {
    /// Functions with the same arguments in both libraries.
    CommonApi {
        env_create: fn(*mut Object) -> c_int;
        env_open: fn(Object, *const c_char, c_uint, c_uint) -> c_int;
        txn_abort: fn(Object) -> c_int;
        txn_reset: fn(Object) -> c_int;
        txn_renew: fn(Object) -> c_int;
        dbi_open: fn(Object, *const c_char, c_uint, *mut c_uint) -> c_int;
        get: fn(Object, c_uint, *const RawSlice, *mut RawSlice) -> c_int;
        put: fn(Object, c_uint, *const RawSlice, *const RawSlice, c_uint) -> c_int;
        del: fn(Object, c_uint, *const RawSlice, *const RawSlice) -> c_int;
        cursor_open: fn(Object, c_uint, *mut Object) -> c_int;
        cursor_close: fn(Object);
        cursor_get: fn(Object, *mut RawSlice, *mut RawSlice, c_uint) -> c_int;
        strerror: fn(c_int) -> *const c_char;
    }
}

functions! {
    /// Functions of LMDB that differ in MDBX.
    LmdbApi {
        env_set_mapsize: fn(Object, usize) -> c_int;
        env_set_maxreaders: fn(Object, c_uint) -> c_int;
        env_set_maxdbs: fn(Object, c_uint) -> c_int;
        env_close: fn(Object);
        env_sync: fn(Object, c_int) -> c_int;
        txn_begin: fn(Object, Object, c_uint, *mut Object) -> c_int;
        txn_commit: fn(Object) -> c_int;
        stat: fn(Object, c_uint, *mut Stat) -> c_int;
    }
}

functions! {
    /// Functions of MDBX that differ in LMDB.
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

/// `MDB_stat`. `MDBX_stat` begins with the same fields and has one more.
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
/// `UTTERLY_NOSYNC` of MDBX, which has the same effect. `SAFE_NOSYNC` reuses no page until the next
/// sync and gave four thousand puts per second on the reference machine.
pub(super) const UTTERLY_NO_SYNC: c_uint = NO_SYNC | 0x10_0000;
pub(super) const MAP_ASYNC: c_uint = 0x10_0000;
pub(super) const NO_TLS: c_uint = 0x20_0000;
pub(super) const NO_READ_AHEAD: c_uint = 0x80_0000;
pub(super) const NO_MEMORY_INIT: c_uint = 0x100_0000;
pub(super) const TXN_READ_ONLY: c_uint = 0x2_0000;
/// MDBX creates the unnamed table only with this flag; LMDB ignores it.
pub(super) const CREATE: c_uint = 0x4_0000;
pub(super) const NOT_FOUND: c_int = -30798;
pub(super) const CURSOR_FIRST: c_uint = 0;
pub(super) const CURSOR_NEXT: c_uint = 8;
pub(super) const CURSOR_SET_RANGE: c_uint = 17;
pub(super) const MODE: c_uint = 0o644;
pub(super) const READERS_MAX: u16 = 1024;
pub(super) const MDBX_OPTION_TABLES_MAX: c_uint = 0;
pub(super) const MDBX_OPTION_READERS_MAX: c_uint = 1;
/// Name of the second table. The first one is the unnamed table of the environment.
pub(super) const SECOND: &CStr = c"second table";
/// Number of tables with names: the second one.
pub(super) const NAMED_TABLES: u16 = 1;
/// Minimum size of the map. The map is the maximum size of the file; address space is free.
pub(super) const MAP_BYTES_MIN: u64 = 16 << 30;
/// Size of the map as a multiple of the bytes that the run writes.
pub(super) const MAP_BYTES_PER_BYTE: u64 = 4;

/// `MDB_APPEND` and `MDBX_APPEND`: the key is greater than all others.
pub(super) const APPEND: c_uint = 0x2_0000;

/// Names of flags on the command line: those of LMDB without their prefix.
pub(super) const FLAGS: [(&str, c_uint); 6] = [
    ("NOSYNC", NO_SYNC),
    ("UTTERLY_NOSYNC", UTTERLY_NO_SYNC),
    ("MAPASYNC", MAP_ASYNC),
    ("WRITEMAP", WRITE_MAP),
    ("NORDAHEAD", NO_READ_AHEAD),
    ("NOMEMINIT", NO_MEMORY_INIT),
];
