//! Units that writers saved for an unfinished checkpoint, before they changed them.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use super::{page_bytes::UNITS, page_id::PageId};
use crate::util::codec::to_u64;

/// Memory of a page with saved units beside the units, in bytes.
const SAVED_BYTES: u64 = 128;

/// Approximate number of units that a change of one entry changes.
pub(super) const USUAL_UNITS: usize = 6;

/// Hasher of page numbers.
#[derive(Debug, Default)]
pub(super) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Pages with saved units.
pub(super) type SavedPages = HashMap<PageId, SavedUnits, BuildHasherDefault<ByNumber>>;

/// A page's state at a checkpoint: the units that have changed since.
#[derive(Debug)]
pub(super) struct SavedUnits {
    /// The saved units' content, their numbers in the same order, and the set of them as bits.
    pub(super) words: Vec<u64>,
    pub(super) order: Vec<u8>,
    pub(super) units: u64,
    pub(super) mask: u64,
    pub(super) pending: u64,
}

impl SavedUnits {
    pub(super) fn memory_bytes(&self) -> u64 {
        SAVED_BYTES + to_u64(self.words.len() * 8)
    }

    /// Restores the saved units in `page`.
    pub(super) fn restore(&self, page: &mut [u8]) {
        let unit = page.len() / UNITS;
        for (words, number) in self.words.chunks_exact((unit / 8).max(1)).zip(&self.order) {
            let start = usize::from(*number) * unit;
            let bytes = page.get_mut(start..start + unit).unwrap_or(&mut []);
            for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}
