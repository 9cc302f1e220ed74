//! Admissions: for each admitted put or delete, its pinned leaf until the write is applied.
//!
//! Why: a logged write must not fail because of a disk read, and its descent is done only once.
//!
//! Invariants: apply or cancel of a key takes one entry, first in, first out, so each leaf is
//! unpinned once. A leaf is used without a new search only if the whole key agrees.
//!
//! Threads: any thread; a shard's lock is held for a few stores.

use std::collections::VecDeque;

use crate::{
    bptree::{checkpoint::gate::key_hash, page_cache::PagePin},
    util::{
        codec::{to_u64, to_usize},
        sync::{Mutex, lock},
    },
};

/// Number of shards: writers of different keys rarely share one.
const SHARDS: usize = if cfg!(model) { 1 } else { 16 };
/// Number of key bytes stored. Longer keys are matched by their first bytes; their leaf is pinned
/// and searched again.
const KEY_BYTES: usize = 40;

#[derive(Debug)]
struct Admission {
    /// The first bytes of the key.
    key: [u8; KEY_BYTES],
    length: usize,
    pin: PagePin,
}

impl Admission {
    fn new(key: &[u8], pin: PagePin) -> Self {
        let mut bytes = [0; KEY_BYTES];
        for (to, from) in bytes.iter_mut().zip(key) {
            *to = *from;
        }
        Self { key: bytes, length: key.len(), pin }
    }

    fn is_of(&self, key: &[u8]) -> bool {
        let count = key.len().min(KEY_BYTES);
        self.length == key.len() && self.key.get(..count) == key.get(..count)
    }
}

#[derive(Debug, Default)]
struct AdmissionQueue {
    pins: VecDeque<Admission>,
    /// Number of admitted writes whose leaf is not pinned.
    unpinned_count: usize,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct AdmissionShard(Mutex<AdmissionQueue>);

/// The admitted writes. See the module documentation.
#[derive(Debug)]
pub(super) struct Admissions {
    shards: Box<[AdmissionShard]>,
}

/// The pinned leaf of an admitted write.
#[derive(Debug)]
pub(super) struct AdmittedLeaf {
    pub(super) pin: PagePin,
    /// Whether the leaf is certainly the key's, as long as it is unchanged.
    pub(super) is_exact: bool,
}

impl Admissions {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| AdmissionShard::default()).collect() }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<AdmissionQueue> {
        let index = to_usize(key_hash(key)) % SHARDS;
        &self.shards.get(index).unwrap_or(&self.shards[0]).0
    }

    /// Estimates from this key's shard how many writes are admitted and not applied, and how many
    /// leaves are pinned.
    pub(super) fn pending(&self, key: &[u8]) -> (u64, u64) {
        let queue = lock(self.shard(key));
        let pinned_count = to_u64(queue.pins.len() * SHARDS);
        (pinned_count + to_u64(queue.unpinned_count * SHARDS), pinned_count)
    }

    /// Records an admitted write, with its leaf if that is pinned.
    pub(super) fn add(&self, key: &[u8], pin: Option<PagePin>) {
        let mut queue = lock(self.shard(key));
        match pin {
            Some(pin) => queue.pins.push_back(Admission::new(key, pin)),
            None => queue.unpinned_count += 1,
        }
    }

    /// Removes and returns the oldest leaf recorded for this key.
    pub(super) fn take(&self, key: &[u8]) -> Option<AdmittedLeaf> {
        let mut queue = lock(self.shard(key));
        let Some(index) = queue.pins.iter().position(|admission| admission.is_of(key)) else {
            // Replayed operations are not admitted.
            queue.unpinned_count = queue.unpinned_count.saturating_sub(1);
            return None;
        };
        let admission = queue.pins.remove(index)?;
        Some(AdmittedLeaf { pin: admission.pin, is_exact: admission.length <= KEY_BYTES })
    }

    /// Returns the number of pinned leaves.
    #[cfg(test)]
    #[cfg(not(model))]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).pins.len()).sum()
    }
}
