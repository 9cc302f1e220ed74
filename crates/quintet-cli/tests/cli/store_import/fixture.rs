//! Databases that the tests import, written by the libraries of RocksDB and LevelDB.
#![expect(unsafe_code, reason = "calls into C libraries")]

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    path::Path,
    ptr,
};

use libloading::{Library, Symbol};

type Object = *mut c_void;
type ErrorOut = *mut *mut c_char;
type Name = extern "C" fn(Object) -> *const c_char;
type Compare = extern "C" fn(Object, *const u8, usize, *const u8, usize) -> c_int;
type FullMerge = extern "C" fn(
    Object,
    *const u8,
    usize,
    *const u8,
    usize,
    *const *const u8,
    *const usize,
    c_int,
    *mut c_uchar,
    *mut usize,
) -> *mut u8;
type PartialMerge = extern "C" fn(
    Object,
    *const u8,
    usize,
    *const *const u8,
    *const usize,
    c_int,
    *mut c_uchar,
    *mut usize,
) -> *mut u8;

/// The names of the libraries, with and without the packages for developers.
const ROCKSDB: [&str; 3] = ["librocksdb.so", "librocksdb.so.7.8", "librocksdb.so.8.9"];
const LEVELDB: [&str; 2] = ["libleveldb.so", "libleveldb.so.1d"];

/// A library, and the prefix of its functions.
pub(crate) struct Writer {
    library: Library,
    prefix: &'static str,
}

/// The library of RocksDB. Prints that the test is skipped if it is not installed.
pub(crate) fn rocksdb() -> Option<Writer> {
    load(&ROCKSDB, "rocksdb")
}

/// The library of LevelDB. Prints that the test is skipped if it is not installed.
pub(crate) fn leveldb() -> Option<Writer> {
    load(&LEVELDB, "leveldb")
}

fn load(names: &[&str], prefix: &'static str) -> Option<Writer> {
    // SAFETY: the initialisers of the two libraries only set up their own statics.
    let found = names.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    if found.is_none() {
        println!("skipped: the library of {prefix} is not installed");
    }
    Some(Writer { library: found?, prefix })
}

/// What a database is opened with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting<'a> {
    Plain,
    /// Keys are ordered the other way round.
    Comparator,
    /// With a merge operator.
    Merge,
    /// RocksDB's log is in this directory.
    Log(&'a Path),
}

/// A database that is open for writing.
pub(crate) struct OpenStore<'a> {
    writer: &'a Writer,
    db: Object,
    options: Object,
    write_options: Object,
    /// Handles of families, which are freed before the database.
    families: RefCell<Vec<Object>>,
}

/// A column family, or the whole of a LevelDB database.
#[derive(Clone, Copy)]
pub(crate) struct Family(Object);

impl Family {
    pub(crate) const DEFAULT: Self = Self(ptr::null_mut());
}

impl Writer {
    /// Looks up a function.
    ///
    /// # Safety
    /// `F` is its type.
    unsafe fn function<F>(&self, name: &str) -> Symbol<'_, F> {
        // SAFETY: as the caller promises.
        unsafe { self.library.get(format!("{}_{name}", self.prefix).as_bytes()) }.unwrap()
    }

    /// Opens a database, and creates it if it is missing.
    pub(crate) fn open(&self, dir: &Path, setting: Setting<'_>) -> OpenStore<'_> {
        self.try_open(dir, setting).unwrap_or_else(|what| panic!("{what}"))
    }

    /// As [`Writer::open`]. The error is the library's message.
    pub(crate) fn try_open(
        &self,
        dir: &Path,
        setting: Setting<'_>,
    ) -> Result<OpenStore<'_>, String> {
        let path = c_string(dir);
        let mut error = ptr::null_mut();
        // SAFETY: the functions have these types in the header. The objects live until `close`; a
        // comparator and an operator live for ever.
        unsafe {
            let options = self.function::<extern "C" fn() -> Object>("options_create")();
            let create = "options_set_create_if_missing";
            self.function::<extern "C" fn(Object, c_uchar)>(create)(options, 1);
            self.apply(setting, options);
            let open =
                self.function::<extern "C" fn(Object, *const c_char, ErrorOut) -> Object>("open");
            let db = open(options, path.as_ptr(), &raw mut error);
            if let Some(what) = message(error) {
                return Err(what);
            }
            let write_options = self.function::<extern "C" fn() -> Object>("writeoptions_create")();
            let families = RefCell::default();
            Ok(OpenStore { writer: self, db, options, write_options, families })
        }
    }

    /// # Safety
    /// `options` are of this library.
    unsafe fn apply(&self, setting: Setting<'_>, options: Object) {
        // SAFETY: the functions have these types in the header.
        unsafe {
            let set = |name| self.function::<extern "C" fn(Object, Object)>(name);
            match setting {
                Setting::Plain => {}
                Setting::Log(dir) => {
                    let set = "options_set_wal_dir";
                    let set = self.function::<extern "C" fn(Object, *const c_char)>(set);
                    set(options, c_string(dir).as_ptr());
                }
                Setting::Comparator => {
                    let create = self.function::<extern "C" fn(
                        Object,
                        extern "C" fn(Object),
                        Compare,
                        Name,
                    ) -> Object>("comparator_create");
                    let comparator = create(ptr::null_mut(), ignore, reverse, name);
                    set("options_set_comparator")(options, comparator);
                }
                Setting::Merge => {
                    let create = self.function::<extern "C" fn(
                        Object,
                        extern "C" fn(Object),
                        FullMerge,
                        PartialMerge,
                        Option<extern "C" fn(Object, *const u8, usize)>,
                        Name,
                    ) -> Object>("mergeoperator_create");
                    let operator =
                        create(ptr::null_mut(), ignore, full_merge, partial_merge, None, name);
                    set("options_set_merge_operator")(options, operator);
                }
            }
        }
    }
}

impl OpenStore<'_> {
    /// Creates a column family.
    pub(crate) fn create_family(&self, name: &str) -> Family {
        let name = CString::new(name).unwrap();
        let mut error = ptr::null_mut();
        // SAFETY: the function has this type in the header.
        let handle = unsafe {
            self.writer
                .function::<extern "C" fn(Object, Object, *const c_char, ErrorOut) -> Object>(
                    "create_column_family",
                )(self.db, self.options, name.as_ptr(), &raw mut error)
        };
        check(error);
        self.families.borrow_mut().push(handle);
        Family(handle)
    }

    /// Puts an entry.
    pub(crate) fn put(&self, family: Family, key: &[u8], value: &[u8]) {
        self.write("put", family, key, value);
    }

    /// Merges an operand.
    pub(crate) fn merge(&self, key: &[u8], operand: &[u8]) {
        self.write("merge", Family::DEFAULT, key, operand);
    }

    fn write(&self, what: &str, family: Family, key: &[u8], value: &[u8]) {
        let (writer, db, options) = (self.writer, self.db, self.write_options);
        let (key, key_size, value, value_size) =
            (key.as_ptr(), key.len(), value.as_ptr(), value.len());
        let mut error = ptr::null_mut();
        let out = &raw mut error;
        // SAFETY: the functions have these types in the header; bytes are read in the call.
        unsafe {
            if family.0.is_null() {
                writer.function::<extern "C" fn(
                    Object, Object, *const u8, usize, *const u8, usize, ErrorOut
                )>(what)(db, options, key, key_size, value, value_size, out);
            } else {
                writer.function::<extern "C" fn(
                    Object,
                    Object,
                    Object,
                    *const u8,
                    usize,
                    *const u8,
                    usize,
                    ErrorOut,
                )>(&format!("{what}_cf"))(
                    db, options, family.0, key, key_size, value, value_size, out,
                );
            }
        }
        check(error);
    }

    /// Deletes a key of the default family.
    pub(crate) fn delete(&self, key: &[u8]) {
        let mut error = ptr::null_mut();
        // SAFETY: the function has this type in the header; the key is read in the call.
        unsafe {
            self.writer
                .function::<extern "C" fn(Object, Object, *const u8, usize, ErrorOut)>("delete")(
                self.db,
                self.write_options,
                key.as_ptr(),
                key.len(),
                &raw mut error,
            );
        }
        check(error);
    }

    /// Writes all of the default family to tables.
    pub(crate) fn flush(&self) {
        let mut error = ptr::null_mut();
        // SAFETY: the functions have these types in the header. Null is the end of a range.
        unsafe {
            if self.writer.prefix == "leveldb" {
                self.writer.function::<extern "C" fn(Object, *const u8, usize, *const u8, usize)>(
                    "compact_range",
                )(self.db, ptr::null(), 0, ptr::null(), 0);
                return;
            }
            let options = self.writer.function::<extern "C" fn() -> Object>("flushoptions_create");
            self.writer.function::<extern "C" fn(Object, Object, ErrorOut)>("flush")(
                self.db,
                options(),
                &raw mut error,
            );
        }
        check(error);
    }

    /// Closes the database.
    pub(crate) fn close(self) {
        // SAFETY: the functions have these types in the header. The handles are not used again.
        unsafe {
            for family in self.families.take() {
                let free = "column_family_handle_destroy";
                self.writer.function::<extern "C" fn(Object)>(free)(family);
            }
            self.writer.function::<extern "C" fn(Object)>("close")(self.db);
        }
    }
}

fn c_string(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

fn check(error: *mut c_char) {
    assert_eq!(message(error), None);
}

fn message(error: *mut c_char) -> Option<String> {
    // SAFETY: a message is a terminated string. A test need not free it.
    let text = |error| unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    (!error.is_null()).then(|| text(error))
}

extern "C" fn ignore(_: Object) {}

extern "C" fn name(_: Object) -> *const c_char {
    c"own".as_ptr()
}

extern "C" fn reverse(
    _: Object,
    a: *const u8,
    a_size: usize,
    b: *const u8,
    b_size: usize,
) -> c_int {
    // SAFETY: the library passes the bytes of two keys.
    let (a, b) =
        unsafe { (std::slice::from_raw_parts(a, a_size), std::slice::from_raw_parts(b, b_size)) };
    c_int::from(b > a) - c_int::from(b < a)
}

extern "C" fn full_merge(
    _: Object,
    _: *const u8,
    _: usize,
    _: *const u8,
    _: usize,
    _: *const *const u8,
    _: *const usize,
    _: c_int,
    success: *mut c_uchar,
    size: *mut usize,
) -> *mut u8 {
    failed(success, size)
}

extern "C" fn partial_merge(
    _: Object,
    _: *const u8,
    _: usize,
    _: *const *const u8,
    _: *const usize,
    _: c_int,
    success: *mut c_uchar,
    size: *mut usize,
) -> *mut u8 {
    failed(success, size)
}

/// A merge is never needed: the tests write operands and read nothing.
fn failed(success: *mut c_uchar, size: *mut usize) -> *mut u8 {
    // SAFETY: the library passes the addresses of its results.
    unsafe {
        success.write(0);
        size.write(0);
    }
    ptr::null_mut()
}
