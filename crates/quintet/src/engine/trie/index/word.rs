//! The encoding of a word of the trie, which is the content of a slot.
//!
//! | bits | of | meaning |
//! |---|---|---|
//! | all | nothing | 0 |
//! | 36 to 63 | a record | tag: bits 8 to 35 of the hash, from the top |
//! | 0 to 35 | a record | address, from 1 to below `f00000000` (hexadecimal) |
//! | 32 to 35 | a link | all ones |
//! | 0 to 31 | a link | where the object is, in units of two words |
//! | 36 to 40 | a link | its class: it has `1 << class` words |
//! | 41 | a link | 1: a node |
//! | 42 | a link | 1: a switched node ([`super::switched`]); with 41 and 42 both 0: a list |
//!
//! The tag holds every hash bit that a split needs, so splits and merges read no records. Where a
//! path has used all bits of the tag, lists grow instead.

use crate::util::codec::low_u32;

/// Bits of the hash that select a slot of the root table. Models have two slots.
pub(super) const ROOT_BITS: u32 = if cfg!(model) { 1 } else { 8 };
/// Bits of a tag.
pub(super) const TAG_BITS: u32 = 28;
const ADDRESS_BITS: u32 = 36;
const ADDRESS_MASK: u64 = (1 << ADDRESS_BITS) - 1;
const LINK: u64 = 0xf << 32;
/// Addresses are from 1 to below this.
pub(crate) const ADDRESS_END: u64 = LINK;
const NODE: u64 = 1 << 41;
const SWITCHED: u64 = 1 << 42;
/// The number of units of two words that links can address. Objects are at multiples of a unit.
pub(super) const UNITS_MAX: u64 = 1 << 32;

/// A decoded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrieSlot {
    Empty,
    /// A record: the whole word, tag and address.
    Record(u64),
    /// A list of `1 << class` words at `at`.
    List {
        class: u32,
        at: u64,
    },
    /// A node at `at`.
    Node {
        class: u32,
        at: u64,
    },
    /// A switched node at `at`.
    Switched {
        class: u32,
        at: u64,
    },
}

impl TrieSlot {
    /// Decodes a word.
    #[inline]
    pub(super) fn of(word: u64) -> Self {
        if word == 0 {
            return Self::Empty;
        }
        if word & LINK != LINK {
            return Self::Record(word);
        }
        let (at, class) = ((word & 0xffff_ffff) * 2, low_u32(word >> 36) & 0x1f);
        if word & NODE != 0 {
            Self::Node { class, at }
        } else if word & SWITCHED == 0 {
            Self::List { class, at }
        } else {
            Self::Switched { class, at }
        }
    }
}

/// Counts the records, and the links to lists, nodes and switched nodes among words.
pub(crate) fn count_words(words: impl Iterator<Item = u64>) -> [u64; 4] {
    let mut counts = [0; 4];
    let [records, lists, nodes, switched] = &mut counts;
    for word in words {
        match TrieSlot::of(word) {
            TrieSlot::Empty => {}
            TrieSlot::Record(_) => *records += 1,
            TrieSlot::List { .. } => *lists += 1,
            TrieSlot::Node { .. } => *nodes += 1,
            TrieSlot::Switched { .. } => *switched += 1,
        }
    }
    counts
}

/// The word of a link to a list.
pub(super) const fn list(class: u32, at: u64) -> u64 {
    LINK | class_bits(class) << 36 | (at / 2)
}

/// The word of a link to a node.
pub(super) const fn node(class: u32, at: u64) -> u64 {
    NODE | list(class, at)
}

/// The word of a link to a switched node.
pub(super) const fn switched(class: u32, at: u64) -> u64 {
    SWITCHED | list(class, at)
}

/// The tag of a hash.
#[inline]
pub(super) const fn tag(hash: u64) -> u64 {
    (hash << ROOT_BITS) >> (64 - TAG_BITS)
}

/// The word of a record.
#[inline]
pub(super) const fn record(hash: u64, address: u64) -> u64 {
    tag(hash) << ADDRESS_BITS | address
}

/// The word of a record that has moved from that of `word` to `address`.
#[inline]
pub(super) const fn moved(word: u64, address: u64) -> u64 {
    word & !ADDRESS_MASK | address
}

/// The tag of a record's word.
#[inline]
pub(super) const fn tag_of(word: u64) -> u64 {
    word >> ADDRESS_BITS
}

/// The address in a record's word.
#[inline]
pub(super) const fn address_of(word: u64) -> u64 {
    word & ADDRESS_MASK
}

/// The `bits` bits of a record's hash from `position` on (at least [`ROOT_BITS`]).
pub(super) const fn character(word: u64, position: u32, bits: u32) -> u64 {
    tag_of(word) >> (TAG_BITS + ROOT_BITS - position - bits) & ((1 << bits) - 1)
}

const fn class_bits(class: u32) -> u64 {
    // `u64::from` is not const.
    let bytes = class.to_le_bytes();
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], 0, 0, 0, 0])
}
