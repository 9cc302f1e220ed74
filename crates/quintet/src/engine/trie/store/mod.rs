//! Where a trie keeps its nodes, records and large values.

pub(crate) mod extents;
pub(crate) mod regions;
pub(crate) mod space;
