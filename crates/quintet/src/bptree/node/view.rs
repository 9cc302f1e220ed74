//! A view of a node's bytes: header, slots, keys and values.

use std::ops::Range;

use super::{
    cell::{Cell, Payload},
    entry::{DIRECT_FLAG, EXTENT_FLAG, EntrySlot, ExtentRef, LongKey, StoredValue},
    heads::hint_step,
    layout::{
        HEAD_BYTES, HINT_WORD, HINTS, INNER, LEAF, PACKED, REFERENCE_BYTES, SLOT_BYTES,
        SLOT_KEY_BYTES,
    },
};
use crate::{
    bptree::page_cache::page_bytes::{PageWords, head_of},
    util::codec::{low_u8, low_u32, to_u64, to_usize},
};

/// Reads a whole long key. Returns `None` if the page that referred to it has changed.
pub type Fetch<'f> = &'f mut dyn FnMut(LongKey) -> Option<Vec<u8>>;

/// The state of a search in a node: the key's head, and the range of slots that the hints leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSearch {
    pub(super) head: u32,
    /// The first slot whose head is not below the key's is at this index or after it ...
    pub(super) low: usize,
    /// ... and at this one or before it. Slots with the key's head are before it.
    pub(super) high: usize,
}

/// A view of a node's bytes. Every method returns `None` if the bytes make no sense: the page has
/// changed meanwhile, or is not a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub(super) words: PageWords<'a>,
    pub(super) count: usize,
    pub(super) prefix: usize,
    pub(super) kind: u8,
    /// Length of each value of a packed leaf; 0 for other nodes.
    pub(super) value_bytes: usize,
}

impl<'a> NodeView<'a> {
    /// Returns a view of a page; `None` if it is no leaf and no inner node.
    #[inline]
    pub fn new(words: PageWords<'a>) -> Option<Self> {
        let head = words.word(1)?;
        let kind = low_u8(head);
        let view = Self {
            kind,
            words,
            count: to_usize(head >> 16 & 0xffff),
            prefix: to_usize(head >> 32 & 0xffff),
            value_bytes: to_usize(head >> 48),
        };
        let sound = matches!(kind, LEAF | INNER | PACKED) && view.slots_end() <= words.len();
        sound.then_some(view)
    }

    /// Whether the node is a leaf.
    #[inline]
    pub const fn is_leaf(&self) -> bool {
        self.kind != INNER
    }

    /// Returns the length of each value of a packed leaf; `None` for other nodes.
    #[inline]
    pub const fn packed(&self) -> Option<usize> {
        if self.is_packed() { Some(self.value_bytes) } else { None }
    }

    #[inline]
    pub(super) const fn is_packed(&self) -> bool {
        self.kind == PACKED
    }

    /// Returns the level of the node: 0 for leaves.
    pub fn level(&self) -> u8 {
        self.words.u8(9).unwrap_or(0)
    }

    /// Returns the number of slots.
    #[inline]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the length of the prefix, in bytes.
    pub const fn prefix_len(&self) -> usize {
        self.prefix
    }

    /// Returns the number of bytes after the prefix that all keys share and heads leave out.
    #[inline]
    pub fn skip(&self) -> usize {
        self.words.word(3).map_or(0, |word| to_usize(word >> 32 & 0xffff))
    }

    /// Returns the offset of the first slot.
    #[inline]
    pub const fn slots_start(&self) -> usize {
        (HEAD_BYTES + self.prefix).next_multiple_of(8)
    }

    /// Returns the offset after the last slot.
    #[inline]
    pub const fn slots_end(&self) -> usize {
        self.slots_start() + self.count * SLOT_BYTES
    }

    /// Returns the offset of the lowest entry.
    pub fn heap_start(&self) -> Option<usize> {
        self.words.u32(16).map(|value| to_usize(u64::from(value)))
    }

    /// Returns the number of bytes of entries that no slot refers to.
    pub fn dead(&self) -> usize {
        self.words.u32(20).map_or(0, |value| to_usize(u64::from(value)))
    }

    /// Returns the number of bytes between slots and entries.
    pub fn gap(&self) -> usize {
        self.heap_start().unwrap_or(0).saturating_sub(self.slots_end())
    }

    /// Returns the number of bytes that are free after a compaction of the page.
    pub fn free(&self) -> usize {
        self.gap() + self.dead()
    }

    /// Returns the prefix.
    pub fn prefix(&self) -> Option<Vec<u8>> {
        self.words.copy(HEAD_BYTES, self.prefix)
    }

    /// Returns the slot at `index`.
    #[inline]
    pub fn slot(&self, index: usize) -> Option<EntrySlot> {
        if index >= self.count {
            return None;
        }
        self.words.word(self.slots_start() / 8 + index).map(EntrySlot::decode)
    }

    /// Returns the first word of an entry of a plain node.
    #[inline]
    pub fn entry_word(&self, slot: &EntrySlot) -> Option<u32> {
        self.words.u32(slot.offset)
    }

    /// Returns the reference to a long key.
    pub fn long_key(&self, slot: &EntrySlot) -> Option<LongKey> {
        let at = slot.offset + 4 + slot.inline;
        Some(LongKey { length: self.words.u32(at)?, page: self.words.u32(at + 4)? })
    }

    /// Returns the number of bytes of an entry before its value.
    const fn front_bytes(&self, slot: &EntrySlot) -> usize {
        if self.is_packed() {
            return slot.inline.saturating_sub(SLOT_KEY_BYTES);
        }
        4 + slot.inline + if slot.long { REFERENCE_BYTES } else { 0 }
    }

    /// Returns the first word of a leaf's entry, as a plain leaf stores it, and the range of the
    /// value or of the reference to it.
    pub fn payload(&self, slot: &EntrySlot) -> Option<(u32, Range<usize>)> {
        let at = slot.offset + self.front_bytes(slot);
        let (word, length) = match self.packed() {
            Some(length) => (low_u32(to_u64(length)), length),
            None => {
                (self.entry_word(slot)?, self.entry_bytes(slot)?.checked_sub(at - slot.offset)?)
            }
        };
        Some((word, at..at + length))
    }

    /// Returns the value of a leaf's entry.
    #[inline]
    pub fn stored_value(&self, slot: &EntrySlot) -> Option<StoredValue> {
        let at = slot.offset + self.front_bytes(slot);
        if let Some(length) = self.packed() {
            return (at + length <= self.words.len()).then_some(StoredValue::Inline(at, length));
        }
        let word = self.entry_word(slot)?;
        let length = word & !(EXTENT_FLAG | DIRECT_FLAG);
        if word & EXTENT_FLAG == 0 {
            let length = to_usize(u64::from(length));
            return (at + length <= self.words.len()).then_some(StoredValue::Inline(at, length));
        }
        let (page, checksum) = (self.words.u32(at)?, self.words.u32(at + 4)?);
        let direct = word & DIRECT_FLAG != 0;
        Some(StoredValue::Extent(ExtentRef { length, page, checksum, direct }))
    }

    /// Returns the size of an entry in bytes, without its slot.
    pub fn entry_bytes(&self, slot: &EntrySlot) -> Option<usize> {
        let own = self.front_bytes(slot);
        if !self.is_leaf() {
            return Some(own);
        }
        Some(match self.stored_value(slot)? {
            StoredValue::Inline(_, length) => own + length,
            StoredValue::Extent(_) => own + REFERENCE_BYTES,
        })
    }

    /// Returns as many bytes of a key as the page holds, prefix included. This is the whole key
    /// unless it is long.
    pub fn inline_key(&self, slot: &EntrySlot) -> Option<Vec<u8>> {
        let mut key = self.prefix()?;
        self.push_suffix(slot, &mut key)?;
        Some(key)
    }

    /// Appends the bytes of a key that its slot holds and its entry does not (packed leaves).
    /// Returns their number.
    #[inline]
    pub fn push_slot_bytes(&self, slot: &EntrySlot, out: &mut Vec<u8>) -> Option<usize> {
        if !self.is_packed() {
            return Some(0);
        }
        let slot_bytes = slot.inline.min(SLOT_KEY_BYTES);
        out.extend_from_slice(slot.head.to_be_bytes().get(..slot_bytes)?);
        Some(slot_bytes)
    }

    /// Appends as many bytes of a key after the prefix as the page holds.
    #[inline]
    pub fn push_suffix(&self, slot: &EntrySlot, out: &mut Vec<u8>) -> Option<()> {
        let slot_bytes = self.push_slot_bytes(slot, out)?;
        let length = slot.inline - slot_bytes;
        let at = slot.offset + if self.is_packed() { 0 } else { 4 };
        // A page that has changed yields an arbitrary length.
        if at + length > self.words.len() {
            return None;
        }
        let start = out.len();
        out.resize(start + length, 0);
        self.words.copy_to(at, out.get_mut(start..)?)
    }

    /// Returns the whole key of a slot.
    pub fn full_key(&self, slot: &EntrySlot, fetch: Fetch<'_>) -> Option<Vec<u8>> {
        if slot.long { fetch(self.long_key(slot)?) } else { self.inline_key(slot) }
    }

    /// Whether the hints agree with the slots.
    pub fn hints_match(&self) -> bool {
        let step = hint_step(self.count);
        let hint = |index: usize| self.words.u32((HINT_WORD + index / 2) * 8 + index % 2 * 4);
        let head = |index: usize| self.slot((index + 1) * step).map(|slot| slot.head);
        step == 0 || (0..HINTS).all(|index| hint(index) == head(index))
    }

    /// Whether all heads agree with their keys.
    pub fn heads_match(&self) -> bool {
        let skip = self.skip();
        if self.is_packed() {
            // Here a head is part of its key; only the padding of a short key can be wrong.
            let is_padded = |slot: EntrySlot| {
                let unused = SLOT_KEY_BYTES.saturating_sub(slot.inline);
                slot.head & low_u32((1 << (8 * unused)) - 1) == 0 && !slot.long
            };
            return skip == 0
                && (0..self.count).all(|index| self.slot(index).is_some_and(is_padded));
        }
        let skipped = self.slot(0).and_then(|slot| self.words.copy(slot.offset + 4, skip));
        (0..self.count).all(|index| {
            let Some(slot) = self.slot(index) else { return false };
            let suffix = self.words.copy(slot.offset + 4, slot.inline).unwrap_or_default();
            let (front, rest) = suffix.split_at_checked(skip).unwrap_or_default();
            skipped.as_deref() == Some(front) && u64::from(slot.head) == head_of(rest) >> 32
        })
    }

    /// Prefetches the space for a new entry: three cache lines before the lowest entry.
    #[inline]
    pub fn prefetch_room(&self) {
        let heap = self.heap_start().unwrap_or(0);
        for line in [1, 65, 129] {
            self.words.prefetch(heap.saturating_sub(line));
        }
    }

    /// Prefetches the entry of the slot at `index`. A hint: any index is allowed.
    #[inline]
    pub fn prefetch_near(&self, index: usize) {
        if let Some(slot) = self.slot(index) {
            for line in [0, 64, 128] {
                self.words.prefetch(slot.offset + line);
            }
        }
    }

    /// Returns the page of child `index`: 0 is the first child, `index` that of slot `index - 1`.
    #[inline]
    pub fn child(&self, index: usize) -> Option<u32> {
        match index.checked_sub(1) {
            None => self.words.u32(24),
            Some(index) => self.entry_word(&self.slot(index)?),
        }
    }

    /// Returns the number of the child that `key` belongs to.
    #[inline]
    pub fn child_of(&self, key: &[u8], fetch: Fetch<'_>) -> Option<usize> {
        let (index, found) = self.search_inside(key, fetch)?;
        Some(index + usize::from(found))
    }

    /// Returns a copy of an entry.
    pub fn cell(&self, index: usize) -> Option<Cell> {
        let slot = self.slot(index)?;
        let long = if slot.long { Some(self.long_key(&slot)?) } else { None };
        let key = self.inline_key(&slot)?;
        let payload = if self.is_leaf() {
            match self.stored_value(&slot)? {
                StoredValue::Inline(at, length) => Payload::Inline(self.words.copy(at, length)?),
                StoredValue::Extent(extent) => Payload::Extent(extent),
            }
        } else {
            Payload::Child(self.entry_word(&slot)?)
        };
        Some(Cell { key, long, payload })
    }

    /// Returns copies of all entries.
    pub fn cells(&self) -> Option<Vec<Cell>> {
        (0..self.count).map(|index| self.cell(index)).collect()
    }

    /// Returns the words of the page.
    pub const fn words(&self) -> PageWords<'a> {
        self.words
    }
}
