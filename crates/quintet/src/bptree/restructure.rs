//! Changes of several nodes: splits and merges, from the root down, with parent and child latched.
//!
//! How: on the way down to put, a child without room for one more separator (a leaf: for the entry)
//! is split while its parent, which has room, is latched. On the way down after a delete, an
//! underfull child is merged with a sibling or takes entries from it. The root keeps its page: when
//! it is full, its content moves to a new child; when it has one child left, that child's content
//! moves up.
//!
//! Start with `Tree::put_down` and [`Tree::rebalance`].

use super::{
    Attempt, CountChange, Garbage, ROOT, Stop, Tree,
    build::{Cell, NodeBuilder, Payload},
    fill_used,
    node::{SLOT_BYTES, StoredValue, shared_len},
    read::Bounds,
    split::LeafEntries,
    write::{NewValue, added},
};
use crate::{
    Result,
    bptree::page_cache::{PageId, WriteGuard},
    util::{codec::to_usize, mutant::mutant},
};

/// A decoded node.
#[derive(Debug)]
struct NodeContent {
    level: u8,
    first_child: u32,
    cells: Vec<Cell>,
}

/// A latched child and its bounds.
struct LatchedChild<'t> {
    /// Its number among the children of the parent.
    index: usize,
    guard: WriteGuard<'t>,
    bounds: Bounds,
}

impl Tree {
    /// Puts an entry into a leaf that may be full; splits on the way.
    pub(super) fn put_from_root(
        &self,
        key: &[u8],
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
    ) -> Result<CountChange> {
        self.repeat(|tree| tree.put_down(key, stored, garbage))
    }

    fn put_down(
        &self,
        key: &[u8],
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
    ) -> Attempt<CountChange> {
        let mut parent = self.cache.write(ROOT)?;
        let mut bounds = Bounds::default();
        if let Some(change) = self.put_if_room(&parent, key, stored, garbage)? {
            return Ok(change);
        }
        if !self.has_room_for_separator(&parent)? || self.is_leaf(&parent)? {
            self.grow_root(&parent)?;
        }
        loop {
            let child = self.latch_child(&parent, key, &bounds)?;
            if self.is_leaf(&child.guard)? {
                if let Some(change) = self.put_if_room(&child.guard, key, stored, garbage)? {
                    return Ok(change);
                }
                return self.split_leaf((&parent, &bounds), child, key, stored, garbage);
            }
            if self.has_room_for_separator(&child.guard)? {
                parent = child.guard;
                bounds = child.bounds;
                continue;
            }
            let (guard, new_bounds) = self.split_inner(&parent, child, key)?;
            parent = guard;
            bounds = new_bounds;
        }
    }

    /// Puts an entry into a latched leaf. Returns `None` if there is no room or the node is no
    /// leaf.
    fn put_if_room(
        &self,
        node: &WriteGuard<'_>,
        key: &[u8],
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
    ) -> Attempt<Option<CountChange>> {
        if !self.is_leaf(node)? {
            return Ok(None);
        }
        let (index, found) = self.with_view(node, |view, fetch| view.search(key, fetch))?;
        if found {
            return self.replace(node, index, stored, garbage);
        }
        self.insert(node, index, key, stored)
    }

    pub(super) fn is_leaf(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        self.with_view(node, |view, _| Some(view.is_leaf()))
    }

    fn has_room_for_separator(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        self.with_view(node, |view, _| Some(view.free() >= self.shape.separator_max()))
    }

    /// Latches the child that a key belongs to. Fails with `Corruption` if its level is wrong.
    fn latch_child<'t>(
        &'t self,
        parent: &WriteGuard<'_>,
        key: &[u8],
        bounds: &Bounds,
    ) -> Attempt<LatchedChild<'t>> {
        let (index, child) = self.with_view(parent, |view, fetch| {
            let index = view.child_of(key, fetch)?;
            Some((index, view.child(index)?))
        })?;
        let bounds = self.child_bounds(parent, index, bounds)?;
        // A page that refers to its parent would deadlock.
        if PageId(child) == parent.page() {
            return Err(self.damage(parent.page(), "it is its own child"));
        }
        let guard = self.cache.write(PageId(child))?;
        let levels =
            [parent, &guard].map(|node| self.with_view(node, |view, _| Some(view.level())));
        let [above, below] = levels;
        if above? != below?.saturating_add(1) {
            return Err(self.damage(guard.page(), "its level does not follow from its parent's"));
        }
        Ok(LatchedChild { index, guard, bounds })
    }

    /// Returns the bounds of child `index` of a latched node.
    pub(super) fn child_bounds(
        &self,
        parent: &WriteGuard<'_>,
        index: usize,
        bounds: &Bounds,
    ) -> Attempt<Bounds> {
        self.with_view(parent, |view, fetch| {
            let lower = match index.checked_sub(1) {
                Some(below) => Some(view.full_key(&view.slot(below)?, fetch)?),
                None => bounds.lower.clone(),
            };
            let upper = if index < view.count() {
                Some(view.full_key(&view.slot(index)?, fetch)?)
            } else {
                bounds.upper.clone()
            };
            Some(Bounds { lower, upper })
        })
    }

    fn content(&self, node: &WriteGuard<'_>) -> Attempt<NodeContent> {
        self.with_view(node, |view, _| {
            let (level, first_child) = (view.level(), view.words().u32(24)?);
            Some(NodeContent { level, first_child, cells: view.cells()? })
        })
    }

    /// Writes a node whose keys are within `bounds`.
    fn store(
        &self,
        node: &WriteGuard<'_>,
        holder: &WriteGuard<'_>,
        content: &mut NodeContent,
        bounds: &Bounds,
    ) -> Attempt<()> {
        let prefix = bounds.prefix(self.shape.prefix_max());
        self.complete(holder, &mut content.cells, prefix.len())?;
        let NodeContent { level, first_child, cells } = content;
        let (level, first_child) = (*level, *first_child);
        let builder = NodeBuilder { level, prefix, first_child, cells };
        let page = builder.build(self.shape);
        let page = page.ok_or_else(|| self.damage(node.page(), "its entries do not fit"))?;
        self.fill(node, page);
        Ok(())
    }

    /// Reads the long keys of which a page with a prefix of this length stores more than is known.
    /// `holder` is latched and refers to them, or did so before this change.
    fn complete(&self, holder: &WriteGuard<'_>, cells: &mut [Cell], prefix: usize) -> Attempt<()> {
        for cell in cells {
            let Some(long) = cell.long else { continue };
            let length = to_usize(u64::from(long.length));
            if cell.key.len() < length.min(prefix + self.shape.key_inline_max()) {
                cell.key = self.fetch(holder, long)?;
            }
        }
        Ok(())
    }

    /// Moves the root's content to a new child: the tree grows by one level.
    fn grow_root(&self, root: &WriteGuard<'_>) -> Attempt<()> {
        let content = self.content(root)?;
        let level = content.level;
        let child = self.cache.create_to_fill(self.allocator.allocate())?;
        let page = root.words().copy(0, self.shape.page_bytes).ok_or(Stop::Restart)?;
        self.fill(&child, page);
        let top =
            NodeBuilder { level: level + 1, prefix: &[], first_child: child.page().0, cells: &[] };
        let page = top.build(self.shape).ok_or(Stop::Restart)?;
        self.fill(root, page);
        self.count_node(level + 1, true);
        Ok(())
    }

    /// Splits a leaf without room for a new entry (or a new value), or redistributes entries to its
    /// neighbour. `parent` is latched.
    fn split_leaf(
        &self,
        (parent, parent_bounds): (&WriteGuard<'_>, &Bounds),
        child: LatchedChild<'_>,
        key: &[u8],
        stored: &NewValue<'_>,
        garbage: &mut Garbage,
    ) -> Attempt<CountChange> {
        let LatchedChild { index, guard: left, bounds } = child;
        let (at, found) = self.with_view(&left, |view, fetch| view.search(key, fetch))?;
        if !self.shape.is_long(key)
            && let NewValue::Inline(value) = stored
        {
            let new = NewEntry { at, found, key, value: *value };
            let before = self.with_view(&left, |view, _| {
                let slot = if found { Some(view.slot(at)?) } else { None };
                slot.map_or(Some(None), |slot| view.stored_value(&slot).map(Some))
            })?;
            let full = FullLeaf { index, leaf: &left, bounds: &bounds };
            if self.redistribute(parent, parent_bounds, &full, &new)?
                || self.split_as_bytes(parent, &full, &new)?
            {
                let Some(before) = before else { return Ok(added(key, stored)) };
                if let StoredValue::Extent(extent) = &before {
                    garbage.push(self.pages_of(extent));
                }
                let bytes = super::signed(stored.length()) - super::signed(before.length());
                return Ok(CountChange { keys: 0, bytes });
            }
        }
        let mut content = self.content(&left)?;
        let change = if found {
            let cell = content.cells.get_mut(at).ok_or(Stop::Restart)?;
            let before = self.payload_length(&cell.payload, garbage);
            cell.payload = stored.payload();
            CountChange { keys: 0, bytes: super::signed(stored.length()) - super::signed(before) }
        } else {
            content.cells.insert(at, self.new_cell(key, stored)?);
            added(key, stored)
        };
        // Ascending loads fill leaves to the end.
        let appends = !found && at + 1 == content.cells.len() && bounds.upper.is_none();
        let split = if appends { at } else { self.middle(&content.cells) };
        let right_cells = content.cells.split_off(split);
        let separator = self.separator(&left, &content.cells, &right_cells)?;
        let mut right_content = NodeContent { level: 0, first_child: 0, cells: right_cells };
        let right = self.cache.create_to_fill(self.allocator.allocate())?;
        let (low, high) = divide(bounds, &separator);
        self.store(&right, &left, &mut right_content, &high)?;
        self.store(&left, &left, &mut content, &low)?;
        self.add_separator(parent, index, &separator, right.page())?;
        self.count_node(0, true);
        Ok(change)
    }

    /// Splits a leaf without decoding its entries. Returns `false` if it has a long key.
    fn split_as_bytes(
        &self,
        parent: &WriteGuard<'_>,
        full: &FullLeaf<'_>,
        new: &NewEntry<'_>,
    ) -> Attempt<bool> {
        let (left, bounds) = (full.leaf, full.bounds);
        let entries = self.with_view(left, |view, _| {
            let mut entries = LeafEntries::new(view.prefix()?);
            let taken = entries.add_leaf_with(view, (new.at, new.found), new.key, new.value);
            Some(taken.map(|()| (entries, view.count())))
        })?;
        let Some((entries, old_count)) = entries.filter(|(entries, _)| entries.count() > 1) else {
            return Ok(false);
        };
        // Ascending loads fill leaves to the end: the new one begins with the new key.
        let appends = bounds.upper.is_none() && !new.found && new.at == old_count;
        let middle = if appends { new.at } else { entries.part(0, 2) };
        let invalid_node = || self.damage(left.page(), "it cannot be split");
        let separator = entries.separator(middle).ok_or_else(invalid_node)?;
        let (low, high) = divide(bounds.clone(), &separator);
        let page = |range, bounds: &Bounds| {
            entries.page_within(self.shape, range, bounds).ok_or_else(invalid_node)
        };
        let (left_page, right_page) =
            (page(0..middle, &low)?, page(middle..entries.count(), &high)?);
        let right = self.cache.create_to_fill(self.allocator.allocate())?;
        self.fill(&right, right_page);
        fill_used(left, &left_page).ok_or_else(invalid_node)?;
        self.set_leaf_lines(entries.count());
        if appends {
            self.set_last_leaf(right.version_after());
        }
        self.add_separator(parent, full.index, &separator, right.page())?;
        self.count_node(0, true);
        Ok(true)
    }

    fn payload_length(&self, payload: &Payload, garbage: &mut Garbage) -> usize {
        match payload {
            Payload::Inline(value) => value.len(),
            Payload::Extent(extent) => {
                garbage.push(self.pages_of(extent));
                to_usize(u64::from(extent.length))
            }
            Payload::Child(_) => 0,
        }
    }

    /// Returns the number of the first entry of the right half, by bytes. Neither half is empty.
    fn middle(&self, cells: &[Cell]) -> usize {
        let size = |cell: &Cell| SLOT_BYTES + cell.entry_bytes(self.shape, 0);
        let total: usize = cells.iter().map(size).sum();
        let mut sum = 0;
        let half = cells.iter().position(|cell| {
            sum += size(cell);
            sum * 2 >= total
        });
        let half = half.unwrap_or(0) + 1;
        half.clamp(1, cells.len().saturating_sub(1).max(1))
    }

    /// Returns the shortest key above the last of `left` that is not above the first of `right`.
    fn separator(
        &self,
        holder: &WriteGuard<'_>,
        left: &[Cell],
        right: &[Cell],
    ) -> Attempt<Vec<u8>> {
        let (Some(below), Some(above)) = (left.last(), right.first()) else {
            return Err(self.damage(holder.page(), "it has too few entries to split"));
        };
        // All bytes of a key that is not long are known.
        let shared = shared_len(&below.key, &above.key);
        let decided = shared < below.key.len() || below.long.is_none();
        if shared < above.key.len() && decided {
            return Ok(above.key.get(..=shared).unwrap_or(&above.key).to_vec());
        }
        let (below, above) = (self.whole_key(holder, below)?, self.whole_key(holder, above)?);
        let shared = shared_len(&below, &above);
        Ok(above.get(..=shared).unwrap_or(&above).to_vec())
    }

    /// Inserts a separator and the child right of it after child `index` of a latched node, which
    /// has room.
    fn add_separator(
        &self,
        parent: &WriteGuard<'_>,
        index: usize,
        separator: &[u8],
        child: PageId,
    ) -> Attempt<()> {
        mutant!(SplitLosesSeparator => return Ok(()));
        let long = if self.shape.is_long(separator) {
            Some(self.write_long_key(separator)?)
        } else {
            None
        };
        let cell = Cell { key: separator.to_vec(), long, payload: Payload::Child(child.0) };
        self.add_child(parent, index, &cell)
    }

    fn add_child(&self, parent: &WriteGuard<'_>, index: usize, cell: &Cell) -> Attempt<()> {
        if self.put_cell(parent, index, cell, None)? {
            return Ok(());
        }
        Err(self.damage(parent.page(), "it has no room for a separator"))
    }

    /// Splits an inner node. Returns the half that a key belongs to, and its bounds.
    fn split_inner<'t>(
        &'t self,
        parent: &WriteGuard<'_>,
        child: LatchedChild<'t>,
        key: &[u8],
    ) -> Attempt<(WriteGuard<'t>, Bounds)> {
        let LatchedChild { index, guard: left, bounds } = child;
        let mut content = self.content(&left)?;
        let last = content.cells.len().saturating_sub(2);
        let middle = if bounds.upper.is_none() { last } else { self.middle(&content.cells) };
        let right_cells = content.cells.split_off((middle + 1).min(content.cells.len()));
        let Some(mut up) = content.cells.pop() else {
            return Err(self.damage(left.page(), "it has too few entries to split"));
        };
        let Payload::Child(first_child) = up.payload else { return Err(Stop::Restart) };
        let mut right_content =
            NodeContent { level: content.level, first_child, cells: right_cells };
        let right = self.cache.create_to_fill(self.allocator.allocate())?;
        self.complete(&left, std::slice::from_mut(&mut up), usize::MAX / 2)?;
        let (low, high) = divide(bounds, &up.key);
        self.store(&right, &left, &mut right_content, &high)?;
        self.store(&left, &left, &mut content, &low)?;
        up.payload = Payload::Child(right.page().0);
        self.add_child(parent, index, &up)?;
        self.count_node(content.level, true);
        Ok(if key < &*up.key { (left, low) } else { (right, high) })
    }

    /// Merges underfull nodes on the path to a key.
    pub(super) fn rebalance(&self, key: &[u8]) -> Result<()> {
        mutant!(DeleteNeverMerges => return Ok(()));
        let mut garbage = Garbage::new();
        self.repeat(|tree| tree.rebalance_down(key, &mut garbage))?;
        self.free_pages(garbage);
        Ok(())
    }

    fn rebalance_down(&self, key: &[u8], garbage: &mut Garbage) -> Attempt<()> {
        let mut parent = self.cache.write(ROOT)?;
        let mut bounds = Bounds::default();
        while !self.is_leaf(&parent)? {
            if parent.page() == ROOT && self.shrink_root(&parent, garbage)? {
                continue;
            }
            let child = self.latch_child(&parent, key, &bounds)?;
            if !self.is_underfull(&child.guard)? {
                parent = child.guard;
                bounds = child.bounds;
                continue;
            }
            let next = self.rebalance_child(&parent, child, key, &bounds, garbage)?;
            // The root may now have one child left.
            if parent.page() == ROOT
                && self.with_view(&parent, |view, _| Some(view.count() == 0))?
            {
                continue;
            }
            parent = next.guard;
            bounds = next.bounds;
        }
        Ok(())
    }

    /// Moves the content of the root's only child up. Returns `false` if the root has several
    /// children.
    fn shrink_root(&self, root: &WriteGuard<'_>, garbage: &mut Garbage) -> Attempt<bool> {
        let (count, child) =
            self.with_view(root, |view, _| Some((view.count(), view.child(0)?)))?;
        if count > 0 {
            return Ok(false);
        }
        let child = self.cache.write(PageId(child))?;
        let page = child.words().copy(0, self.shape.page_bytes).ok_or(Stop::Restart)?;
        let level = self.with_view(root, |view, _| Some(view.level()))?;
        self.fill(root, page);
        self.count_node(level, false);
        garbage.push((child.page(), 1));
        Ok(true)
    }

    /// Merges an underfull child with a sibling, or shares their entries. Returns the node that the
    /// key belongs to afterwards.
    fn rebalance_child<'t>(
        &'t self,
        parent: &WriteGuard<'_>,
        child: LatchedChild<'t>,
        key: &[u8],
        bounds: &Bounds,
        garbage: &mut Garbage,
    ) -> Attempt<LatchedChild<'t>> {
        let count = self.with_view(parent, |view, _| Some(view.count()))?;
        if count == 0 {
            return Ok(child);
        }
        let latch = |index| {
            let page = self.with_view(parent, |view, _| view.child(index))?;
            self.cache.write(PageId(page)).map_err(Stop::from)
        };
        let (left_index, left, right) = match child.index.checked_sub(1) {
            // Latch order is left before right; the latched parent keeps both children in place.
            Some(before) => {
                let page = child.guard.page();
                drop(child.guard);
                (before, latch(before)?, self.cache.write(page)?)
            }
            None => (0, child.guard, latch(1)?),
        };
        let low = self.child_bounds(parent, left_index, bounds)?;
        let high = self.child_bounds(parent, left_index + 1, bounds)?;
        let pair = SiblingPair { index: left_index, left, right, low, high };
        self.rebalance_pair(parent, pair, key, garbage)
    }

    fn rebalance_pair<'t>(
        &'t self,
        parent: &WriteGuard<'_>,
        pair: SiblingPair<'t>,
        key: &[u8],
        garbage: &mut Garbage,
    ) -> Attempt<LatchedChild<'t>> {
        let SiblingPair { index, left, right, low, high } = pair;
        let (mut cells, other) = (self.content(&left)?, self.content(&right)?);
        let separator = self.with_view(parent, |view, _| view.cell(index))?;
        let (level, left_count) = (cells.level, cells.cells.len());
        if level > 0 {
            // The separator moves down and refers to the right node's first child.
            let mut down = separator.clone();
            down.payload = Payload::Child(other.first_child);
            cells.cells.push(down);
        }
        cells.cells.extend(other.cells);
        let whole = Bounds { lower: low.lower.clone(), upper: high.upper.clone() };
        let prefix = whole.prefix(self.shape.prefix_max());
        self.complete(&left, &mut cells.cells, prefix.len())?;
        let builder =
            NodeBuilder { level, prefix, first_child: cells.first_child, cells: &cells.cells };
        if builder.size(self.shape) <= self.shape.merged_max() {
            self.store(&left, &left, &mut cells, &whole)?;
            self.remove_slot(parent, index)?;
            if level == 0
                && let Some(long) = separator.long
            {
                garbage.push(self.pages_of_key(long));
            }
            garbage.push((right.page(), 1));
            self.count_node(level, false);
            return Ok(LatchedChild { index, guard: left, bounds: whole });
        }
        let kept = |left: WriteGuard<'t>, right: WriteGuard<'t>, low: Bounds, high: Bounds| {
            let goes_left = low.upper.as_deref().is_none_or(|upper| key < upper);
            if goes_left {
                LatchedChild { index, guard: left, bounds: low }
            } else {
                LatchedChild { index: index + 1, guard: right, bounds: high }
            }
        };
        // An inner node without separators must be merged: it has no sibling of its children to
        // share with.
        let must = level > 0 && (left_count == 0 || left_count + 1 == cells.cells.len());
        if level == 0 || !must {
            return Ok(kept(left, right, low, high));
        }
        let (left, right, low, high) =
            self.redistribute_inner(parent, index, (left, right), cells, whole, &separator)?;
        Ok(kept(left, right, low, high))
    }

    /// Divides the entries of two inner siblings evenly.
    fn redistribute_inner<'t>(
        &'t self,
        parent: &WriteGuard<'_>,
        index: usize,
        (left, right): (WriteGuard<'t>, WriteGuard<'t>),
        mut cells: NodeContent,
        whole: Bounds,
        old: &Cell,
    ) -> Attempt<(WriteGuard<'t>, WriteGuard<'t>, Bounds, Bounds)> {
        let middle = self.middle(&cells.cells);
        let right_cells = cells.cells.split_off((middle + 1).min(cells.cells.len()));
        let Some(mut up) = cells.cells.pop() else { return Err(Stop::Restart) };
        let Payload::Child(first_child) = up.payload else { return Err(Stop::Restart) };
        self.complete(&left, std::slice::from_mut(&mut up), usize::MAX / 2)?;
        up.payload = Payload::Child(right.page().0);
        let (slot, bytes) = self.with_view(parent, |view, _| {
            let slot = view.slot(index)?;
            Some((slot, view.entry_bytes(&slot)?))
        })?;
        let (low, high) = divide(whole.clone(), &up.key);
        if !self.put_cell(parent, index, &up, Some((slot, bytes)))? {
            // No room for a longer separator: leave them as they are.
            let (low, high) = divide(whole, &self.whole_key(&left, old)?);
            return Ok((left, right, low, high));
        }
        let mut right_content = NodeContent { level: cells.level, first_child, cells: right_cells };
        self.store(&right, &left, &mut right_content, &high)?;
        self.store(&left, &left, &mut cells, &low)?;
        Ok((left, right, low, high))
    }

    fn whole_key(&self, holder: &WriteGuard<'_>, cell: &Cell) -> Attempt<Vec<u8>> {
        match cell.long {
            Some(long) => self.fetch(holder, long),
            None => Ok(cell.key.clone()),
        }
    }
}

/// Two latched neighbours below a latched parent.
struct SiblingPair<'t> {
    /// Number of the left child, and of the separator between the two.
    index: usize,
    left: WriteGuard<'t>,
    right: WriteGuard<'t>,
    low: Bounds,
    high: Bounds,
}

/// A latched leaf without room for an entry.
pub(super) struct FullLeaf<'f> {
    /// Its number among its parent's children.
    pub(super) index: usize,
    pub(super) leaf: &'f WriteGuard<'f>,
    pub(super) bounds: &'f Bounds,
}

/// The entry to add before slot `at`, or in place of that slot's entry if `found`.
pub(super) struct NewEntry<'e> {
    pub(super) at: usize,
    pub(super) found: bool,
    pub(super) key: &'e [u8],
    pub(super) value: [&'e [u8]; 2],
}

/// Returns the bounds on both sides of a separator.
pub(super) fn divide(bounds: Bounds, separator: &[u8]) -> (Bounds, Bounds) {
    let low = Bounds { lower: bounds.lower, upper: Some(separator.to_vec()) };
    (low, Bounds { lower: Some(separator.to_vec()), upper: bounds.upper })
}
