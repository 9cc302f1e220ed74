//! Writes: from their admission to the leaf.
//!
//! A put or a delete is admitted with its leaf in the cache, where it stays until it is applied
//! ([`super::admissions`]); the nodes above it leave the cache after all others. So what is logged
//! is applied without a read of the disk. Where that does not hold (a batch of more leaves than
//! the cache has room for, the leaves of a range, long keys that have to be compared whole), a
//! read that fails is tried again; only a disk that goes on failing stops the table.

use super::Inner;
use crate::{Error, Result, engine::Op, index::bptree::Change, pages::cache::latch::Patience};

/// How often a read that fails is tried while a logged write is applied.
const TRIES: u32 = 20;

/// Tries again what the disk kept from being done.
fn persistently<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut patience = Patience::default();
    loop {
        match attempt() {
            Err(Error::Io { .. }) if patience.count() < TRIES => patience.wait(),
            outcome => return outcome,
        }
    }
}

impl Inner {
    /// Brings the leaf of a key into the cache and keeps it there for the write to come.
    pub(super) fn keep_leaf(&self, key: &[u8]) -> Result<()> {
        let cache = self.paged.tree.cache();
        let kept = self.paged.tree.keep_leaf(key)?;
        if let Err(kept) = self.admissions.add(key, kept, cache.frames()) {
            cache.let_leave(kept);
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
        let pass = self.paged.gate.enter(start);
        let mut next = Some(start.to_vec());
        while let Some(from) = next {
            let (change, after) = persistently(|| self.paged.tree.delete_some(&from, end, None))?;
            pass.note(change);
            next = after;
        }
        Ok(())
    }
}
