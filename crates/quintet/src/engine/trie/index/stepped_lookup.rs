//! Interleaved lookups: a lookup that advances one word at a time, and prefetches the next word.
//!
//! Problem: a lookup has two or three dependent cache misses. Interleaved, the misses of 32 lookups
//! overlap.
//!
//! How: each step reads the word that the previous one prefetched, and prefetches the next. Between
//! steps the thread does other work: a step of another lookup, or the logging with which a write
//! begins.
//!
//! A lookup that comes to a [switched](super::switched) node asks for the keyed hash of its key.
//!
//! Invariants: a lookup stores nothing and takes no lock. Its result is valid if its subtree still
//! has the version with which it began ([`LazyTrie::is_current`]), as for [`LazyTrie::find`].

use super::{
    key_path::KeyPath,
    layout::Layout,
    lazy_trie::{LazyTrie, ROOT_AT},
    list::CELL,
    word::{ROOT_BITS, TrieSlot, address_of, tag, tag_of},
};
use crate::util::{mutant::mutant, sync::Ordering};

/// The first words of a path, which are nearly always in the caches.
const CACHED_STEPS: u32 = 2;
/// Words of a cache line.
const LINE_WORDS: u64 = 8;

/// A lookup in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SteppedLookup {
    /// The hash of the key's path, which selects the subtree.
    hash: u64,
    /// The hash that the lookup follows: below a switched node, the keyed hash.
    followed: u64,
    /// The version of the subtree when the lookup began.
    version: u64,
    state: LookupState,
}

/// The state of a lookup.
#[derive(Clone, Copy, Debug, Default)]
enum LookupState {
    /// The word at `at` was prefetched.
    TrieSlot { at: u64, position: u32 },
    /// The list at `at` was prefetched.
    List { class: u32, at: u64 },
    /// The slots of the switched node at `at` are next.
    Switched { at: u64 },
    /// The address of the first record with the right tag.
    Candidate(u64),
    /// There is none.
    Missing,
    /// The path leads out of memory, or a change misled the lookup.
    #[default]
    Lost,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupStep {
    /// A word was prefetched: step again to read it.
    Pending,
    /// The lookup needs the keyed hash of its key ([`LazyTrie::follow_keyed`]).
    Switched,
    /// The record at this address has the right tag.
    Candidate(u64),
    /// The lookup has ended.
    Ended,
}

impl SteppedLookup {
    /// The path of the lookup, whose key is `key`.
    #[inline]
    pub(crate) fn path<'k>(&self, key: &'k [u8]) -> KeyPath<'k> {
        KeyPath { hash: self.hash, key }
    }

    /// The address of the first record with the hash's tag, if the lookup has met one.
    #[inline]
    pub(crate) fn candidate(&self) -> Option<u64> {
        if let LookupState::Candidate(address) = self.state { Some(address) } else { None }
    }

    /// Returns whether the lookup ended without a record of the hash's tag.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.state, LookupState::Missing)
    }
}

impl LazyTrie {
    /// Begins a lookup and prefetches the first word that may not be in the caches.
    #[inline]
    pub(crate) fn begin_lookup(&self, hash: u64) -> SteppedLookup {
        let at = ROOT_AT + (hash >> (64 - ROOT_BITS));
        let state = LookupState::TrieSlot { at, position: ROOT_BITS };
        let mut lookup = SteppedLookup { hash, followed: hash, version: self.version(hash), state };
        for _ in 0..CACHED_STEPS {
            if self.step(&mut lookup) != LookupStep::Pending {
                break;
            }
        }
        lookup
    }

    /// Advances a lookup by one word.
    #[inline]
    pub(crate) fn step(&self, lookup: &mut SteppedLookup) -> LookupStep {
        lookup.state = match lookup.state {
            LookupState::TrieSlot { at, position } => {
                self.step_from_slot(lookup.followed, at, position)
            }
            LookupState::List { class, at } => self.step_from_list(lookup.followed, class, at),
            LookupState::Switched { .. } => return LookupStep::Switched,
            LookupState::Candidate(_) | LookupState::Missing | LookupState::Lost => {
                return LookupStep::Ended;
            }
        };
        match lookup.state {
            LookupState::TrieSlot { .. } | LookupState::List { .. } => LookupStep::Pending,
            LookupState::Switched { .. } => LookupStep::Switched,
            LookupState::Candidate(address) => LookupStep::Candidate(address),
            LookupState::Missing | LookupState::Lost => LookupStep::Ended,
        }
    }

    #[inline]
    fn step_from_slot(&self, hash: u64, at: u64, position: u32) -> LookupState {
        let Some(word) = self.space.get(at) else { return LookupState::Lost };
        match TrieSlot::of(word) {
            TrieSlot::Record(word) if tag_of(word) == tag(hash) => {
                LookupState::Candidate(address_of(word))
            }
            TrieSlot::Empty | TrieSlot::Record(_) => LookupState::Missing,
            TrieSlot::List { class, at } => {
                self.space.prefetch(at);
                if self.layout == Layout::Lines && 1 << class > LINE_WORDS {
                    self.space.prefetch(at + LINE_WORDS);
                }
                LookupState::List { class, at }
            }
            TrieSlot::Node { at: node, .. } if self.splits_at(position) => {
                let at = self.child(node, hash, position);
                self.space.prefetch(at);
                LookupState::TrieSlot { at, position: position + self.fan_bits }
            }
            TrieSlot::Switched { at, .. } => LookupState::Switched { at },
            TrieSlot::Node { .. } => LookupState::Lost,
        }
    }

    /// Continues the lookup of a key that came to a switched node, and prefetches the next word. A
    /// second switched node on a path is damage, which might lead in a circle: the lookup is lost.
    #[cold]
    pub(crate) fn follow_keyed(&self, lookup: &mut SteppedLookup, key: &[u8]) {
        let LookupState::Switched { at } = lookup.state else { return };
        let is_first = lookup.followed == lookup.hash;
        let Some(keyed) = self.keyed_hash(key).filter(|keyed| is_first && *keyed != lookup.hash)
        else {
            lookup.state = LookupState::Lost;
            return;
        };
        let at = self.child(at, keyed, ROOT_BITS);
        self.space.prefetch(at);
        lookup.followed = keyed;
        lookup.state = LookupState::TrieSlot { at, position: ROOT_BITS + self.fan_bits };
    }

    #[inline]
    fn step_from_list(&self, hash: u64, class: u32, at: u64) -> LookupState {
        if self.layout == Layout::Chain {
            return self.step_along_chain(hash, at);
        }
        let Some(words) = self.space.words(at, 1 << class) else { return LookupState::Lost };
        for word in words {
            let word = word.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            if tag_of(word) == tag(hash) {
                return LookupState::Candidate(address_of(word));
            }
        }
        LookupState::Missing
    }

    #[cold]
    fn step_along_chain(&self, hash: u64, at: u64) -> LookupState {
        let mut state = LookupState::Missing;
        let mut visit = |word| {
            if matches!(state, LookupState::Missing) && tag_of(word) == tag(hash) {
                state = LookupState::Candidate(address_of(word));
            }
        };
        let seen = self.visit_list(CELL, at, &mut visit);
        if seen.is_ok() { state } else { LookupState::Lost }
    }

    /// Returns whether the subtree has not changed since the lookup began. Then the result is
    /// valid, and so is what was read at its address since.
    #[inline]
    pub(crate) fn is_current(&self, lookup: &SteppedLookup) -> bool {
        mutant!(TrieReadNotValidated => return true);
        self.is_version(lookup.hash, lookup.version)
    }
}
