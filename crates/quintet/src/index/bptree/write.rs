//! Changes of one leaf.
//!
//! A writer goes down without latches and upgrades the leaf that it finds. What fits is done in
//! place: a value of the same size is overwritten, an entry goes into the gap between slots and
//! entries, a page with holes is rewritten. What does not fit goes to [`super::balance`].

use super::{
    Change, Garbage, Shape, Step, Stop, Tree,
    node::{Cell, HEAD_BYTES, Held, LongKey, NodeBuilder, NodeView, Payload, SLOT_BYTES, Slot},
    read::Target,
    signed,
};
use crate::{
    Result,
    codec::{low_u32, to_u64},
    pages::cache::WriteGuard,
};

/// Says of a stored value whether it goes.
pub type Condemn<'c> = &'c dyn Fn(&[u8]) -> bool;

/// A value to be put: in pieces, or in an extent already.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored<'v> {
    Here([&'v [u8]; 2]),
    Far(super::node::Far),
}

impl Stored<'_> {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Here([head, body]) => head.len() + body.len(),
            Self::Far(far) => Held::Far(*far).length(),
        }
    }

    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Here(pieces) => Payload::Here(pieces.concat()),
            Self::Far(far) => Payload::Far(*far),
        }
    }
}

impl Shape {
    /// Whether a key is too long for a node.
    pub fn is_long(self, key: &[u8]) -> bool {
        key.len() > self.key_inline_max()
    }

    /// Whether an entry of this key and value is in its leaf whole.
    pub fn is_inline(self, key: &[u8], value_bytes: usize) -> bool {
        let key_bytes = if self.is_long(key) { self.key_inline_max() + 8 } else { key.len() };
        SLOT_BYTES + 4 + key_bytes + value_bytes <= self.entry_max()
    }
}

impl Tree {
    /// Pages that a put of this size may have to make, splits apart.
    pub fn pages_for(&self, key: &[u8], value_bytes: usize) -> u64 {
        let long = self.shape.is_long(key);
        let key_pages = if long { 2 * self.extent_pages(key.len(), false) } else { 0 };
        let far = !self.shape.is_inline(key, value_bytes) && !self.is_direct(value_bytes);
        key_pages + if far { self.extent_pages(value_bytes, false) } else { 0 }
    }

    /// Sets the value of a key.
    pub fn put(&self, key: &[u8], pieces: [&[u8]; 2]) -> Result<Change> {
        let length = pieces[0].len() + pieces[1].len();
        let stored = if self.shape.is_inline(key, length) {
            Stored::Here(pieces)
        } else {
            Stored::Far(self.write_value(pieces)?)
        };
        let mut garbage = Garbage::new();
        let done = self.repeat(|tree| tree.put_in_leaf(key, &stored, &mut garbage))?;
        let change = match done {
            Some(change) => change,
            None => self.put_from_root(key, &stored, &mut garbage)?,
        };
        self.let_go(garbage);
        Ok(change)
    }

    /// One attempt; `None`: the leaf has no room.
    fn put_in_leaf(
        &self,
        key: &[u8],
        stored: &Stored<'_>,
        garbage: &mut Garbage,
    ) -> Step<Option<Change>> {
        let leaf = self.leaf_of(key)?;
        let (index, found) = self.look(&leaf, |view, fetch| view.search(key, fetch))?;
        let leaf = leaf.upgrade().ok_or(Stop::Again)?;
        if found {
            return self.replace(&leaf, index, stored, garbage);
        }
        self.insert(&leaf, index, key, stored)
    }

    /// Puts another value into slot `index` of a latched leaf.
    pub(super) fn replace(
        &self,
        leaf: &WriteGuard<'_>,
        index: usize,
        stored: &Stored<'_>,
        garbage: &mut Garbage,
    ) -> Step<Option<Change>> {
        let (slot, held, old_bytes) = self.look(leaf, |view, _| {
            let slot = view.slot(index)?;
            Some((slot, view.held(&slot)?, view.entry_bytes(&slot)?))
        })?;
        let bytes = signed(stored.length()) - signed(held.length());
        let change = Change { keys: 0, bytes };
        if let (Held::Here(at, length), Stored::Here(pieces)) = (&held, stored)
            && *length == stored.length()
        {
            let edit = leaf.edit();
            edit.put_bytes(*at, pieces[0]);
            edit.put_bytes(at + pieces[0].len(), pieces[1]);
            return Ok(Some(change));
        }
        let mut cell = self.look(leaf, |view, _| view.cell(index))?;
        cell.payload = stored.payload();
        if !self.put_cell(leaf, index, &cell, Some((slot, old_bytes)))? {
            return Ok(None);
        }
        if let Held::Far(far) = &held {
            garbage.push(self.pages_of(far));
        }
        Ok(Some(change))
    }

    /// Puts a new entry before slot `index` of a latched leaf.
    pub(super) fn insert(
        &self,
        leaf: &WriteGuard<'_>,
        index: usize,
        key: &[u8],
        stored: &Stored<'_>,
    ) -> Step<Option<Change>> {
        let (free, prefix) = self.look(leaf, |view, _| Some((view.free(), view.prefix_len())))?;
        let mut cell = Cell { key: key.to_vec(), long: None, payload: stored.payload() };
        let long = self.shape.is_long(key);
        // Room for a long key's reference too: its extent is made once it is sure to be used.
        let wanted = SLOT_BYTES + cell.entry_bytes(self.shape, prefix).min(self.shape.page_bytes);
        let wanted = if long { self.shape.entry_max() } else { wanted };
        if wanted > free {
            return Ok(None);
        }
        if long {
            cell.long = Some(self.make_long(key)?);
        }
        let put = self.put_cell(leaf, index, &cell, None)?;
        debug_assert!(put, "an entry for which there was room");
        Ok(put.then(|| added(key, stored)))
    }

    /// Writes a long key to an extent of its own.
    pub(super) fn make_long(&self, key: &[u8]) -> Result<LongKey> {
        let page = self.write_cached([key, &[]])?;
        Ok(LongKey { length: low_u32(to_u64(key.len())), page: page.0 })
    }

    /// Puts an entry before slot `index` of a latched node, or in place of it where `old` gives
    /// the slot and its entry's size. `false`: there is no room, and nothing has changed.
    pub(super) fn put_cell(
        &self,
        node: &WriteGuard<'_>,
        index: usize,
        cell: &Cell,
        old: Option<(Slot, usize)>,
    ) -> Step<bool> {
        let (prefix, heap, gap, free, count, dead, slots) = self.look(node, |view, _| {
            let heap = view.heap_start()?;
            let slots = view.slots_start() / 8;
            let (free, gap) = (view.free(), view.gap());
            Some((view.prefix_len(), heap, gap, free, view.count(), view.dead(), slots))
        })?;
        let mut entry = Vec::with_capacity(cell.entry_bytes(self.shape, prefix));
        cell.encode(self.shape, prefix, &mut entry);
        let slot_bytes = if old.is_some() { 0 } else { SLOT_BYTES };
        let freed = old.map_or(0, |(_, bytes)| bytes);
        if entry.len() + slot_bytes > gap {
            if entry.len() + slot_bytes > free + freed {
                return Ok(false);
            }
            return self.rewrite(node, |cells| {
                let end = index + usize::from(old.is_some());
                let _ = cells.splice(index.min(cells.len())..end.min(cells.len()), [cell.clone()]);
            });
        }
        let edit = node.edit();
        let start = heap - entry.len();
        edit.put_bytes(start, &entry);
        if old.is_none() {
            edit.move_words(slots + index, slots + index + 1, count - index);
            set_count(&edit, count + 1);
        }
        let suffix = cell.suffix(self.shape, prefix);
        edit.put_word(slots + index, Slot::encode(suffix, cell.long.is_some(), start));
        edit.put_u32(16, low_u32(to_u64(start)));
        if freed > 0 {
            edit.put_u32(20, low_u32(to_u64(dead + freed)));
        }
        Ok(true)
    }

    /// Rewrites a latched node with other entries; `false`: they do not fit, and nothing has
    /// changed.
    fn rewrite(&self, node: &WriteGuard<'_>, change: impl FnOnce(&mut Vec<Cell>)) -> Step<bool> {
        let (mut cells, prefix, level, first_child) = self.look(node, |view, _| {
            let first_child = view.words().u32(24)?;
            Some((view.cells()?, view.prefix()?, view.level(), first_child))
        })?;
        change(&mut cells);
        let builder = NodeBuilder { level, prefix: &prefix, first_child, cells: &cells };
        let Some(page) = builder.build(self.shape) else { return Ok(false) };
        self.fill(node, page);
        Ok(true)
    }

    /// Removes slot `index` of a latched node. Its extents are the caller's.
    pub(super) fn remove_slot(&self, node: &WriteGuard<'_>, index: usize) -> Step<()> {
        let (count, slots, dead, bytes) = self.look(node, |view, _| {
            let bytes = view.entry_bytes(&view.slot(index)?)?;
            Some((view.count(), view.slots_start() / 8, view.dead(), bytes))
        })?;
        let edit = node.edit();
        edit.move_words(slots + index + 1, slots + index, count - index - 1);
        set_count(&edit, count - 1);
        edit.put_u32(20, low_u32(to_u64(dead + bytes)));
        Ok(())
    }

    /// What goes with an entry of a leaf: its share of the figures and its extents.
    fn loss(&self, view: &NodeView<'_>, slot: &Slot, garbage: &mut Garbage) -> Option<Change> {
        let held = view.held(slot)?;
        let mut key_bytes = view.prefix_len() + slot.inline;
        if slot.long {
            let long = view.long_key(slot)?;
            key_bytes = Held::Here(0, crate::codec::to_usize(u64::from(long.length))).length();
            garbage.push(self.pages_of_key(long));
        }
        if let Held::Far(far) = &held {
            garbage.push(self.pages_of(far));
        }
        Some(Change { keys: -1, bytes: -signed(key_bytes + held.length()) })
    }

    /// Removes a key.
    pub fn delete(&self, key: &[u8]) -> Result<Change> {
        let mut garbage = Garbage::new();
        let (change, thin) = self.repeat(|tree| tree.delete_in_leaf(key, &mut garbage))?;
        self.let_go(garbage);
        if thin {
            self.mend(key)?;
        }
        Ok(change)
    }

    /// One attempt, and whether the leaf has become too empty.
    fn delete_in_leaf(&self, key: &[u8], garbage: &mut Garbage) -> Step<(Change, bool)> {
        let leaf = self.leaf_of(key)?;
        let (index, found) = self.look(&leaf, |view, fetch| view.search(key, fetch))?;
        let leaf = leaf.upgrade().ok_or(Stop::Again)?;
        if !found {
            return Ok((Change::default(), false));
        }
        let change = self.look(&leaf, |view, _| self.loss(view, &view.slot(index)?, garbage))?;
        self.remove_slot(&leaf, index)?;
        Ok((change, self.is_thin(&leaf)?))
    }

    /// Whether a latched node should look for a sibling.
    pub(super) fn is_thin(&self, node: &WriteGuard<'_>) -> Step<bool> {
        let used = self.look(node, |view, _| Some(self.used_bytes(view)))?;
        Ok(used < self.shape.underfull() && node.page() != super::ROOT)
    }

    /// Removes entries of one leaf: of the keys from `start` (included) to `end` (excluded) those
    /// whose value `doomed` condemns, or all. Says where to go on; `None` at the end.
    pub fn delete_some(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        doomed: Option<Condemn<'_>>,
    ) -> Result<(Change, Option<Vec<u8>>)> {
        let (change, thin, upper) =
            self.repeat(|tree| tree.delete_some_in_leaf(start, end, doomed))?;
        if thin {
            self.mend(start)?;
        }
        Ok((change, upper.filter(|upper| end.is_none_or(|end| **upper < *end))))
    }

    /// Removes all keys from `start` (included) to `end` (excluded).
    pub fn delete_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<Change> {
        let mut total = Change::default();
        let mut from = start.to_vec();
        loop {
            let (change, next) = self.delete_some(&from, end, None)?;
            total.add(change);
            match next {
                Some(next) => from = next,
                None => return Ok(total),
            }
        }
    }

    /// One leaf's part.
    fn delete_some_in_leaf(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        doomed: Option<Condemn<'_>>,
    ) -> Step<(Change, bool, Option<Vec<u8>>)> {
        let (leaf, bounds) = self.bounded_leaf(Target::Key(start))?;
        let (first, last) = self.look(&leaf, |view, fetch| {
            let first = view.search(start, fetch)?.0;
            let last = match end {
                Some(end) => view.search(end, fetch)?.0,
                None => view.count(),
            };
            Some((first, last))
        })?;
        let leaf = leaf.upgrade().ok_or(Stop::Again)?;
        let mut change = Change::default();
        let mut garbage = Garbage::new();
        let mut gone = Vec::new();
        for index in first..last {
            if let Some(doomed) = doomed
                && !doomed(&self.value_at(&leaf, index)?)
            {
                continue;
            }
            let loss =
                self.look(&leaf, |view, _| self.loss(view, &view.slot(index)?, &mut garbage))?;
            change.add(loss);
            gone.push(index);
        }
        if !gone.is_empty() {
            self.rewrite(&leaf, |cells| {
                let mut index = 0;
                cells.retain(|_| {
                    index += 1;
                    gone.binary_search(&(index - 1)).is_err()
                });
            })?;
        }
        let thin = !gone.is_empty() && self.is_thin(&leaf)?;
        drop(leaf);
        self.let_go(garbage);
        Ok((change, thin, bounds.upper))
    }

    /// A value of a latched leaf.
    fn value_at(&self, leaf: &WriteGuard<'_>, index: usize) -> Step<Vec<u8>> {
        let held = self.look(leaf, |view, _| view.held(&view.slot(index)?))?;
        let mut bytes = vec![0; held.length()];
        match &held {
            Held::Here(at, _) => leaf.words().copy_to(*at, &mut bytes).ok_or(Stop::Again)?,
            Held::Far(far) => self.read_value(leaf, far, &mut bytes)?,
        }
        Ok(bytes)
    }

    /// A new entry for a key that has none.
    pub(super) fn new_cell(&self, key: &[u8], stored: &Stored<'_>) -> Result<Cell> {
        let long = if self.shape.is_long(key) { Some(self.make_long(key)?) } else { None };
        Ok(Cell { key: key.to_vec(), long, payload: stored.payload() })
    }
}

/// What a new entry adds to the figures.
pub(super) fn added(key: &[u8], stored: &Stored<'_>) -> Change {
    Change { keys: 1, bytes: signed(key.len() + stored.length()) }
}

/// Sets the count of slots.
pub(super) fn set_count(edit: &crate::pages::cache::words::PageEdit<'_>, count: usize) {
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    edit.put_bytes(10, &count.to_le_bytes());
}

const _: () = assert!(HEAD_BYTES.is_multiple_of(8), "slots are whole words");
