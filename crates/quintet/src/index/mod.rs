//! Index structures: memory only, no threads, no syncs, no paths. Engines add the policy.

pub(crate) mod bptree;
pub(crate) mod hashtable;
#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(dead_code, reason = "its first user, the engine `tph`, is being built beside it")
)]
pub mod perfect_hash;
pub(crate) mod slots;
pub(crate) mod trie;
