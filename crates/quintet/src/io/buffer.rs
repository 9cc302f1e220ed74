//! A heap buffer aligned for direct I/O.
//!
//! Invariants: the first byte's address and the length are multiples of [`BLOCK_BYTES`]; the bytes
//! are always initialised. The memory is not moved while the buffer lives, wherever the buffer
//! itself is moved to.
//!
//! Alignment is had by a block more than is asked for, not from the allocator: what glibc (before
//! 2.38) has given out aligned it cannot give out so again once it is free, unless its neighbours
//! are free as well, so buffers between longer-lived allocations took ever new memory.

use super::{Array, BLOCK_BYTES};
use crate::util::codec::{round_up, to_u64, to_usize};

/// A zeroed, block-aligned buffer of a fixed length.
pub struct AlignedBuffer {
    /// The buffer's bytes, and up to a block before and behind them together.
    bytes: Array<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// A zeroed buffer of at least `bytes`, rounded up to whole blocks.
    pub fn zeroed(bytes: usize) -> Self {
        let block = to_usize(BLOCK_BYTES);
        let length = to_usize(round_up(to_u64(bytes), BLOCK_BYTES));
        let bytes = Array::<u8>::zeroed(if length > 0 { length + block - 1 } else { 0 });
        let start = if length > 0 { bytes.as_ptr().addr().wrapping_neg() % block } else { 0 };
        Self { bytes, start, length }
    }

    /// Makes it as long as [`AlignedBuffer::zeroed`] would, in the same memory if that is enough;
    /// the bytes are anything then.
    pub fn fit(&mut self, bytes: usize) {
        let length = to_usize(round_up(to_u64(bytes), BLOCK_BYTES));
        if self.start + length <= self.bytes.len() {
            self.length = length;
        } else {
            // The old memory first: large buffers are a good part of what merges take.
            *self = Self::zeroed(0);
            *self = Self::zeroed(length);
        }
    }

    /// Bytes of memory that it has.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len()
    }

    /// The length in bytes, a multiple of the block.
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

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// The bytes, to be changed.
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
