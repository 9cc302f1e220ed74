//! Changes of several nodes: splits and merges, from the root down, with parent and child latched.
//!
//! How: on the way down to put, a child without room for one more separator (a leaf: for the entry)
//! is split while its parent, which has room, is latched. On the way down after a delete, an
//! underfull child is merged with a sibling or takes entries from it. The root keeps its page: when
//! it is full, its content moves to a new child; when it has one child left, that child's content
//! moves up.
//!
//! Start with `Tree::put_down` and [`crate::bptree::Tree::rebalance`].

mod leaf_entries;
mod merge;
mod node_content;
mod redistribute;
mod split;
