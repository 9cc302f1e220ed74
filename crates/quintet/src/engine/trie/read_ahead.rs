//! Paths and records that writers need from the disk, read before the writes are logged.
//!
//! Applying a logged write needs no disk then, unless the memory is evicted in between.

use super::{
    current_record::{PrefetchedRecord, find_prefetched},
    record::TrieRecordHead,
    table::Trie,
};
use crate::{
    Result,
    engine::trie::{index::RecordVerdict, store::regions::RegionRead},
};

impl Trie {
    /// Before a write is logged: loads the path of its key, and reads its record if that is not in
    /// memory. Applying the write then needs no disk, which may fail. (Both may be evicted in
    /// between; then applying reads them again.)
    pub(super) fn prefetch_record(&self, key: &[u8]) -> Result<()> {
        self.replay_buffer.end_replay();
        self.merge_key(key)?;
        self.index.load_free_objects(self.has_room_to_load());
        let path = self.path(key);
        let mut prefetched: Vec<PrefetchedRecord> = Vec::new();
        let mut retries = 0;
        loop {
            let look = |address| {
                let look = self.regions.read_in_memory(address, |words| {
                    let head = TrieRecordHead::load(words).filter(|head| head.fits(words))?;
                    Some(head.has_key(words, key))
                });
                match look {
                    RegionRead::Found(true) => RecordVerdict::Found(None),
                    RegionRead::Found(false) => RecordVerdict::Other,
                    RegionRead::Changed => RecordVerdict::Changed,
                    RegionRead::Cold(life) => match find_prefetched(&prefetched, address, life) {
                        None => RecordVerdict::Found(Some((address, life))),
                        Some(PrefetchedRecord { current: Some(_), .. }) => {
                            RecordVerdict::Found(None)
                        }
                        Some(_) => RecordVerdict::Other,
                    },
                }
            };
            let unknown = self.index.find(path, look, |at| self.load_index(at))?;
            let Some((address, life)) = unknown.flatten() else { break };
            self.count_retry(address, &mut retries)?;
            prefetched.extend(self.read_record(address, life, key)?);
        }
        self.prefetched.add(self.prefetch_id(path), prefetched);
        Ok(())
    }

    /// Reads a record that is not in memory, or loads its whole region if that is read often and
    /// there is room. Returns `None` in the second case, and if the region was reused.
    pub(super) fn read_record(
        &self,
        address: u64,
        life: u64,
        key: &[u8],
    ) -> Result<Option<PrefetchedRecord>> {
        let (region, _) = self.regions.split(address);
        if self.regions.is_resident(region)
            || self.wants_load(address) && self.load_region(region)?
        {
            return Ok(None);
        }
        let Some(cold) = self.read_cold(address, life)? else { return Ok(None) };
        let Some(record) = cold.record() else { return Ok(None) };
        Ok(Some(PrefetchedRecord::of(address, life, &record, key)))
    }
}
