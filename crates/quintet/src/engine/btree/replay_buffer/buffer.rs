//! The buffer: its shards, and the memory that they use.

use std::{ops::Bound, sync::Arc};

use super::{
    key::ReplayKey,
    shard::{BufferShard, ChunkPool},
};
use crate::util::{
    budget::Budget,
    codec::{KeyHash, to_u64, to_usize},
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock},
};

/// Number of shards: few, because a scan reads each; enough that replay's threads rarely share one.
const SHARDS: usize = 32;
/// Memory for partly filled chunks, in bytes.
const CHUNK_SLACK_BYTES: u64 = 16 << 20;
/// Entries take at most the budget divided by this.
pub(crate) const BUDGET_SHARE: u64 = 8;
/// Flag in the count of non-empty shards: the log is being replayed.
const REPLAYING: u64 = 1 << 63;

/// The replay buffer. See the module documentation.
#[derive(Debug)]
pub(crate) struct BTreeReplayBuffer {
    /// Number of shards with entries, and the flag [`REPLAYING`].
    state: AtomicU64,
    bytes: AtomicU64,
    shards: Box<[Mutex<BufferShard>]>,
    pub(crate) pool: ChunkPool,
    pub(crate) hash: KeyHash,
    pub(crate) budget: Arc<Budget>,
}

/// The end of a range that a search begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeEnd {
    First,
    Last,
}

impl BTreeReplayBuffer {
    /// Returns an empty buffer. `takes_replay`: operations applied before the first write is
    /// admitted go here.
    pub(crate) fn new(hash: KeyHash, budget: Arc<Budget>, takes_replay: bool) -> Self {
        // Partly filled chunks count too.
        let room = budget.limit() / BUDGET_SHARE + CHUNK_SLACK_BYTES;
        let pool = if takes_replay { ChunkPool::reserve(room) } else { ChunkPool::default() };
        Self {
            state: AtomicU64::new(if takes_replay { REPLAYING } else { 0 }),
            bytes: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pool,
            hash,
            budget,
        }
    }

    /// Whether there are entries, or replay may add some.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & !REPLAYING == 0
    }

    pub(crate) fn is_replaying(&self) -> bool {
        self.state.load(Ordering::Relaxed) & REPLAYING != 0
    }

    /// Ends replay: called when the first operation is admitted, or at a checkpoint.
    pub(crate) fn end_replay(&self) {
        self.state.fetch_and(!REPLAYING, Ordering::Relaxed);
    }

    /// Returns the number of keys that have an entry.
    pub(crate) fn len(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.shards.iter().map(|shard| to_u64(lock(shard).len())).sum()
    }

    /// Returns the number of bytes reserved from the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn shard(&self, hash: u64) -> MutexGuard<'_, BufferShard> {
        lock(self.shards.get(to_usize(hash) % SHARDS).unwrap_or(&self.shards[0]))
    }

    /// Changes a shard, and updates the budget and the counts.
    pub(crate) fn change<T>(
        &self,
        shard: &mut BufferShard,
        change: impl FnOnce(&mut BufferShard) -> T,
    ) -> T {
        let (bytes, was_empty) = (shard.memory_bytes(), shard.is_empty());
        let done = change(shard);
        let after = shard.memory_bytes();
        if after > bytes {
            self.budget.reserve_unchecked(after - bytes);
            self.bytes.fetch_add(after - bytes, Ordering::Relaxed);
        } else if after < bytes {
            self.budget.release(bytes - after);
            self.bytes.fetch_sub(bytes - after, Ordering::Relaxed);
        }
        match (was_empty, shard.is_empty()) {
            (true, false) => _ = self.state.fetch_add(1, Ordering::Release),
            (false, true) => _ = self.state.fetch_sub(1, Ordering::Release),
            _ => {}
        }
        done
    }

    /// Prefetches what replay of an operation on a key reads first.
    pub(crate) fn prefetch(&self, key: &[u8]) {
        if self.is_replaying() {
            let hash = self.hash.hash(key);
            self.shard(hash).prefetch(hash);
        }
    }

    /// Passes the content of a key's entry to `read`; returns `None` if there is none.
    pub(crate) fn find<T>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> Option<T> {
        let hash = self.hash.hash(key);
        self.shard(hash).find(&self.pool, (hash, key), read)
    }

    /// Returns the first or the last key in a range.
    pub(crate) fn edge_key(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        which: RangeEnd,
    ) -> Option<Box<[u8]>> {
        let mut edge_key: Option<Box<[u8]>> = None;
        for shard in &self.shards {
            let mut shard = lock(shard);
            let mut keys = self.keys_in(&mut shard, range);
            let key = if which == RangeEnd::First { keys.next() } else { keys.next_back() };
            let is_nearer = |key: &&[u8]| match (&edge_key, which) {
                (None, _) => true,
                (Some(edge_key), RangeEnd::First) => **key < **edge_key,
                (Some(edge_key), RangeEnd::Last) => **key > **edge_key,
            };
            if let Some(key) = key.filter(is_nearer) {
                edge_key = Some(key.into());
            }
        }
        edge_key
    }

    /// Returns `count` of each shard's first or last keys in a range, sorted.
    pub(crate) fn edge_keys(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        (which, count): (RangeEnd, usize),
    ) -> Vec<Box<[u8]>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let keys = self.keys_in(&mut shard, range);
            let add = |key: &[u8]| found.push(key.into());
            match which {
                RangeEnd::First => keys.take(count).for_each(add),
                RangeEnd::Last => keys.rev().take(count).for_each(add),
            }
        }
        found.sort_unstable();
        found
    }

    fn keys_in<'p>(
        &self,
        shard: &'p mut BufferShard,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = &'p [u8]> + use<'p> {
        self.change(shard, |shard| _ = shard.key_order(&self.pool));
        // The ordered map panics on an empty range.
        let is_empty = match range {
            (Bound::Included(start), Bound::Excluded(end)) => start >= end,
            _ => false,
        };
        let range = (range.0.map(ReplayKey::from), range.1.map(ReplayKey::from));
        let keys = (!is_empty)
            .then(|| shard.key_order(&self.pool).range(range).map(|(key, _)| &*key.bytes));
        keys.into_iter().flatten()
    }
}
