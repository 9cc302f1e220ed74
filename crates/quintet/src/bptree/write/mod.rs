//! Changes of one leaf: puts, deletes, deletes of a range.
//!
//! How: a writer descends without latches and upgrades the leaf that it finds. A change that fits
//! is made in place: a value of the same size is overwritten, a new entry goes into the gap between
//! slots and entries, a page with holes is compacted first. A change that does not fit goes to
//! [`crate::bptree::restructure`].

mod delete;
mod new_entry;
mod node_edit;
mod put;

pub(super) use new_entry::{NewValue, added};
