//! Sorted string tables ([`Sst`]): immutable files of blocks in key order. The CompassDB paper says
//! "piece".
//!
//! A table of `tph` consists of several SSTs (`.ph`); its perfect-hash index is in the newest one.
//! `slm` calls an SST a run (`.run`) and finds its entries by its own index.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHPIEC`, or `QSLMRUN\0` of a run |
//! | 8 | 4 | format | 3; files of format 2, whose blocks have whole entries, are read too |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 63 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of the SST, never used again |
//! | 48 | 16 | reserved | 0 |
//! | 4096 | | blocks | [`crate::lsm::sst::block`], back to back; zeros up to a multiple of 4096 before a block where they are few |
//! | | | index | of the table, as `tph` has it; of a run, its first and last key (varint lengths) |
//! | | | offsets | where each block begins and the last ends, in units of 8 bytes: 4 bytes each |
//! | | | fences | the block index, [`crate::lsm::sst::block_index`]; empty in runs |
//! | | | keys | without their values, [`crate::lsm::sst::key_section`]; in SSTs of `tph`, where that pays |
//! | end - 4096 | 192 | footer | below |
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHFOOT`, or `QSLMFOOT` |
//! | 8 | 4 | format | the same |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 191 with this field zero |
//! | 16 | 32 | identity | database id, table id, number |
//! | 48 | 8 | blocks | number of blocks |
//! | 56 | 8 | entries | tombstones included |
//! | 64 | 8 | tombstones | |
//! | 72 | 8 | payload bytes | of keys and values |
//! | 80 | 72 | sections | of index, offsets, fences: offset, size, CRC32C (8 bytes each) |
//! | 152 | 24 | keys | their section |
//! | 176 | 8 | block bytes | the option `block_bytes` at that time; 0 in files of builds that did not store it |
//! | 184 | 8 | reserved | 0 |
//!
//! The pieces of a table of `tph` with two tiers of hashes are a kind of their own (magic
//! `QTPHSLOT`, footer `QTPHSLFT`). Their blocks are in the order of hash slots within segments of
//! keys ([`slot_block`]). Between blocks and `index` is the key-location array ([`order_section`]).
//! `fences` has the local hash. Their footer has 216 bytes:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 184 | | as above |
//! | 184 | 24 | order | the section of the key-location array |
//! | 208 | 8 | reserved | 0 |
//!
//! Invariants: an SST is complete and durable before the manifest lists it, and never changes. The
//! manifest has its length, which locates the footer.
//!
//! Gets know the block number from the engine's index. Only seeks search for a key, in the block
//! index.
//!
//! Difference from the paper: entries are in key order, not in the order of hash slots, except with
//! two tiers. So scans read adjacent blocks, and no local hash table is needed: the slot stores the
//! block number.
//!
//! Start reading at `reader` (an open SST) and `writer`; `footer` has the encoding of the tables
//! above.

#![deny(clippy::indexing_slicing)]

pub(crate) mod block;
mod block_index;
mod block_offsets;
pub(crate) mod decoded_block;
pub(crate) mod describe;
mod footer;
pub(crate) mod key_section;
mod mutants;
pub(crate) mod order_section;
mod reader;
pub(crate) mod slot_block;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod writer;

pub(crate) use self::{
    footer::{BLOCK_BYTES_MAX, SstKind, SstOwner},
    reader::{OpenBlock, Span, Sst},
    writer::{SstShape, SstWriter},
};
