//! The fences of a file of versions: for each block its offset, and a key that is above all keys of
//! earlier blocks and not above its own.
//!
//! If the versions of one key continue in a block, the fence is that key.

use std::ops::Range;

use crate::util::{
    codec::{shared_len, to_u64},
    mutant::mutant,
};

/// The fences of all blocks. See the module head.
#[derive(Debug, Default)]
pub(super) struct BlockFences {
    /// The keys, back to back.
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    /// The file offset of each block.
    offsets: Vec<u64>,
    /// The file offset after the last block.
    end: u64,
}

/// Returns the shortest prefix of `first` that is above `last`, or `first` if they are equal.
fn separator<'a>(last: &[u8], first: &'a [u8]) -> &'a [u8] {
    first.get(..=shared_len(last, first)).unwrap_or(first)
}

impl BlockFences {
    /// Adds the next block: its offset, its first key, and the last key before it.
    pub(super) fn push(&mut self, offset: u64, last: &[u8], first: &[u8]) {
        self.keys.extend_from_slice(separator(last, first));
        self.ends.push(self.keys.len());
        self.offsets.push(offset);
    }

    /// Notes where the last block ends.
    pub(super) fn finish(&mut self, end: u64) {
        self.end = end;
        self.keys.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.offsets.shrink_to_fit();
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns the file offsets of some blocks.
    pub(super) fn span(&self, blocks: Range<usize>) -> Range<u64> {
        let at = |block| self.offsets.get(block).copied().unwrap_or(self.end);
        at(blocks.start)..at(blocks.end)
    }

    fn key(&self, block: usize) -> &[u8] {
        let end = |block| self.ends.get(block).copied().unwrap_or(0);
        let start = block.checked_sub(1).map_or(0, end);
        self.keys.get(start..end(block)).unwrap_or(&[])
    }

    /// Returns the number of blocks whose fence is below `key`.
    pub(super) fn count_below(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the first block that may have a key not below `key`. A fence that equals the key
    /// leads to the block before it, which may have versions of the same key.
    pub(super) fn seek(&self, key: &[u8]) -> usize {
        let below = self.count_below(key);
        mutant!(VersionFenceSkipsBlock: below, else below.saturating_sub(1))
    }

    /// Returns its bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let numbers = to_u64(self.ends.capacity() * size_of::<usize>());
        to_u64(self.keys.capacity()) + numbers + to_u64(self.offsets.capacity()) * 8
    }
}
