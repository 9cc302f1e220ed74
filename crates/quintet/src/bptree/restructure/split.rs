//! Splits of full nodes, from the root down.
//!
//! On the way down, a child without room for one more separator (a leaf: for the entry) is split
//! while its parent, which has room, is latched. A full root moves its content to a new child.
//!
//! Start with `Tree::put_down`.

use super::{
    leaf_entries::{FullLeaf, LeafEntries, NewEntry},
    node_content::{LatchedChild, SubtreeContent},
};
use crate::{
    Result,
    bptree::{
        bounds::Bounds,
        node::{NodeBuilder, Payload, StoredValue},
        page_cache::WriteGuard,
        tree::{Attempt, CountChange, Garbage, ROOT, Stop, Tree, fill_used, signed},
        write::{NewValue, added},
    },
    util::codec::to_usize,
};

impl Tree {
    /// Puts an entry into a leaf that may be full; splits on the way.
    pub(in crate::bptree) fn put_from_root(
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

    fn has_room_for_separator(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        self.with_view(node, |view, _| Some(view.free() >= self.shape.separator_max()))
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
                let bytes = signed(stored.length()) - signed(before.length());
                return Ok(CountChange { keys: 0, bytes });
            }
        }
        let mut content = self.content(&left)?;
        let change = if found {
            let cell = content.cells.get_mut(at).ok_or(Stop::Restart)?;
            let before = self.payload_length(&cell.payload, garbage);
            cell.payload = stored.payload();
            CountChange { keys: 0, bytes: signed(stored.length()) - signed(before) }
        } else {
            content.cells.insert(at, self.new_cell(key, stored)?);
            added(key, stored)
        };
        // Ascending loads fill leaves to the end.
        let appends = !found && at + 1 == content.cells.len() && bounds.upper.is_none();
        let split = if appends { at } else { self.middle(&content.cells) };
        let right_cells = content.cells.split_off(split);
        let separator = self.separator(&left, &content.cells, &right_cells)?;
        let mut right_content = SubtreeContent { level: 0, first_child: 0, cells: right_cells };
        let right = self.cache.create_to_fill(self.allocator.allocate())?;
        let (low, high) = bounds.divide(&separator);
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
            let added = entries.add_leaf_with(view, (new.at, new.found), new.key, new.value);
            Some(added.map(|()| (entries, view.count())))
        })?;
        let Some((entries, old_count)) = entries.filter(|(entries, _)| entries.count() > 1) else {
            return Ok(false);
        };
        // Ascending loads fill leaves to the end: the new one begins with the new key.
        let appends = bounds.upper.is_none() && !new.found && new.at == old_count;
        let middle = if appends { new.at } else { entries.part(0, 2) };
        let invalid_node = || self.damage(left.page(), "it cannot be split");
        let separator = entries.separator(middle).ok_or_else(invalid_node)?;
        let (low, high) = bounds.clone().divide(&separator);
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
            SubtreeContent { level: content.level, first_child, cells: right_cells };
        let right = self.cache.create_to_fill(self.allocator.allocate())?;
        self.complete(&left, std::slice::from_mut(&mut up), usize::MAX / 2)?;
        let (low, high) = bounds.divide(&up.key);
        self.store(&right, &left, &mut right_content, &high)?;
        self.store(&left, &left, &mut content, &low)?;
        up.payload = Payload::Child(right.page().0);
        self.add_child(parent, index, &up)?;
        self.count_node(content.level, true);
        Ok(if key < &*up.key { (left, low) } else { (right, high) })
    }
}
