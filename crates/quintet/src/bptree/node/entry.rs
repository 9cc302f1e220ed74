//! Slots, and the references from entries to extents.

use crate::{
    bptree::page_cache::page_bytes::head_of,
    util::codec::{low_u32, to_u64, to_usize},
};

const LONG_FLAG: u64 = 1 << 15;
/// Flag in an entry's word: the value is in an extent.
pub(super) const EXTENT_FLAG: u32 = 1 << 31;
/// Flag in an entry's word: the extent is direct (it bypasses the cache).
pub(super) const DIRECT_FLAG: u32 = 1 << 30;

/// The reference to a long key in its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongKey {
    /// Length of the whole key, in bytes.
    pub length: u32,
    /// First page of the extent.
    pub page: u32,
}

/// The reference to a value that does not fit in its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRef {
    /// Length of the value, in bytes.
    pub length: u32,
    /// First page of the extent.
    pub page: u32,
    /// CRC32C of the value.
    pub checksum: u32,
    /// Whether the extent bypasses the cache.
    pub direct: bool,
}

impl ExtentRef {
    /// Returns the first word of the value's entry.
    pub const fn word(&self) -> u32 {
        self.length | EXTENT_FLAG | if self.direct { DIRECT_FLAG } else { 0 }
    }
}

/// A decoded slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySlot {
    /// The first four bytes of the key after prefix and skip, big-endian.
    pub head: u32,
    /// Offset of the entry in the page.
    pub offset: usize,
    /// Number of key bytes, after the prefix, that the node holds.
    pub inline: usize,
    /// Whether the whole key is in an extent.
    pub long: bool,
}

impl EntrySlot {
    #[inline]
    pub(super) fn decode(word: u64) -> Self {
        Self {
            head: low_u32(word >> 32),
            offset: to_usize(word >> 16 & 0xffff),
            inline: to_usize(word & (LONG_FLAG - 1)),
            long: word & LONG_FLAG != 0,
        }
    }

    /// Returns the slot word with another offset of its entry.
    pub fn moved(word: u64, offset: usize) -> u64 {
        word & !0xffff_0000 | to_u64(offset) << 16
    }

    /// Returns the slot word of an entry at `offset`. `suffix` is the key after the prefix, as far
    /// as the node holds it; its head begins at byte `skip`.
    pub fn encode(suffix: &[u8], skip: usize, long: bool, offset: usize) -> u64 {
        let head = head_of(suffix.get(skip..).unwrap_or(&[])) >> 32;
        let flag = if long { LONG_FLAG } else { 0 };
        head << 32 | to_u64(offset) << 16 | flag | to_u64(suffix.len())
    }
}

/// Where the value of a leaf's entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue {
    /// In the leaf: offset in the page, and length.
    Inline(usize, usize),
    /// In an extent.
    Extent(ExtentRef),
}

impl StoredValue {
    /// Returns the length of the value, in bytes.
    pub fn length(&self) -> usize {
        match self {
            Self::Inline(_, length) => *length,
            Self::Extent(extent) => to_usize(u64::from(extent.length)),
        }
    }
}
