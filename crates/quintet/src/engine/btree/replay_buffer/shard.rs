//! A shard of the replay buffer: in log order first, in key order once a scan needs that.
//!
//! How: in log order the entries are in chunks of one reserved region, and a hash table refers to
//! them. In key order they are in an ordered map, with an allocation for each key and each value.
//! Why: replay adds millions of entries before a table can serve. An ordered map takes five times
//! as long for that, mostly waiting for memory.
//!
//! | offset in an entry | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 3 | key size | |
//! | 3 | 1 | kind | 0: the value; 1: the key was deleted; 2: the entry is gone |
//! | 4 | 4 | value size | the room that there is, where there is no value |
//! | 8 | | key, value | zeros up to a whole word |
//!
//! Invariants: a key has one entry; [`BufferShard::memory_bytes`] counts all its memory; a chunk
//! belongs to one shard.

use std::collections::BTreeMap;

use super::key::{OrderedKey, ReplayKey, SearchKey};
use crate::{
    io::{Region, prefetch},
    util::{
        codec::{low_u8, low_u32, round_up, to_u64, to_usize},
        sync::{AtomicU64, Mutex, Ordering, lock},
        words::{WORD_BYTES, copy_out, equals_at, store_bytes},
    },
};

/// A value as stored; `None`: the key was deleted.
pub(super) type Stored = Option<Box<[u8]>>;

/// Entries in the order of keys.
pub(super) type KeyOrder = BTreeMap<ReplayKey, Stored>;

/// Memory of an entry in key order beside its key and its value, in bytes.
const ENTRY_BYTES: u64 = 112;
/// Size of a chunk in bytes: more than an entry can have. Memory is counted once it is written to,
/// in steps of `STEP_BYTES`.
const CHUNK_BYTES: u64 = 128 << 10;
const CHUNK_WORDS: usize = to_usize(CHUNK_BYTES) / WORD_BYTES;
const STEP_BYTES: u64 = 2 << 10;
/// Offset from which the region uses huge pages, in bytes: a short replay does not justify one.
const HUGE_FROM_BYTES: u64 = 2 << 20;
/// Maximum size of the region in bytes: offsets of entries have 32 bits.
const REGION_BYTES_MAX: u64 = 16 << 30;
/// Number of slots of the smallest hash table: a power of two.
const SLOTS_MIN: usize = 16;
const VALUE: u8 = 0;
const DELETED: u8 = 1;
const REMOVED: u8 = 2;

/// The memory region of all shards' chunks.
#[derive(Debug, Default)]
pub(crate) struct ChunkPool {
    region: Option<Region>,
    /// Freed chunks, and the first chunk that was never used.
    free: Mutex<(Vec<usize>, usize)>,
}

impl ChunkPool {
    /// Reserves address space of this many bytes; of none if the system refuses.
    pub(crate) fn reserve(bytes: u64) -> Self {
        let bytes = round_up(bytes.min(REGION_BYTES_MAX), CHUNK_BYTES);
        let region = Region::reserve(bytes).ok();
        if let Some(region) = &region {
            region.advise_huge(HUGE_FROM_BYTES..bytes);
        }
        Self { region, free: Mutex::default() }
    }

    fn words(&self, from: usize) -> &[AtomicU64] {
        let words = self.region.as_ref().map_or(&[][..], Region::words);
        words.get(from..).unwrap_or(&[])
    }

    /// Allocates a chunk and returns its first word; `None` if all are in use.
    fn allocate(&self) -> Option<usize> {
        let mut free = lock(&self.free);
        if let Some(chunk) = free.0.pop() {
            return Some(chunk);
        }
        let chunk = free.1;
        free.1 += CHUNK_WORDS;
        (self.words(chunk).len() >= CHUNK_WORDS).then_some(chunk)
    }

    fn free_chunks(&self, chunks: &[usize]) {
        for chunk in chunks {
            let start = to_u64(chunk * WORD_BYTES);
            if let Some(region) = &self.region {
                region.discard(start..start + CHUNK_BYTES);
            }
        }
        lock(&self.free).0.extend(chunks);
    }

    /// Returns the header of an entry, and its content.
    fn entry(&self, offset: u32) -> Option<(EntryHeader, &[AtomicU64])> {
        let (head, rest) = self.words(to_usize(offset.into())).split_first()?;
        let head = EntryHeader::decode(head.load(Ordering::Relaxed));
        Some((head, rest.get(..(head.key + head.value).div_ceil(WORD_BYTES))?))
    }

    fn bytes(&self, offset: u32) -> Option<(Vec<u8>, Stored)> {
        let (head, words) = self.entry(offset)?;
        let mut key = vec![0; head.key];
        copy_out(words, 0, &mut key);
        if head.kind == REMOVED {
            return None;
        }
        let value = || {
            let mut value = vec![0; head.value];
            copy_out(words, head.key, &mut value);
            value.into_boxed_slice()
        };
        Some((key, (head.kind == VALUE).then(value)))
    }
}

/// A shard. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct BufferShard {
    /// In log order: all entries, or none.
    log_order: LogOrder,
    /// In key order: the other entries.
    key_order: KeyOrder,
    key_order_bytes: u64,
}

impl BufferShard {
    pub(crate) fn len(&self) -> usize {
        self.log_order.live + self.key_order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.log_order.memory_bytes() + self.key_order_bytes
    }

    /// Passes the content of a key's entry to `read`: a value, or `None` if it was deleted.
    pub(crate) fn find<T>(
        &self,
        pool: &ChunkPool,
        (hash, key): (u64, &[u8]),
        read: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Option<T> {
        if self.key_order.is_empty() {
            let (_, stored) = pool.bytes(self.log_order.find(pool, hash, key)?)?;
            return Some(read(stored.as_deref()));
        }
        let sought: &dyn OrderedKey = &SearchKey::new(key);
        self.key_order.get(sought).map(|stored| read(stored.as_deref()))
    }

    /// Sets a key's entry: a value in pieces, or deleted. For replay. Returns `false` if there is
    /// no memory for it.
    pub(crate) fn set(
        &mut self,
        pool: &ChunkPool,
        (hash, key): (u64, &[u8]),
        value: Option<[&[u8]; 2]>,
    ) -> bool {
        if self.key_order.is_empty() {
            return self.log_order.set(pool, (hash, key), value);
        }
        // A deleted range has required key order.
        let stored = value.map(|pieces| pieces.concat().into_boxed_slice());
        self.key_order_bytes += entry_bytes(key, stored.as_deref());
        if let Some(before) = self.key_order.insert(ReplayKey::from(key), stored) {
            self.key_order_bytes -= entry_bytes(key, before.as_deref());
        }
        true
    }

    /// Prefetches the slot of this hash.
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(slot) = self.log_order.slots.get(self.log_order.first_slot(hash)) {
            prefetch(slot);
        }
    }

    /// Removes a key's entry.
    pub(crate) fn remove(&mut self, pool: &ChunkPool, (hash, key): (u64, &[u8])) {
        self.log_order.remove(pool, hash, key);
        let sought: &dyn OrderedKey = &SearchKey::new(key);
        if let Some(stored) = self.key_order.remove(sought) {
            self.key_order_bytes -= entry_bytes(key, stored.as_deref());
        }
        if self.is_empty() {
            self.clear(pool);
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self, pool: &ChunkPool) {
        pool.free_chunks(&self.log_order.chunks);
        *self = Self::default();
    }

    /// Returns the entries in key order; sorts them if necessary.
    pub(crate) fn key_order(&mut self, pool: &ChunkPool) -> &KeyOrder {
        if self.log_order.live > 0 {
            let log_order = std::mem::take(&mut self.log_order);
            let mut entries: Vec<(ReplayKey, Stored)> = Vec::with_capacity(log_order.live);
            for (key, stored) in log_order.offsets().filter_map(|offset| pool.bytes(offset)) {
                self.key_order_bytes += entry_bytes(&key, stored.as_deref());
                entries.push((ReplayKey::from(&*key), stored));
            }
            pool.free_chunks(&log_order.chunks);
            entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            self.key_order = entries.into_iter().collect();
        }
        &self.key_order
    }
}

fn entry_bytes(key: &[u8], stored: Option<&[u8]>) -> u64 {
    to_u64(key.len() + stored.map_or(0, <[u8]>::len)) + ENTRY_BYTES
}

/// Entries in log order.
#[derive(Debug, Default)]
struct LogOrder {
    /// Half of the hash, and the offset of the entry plus one; 0 if free.
    slots: Box<[AtomicU64]>,
    used_slots: usize,
    live: usize,
    chunks: Vec<usize>,
    /// Number of words of the last chunk in use.
    filled: usize,
}

/// The header of an entry.
#[derive(Clone, Copy, Debug)]
struct EntryHeader {
    key: usize,
    kind: u8,
    value: usize,
}

impl EntryHeader {
    fn encode(self) -> u64 {
        to_u64(self.key) | u64::from(self.kind) << 24 | to_u64(self.value) << 32
    }

    fn decode(word: u64) -> Self {
        let kind = low_u8(word >> 24);
        Self { key: to_usize(word & 0xff_ffff), kind, value: to_usize(word >> 32) }
    }
}

impl LogOrder {
    fn memory_bytes(&self) -> u64 {
        let full = to_u64(self.chunks.len().saturating_sub(1)) * CHUNK_BYTES;
        let last = round_up(to_u64(self.filled * WORD_BYTES), STEP_BYTES);
        full + last + to_u64(size_of_val(&*self.slots))
    }

    /// Returns the offsets of the entries, in no order.
    fn offsets(&self) -> impl Iterator<Item = u32> {
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        slots.filter_map(|slot| low_u32(slot).checked_sub(1))
    }

    fn slot(&self, index: usize) -> u64 {
        self.slots.get(index).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    fn first_slot(&self, hash: u64) -> usize {
        to_usize(hash >> 32) & self.slots.len().wrapping_sub(1)
    }

    /// Returns the slot of a key and the entry in it, or the free slot for the key; there is always
    /// one.
    fn locate(&self, pool: &ChunkPool, hash: u64, key: &[u8]) -> (usize, Option<u32>) {
        let mut index = self.first_slot(hash);
        loop {
            let slot = self.slot(index);
            let Some(offset) = low_u32(slot).checked_sub(1) else { return (index, None) };
            let same = |(head, words): (EntryHeader, &[AtomicU64])| {
                head.key == key.len() && equals_at(words, 0, key)
            };
            if slot >> 32 == hash >> 32 && pool.entry(offset).is_some_and(same) {
                return (index, Some(offset));
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }

    fn find(&self, pool: &ChunkPool, hash: u64, key: &[u8]) -> Option<u32> {
        if self.slots.is_empty() { None } else { self.locate(pool, hash, key).1 }
    }

    fn remove(&mut self, pool: &ChunkPool, hash: u64, key: &[u8]) {
        if let Some(offset) = self.find(pool, hash, key) {
            self.set_kind(pool, offset, REMOVED);
        }
    }

    /// Sets the kind of an entry.
    fn set_kind(&mut self, pool: &ChunkPool, offset: u32, kind: u8) {
        let Some(word) = pool.words(to_usize(offset.into())).first() else { return };
        let head = EntryHeader::decode(word.load(Ordering::Relaxed));
        self.live += usize::from(kind != REMOVED);
        self.live -= usize::from(head.kind != REMOVED);
        word.store(EntryHeader { kind, ..head }.encode(), Ordering::Relaxed);
    }

    fn set(
        &mut self,
        pool: &ChunkPool,
        (hash, key): (u64, &[u8]),
        value: Option<[&[u8]; 2]>,
    ) -> bool {
        if self.used_slots * 4 >= self.slots.len() * 3 {
            self.grow();
        }
        let (index, before) = self.locate(pool, hash, key);
        let kind = if value.is_some() { VALUE } else { DELETED };
        if let Some(offset) = before
            && let Some((head, words)) = pool.entry(offset)
            && value.is_none_or(|[front, back]| front.len() + back.len() == head.value)
        {
            if let Some([front, back]) = value {
                store_bytes(words, &[key, front, back]);
            }
            self.set_kind(pool, offset, kind);
            return true;
        }
        let Some(offset) = self.append(pool, key, value) else { return false };
        match before {
            None => self.used_slots += 1,
            Some(before) => self.set_kind(pool, before, REMOVED),
        }
        self.live += 1;
        if let Some(slot) = self.slots.get(index) {
            slot.store(hash >> 32 << 32 | u64::from(offset + 1), Ordering::Relaxed);
        }
        true
    }

    /// Appends an entry and returns its offset.
    fn append(&mut self, pool: &ChunkPool, key: &[u8], value: Option<[&[u8]; 2]>) -> Option<u32> {
        let [front, back] = value.unwrap_or_default();
        let kind = if value.is_some() { VALUE } else { DELETED };
        let head = EntryHeader { key: key.len(), kind, value: front.len() + back.len() };
        let count = 1 + (head.key + head.value).div_ceil(WORD_BYTES);
        if self.chunks.is_empty() || self.filled + count > CHUNK_WORDS {
            if count > CHUNK_WORDS {
                return None;
            }
            self.chunks.push(pool.allocate()?);
            self.filled = 0;
        }
        let at = self.chunks.last()? + self.filled;
        self.filled += count;
        let (first, rest) = pool.words(at).split_first()?;
        first.store(head.encode(), Ordering::Relaxed);
        store_bytes(rest.get(..count - 1)?, &[key, front, back]);
        Some(low_u32(to_u64(at)))
    }

    /// Doubles the hash table. Slots store enough of their hashes for that.
    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(SLOTS_MIN);
        let before = std::mem::take(&mut self.slots);
        self.slots = (0..count).map(|_| AtomicU64::new(0)).collect();
        for slot in before.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|slot| *slot != 0)
        {
            let mut index = self.first_slot(slot);
            while self.slot(index) != 0 {
                index = (index + 1) & (count - 1);
            }
            if let Some(free) = self.slots.get(index) {
                free.store(slot, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    /// Keys meet in slots and halves of hashes; every third has a hash of its own.
    fn hash_of(number: u64) -> u64 {
        (number % 3) << 32 | if number.is_multiple_of(3) { number << 40 } else { 0 }
    }

    fn set(
        shard: &mut BufferShard,
        pool: &ChunkPool,
        rows: &mut Rows,
        number: u64,
        value: Option<&[u8]>,
    ) {
        let key = number.to_string().into_bytes();
        let pieces = value.map(|value| value.split_at(value.len() / 2)).map(|(a, b)| [a, b]);
        assert!(shard.set(pool, (hash_of(number), &key), pieces));
        rows.insert(key, value.map(<[u8]>::to_vec));
    }

    fn compare(shard: &BufferShard, pool: &ChunkPool, rows: &Rows) {
        assert_eq!(shard.len(), rows.len());
        for number in 0..700_u64 {
            let key = number.to_string().into_bytes();
            let read = |stored: Option<&[u8]>| stored.map(<[u8]>::to_vec);
            let found = shard.find(pool, (hash_of(number), &key), read);
            assert_eq!(found.as_ref(), rows.get(&key), "{number}");
        }
    }

    #[test]
    fn entries_are_what_was_set_last_in_either_form() {
        let pool = ChunkPool::reserve(1 << 20);
        let (mut shard, mut rows) = (BufferShard::default(), Rows::new());
        for number in 0..600 {
            set(&mut shard, &pool, &mut rows, number, Some(&[7; 90]));
        }
        let before = shard.memory_bytes();
        for number in 0..600 {
            // In place: as long as before, or none.
            let value = [8; 90];
            set(&mut shard, &pool, &mut rows, number, (number % 2 == 0).then_some(&value));
        }
        assert_eq!(shard.memory_bytes(), before);
        for number in (0..600).step_by(5) {
            set(&mut shard, &pool, &mut rows, number, Some(&[9; 91][..to_usize(number % 92)]));
        }
        compare(&shard, &pool, &rows);
        for number in (0..600_u64).step_by(7) {
            let key = number.to_string().into_bytes();
            shard.remove(&pool, (hash_of(number), &key));
            rows.remove(&key);
        }
        compare(&shard, &pool, &rows);
        set(&mut shard, &pool, &mut rows, 14, Some(b"again"));
        let ordered: Vec<_> = shard.key_order(&pool).keys().map(|key| key.bytes.to_vec()).collect();
        assert!(ordered.iter().eq(rows.keys()));
        compare(&shard, &pool, &rows);
        // What is set from now on is in order too.
        set(&mut shard, &pool, &mut rows, 21, Some(b"new"));
        set(&mut shard, &pool, &mut rows, 15, Some(b"another"));
        set(&mut shard, &pool, &mut rows, 16, None);
        compare(&shard, &pool, &rows);
        let ordered: Vec<_> = shard.key_order(&pool).keys().map(|key| key.bytes.to_vec()).collect();
        assert!(ordered.iter().eq(rows.keys()));
        for key in ordered {
            let number = std::str::from_utf8(&key).unwrap().parse().unwrap();
            shard.remove(&pool, (hash_of(number), &key));
        }
        assert_eq!((shard.len(), shard.memory_bytes()), (0, 0));
        // Its chunks serve again.
        let free = lock(&pool.free);
        assert_eq!(free.0.len() * CHUNK_WORDS, free.1);
    }

    #[test]
    fn without_memory_nothing_is_set() {
        for pool in [ChunkPool::default(), ChunkPool::reserve(CHUNK_BYTES)] {
            let (mut shard, value) = (BufferShard::default(), [1; 4000]);
            let mut set = |number: u64| {
                shard.set(&pool, (number << 32, &number.to_le_bytes()), Some([&value, &[]]))
            };
            let count = (0..100).take_while(|number| set(*number)).count();
            assert_eq!(count, if pool.region.is_some() { 32 } else { 0 });
            assert_eq!(shard.len(), count);
        }
    }
}
