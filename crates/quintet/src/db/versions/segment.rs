//! A segment of the version store: versions of keys of all tables, in a skip list.
//!
//! The number of a version in the list is the LSN of the write that replaced it. For one key, the
//! version replaced later comes first.
//!
//! Invariants:
//! - `last` covers a version before the list has it.
//! - A segment releases its memory to the budget when it is dropped.

use std::{io, sync::Arc};

use crate::{
    contract::Value,
    lsm::memtable::{
        arenas::{Arenas, MemtableRegion},
        skiplist::{InsertOutcome, KeyVersion, Node, SkipList},
    },
    util::{
        budget::Budget,
        codec::{Lsn, low_u32, to_u64},
        sync::{AtomicU64, Ordering},
        words::copy_out,
    },
};

use super::version_key::{VersionKey, hash_of_half};

/// The kinds of versions in the list.
const VALUE: u8 = 0;
const ABSENT: u8 = 1;

/// A segment. See the module head.
#[derive(Debug)]
pub(super) struct VersionSegment {
    list: SkipList<MemtableRegion>,
    arenas: Arc<Arenas>,
    budget: Arc<Budget>,
    /// Bytes reserved in the budget for versions.
    charged: AtomicU64,
    /// Number of versions.
    versions: AtomicU64,
    /// The highest LSN at which a version of the segment was replaced.
    last: AtomicU64,
    /// The end of the log after the segment was sealed. 0: it is the last of the list.
    sealed_at: AtomicU64,
}

/// Bytes of a node besides key and value: four words, and on average 4/3 links.
const NODE_BYTES: u64 = 43;

/// Returns the bytes of the budget that a version takes.
pub(super) fn version_bytes(key: &VersionKey, value: Option<&[u8]>) -> u64 {
    let words = |bytes: usize| to_u64(bytes.next_multiple_of(8));
    NODE_BYTES + words(key.bytes.len()) + words(value.map_or(0, <[u8]>::len))
}

impl VersionSegment {
    /// Creates an empty segment. Fails if the system has no address space.
    pub(super) fn new(arenas: &Arc<Arenas>, budget: &Arc<Budget>) -> io::Result<Self> {
        let (nodes, buckets) = arenas.acquire()?;
        budget.reserve_unchecked(arenas.buckets_bytes());
        Ok(Self {
            list: SkipList::new(nodes, buckets),
            arenas: Arc::clone(arenas),
            budget: Arc::clone(budget),
            charged: AtomicU64::new(0),
            versions: AtomicU64::new(0),
            last: AtomicU64::new(0),
            sealed_at: AtomicU64::new(0),
        })
    }

    /// Adds the value, or its absence, that the write at `lsn` replaces. The caller has reserved
    /// [`version_bytes`] in the budget. Returns `false` if the segment has no room.
    pub(super) fn insert(&self, key: &VersionKey, lsn: Lsn, value: Option<&[u8]>) -> bool {
        let version = KeyVersion {
            key: &key.bytes,
            hash: key.hash,
            number: lsn.0,
            kind: if value.is_some() { VALUE } else { ABSENT },
            ssts: [value.unwrap_or(&[]), &[]],
        };
        let bytes = version_bytes(key, value);
        // A value larger than a segment gets one of its own.
        if !self.list.is_empty() && self.charged() + bytes > self.arenas.capacity() {
            return false;
        }
        self.last.fetch_max(lsn.0, Ordering::AcqRel);
        if self.list.insert(&version) == InsertOutcome::Full {
            return false;
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        self.versions.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Returns the bytes that it takes from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.charged() + self.arenas.buckets_bytes()
    }

    /// Returns the number of its versions.
    pub(super) fn versions(&self) -> u64 {
        self.versions.load(Ordering::Relaxed)
    }

    /// Returns whether it is more than half full.
    pub(super) fn is_half_full(&self) -> bool {
        self.charged() > self.arenas.capacity() / 2
    }

    /// Returns whether a version in it was replaced at `lsn` or later.
    #[inline]
    pub(super) fn reaches(&self, lsn: Lsn) -> bool {
        self.last.load(Ordering::Acquire) >= lsn.0
    }

    /// Notes that no writer that begins at or after `end` adds to it.
    pub(super) fn seal(&self, end: Lsn) {
        self.sealed_at.store(end.0.max(1), Ordering::Release);
    }

    /// Returns whether all writers that may add to it have applied their writes.
    pub(super) fn is_complete(&self, applied: Lsn) -> bool {
        let sealed_at = self.sealed_at.load(Ordering::Acquire);
        sealed_at != 0 && sealed_at <= applied.0
    }

    /// Returns whether the key has a version that was replaced at `lsn` or later.
    pub(super) fn has_since(&self, key: &VersionKey, lsn: Lsn) -> bool {
        let newest = self.list.get(&key.bytes, key.hash);
        newest.is_some_and(|node| self.list.version(node) >= lsn.0)
    }

    /// Returns the oldest version of the key that was replaced at `lsn` or later: the LSN of the
    /// write that replaced it, and the value, if there was one.
    pub(super) fn oldest_since(&self, key: &VersionKey, lsn: Lsn) -> Option<(Lsn, Option<Value>)> {
        let node = self.list.get_oldest_from(&key.bytes, key.hash, lsn.0)?;
        Some((Lsn(self.list.version(node)), self.value(node)))
    }

    /// Appends the versions of an encoded key that were replaced at `lsn` or later, the oldest
    /// first. Returns the high half of the key's hash, if it has a version.
    pub(super) fn versions_since(
        &self,
        key: &[u8],
        lsn: Lsn,
        out: &mut Vec<(Lsn, Option<Value>)>,
    ) -> Option<u32> {
        let node = self.list.seek(key)?;
        let mut same = Vec::new();
        self.list.copy_key(node, &mut same);
        if *same != *key {
            return None;
        }
        let half = low_u32(self.list.hash_half(node));
        let first = out.len();
        let versions = self.list.versions_from(key, hash_of_half(half), lsn.0);
        out.extend(versions.map(|node| (Lsn(self.list.version(node)), self.value(node))));
        if let Some(added) = out.get_mut(first..) {
            added.reverse();
        }
        Some(half)
    }

    fn value(&self, node: Node) -> Option<Value> {
        if self.list.kind(node) == ABSENT {
            return None;
        }
        let (words, bytes) = self.list.value(node);
        Some(Value::fill_with(bytes, |out| copy_out(words, 0, out)))
    }

    /// Copies the first encoded key that is not below `start` to `out`. Returns whether there is
    /// one.
    pub(super) fn first_key(&self, start: &[u8], out: &mut Vec<u8>) -> bool {
        self.list.seek(start).map(|node| self.list.copy_key(node, out)).is_some()
    }

    /// Copies the last encoded key below `end` to `out`. Returns whether there is one.
    pub(super) fn last_key(&self, end: &[u8], out: &mut Vec<u8>) -> bool {
        self.list.seek_before(Some(end)).map(|node| self.list.copy_key(node, out)).is_some()
    }
}

impl Drop for VersionSegment {
    fn drop(&mut self) {
        self.budget.release(self.memory_bytes());
        let used_bytes = self.list.used_words() * 8;
        let [nodes, buckets] = self.list.arenas_mut();
        self.arenas.release(nodes, buckets, used_bytes);
    }
}
