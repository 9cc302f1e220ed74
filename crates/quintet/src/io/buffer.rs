//! A heap buffer aligned for direct I/O.
//!
//! Invariants: the address and the length are multiples of [`BLOCK_BYTES`]. The bytes are always
//! initialised. Moving the buffer does not move its memory.
//!
//! The buffer allocates one additional block and aligns within it. If the allocator aligned it,
//! the process would grow: glibc before 2.38 can reuse a freed aligned allocation as an aligned one
//! only if its neighbours are free too.

use super::{array::Array, block::BLOCK_BYTES};
use crate::util::codec::{round_up, to_u64, to_usize};

/// A zeroed, block-aligned buffer of a fixed length.
pub struct AlignedBuffer {
    /// The buffer's bytes, with less than a block of padding before and after them in total.
    bytes: Array<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Returns a zeroed buffer of `bytes`, rounded up to whole blocks.
    pub fn zeroed(bytes: usize) -> Self {
        let block = to_usize(BLOCK_BYTES);
        let length = to_usize(round_up(to_u64(bytes), BLOCK_BYTES));
        let bytes = Array::<u8>::zeroed(if length > 0 { length + block - 1 } else { 0 });
        let start = if length > 0 { bytes.as_ptr().addr().wrapping_neg() % block } else { 0 };
        Self { bytes, start, length }
    }

    /// Resizes the buffer to `bytes`, rounded up to whole blocks. Reuses the memory if it is large
    /// enough. The contents are unspecified afterwards.
    pub fn fit(&mut self, bytes: usize) {
        let length = to_usize(round_up(to_u64(bytes), BLOCK_BYTES));
        if self.start + length <= self.bytes.len() {
            self.length = length;
        } else {
            // Free the old memory first: merges use large buffers, and two at a time would exceed
            // the budget.
            *self = Self::zeroed(0);
            *self = Self::zeroed(length);
        }
    }

    /// Returns the allocated bytes, padding included.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the length in bytes, a multiple of [`BLOCK_BYTES`].
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the buffer has no bytes.
    #[cfg_attr(
        not(feature = "testing"),
        expect(dead_code, reason = "a length without it reads oddly")
    )]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// Returns the bytes for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.length);
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_length_are_whole_blocks() {
        for bytes in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(bytes);
            assert!(buffer.len() >= bytes);
            assert_eq!(buffer.len() % 4096, 0);
            let is_aligned = |buffer: &AlignedBuffer| {
                buffer.as_slice().as_ptr().addr().is_multiple_of(4096) || buffer.is_empty()
            };
            assert!(is_aligned(&buffer));
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
            buffer.as_mut_slice().fill(7);
            let (address, moved) = (buffer.as_slice().as_ptr(), buffer);
            assert_eq!(moved.as_slice().as_ptr(), address);
            let mut copy = moved.clone();
            assert!(is_aligned(&copy));
            assert!(copy.as_slice().iter().all(|byte| *byte == 7));
            for other in [5000, 1, 0, 8192, 100] {
                copy.fit(other);
                assert!(is_aligned(&copy));
                assert_eq!(copy.len(), other.next_multiple_of(4096));
                copy.as_mut_slice().fill(7);
            }
        }
    }
}
