//! Changes of one leaf: puts, deletes, deletes of a range.
//!
//! How: a writer descends without latches and upgrades the leaf that it finds. A change that fits
//! is made in place ([`node_edit`]). A change that does not fit goes to
//! [`crate::bptree::restructure`].
//!
//! Start with [`put`].

mod delete;
mod new_entry;
mod node_edit;
mod put;

pub(super) use new_entry::{NewValue, added};
