//! Nodes of the tree: a view of a page's bytes.
//!
//! A node is a slotted page. After the header come hints, then the key prefix that all its keys
//! share, then the slots in key order; entries grow down from the page's end.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | | the cache's ([`crate::bptree::page_cache`]) |
//! | 8 | 1 | kind | 1 leaf, 2 inner, 3 part of an extent, 4 meta, 5 map, 6 packed leaf |
//! | 9 | 1 | level | 0 for leaves |
//! | 10 | 2 | count | slots |
//! | 12 | 2 | prefix length | bytes of prefix, at 96; the slots begin at the next multiple of 8 |
//! | 14 | 2 | value length | packed leaf: bytes of each value; else zero |
//! | 16 | 4 | heap start | offset of the lowest entry |
//! | 20 | 4 | dead | bytes of entries above the heap's start that no slot names |
//! | 24 | 4 | first child | inner: the child with the keys below the first slot's |
//! | 28 | 2 | skip | bytes behind the prefix that all keys here share and that heads leave out: 0, or at least 4 |
//! | 30 | 2 | | zero |
//! | 32 | 64 | hints | heads of 16 slots: number `i` is that of slot `(i + 1) * (count / 17)`; unused where there are fewer than 17 slots |
//!
//! Header and hints are the page's first two cache lines. A search reads them, one line of slots,
//! and the entry.
//!
//! A slot, 8 bytes, one aligned word:
//!
//! | bits | name | meaning |
//! |---|---|---|
//! | 0 to 14 | inline | bytes of the key, behind the prefix, that the entry holds |
//! | 15 | long | the whole key is in an extent |
//! | 16 to 31 | offset | of the entry |
//! | 32 to 63 | head | first four bytes of the key behind prefix and skip, big-endian, zero-padded
//! |
//!
//! An entry:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | 4 | word | inner: the child with the keys from this one on; leaf: length of the value, bit 31: in an extent, bit 30: in a direct one |
//! | inline | key | the key's bytes behind the prefix |
//! | 8 | long | of a long key: length of the whole key, first page of its extent |
//! | length, or 8 | value | leaf: the value; in an extent: first page, CRC32C |
//!
//! In a packed leaf all values are inline and have one length, no key is long, and skip is 0. Its
//! entries omit what header and slots store:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | inline less 4, or 0 | rest | the key's bytes behind the prefix and the slot's head |
//! | value length | value | |
//!
//! Only trees whose values mostly have one known length ([`TreeShape::value_bytes`]) have packed
//! leaves. They save 8 bytes an entry. An entry that does not have this form makes the leaf plain
//! again.
//!
//! Invariants: slots ascend; keys of up to [`TreeShape::key_inline_max`] bytes are never long,
//! longer ones always; a page's prefix is shared by every key that can ever come to it, because it
//! is shared by the keys between which its range lies.

use std::{cmp::Ordering, ops::Range};

use super::{
    TreeShape,
    build::{Cell, Payload},
};
use crate::{
    bptree::page_cache::page_bytes::{PageWords, head_of},
    util::{
        codec::{low_u8, low_u32, to_u64, to_usize},
        sync::{AtomicU64, Ordering::Relaxed},
    },
};

/// Returns the number of slots from one hint to the next; 0 if the node has no hints.
#[inline]
pub const fn hint_step(count: usize) -> usize {
    count / (HINTS + 1)
}

/// Page kind of a leaf.
pub const LEAF: u8 = 1;
/// Page kind of an inner node.
pub const INNER: u8 = 2;
/// Page kind of a page of an extent.
pub const EXTENT: u8 = 3;
/// Page kind of the meta page.
pub const META: u8 = 4;
/// Page kind of a map of free pages.
pub const MAP: u8 = 5;
/// Page kind of a packed leaf: all its values have one length.
pub const PACKED: u8 = 6;

/// Size of header and hints, in bytes; the prefix follows.
pub const HEAD_BYTES: usize = 96;
/// Number of hints: heads of evenly spaced slots. Header and hints fill two cache lines.
pub const HINTS: usize = 16;
/// Index of the first word of the hints.
pub const HINT_WORD: usize = 4;
/// Size of a slot in bytes.
pub const SLOT_BYTES: usize = 8;
/// Number of key bytes in a slot (its head).
pub const SLOT_KEY_BYTES: usize = 4;
/// Number of slots in a cache line.
const SLOTS_OF_LINE: usize = 64 / SLOT_BYTES;
/// Size of a reference to an extent, in bytes.
pub const REFERENCE_BYTES: usize = 8;
/// Largest skip, in bytes: four bytes less than the smallest page holds of a long key.
const SKIP_MAX: usize = TreeShape { page_bytes: 4096, value_bytes: 0 }.key_inline_max() - 4;
const LONG_FLAG: u64 = 1 << 15;
/// Flag in an entry's word: the value is in an extent.
const EXTENT_FLAG: u32 = 1 << 31;
/// Flag in an entry's word: the extent is direct (it bypasses the cache).
const DIRECT_FLAG: u32 = 1 << 30;

/// The reference to a long key in its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongKey {
    /// Length of the whole key, in bytes.
    pub length: u32,
    /// First page of the extent.
    pub page: u32,
}

/// The reference to a value that does not fit in its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRef {
    /// Length of the value, in bytes.
    pub length: u32,
    /// First page of the extent.
    pub page: u32,
    /// CRC32C of the value.
    pub checksum: u32,
    /// Whether the extent bypasses the cache.
    pub direct: bool,
}

impl ExtentRef {
    /// Returns the first word of the value's entry.
    pub const fn word(&self) -> u32 {
        self.length | EXTENT_FLAG | if self.direct { DIRECT_FLAG } else { 0 }
    }
}

/// A decoded slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySlot {
    /// The first four bytes of the key after prefix and skip, big-endian.
    pub head: u32,
    /// Offset of the entry in the page.
    pub offset: usize,
    /// Number of key bytes, after the prefix, that the node holds.
    pub inline: usize,
    /// Whether the whole key is in an extent.
    pub long: bool,
}

impl EntrySlot {
    #[inline]
    fn decode(word: u64) -> Self {
        Self {
            head: low_u32(word >> 32),
            offset: to_usize(word >> 16 & 0xffff),
            inline: to_usize(word & (LONG_FLAG - 1)),
            long: word & LONG_FLAG != 0,
        }
    }

    /// Returns the slot word with another offset of its entry.
    pub fn moved(word: u64, offset: usize) -> u64 {
        word & !0xffff_0000 | to_u64(offset) << 16
    }

    /// Returns the slot word of an entry at `offset`. `suffix` is the key after the prefix, as far
    /// as the node holds it; its head begins at byte `skip`.
    pub fn encode(suffix: &[u8], skip: usize, long: bool, offset: usize) -> u64 {
        let head = head_of(suffix.get(skip..).unwrap_or(&[])) >> 32;
        let flag = if long { LONG_FLAG } else { 0 };
        head << 32 | to_u64(offset) << 16 | flag | to_u64(suffix.len())
    }
}

/// Where the value of a leaf's entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue {
    /// In the leaf: offset in the page, and length.
    Inline(usize, usize),
    /// In an extent.
    Extent(ExtentRef),
}

impl StoredValue {
    /// Returns the length of the value, in bytes.
    pub fn length(&self) -> usize {
        match self {
            Self::Inline(_, length) => *length,
            Self::Extent(extent) => to_usize(u64::from(extent.length)),
        }
    }
}

/// Reads a whole long key. Returns `None` if the page that referred to it has changed.
pub type Fetch<'f> = &'f mut dyn FnMut(LongKey) -> Option<Vec<u8>>;

/// A view of a node's bytes. Every method returns `None` if the bytes make no sense: the page has
/// changed meanwhile, or is not a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    words: PageWords<'a>,
    count: usize,
    prefix: usize,
    kind: u8,
    /// Length of each value of a packed leaf; 0 for other nodes.
    value_bytes: usize,
}

/// Returns the number of bytes to skip before the heads of a node with these first and last keys,
/// given after the prefix. It is 0 unless the heads would all be equal. A node holds at least four
/// bytes more of a long key than the skip.
pub fn skip_of(first: &[u8], last: &[u8]) -> usize {
    let shared = shared_len(first, last).min(SKIP_MAX);
    if shared < 4 { 0 } else { shared }
}

/// The state of a search in a node: the key's head, and the range of slots that the hints leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeSearch {
    head: u32,
    /// The first slot whose head is not below the key's is at this index or after it ...
    low: usize,
    /// ... and at this one or before it. Slots with the key's head are before it.
    high: usize,
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
    const fn is_packed(&self) -> bool {
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

    /// Returns the part of a key that begins with its head. If the key does not share the skipped
    /// bytes, returns how it compares with all keys of the node.
    #[inline]
    fn headed<'k>(&self, suffix: &'k [u8]) -> Option<Result<&'k [u8], Ordering>> {
        let skip = self.skip();
        if skip == 0 { Some(Ok(suffix)) } else { self.headed_behind(skip, suffix) }
    }

    #[cold]
    fn headed_behind<'k>(
        &self,
        skip: usize,
        suffix: &'k [u8],
    ) -> Option<Result<&'k [u8], Ordering>> {
        let Some(first) = self.slot(0) else { return Some(Err(Ordering::Greater)) };
        let shared = suffix.get(..skip.min(suffix.len()))?;
        Some(match self.words.compare(first.offset + 4, skip, shared)? {
            Ordering::Equal => Ok(suffix.get(skip..)?),
            order => Err(order.reverse()),
        })
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

    /// Compares the key of a slot with a key whose part after prefix and skip is `suffix`. The
    /// heads of the two are equal.
    #[inline]
    fn compare_same_head(
        &self,
        slot: &EntrySlot,
        suffix: &[u8],
        fetch: Fetch<'_>,
    ) -> Option<Ordering> {
        if slot.long {
            return self.compare_long(slot, suffix, fetch);
        }
        if self.is_packed() {
            return self.compare_packed(slot, suffix);
        }
        let skip = self.skip();
        let (at, inline) = (slot.offset + 4 + skip, slot.inline.checked_sub(skip)?);
        // The heads are known to be equal, as far as both keys go.
        if inline >= 4 && suffix.len() >= 4 {
            return self.words.compare(at + 4, inline - 4, suffix.get(4..)?);
        }
        self.words.compare(at, inline, suffix)
    }

    /// As [`NodeView::compare_same_head`], in a packed leaf.
    #[inline]
    fn compare_packed(&self, slot: &EntrySlot, suffix: &[u8]) -> Option<Ordering> {
        if let Some(rest) = suffix.get(SLOT_KEY_BYTES..)
            && let Some(length) = slot.inline.checked_sub(SLOT_KEY_BYTES)
        {
            return self.words.compare(slot.offset, length, rest);
        }
        // One of the two ends within the head.
        let head = slot.head.to_be_bytes();
        Some(head.get(..slot.inline.min(SLOT_KEY_BYTES))?.cmp(suffix))
    }

    #[cold]
    fn compare_long(&self, slot: &EntrySlot, suffix: &[u8], fetch: Fetch<'_>) -> Option<Ordering> {
        let skip = self.skip();
        let (at, inline) = (slot.offset + 4 + skip, slot.inline.checked_sub(skip)?);
        let shared = suffix.len().min(inline);
        let order = self.words.compare(at, shared, suffix.get(..shared)?)?;
        let long = self.long_key(slot)?;
        let ours = to_usize(u64::from(long.length)).checked_sub(self.prefix + skip)?;
        if order != Ordering::Equal || suffix.len() <= inline || ours <= inline {
            return Some(order.then(ours.cmp(&suffix.len())));
        }
        Some(fetch(long)?.get(self.prefix + skip..)?.cmp(suffix))
    }

    /// Compares a key with the prefix: `Equal` if it begins with the prefix.
    #[inline]
    fn compare_prefix(&self, key: &[u8]) -> Option<Ordering> {
        if self.prefix == 0 {
            return Some(Ordering::Equal);
        }
        let shared = key.get(..self.prefix.min(key.len()))?;
        self.words.compare(HEAD_BYTES, self.prefix, shared).map(Ordering::reverse)
    }

    /// Returns the first slot whose key is not below `key`, and whether the two are equal.
    #[inline]
    pub fn search(&self, key: &[u8], fetch: Fetch<'_>) -> Option<(usize, bool)> {
        match self.compare_prefix(key)? {
            Ordering::Less => Some((0, false)),
            Ordering::Greater => Some((self.count, false)),
            Ordering::Equal => self.search_inside(key, fetch),
        }
    }

    /// As [`NodeView::search`], for a key within the bounds of the node: it begins with the prefix.
    #[inline]
    pub fn search_inside(&self, key: &[u8], fetch: Fetch<'_>) -> Option<(usize, bool)> {
        let state = self.seek(key)?;
        self.prefetch_between(state.low, state.high);
        let at = self.narrow(&state)?;
        self.compare_at(&state, at, key, fetch)
    }

    /// First step of a search: reads header and hints, and returns the range of slots to search.
    #[inline]
    pub fn seek(&self, key: &[u8]) -> Option<NodeSearch> {
        let none = |at| NodeSearch { head: 0, low: at, high: at };
        let suffix = match self.headed(key.get(self.prefix..)?)? {
            Ok(headed) => headed,
            Err(Ordering::Less) => return Some(none(0)),
            Err(_) => return Some(none(self.count)),
        };
        let head = low_u32(head_of(suffix) >> 32);
        let (low, high) = self.bracket(head)?;
        Some(NodeSearch { head, low, high })
    }

    /// Second step: reads slots, and returns the first one whose head is not below the key's.
    #[inline]
    pub fn narrow(&self, state: &NodeSearch) -> Option<usize> {
        let slots = self.words.slice(self.slots_start() / 8 + state.low, state.high - state.low);
        let below = |slot: &AtomicU64| low_u32(slot.load(Relaxed) >> 32) < state.head;
        Some(state.low + slots?.partition_point(below))
    }

    /// Last step: compares the key with that of the slot that [`NodeView::narrow`] found.
    #[inline]
    pub fn compare_at(
        &self,
        state: &NodeSearch,
        at: usize,
        key: &[u8],
        fetch: Fetch<'_>,
    ) -> Option<(usize, bool)> {
        // The slot after the range has another head.
        if at >= state.high {
            return Some((at, false));
        }
        let Some(slot) = self.slot(at).filter(|slot| slot.head == state.head) else {
            return Some((at, false));
        };
        // The value follows the key in memory.
        self.words.prefetch(slot.offset + 64);
        self.words.prefetch(slot.offset + 128);
        let suffix = key.get(self.prefix + self.skip()..)?;
        match self.compare_same_head(&slot, suffix, fetch)? {
            Ordering::Equal => Some((at, true)),
            Ordering::Greater => Some((at, false)),
            Ordering::Less => self.search_run(at + 1, state, suffix, fetch),
        }
    }

    /// Prefetches the cache lines of slots `low..high`, which a binary search would load one after
    /// the other.
    #[inline]
    fn prefetch_between(&self, low: usize, high: usize) {
        let (mut at, end) = (low + SLOTS_OF_LINE, high.min(low + 8 * SLOTS_OF_LINE));
        while at < end {
            self.words.prefetch(self.slots_start() + at * SLOT_BYTES);
            at += SLOTS_OF_LINE;
        }
    }

    /// Binary search over slots of which several may have the key's head.
    #[cold]
    fn search_run(
        &self,
        mut low: usize,
        &NodeSearch { head, mut high, .. }: &NodeSearch,
        suffix: &[u8],
        fetch: Fetch<'_>,
    ) -> Option<(usize, bool)> {
        while low < high {
            let middle = usize::midpoint(low, high);
            let slot = self.slot(middle)?;
            let order = match slot.head.cmp(&head) {
                Ordering::Equal => self.compare_same_head(&slot, suffix, fetch)?,
                order => order,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some((middle, true)),
            }
        }
        Some((low, false))
    }

    /// Returns the range in which the first slot lies whose head is not below `head`. Slots with
    /// this head lie below the end of the range.
    #[inline]
    fn bracket(&self, head: u32) -> Option<(usize, usize)> {
        let step = hint_step(self.count);
        if step == 0 {
            return Some((0, self.count));
        }
        let hints = self.words.slice(HINT_WORD, HINTS / 2)?.first_chunk::<{ HINTS / 2 }>()?;
        let mut below = 0;
        for pair in hints {
            let pair = pair.load(Relaxed);
            below += usize::from(low_u32(pair) < head) + usize::from(low_u32(pair >> 32) < head);
        }
        let hint = |index: usize| {
            let pair = hints.get(index / 2).map(|pair| pair.load(Relaxed));
            pair.map(|pair| low_u32(pair >> (index % 2 * 32)))
        };
        let mut above = below;
        while hint(above) == Some(head) {
            above += 1;
        }
        let low = if below == 0 { 0 } else { step * below + 1 };
        let high = if above == HINTS { self.count } else { step * (above + 1) };
        Some((low, high))
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

    /// Prefetches the slots that [`NodeView::narrow`] will read.
    #[inline]
    pub fn prefetch_slots(&self, state: &NodeSearch) {
        self.words.prefetch(self.slots_start() + state.low * SLOT_BYTES);
        self.words.prefetch(self.slots_start() + state.high * SLOT_BYTES);
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

/// Whether a leaf that could be packed is better plain: its heads would all be equal, and the plain
/// form fits in a page.
pub const fn is_plain_better(skip: usize, plain_bytes: usize, shape: TreeShape) -> bool {
    skip > 0 && plain_bytes <= shape.page_bytes
}

/// Returns the length of the common prefix of two byte strings.
pub fn shared_len(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
