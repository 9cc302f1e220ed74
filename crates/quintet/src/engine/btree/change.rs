//! Writes: from their admission to the leaf.
//!
//! A put or a delete is admitted with its leaf in the cache, where it stays until it is applied
//! ([`super::admissions`]); the nodes above it leave the cache after all others. So what is logged
//! is applied without a read of the disk. Where that does not hold (a batch of more leaves than
//! the cache has room for, the leaves of a range, long keys that have to be compared whole), a
//! read that fails is tried again; only a disk that goes on failing stops the table.

use super::{Inner, range::AHEAD_MAX};
use crate::{
    Error, Result,
    bptree::Change,
    contract::Op,
    util::sync::{Backoff, Ordering},
};

/// How often a read that fails is tried while a logged write is applied.
const TRIES: u32 = 20;
/// Of the cache's frames one in so many is kept for writes to come.
const KEPT_SHARE: u64 = 8;

/// Tries again what the disk kept from being done.
fn persistently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut patience = Backoff::default();
    loop {
        match attempt() {
            Err(Error::Io { .. }) if patience.count() < TRIES => patience.wait(),
            outcome => return outcome,
        }
    }
}

impl Inner {
    /// Admits a put or a delete: makes sure that the cache can take so many dirty pages more, and
    /// one for each write that is to come before it; brings the leaf of the key into the cache and
    /// keeps it there. Of a batch of more leaves than an eighth of the cache, the rest are brought
    /// when they are applied.
    pub(super) fn admit_one(&self, key: &[u8], pages: u64, gives_back: bool) -> Result<()> {
        let (pending, kept) = self.admissions.pending(key);
        let room = self.paged.make_room(pages + pending.min(self.paged.kept_limit() / 2));
        // Deletes give space back: they go on where a cut fails, and the cache grows.
        if !gives_back {
            room?;
        }
        let cache = self.paged.tree.cache();
        if kept * KEPT_SHARE > cache.frames() {
            self.admissions.add(key, None);
            return Ok(());
        }
        let misses = cache.misses();
        let kept = self.paged.tree.keep_leaf(key)?;
        self.admissions.add(key, Some(kept));
        if cache.misses() != misses {
            self.is_cold.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Lets go of the leaf of a write that will not come.
    pub(super) fn retract(&self, key: &[u8]) {
        if let Some(admitted) = self.admissions.take(key) {
            self.paged.tree.cache().let_leave(admitted.kept);
        }
    }

    /// Applies a put or a delete.
    pub(super) fn change_one(&self, key: &[u8], op: &Op<'_>) -> Result<()> {
        let cache = self.paged.tree.cache();
        let admitted = self.admissions.take(key);
        let near = admitted.as_ref().filter(|admitted| admitted.is_sure);
        let mut near = near.map(|admitted| admitted.kept.seen());
        let pass = self.paged.gate.enter(key);
        let change = persistently(|| match op {
            Op::Put { key, head, body } => {
                if self.paged.tree.is_direct(head.len() + body.len()) {
                    self.paged.make_file()?;
                }
                self.paged.tree.put(key, [head, body], near.take())
            }
            Op::Delete { key } => self.paged.tree.delete(key, near.take()),
            Op::DeleteRange { .. } => Ok(Change::default()),
        });
        if let Ok(change) = &change {
            pass.note(*change);
        }
        drop(pass);
        if let Some(admitted) = admitted {
            cache.let_leave(admitted.kept);
        }
        change.map(drop)
    }

    /// Removes all keys from `start` (included) to `end` (excluded).
    pub(super) fn delete_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        if !self.young.is_empty() {
            persistently(|| self.merge_range(start, end))?;
        }
        let pass = self.paged.gate.enter(start);
        let (mut next, mut ahead) = (Some(start.to_vec()), 0);
        while let Some(from) = next {
            let tree = &self.paged.tree;
            let (change, after) = persistently(|| tree.delete_some((&from, end), ahead, None))?;
            pass.note(change);
            next = after;
            ahead = (ahead * 2 + 1).min(AHEAD_MAX);
        }
        Ok(())
    }
}
