//! `floor`: the cost of a point read on this machine if a store does nothing else.
//!
//! A table of 8-byte tagged slots in huge pages points into a packed arena of records. A get hashes
//! the key, loads a slot, compares the key and copies the value. These are two dependent cache
//! misses. `multi_get` does this for 32 keys at a time with prefetches. Nothing is durable, no
//! memory is reused, and the table does not grow.
//!
//! Invariants: the table uses linear probing. A slot that a key has taken belongs to it until the
//! end. A new key goes into the first empty slot of its chain, so two threads that insert the same
//! key use the same slot.
//!
//! Thread rules: all operations are lock-free. A record is immutable: an update appends a new
//! record and swaps the slot.

mod arena;

use std::sync::atomic::{AtomicU64, Ordering};

use self::arena::{Arena, Slot, SlotWord};
use crate::{
    failure::{Failure, Outcome},
    numbers::{to_u64, to_usize},
    random::scale,
    store::{EachEntry, EachFound, Store, StoreOptions, StoreStats, unordered},
};

/// Number of keys that `multi_get` processes at a time. More keys gain nothing; fewer keys leave
/// memory parallelism unused.
const GROUP: usize = 32;
/// Cache lines of a record that are prefetched: header, key and a value of about 100 bytes.
const RECORD_LINES: usize = 3;
/// Maximum memory reserved for records. The kernel provides only the pages that are used.
const ARENA_BYTES_MAX: u64 = 1 << 40;

/// The table and its arena. See the module head.
#[derive(Debug)]
pub struct Floor {
    arena: Arena,
    /// Number of slots minus one; the number is a power of two.
    mask: u64,
    keys: AtomicU64,
    live_bytes: AtomicU64,
}

impl Floor {
    /// Creates a table for `options.records_max` records. Fails if the system has not enough
    /// memory.
    pub fn open(options: &StoreOptions) -> Outcome<Self> {
        // At most three quarters of the slots are used, which keeps chains short.
        let slots = (options.records_max.saturating_mul(4) / 3 + 1).max(64).next_power_of_two();
        // Includes headers, alignment, and overwritten records.
        let bytes = options.bytes_written_max.saturating_mul(2).min(ARENA_BYTES_MAX);
        let arena = Arena::reserve(to_usize(slots), bytes)
            .map_err(|error| Failure::io("floor: reserve memory", &error))?;
        Ok(Self { arena, mask: slots - 1, keys: AtomicU64::new(0), live_bytes: AtomicU64::new(0) })
    }

    /// Returns the record of a slot, also if its key is removed.
    #[inline]
    fn record(&self, word: SlotWord) -> Option<(&[u8], &[u8])> {
        word.address().map(|address| self.arena.record(address))
    }

    /// Returns the slot of the key and its content, or the first empty slot of its chain; `None` if
    /// other keys fill the table.
    #[inline]
    fn find(&self, key: &[u8], hash: u64) -> Option<(&Slot, SlotWord)> {
        let slots = self.arena.slots();
        for step in 0..=self.mask {
            let slot = slots.get(to_usize(hash.wrapping_add(step) & self.mask))?;
            let seen = slot.load();
            if seen.is_empty() || self.holds(seen, key, hash) {
                return Some((slot, seen));
            }
        }
        None
    }

    /// Returns whether the content of a slot belongs to this key.
    #[inline]
    fn holds(&self, seen: SlotWord, key: &[u8], hash: u64) -> bool {
        seen.has_tag_of(hash) && self.record(seen).is_some_and(|(found, _)| found == key)
    }

    /// Returns the value of `key`, whose hash is `hash`.
    #[inline]
    fn value(&self, key: &[u8], hash: u64) -> Option<&[u8]> {
        let (_, seen) = self.find(key, hash)?;
        if seen.is_removed() {
            return None;
        }
        self.record(seen).map(|(_, value)| value)
    }

    /// Replaces the content of the key's slot by `change` of it; `None` keeps it. Returns false if
    /// the table is full.
    fn swap(&self, key: &[u8], hash: u64, change: impl Fn(SlotWord) -> Option<SlotWord>) -> bool {
        // Another thread may have taken or changed the slot; the loop then searches again.
        while let Some((slot, seen)) = self.find(key, hash) {
            let Some(new) = change(seen) else { return true };
            if slot.replace(seen, new) {
                self.account(self.live(seen), self.live(new));
                return true;
            }
        }
        false
    }

    /// Returns the size of the live record of a slot.
    fn live(&self, word: SlotWord) -> Option<u64> {
        let (key, value) = self.record(word)?;
        (!word.is_removed()).then(|| to_u64(key.len() + value.len()))
    }

    fn account(&self, old: Option<u64>, new: Option<u64>) {
        if old.is_some() != new.is_some() {
            let change = if new.is_some() { 1 } else { u64::MAX };
            self.keys.fetch_add(change, Ordering::Relaxed);
        }
        let change = new.unwrap_or(0).wrapping_sub(old.unwrap_or(0));
        if change != 0 {
            self.live_bytes.fetch_add(change, Ordering::Relaxed);
        }
    }

    fn multi_get_group(&self, first: usize, keys: &[&[u8]], each: &mut EachFound<'_>) {
        let mut hashes = [0_u64; GROUP];
        for (hash_of, key) in hashes.iter_mut().zip(keys) {
            *hash_of = hash(key);
            self.arena.prefetch_slot(to_usize(*hash_of & self.mask));
        }
        let slots = self.arena.slots();
        for hash in hashes.iter().take(keys.len()) {
            let slot = slots.get(to_usize(hash & self.mask));
            if let Some(address) = slot.and_then(|slot| slot.load().address()) {
                self.arena.prefetch_record(address, RECORD_LINES);
            }
        }
        for (index, (key, hash)) in keys.iter().zip(hashes).enumerate() {
            each(first + index, self.value(key, hash));
        }
    }
}

impl Store for Floor {
    #[inline]
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let found = self.value(key, hash(key));
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut EachFound<'_>) -> Outcome {
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            self.multi_get_group(group * GROUP, keys, each);
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome {
        let address = self.arena.append(key, value).ok_or_else(|| {
            Failure::Failed("floor: the arena is full; floor never reuses memory".to_owned())
        })?;
        let hash = hash(key);
        if self.swap(key, hash, |_| Some(SlotWord::new(hash, address))) {
            return Ok(());
        }
        Err(Failure::Failed("floor: the table is full; it never grows".to_owned()))
    }

    fn delete(&self, key: &[u8]) -> Outcome {
        self.swap(key, hash(key), |seen| (!seen.is_empty()).then_some(seen.removed()));
        Ok(())
    }

    fn range(&self, _: &[u8], _: usize, _: &mut EachEntry<'_>) -> Outcome<usize> {
        Err(unordered("floor"))
    }

    fn scan(&self, each: &mut EachEntry<'_>) -> Outcome<u64> {
        let mut count = 0;
        for slot in self.arena.slots() {
            let seen = slot.load();
            if !seen.is_removed()
                && let Some((key, value)) = self.record(seen)
            {
                each(key, value);
                count += 1;
            }
        }
        Ok(count)
    }

    fn sync(&self) -> Outcome {
        Ok(())
    }

    fn stats(&self) -> StoreStats {
        let index = (self.mask + 1) * 8;
        StoreStats {
            keys: Some(self.keys.load(Ordering::Relaxed)),
            live_bytes: Some(self.live_bytes.load(Ordering::Relaxed)),
            memory_bytes: Some(index + self.arena.record_bytes()),
            index_bytes: Some(index),
            ..StoreStats::default()
        }
    }

    fn close(self: Box<Self>) -> Outcome {
        Ok(())
    }
}

/// Returns a fast hash without a seed: folded products of eight bytes at a time, as in wyhash. Not
/// safe against chosen keys.
#[inline]
fn hash(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let mut state = to_u64(key.len()) ^ 0xa076_1d64_78bd_642f;
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        // The last eight bytes overlap the word before. Short keys are padded.
        let mut last = [0; 8];
        match key.last_chunk() {
            Some(end) => last = *end,
            None => last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from),
        }
        state = fold(state ^ u64::from_le_bytes(last));
    }
    fold(state ^ 0xe703_7ed1_a0b4_28db)
}

/// Returns the exclusive or of both halves of a product.
#[inline]
fn fold(value: u64) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    scale(value, FACTOR) ^ value.wrapping_mul(FACTOR)
}
