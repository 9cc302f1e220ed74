//! Walks over the trie: scans, checks and figures.

use super::{
    key_path::KeyPath,
    lazy_trie::{LOADS_MAX, LazyTrie, ROOT_AT, Writer, damaged, pause},
    search::RecordVerdict,
    word::{ROOT_BITS, TAG_BITS, TrieSlot, address_of, tag, tag_of},
};
use crate::{
    Error, Result,
    util::{
        mutant::mutant,
        sync::{Ordering, fence},
    },
};

/// Why one attempt of a walk has no result.
pub(super) enum WalkStop {
    /// The region of this word has to be loaded.
    Load(u64),
    /// The words are not those of a trie: a change misled the walk, or they are damaged.
    Misled,
}

impl LazyTrie {
    /// Appends the addresses of the list (or the record) that the path `from` leads to, and returns
    /// the first path after it; `None` after the last. A walk from 0 to the end visits every record
    /// that stays, whatever changes meanwhile, because a record's path never changes. Below a
    /// switched node, the bits of `from` behind those of the path are bits of the keyed hash
    /// ([`LazyTrie::walk_position`]). `load` is as for [`LazyTrie::find`]. Fails also with
    /// [`Error::Corruption`](crate::Error::Corruption).
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
                    Err(WalkStop::Misled) => return Err(misled()),
                    Err(WalkStop::Load(index)) if loads < LOADS_MAX => {
                        load(index)?;
                        loads += 1;
                    }
                    Err(WalkStop::Load(_)) => {
                        out.truncate(start);
                        return self.lock(KeyPath::of_hash(from)).walk(from, out);
                    }
                }
            }
            out.truncate(start);
            pause(&mut attempts);
        }
    }

    /// One attempt of a walk. Returns the bits of `from` that lead to the result.
    pub(super) fn walk_once(&self, from: u64, out: &mut Vec<u64>) -> Result<u32, WalkStop> {
        let mut at = ROOT_AT + (from >> (64 - ROOT_BITS));
        let (mut hash, mut position) = (from, ROOT_BITS);
        // Bits of the path, without those of the keyed hash that follow.
        let mut path_bits = 0;
        loop {
            let slot = TrieSlot::of(self.space.get(at).ok_or(WalkStop::Load(at))?);
            let mut is_sound = true;
            let mut add = |word| {
                is_sound &= shares_bits(word, hash, position);
                out.push(address_of(word));
            };
            match slot {
                TrieSlot::Empty => {}
                TrieSlot::Record(word) => add(word),
                TrieSlot::List { class, at } => {
                    self.visit_list(class, at, &mut add).map_err(WalkStop::Load)?;
                }
                TrieSlot::Node { at: node, .. } if self.splits_at(position) => {
                    at = self.child(node, hash, position);
                    position += self.fan_bits;
                    continue;
                }
                TrieSlot::Switched { at: node, .. }
                    if path_bits == 0 && !self.splits_at(position) =>
                {
                    mutant!(TrieScanSkipsSwitched => return Ok(position));
                    path_bits = self.path_bits() - ROOT_BITS;
                    hash = (from << self.path_bits()) >> ROOT_BITS;
                    at = self.child(node, hash, ROOT_BITS);
                    position = ROOT_BITS + self.fan_bits;
                    continue;
                }
                TrieSlot::Node { .. } | TrieSlot::Switched { .. } => is_sound = false,
            }
            return if is_sound { Ok(path_bits + position) } else { Err(WalkStop::Misled) };
        }
    }

    /// The position in walks of a key with this path and keyed hash: the bits of the path that the
    /// trie uses, then those of the keyed hash. It does not depend on what is switched.
    pub(crate) fn walk_position(&self, path: u64, keyed: u64) -> u64 {
        let rest = 64 - self.path_bits();
        let path = path >> rest << rest;
        mutant!(TrieWalkPositionLacksHash => return path);
        path | (keyed << ROOT_BITS) >> self.path_bits()
    }

    /// Returns whether a path leads to the record at `address`.
    pub(crate) fn leads_to(&self, path: KeyPath<'_>, address: u64) -> bool {
        let mut found = false;
        let mut look = |word: u64, _| {
            found |= address_of(word) == address;
            RecordVerdict::<()>::Other
        };
        let _ = self.search(path, &mut look);
        found
    }
}

impl Writer<'_> {
    /// As [`LazyTrie::walk`], for a path in this subtree.
    pub(crate) fn walk(&self, from: u64, out: &mut Vec<u64>) -> Result<Option<u64>> {
        let (start, mut last) = (out.len(), None);
        loop {
            match self.trie.walk_once(from, out) {
                Ok(position) => return Ok(path_behind(from, position)),
                Err(WalkStop::Load(index)) if last.replace(index) != Some(index) => {
                    self.trie.space.load(index)?;
                }
                // What is loaded stays in memory under the lock, so the object is outside.
                Err(WalkStop::Load(_) | WalkStop::Misled) => return Err(misled()),
            }
            out.truncate(start);
        }
    }
}

/// Returns whether the hash of a record begins with the first `position` bits of `hash`.
fn shares_bits(word: u64, hash: u64, position: u32) -> bool {
    (tag_of(word) ^ tag(hash)) >> (TAG_BITS + ROOT_BITS - position) == 0
}

fn misled() -> Error {
    damaged("a path leads to what is not of it")
}

/// The first path that does not begin with the same `position` bits.
fn path_behind(from: u64, position: u32) -> Option<u64> {
    let rest = 64 - position;
    // The last path's successor wraps round to 0.
    Some((from >> rest).wrapping_add(1) << rest).filter(|next| *next != 0)
}
