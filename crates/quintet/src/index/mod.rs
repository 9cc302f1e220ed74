//! Index structures: memory only, no threads, no syncs, no paths. Engines add the policy.

pub(crate) mod bptree;
#[cfg_attr(not(test), expect(dead_code, reason = "no engine has its tables in a pool yet"))]
pub(crate) mod fast_fair;
pub(crate) mod hashtable;
pub(crate) mod key_code;
pub mod perfect_hash;
pub(crate) mod skiplist;
pub(crate) mod slots;
pub(crate) mod trie;
