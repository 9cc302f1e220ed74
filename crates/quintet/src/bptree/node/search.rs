//! The search of a key in a node, in three steps.
//!
//! [`NodeView::seek`] reads header and hints, [`NodeView::narrow`] one cache line of slots, and
//! [`NodeView::compare_at`] the entry. A batch of lookups runs each step for all its keys, so that
//! their cache misses overlap.

use std::cmp::Ordering;

use super::{
    entry::EntrySlot,
    heads::hint_step,
    layout::{HEAD_BYTES, HINT_WORD, HINTS, SLOT_BYTES, SLOT_KEY_BYTES},
    view::{Fetch, NodeSearch, NodeView},
};
use crate::{
    bptree::page_cache::page_bytes::head_of,
    util::{
        codec::{low_u32, to_usize},
        sync::{AtomicU64, Ordering::Relaxed},
    },
};

/// Number of slots in a cache line.
const SLOTS_OF_LINE: usize = 64 / SLOT_BYTES;

impl NodeView<'_> {
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

    /// Returns the range that contains the first slot whose head is not below `head`. Slots with
    /// this head are before the end of the range.
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

    /// Prefetches the slots that [`NodeView::narrow`] will read.
    #[inline]
    pub fn prefetch_slots(&self, state: &NodeSearch) {
        self.words.prefetch(self.slots_start() + state.low * SLOT_BYTES);
        self.words.prefetch(self.slots_start() + state.high * SLOT_BYTES);
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
}
