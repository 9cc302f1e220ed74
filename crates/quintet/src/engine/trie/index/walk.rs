//! Walks over the trie: scans, checks and figures.

use super::{
    lazy_trie::{LOADS_MAX, LazyTrie, ROOT_AT, Writer, pause},
    search::RecordVerdict,
    word::{ROOT_BITS, TAG_BITS, TrieSlot, address_of},
};
use crate::{
    Result,
    util::sync::{Ordering, fence},
};

impl LazyTrie {
    /// Appends the addresses of the list (or the record) that the path `from` leads to, and returns
    /// the first path after it; `None` after the last. A walk from 0 to the end visits every record
    /// that stays, whatever changes meanwhile, because a record's path never changes. `load` is as
    /// for [`LazyTrie::find`].
    pub(crate) fn walk(
        &self,
        from: u64,
        out: &mut Vec<u64>,
        load: impl Fn(u64) -> Result<()>,
    ) -> Result<Option<u64>> {
        let version = self.subtree(from);
        let (mut attempts, mut loads) = (0, 0);
        let start = out.len();
        loop {
            let before = version.load(Ordering::Acquire);
            let position = self.walk_once(from, out);
            fence(Ordering::Acquire);
            if before & 1 == 0 && version.load(Ordering::Relaxed) == before {
                match position {
                    Ok(position) => return Ok(path_behind(from, position)),
                    Err(index) if loads < LOADS_MAX => {
                        load(index)?;
                        loads += 1;
                    }
                    Err(_) => self.lock(from).load_path()?,
                }
            }
            out.truncate(start);
            pause(&mut attempts);
        }
    }

    /// One attempt of a walk. Returns the bits of `from` that lead to the result, or as `Err` a
    /// word that is not in memory.
    pub(super) fn walk_once(&self, from: u64, out: &mut Vec<u64>) -> Result<u32, u64> {
        let mut at = ROOT_AT + (from >> (64 - ROOT_BITS));
        let mut position = ROOT_BITS;
        loop {
            match TrieSlot::of(self.space.get(at).ok_or(at)?) {
                TrieSlot::Record(word) => out.push(address_of(word)),
                TrieSlot::List { class, at } => {
                    self.visit_list(class, at, &mut |word| out.push(address_of(word)))?;
                }
                TrieSlot::Node { at: node, .. }
                    if position + self.fan_bits <= ROOT_BITS + TAG_BITS =>
                {
                    at = self.child(node, from, position);
                    position += self.fan_bits;
                    continue;
                }
                // A node at this depth: a change misled the walk.
                TrieSlot::Empty | TrieSlot::Node { .. } => {}
            }
            return Ok(position);
        }
    }

    /// Returns whether the path of `hash` leads to the record at `address`.
    pub(crate) fn leads_to(&self, hash: u64, address: u64) -> bool {
        let mut found = false;
        let mut look = |seen: u64, _| {
            found |= seen == address;
            RecordVerdict::<()>::Other
        };
        let _ = self.search(hash, &mut look);
        found
    }
}

impl Writer<'_> {
    /// As [`LazyTrie::walk`], for a path in this subtree.
    pub(crate) fn walk(&self, from: u64, out: &mut Vec<u64>) -> Result<Option<u64>> {
        loop {
            match self.trie.walk_once(from, out) {
                Ok(position) => return Ok(path_behind(from, position)),
                Err(index) => self.trie.space.load(index)?,
            }
            out.clear();
        }
    }
}

/// The first path that does not begin with the same `position` bits.
fn path_behind(from: u64, position: u32) -> Option<u64> {
    let rest = 64 - position;
    // The last path's successor wraps round to 0.
    Some((from >> rest).wrapping_add(1) << rest).filter(|next| *next != 0)
}
