//! A concurrent B+-tree of byte strings over a page cache.
//!
//! What: an ordered map whose lookups read one leaf and take no lock. `btree` keeps its entries in
//! it, `slm` its index.
//!
//! How: optimistic lock coupling. A descent reads a node, remembers the child, reads the child's
//! version, and then verifies that the node has not changed. Each step is therefore true at one
//! moment; a descent that meets a change restarts. The root keeps its page number: when it is full,
//! its content moves to a new child.
//!
//! A writer upgrades the leaf that its descent found. If the leaf has no room (or gets too empty),
//! the writer descends again from the root and latches parent and child. It splits a child that
//! could not take one more separator before it enters the child, so a split never propagates
//! upwards.
//!
//! There are no links between leaves. A descent knows the separators that bound its leaf; a scan
//! continues at the bound of the leaf that it has read. Puts in ascending order fill leaves
//! completely, and the tree remembers the last leaf, so that such puts need no descent.
//!
//! | module | content |
//! |---|---|
//! | [`tree`], [`bounds`] | the tree's state and restarts; the separators that bound a node |
//! | [`node`] | slotted pages with key heads and shared prefixes: views, searches, builders |
//! | [`read`], [`multi_get`], [`finger`] | descents and lookups; many keys at once; keys in order |
//! | [`write`] | puts, deletes and edits of one leaf under its latch |
//! | [`restructure`] | splits, merges, redistribution between neighbours |
//! | [`scan_forward`], [`scan_reverse`] | scans that descend again for each leaf |
//! | [`extent`], [`page_allocator`] | long keys and large values; the map of free pages |
//! | [`check`] | verification of the durable tree |
//! | [`page_cache`] | frames, latches, eviction |
//! | [`checkpoint`] | the journal and pages on disk; sorted loads |
//!
//! Start with [`read`] for a get, and with [`write`] for a put.
//!
//! Latch order: parent before child, left sibling before right, any of them before a newly
//! allocated page. A writer that upgraded a leaf waits for no other node.
//!
//! Invariants:
//! - All leaves have level 0 and one depth; a child's level is one less than its parent's.
//! - The keys of a child are from its separator (included) to the next one (excluded).
//! - A node's prefix is shared by the two separators that bound it.
//! - Pages are freed after the change that unlinks them, in the same checkpoint.
//!
//! Threads: any number of readers and writers. The engine serialises writes of one key.
//!
//! Differences from the paper (ckvs): versions instead of lock coupling; variable-length keys with
//! prefixes and heads; deletes merge; duplicates cannot exist; separators are as short as possible.

mod bounds;
mod check;
pub(crate) mod checkpoint;
mod extent;
pub mod finger;
#[cfg(all(test, shuttle))]
mod models;
mod multi_get;
pub mod node;
pub mod page_allocator;
pub(crate) mod page_cache;
mod read;
mod restructure;
pub mod scan_forward;
mod scan_reverse;
#[cfg(test)]
#[cfg(not(model))]
pub(crate) mod tests;
mod tree;
mod write;

pub use tree::{CountChange, DropFilter, KEY_BYTES_MAX, Tree};
