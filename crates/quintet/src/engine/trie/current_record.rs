//! The current record of a key, as a writer finds it: in memory, or read from the disk ahead of
//! the write.

use super::record::{DiskRecord, ExtentAddr, TrieRecordHead};
use crate::engine::trie::index::WordPosition;

/// The current record of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentRecord {
    pub(super) address: u64,
    pub(super) head: TrieRecordHead,
    pub(super) extent: Option<ExtentAddr>,
    pub(super) in_memory: bool,
}

/// A record that was read from disk ahead of a write.
#[derive(Debug)]
pub(super) struct PrefetchedRecord {
    pub(super) address: u64,
    pub(super) life: u64,
    /// The record, or `None` if it is another key's.
    pub(super) current: Option<CurrentRecord>,
}

impl CurrentRecord {
    /// A record that is not in memory.
    pub(super) fn on_disk(address: u64, head: TrieRecordHead, extent: Option<ExtentAddr>) -> Self {
        Self { address, head, extent, in_memory: false }
    }
}

impl PrefetchedRecord {
    /// Compares a record from disk with a key.
    pub(super) fn of(address: u64, life: u64, record: &DiskRecord<'_>, key: &[u8]) -> Self {
        let head = record.head;
        let extent = ExtentAddr::decode(record.value()).filter(|_| head.is_extent);
        let current = CurrentRecord { address, head, extent, in_memory: false };
        Self { address, life, current: (record.key() == key).then_some(current) }
    }

    pub(super) fn current(&self) -> Option<CurrentRecord> {
        self.current
    }
}

/// The result of a writer's search.
pub(super) enum WriterMatch {
    /// The key's record, and the position of its word.
    Current(CurrentRecord, WordPosition),
    /// A record that has to be read first, without the lock: address and life of its region.
    Unknown(u64, u64),
}

/// Finds the record that was read at an address in a life of its region.
pub(super) fn find_prefetched(
    prefetched: &[PrefetchedRecord],
    address: u64,
    life: u64,
) -> Option<&PrefetchedRecord> {
    prefetched.iter().find(|prefetched| (prefetched.address, prefetched.life) == (address, life))
}
