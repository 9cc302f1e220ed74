//! Writes: puts and deletes of logged operations.
//!
//! A write locks the key's index group, finds the current entry, and replaces it in place or
//! appends a new one. Before the write is logged, [`HashLog::admit_memory`] has made memory
//! available and [`HashLog::read_ahead`] has read an entry that is not in memory.
//!
//! Locks: one index group a write. No group lock is held across a read from disk.

use super::{
    arena::ArenaRead,
    current_entry::{CurrentEntry, PrefetchedEntry},
    entry::{EntryHead, EntryKind, LargeRef},
    index::GroupGuard,
    manifest::HINT_HASH_MASK,
    table::HashLog,
};
use crate::{
    Result,
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Maximum number of groups that the index grows by after an insert, or shrinks by after a removal.
/// Two keep up with one insert or removal each.
pub(super) const RESIZE_STEPS: u32 = 2;
/// An entry larger than a chunk divided by this stores its value as a large value. It bounds the
/// waste at the end of chunks.
pub(super) const LARGE_PART: u64 = 4;

/// The result of a writer's lookup.
enum WriterLookup {
    Nothing,
    Current(CurrentEntry),
    /// The entry at this address and chunk state must be read first, without the lock.
    Unknown(u64, u64),
}

impl HashLog {
    pub(super) fn put(&self, lsn: Lsn, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let value_bytes = value[0].len() + value[1].len();
        let head =
            EntryHead { kind: EntryKind::Put, key_bytes: key.len(), value_bytes, lsn: lsn.0 };
        let large = to_u64(head.units()) > self.arena.segment_units() / LARGE_PART;
        if large && value_bytes > 16 {
            return self.put_large(lsn, key, value);
        }
        self.put_entry(head, key, value)
    }

    pub(super) fn put_entry(&self, head: EntryHead, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let hash = self.hash(key);
        let mut known = self.read_ahead_entries.remove(hash);
        loop {
            let mut writer = self.lock_to_apply(hash);
            match self.find_current(&writer, hash, key, &known) {
                WriterLookup::Unknown(address, state) => {
                    drop(writer);
                    known.extend(self.read_for_write(address, state, key)?);
                }
                WriterLookup::Current(current) if current.head.lsn > head.lsn => {
                    // Replay of an operation that the files already hold.
                    drop(writer);
                    if head.kind == EntryKind::Large {
                        self.discard_large(&value);
                    }
                    return Ok(());
                }
                WriterLookup::Current(current) if self.update_in_place(&current, &head, value) => {
                    return Ok(());
                }
                WriterLookup::Current(current) => {
                    let address = self.append(&head, key, value)?;
                    writer.replace(current.address, address);
                    self.mark_dead(&current);
                    self.counters.live_bytes.fetch_add(head.payload_bytes(), Ordering::Relaxed);
                    return Ok(());
                }
                WriterLookup::Nothing => {
                    let address = self.append(&head, key, value)?;
                    if !writer.insert(address) {
                        return Err(self.out_of_memory(64));
                    }
                    drop(writer);
                    self.counters.live_bytes.fetch_add(head.payload_bytes(), Ordering::Relaxed);
                    self.index.grow(RESIZE_STEPS);
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn delete(&self, lsn: Lsn, key: &[u8]) -> Result<()> {
        let hash = self.hash(key);
        let head = EntryHead {
            kind: EntryKind::Tombstone,
            key_bytes: key.len(),
            value_bytes: 0,
            lsn: lsn.0,
        };
        let mut known = self.read_ahead_entries.remove(hash);
        loop {
            let mut writer = self.lock_to_apply(hash);
            match self.find_current(&writer, hash, key, &known) {
                WriterLookup::Unknown(address, state) => {
                    drop(writer);
                    known.extend(self.read_for_write(address, state, key)?);
                }
                WriterLookup::Nothing => return Ok(()),
                WriterLookup::Current(current) if current.head.lsn > head.lsn => return Ok(()),
                WriterLookup::Current(current) => {
                    let address = self.append(&head, key, [&[], &[]])?;
                    writer.remove(current.address);
                    drop(writer);
                    self.index.shrink(RESIZE_STEPS);
                    self.mark_dead(&current);
                    let (chunk, _) = self.arena.split(address);
                    self.arena.add_tombstone(chunk, to_u64(head.units()));
                    self.counters.waste_units.fetch_add(to_u64(head.units()), Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
    }

    /// Locks the group of `hash` and counts the operation. A thread that reads the count and then
    /// waits for writers has waited for all operations in the count.
    fn lock_to_apply(&self, hash: u64) -> GroupGuard<'_> {
        let writer = self.index.lock(hash);
        self.counters.applied.fetch_add(1, Ordering::Relaxed);
        writer
    }

    fn find_current(
        &self,
        writer: &GroupGuard<'_>,
        hash: u64,
        key: &[u8],
        known: &[PrefetchedEntry],
    ) -> WriterLookup {
        for address in writer.candidates() {
            match self.arena.entry_at(address, self.arena.state_of(address), key) {
                ArenaRead::Found(entry) => {
                    let (head, large) = (entry.head, large_of(&entry.head, entry.words));
                    // Under the group's lock, only eviction changes a chunk.
                    if !self.arena.is_current(&entry) {
                        return WriterLookup::Unknown(address, self.arena.state_of(address));
                    }
                    let current = CurrentEntry { address, head, large, in_memory: true };
                    return WriterLookup::Current(current);
                }
                ArenaRead::OtherKey => self.check_collision(address, hash),
                ArenaRead::Changed => {
                    return WriterLookup::Unknown(address, self.arena.state_of(address));
                }
                ArenaRead::Cold(state) => {
                    let mut known = known.iter();
                    match known.find(|known| (known.address, known.state) == (address, state)) {
                        None => return WriterLookup::Unknown(address, state),
                        Some(PrefetchedEntry { current: Some(current), .. }) => {
                            return WriterLookup::Current(*current);
                        }
                        Some(other) if (other.hash ^ hash) & HINT_HASH_MASK == 0 => {
                            self.set_collided();
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        WriterLookup::Nothing
    }

    /// Sets `collided` if the key at `address` shares all hash bits of a hint with `hash`.
    #[cold]
    fn check_collision(&self, address: u64, hash: u64) {
        match self.arena.copy(address, self.arena.state_of(address)) {
            ArenaRead::Found((_, key, _)) if (self.hash(&key) ^ hash) & HINT_HASH_MASK == 0 => {
                self.set_collided();
            }
            _ => {}
        }
    }

    fn set_collided(&self) {
        mutant!(HashlogForgetsCollisions => return);
        self.collided.store(true, Ordering::Relaxed);
    }

    /// Updates the entry in place. Returns `false` if its size differs, or it is frozen or not in
    /// memory.
    fn update_in_place(&self, current: &CurrentEntry, head: &EntryHead, value: [&[u8]; 2]) -> bool {
        let (chunk, unit) = self.arena.split(current.address);
        let alike = current.in_memory
            && current.head.kind == EntryKind::Put
            && head.kind == EntryKind::Put
            && current.head.value_bytes == head.value_bytes;
        let frozen = unit < self.arena.frozen(chunk);
        let frozen = mutant!(HashlogUpdatesFrozenEntries: false, else frozen);
        if !alike || frozen {
            return false;
        }
        let Some(words) = self.arena.words(chunk, 0) else { return false };
        let Some(words) = words.get(to_usize(unit)..to_usize(unit) + head.units()) else {
            return false;
        };
        head.update_in_place(words, head.lsn, value);
        self.counters.in_place_total.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts an entry that lost its slot as dead, and drops its large value.
    fn mark_dead(&self, current: &CurrentEntry) {
        let (chunk, unit) = self.arena.split(current.address);
        let units = to_u64(current.head.units());
        self.arena.add_dead(chunk, units);
        self.counters.waste_units.fetch_add(units, Ordering::Relaxed);
        self.counters.live_bytes.fetch_sub(current.head.payload_bytes(), Ordering::Relaxed);
        if let Some(large) = current.large {
            self.counters.live_bytes.fetch_sub(large.bytes, Ordering::Relaxed);
            if unit < self.arena.frozen(chunk) {
                // Files may name it: the checkpoint that holds its replacement drops it.
                lock(&self.dead_larges).push(large.number);
                self.checkpoint_wanted.store(true, Ordering::Relaxed);
            } else {
                self.drop_large(large.number);
            }
        }
    }
}

fn large_of(head: &EntryHead, words: &[AtomicU64]) -> Option<LargeRef> {
    if head.kind != EntryKind::Large {
        return None;
    }
    let mut bytes = [0; 16];
    crate::util::words::copy_out(words, head.value_at(), &mut bytes);
    LargeRef::decode(&bytes)
}
