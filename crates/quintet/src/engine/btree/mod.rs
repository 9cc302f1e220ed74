//! The btree engine: a concurrent B+-tree over a direct-I/O page cache (ckvs).
//!
//! What: ordered tables of any size: ranges, prefixes, first and last key; a lookup reads one leaf.
//!
//! How: the tree is [`crate::bptree`], its cache [`crate::bptree::page_cache`], and its durability
//! [`crate::bptree::checkpoint`].
//!
//! | operation | steps |
//! |---|---|
//! | put | `admit` pins the leaf ([`change`]); `apply` passes the gate and changes it |
//! | get | descend without a lock |
//! | range | copy a run of entries from one leaf after the other ([`range`]) |
//! | checkpoint | take all dirty pages with the gate closed; sync the log; journal; write back |
//! | open | put the journal into the overlay, read the maps of pages; replay the log |
//! | sorted load | write whole free pages, then a checkpoint whose root has them ([`load`]) |
//!
//! Invariants:
//! - The files hold whole operations only: a checkpoint has all of an operation or nothing, and the
//!   journal all of a checkpoint or nothing.
//! - A page that a durable checkpoint has is written in place only after the journal holds its
//!   changes.
//! - During replay of the log only large values are written, to pages that no durable state uses.
//!   All other replayed operations wait in the replay buffer ([`replay_buffer`]).
//!
//! Threads: gets, scans and ranges take no lock. Writers share the gate. Lock order:
//! `checkpointer`, gate, pages (in the order of [`crate::bptree`]), the map of free pages, the
//! cache's lists.
//!
//! Options: [`options`].
//!
//! Differences from the paper: crash consistency (it has none), ordered byte strings of any length,
//! deletes that merge, scans. Types, the hierarchy and expiry are the database's, for every engine.
//!
//! Start with [`table`].

mod admissions;
mod change;
pub mod inspect;
mod load;
pub(crate) mod options;
mod range;
mod replay;
mod replay_buffer;
mod state;
mod table;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub use table::BTree;
