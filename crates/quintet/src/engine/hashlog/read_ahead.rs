//! Entries that writers need from the disk, read before the writes are logged.
//!
//! Applying a logged write needs no disk then, unless the chunk is evicted in between.
//!
//! Locks: no group lock is held across a read from disk.

use super::{
    arena::ArenaRead,
    current_entry::{CurrentEntry, PrefetchedEntry},
    entry::{EntryKind, LargeRef},
    index::Verdict,
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
        loop {
            let unknown = self.index.find(hash, |address| {
                match self.arena.entry_at(address, self.arena.state_of(address), key) {
                    ArenaRead::Found(entry) if self.arena.is_current(&entry) => {
                        Verdict::Found(None)
                    }
                    ArenaRead::OtherKey => Verdict::Other,
                    ArenaRead::Found(_) | ArenaRead::Changed => Verdict::Changed,
                    ArenaRead::Cold(state) => {
                        let this = |known: &&PrefetchedEntry| {
                            (known.address, known.state) == (address, state)
                        };
                        match known.iter().find(this) {
                            None => Verdict::Found(Some((address, state))),
                            Some(PrefetchedEntry { current: Some(_), .. }) => Verdict::Found(None),
                            Some(_) => Verdict::Other,
                        }
                    }
                }
            });
            let Some((address, state)) = unknown.flatten() else { break };
            known.extend(self.read_for_write(address, state, key)?);
        }
        self.read_ahead_entries.add(hash, known);
        Ok(())
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
