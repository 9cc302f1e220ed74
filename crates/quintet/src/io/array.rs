//! A growable array of plain values; large arrays have an anonymous mapping each.
//!
//! Problem: merges allocate large arrays for seconds, beside indexes that live for hours. After the
//! first large array is freed, glibc takes such arrays from its arenas. Free space between
//! longer-lived allocations then stays with the process: 60 MB at a budget of 75 MB.
//! How: from [`LARGE_BYTES`] on, the array is an anonymous mapping. `mremap` grows it without a
//! copy, and dropping it returns all of its memory to the system.
//!
//! Invariants: the first `len` of `capacity` values are initialised. The capacity alone decides
//! whether the memory is from the allocator or mapped.
//!
//! Threads: as for `Vec`.

#![expect(unsafe_code, reason = "allocation, mmap and slices of it; listed in UNSAFE.md")]

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc},
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

use super::block::BLOCK_BYTES;
use crate::util::codec::{round_up, to_u64, to_usize};

/// Bytes from which on an array is mapped.
const LARGE_BYTES: usize = if cfg!(miri) { usize::MAX } else { 32 << 10 };
/// Bytes that the first push allocates.
const FIRST_BYTES: usize = 64;

/// Types whose values are plain bytes.
///
/// # Safety
///
/// All zero bytes are a valid value. The type is not zero-sized and needs no drop.
pub unsafe trait Plain: 'static {}

// SAFETY: integers.
unsafe impl Plain for u8 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: integers.
unsafe impl Plain for (u64, u64) {}
// SAFETY: integers.
unsafe impl Plain for AtomicU64 {}

/// A growable array. See the module documentation.
pub struct Array<T: Plain> {
    start: NonNull<T>,
    len: usize,
    capacity: usize,
}

// SAFETY: the array owns its values, as `Vec` does.
unsafe impl<T: Plain + Send> Send for Array<T> {}
// SAFETY: shared, it gives out shared slices only.
unsafe impl<T: Plain + Sync> Sync for Array<T> {}

/// Returns the layout of `capacity` values. Aborts if it is too large, as `Vec` does.
fn layout<T: Plain>(capacity: usize) -> Layout {
    Layout::array::<T>(capacity).unwrap_or_else(|_| handle_alloc_error(Layout::new::<T>()))
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES
}

/// Returns the bytes to map for a large array.
fn mapped_bytes(layout: Layout) -> usize {
    to_usize(round_up(to_u64(layout.size()), BLOCK_BYTES))
}

fn map<T: Plain>(layout: Layout) -> NonNull<T> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a fresh private mapping at an address of the kernel's choice aliases nothing.
    let mapped =
        unsafe { mmap_anonymous(std::ptr::null_mut(), mapped_bytes(layout), access, flags) };
    let start = mapped.ok().and_then(|start| NonNull::new(start.cast()));
    start.unwrap_or_else(|| handle_alloc_error(layout))
}

impl<T: Plain> Array<T> {
    /// Returns an empty array without memory.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>() > 0) };
        Self { start: NonNull::dangling(), len: 0, capacity: 0 }
    }

    /// Returns an empty array with capacity for at least the given number of values.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut array = Self::new();
        array.set_capacity(capacity);
        array
    }

    /// Returns an array of zeros.
    pub fn zeroed(len: usize) -> Self {
        let mut array = Self::with_capacity(len);
        if !is_large(layout::<T>(array.capacity)) {
            // SAFETY: the memory has room for `len` values; zero bytes are values. A fresh mapping
            // is zero already.
            unsafe { array.start.write_bytes(0, len) };
        }
        array.len = len;
        array
    }

    /// Grows the capacity; the new one must be larger.
    fn set_capacity(&mut self, capacity: usize) {
        if capacity <= self.capacity {
            return;
        }
        let (old, new) = (layout::<T>(self.capacity), layout::<T>(capacity));
        self.start = if is_large(old) {
            // SAFETY: the mapping is ours and of this length; `&mut self` excludes borrows from it.
            let moved = unsafe {
                let (from, to) = (mapped_bytes(old), mapped_bytes(new));
                mremap(self.start.as_ptr().cast(), from, to, MremapFlags::MAYMOVE)
            };
            let start = moved.ok().and_then(|start| NonNull::new(start.cast()));
            start.unwrap_or_else(|| handle_alloc_error(new))
        } else if is_large(new) {
            let start = map(new);
            // SAFETY: both have room for `len` values and are apart, the old memory is ours.
            unsafe {
                start.copy_from_nonoverlapping(self.start, self.len);
                self.free();
            }
            start
        } else {
            // SAFETY: the size of neither is 0; the old memory is ours and of this layout.
            let start = unsafe {
                if self.capacity == 0 {
                    alloc(new)
                } else {
                    realloc(self.start.as_ptr().cast(), old, new.size())
                }
            };
            NonNull::new(start.cast()).unwrap_or_else(|| handle_alloc_error(new))
        };
        self.capacity = capacity;
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// The caller does not use the memory afterwards.
    unsafe fn free(&mut self) {
        let layout = layout::<T>(self.capacity);
        // SAFETY: the memory is ours, and is from where its size says.
        unsafe {
            if is_large(layout) {
                let _ = munmap(self.start.as_ptr().cast(), mapped_bytes(layout));
            } else if self.capacity > 0 {
                dealloc(self.start.as_ptr().cast(), layout);
            }
        }
    }

    /// Reserves capacity for additional values.
    pub fn reserve(&mut self, more: usize) {
        self.set_capacity(self.len.saturating_add(more));
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) {
        if self.len == self.capacity {
            let first = FIRST_BYTES / size_of::<T>();
            self.set_capacity((self.capacity * 2).max(first).max(1));
        }
        // SAFETY: there is room for one more value.
        unsafe { self.start.add(self.len).write(value) };
        self.len += 1;
    }
}

impl<T: Plain> Default for Array<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Plain> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: this is the end of it.
        unsafe { self.free() };
    }
}

impl<T: Plain> Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` values are initialised, and borrowed as the array is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Array<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` excludes other borrows.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values = values.into_iter();
        let mut array = Self::with_capacity(values.size_hint().0);
        for value in values {
            array.push(value);
        }
        array
    }
}

impl<T: Plain + fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_while_an_array_grows_from_the_heap_to_mappings() {
        let mut array = Array::new();
        let mut vec = Vec::new();
        for number in 0..100_000_u64 {
            array.push((number, !number));
            vec.push((number, !number));
            if number.is_power_of_two() {
                assert_eq!(&array[..], &vec[..]);
            }
        }
        assert!(is_large(layout::<(u64, u64)>(array.capacity)));
        array.reserve(1_000_000);
        array.reverse();
        vec.reverse();
        assert_eq!(&array[..], &vec[..]);
    }

    #[test]
    fn arrays_of_any_length_begin_as_zeros_and_keep_what_is_stored() {
        let large = LARGE_BYTES / 8;
        for len in [0, 1, 7, large - 1, large, large + 1, 3 * large] {
            let mut array = Array::<u64>::zeroed(len);
            assert_eq!(array.len(), len);
            assert!(array.iter().all(|word| *word == 0), "{len}");
            array.fill(7);
            array.push(9);
            assert!(array[..len].iter().all(|word| *word == 7), "{len}");
            assert_eq!(array.last(), Some(&9));
            let copy: Array<u64> = array.iter().copied().collect();
            assert_eq!(&copy[..], &array[..]);
        }
    }
}
