//! A pool of persistent memory: a mapped file that structures change by 8-byte stores.
//!
//! Problem: on persistent memory, a structure that orders its stores is durable without a log and
//! without pages.
//! How: a [`Pool`] has words, an allocator and root words; structures name their objects by offset.
//! With [`flush`](Pool::flush), [`fence`](Pool::fence) and [`publish`](Pool::publish) a structure
//! determines the order in which its stores become persistent.
//!
//! Memory model (x86): a line of 64 bytes may be evicted, and so become persistent, at any moment.
//! Stores within a line persist in order. Lines persist in any order until they are written back
//! and a fence has passed. All stores are atomic words, so none is torn.
//!
//! Allocation writes one persistent word: before a slab's first object is allocated, its directory
//! word marks the slab as in use. So opening reads the directory only. Space that was allocated but
//! never published, or freed without a record, is neither lost nor allocated twice:
//! a sweep ([`begin_sweep`](Pool::begin_sweep)) asks the structures which objects they reach. It
//! frees all others.
//!
//! Invariants:
//! - A pool contains no addresses: it may be mapped anywhere.
//! - The target of a published word was persistent before it. (The structures ensure this; the
//!   simulator shows where it fails.)
//! - A slab whose directory word is 0 has no reachable object.
//! - An object is within one segment.
//! - After a crash, no lock and no other state of running threads matters.
//!
//! `pool` has the modes and the layout of the file, `slabs` the allocator, `medium` the mapped
//! memory. The structures in a pool are with those who use them: the persistent list of memtables
//! in `lsm/memtable`, the FAST & FAIR tree in `engine/slm/pool`.
//!
//! Threads: loads and stores take no lock; allocation takes one. A fence orders the write-backs of
//! its own thread, so the publishing thread must do the flushes itself. A sweep runs beside all
//! other calls.
//!
//! SLM-DB uses PMDK's `libpmemobj` and `libpmemcto` for this (PMDK has discontinued the latter).
//! Unlike them, we do not log allocations. Start reading at [`Pool::publish`].

mod link;
mod medium;
mod pool;
#[cfg(test)]
pub(crate) mod simulator;
mod slabs;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub(crate) use self::{
    link::{is_link, link, target},
    pool::{Pool, PoolMode, Sizes},
    slabs::{Marks, SLAB_BYTES, SlabSweep},
};
