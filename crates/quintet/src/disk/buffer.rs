//! A heap buffer aligned for direct I/O.
//!
//! Invariants: the address and the capacity are multiples of [`BLOCK_BYTES`]; the bytes are always
//! initialised.

use super::BLOCK_BYTES;
use crate::codec::{round_up, to_u64, to_usize};

/// One block: the unit that carries the alignment.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Block([u8; to_usize(BLOCK_BYTES)]);

/// A growable-by-construction, zeroed, block-aligned buffer.
#[derive(Clone)]
pub struct AlignedBuffer {
    blocks: Vec<Block>,
    length: usize,
}

impl AlignedBuffer {
    /// A zeroed buffer of at least `bytes`, rounded up to whole blocks.
    pub fn zeroed(bytes: usize) -> Self {
        let length = to_usize(round_up(to_u64(bytes), BLOCK_BYTES));
        Self {
            blocks: vec![Block([0; to_usize(BLOCK_BYTES)]); length / to_usize(BLOCK_BYTES)],
            length,
        }
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
        // SAFETY: `blocks` holds `length / BLOCK_BYTES` blocks back to back (`Block` is `repr(C)`
        // with size equal to its alignment, so there is no padding), all initialised by
        // `zeroed`.
        #[expect(unsafe_code, reason = "viewing whole blocks as their bytes")]
        unsafe {
            std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.length)
        }
    }

    /// The bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` gives exclusive access.
        #[expect(unsafe_code, reason = "viewing whole blocks as their bytes")]
        unsafe {
            std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.length)
        }
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
            assert_eq!(buffer.as_slice().as_ptr().addr() % 4096, 0);
            buffer.as_mut_slice().fill(7);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 7));
        }
    }
}
