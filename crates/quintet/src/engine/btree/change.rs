//! Writes: from their admission to the leaf.
//!
//! A put or a delete is admitted with its leaf loaded and pinned until it is applied
//! ([`super::admissions`]). Inner nodes are evicted last. So a logged write is usually applied
//! without a disk read. Exceptions are a batch of more leaves than the cache has room for, the
//! leaves of a range, and long keys that must be compared whole. There a failed read is repeated;
//! only a disk that fails persistently stops the table.

use super::{range::AHEAD_MAX, state::BTreeState};
use crate::{
    Error, Result,
    bptree::CountChange,
    contract::Op,
    util::sync::{Backoff, Ordering},
};

/// Maximum number of attempts of a failing read while a logged write is applied.
const TRIES: u32 = 20;
/// At most one frame of the cache in this many is pinned for writes to come.
const PINNED_SHARE: u64 = 8;

/// Repeats an operation that fails with an I/O error.
fn retry_io<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut backoff = Backoff::default();
    loop {
        match attempt() {
            Err(Error::Io { .. }) if backoff.count() < TRIES => backoff.wait(),
            outcome => return outcome,
        }
    }
}

impl BTreeState {
    /// Admits a put or a delete. Makes room in the cache for `pages` more dirty pages, and one for
    /// each pending write. Loads the leaf of the key and pins it. If an eighth of the cache is
    /// pinned, the leaf is loaded when the write is applied.
    pub(super) fn admit_one(&self, key: &[u8], pages: u64, frees_space: bool) -> Result<()> {
        let (pending, pin) = self.admissions.pending(key);
        let pages = pages + pending.min(self.paged.unevictable_limit() / 2);
        if frees_space {
            self.paged.make_room_to_free(pages)?;
        } else {
            self.paged.make_room(pages)?;
        }
        let cache = self.paged.tree.cache();
        if pin * PINNED_SHARE > cache.frames() {
            self.admissions.add(key, None);
            return Ok(());
        }
        let misses = cache.misses();
        let pin = self.paged.tree.pin_leaf(key)?;
        self.admissions.add(key, Some(pin));
        if cache.misses() != misses {
            self.is_cold.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Unpins the leaf of a cancelled write.
    pub(super) fn cancel_write(&self, key: &[u8]) {
        if let Some(admitted) = self.admissions.take(key) {
            self.paged.tree.cache().unpin(admitted.pin);
        }
    }

    /// Applies a put or a delete.
    pub(super) fn change_one(&self, key: &[u8], op: &Op<'_>) -> Result<()> {
        let cache = self.paged.tree.cache();
        let admitted = self.admissions.take(key);
        let leaf = admitted.as_ref().filter(|admitted| admitted.is_exact);
        let mut leaf = leaf.map(|admitted| admitted.pin.page_version());
        let pass = self.paged.gate.enter(key);
        let change = retry_io(|| match op {
            Op::Put { key, head, body } => {
                if self.paged.tree.is_direct(head.len() + body.len()) {
                    self.paged.ensure_file()?;
                }
                self.paged.tree.put(key, [head, body], leaf.take())
            }
            Op::Delete { key } => self.paged.tree.delete(key, leaf.take()),
            Op::DeleteRange { .. } => Ok(CountChange::default()),
        });
        if let Ok(change) = &change {
            pass.add(*change);
        }
        drop(pass);
        if let Some(admitted) = admitted {
            cache.unpin(admitted.pin);
        }
        change.map(drop)
    }

    /// Removes all keys from `start` (included) to `end` (excluded).
    pub(super) fn delete_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        if !self.replay_buffer.is_empty() {
            retry_io(|| self.merge_range(start, end))?;
        }
        let pass = self.paged.gate.enter(start);
        let (mut next, mut ahead) = (Some(start.to_vec()), 0);
        while let Some(from) = next {
            let tree = &self.paged.tree;
            let (change, after) = retry_io(|| tree.delete_some((&from, end), ahead, None))?;
            pass.add(change);
            next = after;
            ahead = (ahead * 2 + 1).min(AHEAD_MAX);
        }
        Ok(())
    }
}
