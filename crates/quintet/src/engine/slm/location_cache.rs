//! Location cache: a fixed-size table from key hash to the location of a key's entry.
//!
//! Problem: a get from memory waits for cache lines in turn. Three of them belong to the leaf of
//! the index: its header, its slots, the entry. A hit in this table costs one.
//!
//! How: sets of eight words, a cache line each. A word is 0, or
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 7 | the part of the block in which the entry begins ([`super::index_value`]) |
//! | 8 to 27 | number of the block |
//! | 28 to 51 | number of the run |
//! | 52 | referenced: a get has hit the word since CLOCK last cleared the bit |
//! | 53 to 63 | fingerprint: bits of the key's hash, not all zero |
//!
//! or a *claim*: the fingerprint is zero, the rest is the address of the claimant's token, unique
//! as long as the claim stands.
//!
//! A word without the referenced bit is evicted for another key. If all words of a set have it, one
//! of them loses it (CLOCK). Runs and blocks with numbers too large for a word are not cached.
//!
//! Invariants:
//! - A word has the location of a key's entry, or of that of another key with the same set and
//!   fingerprint. A reader that finds its key there, alone in its part of the block, has the entry
//!   that the index points to.
//! - A reader claims a word before it asks the index, and fills it only if the claim is still
//!   there. A change of the index clears the words and claims of the key's set afterwards, before
//!   the memtables with the key leave the super version. Both sides have a sequentially consistent
//!   fence in between: either the reader sees the change, or the change sees the claim. A reader
//!   that reads a word in between has these memtables in its super version, and has asked them
//!   first.
//!
//! Thread rules: any thread; no lock.
//!
//! The paper has no such table. Its index is in persistent memory, and each get descends.

#![deny(clippy::indexing_slicing)]

use std::io;

use super::index_value::{BlockAddress, IndexValue};
use crate::{
    io::{Region, prefetch},
    util::{
        codec::{low_u8, low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Ordering, fence},
    },
};

/// Words of a set: one cache line.
const SET_WORDS: usize = 8;
const SET_BITS: u32 = 8;
const SET_BYTES: u64 = 64;
/// Tables of at least this size use huge pages.
const HUGE_FROM_BYTES: u64 = 2 << 20;
const BLOCK_AT: u32 = 8;
const RUN_AT: u32 = 28;
const RUN_BITS: u32 = 24;
const BLOCK_BITS: u32 = RUN_AT - BLOCK_AT;
const REFERENCED: u64 = 1 << (RUN_AT + RUN_BITS);
const FINGERPRINT_AT: u32 = RUN_AT + RUN_BITS + 1;
const FINGERPRINT_BITS: u32 = u64::BITS - FINGERPRINT_AT;

/// The location cache of a table.
#[derive(Debug)]
pub(super) struct LocationCache {
    words: Region,
    sets: u64,
    /// A word was claimed since the table was opened. Until then [`Self::invalidate`] has no work.
    has_claims: AtomicBool,
}

/// A key's set, and which of its words have the key's fingerprint.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocationLookup<'a> {
    cache: &'a LocationCache,
    set: &'a [AtomicU64; SET_WORDS],
    hash: u64,
    fingerprint: u64,
    matches: u32,
}

/// Identifies a claim by its address, which no other live claim has.
#[derive(Debug, Default)]
pub(super) struct ClaimToken(u64);

/// A claimed word. Dropping an unfilled claim empties the word.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    word: &'a AtomicU64,
    /// Its content, as long as the claim stands.
    claimed: u64,
    fingerprint: u64,
}

/// Returns the bits of a hash that a word stores. They are never zero.
#[inline]
fn fingerprint_of(hash: u64) -> u64 {
    (hash % (1 << FINGERPRINT_BITS)).max(1)
}

/// Returns the word of an entry; `None` if its run or block number is too large for a word.
#[inline]
fn encode(fingerprint: u64, index_value: IndexValue) -> Option<u64> {
    let BlockAddress { run, block } = index_value.address;
    let has_room = run < 1 << RUN_BITS && block < 1 << BLOCK_BITS;
    let address =
        u64::from(run) << RUN_AT | u64::from(block) << BLOCK_AT | u64::from(index_value.part);
    has_room.then_some(fingerprint << FINGERPRINT_AT | address)
}

#[inline]
fn decode(word: u64) -> IndexValue {
    let run = low_u32(word >> RUN_AT) % (1 << RUN_BITS);
    let block = low_u32(word >> BLOCK_AT) % (1 << BLOCK_BITS);
    // A word does not say whether the value expires.
    IndexValue { address: BlockAddress { run, block }, never_expires: false, part: low_u8(word) }
}

impl LocationCache {
    /// Creates a table of at most `bytes` of memory, but of at least one set.
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let sets = (bytes / SET_BYTES).clamp(1, u64::from(u32::MAX));
        let words = Region::reserve(sets * SET_BYTES)?;
        if sets * SET_BYTES >= HUGE_FROM_BYTES {
            words.advise_huge(0..sets * SET_BYTES);
        }
        Ok(Self { words, sets, has_claims: AtomicBool::new(false) })
    }

    /// Returns the bytes of memory that the table takes when all its sets are used.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.sets * SET_BYTES
    }

    #[inline]
    fn set(&self, hash: u64) -> Option<&[AtomicU64; SET_WORDS]> {
        let (sets, _) = self.words.words().as_chunks();
        sets.get(to_usize(((hash >> 32) * self.sets) >> 32))
    }

    /// Prefetches the set of a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.set(hash).into_iter().for_each(prefetch);
    }

    /// Returns the set of a hash, and which of its words have the hash's fingerprint.
    #[inline]
    pub(super) fn lookup(&self, hash: u64) -> Option<LocationLookup<'_>> {
        let (set, fingerprint) = (self.set(hash)?, fingerprint_of(hash));
        let matches = bits_of(set, |word| word >> FINGERPRINT_AT == fingerprint);
        Some(LocationLookup { cache: self, set, hash, fingerprint, matches })
    }

    /// Clears the words and claims of these hashes after a change of the index.
    pub(super) fn invalidate(&self, hashes: impl Iterator<Item = u64> + Clone) {
        fence(Ordering::SeqCst);
        mutant!(ShortcutsKeepPlace => return);
        if !self.has_claims.load(Ordering::Relaxed) {
            return;
        }
        hashes.clone().for_each(|hash| self.prefetch(hash));
        for hash in hashes {
            let fingerprint = fingerprint_of(hash);
            for word in self.set(hash).into_iter().flatten() {
                let found = word.load(Ordering::Relaxed);
                // A claim does not say its key, so every claim of the set is cleared.
                let is_claim = found != 0 && found >> FINGERPRINT_AT == 0;
                let is_claim = mutant!(ShortcutsKeepClaim: false, else is_claim);
                if is_claim || found >> FINGERPRINT_AT == fingerprint {
                    word.swap(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Estimates the number of filled words from the first sets.
    pub(super) fn count(&self) -> u64 {
        const LOOKED_AT: usize = 1 << 16;
        let words = self.words.words();
        let looked = words.get(..words.len().min(LOOKED_AT)).unwrap_or(&[]);
        let is_set = |word: &&AtomicU64| word.load(Ordering::Relaxed) >> FINGERPRINT_AT != 0;
        let set = to_u64(looked.iter().filter(is_set).count());
        set * to_u64(words.len()) / to_u64(looked.len()).max(1)
    }
}

/// Returns a bit for each word of a set that satisfies the predicate.
#[inline]
fn bits_of(set: &[AtomicU64; SET_WORDS], is_so: impl Fn(u64) -> bool) -> u32 {
    let mut bits = 0;
    for (at, word) in set.iter().enumerate() {
        bits |= u32::from(is_so(word.load(Ordering::Relaxed))) << at;
    }
    bits
}

impl<'a> LocationLookup<'a> {
    #[inline]
    fn word(&self, at: u32) -> Option<&'a AtomicU64> {
        self.set.get(to_usize(at.into()))
    }

    /// Calls `lookup` with each cached location of a key with this fingerprint, until it returns a
    /// value. Marks the word of that location as referenced.
    #[inline]
    pub(super) fn find<T>(&self, mut visit: impl FnMut(IndexValue) -> Option<T>) -> Option<T> {
        let mut left = self.matches;
        while let Some(word) = self.word(left.trailing_zeros()) {
            left &= left - 1;
            let found = word.load(Ordering::Relaxed);
            if found >> FINGERPRINT_AT == self.fingerprint
                && let Some(value) = visit(decode(found))
            {
                if found & REFERENCED == 0 {
                    let _ = exchange(word, found, found | REFERENCED);
                }
                return Some(value);
            }
        }
        None
    }

    /// Claims a word before the caller asks the index. Returns `None` if the set has a word with
    /// this fingerprint or no word that can be evicted.
    #[inline]
    pub(super) fn claim(&self, token: &'a ClaimToken) -> Option<Claim<'a>> {
        let claimed = to_u64((&raw const token.0).addr());
        if self.matches != 0 || claimed >> FINGERPRINT_AT != 0 {
            return None;
        }
        let (word, before) = self.victim()?;
        exchange(word, before, claimed).ok()?;
        let has_claims = &self.cache.has_claims;
        if !has_claims.load(Ordering::Relaxed) {
            has_claims.store(true, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        Some(Claim { word, claimed, fingerprint: self.fingerprint })
    }

    /// Returns the word of the set to evict and its content. If all words have the referenced bit,
    /// clears one of them and returns `None`.
    #[inline]
    fn victim(&self) -> Option<(&'a AtomicU64, u64)> {
        if let Some(empty) = self.word(bits_of(self.set, |word| word == 0).trailing_zeros()) {
            return Some((empty, 0));
        }
        // The hash picks where the search begins, so that all words of a set are evicted in turn.
        let first = low_u32(self.hash >> FINGERPRINT_BITS) % SET_BITS;
        let old = bits_of(self.set, |word| word & REFERENCED == 0);
        let old = (old | old << SET_BITS) >> first;
        let word = self.word((first + old.trailing_zeros()) % SET_BITS)?;
        if old == 0 {
            self.word(first)?.fetch_and(!REFERENCED, Ordering::Relaxed);
            return None;
        }
        Some((word, word.load(Ordering::Relaxed)))
    }
}

/// Replaces a word if it still has the content `before`.
#[inline]
fn exchange(word: &AtomicU64, before: u64, after: u64) -> Result<u64, u64> {
    word.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed)
}

impl Claim<'_> {
    /// Stores the location of the index value, if the claim still stands.
    #[inline]
    pub(super) fn fill(self, index_value: IndexValue) {
        if let Some(word) = encode(self.fingerprint, index_value) {
            let _ = exchange(self.word, self.claimed, word);
        }
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        let _ = exchange(self.word, self.claimed, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three sets.
    fn small() -> LocationCache {
        LocationCache::new(3 * SET_BYTES).unwrap()
    }

    /// An entry whose run has this number.
    fn index_value(run: u32) -> IndexValue {
        IndexValue {
            address: BlockAddress { run, block: run % 7 + 1 },
            never_expires: false,
            part: low_u8(run.into()),
        }
    }

    fn add(cache: &LocationCache, hash: u64, run: u32) -> bool {
        let token = ClaimToken::default();
        let claim = cache.lookup(hash).and_then(|lookup| lookup.claim(&token));
        claim.map(|claim| claim.fill(index_value(run))).is_some()
    }

    fn leads_to(cache: &LocationCache, hash: u64) -> Option<IndexValue> {
        cache.lookup(hash)?.find(Some)
    }

    /// A reader asks the index before a change and fills its claim afterwards.
    #[cfg(not(model))]
    fn a_claim_from_before_a_change() {
        let cache = small();
        let token = ClaimToken::default();
        let claim = cache.lookup(77).unwrap().claim(&token).unwrap();
        cache.invalidate([77].into_iter());
        claim.fill(index_value(1));
        assert_eq!(leads_to(&cache, 77), None, "that is the old location");
    }

    #[cfg(not(model))]
    mod alone {
        use super::*;
        use crate::util::mutant::{Bug, finds};

        #[test]
        fn a_location_is_cached_until_the_index_changes() {
            let cache = small();
            assert!(add(&cache, 5, 8) && add(&cache, 6, 9));
            assert!(!add(&cache, 5, 10), "it is cached already");
            assert_eq!(leads_to(&cache, 5), Some(index_value(8)));
            assert_eq!(cache.count(), 2);
            cache.invalidate([7, 5].into_iter());
            assert_eq!(leads_to(&cache, 5), None);
            assert_eq!(leads_to(&cache, 6), Some(index_value(9)));
        }

        #[test]
        fn a_location_from_before_a_change_is_not_cached() {
            a_claim_from_before_a_change();
            finds(Bug::ShortcutsKeepClaim, a_claim_from_before_a_change);
        }

        #[test]
        fn a_dropped_claim_and_a_too_large_location_leave_an_empty_word() {
            let cache = small();
            drop(cache.lookup(5).unwrap().claim(&ClaimToken::default()));
            let large = [
                BlockAddress { run: 1 << RUN_BITS, block: 0 },
                BlockAddress { run: 0, block: 1 << BLOCK_BITS },
            ];
            for address in large {
                let token = ClaimToken::default();
                let claim = cache.lookup(5).unwrap().claim(&token).unwrap();
                claim.fill(IndexValue { address, never_expires: true, part: 3 });
            }
            assert!(cache.words.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
            let address = BlockAddress { run: (1 << RUN_BITS) - 1, block: (1 << BLOCK_BITS) - 1 };
            let most = IndexValue { address, never_expires: false, part: u8::MAX };
            assert_eq!(encode(1, most).map(decode), Some(most));
        }

        #[test]
        fn requested_words_stay_while_others_are_evicted() {
            // One set. The fingerprints differ, and so do the words at which the search begins.
            let cache = LocationCache::new(0).unwrap();
            let hash = |number: u64| number << FINGERPRINT_BITS | number;
            for number in 1..=8 {
                assert!(add(&cache, hash(number), 1));
            }
            let asked = || (1..=4).map(|number| leads_to(&cache, hash(number)));
            for number in 9..1_000 {
                assert!(asked().all(|found| found == Some(index_value(1))));
                add(&cache, hash(number), 2);
            }
            assert!((5..=8).all(|number| leads_to(&cache, hash(number)).is_none()));
            assert_eq!(cache.count(), 8);
        }

        #[test]
        fn a_key_with_the_print_of_another_is_not_cached() {
            let cache = small();
            assert!(add(&cache, 1, 20));
            // The fingerprint of 0 is that of 1, because no fingerprint is zero.
            assert!(!add(&cache, 0, 21));
            let is_it = |index_value: IndexValue| (index_value.address.run == 21).then_some(());
            let seen = cache.lookup(0).unwrap().find(is_it);
            assert_eq!(seen, None, "that entry is of another key");
        }
    }

    #[cfg(model)]
    mod races {
        use super::*;
        #[cfg(shuttle)]
        use crate::util::mutant::Bug;
        use crate::util::sync::{Arc, model_check::Exploration, thread};

        fn explore(model: impl Fn() + Send + Sync + 'static) {
            Exploration { priority_changes: 3, ..Exploration::DEFAULT }.explore(model);
        }

        /// The index value of a key changes while a get caches it. After the change has invalidated
        /// the hash, no reader finds the old location.
        fn a_get_beside_a_change() {
            let shared = Arc::new((LocationCache::new(SET_BYTES).unwrap(), AtomicU64::new(1)));
            let reader = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let token = ClaimToken::default();
                    let claim = shared.0.lookup(5).and_then(|lookup| lookup.claim(&token));
                    let run = low_u32(shared.1.load(Ordering::Relaxed));
                    claim.map(|claim| claim.fill(index_value(run)))
                })
            };
            shared.1.store(2, Ordering::Relaxed);
            shared.0.invalidate([5].into_iter());
            let is_new = |found: IndexValue| found == index_value(2);
            assert!(leads_to(&shared.0, 5).is_none_or(is_new), "the old location is cached");
            reader.join().unwrap();
            assert!(leads_to(&shared.0, 5).is_none_or(is_new), "the old location is cached");
        }

        #[cfg(loom)]
        #[test]
        fn loom_a_get_beside_a_change() {
            explore(a_get_beside_a_change);
        }

        #[cfg(shuttle)]
        #[test]
        fn shuttle_a_get_beside_a_change() {
            explore(a_get_beside_a_change);
        }

        #[cfg(shuttle)]
        #[test]
        fn shuttle_finds_shortcuts_keep_claim() {
            crate::util::mutant::finds(Bug::ShortcutsKeepClaim, || explore(a_get_beside_a_change));
        }
    }
}
