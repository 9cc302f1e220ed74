//! Merges of underfull nodes, from the root down.
//!
//! An underfull child is merged with a sibling, or takes entries from it. A root with one child
//! left takes over that child's content.
//!
//! Start with [`Tree::rebalance`].

use super::node_content::{LatchedChild, SubtreeContent};
use crate::{
    Result,
    bptree::{
        bounds::Bounds,
        node::{Cell, NodeBuilder, Payload},
        page_cache::{PageId, WriteGuard},
        tree::{Attempt, Garbage, ROOT, Stop, Tree},
    },
    util::mutant::mutant,
};

/// Two latched neighbours below a latched parent.
struct SiblingPair<'t> {
    /// Number of the left child, and of the separator between the two.
    index: usize,
    left: WriteGuard<'t>,
    right: WriteGuard<'t>,
    low: Bounds,
    high: Bounds,
}

impl Tree {
    /// Merges underfull nodes on the path to a key.
    pub(in crate::bptree) fn rebalance(&self, key: &[u8]) -> Result<()> {
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
        let choose = |left: WriteGuard<'t>, right: WriteGuard<'t>, low: Bounds, high: Bounds| {
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
            return Ok(choose(left, right, low, high));
        }
        let (left, right, low, high) =
            self.redistribute_inner(parent, index, (left, right), cells, whole, &separator)?;
        Ok(choose(left, right, low, high))
    }

    /// Divides the entries of two inner siblings evenly.
    fn redistribute_inner<'t>(
        &'t self,
        parent: &WriteGuard<'_>,
        index: usize,
        (left, right): (WriteGuard<'t>, WriteGuard<'t>),
        mut cells: SubtreeContent,
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
        let (low, high) = whole.clone().divide(&up.key);
        if !self.put_cell(parent, index, &up, Some((slot, bytes)))? {
            // No room for a longer separator: leave them as they are.
            let (low, high) = whole.divide(&self.whole_key(&left, old)?);
            return Ok((left, right, low, high));
        }
        let mut right_content =
            SubtreeContent { level: cells.level, first_child, cells: right_cells };
        self.store(&right, &left, &mut right_content, &high)?;
        self.store(&left, &left, &mut cells, &low)?;
        Ok((left, right, low, high))
    }
}
