//! A pool of persistent memory: a file that is memory, changed by stores of 8 bytes.
//!
//! What: a [`Pool`] of words in which structures name their objects by offset; an allocator; root
//! words; [`flush`](Pool::flush), [`fence`](Pool::fence) and [`publish`](Pool::publish), with which
//! a structure says what has to be persistent before what.
//! Why: on persistent memory a structure that orders its stores is durable by itself, without a
//! log and without pages.
//!
//! Modes, by what is left ([`Mode`]):
//!
//! | mode | mapping | after the death of the process | after a power loss |
//! |---|---|---|---|
//! | `Persistent` | DAX with `MAP_SYNC`, refused elsewhere | every word stored | every word published |
//! | `Emulated` | an ordinary file, shared; each write-back waits as slower memory would | every word stored | what [`close`](Pool::close) has synced; a pool that was open is given up |
//!
//! An emulated pool is for experiments, and for what the shared log can bring back. The kernel
//! writes its pages in any order, so a pool that was open when the system went down is no state
//! that ever was: the boot id in its head tells, and opening says that there is none.
//!
//! Rules of the memory (x86): a line of 64 bytes may be evicted, and so become persistent, at any
//! moment; stores within a line persist in their order; lines persist in any order until they are
//! written back and a fence has passed. All stores are atomic words: no compiler tears them.
//!
//! Allocation leaves no trace but one: before the first object of a slab is given out, its
//! directory word says persistently that the slab is in use. So opening looks at the directory
//! alone, and room that was taken and never published, or released and not noted, is neither lost
//! nor given out twice: [`sweep`](Pool::sweep) asks the structures what they reach, and all else is
//! free.
//!
//! Invariants:
//! - Nothing in a pool is an address: pools are mapped wherever they land.
//! - What a published word leads to was persistent before it. (The structures' part; the simulator
//!   shows where it fails.)
//! - A slab whose directory word is 0 has no reachable object.
//! - An object lies within one segment.
//! - No lock and no other state of running threads counts after a crash.
//!
//! Layout (little-endian words). The file is one segment and grows by further ones, each as large
//! as all before it. A segment is slabs of 64 KiB, its first
//! bytes their directory:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | of [`super`], magic `QNTPMEM\0`; the region size is the first segment's |
//! | 64 | 16 | `boot` | boot id of the system that has an emulated pool open |
//! | 80 | 8 | `closed` | 1: an emulated pool was synced and closed |
//! | 128 | 128 | `roots` | 16 words of the owner's, 0 at first |
//! | 512 | 8 each | `directory` | a word for each slab of the segment, see [`slabs`]; in further segments at 512 from their start likewise |
//!
//! Thread rules: loads and stores take no lock; allocation takes one. A fence orders the
//! write-backs of its own thread, so whoever publishes has flushed itself. Sweeping has the pool
//! alone.
//!
//! Design: DESIGN.md 5, RELIABILITY.md 5.3. SLM-DB takes the like from PMDK's `libpmemobj` and
//! `libpmemcto`, of which the second was given up by its makers; we differ in that allocations are
//! not logged.

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

/// Bits of an offset in a link.
const OFFSET_BITS: u32 = 48;

/// A word that leads to an offset: 48 bits of offset, 16 of a checksum of it. 0 leads nowhere.
#[inline]
pub(crate) const fn link(offset: u64) -> u64 {
    if offset == 0 {
        return 0;
    }
    let check = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> OFFSET_BITS;
    offset | check << OFFSET_BITS
}

/// Where a word leads, its checksum aside.
#[inline]
pub(crate) const fn target(link: u64) -> u64 {
    link & ((1 << OFFSET_BITS) - 1)
}

/// Whether a word is one that [`link`] makes.
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
