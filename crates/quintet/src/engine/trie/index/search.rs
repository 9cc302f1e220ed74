//! Lookups: one search along a path, repeated until its subtree did not change meanwhile.

use std::ops::ControlFlow;

use super::{
    key_path::KeyPath,
    layout::Layout,
    lazy_trie::{LOADS_MAX, LazyTrie, RETRIES_MAX, ROOT_AT, damaged, pause},
    word::{ROOT_BITS, TrieSlot, address_of, tag, tag_of},
};
use crate::{
    Result,
    util::{
        mutant::mutant,
        sync::{Ordering, fence},
    },
};

/// What a reader says about an address.
#[derive(Debug)]
pub(crate) enum RecordVerdict<T> {
    /// The key's record.
    Found(T),
    /// The record of another key.
    Other,
    /// Memory changed during the read: search again.
    Changed,
}

/// The result of one search along a path.
pub(super) enum SearchResult<T> {
    Found(T),
    Missing,
    Changed,
    /// The region of this word has to be loaded.
    Load(u64),
}

impl LazyTrie {
    /// Passes `look` the addresses whose tag is that of the path until it finds its record. `load`
    /// loads the region of a word, and may evict others. Fails with errors of `load`, and with
    /// [`Error::Corruption`] after [`RETRIES_MAX`] addresses without a record.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        path: KeyPath<'_>,
        mut look: impl FnMut(u64) -> RecordVerdict<T>,
        load: impl Fn(u64) -> Result<()>,
    ) -> Result<Option<T>> {
        let version = self.subtree(path.hash);
        let (mut attempts, mut retries, mut loads) = (0, 0, 0);
        loop {
            let before = version.load(Ordering::Acquire);
            let seen = self.search(path, &mut |word, _| look(address_of(word)));
            fence(Ordering::Acquire);
            let same = before & 1 == 0 && version.load(Ordering::Relaxed) == before;
            if mutant!(TrieReadNotValidated: true, else same) {
                match seen {
                    SearchResult::Found(found) => return Ok(Some(found)),
                    SearchResult::Missing => return Ok(None),
                    SearchResult::Load(index) if loads < LOADS_MAX => {
                        load(index)?;
                        loads += 1;
                    }
                    // Regions are evicted again before the path is complete. Under the lock they
                    // stay.
                    SearchResult::Load(_) => self.lock(path).load_path()?,
                    SearchResult::Changed if retries < RETRIES_MAX => retries += 1,
                    SearchResult::Changed => {
                        return Err(damaged("a path leads to an address without a record"));
                    }
                }
            }
            pause(&mut attempts);
        }
    }

    /// One search along a path. `look` receives a record's word and its position. The result is
    /// valid if the subtree's version did not change.
    #[inline]
    pub(super) fn search<T>(
        &self,
        KeyPath { mut hash, key }: KeyPath<'_>,
        look: &mut impl FnMut(u64, u64) -> RecordVerdict<T>,
    ) -> SearchResult<T> {
        let mut at = ROOT_AT + (hash >> (64 - ROOT_BITS));
        let (mut position, mut is_switched) = (ROOT_BITS, false);
        loop {
            let Some(word) = self.space.get(at) else { return SearchResult::Load(at) };
            match TrieSlot::of(word) {
                TrieSlot::Empty => return SearchResult::Missing,
                TrieSlot::Record(word) => {
                    return match judge(word, at, hash, look) {
                        ControlFlow::Break(end) => end,
                        ControlFlow::Continue(()) => SearchResult::Missing,
                    };
                }
                TrieSlot::List { class, at } => {
                    if self.layout == Layout::Chain {
                        return self.search_chain(at, hash, look);
                    }
                    let Some(words) = self.space.words(at, 1 << class) else {
                        return SearchResult::Load(at);
                    };
                    for (at, word) in (at..).zip(words) {
                        let word = word.load(Ordering::Relaxed);
                        if word == 0 {
                            break;
                        }
                        if let ControlFlow::Break(end) = judge(word, at, hash, look) {
                            return end;
                        }
                    }
                    return SearchResult::Missing;
                }
                TrieSlot::Node { at: node, .. } => {
                    if !self.splits_at(position) {
                        return SearchResult::Changed;
                    }
                    at = self.child(node, hash, position);
                    position += self.fan_bits;
                }
                // Below it, paths are of the keyed hash.
                TrieSlot::Switched { at: node, .. } => {
                    let Some(keyed) = self.keyed_hash(key).filter(|_| !is_switched) else {
                        return SearchResult::Changed;
                    };
                    (hash, is_switched) = (keyed, true);
                    at = self.child(node, hash, ROOT_BITS);
                    position = ROOT_BITS + self.fan_bits;
                }
            }
        }
    }
}

/// Passes the record whose word is at `at` to `look` if its tag is that of `hash`.
#[inline]
pub(super) fn judge<T>(
    word: u64,
    at: u64,
    hash: u64,
    look: &mut impl FnMut(u64, u64) -> RecordVerdict<T>,
) -> ControlFlow<SearchResult<T>> {
    if tag_of(word) != tag(hash) {
        return ControlFlow::Continue(());
    }
    match look(word, at) {
        RecordVerdict::Found(found) => ControlFlow::Break(SearchResult::Found(found)),
        RecordVerdict::Other => ControlFlow::Continue(()),
        RecordVerdict::Changed => ControlFlow::Break(SearchResult::Changed),
    }
}
