//! Lookups under way: the words of a path are asked for before they are looked at.
//!
//! What: a lookup that is taken a word at a time. Each step reads the word that the one before
//! asked for and asks for the next, and then leaves the thread to do something else: a step of
//! another lookup, or the work on the log that a write begins with.
//! Why: a lookup waits for memory twice or three times, one after the other; 32 of them taken in
//! turn wait as often as one.
//!
//! Invariants: a lookup stores nothing and locks nothing. What it met counts if its subtree's
//! version is still the one that it began with ([`Trie::is_current`]), as for [`Trie::find`].

use super::{
    Layout, ROOT_AT, Trie,
    list::CELL,
    word::{ROOT_BITS, Slot, TAG_BITS, address_of, tag, tag_of},
};
use crate::util::{
    mutant::{self, Bug},
    sync::Ordering,
};

/// Words of a path that are as good as always in the caches.
const CACHED_STEPS: u32 = 2;
/// Words of a cache line.
const LINE_WORDS: u64 = 8;

/// A lookup under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    hash: u64,
    /// Of the subtree, when the lookup began.
    version: u64,
    way: Way,
}

/// Where a lookup is.
#[derive(Clone, Copy, Debug, Default)]
enum Way {
    /// The word at `at` was asked for.
    Slot { at: u64, position: u32 },
    /// The list at `at` was asked for.
    List { class: u32, at: u64 },
    /// The first record with the right tag.
    Met(u64),
    /// There is none.
    Missing,
    /// It leads to what is not in memory, or was led astray.
    #[default]
    Lost,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was asked for: the next step looks at it.
    Asked,
    /// The record at this address may be the one.
    Met(u64),
    /// Nothing more to come.
    Ended,
}

impl Ahead {
    /// The hash that is looked for.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The first record with the hash's tag, if the lookup has met one.
    #[inline]
    pub(crate) fn met(&self) -> Option<u64> {
        if let Way::Met(address) = self.way { Some(address) } else { None }
    }

    /// Whether the lookup came to its end without a record of the hash's tag.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.way, Way::Missing)
    }
}

impl Trie {
    /// Begins a lookup: its first word that may not be in the caches is on its way.
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

    /// Begins a lookup and takes `steps` steps of it: a hint.
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

    /// Takes a lookup a word on.
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

    /// Whether nothing in its subtree has changed since the lookup began: what it met was there,
    /// and so is what was read at that address since.
    #[inline]
    pub(crate) fn is_current(&self, ahead: &Ahead) -> bool {
        self.is_version(ahead.hash, ahead.version) || mutant::active(Bug::TrieReadNotValidated)
    }
}
