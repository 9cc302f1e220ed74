//! Changes of one leaf: puts, deletes, deletes of a range.
//!
//! How: a writer descends without latches and upgrades the leaf that it finds. A change that fits
//! is made in place: a value of the same size is overwritten, a new entry goes into the gap between
//! slots and entries, a page with holes is compacted first. A change that does not fit goes to
//! [`crate::bptree::restructure`].

use super::{
    Attempt, CountChange, Garbage, Stop, Tree, TreeShape,
    build::{Cell, NodeBuilder, Payload},
    node::{
        EntrySlot, HEAD_BYTES, HINT_WORD, HINTS, LongKey, NodeView, SLOT_BYTES, SLOT_KEY_BYTES,
        StoredValue, hint_step, skip_of,
    },
    read::Target,
    signed,
};
use crate::{
    Result,
    bptree::page_cache::{
        PagePin, PageVersion, ReadGuard, WriteGuard,
        page_bytes::{PageEdit, head_of},
    },
    util::{
        codec::{low_u32, to_u64, to_usize},
        sync::{Ordering, lock},
    },
};

/// Returns whether the entry with this stored value is to be removed (a compaction filter).
pub type DropFilter<'c> = &'c dyn Fn(&[u8]) -> bool;

/// A value to be put: in two pieces, or already in an extent.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewValue<'v> {
    Inline([&'v [u8]; 2]),
    Extent(super::node::ExtentRef),
}

impl NewValue<'_> {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Inline([head, body]) => head.len() + body.len(),
            Self::Extent(extent) => StoredValue::Extent(*extent).length(),
        }
    }

    /// Whether the value is inline and has this length.
    fn is_here(&self, length: usize) -> bool {
        matches!(self, Self::Inline(_)) && self.length() == length
    }

    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Inline(pieces) => Payload::Inline(pieces.concat()),
            Self::Extent(extent) => Payload::Extent(*extent),
        }
    }
}

impl TreeShape {
    /// Whether a key is too long for a node, so that an extent holds it.
    pub fn is_long(self, key: &[u8]) -> bool {
        key.len() > self.key_inline_max()
    }

    /// Whether the leaf holds an entry of this key and value whole.
    pub fn is_inline(self, key: &[u8], value_bytes: usize) -> bool {
        let key_bytes = if self.is_long(key) { self.key_inline_max() + 8 } else { key.len() };
        SLOT_BYTES + 4 + key_bytes + value_bytes <= self.entry_max()
    }
}

impl Tree {
    /// Returns the number of pages that a put of this size may create, splits excluded.
    pub fn pages_for(&self, key: &[u8], value_bytes: usize) -> u64 {
        let long = self.shape.is_long(key);
        let key_pages = if long { 2 * self.extent_pages(key.len(), false) } else { 0 };
        let extent = !self.shape.is_inline(key, value_bytes) && !self.is_direct(value_bytes);
        key_pages + if extent { self.extent_pages(value_bytes, false) } else { 0 }
    }

    /// Loads the leaf of a key into the cache for a write to come, and pins it.
    pub fn pin_leaf(&self, key: &[u8]) -> Result<PagePin> {
        if let Some(pin) = self.last_leaf_for(key).and_then(|leaf| leaf.pin()) {
            return Ok(pin);
        }
        self.repeat(|tree| {
            let leaf = tree.leaf_of(key)?;
            // The cache lines load while the write is logged.
            if let Some(view) = NodeView::new(leaf.words()) {
                view.prefetch_room();
                if let Some(search) = view.seek(key) {
                    view.prefetch_slots(&search);
                }
            }
            leaf.pin().ok_or(Stop::Restart)
        })
    }

    /// Returns the leaf of a key: `known_leaf` if it is given and unchanged.
    fn leaf_for(&self, known_leaf: &mut Option<PageVersion>, key: &[u8]) -> Attempt<ReadGuard<'_>> {
        match known_leaf.take().and_then(|leaf| self.cache.revalidate(&leaf)) {
            Some(leaf) => Ok(leaf),
            None => match self.last_leaf_for(key) {
                Some(leaf) => Ok(leaf),
                None => self.leaf_of(key),
            },
        }
    }

    /// Returns the last leaf if puts come in ascending order and this key is above all others.
    #[inline]
    fn last_leaf_for(&self, key: &[u8]) -> Option<ReadGuard<'_>> {
        if !self.is_appending.load(Ordering::Relaxed) {
            return None;
        }
        let leaf = lock(&self.last_leaf).and_then(|leaf| self.cache.revalidate(&leaf));
        let leaf = leaf.filter(|leaf| {
            let place = self.with_view(leaf, |view, fetch| {
                let (index, found) = view.search(key, fetch)?;
                Some(!found && index > 0 && index == view.count())
            });
            matches!(place, Ok(true)) && leaf.is_unchanged()
        });
        if leaf.is_none() {
            self.is_appending.store(false, Ordering::Relaxed);
        }
        leaf
    }

    /// Records the last leaf, to which a put has appended a key.
    pub(super) fn set_last_leaf(&self, leaf: PageVersion) {
        *lock(&self.last_leaf) = Some(leaf);
        self.is_appending.store(true, Ordering::Relaxed);
    }

    /// Sets the value of a key. `known_leaf` is its leaf, if the caller knows it. On an error the
    /// tree is unchanged.
    pub fn put(
        &self,
        key: &[u8],
        pieces: [&[u8]; 2],
        known_leaf: Option<PageVersion>,
    ) -> Result<CountChange> {
        let length = pieces[0].len() + pieces[1].len();
        let stored = if self.shape.is_inline(key, length) {
            NewValue::Inline(pieces)
        } else {
            NewValue::Extent(self.write_value(pieces)?)
        };
        let mut garbage = Garbage::new();
        let mut known_leaf = known_leaf;
        let done =
            self.repeat(|tree| tree.put_in_leaf(key, &stored, &mut garbage, &mut known_leaf));
        let change = match done {
            Ok(None) => self.put_from_root(key, &stored, &mut garbage),
            outcome => outcome.map(Option::unwrap_or_default),
        };
        if let (Err(_), NewValue::Extent(extent)) = (&change, &stored) {
            garbage = vec![self.pages_of(extent)];
        }
        self.free_pages(garbage);
        change
    }

    /// One attempt; returns `None` if the leaf has no room.
    fn put_in_leaf(
        &self,
        key: &[u8],
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
        known_leaf: &mut Option<PageVersion>,
    ) -> Attempt<Option<CountChange>> {
        let leaf = self.leaf_for(known_leaf, key)?;
        Ok(self.put_at(&leaf, key, stored, garbage)?.map(|(change, _)| change))
    }

    /// One attempt in the leaf that a key belongs to. Returns the change and the leaf's version
    /// after it, or `None` if the leaf has no room.
    pub(super) fn put_at(
        &self,
        leaf: &ReadGuard<'_>,
        key: &[u8],
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
    ) -> Attempt<Option<(CountChange, PageVersion)>> {
        let (index, found) = self.with_view(leaf, |view, fetch| view.search(key, fetch))?;
        let seen = leaf.page_version();
        let leaf = leaf.upgrade().ok_or(Stop::Restart)?;
        let after = leaf.version_after();
        if found {
            let change = self.replace(&leaf, index, stored, garbage)?;
            return Ok(change.map(|change| (change, after)));
        }
        let change = self.insert(&leaf, index, key, stored)?;
        if change.is_some() && self.is_appending.load(Ordering::Relaxed) {
            let mut last = lock(&self.last_leaf);
            if *last == Some(seen) {
                *last = Some(after);
            }
        }
        Ok(change.map(|change| (change, after)))
    }

    /// Replaces the value of slot `index` of a latched leaf. Returns `None` if the leaf has no
    /// room.
    pub(super) fn replace(
        &self,
        leaf: &WriteGuard<'_>,
        index: usize,
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
    ) -> Attempt<Option<CountChange>> {
        let (slot, old, old_bytes, packed) = self.with_view(leaf, |view, _| {
            let slot = view.slot(index)?;
            Some((slot, view.stored_value(&slot)?, view.entry_bytes(&slot)?, view.packed()))
        })?;
        if packed.is_some_and(|length| !stored.is_here(length)) {
            return if self.unpack(leaf)? {
                self.replace(leaf, index, stored, garbage)
            } else {
                Ok(None)
            };
        }
        let bytes = signed(stored.length()) - signed(old.length());
        let change = CountChange { keys: 0, bytes };
        if let (StoredValue::Inline(at, length), NewValue::Inline(pieces)) = (&old, stored)
            && *length == stored.length()
        {
            let edit = leaf.edit();
            edit.put_bytes(*at, pieces[0]);
            edit.put_bytes(at + pieces[0].len(), pieces[1]);
            return Ok(Some(change));
        }
        let mut cell = self.with_view(leaf, |view, _| view.cell(index))?;
        cell.payload = stored.payload();
        if !self.put_cell(leaf, index, &cell, Some((slot, old_bytes)))? {
            return Ok(None);
        }
        if let StoredValue::Extent(extent) = &old {
            garbage.push(self.pages_of(extent));
        }
        Ok(Some(change))
    }

    /// Inserts an entry before slot `index` of a latched leaf. Returns `None` if the leaf has no
    /// room.
    pub(super) fn insert(
        &self,
        leaf: &WriteGuard<'_>,
        index: usize,
        key: &[u8],
        stored: &NewValue<'_>,
    ) -> Attempt<Option<CountChange>> {
        let (free, prefix, packed) =
            self.with_view(leaf, |view, _| Some((view.free(), view.prefix_len(), view.packed())))?;
        let long = self.shape.is_long(key);
        if packed.is_some_and(|length| long || !stored.is_here(length)) {
            return if self.unpack(leaf)? {
                self.insert(leaf, index, key, stored)
            } else {
                Ok(None)
            };
        }
        let change = added(key, stored);
        if !long && let NewValue::Inline([head, body]) = stored {
            let suffix = key.get(prefix..).ok_or(Stop::Restart)?;
            let length = low_u32(to_u64(head.len() + body.len())).to_le_bytes();
            let (word, rest) = match packed {
                Some(_) => (&[][..], suffix.get(SLOT_KEY_BYTES..).unwrap_or(&[])),
                None => (&length[..], suffix),
            };
            let entry = RawEntry { suffix, long: false, pieces: [word, rest, head, body] };
            return Ok(self.put_entry(leaf, index, &entry, None)?.then_some(change));
        }
        let mut cell = Cell { key: key.to_vec(), long: None, payload: stored.payload() };
        // Counts the reference of a long key too: its extent is written only once the entry is
        // known to fit.
        let wanted = SLOT_BYTES + cell.entry_bytes(self.shape, prefix).min(self.shape.page_bytes);
        let wanted = if long { self.shape.entry_max() } else { wanted };
        if wanted > free {
            return Ok(None);
        }
        if long {
            cell.long = Some(self.write_long_key(key)?);
        }
        let put = self.put_cell(leaf, index, &cell, None)?;
        debug_assert!(put, "an entry for which there was room");
        Ok(put.then_some(change))
    }

    /// Writes a long key to a new extent.
    pub(super) fn write_long_key(&self, key: &[u8]) -> Result<LongKey> {
        let page = self.write_cached([key, &[]])?;
        Ok(LongKey { length: low_u32(to_u64(key.len())), page: page.0 })
    }

    /// Inserts an entry before slot `index` of a latched node, or replaces the entry of that slot
    /// if `old` gives the slot and its entry's size. Returns `false`, with no change, if there is
    /// no room.
    pub(super) fn put_cell(
        &self,
        node: &WriteGuard<'_>,
        index: usize,
        cell: &Cell,
        old: Option<(EntrySlot, usize)>,
    ) -> Attempt<bool> {
        let prefix = self.with_view(node, |view, _| Some(view.prefix_len()))?;
        let mut entry = Vec::with_capacity(cell.entry_bytes(self.shape, prefix));
        cell.encode(self.shape, prefix, &mut entry);
        let suffix = cell.suffix(self.shape, prefix);
        let entry = RawEntry { suffix, long: cell.long.is_some(), pieces: [&entry, &[], &[], &[]] };
        self.put_entry(node, index, &entry, old)
    }

    /// As [`Tree::put_cell`], for an entry in pieces.
    fn put_entry(
        &self,
        node: &WriteGuard<'_>,
        index: usize,
        entry: &RawEntry<'_>,
        old: Option<(EntrySlot, usize)>,
    ) -> Attempt<bool> {
        let slot_bytes = if old.is_some() { 0 } else { SLOT_BYTES };
        let freed = old.map_or(0, |(_, bytes)| bytes);
        let wanted = entry.len() + slot_bytes;
        let (free, gap) = self.with_view(node, |view, _| Some((view.free(), view.gap())))?;
        if wanted > free + freed {
            return Ok(false);
        }
        let skip = self.update_skip(node, entry.suffix)?;
        let moved = wanted > gap;
        if moved {
            self.compact(node, old.map(|_| index))?;
        }
        let (heap, count, dead, slots) = self.with_view(node, |view, _| {
            Some((view.heap_start()?, view.count(), view.dead(), view.slots_start() / 8))
        })?;
        let edit = node.edit();
        let start = heap - entry.len();
        let mut at = start;
        for piece in entry.pieces {
            edit.put_bytes(at, piece);
            at += piece.len();
        }
        if old.is_none() {
            edit.move_words(slots + index, slots + index + 1, count - index);
        }
        edit.put_word(slots + index, EntrySlot::encode(entry.suffix, skip, entry.long, start));
        let dead = if moved { 0 } else { dead + freed };
        edit.put_word(2, to_u64(dead) << 32 | to_u64(start));
        update_hints(&edit, slots, count + usize::from(old.is_none()), index);
        Ok(true)
    }

    /// Returns the skip of a latched node after a key is added whose part after the prefix is
    /// `suffix`. If the key does not share the skipped bytes, the skip shrinks; if all heads are
    /// equal, it grows. A root needs this: it has no prefix and is never rebuilt.
    fn update_skip(&self, node: &WriteGuard<'_>, suffix: &[u8]) -> Attempt<usize> {
        let (before, tells_nothing) = self.with_view(node, |view, _| {
            if view.packed().is_some() {
                return Some((0, false));
            }
            let last = view.slot(view.count().saturating_sub(1));
            let same = view.slot(0).zip(last).is_some_and(|(one, two)| one.head == two.head);
            Some((view.skip(), same && view.count() > HINTS))
        })?;
        if before == 0 && !tells_nothing {
            return Ok(0);
        }
        let suffixes = self.with_view(node, |view, _| {
            let one = |index| {
                let slot = view.slot(index)?;
                view.words().copy(slot.offset + 4, slot.inline)
            };
            let shares = one(0).is_some_and(|first| skip_of(&first, suffix) >= before);
            let all = || (0..view.count()).map(one).collect::<Option<Vec<_>>>();
            if shares && before > 0 { Some(None) } else { all().map(Some) }
        })?;
        let Some(suffixes) = suffixes else { return Ok(before) };
        let (first, last) = (suffixes.first(), suffixes.last());
        let skip = first
            .zip(last)
            .map_or(0, |(first, last)| skip_of(first, suffix).min(skip_of(first, last)));
        if skip == before {
            return Ok(before);
        }
        let slots = self.with_view(node, |view, _| Some(view.slots_start() / 8))?;
        let edit = node.edit();
        for (index, suffix) in suffixes.iter().enumerate() {
            let head = head_of(suffix.get(skip..).unwrap_or(&[])) >> 32;
            edit.put_word(slots + index, edit.word(slots + index) & 0xffff_ffff | head << 32);
        }
        edit.put_word(3, edit.word(3) & 0xffff_ffff | to_u64(skip) << 32);
        update_hints(&edit, slots, suffixes.len(), 0);
        Ok(skip)
    }

    /// Compacts the entries of a latched node. The entry of slot `removed`, if given, is dropped.
    fn compact(&self, node: &WriteGuard<'_>, removed: Option<usize>) -> Attempt<()> {
        let page_bytes = self.shape.page_bytes;
        let entries = self.with_view(node, |view, _| {
            let one = |index| {
                let slot = view.slot(index)?;
                Some((slot.offset, view.entry_bytes(&slot)?))
            };
            (0..view.count()).map(one).collect::<Option<Vec<_>>>()
        })?;
        let slots = self.with_view(node, |view, _| Some(view.slots_start() / 8))?;
        let image = node.words().copy(0, page_bytes).ok_or(Stop::Restart)?;
        let edit = node.edit();
        let mut heap = page_bytes;
        for (index, (offset, bytes)) in entries.into_iter().enumerate() {
            if removed == Some(index) {
                continue;
            }
            heap -= bytes;
            edit.put_bytes(heap, image.get(offset..offset + bytes).ok_or(Stop::Restart)?);
            edit.put_word(slots + index, EntrySlot::moved(edit.word(slots + index), heap));
        }
        edit.put_word(2, to_u64(heap));
        Ok(())
    }

    /// Turns a latched packed leaf into a plain one. Returns `false`, with no change, if its
    /// entries do not fit.
    fn unpack(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        self.rewrite(node, TreeShape { value_bytes: 0, ..self.shape }, |_| {})
    }

    /// Rewrites a latched node with other entries. Returns `false`, with no change, if they do not
    /// fit.
    fn rewrite(
        &self,
        node: &WriteGuard<'_>,
        shape: TreeShape,
        change: impl FnOnce(&mut Vec<Cell>),
    ) -> Attempt<bool> {
        let (mut cells, prefix, level, first_child) = self.with_view(node, |view, _| {
            let first_child = view.words().u32(24)?;
            Some((view.cells()?, view.prefix()?, view.level(), first_child))
        })?;
        change(&mut cells);
        let builder = NodeBuilder { level, prefix: &prefix, first_child, cells: &cells };
        let Some(page) = builder.build(shape) else { return Ok(false) };
        self.fill(node, page);
        Ok(true)
    }

    /// Removes slot `index` of a latched node. The caller frees its extents.
    pub(super) fn remove_slot(&self, node: &WriteGuard<'_>, index: usize) -> Attempt<()> {
        let (count, slots, dead, bytes) = self.with_view(node, |view, _| {
            let bytes = view.entry_bytes(&view.slot(index)?)?;
            Some((view.count(), view.slots_start() / 8, view.dead(), bytes))
        })?;
        let edit = node.edit();
        edit.move_words(slots + index + 1, slots + index, count - index - 1);
        update_hints(&edit, slots, count - 1, index);
        edit.put_u32(20, low_u32(to_u64(dead + bytes)));
        Ok(())
    }

    /// Returns what the removal of a leaf's entry subtracts from the counts, and adds its extents
    /// to `garbage`.
    fn removal(
        &self,
        view: &NodeView<'_>,
        slot: &EntrySlot,
        garbage: &mut Garbage,
    ) -> Option<CountChange> {
        let old = view.stored_value(slot)?;
        let mut key_bytes = view.prefix_len() + slot.inline;
        if slot.long {
            let long = view.long_key(slot)?;
            key_bytes = StoredValue::Inline(0, to_usize(u64::from(long.length))).length();
            garbage.push(self.pages_of_key(long));
        }
        if let StoredValue::Extent(extent) = &old {
            garbage.push(self.pages_of(extent));
        }
        Some(CountChange { keys: -1, bytes: -signed(key_bytes + old.length()) })
    }

    /// Removes a key. `known_leaf` is its leaf, if the caller knows it.
    pub fn delete(&self, key: &[u8], known_leaf: Option<PageVersion>) -> Result<CountChange> {
        let mut garbage = Garbage::new();
        let mut known_leaf = known_leaf;
        let (change, is_underfull) =
            self.repeat(|tree| tree.delete_in_leaf(key, &mut garbage, &mut known_leaf))?;
        self.free_pages(garbage);
        self.rebalance_if(is_underfull, key)?;
        Ok(change)
    }

    /// Merges underfull nodes on the path to a key. Siblings that cannot be read stay as they are.
    fn rebalance_if(&self, is_underfull: bool, key: &[u8]) -> Result<()> {
        match if is_underfull { self.rebalance(key) } else { Ok(()) } {
            Err(crate::Error::Io { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// One attempt; also returns whether the leaf has become underfull.
    fn delete_in_leaf(
        &self,
        key: &[u8],
        garbage: &mut Garbage,
        known_leaf: &mut Option<PageVersion>,
    ) -> Attempt<(CountChange, bool)> {
        let leaf = self.leaf_for(known_leaf, key)?;
        let (index, found) = self.with_view(&leaf, |view, fetch| view.search(key, fetch))?;
        let leaf = leaf.upgrade().ok_or(Stop::Restart)?;
        if !found {
            return Ok((CountChange::default(), false));
        }
        let change =
            self.with_view(&leaf, |view, _| self.removal(view, &view.slot(index)?, garbage))?;
        self.remove_slot(&leaf, index)?;
        Ok((change, self.is_underfull(&leaf)?))
    }

    /// Whether a latched node is underfull.
    pub(super) fn is_underfull(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        let used = self.with_view(node, |view, _| Some(self.used_bytes(view)))?;
        Ok(used < self.shape.underfull() && node.page() != super::ROOT)
    }

    /// Removes entries of one leaf with keys from `start` (included) to `end` (excluded): those
    /// whose value the filter selects, or all. If the leaf is not in the cache, `ahead` leaves
    /// after it are read from disk with it. Returns where to continue; `None` at the end.
    pub fn delete_some(
        &self,
        (start, end): (&[u8], Option<&[u8]>),
        ahead: isize,
        filter: Option<DropFilter<'_>>,
    ) -> Result<(CountChange, Option<Vec<u8>>)> {
        let (change, is_underfull, upper) =
            self.repeat(|tree| tree.delete_some_in_leaf((start, end), ahead, filter))?;
        self.rebalance_if(is_underfull, start)?;
        Ok((change, upper.filter(|upper| end.is_none_or(|end| **upper < *end))))
    }

    /// Removes all keys from `start` (included) to `end` (excluded).
    #[cfg(test)]
    pub fn delete_range(&self, start: &[u8], end: Option<&[u8]>) -> Result<CountChange> {
        let mut total = CountChange::default();
        let mut from = start.to_vec();
        loop {
            let (change, next) = self.delete_some((&from, end), 0, None)?;
            total.add(change);
            match next {
                Some(next) => from = next,
                None => return Ok(total),
            }
        }
    }

    /// One attempt in one leaf.
    fn delete_some_in_leaf(
        &self,
        (start, end): (&[u8], Option<&[u8]>),
        ahead: isize,
        filter: Option<DropFilter<'_>>,
    ) -> Attempt<(CountChange, bool, Option<Vec<u8>>)> {
        let (leaf, bounds) = self.bounded_leaf_ahead(Target::Key(start), ahead)?;
        let (first, last) = self.with_view(&leaf, |view, fetch| {
            let first = view.search(start, fetch)?.0;
            let last = match end {
                Some(end) => view.search(end, fetch)?.0,
                None => view.count(),
            };
            Some((first, last))
        })?;
        let leaf = leaf.upgrade().ok_or(Stop::Restart)?;
        let mut change = CountChange::default();
        let mut garbage = Garbage::new();
        let mut removed = Vec::new();
        for index in first..last {
            if let Some(filter) = filter
                && !filter(&self.value_at(&leaf, index)?)
            {
                continue;
            }
            let removal = self
                .with_view(&leaf, |view, _| self.removal(view, &view.slot(index)?, &mut garbage))?;
            change.add(removal);
            removed.push(index);
        }
        if !removed.is_empty() {
            self.rewrite(&leaf, self.shape, |cells| {
                let mut index = 0;
                cells.retain(|_| {
                    index += 1;
                    removed.binary_search(&(index - 1)).is_err()
                });
            })?;
        }
        let is_underfull = !removed.is_empty() && self.is_underfull(&leaf)?;
        drop(leaf);
        self.free_pages(garbage);
        Ok((change, is_underfull, bounds.upper))
    }

    /// Returns a value of a latched leaf.
    fn value_at(&self, leaf: &WriteGuard<'_>, index: usize) -> Attempt<Vec<u8>> {
        let old = self.with_view(leaf, |view, _| view.stored_value(&view.slot(index)?))?;
        let mut bytes = vec![0; old.length()];
        match &old {
            StoredValue::Inline(at, _) => {
                leaf.words().copy_to(*at, &mut bytes).ok_or(Stop::Restart)?
            }
            StoredValue::Extent(extent) => self.read_value(leaf, extent, &mut bytes)?,
        }
        Ok(bytes)
    }

    /// Returns an entry for a new key. Writes a long key to an extent.
    pub(super) fn new_cell(&self, key: &[u8], stored: &NewValue<'_>) -> Result<Cell> {
        let long = if self.shape.is_long(key) { Some(self.write_long_key(key)?) } else { None };
        Ok(Cell { key: key.to_vec(), long, payload: stored.payload() })
    }
}

/// Returns what a new entry adds to the counts.
pub(super) fn added(key: &[u8], stored: &NewValue<'_>) -> CountChange {
    CountChange { keys: 1, bytes: signed(key.len() + stored.length()) }
}

/// An encoded entry.
#[derive(Clone, Copy, Debug)]
struct RawEntry<'e> {
    /// The key bytes that the node holds, after the prefix.
    suffix: &'e [u8],
    /// Whether the key is long.
    long: bool,
    /// The entry.
    pieces: [&'e [u8]; 4],
}

impl RawEntry<'_> {
    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}

/// Sets the number of slots and updates the hints. Slots before `changed` are as before.
fn update_hints(edit: &PageEdit<'_>, slots: usize, count: usize, changed: usize) {
    let word = edit.word(1) & !0xffff_0000;
    let before = to_usize(edit.word(1) >> 16 & 0xffff);
    edit.put_word(1, word | to_u64(count) << 16);
    let step = hint_step(count);
    if step == 0 {
        return;
    }
    // Hints of slots before the change stay valid if their distance is the same.
    let pin = if step == hint_step(before) { changed.saturating_sub(1) / step } else { 0 };
    let head = |hint: usize| edit.word(slots + (hint + 1) * step) >> 32;
    for pair in pin.min(HINTS) / 2..HINTS / 2 {
        edit.put_word(HINT_WORD + pair, head(2 * pair) | head(2 * pair + 1) << 32);
    }
}

const _: () = assert!(HEAD_BYTES.is_multiple_of(8), "slots are whole words");
