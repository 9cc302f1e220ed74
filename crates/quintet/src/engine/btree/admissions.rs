//! What was found when a write was admitted, for when it is applied.
//!
//! What: for each admitted put or delete its leaf, which is kept in the cache meanwhile.
//! Why: what is logged must not fail because the disk does; and the way down is gone once.
//!
//! Invariants: an entry is taken by the apply or the retract of its key, first in, first out; so
//! each leaf is let go of once. A leaf is handed over as the key's own only if it is the whole key
//! that agrees.
//!
//! Thread rules: any thread; a shard's lock is held for a few stores.

use std::collections::VecDeque;

use crate::{
    bptree::{checkpoint::gate::mixed, page_cache::Kept},
    util::{
        codec::{to_u64, to_usize},
        sync::{Mutex, lock},
    },
};

/// Writers of different keys rarely meet.
const SHARDS: usize = if cfg!(model) { 1 } else { 16 };
/// Longer keys are known by their first bytes: of them the leaf is kept, but searched again.
const KEY_BYTES: usize = 40;

#[derive(Debug)]
struct Admission {
    /// The key's bytes, as far as there is room.
    key: [u8; KEY_BYTES],
    length: usize,
    kept: Kept,
}

impl Admission {
    fn new(key: &[u8], kept: Kept) -> Self {
        let mut bytes = [0; KEY_BYTES];
        for (to, from) in bytes.iter_mut().zip(key) {
            *to = *from;
        }
        Self { key: bytes, length: key.len(), kept }
    }

    fn is_of(&self, key: &[u8]) -> bool {
        let count = key.len().min(KEY_BYTES);
        self.length == key.len() && self.key.get(..count) == key.get(..count)
    }
}

#[derive(Debug, Default)]
struct Waiting {
    kept: VecDeque<Admission>,
    /// Writes whose leaf is not kept.
    others: usize,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Waiting>);

/// See the module head.
#[derive(Debug)]
pub(super) struct Admissions {
    shards: Box<[Shard]>,
}

/// A leaf that was found for a key.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) kept: Kept,
    /// The leaf is the key's, if it is as it was.
    pub(super) is_sure: bool,
}

impl Admissions {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Waiting> {
        let index = to_usize(mixed(key)) % SHARDS;
        &self.shards.get(index).unwrap_or(&self.shards[0]).0
    }

    /// About how many writes are admitted and not applied, and how many of their leaves are kept:
    /// as where this key's are.
    pub(super) fn pending(&self, key: &[u8]) -> (u64, u64) {
        let waiting = lock(self.shard(key));
        let kept = to_u64(waiting.kept.len() * SHARDS);
        (kept + to_u64(waiting.others * SHARDS), kept)
    }

    /// Notes an admitted write, with its leaf if that is kept.
    pub(super) fn add(&self, key: &[u8], kept: Option<Kept>) {
        let mut waiting = lock(self.shard(key));
        match kept {
            Some(kept) => waiting.kept.push_back(Admission::new(key, kept)),
            None => waiting.others += 1,
        }
    }

    /// The leaf that was noted first for this key.
    pub(super) fn take(&self, key: &[u8]) -> Option<Admitted> {
        let mut waiting = lock(self.shard(key));
        let Some(index) = waiting.kept.iter().position(|admission| admission.is_of(key)) else {
            // In replay nothing is admitted.
            waiting.others = waiting.others.saturating_sub(1);
            return None;
        };
        let admission = waiting.kept.remove(index)?;
        Some(Admitted { kept: admission.kept, is_sure: admission.length <= KEY_BYTES })
    }

    /// Leaves that are kept.
    #[cfg(test)]
    #[cfg(not(model))]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).kept.len()).sum()
    }
}
