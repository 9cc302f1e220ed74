//! Memory that crosses the boundary between a C program and a compatible library, and the macros
//! that export functions.
//!
//! Why: a pointer from C is a promise of the caller. Here it becomes a Rust type once, so that all
//! other modules are safe code.
//!
//! How: a type with an address is for one direction, because only the program can promise a
//! length. All fields are private.
//!
//! - In: arguments, and what callbacks return. [`Array`], [`Text`], [`OutArray`], [`Aliased`],
//!   [`ErrorOut`], [`ProgramMemory`], [`ProgramList`] and [`ProgramArray`] are read, written or
//!   released. Safe Rust makes none of them but null.
//! - Out: results, and arguments of callbacks. Safe Rust makes [`View`], [`Allocated`],
//!   [`AllocatedList`] and [`AllocatedArray`] of any bytes. It cannot read or release through them.
//!
//! Invariant: a value that came in is used with the count that came with it, and only in its call.
//! Exported functions keep this; no value can go to another thread.
//!
//! The compiler does not see which objects a C program shares between threads. So each library
//! asserts at compile time that they allow it: [`assert_shared`] and [`assert_sent`].
//!
//! A null pointer with a size is an error. An object of the interface is a `Box` whose address the
//! program holds: `Option<Box<T>>` takes it back, `Option<&T>` uses it, and null is `None`. Results
//! are allocated by `malloc`, because programs release them by `free`.
#![expect(unsafe_code, reason = "pointers of the C program; see UNSAFE.md")]

use std::{
    ffi::{CStr, c_char, c_void},
    mem::MaybeUninit,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::Arc,
};

use crate::status::{Code, Status};

/// The allocator of the C library.
mod c {
    use std::ffi::c_void;

    unsafe extern "C" {
        pub safe fn malloc(size: usize) -> *mut c_void;
        pub fn free(memory: *mut c_void);
    }
}

/// The address of the first of several items of the program. The program promises their number.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Array<T>(*const T);

/// The address of bytes of the program.
pub type Bytes = Array<u8>;

impl<T> Array<T> {
    /// The null address.
    pub const NULL: Self = Self(ptr::null());

    /// Returns `count` items, the number that the program gave with the address. Fails for null
    /// with a count, and for more than any memory has.
    pub fn items(&self, count: usize) -> Result<&[T], Status> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() || count > isize::MAX.unsigned_abs() / size_of::<T>().max(1) {
            return Err(Status::invalid("null or too large an array"));
        }
        // SAFETY: only the program makes an address that is not null. It promises `count`
        // initialised items that stay unchanged in the call, in which the value is used.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }

    /// Returns whether the address is null.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A zero-terminated text of the program.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

impl Text {
    /// Returns the bytes of the text. Fails for null.
    pub fn bytes(&self) -> Result<&[u8], Status> {
        if self.0.is_null() {
            return Err(Status::invalid("a text is null"));
        }
        // SAFETY: only the program makes an address that is not null. It promises a terminated
        // text that stays unchanged in the call, in which the value is used.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Returns the text, with replacements where it is not UTF-8.
    pub fn text(&self) -> Result<String, Status> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// The address of items of the program that a function writes.
#[repr(transparent)]
#[derive(Debug)]
pub struct OutArray<T>(*mut T);

impl<T> OutArray<T> {
    /// Returns `count` items to write. Fails for null with a count.
    pub fn items(&mut self, count: usize) -> Result<&mut [MaybeUninit<T>], Status> {
        if count == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() || count > isize::MAX.unsigned_abs() / size_of::<T>().max(1) {
            return Err(Status::invalid("null or too large an array of results"));
        }
        // SAFETY: only the program makes such a value. It promises room for `count` items, which
        // nothing else uses during the call, in which the value is used.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), count) })
    }
}

/// Where a function writes a result. Null: the program does not want it.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Writes a result where the program wants it.
pub fn give<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Fails to compile unless threads of the program may share objects of a type.
pub const fn assert_shared<T: Send + Sync>() {}

/// Fails to compile unless one thread of the program may use an object that another one made.
pub const fn assert_sent<T: Send>() {}

/// Returns an object that must be given.
pub fn required<T>(object: Option<T>, name: &str) -> Result<T, Status> {
    object.ok_or_else(|| Status::invalid(format!("{name} is null")))
}

/// The address of an object that two arguments of a call may name. Null: there is none.
#[repr(transparent)]
#[derive(Debug)]
pub struct Aliased<T>(*mut T);

impl<T: Clone> Aliased<T> {
    /// Returns a copy of the object.
    pub fn cloned(&self) -> Option<T> {
        // SAFETY: only the program makes such a value. It promises null or an object that was
        // created here and not freed. No reference to it exists, since each argument that may name
        // it has this type.
        unsafe { self.0.as_ref() }.cloned()
    }

    /// Replaces the object.
    pub fn replace(&mut self, new: T) {
        // SAFETY: as above.
        if let Some(object) = unsafe { self.0.as_mut() } {
            *object = new;
        }
    }
}

/// A result in memory from `malloc`, which the program releases. Null: there is none.
///
/// ```compile_fail
/// quintet_compat::boundary::Allocated::copy(b"a").to_vec(1000);
/// ```
#[repr(transparent)]
#[derive(Debug)]
pub struct Allocated(*mut c_char);

impl Allocated {
    /// No memory.
    pub const NULL: Self = Self(ptr::null_mut());

    /// Copies bytes to new memory, with a zero after them. Returns null if there is no memory.
    pub fn copy(bytes: &[u8]) -> Self {
        let memory = c::malloc(bytes.len().saturating_add(1)).cast::<u8>();
        if memory.is_null() {
            return Self::NULL;
        }
        // SAFETY: `malloc` returned `bytes.len() + 1` bytes, which belong to nothing else.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
            memory.add(bytes.len()).write(0);
        }
        Self(memory.cast())
    }

    /// Copies a result of a read. Null if there is none. Fails if there is no memory, because null
    /// says that the key is absent.
    pub fn of(value: Option<&[u8]>) -> Result<Self, Status> {
        match value.map(Self::copy) {
            Some(copy) if copy.is_null() => {
                Err(Status::new(Code::TryAgain, "there is no memory for the result"))
            }
            copy => Ok(copy.unwrap_or(Self::NULL)),
        }
    }

    /// Returns whether there is none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// Memory from `malloc` that the program passes: what a callback returned, or a result to be
/// released. Null: there is none.
#[repr(transparent)]
#[derive(Debug)]
pub struct ProgramMemory(*mut c_char);

impl ProgramMemory {
    /// Returns a copy of `size` bytes that a callback has returned. Fails for null with a size.
    pub fn to_vec(&self, size: usize) -> Result<Vec<u8>, Status> {
        // As an argument, it has the size that the program gave with it.
        Ok(Array(self.0.cast_const().cast()).items(size)?.to_vec())
    }

    /// Returns the address, for the callback that releases it.
    pub fn into_view(self) -> View {
        View(self.0.cast())
    }

    /// Releases the memory.
    pub fn free(self) {
        // SAFETY: only the program makes such a value. It promises null or memory from `malloc`
        // that is not released yet. The value cannot be copied, so this is its only release.
        unsafe { c::free(self.0.cast()) };
    }
}

/// A result: a list of texts from `malloc`, itself from `malloc`.
///
/// ```compile_fail
/// quintet_compat::boundary::AllocatedList::copy(&["a"]).free(2);
/// ```
#[repr(transparent)]
#[derive(Debug)]
pub struct AllocatedList(*mut Allocated);

impl AllocatedList {
    /// No list.
    pub const NULL: Self = Self(ptr::null_mut());

    /// Copies texts. Returns null if there is no memory for the list.
    pub fn copy<T: AsRef<[u8]>>(texts: &[T]) -> Self {
        let size = texts.len().max(1).saturating_mul(size_of::<Allocated>());
        let list = c::malloc(size).cast::<Allocated>();
        if !list.is_null() {
            for (index, text) in texts.iter().enumerate() {
                // SAFETY: the list has an element for each text, and a pointer is aligned there.
                unsafe { list.add(index).write(Allocated::copy(text.as_ref())) };
            }
        }
        Self(list)
    }

    /// Returns whether there is none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A list of texts that the program passes to be released. Null: there is none.
#[repr(transparent)]
#[derive(Debug)]
pub struct ProgramList(*mut ProgramMemory);

impl ProgramList {
    /// Releases a list of `count` texts, the number that the program gave with it.
    pub fn free(self, count: usize) {
        if !self.0.is_null() {
            for index in 0..count {
                // SAFETY: only the program makes an address that is not null. It promises a list
                // of `AllocatedList::copy` with `count` texts. Each is read once, since the list
                // is released below.
                unsafe { self.0.add(index).read() }.free();
            }
            // SAFETY: as above.
            unsafe { c::free(self.0.cast()) };
        }
    }
}

/// An [`AllocatedArray`] that the program passes to be released. Null: there is none.
#[repr(transparent)]
#[derive(Debug)]
pub struct ProgramArray<T>(*mut T);

impl<T> ProgramArray<T> {
    /// Releases an array of `count` items and the items, the number that the program gave with it.
    pub fn free(self, count: usize) {
        if !self.0.is_null() {
            for index in 0..count {
                // SAFETY: only the program makes an address that is not null. It promises an array
                // of `AllocatedArray::of` with `count` items. Each is read once, since the array is
                // released below.
                drop(unsafe { self.0.add(index).read() });
            }
            // SAFETY: as above.
            unsafe { c::free(self.0.cast()) };
        }
    }
}

/// Items in memory from `malloc`, which the program releases by `free`.
#[repr(transparent)]
#[derive(Debug)]
pub struct AllocatedArray<T>(*mut T);

impl<T> AllocatedArray<T> {
    /// No array.
    pub const NULL: Self = Self(ptr::null_mut());

    /// Returns whether there is none.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Moves items to new memory. Returns null for none, and if there is no memory.
    pub fn of(items: Vec<T>) -> Self {
        // `malloc` aligns for all types that the interfaces have.
        const { assert!(align_of::<T>() <= align_of::<u128>()) };
        if items.is_empty() {
            return Self::NULL;
        }
        let memory = c::malloc(items.len().saturating_mul(size_of::<T>())).cast::<T>();
        if !memory.is_null() {
            for (index, item) in items.into_iter().enumerate() {
                // SAFETY: the memory has an element for each item.
                unsafe { memory.add(index).write(item) };
            }
        }
        Self(memory)
    }
}

/// An object of the interface that refers to a value: one that it owns, or one that another object
/// owns. The latter is in memory of `malloc`, and the program may release it by `free`.
#[repr(C)]
#[derive(Debug)]
pub struct Reference<T> {
    value: *const T,
    owned: Option<Arc<T>>,
}

// SAFETY: the address is read only, and names a value that several threads may use.
unsafe impl<T: Send + Sync> Send for Reference<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Reference<T> {}

impl<T> Reference<T> {
    /// Makes an object that owns a value.
    pub fn new(value: T) -> Box<Self> {
        let owned = Arc::new(value);
        Box::new(Self { value: Arc::as_ptr(&owned), owned: Some(owned) })
    }

    /// Makes an object that refers to a value which another object owns. `None`: it refers to none.
    pub fn to(value: Option<&Arc<T>>) -> AllocatedArray<Self> {
        let value = value.map_or(ptr::null(), Arc::as_ptr);
        AllocatedArray::of(vec![Self { value, owned: None }])
    }

    /// Returns the value. `None`: the object refers to none.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the address is null, or that of a value which this object owns, or of one whose
        // owner lives: the caller promises that for each object that refers to another one.
        unsafe { self.value.as_ref() }
    }

    /// Returns the value if the object owns it.
    pub fn owned(&self) -> Option<&Arc<T>> {
        self.owned.as_ref()
    }
}

/// The last parameter of a function that can fail. It is written only if the function fails; the
/// message that was there before is released.
#[repr(transparent)]
#[derive(Debug)]
pub struct ErrorOut(*mut *mut c_char);

impl ErrorOut {
    /// Stores a message for the program.
    pub fn set(&mut self, message: &str) {
        if self.0.is_null() {
            return;
        }
        let message = message.replace('\0', "\\0");
        // SAFETY: only the program makes such a value. It promises a pointer that is null or names
        // a message from `malloc`.
        unsafe {
            c::free((*self.0).cast());
            *self.0 = Allocated::copy(message.as_bytes()).0;
        }
    }
}

/// A pointer of the program that its callbacks get back. The library does not read it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Context(*mut c_void);

// SAFETY: the library passes the pointer on and never reads it. The original interfaces require
// that callbacks may run in several threads.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// An object that the library does not have, such as a logger. It is never read.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Foreign(*const c_void);

/// The address of items of the library, for the program to read. Rust cannot read through it, so it
/// may outlive the items.
///
/// ```compile_fail
/// quintet_compat::boundary::View::of(b"a").items(1000);
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct View<T = u8>(*const T);

impl<T> View<T> {
    /// Null.
    pub const NULL: Self = Self(ptr::null());

    /// Returns the address of `items`. A function that returns it says how long it is valid. A
    /// callback that gets it reads the items during its call.
    pub fn of(items: &[T]) -> Self {
        Self(items.as_ptr())
    }
}

/// Runs the body of an exported function. Returns `default` after a panic.
pub fn guard<T>(default: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // The payload may be the program's own, and its drop may panic again.
        std::mem::forget(panic);
        default
    })
}

/// Runs the body of an exported function that can fail. Stores the message of a failure.
pub fn run<T>(mut error: ErrorOut, default: T, body: impl FnOnce() -> Result<T, Status>) -> T {
    match guard(None, || Some(body())) {
        Some(Ok(value)) => value,
        failed => {
            let panicked = || Status::corruption("the library panicked; close the database");
            let status = failed.and_then(Result::err).unwrap_or_else(panicked);
            guard((), || error.set(&status.to_string()));
            default
        }
    }
}

/// Exports functions with the C calling convention. `default` is returned after a failure or a
/// panic. The body of a function with `errptr` is a `Result`, of another one a value.
#[macro_export]
macro_rules! export {
    ($(
        $(#[doc = $doc:literal])*
        pub fn $name:ident($($arg:ident: $type:ty),* $(,)?)
            $(-> $result:ty, $default:expr,)? $body:block
    )*) => {
        $(
            $(#[doc = $doc])*
            #[expect(unsafe_code, reason = "the attribute that exports a symbol")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) $(-> $result)? {
                $crate::boundary::guard($crate::or_unit!($($default)?), move || $body)
            }
        )*
    };
}

/// Exports functions as `export` does, with `errptr` as the last parameter.
#[macro_export]
macro_rules! export_fallible {
    ($(
        $(#[doc = $doc:literal])*
        pub fn $name:ident($($arg:ident: $type:ty),* $(,)?)
            $(-> $result:ty, $default:expr,)? $body:block
    )*) => {
        $(
            $(#[doc = $doc])*
            #[expect(unsafe_code, reason = "the attribute that exports a symbol")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type,)* errptr: $crate::boundary::ErrorOut)
                $(-> $result)?
            {
                $crate::boundary::run(errptr, $crate::or_unit!($($default)?), move || $body)
            }
        )*
    };
}

/// Returns its argument, or the unit.
#[macro_export]
macro_rules! or_unit {
    () => {
        ()
    };
    ($value:expr) => {
        $value
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_default_and_a_message() {
        assert_eq!(guard(7, || panic!("on purpose")), 7);
        let mut message = ptr::null_mut();
        let run_once = |message: *mut *mut c_char, body: fn() -> Result<u8, Status>| {
            run(ErrorOut(message), 7, body)
        };
        assert_eq!(run_once(&raw mut message, || panic!("on purpose")), 7);
        assert!(!message.is_null());
        assert_eq!(run_once(&raw mut message, || Err(Status::invalid("a\0b"))), 7);
        let text = Text(message).text().expect("a text");
        assert_eq!(text, "Invalid argument: a\\0b");
        assert_eq!(run_once(&raw mut message, || Ok(8)), 8);
        ProgramMemory(message).free();
    }

    #[test]
    fn null_is_an_error_only_with_a_size() {
        assert_eq!(Bytes::NULL.items(0).expect("nothing"), b"");
        assert!(Bytes::NULL.items(1).is_err());
        assert!(Array(b"a".as_ptr()).items(usize::MAX).is_err());
        assert!(Text(ptr::null()).bytes().is_err());
    }
}
