//! The C interface of `RocksDB` and `LevelDB`, in a library that is loaded at run time.
//!
//! Problem: the files of these stores are read best by their own code, which is C++. Quintet must
//! build and run without it.
//! How: [`Store`] opens a database in a library and has its column families; [`EntryCursor`] moves
//! over the entries of one. Functions are looked up by name. Their declarations are written by hand
//! from `rocksdb/c.h` 7.8 and `leveldb/c.h` 1.23; both interfaces have been stable for years.
//!
//! Invariants: `RocksDB` is opened read-only. A null object is an error. Bytes of an entry are read
//! before the cursor moves. Objects are freed once, in the order that the headers ask for.
//!
//! Limits: an exception of C++ ends the process, so the importing process is another one.
#![expect(unsafe_code, reason = "calls into C libraries; listed in UNSAFE.md")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    marker::PhantomData,
    path::Path,
    ptr, slice,
};

use libloading::Library;

use crate::store_import::kind::StoreKind;

/// An object of the library.
type Object = *mut c_void;
/// Where a function writes the address of an error message.
type ErrorOut = *mut *mut c_char;
/// A key and a value, until the cursor moves.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// Open files of tables, at most. The default of `RocksDB` is no bound.
const FILES_MAX: c_int = 500;
/// Bytes that `RocksDB` reads ahead of a cursor.
const READ_AHEAD_BYTES: usize = 2 << 20;
/// Recovery of the log that fails for damage before its end: `kTolerateCorruptedTailRecords`. The
/// default would omit all entries from the damage on.
const RECOVERY_MODE: c_int = 0;
/// The only family of `LevelDB`; in `RocksDB`, the one that every database has.
const DEFAULT_FAMILY: &CStr = c"default";

/// Declares a struct of function pointers, and a constructor that looks up each under a prefix.
macro_rules! functions {
    ($(#[$about:meta])* $name:ident {
        $($function:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        struct $name {
            $($function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            /// Looks up the functions. The error is the name of one that is missing.
            ///
            /// # Safety
            /// The library's functions under these names have the declared signatures.
            unsafe fn look_up(library: &'static Library, prefix: &str) -> Result<Self, String> {
                Ok(Self {
                    $($function: {
                        let name = format!(concat!("{}_", stringify!($function)), prefix);
                        // SAFETY: the caller promises the signature; the library stays loaded.
                        *unsafe { library.get(name.as_bytes()) }.map_err(|_| name)?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Functions of both libraries.
    CommonApi {
        close: fn(Object);
        free: fn(*mut c_void);
        iter_destroy: fn(Object);
        iter_get_error: fn(Object, ErrorOut);
        iter_key: fn(Object, *mut usize) -> *const u8;
        iter_next: fn(Object);
        iter_seek_to_first: fn(Object);
        iter_valid: fn(Object) -> c_uchar;
        iter_value: fn(Object, *mut usize) -> *const u8;
        options_create: fn() -> Object;
        options_destroy: fn(Object);
        options_set_max_open_files: fn(Object, c_int);
        options_set_paranoid_checks: fn(Object, c_uchar);
        readoptions_create: fn() -> Object;
        readoptions_destroy: fn(Object);
        readoptions_set_fill_cache: fn(Object, c_uchar);
        readoptions_set_verify_checksums: fn(Object, c_uchar);
    }
}

functions! {
    /// Functions of `RocksDB`.
    RocksDbApi {
        column_family_handle_destroy: fn(Object);
        create_iterator_cf: fn(Object, Object, Object) -> Object;
        list_column_families: fn(Object, *const c_char, *mut usize, ErrorOut) -> *mut *mut c_char;
        list_column_families_destroy: fn(*mut *mut c_char, usize);
        open_for_read_only_column_families: fn(
            Object, *const c_char, c_int, *const *const c_char, *const Object, *mut Object,
            c_uchar, ErrorOut
        ) -> Object;
        options_set_wal_dir: fn(Object, *const c_char);
        options_set_wal_recovery_mode: fn(Object, c_int);
        property_int_cf: fn(Object, Object, *const c_char, *mut u64) -> c_int;
        readoptions_set_readahead_size: fn(Object, usize);
        readoptions_set_total_order_seek: fn(Object, c_uchar);
    }
}

functions! {
    /// Functions of `LevelDB`.
    LevelDbApi {
        approximate_sizes: fn(
            Object, c_int, *const *const u8, *const usize, *const *const u8, *const usize, *mut u64
        );
        create_iterator: fn(Object, Object) -> Object;
        iter_seek_to_last: fn(Object);
        open: fn(Object, *const c_char, ErrorOut) -> Object;
    }
}

#[derive(Clone, Copy, Debug)]
enum KindApi {
    RocksDb(RocksDbApi),
    LevelDb(LevelDbApi),
}

/// The functions of a loaded library.
#[derive(Clone, Copy, Debug)]
pub struct StoreLibrary {
    common: CommonApi,
    kind: KindApi,
}

impl StoreLibrary {
    /// Loads a library until the process ends. `file` is a path, or a name that the system's loader
    /// finds. The error says why it cannot be loaded, or which function it lacks.
    pub fn load(kind: StoreKind, file: &Path) -> Result<Self, String> {
        // SAFETY: the initialisers of the two libraries only set up their own statics. The user is
        // responsible for another file that the command line names.
        let library = unsafe { Library::new(file) }.map_err(|error| error.to_string())?;
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the functions are declared as in the headers of the two libraries.
        let functions = unsafe {
            match kind {
                StoreKind::RocksDb => CommonApi::look_up(library, "rocksdb").and_then(|common| {
                    let kind = KindApi::RocksDb(RocksDbApi::look_up(library, "rocksdb")?);
                    Ok(Self { common, kind })
                }),
                StoreKind::LevelDb => CommonApi::look_up(library, "leveldb").and_then(|common| {
                    let kind = KindApi::LevelDb(LevelDbApi::look_up(library, "leveldb")?);
                    Ok(Self { common, kind })
                }),
            }
        };
        functions.map_err(|name| format!("it has no function {name}"))
    }

    /// Returns the message that a function wrote, and frees it.
    fn message(&self, error: *mut c_char) -> Option<String> {
        if error.is_null() {
            return None;
        }
        // SAFETY: a message that is not null is a terminated string that the caller must free.
        unsafe {
            let text = CStr::from_ptr(error).to_string_lossy().into_owned();
            (self.common.free)(error.cast());
            Some(text)
        }
    }
}

/// A column family that is open.
#[derive(Debug)]
struct FamilyHandle {
    name: CString,
    /// Null in `LevelDB`.
    handle: Object,
}

/// A database that is open.
#[derive(Debug)]
pub struct Store {
    library: StoreLibrary,
    options: Object,
    read_options: Object,
    db: Object,
    families: Vec<FamilyHandle>,
}

impl Store {
    /// Opens a database with all of its column families. `wal_dir` is the directory of the log of
    /// `RocksDB` if it is another one. The error is the library's message.
    pub fn open(library: StoreLibrary, dir: &CStr, wal_dir: Option<&CStr>) -> Result<Self, String> {
        let common = library.common;
        // SAFETY: the functions take no argument, or an object that the first ones returned.
        let (options, read_options) = unsafe {
            let (options, read) = ((common.options_create)(), (common.readoptions_create)());
            if options.is_null() || read.is_null() {
                return Err("the library returned no options".to_owned());
            }
            (common.options_set_max_open_files)(options, FILES_MAX);
            (common.options_set_paranoid_checks)(options, 1);
            (common.readoptions_set_fill_cache)(read, 0);
            (common.readoptions_set_verify_checksums)(read, 1);
            (options, read)
        };
        let db = ptr::null_mut();
        let mut store = Self { library, options, read_options, db, families: Vec::new() };
        match library.kind {
            KindApi::RocksDb(api) => store.open_rocksdb(&api, dir, wal_dir)?,
            KindApi::LevelDb(api) => store.open_leveldb(&api, dir)?,
        }
        Ok(store)
    }

    fn open_leveldb(&mut self, api: &LevelDbApi, dir: &CStr) -> Result<(), String> {
        let mut error = ptr::null_mut();
        // SAFETY: the path is terminated; the options live until the store is dropped.
        self.db = unsafe { (api.open)(self.options, dir.as_ptr(), &raw mut error) };
        self.check(error, self.db)?;
        let name = DEFAULT_FAMILY.to_owned();
        self.families.push(FamilyHandle { name, handle: ptr::null_mut() });
        Ok(())
    }

    fn open_rocksdb(
        &mut self,
        api: &RocksDbApi,
        dir: &CStr,
        wal_dir: Option<&CStr>,
    ) -> Result<(), String> {
        // SAFETY: the options are objects of this library; the path is terminated and copied.
        unsafe {
            (api.options_set_wal_recovery_mode)(self.options, RECOVERY_MODE);
            (api.readoptions_set_total_order_seek)(self.read_options, 1);
            (api.readoptions_set_readahead_size)(self.read_options, READ_AHEAD_BYTES);
            if let Some(wal_dir) = wal_dir {
                (api.options_set_wal_dir)(self.options, wal_dir.as_ptr());
            }
        }
        let names = self.list_families(api, dir)?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let options = vec![self.options; names.len()];
        let mut handles = vec![ptr::null_mut(); names.len()];
        let count = c_int::try_from(names.len()).map_err(|_| "too many column families")?;
        let mut error = ptr::null_mut();
        // SAFETY: the three arrays have `count` elements. Names are terminated and copied. A log is
        // allowed, so the last number is zero.
        self.db = unsafe {
            (api.open_for_read_only_column_families)(
                self.options,
                dir.as_ptr(),
                count,
                pointers.as_ptr(),
                options.as_ptr(),
                handles.as_mut_ptr(),
                0,
                &raw mut error,
            )
        };
        self.check(error, self.db)?;
        let handles = names.into_iter().zip(handles);
        self.families = handles.map(|(name, handle)| FamilyHandle { name, handle }).collect();
        if self.families.iter().any(|family| family.handle.is_null()) {
            return Err("the library returned no column family".to_owned());
        }
        Ok(())
    }

    fn list_families(&self, api: &RocksDbApi, dir: &CStr) -> Result<Vec<CString>, String> {
        let (mut count, mut error) = (0, ptr::null_mut());
        // SAFETY: the path is terminated; both results are written during the call.
        let list = unsafe {
            let (count, error) = (&raw mut count, &raw mut error);
            (api.list_column_families)(self.options, dir.as_ptr(), count, error)
        };
        self.check(error, list.cast())?;
        // SAFETY: the list has `count` terminated names until it is destroyed, which is once.
        unsafe {
            let names = slice::from_raw_parts(list, count).iter();
            let names = names.map(|name| CStr::from_ptr(*name).to_owned()).collect();
            (api.list_column_families_destroy)(list, count);
            Ok(names)
        }
    }

    /// Fails with the message of a call, or if its result is null without one.
    fn check(&self, error: *mut c_char, result: Object) -> Result<(), String> {
        match self.library.message(error) {
            Some(what) => Err(what),
            None if result.is_null() => Err("the library returned null without an error".into()),
            None => Ok(()),
        }
    }

    /// Returns the names of the column families.
    pub fn families(&self) -> Vec<&CStr> {
        self.families.iter().map(|family| &*family.name).collect()
    }

    /// Returns how much progress a family is, about: entries in `RocksDB`, bytes of files in
    /// `LevelDB`.
    pub fn estimate(&self, family: usize) -> Result<u64, String> {
        let KindApi::RocksDb(api) = self.library.kind else {
            let mut cursor = self.cursor(family)?;
            cursor.seek_to_last();
            let last = cursor.entry()?.map(|(key, _)| key.to_vec());
            return Ok(last.map_or(0, |key| self.file_bytes(&[], &key)));
        };
        let Some(family) = self.families.get(family) else { return Ok(0) };
        let mut count = 0;
        let name = c"rocksdb.estimate-num-keys".as_ptr();
        // SAFETY: the name is terminated; the handle is of this database.
        let code = unsafe { (api.property_int_cf)(self.db, family.handle, name, &raw mut count) };
        Ok(if code == 0 { count } else { 0 })
    }

    /// Returns the bytes of the files of `LevelDB` that have keys from `from` to `to`, about. 0 in
    /// `RocksDB`.
    pub fn file_bytes(&self, from: &[u8], to: &[u8]) -> u64 {
        let KindApi::LevelDb(api) = self.library.kind else { return 0 };
        let mut size = 0;
        // SAFETY: there is one range, and each array has one element. Keys are read in the call.
        unsafe {
            let (starts, start_sizes) = ([from.as_ptr()], [from.len()]);
            let (limits, limit_sizes) = ([to.as_ptr()], [to.len()]);
            (api.approximate_sizes)(
                self.db,
                1,
                starts.as_ptr(),
                start_sizes.as_ptr(),
                limits.as_ptr(),
                limit_sizes.as_ptr(),
                &raw mut size,
            );
        }
        size
    }

    /// Returns a cursor over the entries of a family, at none of them.
    pub fn cursor(&self, family: usize) -> Result<EntryCursor<'_>, String> {
        let family = self.families.get(family).ok_or("no such column family")?;
        // SAFETY: all objects are of this library and live as long as the store.
        let cursor = unsafe {
            match self.library.kind {
                KindApi::RocksDb(api) => {
                    (api.create_iterator_cf)(self.db, self.read_options, family.handle)
                }
                KindApi::LevelDb(api) => (api.create_iterator)(self.db, self.read_options),
            }
        };
        self.check(ptr::null_mut(), cursor)?;
        Ok(EntryCursor { library: self.library, cursor, store: PhantomData })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: no cursor lives, because each borrows the store. Each object is freed once; the
        // handles before the database.
        unsafe {
            if let KindApi::RocksDb(api) = self.library.kind {
                for family in self.families.iter().filter(|family| !family.handle.is_null()) {
                    (api.column_family_handle_destroy)(family.handle);
                }
            }
            if !self.db.is_null() {
                (self.library.common.close)(self.db);
            }
            (self.library.common.readoptions_destroy)(self.read_options);
            (self.library.common.options_destroy)(self.options);
        }
    }
}

/// A position in the entries of a column family.
#[derive(Debug)]
pub struct EntryCursor<'a> {
    library: StoreLibrary,
    cursor: Object,
    store: PhantomData<&'a Store>,
}

impl EntryCursor<'_> {
    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        // SAFETY: the cursor lives as long as this value.
        unsafe { (self.library.common.iter_seek_to_first)(self.cursor) }
    }

    /// Moves to the last entry of `LevelDB`.
    fn seek_to_last(&mut self) {
        if let KindApi::LevelDb(api) = self.library.kind {
            // SAFETY: as above.
            unsafe { (api.iter_seek_to_last)(self.cursor) }
        }
    }

    /// Moves to the next entry, if the cursor is at one.
    pub fn advance(&mut self) {
        // SAFETY: as above. The function may be called only at an entry.
        unsafe {
            if (self.library.common.iter_valid)(self.cursor) != 0 {
                (self.library.common.iter_next)(self.cursor);
            }
        }
    }

    /// Returns the key and the value. `None`: there are no more, or reading failed.
    pub fn entry(&self) -> Result<Option<Entry<'_>>, String> {
        let common = self.library.common;
        // SAFETY: at an entry, the functions return the address and the size of bytes that stay
        // unchanged until the cursor moves, for which it must be borrowed mutably.
        unsafe {
            if (common.iter_valid)(self.cursor) == 0 {
                return Ok(None);
            }
            let (mut key_size, mut value_size) = (0, 0);
            let key = (common.iter_key)(self.cursor, &raw mut key_size);
            let value = (common.iter_value)(self.cursor, &raw mut value_size);
            Ok(Some((bytes(key, key_size)?, bytes(value, value_size)?)))
        }
    }

    /// Fails with the library's message if reading failed.
    pub fn check(&self) -> Result<(), String> {
        let mut error = ptr::null_mut();
        // SAFETY: the cursor lives as long as this value.
        unsafe { (self.library.common.iter_get_error)(self.cursor, &raw mut error) };
        self.library.message(error).map_or(Ok(()), Err)
    }
}

impl Drop for EntryCursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the cursor is freed once, before the store.
        unsafe { (self.library.common.iter_destroy)(self.cursor) }
    }
}

/// Returns the bytes at an address. Fails for null with a size, and for more than any memory has.
///
/// # Safety
/// `address` is null or that of `size` bytes, which stay unchanged for `'a`.
unsafe fn bytes<'a>(address: *const u8, size: usize) -> Result<&'a [u8], String> {
    if size == 0 {
        return Ok(&[]);
    }
    if address.is_null() || size > isize::MAX.unsigned_abs() {
        return Err("the library returned an entry without bytes".to_owned());
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { slice::from_raw_parts(address, size) })
}
