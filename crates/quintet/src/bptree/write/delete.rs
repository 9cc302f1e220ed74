//! Deletes: of a key, of a range, and of the entries that a filter selects.
//!
//! A leaf that becomes underfull is merged afterwards ([`crate::bptree::restructure`]).

use crate::{
    Result,
    bptree::{
        node::{EntrySlot, NodeView, StoredValue},
        page_cache::{PageVersion, WriteGuard},
        read::Target,
        tree::{Attempt, CountChange, DropFilter, Garbage, ROOT, Stop, Tree, signed},
    },
    util::codec::to_usize,
};

impl Tree {
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

    /// Returns what the removal of a leaf's entry subtracts from the counts, and adds its extents
    /// to `garbage`.
    fn removal(
        &self,
        view: &NodeView<'_>,
        slot: &EntrySlot,
        garbage: &mut Garbage,
    ) -> Option<CountChange> {
        let stored = view.stored_value(slot)?;
        let mut key_bytes = view.prefix_len() + slot.inline;
        if slot.long {
            let long = view.long_key(slot)?;
            key_bytes = StoredValue::Inline(0, to_usize(u64::from(long.length))).length();
            garbage.push(self.pages_of_key(long));
        }
        if let StoredValue::Extent(extent) = &stored {
            garbage.push(self.pages_of(extent));
        }
        Some(CountChange { keys: -1, bytes: -signed(key_bytes + stored.length()) })
    }

    /// Returns a value of a latched leaf.
    fn value_at(&self, leaf: &WriteGuard<'_>, index: usize) -> Attempt<Vec<u8>> {
        let stored = self.with_view(leaf, |view, _| view.stored_value(&view.slot(index)?))?;
        let mut bytes = vec![0; stored.length()];
        match &stored {
            StoredValue::Inline(at, _) => {
                leaf.words().copy_to(*at, &mut bytes).ok_or(Stop::Restart)?;
            }
            StoredValue::Extent(extent) => self.read_value(leaf, extent, &mut bytes)?,
        }
        Ok(bytes)
    }

    /// Merges underfull nodes on the path to a key. Siblings that cannot be read stay as they are.
    fn rebalance_if(&self, is_underfull: bool, key: &[u8]) -> Result<()> {
        match if is_underfull { self.rebalance(key) } else { Ok(()) } {
            Err(crate::Error::Io { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Whether a latched node is underfull.
    pub(in crate::bptree) fn is_underfull(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        let used = self.with_view(node, |view, _| Some(self.used_bytes(view)))?;
        Ok(used < self.shape.underfull() && node.page() != ROOT)
    }
}
