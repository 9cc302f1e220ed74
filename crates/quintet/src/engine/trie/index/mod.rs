//! The lazy-trie (CedrusDB, section 2): maps the hash of a key to the address of its record.
//!
//! Problem: an index on disk should change in few places, and stay balanced without work. The path
//! to a key never changes because of other keys, so an insert or a delete changes a word or two.
//! The height is near the logarithm of the number of keys without balancing.
//!
//! How: the first 8 bits of the hash index a root table of 256 slots. The next 6, 7 or 8 bits index
//! nodes of 64, 128 or 256 slots. A slot is empty, a record, a list of records, or a node
//! ([`word`]). Paths are only as long as they have to be: a list becomes a node when it would hold
//! more than `sluggishness` records.
//!
//! - Put ([`writer`]): lock the subtree, follow the path, store the record's word, in a larger list
//!   or a new node if there is no room.
//! - Fallback ([`switched`]): where paths are bytes of keys, a list that grows too long becomes a
//!   node whose paths below are of a keyed hash.
//! - Get ([`search`]): follow the path, read the records with the right tag, and compare the
//!   subtree's version before and after.
//!
//! Invariants:
//! - Words of a list are filled from the front without gaps; a list has at least two records.
//! - A new node below the root table has at least two records below it. Deletes remove a node that
//!   is left with nothing, or with a single record or list. A switched node stays until it is left
//!   with nothing.
//! - A record's tag agrees with the path to it; below a switched node, with the path from there.
//! - A thread that changes anything below a slot of the root table holds the lock of that subtree.
//!   The lock is also a version, odd while held. A reader that found the version even and the same
//!   before and after has seen one state.
//!
//! Thread rules: readers take no lock and store nothing. Writers of different subtrees (256) run in
//! parallel. Splits, merges and deletes lock no more than an update does. Locks are in memory only.
//! Lock order: subtrees from the first to the last, `objects`, lists of the space.
//!
//! How we differ from the paper: one version for each of 256 subtrees instead of a lock for each
//! node on the path. A sluggish list is an array of tagged words in one or two cache lines, not a
//! chain through the records. The kinds of children are in their words instead of in two masks. A
//! node has no pointer to its parent. Hashes have 64 bits and are not stored: 28 of them are in the
//! record's word.

mod build;
mod evict;
mod gather;
mod inspect;
mod key_path;
mod layout;
mod lazy_trie;
mod list;
#[cfg(all(test, model))]
mod models;
mod objects;
mod search;
mod stepped_lookup;
mod switched;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod walk;
mod word;
mod writer;

pub(crate) use self::{
    key_path::KeyPath,
    layout::Layout,
    lazy_trie::{LazyTrie, RETRIES_MAX, TrieProfile, TrieShape, WordPosition, Writer},
    search::RecordVerdict,
    stepped_lookup::{LookupStep, SteppedLookup},
    word::{ADDRESS_END, count_words},
};
