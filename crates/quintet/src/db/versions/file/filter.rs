//! The filter of a file of versions: a Bloom filter whose bits for a key are in one cache line.
//!
//! A line has 512 bits. The high bits of a key's hash choose the line. A product of the hash
//! chooses six bits in it. With ten bits a key, about 1 of 80 absent keys passes.

use crate::util::{
    codec::{to_u64, to_usize},
    mutant::mutant,
};

/// Words of a line.
const LINE_WORDS: usize = 8;
/// Bits for each key.
const KEY_BITS: u64 = 10;
/// Bits that are set for a key.
const PROBES: u32 = 6;
/// Bits of the number of a bit in a line.
const PROBE_BITS: u32 = 9;

/// The filter. See the module head.
#[derive(Debug)]
pub(super) struct VersionFilter {
    lines: Vec<[u64; LINE_WORDS]>,
}

impl VersionFilter {
    /// Creates a filter for up to `keys` keys.
    pub(super) fn new(keys: u64) -> Self {
        let line_bits = to_u64(LINE_WORDS * 64);
        let lines = (keys * KEY_BITS).div_ceil(line_bits).max(1);
        Self { lines: vec![[0; LINE_WORDS]; to_usize(lines)] }
    }

    /// Returns the line of a hash, and the bits in it.
    fn place(&self, half: u32) -> (usize, [u64; LINE_WORDS]) {
        let line = (u64::from(half) * to_u64(self.lines.len())) >> 32;
        let mixed = u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut mask = [0; LINE_WORDS];
        for probe in 0..PROBES {
            let bit = mixed >> (64 - PROBE_BITS * (probe + 1)) & ((1 << PROBE_BITS) - 1);
            if let Some(word) = mask.get_mut(to_usize(bit / 64)) {
                *word |= 1 << (bit % 64);
            }
        }
        (to_usize(line), mask)
    }

    /// Adds the high half of a key's hash.
    pub(super) fn add(&mut self, half: u32) {
        mutant!(VersionFilterMissesKeys => if half.is_multiple_of(8) { return });
        let (line, mask) = self.place(half);
        if let Some(line) = self.lines.get_mut(line) {
            line.iter_mut().zip(mask).for_each(|(word, bits)| *word |= bits);
        }
    }

    /// Returns whether the key may have been added.
    pub(super) fn may_have(&self, half: u32) -> bool {
        let (line, mask) = self.place(half);
        let line = self.lines.get(line);
        line.is_none_or(|line| line.iter().zip(mask).all(|(word, bits)| word & bits == bits))
    }

    /// Returns its bytes of memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        to_u64(self.lines.len() * size_of::<[u64; LINE_WORDS]>())
    }
}
