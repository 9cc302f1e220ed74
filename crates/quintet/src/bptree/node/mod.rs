//! Nodes of the tree: a view of a page's bytes.
//!
//! A node is a slotted page. After the header come hints, then the key prefix that all its keys
//! share, then the slots in key order; entries grow down from the page's end.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | | the cache's ([`crate::bptree::page_cache`]) |
//! | 8 | 1 | kind | 1 leaf, 2 inner, 3 part of an extent, 4 meta, 5 map, 6 packed leaf |
//! | 9 | 1 | level | 0 for leaves |
//! | 10 | 2 | count | slots |
//! | 12 | 2 | prefix length | bytes of prefix, at 96; the slots begin at the next multiple of 8 |
//! | 14 | 2 | value length | packed leaf: bytes of each value; else zero |
//! | 16 | 4 | heap start | offset of the lowest entry |
//! | 20 | 4 | dead | bytes of entries above the heap's start that no slot names |
//! | 24 | 4 | first child | inner: the child with the keys below the first slot's |
//! | 28 | 2 | skip | bytes behind the prefix that all keys here share and that heads leave out: 0, or at least 4 |
//! | 30 | 2 | | zero |
//! | 32 | 64 | hints | heads of 16 slots: number `i` is that of slot `(i + 1) * (count / 17)`; unused where there are fewer than 17 slots |
//!
//! Header and hints are the page's first two cache lines. A search reads them, one line of slots,
//! and the entry.
//!
//! A slot, 8 bytes, one aligned word:
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 to 14 | inline | bytes of the key, behind the prefix, that the entry holds |
//! | 15 | long | the whole key is in an extent |
//! | 16 to 31 | offset | of the entry |
//! | 32 to 63 | head | first four bytes of the key behind prefix and skip, big-endian, zero-padded
//! |
//!
//! An entry:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 4 | word | inner: the child with the keys from this one on; leaf: length of the value, bit 31: in an extent, bit 30: in a direct one |
//! | inline | key | the key's bytes behind the prefix |
//! | 8 | long | of a long key: length of the whole key, first page of its extent |
//! | length, or 8 | value | leaf: the value; in an extent: first page, CRC32C |
//!
//! In a packed leaf all values are inline and have one length, no key is long, and skip is 0. Its
//! entries omit what header and slots store:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | inline less 4, or 0 | rest | the key's bytes behind the prefix and the slot's head |
//! | value length | value | |
//!
//! Only trees whose values mostly have one known length ([`TreeShape::value_bytes`]) have packed
//! leaves. They save 8 bytes an entry. An entry that does not have this form makes the leaf plain
//! again.
//!
//! Invariants:
//! - Slots ascend.
//! - Keys of up to [`TreeShape::key_inline_max`] bytes are never long; longer ones always are.
//! - Every key that a page can ever hold begins with the page's prefix, because the two separators
//!   that bound the page do.
//!
//! Start with [`view`], then [`search`].

mod builder;
mod cell;
mod entry;
mod heads;
mod layout;
mod search;
mod shape;
mod view;

pub use builder::{NodeBuilder, leaf_header};
pub use cell::{Cell, Payload};
pub use entry::{EntrySlot, ExtentRef, LongKey, StoredValue};
pub use heads::{hint_step, is_plain_better, skip_of};
pub use layout::{
    EXTENT, EXTENT_HEAD_BYTES, HEAD_BYTES, HINT_WORD, HINTS, INNER, LEAF, MAP, META,
    REFERENCE_BYTES, SLOT_BYTES, SLOT_KEY_BYTES,
};
pub use shape::TreeShape;
pub use view::{Fetch, NodeSearch, NodeView};
