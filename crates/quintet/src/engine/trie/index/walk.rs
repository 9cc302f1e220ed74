//! Walks over the trie: scans, checks and figures.

use super::{
    ROOT_AT, ROOT_BITS, ROOTS, Slot, TAG_BITS, Trie, address_of,
    list::{CELL, Layout},
    objects, tag_of, word_at,
};
use crate::{
    Result,
    util::{
        codec::to_usize,
        sync::{Ordering, fence, lock},
    },
};

/// The shape of a trie (CedrusDB, figures 4 and 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrieShape {
    /// Records.
    pub(crate) records: u64,
    /// Sum over the records of the nodes on the path, the root table included.
    pub(crate) path_nodes: u64,
    /// Nodes of the longest path.
    pub(crate) height: u64,
    /// Nodes, without the root table.
    pub(crate) nodes: u64,
    /// Slots of nodes that are not empty.
    pub(crate) used_slots: u64,
    /// Words of lists.
    pub(crate) list_words: u64,
}

impl Trie {
    /// Appends the addresses of the list (or the record) that the path `from` leads to, and returns
    /// the first path after it; `None` after the last. A walk from 0 to the end visits every record
    /// that stays, whatever changes meanwhile, because a record's path never changes. `load` is as
    /// for [`Trie::find`].
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
                    Ok(position) => {
                        let rest = 64 - position;
                        return Ok(((from >> rest) + 1)
                            .checked_shl(rest)
                            .filter(|next| *next != 0));
                    }
                    Err(index) if loads < super::LOADS_MAX => {
                        load(index)?;
                        loads += 1;
                    }
                    Err(_) => self.lock(from).load_path()?,
                }
            }
            out.truncate(start);
            super::pause(&mut attempts);
        }
    }

    /// One attempt of a walk. Returns the bits of `from` that lead to the result, or as `Err` a
    /// word that is not in memory.
    pub(super) fn walk_once(&self, from: u64, out: &mut Vec<u64>) -> Result<u32, u64> {
        let mut at = ROOT_AT + (from >> (64 - ROOT_BITS));
        let mut position = ROOT_BITS;
        loop {
            match Slot::of(self.space.get(at).ok_or(at)?) {
                Slot::Record(word) => out.push(address_of(word)),
                Slot::List { class, at } => {
                    self.visit_list(class, at, &mut |word| out.push(address_of(word)))?;
                }
                Slot::Node { at: node, .. } if position + self.fan_bits <= ROOT_BITS + TAG_BITS => {
                    at = self.child(node, from, position);
                    position += self.fan_bits;
                    continue;
                }
                // A node at this depth: a change misled the walk.
                Slot::Empty | Slot::Node { .. } => {}
            }
            return Ok(position);
        }
    }

    /// Returns whether the path of `hash` leads to the record at `address`.
    pub(crate) fn leads_to(&self, hash: u64, address: u64) -> bool {
        let mut found = false;
        let mut look = |seen: u64, _| {
            found |= seen == address;
            super::RecordVerdict::<()>::Other
        };
        let _ = self.search(hash, &mut look);
        found
    }

    /// Visits everything below these slots of the root table and adds to `shape`. `visit` receives
    /// every record's address; `finding` receives what is wrong, and where. The result is valid if
    /// nothing changed meanwhile: lock the subtrees, or compare their versions.
    pub(crate) fn inspect(
        &self,
        roots: std::ops::Range<u64>,
        shape: &mut TrieShape,
        visit: &mut dyn FnMut(u64),
        finding: &mut dyn FnMut(u64, &str),
    ) -> Result<()> {
        let mut seen = WordBitmap::new(lock(&self.objects).tail());
        let all = roots == (0..ROOTS);
        for root in roots {
            let mut inspector =
                TrieInspector { trie: self, seen: &mut seen, shape, visit, finding };
            inspector.slot(ROOT_AT + root, root, ROOT_BITS, 1)?;
        }
        if all { self.inspect_free(&mut seen, finding) } else { Ok(()) }
    }

    /// Checks that free objects do not overlap, and that every word belongs to an object.
    fn inspect_free(
        &self,
        seen: &mut WordBitmap,
        finding: &mut dyn FnMut(u64, &str),
    ) -> Result<()> {
        let objects = lock(&self.objects);
        for ((class, head), (_, count)) in objects.free_heads().zip(objects.free_counts()) {
            let (mut at, mut found) = (head, 0);
            while at != 0 && found <= count {
                if !seen.mark(at, class) {
                    finding(at * 8, "a free object overlaps another object");
                    break;
                }
                found += 1;
                at = word_at(&self.space, at)?;
            }
            if found != count {
                finding(head * 8, "a list of free objects has another length than is counted");
            }
        }
        let lost = seen.unmarked(super::RESERVED_WORDS);
        if lost > 0 {
            finding(0, &format!("{lost} words belong to no object"));
        }
        drop(objects);
        Ok(())
    }
}

/// The first path that does not begin with the same `position` bits.
pub(super) fn path_behind(from: u64, position: u32) -> Option<u64> {
    let rest = 64 - position;
    // The last path's successor wraps round to 0.
    Some((from >> rest).wrapping_add(1) << rest).filter(|next| *next != 0)
}

/// A bit for each pair of words that is part of an object; and the end of the words.
struct WordBitmap(Vec<u64>, u64);

impl WordBitmap {
    fn new(tail: u64) -> Self {
        Self(vec![0; to_usize(tail.div_ceil(128))], tail)
    }

    /// Marks an object's words; `false` if one is marked already or is outside.
    fn mark(&mut self, at: u64, class: u32) -> bool {
        if class >= objects::CLASSES
            || !at.is_multiple_of(2)
            || at.checked_add(1 << class).is_none_or(|end| end > self.1)
        {
            return false;
        }
        let mut fresh = true;
        for pair in at / 2..(at + (1 << class)).div_ceil(2) {
            let Some(word) = self.0.get_mut(to_usize(pair / 64)) else { return false };
            fresh &= *word & 1 << (pair % 64) == 0;
            *word |= 1 << (pair % 64);
        }
        fresh
    }

    /// Words from `first` on that are part of nothing.
    fn unmarked(&self, first: u64) -> u64 {
        let marked: u64 = self.0.iter().map(|word| u64::from(word.count_ones()) * 2).sum();
        (self.1 - first.min(self.1)).saturating_sub(marked)
    }
}

struct TrieInspector<'a> {
    trie: &'a Trie,
    seen: &'a mut WordBitmap,
    shape: &'a mut TrieShape,
    visit: &'a mut dyn FnMut(u64),
    finding: &'a mut dyn FnMut(u64, &str),
}

impl TrieInspector<'_> {
    /// `path` is the hash bits that lead to the slot, `position` their number.
    fn slot(&mut self, at: u64, path: u64, position: u32, depth: u64) -> Result<()> {
        match Slot::of(word_at(&self.trie.space, at)?) {
            Slot::Empty => {}
            Slot::Record(word) => self.record(at, word, path, position, depth),
            Slot::List { class, at } if self.trie.layout == Layout::Lines => {
                self.line(class, at, path, position, depth)?;
            }
            Slot::List { at, .. } => self.chain(at, path, position, depth)?,
            Slot::Node { class, at } => {
                let fan_bits = self.trie.fan_bits;
                let deep = position + fan_bits > ROOT_BITS + TAG_BITS;
                if class != fan_bits || deep || !self.seen.mark(at, class) {
                    (self.finding)(at * 8, "a node overlaps another object or is no node");
                    return Ok(());
                }
                self.shape.nodes += 1;
                let used = self.shape.used_slots;
                for child in 0..1 << fan_bits {
                    if word_at(&self.trie.space, at + child)? != 0 {
                        self.shape.used_slots += 1;
                        let path = path << fan_bits | child;
                        self.slot(at + child, path, position + fan_bits, depth + 1)?;
                    }
                }
                if self.shape.used_slots == used {
                    (self.finding)(at * 8, "a node has no child");
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, class: u32, at: u64, path: u64, position: u32, depth: u64) -> Result<()> {
        if !self.seen.mark(at, class) {
            (self.finding)(at * 8, "a list overlaps another object");
            return Ok(());
        }
        self.shape.list_words += 1 << class;
        let (mut ended, mut count) = (false, 0);
        for index in at..at + (1 << class) {
            match (Slot::of(word_at(&self.trie.space, index)?), ended) {
                (Slot::Empty, _) => ended = true,
                (Slot::Record(word), false) => {
                    count += 1;
                    self.record(index, word, path, position, depth);
                }
                _ => (self.finding)(index * 8, "a list holds what is no record"),
            }
        }
        if count < 2 {
            (self.finding)(at * 8, "a list holds fewer than two records");
        }
        Ok(())
    }

    fn chain(&mut self, mut at: u64, path: u64, position: u32, depth: u64) -> Result<()> {
        loop {
            if !self.seen.mark(at, CELL) {
                (self.finding)(at * 8, "a cell of a chain overlaps another object");
                return Ok(());
            }
            self.shape.list_words += 1 << CELL;
            for index in [at, at + 1] {
                match Slot::of(word_at(&self.trie.space, index)?) {
                    Slot::Record(word) => self.record(index, word, path, position, depth),
                    Slot::List { class: CELL, .. } if index != at => {}
                    _ => (self.finding)(index * 8, "a chain holds what is no record"),
                }
            }
            let Slot::List { at: next, .. } = Slot::of(word_at(&self.trie.space, at + 1)?) else {
                return Ok(());
            };
            at = next;
        }
    }

    fn record(&mut self, at: u64, word: u64, path: u64, position: u32, depth: u64) {
        let bits = position - ROOT_BITS;
        if tag_of(word) >> (TAG_BITS - bits) != path & ((1 << bits) - 1) {
            (self.finding)(at * 8, "a record's tag does not agree with its path");
        }
        self.shape.records += 1;
        self.shape.path_nodes += depth;
        self.shape.height = self.shape.height.max(depth);
        (self.visit)(address_of(word));
    }
}
