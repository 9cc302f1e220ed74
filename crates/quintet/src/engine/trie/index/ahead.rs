//! Interleaved lookups: a lookup that advances one word at a time, and prefetches the next word.
//!
//! Problem: a lookup has two or three dependent cache misses. Interleaved, the misses of 32 lookups
//! overlap.
//!
//! How: each step reads the word that the previous one prefetched, and prefetches the next. Between
//! steps the thread does other work: a step of another lookup, or the logging with which a write
//! begins.
//!
//! Invariants: a lookup stores nothing and takes no lock. Its result is valid if its subtree still
//! has the version with which it began ([`Trie::is_current`]), as for [`Trie::find`].

use super::{
    Layout, ROOT_AT, Trie,
    list::CELL,
    word::{ROOT_BITS, Slot, TAG_BITS, address_of, tag, tag_of},
};
use crate::util::{mutant::mutant, sync::Ordering};

/// The first words of a path, which are nearly always in the caches.
const CACHED_STEPS: u32 = 2;
/// Words of a cache line.
const LINE_WORDS: u64 = 8;

/// A lookup in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    hash: u64,
    /// The version of the subtree when the lookup began.
    version: u64,
    way: Way,
}

/// The state of a lookup.
#[derive(Clone, Copy, Debug, Default)]
enum Way {
    /// The word at `at` was prefetched.
    Slot { at: u64, position: u32 },
    /// The list at `at` was prefetched.
    List { class: u32, at: u64 },
    /// The address of the first record with the right tag.
    Met(u64),
    /// There is none.
    Missing,
    /// The path leads out of memory, or a change misled the lookup.
    #[default]
    Lost,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A word was prefetched: step again to read it.
    Asked,
    /// The record at this address has the right tag.
    Met(u64),
    /// The lookup has ended.
    Ended,
}

impl Ahead {
    /// The hash of the lookup.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The address of the first record with the hash's tag, if the lookup has met one.
    #[inline]
    pub(crate) fn met(&self) -> Option<u64> {
        if let Way::Met(address) = self.way { Some(address) } else { None }
    }

    /// Returns whether the lookup ended without a record of the hash's tag.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.way, Way::Missing)
    }
}

impl Trie {
    /// Begins a lookup and prefetches the first word that may not be in the caches.
    #[inline]
    pub(crate) fn set_out(&self, hash: u64) -> Ahead {
        let at = ROOT_AT + (hash >> (64 - ROOT_BITS));
        let way = Way::Slot { at, position: ROOT_BITS };
        let mut ahead = Ahead { hash, version: self.version(hash), way };
        for _ in 0..CACHED_STEPS {
            if self.step(&mut ahead) != Step::Asked {
                break;
            }
        }
        ahead
    }

    /// Begins a lookup and takes `steps` steps, as a hint. Returns the address that it met.
    #[inline]
    pub(crate) fn look_ahead(&self, hash: u64, steps: u32) -> Option<u64> {
        let mut ahead = self.set_out(hash);
        for _ in 0..steps {
            if self.step(&mut ahead) != Step::Asked {
                break;
            }
        }
        ahead.met()
    }

    /// Advances a lookup by one word.
    #[inline]
    pub(crate) fn step(&self, ahead: &mut Ahead) -> Step {
        ahead.way = match ahead.way {
            Way::Slot { at, position } => self.step_from_slot(ahead.hash, at, position),
            Way::List { class, at } => self.step_from_list(ahead.hash, class, at),
            Way::Met(_) | Way::Missing | Way::Lost => return Step::Ended,
        };
        match ahead.way {
            Way::Slot { .. } | Way::List { .. } => Step::Asked,
            Way::Met(address) => Step::Met(address),
            Way::Missing | Way::Lost => Step::Ended,
        }
    }

    #[inline]
    fn step_from_slot(&self, hash: u64, at: u64, position: u32) -> Way {
        let Some(word) = self.space.get(at) else { return Way::Lost };
        match Slot::of(word) {
            Slot::Record(word) if tag_of(word) == tag(hash) => Way::Met(address_of(word)),
            Slot::Empty | Slot::Record(_) => Way::Missing,
            Slot::List { class, at } => {
                self.space.prefetch(at);
                if self.layout == Layout::Lines && 1 << class > LINE_WORDS {
                    self.space.prefetch(at + LINE_WORDS);
                }
                Way::List { class, at }
            }
            Slot::Node { at: node, .. } if position + self.fan_bits <= ROOT_BITS + TAG_BITS => {
                let at = self.child(node, hash, position);
                self.space.prefetch(at);
                Way::Slot { at, position: position + self.fan_bits }
            }
            Slot::Node { .. } => Way::Lost,
        }
    }

    #[inline]
    fn step_from_list(&self, hash: u64, class: u32, at: u64) -> Way {
        if self.layout == Layout::Chain {
            return self.step_along_chain(hash, at);
        }
        let Some(words) = self.space.words(at, 1 << class) else { return Way::Lost };
        for word in words {
            let word = word.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            if tag_of(word) == tag(hash) {
                return Way::Met(address_of(word));
            }
        }
        Way::Missing
    }

    #[cold]
    fn step_along_chain(&self, hash: u64, at: u64) -> Way {
        let mut way = Way::Missing;
        let mut visit = |word| {
            if matches!(way, Way::Missing) && tag_of(word) == tag(hash) {
                way = Way::Met(address_of(word));
            }
        };
        let seen = self.visit_list(CELL, at, &mut visit);
        if seen.is_ok() { way } else { Way::Lost }
    }

    /// Returns whether the subtree has not changed since the lookup began. Then the result is
    /// valid, and so is what was read at its address since.
    #[inline]
    pub(crate) fn is_current(&self, ahead: &Ahead) -> bool {
        mutant!(TrieReadNotValidated => return true);
        self.is_version(ahead.hash, ahead.version)
    }
}
