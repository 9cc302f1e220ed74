//! The key-location array of a table with two tiers of hashes: the location of each live entry, in
//! key order.
//!
//! Problem: pieces store entries in the order of hash slots, and a scan needs them in key order.
//! How: the newest piece of a table has an array of all locations, sorted by key (the paper's
//! section 3.3). It is stored in chunks of [`CHUNK_ROWS`] rows, so that a scan reads and verifies
//! only the chunks that it needs. A chunk is a block ([`super::block`]) of another salt.
//!
//! A row has 8 bytes, from the lowest bit on:
//!
//! | bits | meaning |
//! |---|---|
//! | 16 | index of the entry in its block |
//! | 32 | number of the block in its piece |
//! | 12 | index of the piece in the table, the newest first |
//! | 4 | 0 |

#![deny(clippy::indexing_slicing)]

use super::block::{self, HEAD_BYTES, Packing};
use crate::util::codec::{low_u32, put_u64, round_up, to_u64, to_usize};

/// Number of rows of a chunk.
pub(crate) const CHUNK_ROWS: u64 = 512;
const ROW_BYTES: u64 = 8;
/// Bytes of a stored chunk.
pub(crate) const CHUNK_BYTES: u64 = 8 + CHUNK_ROWS * ROW_BYTES;
/// Tells a chunk from a block of the same number.
pub(super) const CHUNK_SALT: u32 = 0x6f72_6472;
/// Maximum index of a piece in a table.
pub(crate) const PIECES_MAX: usize = 0xfff;
/// Maximum index of an entry in a block.
pub(crate) const ORDINAL_MAX: usize = 0xffff;

const _: () = assert!(CHUNK_BYTES == round_up(8 + CHUNK_ROWS * ROW_BYTES, 8));

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryLocation {
    /// Index of the piece in the table, the newest first.
    pub(crate) piece: usize,
    pub(crate) block: u32,
    /// Index of the entry in its block.
    pub(crate) ordinal: usize,
}

impl EntryLocation {
    pub(crate) fn to_word(self) -> u64 {
        to_u64(self.piece & PIECES_MAX) << 48
            | u64::from(self.block) << 16
            | to_u64(self.ordinal & ORDINAL_MAX)
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self {
            piece: to_usize(word >> 48) & PIECES_MAX,
            block: low_u32(word >> 16),
            ordinal: to_usize(word) & ORDINAL_MAX,
        }
    }
}

/// Encodes rows as chunks of a file with this salt.
pub(crate) fn encode(
    rows: impl Iterator<Item = EntryLocation>,
    salt: u32,
) -> impl Iterator<Item = Vec<u8>> {
    let mut rows = rows.peekable();
    let mut number = 0;
    std::iter::from_fn(move || {
        rows.peek()?;
        let mut bytes = Vec::with_capacity(to_usize(CHUNK_BYTES));
        for row in rows.by_ref().take(to_usize(CHUNK_ROWS)) {
            put_u64(&mut bytes, row.to_word());
        }
        let mut out = Vec::with_capacity(to_usize(CHUNK_BYTES));
        block::put_block(&mut out, &bytes, (salt ^ CHUNK_SALT, number), Packing::None);
        number += 1;
        Some(out)
    })
}

/// Returns the bytes of the array of this number of rows.
pub(crate) fn stored_bytes(rows: u64) -> u64 {
    let (whole, rest) = (rows / CHUNK_ROWS, rows % CHUNK_ROWS);
    whole * CHUNK_BYTES + if rest > 0 { to_u64(HEAD_BYTES) + rest * ROW_BYTES } else { 0 }
}

/// Returns the number of chunks of an array that takes this many bytes.
pub(crate) fn chunk_count(stored_bytes: u64) -> u32 {
    low_u32(stored_bytes.div_ceil(CHUNK_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_a_row_is_pinned() {
        let row = EntryLocation { piece: 0xabc, block: 0x1234_5678, ordinal: 0x9def };
        assert_eq!(row.to_word(), 0x0abc_1234_5678_9def);
        assert_eq!(EntryLocation::from_word(row.to_word()), row);
        assert_eq!((stored_bytes(0), stored_bytes(1)), (0, 16));
        assert_eq!((stored_bytes(512), stored_bytes(513)), (4104, 4120));
        let rows = (0..513).map(|ordinal| EntryLocation { ordinal, ..row });
        let chunks: Vec<usize> = encode(rows, 7).map(|chunk| chunk.len()).collect();
        assert_eq!(chunks, [4104, 16]);
    }
}
