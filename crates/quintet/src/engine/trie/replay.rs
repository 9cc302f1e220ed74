//! Replay: operations of the log enter the regions and the [replay buffer](super::replay_buffer),
//! and from there the trie.

use super::{
    current_record::{CurrentRecord, PrefetchedRecord, WriterMatch},
    lookup::{ColdRecord, RecordValue, ReplayBufferAnswer, answer_in},
    record::{ExtentAddr, TrieRecordHead},
    replay_buffer::{DELETED, entry_bytes},
    table::Trie,
};
use crate::{
    Result,
    contract::Op,
    engine::trie::{
        index::{KeyPath, RecordVerdict},
        store::regions::RegionRead,
    },
    util::sync::{AtomicU64, Ordering, lock, yield_now},
};

/// Keys whose old records are read at the same time.
const MERGED_AT_ONCE: usize = 64;

impl Trie {
    /// The answer of a key's entry, or `None` if it has none. `on_value` receives the value.
    #[cold]
    pub(super) fn buffered_answer(
        &self,
        KeyPath { hash, key }: KeyPath<'_>,
        on_value: &mut impl FnMut(&TrieRecordHead, &[AtomicU64]),
    ) -> Option<ReplayBufferAnswer> {
        loop {
            let version = self.index.version(hash);
            let address = self.replay_buffer.find(key, hash)?;
            let answer =
                match self.regions.read_in_memory(address, |words| answer_in(words, key, on_value))
                {
                    _ if address == DELETED => Some(ReplayBufferAnswer::Deleted),
                    RegionRead::Found(seen) => seen.answer().map(ReplayBufferAnswer::Record),
                    RegionRead::Cold(life) => {
                        Some(ReplayBufferAnswer::Record(RecordValue::OnDisk(address, life)))
                    }
                    RegionRead::Changed => None,
                };
            if let Some(answer) = answer
                && self.index.is_version(hash, version)
            {
                return Some(answer);
            }
            yield_now();
        }
    }

    /// Applies an operation of the log that the table's files lack, to the regions and the buffer.
    pub(super) fn replay_op(&self, op: &Op<'_>) -> Result<()> {
        self.ensure_room_in_replay(op)?;
        match op {
            Op::Put { key, head, body } => {
                let (record, extent) = self.prepare_record(key, [head, body]);
                match &extent {
                    None => self.replay_put(record, key, [head, body]),
                    Some(extent) => self.replay_put(record, key, [extent, &[]]),
                }
            }
            Op::Delete { key } => {
                let path = self.path(key);
                let _writer = self.index.lock(path);
                let old = self.replay_buffer.find(key, path.hash).unwrap_or(DELETED);
                self.count_buffered_dead(old, key)?;
                self.set_entry(path, DELETED);
                Ok(())
            }
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    fn replay_put(&self, head: TrieRecordHead, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let path = self.path(key);
        let new_bytes = head.stored_bytes(|| ExtentAddr::decode(value[0]));
        let _writer = self.index.lock(path);
        let old = self.replay_buffer.find(key, path.hash).unwrap_or(DELETED);
        if let Some(current) = self.buffered_record(old, key)?
            && self.update_in_place(&current, &head, key, value)
        {
            return Ok(());
        }
        let address = self.append(&head, key, value)?;
        self.count_buffered_dead(old, key)?;
        self.counters.live_bytes.fetch_add(new_bytes, Ordering::Relaxed);
        self.set_entry(path, address);
        Ok(())
    }

    fn set_entry(&self, KeyPath { hash, key }: KeyPath<'_>, address: u64) {
        let Some(partition) = self.replay_buffer.partition(hash) else { return };
        let mut partition = lock(partition);
        if let Some(entry) = partition.get_mut(key) {
            *entry = address;
            return;
        }
        partition.insert(key.into(), address);
        let bytes = entry_bytes(key);
        self.context.budget.reserve_unchecked(bytes);
        self.replay_buffer.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.replay_buffer.count.fetch_add(1, Ordering::Release);
    }

    /// The record of an entry whose subtree is locked.
    fn buffered_record(&self, address: u64, key: &[u8]) -> Result<Option<CurrentRecord>> {
        if address == DELETED {
            return Ok(None);
        }
        if let RegionRead::Found(current) = self.match_in_memory(address, key) {
            return Ok(current);
        }
        let life = self.regions.life(self.regions.split(address).0);
        match self.read_record(address, life, key)? {
            Some(prefetched) => Ok(prefetched.current()),
            // `read_record` loaded its region.
            None => match self.match_in_memory(address, key) {
                RegionRead::Found(current) => Ok(current),
                RegionRead::Changed | RegionRead::Cold(_) => Ok(None),
            },
        }
    }

    /// Counts the record of an entry as dead.
    fn count_buffered_dead(&self, address: u64, key: &[u8]) -> Result<()> {
        if let Some(current) = self.buffered_record(address, key)? {
            self.count_dead(&current, 0);
        }
        Ok(())
    }

    /// Merges the entry of a key into the trie, if it has one. The caller has no subtree locked.
    pub(super) fn merge_key(&self, key: &[u8]) -> Result<()> {
        let path = self.path(key);
        if self.replay_buffer.find(key, path.hash).is_some() {
            self.merge(path, Vec::new())
        } else {
            Ok(())
        }
    }

    /// Merges the entry of a key. `prefetched` are records that were read from disk for it.
    fn merge(&self, path: KeyPath<'_>, mut prefetched: Vec<PrefetchedRecord>) -> Result<()> {
        let KeyPath { hash, key } = path;
        let (mut retries, mut is_overfull) = (0, false);
        let mut writer = self.index.lock(path);
        while let Some(entry) = self.replay_buffer.find(key, hash) {
            match self.find_current(&writer, key, &prefetched)? {
                Some(WriterMatch::Unknown(address, life)) => {
                    drop(writer);
                    self.count_retry(address, &mut retries)?;
                    prefetched.extend(self.read_record(address, life, key)?);
                    writer = self.index.lock(path);
                    continue;
                }
                Some(WriterMatch::Current(old, position)) => {
                    if entry == DELETED {
                        writer.remove(old.address)?;
                    } else {
                        writer.exchange(position, entry);
                    }
                    self.count_dead(&old, 0);
                }
                None if entry != DELETED => is_overfull = writer.insert(entry)?,
                None => {}
            }
            if let Some(partition) = self.replay_buffer.partition(hash)
                && lock(partition).remove(key).is_some()
            {
                let bytes = entry_bytes(key);
                self.context.budget.release(bytes);
                self.replay_buffer.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.replay_buffer.count.fetch_sub(1, Ordering::Release);
            }
        }
        if is_overfull {
            self.switch_list(writer, path);
        }
        Ok(())
    }

    /// Ends replay and merges all entries into the trie. The caller has no subtree locked.
    pub(super) fn merge_all(&self) -> Result<()> {
        self.replay_buffer.end_replay();
        for partition in &self.replay_buffer.partitions {
            while !self.replay_buffer.is_empty() {
                let keys: Vec<Box<[u8]>> =
                    lock(partition).keys().take(MERGED_AT_ONCE).cloned().collect();
                if keys.is_empty() {
                    break;
                }
                self.merge_keys(&keys)?;
                self.enforce_budget(0);
            }
        }
        Ok(())
    }

    /// Reads the old records of these keys at the same time, and merges their entries.
    fn merge_keys(&self, keys: &[Box<[u8]>]) -> Result<()> {
        let mut cold = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let look = |address| match self.regions.read_in_memory(address, |_| Some(())) {
                RegionRead::Found(()) => RecordVerdict::Other,
                RegionRead::Changed => RecordVerdict::Changed,
                RegionRead::Cold(life) => RecordVerdict::Found((address, life)),
            };
            let found = self.index.find(self.path(key), look, |at| self.load_index(at))?;
            if let Some((address, life)) = found
                && !self.wants_load(address)
            {
                cold.push((index, address, life));
            }
        }
        let mut prefetched: Vec<Vec<PrefetchedRecord>> = keys.iter().map(|_| Vec::new()).collect();
        self.read_cold_records(&cold, |(index, address, life), record| {
            let record = record.as_ref().and_then(ColdRecord::record);
            if let (Some(record), Some(key), Some(prefetched)) =
                (record, keys.get(index), prefetched.get_mut(index))
            {
                prefetched.push(PrefetchedRecord::of(address, life, &record, key));
            }
            Ok(())
        })?;
        for (key, prefetched) in keys.iter().zip(prefetched) {
            self.merge(self.path(key), prefetched)?;
        }
        Ok(())
    }
}
