//! The state of a table, shared with its iterators and loads.

use super::{admissions::Admissions, replay_buffer::BTreeReplayBuffer};
use crate::{
    Result,
    bptree::{
        checkpoint::PagedTree,
        scan_forward::{EntryRun, ForwardScan},
    },
    contract::{Entry, Value},
    util::sync::{AtomicBool, AtomicU64, Ordering},
};

/// Number of leaves that a step of a scan reads ahead from disk.
pub(super) const SCAN_AHEAD: isize = 8;

/// The state shared with iterators.
#[derive(Debug)]
pub(super) struct BTreeState {
    pub(super) paged: PagedTree,
    pub(super) admissions: Admissions,
    /// Operations recovered from the log that are not in the tree yet.
    pub(super) replay_buffer: BTreeReplayBuffer,
    /// Whether a checkpoint was requested from the background thread.
    pub(super) is_checkpoint_requested: AtomicBool,
    /// Whether another table wants memory that only a checkpoint and a write-back release.
    pub(super) is_memory_wanted: AtomicBool,
    /// Whether writers have met leaves that were not in the cache.
    pub(super) is_cold: AtomicBool,
    /// Misses of the cache when gets were last announced; `u64::MAX` if their leaves were missing.
    pub(super) misses_seen: AtomicU64,
}

impl BTreeState {
    pub(super) fn wake_if_due(&self) {
        if self.paged.is_checkpoint_due()
            && !self.is_checkpoint_requested.swap(true, Ordering::Relaxed)
        {
            self.paged.context.host.wake();
        }
    }

    /// Loads the leaves of keys that gets will read soon, unless no leaf was missing since the last
    /// call. A search for leaves costs as much as a get, so a table in memory is not searched.
    pub(super) fn load_leaves_for_gets(&self, keys: &[&[u8]]) {
        let misses = self.paged.tree.cache().misses();
        if self.misses_seen.swap(misses, Ordering::Relaxed) != misses
            && self.paged.tree.load_leaves(keys.iter().copied())
        {
            self.misses_seen.store(u64::MAX, Ordering::Relaxed);
        }
    }

    pub(super) fn scan_from(
        &self,
        start: &[u8],
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
        let mut entries = Vec::new();
        let (mut scan, mut run) = (ForwardScan::new(start.to_vec(), None), EntryRun::default());
        while entries.len() < limit && !scan.is_over {
            self.scan_forward(&mut scan, (limit - entries.len(), SCAN_AHEAD), &mut run)?;
            entries.extend((0..run.len()).filter_map(|index| run.entry(index)).map(entry_of));
        }
        Ok((entries, (!scan.is_over).then_some(scan.start)))
    }
}

impl Drop for BTreeState {
    fn drop(&mut self) {
        self.paged.context.budget.release(self.replay_buffer.memory_bytes());
    }
}

/// Returns a value copied out of the tree.
pub(super) fn make_value(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Value {
    Value::fill_with(length, fill)
}

/// Returns an entry copied out of the tree.
pub(super) fn entry_of((key, stored): (&[u8], &[u8])) -> Entry {
    let value = Value::fill_with(stored.len(), |value| value.copy_from_slice(stored));
    Entry { key: key.to_vec(), value }
}

/// Returns an entry of a key and a value.
pub(super) fn make_entry(key: Vec<u8>, value: Value) -> Entry {
    Entry { key, value }
}
