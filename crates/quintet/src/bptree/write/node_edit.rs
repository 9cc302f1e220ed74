//! Changes of one latched node: entries put, replaced and removed.
//!
//! How: a new entry goes into the gap between slots and entries. A page with holes is compacted
//! first. The hints, and the skip of the heads, follow each change of the slots.

use super::new_entry::RawEntry;
use crate::{
    bptree::{
        node::{
            Cell, EntrySlot, HEAD_BYTES, HINT_WORD, HINTS, NodeBuilder, SLOT_BYTES, TreeShape,
            hint_step, skip_of,
        },
        page_cache::{
            WriteGuard,
            page_bytes::{PageEdit, head_of},
        },
        tree::{Attempt, Stop, Tree},
    },
    util::codec::{low_u32, to_u64, to_usize},
};

impl Tree {
    /// Inserts an entry before slot `index` of a latched node, or replaces the entry of that slot
    /// if `old` gives the slot and its entry's size. Returns `false`, with no change, if there is
    /// no room.
    pub(in crate::bptree) fn put_cell(
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
    pub(super) fn put_entry(
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
    pub(super) fn unpack(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        self.rewrite(node, TreeShape { value_bytes: 0, ..self.shape }, |_| {})
    }

    /// Rewrites a latched node with other entries. Returns `false`, with no change, if they do not
    /// fit.
    pub(super) fn rewrite(
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
    pub(in crate::bptree) fn remove_slot(
        &self,
        node: &WriteGuard<'_>,
        index: usize,
    ) -> Attempt<()> {
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
