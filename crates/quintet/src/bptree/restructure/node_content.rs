//! Decoded nodes, and latched children: what splits and merges share.

use crate::{
    bptree::{
        bounds::Bounds,
        node::{Cell, NodeBuilder, Payload, SLOT_BYTES},
        page_cache::{PageId, WriteGuard},
        tree::{Attempt, Tree},
    },
    util::{
        codec::{shared_len, to_usize},
        mutant::mutant,
    },
};

/// A decoded node.
#[derive(Debug)]
pub(super) struct SubtreeContent {
    pub(super) level: u8,
    pub(super) first_child: u32,
    pub(super) cells: Vec<Cell>,
}

/// A latched child and its bounds.
pub(super) struct LatchedChild<'t> {
    /// Its number among the children of the parent.
    pub(super) index: usize,
    pub(super) guard: WriteGuard<'t>,
    pub(super) bounds: Bounds,
}

impl Tree {
    pub(super) fn is_leaf(&self, node: &WriteGuard<'_>) -> Attempt<bool> {
        self.with_view(node, |view, _| Some(view.is_leaf()))
    }

    /// Latches the child that a key belongs to. Fails with `Corruption` if its level is wrong.
    pub(super) fn latch_child<'t>(
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

    pub(super) fn content(&self, node: &WriteGuard<'_>) -> Attempt<SubtreeContent> {
        self.with_view(node, |view, _| {
            let (level, first_child) = (view.level(), view.words().u32(24)?);
            Some(SubtreeContent { level, first_child, cells: view.cells()? })
        })
    }

    /// Writes a node whose keys are within `bounds`.
    pub(super) fn store(
        &self,
        node: &WriteGuard<'_>,
        holder: &WriteGuard<'_>,
        content: &mut SubtreeContent,
        bounds: &Bounds,
    ) -> Attempt<()> {
        let prefix = bounds.prefix(self.shape.prefix_max());
        self.complete(holder, &mut content.cells, prefix.len())?;
        let SubtreeContent { level, first_child, cells } = content;
        let (level, first_child) = (*level, *first_child);
        let builder = NodeBuilder { level, prefix, first_child, cells };
        let page = builder.build(self.shape);
        let page = page.ok_or_else(|| self.damage(node.page(), "its entries do not fit"))?;
        self.fill(node, page);
        Ok(())
    }

    /// Reads the long keys of which a page with a prefix of this length stores more than is known.
    /// `holder` is latched and refers to them, or did so before this change.
    pub(super) fn complete(
        &self,
        holder: &WriteGuard<'_>,
        cells: &mut [Cell],
        prefix: usize,
    ) -> Attempt<()> {
        for cell in cells {
            let Some(long) = cell.long else { continue };
            let length = to_usize(u64::from(long.length));
            if cell.key.len() < length.min(prefix + self.shape.key_inline_max()) {
                cell.key = self.fetch(holder, long)?;
            }
        }
        Ok(())
    }

    pub(super) fn whole_key(&self, holder: &WriteGuard<'_>, cell: &Cell) -> Attempt<Vec<u8>> {
        match cell.long {
            Some(long) => self.fetch(holder, long),
            None => Ok(cell.key.clone()),
        }
    }

    /// Returns the shortest key above the last of `left` that is not above the first of `right`.
    pub(super) fn separator(
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

    /// Returns the number of the first entry of the right half, by bytes. Neither half is empty.
    pub(super) fn middle(&self, cells: &[Cell]) -> usize {
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

    /// Inserts a separator and the child right of it after child `index` of a latched node, which
    /// has room.
    pub(super) fn add_separator(
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

    pub(super) fn add_child(
        &self,
        parent: &WriteGuard<'_>,
        index: usize,
        cell: &Cell,
    ) -> Attempt<()> {
        if self.put_cell(parent, index, cell, None)? {
            return Ok(());
        }
        Err(self.damage(parent.page(), "it has no room for a separator"))
    }
}
