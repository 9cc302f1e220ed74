//! A pool of persistent memory: a mapped file that structures change by 8-byte stores.
//!
//! Problem: on persistent memory, a structure that orders its stores is durable without a log and
//! without pages.
//! How: a [`Pool`] has words, an allocator and root words; structures name their objects by offset.
//! With [`flush`](Pool::flush), [`fence`](Pool::fence) and [`publish`](Pool::publish) a structure
//! says what must be persistent before what.
//!
//! Modes ([`Mode`]) and what survives in each:
//!
//! | mode | mapping | after the death of the process | after a power loss |
//! |---|---|---|---|
//! | `Persistent` | DAX with `MAP_SYNC`, refused elsewhere | every word stored | every word published |
//! | `Emulated` | an ordinary file, shared; each write-back waits as slower memory would | every word stored | what [`close`](Pool::close) has synced; a pool that was open is given up |
//!
//! An emulated pool is for experiments, and for data that the shared log can restore. The kernel
//! writes its pages in any order. So a pool that was open when the system went down holds no
//! consistent state. The boot id in its head shows this, and opening it returns `None`.
//!
//! Memory model (x86): a line of 64 bytes may be evicted, and so become persistent, at any moment.
//! Stores within a line persist in order. Lines persist in any order until they are written back
//! and a fence has passed. All stores are atomic words, so none is torn.
//!
//! Allocation writes one persistent word: before a slab's first object is handed out, its directory
//! word marks the slab as in use. So opening reads the directory only. Space that was allocated but
//! never published, or freed without a record, is neither lost nor handed out twice:
//! [`sweep`](Pool::sweep) asks the structures what they reach and frees everything else.
//!
//! Invariants:
//! - A pool contains no addresses: it may be mapped anywhere.
//! - The target of a published word was persistent before it. (The structures ensure this; the
//!   simulator shows where it fails.)
//! - A slab whose directory word is 0 has no reachable object.
//! - An object lies within one segment.
//! - After a crash, no lock and no other state of running threads matters.
//!
//! Layout (little-endian words). The file starts as one segment and grows by further ones, each as
//! large as all before it. A segment consists of slabs of 64 KiB. Its first bytes are their
//! directory:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | of [`super`], magic `QNTPMEM\0`; the region size is the first segment's |
//! | 64 | 16 | `boot` | boot id of the system that has an emulated pool open |
//! | 80 | 8 | `closed` | 1: an emulated pool was synced and closed |
//! | 128 | 128 | `roots` | 16 words of the owner's, 0 at first |
//! | 512 | 8 each | `directory` | a word for each slab of the segment, see [`slabs`]; in further segments at 512 from their start likewise |
//!
//! Threads: loads and stores take no lock; allocation takes one. A fence orders the write-backs of
//! its own thread, so the publishing thread must do the flushes itself. A sweep needs exclusive
//! access to the pool.
//!
//! Design: DESIGN.md 5, RELIABILITY.md 5.3. SLM-DB uses PMDK's `libpmemobj` and `libpmemcto` for
//! this (PMDK has discontinued the latter). Unlike them, we do not log allocations. Start reading
//! at [`Pool::publish`].

pub(crate) mod fast_fair;
mod medium;
mod pool;
#[cfg(test)]
pub(crate) mod simulator;
pub(crate) mod skiplist;
mod slabs;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

/// Bits of the offset in a link.
const OFFSET_BITS: u32 = 48;

/// Makes a link to an offset: 48 bits of offset, and 16 bits of its checksum. The link 0 points
/// nowhere.
#[inline]
pub(crate) const fn link(offset: u64) -> u64 {
    if offset == 0 {
        return 0;
    }
    let check = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> OFFSET_BITS;
    offset | check << OFFSET_BITS
}

/// Returns the offset of a link without checking its checksum.
#[inline]
pub(crate) const fn target(link: u64) -> u64 {
    link & ((1 << OFFSET_BITS) - 1)
}

/// Whether the checksum of a link is right.
#[inline]
pub(crate) const fn is_link(word: u64) -> bool {
    link(target(word)) == word
}

#[cfg(test)]
pub(crate) use self::pool::{Mode, Sizes};
pub(crate) use self::{
    medium::Counts,
    pool::Pool,
    slabs::{Marks, SLAB_BYTES},
};
