//! Tables with two tiers of hashes (the option `tiers=two`), as the `CompassDB` paper has them
//! (sections 3.2, 3.3, 3.5, 4.1 and 4.2).
//!
//! Problem: the index of one tier has a block number of the whole table for each key, which takes
//! about 16 bits. How: a *global* hash leads a key to a signature and to one of the few *pieces*
//! (SSTs) of its table. A *local* hash of that piece leads to a slot. Slots are divided into blocks
//! of a fixed number, so slot, block and place in the block are the same information.
//!
//! ```text
//! key -> global: signature, piece -> local: segment, slot -> block = slot / k, place = slot % k
//! ```
//!
//! - [`global`]: the global hash, a [`TableIndex`](super::index::TableIndex) of piece numbers.
//! - [`local`]: the local hash of a piece, over its blocks ([`crate::lsm::sst::slot_block`]).
//! - [`key_order`]: the key-location array ([`crate::lsm::sst::order_section`]) with its samples.
//!   [`super::order_cursor`] scans a table by it.
//! - [`super::merge`] builds all three. [`super::piece_cursor`] reads pieces for it.
//!
//! A piece is an SST file of the kind [`SstKind::SLOTTED`](crate::lsm::sst::SstKind::SLOTTED). Its
//! sections: `index` is the global hash and the samples, `fences` the local hash, `keys` the keys
//! of its entries in key order (where that pays), `order` the key-location array. `index` and
//! `order` are those of the whole table; only the newest piece's are in force.
//!
//! Invariants:
//! - The global hash has every key of every piece of the table. So a signature that matches by
//!   chance leads to an entry of another key, never to an old entry of the same one.
//! - A key whose newest state is "deleted" leads to the *invalid piece* (number 0), while a piece
//!   still has an old entry of it, and until the next merge. Such a key is in no deeper level.
//! - The key-location array has each key that leads to a piece, once, in key order.
//!
//! Differences from the paper:
//! - The segments of a piece are ranges of keys, not of hashes: a binary search over their first
//!   keys finds the segment. So merges read and write pieces from front to back, with one segment
//!   of each in memory, and the entries of a range are neighbours. The paper sorts all keys of a
//!   table in memory, and a scan reads all over a piece.
//! - A segment has about 1,024 keys, not a sixty-fourth of the piece, and its own number of slots
//!   a block.
//! - A delete that must hide an entry of a deeper level is an entry of a piece, because a
//!   signature of 8 bits cannot tell whose key was deleted. The paper's placeholder has the
//!   signature alone. It becomes an entry of the invalid piece in the deepest level.
//! - Merges compare whole keys in key order. The paper's array of slots pairs hashes.
//! - Keys with equal 64-bit hashes are told apart. Hashes are keyed, so neither DJB nor `CityHash`
//!   is used.
//!
//! Start reading at [`local`] and [`super::merge`].

pub(super) mod global;
pub(super) mod key_order;
pub(super) mod local;
