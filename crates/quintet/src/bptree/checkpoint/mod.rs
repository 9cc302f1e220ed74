//! A B+-tree in its files: checkpoints, the redo journal, recovery, and admission of dirty pages.
//!
//! What: [`PagedTree`] joins the tree ([`crate::bptree`]), its page cache, the gate that operations
//! pass ([`gate`]) and the checkpointer ([`checkpointer`]). `btree` keeps its entries in such a
//! tree, `slm` its index.
//!
//! Invariants:
//! - The files hold whole operations only: a checkpoint has all of an operation or nothing, and the
//!   journal all of a checkpoint or nothing.
//! - A page that a durable checkpoint has is written in place only after the journal holds its
//!   changes.
//! - State outside the tree that must agree with it ([`CheckpointParticipant`]) joins each
//!   checkpoint while no thread changes the tree, and is durable before the checkpoint is.
//! - During replay of the log only large values are written, to pages that no durable state uses.
//!
//! Threads: lookups and scans take no lock. A thread that changes the tree holds the gate shared.
//! Lock order: `checkpointer`, gate, pages (in the order of [`crate::bptree`]), the map of free
//! pages, the cache's lists.
//!
//! Start with [`store`] for the order of writes.

pub(crate) mod bulk_load;
mod checkpointer;
pub(crate) mod gate;
pub(crate) mod meta;
mod open;
mod paged_tree;
mod participant;
mod settings;
mod store;
mod verify;
mod write_back;

#[cfg(test)]
#[cfg(not(model))]
pub(crate) use open::PAGES_NAME;
pub(crate) use paged_tree::{CHANGE_PAGES, PagedTree};
pub(crate) use participant::CheckpointParticipant;
pub(crate) use settings::{GRANULARITY_PAGES, PageOptions, TreeSettings, salt_of};
