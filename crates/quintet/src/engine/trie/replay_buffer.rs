//! Replay buffer: operations recovered from the log whose records are in regions and not yet in the
//! trie.
//!
//! Problem: to insert a record in the trie, replay would have to read the path of its key and the
//! record that it replaces. A reopened table has both on disk only: two or three reads for each
//! operation before the table could serve. CedrusDB replays a log of page writes and needs neither;
//! our log is of operations.
//!
//! How: replayed operations append their records to regions like any other. An ordered table of
//! keys, partitioned by hash, holds their addresses. The entries are merged into the trie, under
//! one subtree lock each, before the table is checkpointed, scanned or checked. The entry of a
//! single key is merged before the key is next written.
//!
//! Invariants:
//! - While a key has an entry, its record in the trie is outdated. Readers look at the entry first.
//!   It is removed after the trie has its record, with the key's subtree locked.
//! - No checkpoint is made while there are entries: regions would count records as live that no
//!   word of the trie names.
//!
//! Thread rules: any thread. A reader locks a partition, and compares the version of the key's
//! subtree before and after, because a record may be changed in place once its entry is removed.
//! Without entries a reader only loads a counter. Lock order: a subtree, then a partition.

use std::collections::BTreeMap;

use crate::util::{
    codec::{to_u64, to_usize},
    sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
};

/// Partitions of the table: enough that the threads of replay rarely contend.
const PARTITIONS: u64 = 64;
/// Bytes of memory that an entry takes beside its key.
const ENTRY_BYTES: u64 = 80;
/// The address in the entry of a deleted key.
pub(super) const DELETED: u64 = 0;

/// Addresses by key.
pub(super) type Partition = BTreeMap<Box<[u8]>, u64>;

/// The replay buffer of a table. See the module documentation.
#[derive(Debug)]
pub(super) struct TrieReplayBuffer {
    /// The log is being replayed: no operation has been admitted yet.
    pub(super) is_replaying: AtomicBool,
    pub(super) count: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) partitions: Box<[Mutex<Partition>]>,
}

impl TrieReplayBuffer {
    /// An empty buffer. With `is_replaying`, operations are buffered until [`Self::end_replay`].
    pub(super) fn new(is_replaying: bool) -> Self {
        Self {
            is_replaying: AtomicBool::new(is_replaying),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns whether operations go to the buffer.
    #[inline]
    pub(super) fn is_replaying(&self) -> bool {
        self.is_replaying.load(Ordering::Relaxed)
    }

    /// Ends replay: the first operation is admitted, or the table checkpointed.
    pub(super) fn end_replay(&self) {
        if self.is_replaying() {
            self.is_replaying.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether no key has an entry.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Bytes reserved from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn partition(&self, hash: u64) -> Option<&Mutex<Partition>> {
        self.partitions.get(to_usize(hash % PARTITIONS))
    }

    /// The address in the entry of a key.
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        lock(self.partition(hash)?).get(key).copied()
    }
}

/// Bytes that an entry reserves.
pub(super) fn entry_bytes(key: &[u8]) -> u64 {
    to_u64(key.len()) + ENTRY_BYTES
}
