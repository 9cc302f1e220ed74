//! Entries that writers need from the disk, read before the writes are logged.
//!
//! Applying a logged write needs no disk then, unless the chunk is evicted in between.
//!
//! Locks: no group lock is held across a read from disk.

use super::{
    arena::ArenaRead,
    current_entry::{CurrentEntry, PrefetchedEntry},
    entry::{EntryKind, LargeRef},
    table::HashLog,
};
use crate::{
    Result,
    util::sync::{Ordering, lock},
};

/// Number of entries that writers read one by one from a chunk's file before the whole chunk is
/// loaded. This many reads take about as long as the load.
const READS_BEFORE_WARMING: u64 = 8;

impl HashLog {
    /// Reads the key's entry before the write is logged, if it is not in memory, so that applying
    /// the write does not depend on the disk. If the chunk is evicted in between, applying reads
    /// it.
    pub(super) fn read_ahead(&self, key: &[u8]) -> Result<()> {
        if self.counters.cold_chunks.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let hash = self.hash(key);
        let mut known: Vec<PrefetchedEntry> = Vec::new();
        while let Some((address, state)) = self.find_unknown(hash, key, &known) {
            known.extend(self.read_for_write(address, state, key)?);
        }
        self.read_ahead_entries.add(hash, known);
        Ok(())
    }

    /// Returns address and chunk state of an entry that may be the key's, and is neither in memory
    /// nor in `known`.
    fn find_unknown(&self, hash: u64, key: &[u8], known: &[PrefetchedEntry]) -> Option<(u64, u64)> {
        let mut candidates = self.index.candidates(hash);
        while let Some(address) = candidates.next() {
            let unknown = match self.arena.entry_at(address, self.arena.state_of(address), key) {
                ArenaRead::Found(entry) if self.arena.is_current(&entry) => None,
                ArenaRead::OtherKey => continue,
                ArenaRead::Found(_) | ArenaRead::Changed => {
                    candidates.restart();
                    continue;
                }
                ArenaRead::Cold(state) => {
                    let mut known = known.iter();
                    match known.find(|known| (known.address, known.state) == (address, state)) {
                        None => Some((address, state)),
                        Some(PrefetchedEntry { current: Some(_), .. }) => None,
                        Some(_) => continue,
                    }
                }
            };
            if candidates.is_current() {
                return unknown;
            }
            candidates.restart();
        }
        None
    }

    /// Reads an entry that is not in memory, or loads its whole chunk.
    ///
    /// It loads the chunk if there is memory and more reads are likely. They are likely if replay
    /// needs the chunk (it has entries past the last checkpoint), or if writers have read many of
    /// its entries. Returns `None` if the caller must repeat its lookup.
    pub(super) fn read_for_write(
        &self,
        address: u64,
        state: u64,
        key: &[u8],
    ) -> Result<Option<PrefetchedEntry>> {
        let (id, _) = self.arena.split(address);
        let likely = self.chunk(id).is_some_and(|chunk| {
            let last = lock(&chunk.flush).extents.iter().map(|extent| extent.last_lsn).max();
            last >= Some(self.opened_complete.load(Ordering::Relaxed))
                || chunk.writer_reads.fetch_add(1, Ordering::Relaxed) >= READS_BEFORE_WARMING
        });
        let warms = likely && self.has_room_to_warm();
        if self.arena.is_resident(id) || warms && self.warm(id)? {
            return Ok(None);
        }
        let Some(cold) = self.read_cold(address, state)? else { return Ok(None) };
        let Some(entry) = cold.entry() else { return Ok(None) };
        let head = entry.head;
        let large = LargeRef::decode(entry.value()).filter(|_| head.kind == EntryKind::Large);
        let current = CurrentEntry { address, head, large, in_memory: false };
        let current = (entry.key() == key).then_some(current);
        Ok(Some(PrefetchedEntry { address, state, current, hash: self.hash(entry.key()) }))
    }
}
