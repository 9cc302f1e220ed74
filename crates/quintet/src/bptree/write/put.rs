//! Puts into one leaf.
//!
//! How: a value of the same size is overwritten; other entries go through
//! [`super::node_edit`]. An entry that does not fit goes to [`crate::bptree::restructure`].

use super::new_entry::{NewValue, RawEntry, added};
use crate::{
    Result,
    bptree::{
        node::{Cell, LongKey, NodeView, SLOT_BYTES, SLOT_KEY_BYTES, StoredValue},
        page_cache::{PagePin, PageVersion, ReadGuard, WriteGuard},
        tree::{Attempt, CountChange, Garbage, Stop, Tree, signed},
    },
    util::{
        codec::{low_u32, to_u64},
        sync::{Ordering, lock},
    },
};

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
    pub(super) fn leaf_for(
        &self,
        known_leaf: &mut Option<PageVersion>,
        key: &[u8],
    ) -> Attempt<ReadGuard<'_>> {
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
            let is_last = self.with_view(leaf, |view, fetch| {
                let (index, found) = view.search(key, fetch)?;
                Some(!found && index > 0 && index == view.count())
            });
            matches!(is_last, Ok(true)) && leaf.is_unchanged()
        });
        if leaf.is_none() {
            self.is_appending.store(false, Ordering::Relaxed);
        }
        leaf
    }

    /// Records the last leaf, to which a put has appended a key.
    pub(in crate::bptree) fn set_last_leaf(&self, leaf: PageVersion) {
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
    pub(in crate::bptree) fn put_at(
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
    pub(in crate::bptree) fn replace(
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
        if packed.is_some_and(|length| !stored.is_inline(length)) {
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
    pub(in crate::bptree) fn insert(
        &self,
        leaf: &WriteGuard<'_>,
        index: usize,
        key: &[u8],
        stored: &NewValue<'_>,
    ) -> Attempt<Option<CountChange>> {
        let (free, prefix, packed) =
            self.with_view(leaf, |view, _| Some((view.free(), view.prefix_len(), view.packed())))?;
        let long = self.shape.is_long(key);
        if packed.is_some_and(|length| long || !stored.is_inline(length)) {
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
    pub(in crate::bptree) fn write_long_key(&self, key: &[u8]) -> Result<LongKey> {
        let page = self.write_cached([key, &[]])?;
        Ok(LongKey { length: low_u32(to_u64(key.len())), page: page.0 })
    }

    /// Returns an entry for a new key. Writes a long key to an extent.
    pub(in crate::bptree) fn new_cell(&self, key: &[u8], stored: &NewValue<'_>) -> Result<Cell> {
        let long = if self.shape.is_long(key) { Some(self.write_long_key(key)?) } else { None };
        Ok(Cell { key: key.to_vec(), long, payload: stored.payload() })
    }
}
