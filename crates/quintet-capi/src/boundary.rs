//! Memory that crosses the boundary between C and Rust, and the macro that exports functions.
//!
//! Why: a pointer from C is a promise of the caller. Here it becomes a Rust type once, so that all
//! other modules are safe code.
//!
//! How: a type with an address has private fields and is for one direction.
//!
//! - In: [`Slice`], [`Array`] and [`Room`] are read or written. Safe Rust makes none of them but
//!   the absent slice, and slices of bytes that live as long as the program.
//! - Out: safe Rust makes a [`View`] of any bytes, for callbacks and results. It cannot read one.
//!
//! A [`Buffer`] owns a vector. [`Out`], [`InOut`] and [`In`] are references that may be absent; a
//! null pointer is `None`.
//!
//! Invariant: a value that came in is used only in its call, with the count that came with it.
//! Exported functions keep this; no value can go to another thread.
#![expect(unsafe_code, reason = "pointers of the C program; see UNSAFE.md")]

use std::{
    ffi::c_void,
    mem::{ManuallyDrop, MaybeUninit},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

use crate::{
    failure::{Code, ErrorObject, Failure},
    handles::Handle,
};

/// An address and a size: bytes of the caller or of the library. A slice does not own its bytes.
///
/// The bytes of an argument must stay unchanged until the function returns. Null with size 0 is the
/// absent slice where a function says so. Elsewhere it has no bytes. `quintet_string` makes a slice
/// of a text, `quintet_bytes` of other bytes, and `quintet_content` of a buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    /// The absent slice.
    pub const NONE: Self = Self { data: ptr::null(), size: 0 };

    /// Returns a slice of bytes that live as long as the program.
    pub fn of(bytes: &'static [u8]) -> Self {
        Self { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// Removes the first `count` bytes. Fails with `Limit` if there are fewer.
    pub fn remove_first(&mut self, count: usize) -> Result<(), Failure> {
        let fewer = || Failure::new(Code::Limit, "a slice has fewer bytes");
        let rest = self.bytes()?.get(count..).ok_or_else(fewer)?;
        *self = Self { data: rest.as_ptr(), size: rest.len() };
        Ok(())
    }

    /// Returns whether the slice is the absent value.
    pub fn is_none(&self) -> bool {
        self.data.is_null() && self.size == 0
    }

    /// Returns the bytes. Fails with `NullArgument` for a size without an address, and with
    /// `Limit` for a size that no memory has.
    pub fn bytes(&self) -> Result<&[u8], Failure> {
        if self.size == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() {
            return Err(Failure::null("a slice has a size and a null address"));
        }
        if isize::try_from(self.size).is_err() {
            return Err(Failure::new(Code::Limit, "a slice is larger than any memory"));
        }
        // SAFETY: the program makes a slice that is not null, except those of `of`, whose bytes
        // live for ever. It promises `size` readable bytes that stay unchanged in the call, in
        // which the slice is used.
        Ok(unsafe { slice::from_raw_parts(self.data, self.size) })
    }

    /// Returns the bytes, or `None` for the absent slice.
    pub fn optional(&self) -> Result<Option<&[u8]>, Failure> {
        if self.is_none() { Ok(None) } else { self.bytes().map(Some) }
    }

    /// Returns the bytes as text. Fails with `NotUtf8`.
    pub fn text(&self) -> Result<&str, Failure> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|error| Failure::new(Code::NotUtf8, format!("text is not UTF-8: {error}")))
    }
}

/// An address and a size, as [`Slice`] has them: bytes of the library, for the program to read.
/// Rust cannot read through it, so it may outlive the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    /// The absent value.
    pub const NONE: Self = Self { data: ptr::null(), size: 0 };

    /// Returns a view of `bytes`. The function that passes it says how long it is valid.
    pub fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), size: bytes.len() }
    }
}

/// The address of the first of several items of the caller.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Array<T>(*const T);

impl<T> Array<T> {
    /// Returns `count` items.
    pub fn items(&self, count: usize) -> Result<&[T], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Failure::null("an array has a count and a null address"));
        }
        if count > isize::MAX.unsigned_abs() / size_of::<T>().max(1) {
            return Err(Failure::new(Code::Limit, "an array is larger than any memory"));
        }
        // SAFETY: only the program makes an array. It promises `count` initialised items that stay
        // unchanged in the call, in which the array is used.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

/// Bytes that the library allocates and the program frees.
///
/// A buffer begins as `{0}`. A function that returns bytes replaces its content and reuses its
/// memory. `quintet_buffer_free` frees the memory. The program reads `data` and `size`, and must
/// change no field. A buffer is for one thread at a time.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

impl Buffer {
    /// An empty buffer without memory.
    pub const EMPTY: Self = Self { data: ptr::null_mut(), size: 0, capacity: 0 };

    /// Moves the content out and leaves the buffer empty.
    pub fn take(&mut self) -> Vec<u8> {
        let (data, size, capacity) = (self.data, self.size, self.capacity);
        // Field by field: an assignment of the whole would drop the vector as well.
        (self.data, self.size, self.capacity) = (ptr::null_mut(), 0, 0);
        if data.is_null() {
            return Vec::new();
        }
        // SAFETY: a buffer with an address was filled by `set` from a vector, and the program
        // changes no field, so these are the parts of that vector, and only this one has them.
        unsafe { Vec::from_raw_parts(data, size.min(capacity), capacity) }
    }

    /// Replaces the content by that of `bytes`.
    pub fn set(&mut self, bytes: Vec<u8>) {
        drop(self.take());
        if bytes.capacity() == 0 {
            return;
        }
        let mut bytes = ManuallyDrop::new(bytes);
        *self = Self { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() };
    }

    /// Replaces the content through `fill`, which gets the old memory.
    pub fn fill<T>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut bytes = self.take();
        bytes.clear();
        let result = fill(&mut bytes);
        if result.is_err() {
            bytes.clear();
        }
        self.set(bytes);
        result
    }

    /// Returns the content.
    pub fn bytes(&self) -> &[u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: as in `take`; the reference borrows the buffer.
        unsafe { slice::from_raw_parts(self.data, self.size) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Where a function writes a result. Null: the caller does not want it.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;
/// A variable of the caller that a function reads and changes.
pub type InOut<'a, T> = Option<&'a mut T>;
/// A structure of the caller that a function reads. Null: the default.
pub type In<'a, T> = Option<&'a T>;

/// The last parameter of each function that can fail. It is written only if the function fails.
pub type ErrorOut<'a> = Out<'a, Handle<ErrorObject>>;

/// Writes a result where the caller wants it.
pub fn give<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Returns a variable that must be given.
pub fn required<T>(variable: Option<T>, name: &str) -> Result<T, Failure> {
    variable.ok_or_else(|| Failure::null(format!("{name} is null")))
}

/// Memory of the caller to which bytes are copied.
#[repr(transparent)]
#[derive(Debug)]
pub struct Room(*mut u8);

impl Room {
    /// Copies `bytes` to the memory if `capacity` suffices. Returns whether it does.
    pub fn copy(&self, capacity: usize, bytes: &[u8]) -> Result<bool, Failure> {
        if bytes.len() > capacity {
            return Ok(false);
        }
        if self.0.is_null() && !bytes.is_empty() {
            return Err(Failure::null("memory for the value is null"));
        }
        if !bytes.is_empty() {
            // SAFETY: only the program makes such a value. It promises `capacity` writable bytes,
            // which belong to nothing else during the call, in which the value is used.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        }
        Ok(true)
    }
}

/// A pointer of the program that its callbacks get back. The library does not read it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Context(*mut c_void);

impl Context {
    /// A null pointer, for callbacks without a context.
    pub const NULL: Self = Self(ptr::null_mut());
}

// SAFETY: the library passes the pointer on and never reads it. A function that keeps it for other
// threads says so in its documentation, and the program provides for that.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

// SAFETY: a handle is a number; the registry maps it, and nothing dereferences its pointer.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// Runs the body of an exported function and turns its failure, or a panic, into a code.
pub fn run(error: ErrorOut<'_>, body: impl FnOnce() -> Result<(), Failure>) -> Code {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Code::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            // The payload is the program's own, and its drop may panic again.
            std::mem::forget(panic);
            Failure::new(Code::Panic, format!("a panic: {}", text.unwrap_or_default()))
        }
    };
    let code = failure.code();
    if error.is_some() {
        // Making the object may fail; the code is returned all the same.
        let object = || Handle::new(ErrorObject::new(failure)).unwrap_or(Handle::NULL);
        give(error, catch_unwind(AssertUnwindSafe(object)).unwrap_or(Handle::NULL));
    }
    code
}

/// Runs the body of an exported function that cannot fail. Returns `default` after a panic.
pub fn run_plain<T>(default: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(default)
}

/// Exports functions with the C calling convention. A function without a result returns a `Code`
/// and has `error` as its last parameter; its body is a `Result<(), Failure>`.
macro_rules! export {
    ($(
        $(#[doc = $doc:literal])*
        pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        $(
            $(#[doc = $doc])*
            #[expect(unsafe_code, reason = "the attribute that exports a symbol")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(
                $($arg: $type,)* error: $crate::boundary::ErrorOut<'_>,
            ) -> $crate::failure::Code {
                $crate::boundary::run(error, move || $body)
            }
        )*
    };
}
/// Exports functions that cannot fail: they return a value, and `default` after a panic.
macro_rules! export_plain {
    ($($(#[doc = $doc:literal])* pub fn $name:ident($($arg:ident: $type:ty),* $(,)?)
        -> $result:ty, $default:expr, $body:block)*) => {
        $(
            $(#[doc = $doc])*
            #[expect(unsafe_code, reason = "the attribute that exports a symbol")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> $result {
                $crate::boundary::run_plain($default, move || $body)
            }
        )*
    };
}
pub(crate) use {export, export_plain};

export! {
    /// Replaces the content of a buffer by a copy of `bytes`. Callbacks return bytes by this
    /// function. `bytes` must not name the buffer's own content.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_buffer_set(buffer: InOut<Buffer>, bytes: Slice) {
        let bytes = bytes.bytes()?;
        required(buffer, "buffer")?.fill(|content| {
            content.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// Frees the memory of a buffer and empties it. The buffer can be used again. Null and an empty
    /// buffer are allowed.
    ///
    /// Errors: none.
    pub fn quintet_buffer_free(buffer: InOut<Buffer>) {
        if let Some(buffer) = buffer {
            drop(buffer.take());
        }
        Ok(())
    }
}
