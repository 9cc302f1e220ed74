//! What admitted writes read from the disk, until they are applied or cancelled.
//!
//! A write reads the current record of its key before it is logged, if the record is not in memory.
//! Applying the write then needs no disk, which may fail.
//!
//! Locks: one mutex. A table that reads nothing ahead only loads a counter.

use std::collections::BTreeMap;

use crate::util::sync::{AtomicU64, Mutex, Ordering, lock};

/// Records read ahead, by the hash of their key. Each admitted write has a list.
#[derive(Debug)]
pub(crate) struct ReadAhead<T> {
    count: AtomicU64,
    by_hash: Mutex<BTreeMap<u64, Vec<Vec<T>>>>,
}

impl<T> Default for ReadAhead<T> {
    fn default() -> Self {
        Self { count: AtomicU64::new(0), by_hash: Mutex::default() }
    }
}

impl<T> ReadAhead<T> {
    /// Keeps the records that a write of `hash` will need. An empty list is dropped.
    pub(crate) fn add(&self, hash: u64, records: Vec<T>) {
        if !records.is_empty() {
            lock(&self.by_hash).entry(hash).or_default().push(records);
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    /// Removes and returns the records that were read ahead for a write of `hash`.
    #[inline]
    pub(crate) fn remove(&self, hash: u64) -> Vec<T> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        self.remove_locked(hash)
    }

    /// Returns whether nothing is kept, which a concurrent write may change.
    #[inline]
    pub(crate) fn is_unused(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns whether nothing is kept.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0 && lock(&self.by_hash).is_empty()
    }

    fn remove_locked(&self, hash: u64) -> Vec<T> {
        let mut by_hash = lock(&self.by_hash);
        let Some(of_hash) = by_hash.get_mut(&hash) else { return Vec::new() };
        let records = of_hash.pop().unwrap_or_default();
        self.count.fetch_sub(1, Ordering::Relaxed);
        if of_hash.is_empty() {
            by_hash.remove(&hash);
        }
        records
    }
}
