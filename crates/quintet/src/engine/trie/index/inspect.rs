//! Inspection of a trie: its shape, and what is wrong with it.

use super::{
    layout::Layout,
    lazy_trie::{LazyTrie, RESERVED_WORDS, ROOT_AT, ROOTS, TrieShape, word_at},
    list::CELL,
    objects,
    word::{ROOT_BITS, TAG_BITS, TrieSlot, address_of, tag_of},
};
use crate::{
    Result,
    util::{codec::to_usize, sync::lock},
};

impl LazyTrie {
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
            let before = shape.records;
            let mut inspector = TrieInspector {
                trie: self,
                seen: &mut seen,
                shape,
                visit,
                finding,
                is_switched: false,
            };
            inspector.slot(ROOT_AT + root, root, ROOT_BITS, 1)?;
            shape.subtree_records_max = shape.subtree_records_max.max(shape.records - before);
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
        let lost = seen.unmarked(RESERVED_WORDS);
        if lost > 0 {
            finding(0, &format!("{lost} words belong to no object"));
        }
        drop(objects);
        Ok(())
    }
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
    trie: &'a LazyTrie,
    seen: &'a mut WordBitmap,
    shape: &'a mut TrieShape,
    visit: &'a mut dyn FnMut(u64),
    finding: &'a mut dyn FnMut(u64, &str),
    /// The inspected slot is below a switched node.
    is_switched: bool,
}

impl TrieInspector<'_> {
    /// `path` is the hash bits that lead to the slot, `position` their number.
    fn slot(&mut self, at: u64, path: u64, position: u32, depth: u64) -> Result<()> {
        match TrieSlot::of(word_at(&self.trie.space, at)?) {
            TrieSlot::Empty => {}
            TrieSlot::Record(word) => self.record(at, word, path, position, depth),
            TrieSlot::List { class, at } if self.trie.layout == Layout::Lines => {
                self.line(class, at, path, position, depth)?;
            }
            TrieSlot::List { at, .. } => self.chain(at, path, position, depth)?,
            TrieSlot::Node { class, at } if self.trie.splits_at(position) => {
                self.node(class, at, (path, position), depth)?;
            }
            TrieSlot::Switched { class, at } if self.may_switch(position) => {
                self.shape.switched += 1;
                let before = self.shape.records;
                self.is_switched = true;
                self.node(class, at, (0, ROOT_BITS), depth)?;
                self.is_switched = false;
                self.shape.switched_records += self.shape.records - before;
            }
            TrieSlot::Node { at, .. } | TrieSlot::Switched { at, .. } => {
                (self.finding)(at * 8, "a node is where none can be");
            }
        }
        Ok(())
    }

    fn may_switch(&self, position: u32) -> bool {
        self.trie.fallback.is_some() && !self.is_switched && !self.trie.splits_at(position)
    }

    fn node(&mut self, class: u32, at: u64, path: (u64, u32), depth: u64) -> Result<()> {
        let (fan_bits, (path, position)) = (self.trie.fan_bits, path);
        if class != fan_bits || !self.seen.mark(at, class) {
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
            match (TrieSlot::of(word_at(&self.trie.space, index)?), ended) {
                (TrieSlot::Empty, _) => ended = true,
                (TrieSlot::Record(word), false) => {
                    count += 1;
                    self.record(index, word, path, position, depth);
                }
                _ => (self.finding)(index * 8, "a list holds what is no record"),
            }
        }
        self.shape.list_records_max = self.shape.list_records_max.max(count);
        if count < 2 {
            (self.finding)(at * 8, "a list holds fewer than two records");
        }
        Ok(())
    }

    fn chain(&mut self, mut at: u64, path: u64, position: u32, depth: u64) -> Result<()> {
        let before = self.shape.records;
        loop {
            if !self.seen.mark(at, CELL) {
                (self.finding)(at * 8, "a cell of a chain overlaps another object");
                return Ok(());
            }
            self.shape.list_words += 1 << CELL;
            for index in [at, at + 1] {
                match TrieSlot::of(word_at(&self.trie.space, index)?) {
                    TrieSlot::Record(word) => self.record(index, word, path, position, depth),
                    TrieSlot::List { class: CELL, .. } if index != at => {}
                    _ => (self.finding)(index * 8, "a chain holds what is no record"),
                }
            }
            let TrieSlot::List { at: next, .. } = TrieSlot::of(word_at(&self.trie.space, at + 1)?)
            else {
                let count = self.shape.records - before;
                self.shape.list_records_max = self.shape.list_records_max.max(count);
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
