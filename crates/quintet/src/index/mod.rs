//! Index structures: memory only, no threads, no syncs, no paths. Engines add the policy.

pub(crate) mod bptree;
pub(crate) mod hashtable;
pub mod perfect_hash;
pub(crate) mod skiplist;
pub(crate) mod slots;
pub(crate) mod trie;
