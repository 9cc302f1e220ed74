//! The path to the last key of a tree, which a load continues.

use super::{node_fill::LowerSeparator, open_node::OpenNode};
use crate::{
    Result,
    bptree::{
        node::{Cell, LongKey},
        page_cache::ReadGuard,
        tree::{Attempt, DEPTH_MAX, Garbage, ROOT, Stop, Tree},
    },
};

/// An entry of the leaf of the last key.
pub(super) struct PathEntry {
    pub(super) key: Vec<u8>,
    /// As in [`super::open_leaf::StagedEntry`].
    pub(super) word: u32,
    pub(super) long: Option<LongKey>,
    /// What follows the key.
    pub(super) rest: Vec<u8>,
}

/// The decoded path to the last key.
#[derive(Default)]
pub(super) struct LastKeyPath {
    pub(super) levels: Vec<OpenNode>,
    pub(super) lower: LowerSeparator,
    pub(super) entries: Vec<PathEntry>,
    pub(super) removed: [u64; 2],
    pub(super) freed: Garbage,
}

impl Tree {
    pub(super) fn last_key(&self) -> Result<Option<Vec<u8>>> {
        let mut before: Option<Vec<u8>> = None;
        loop {
            let range = (before.as_deref(), None);
            let found = self.scan_reverse(range, (1, 0), |_, _| (), |key, ()| key)?;
            if let Some(key) = found.entries.into_iter().next() {
                return Ok(Some(key));
            }
            match found.next {
                Some(next) => before = Some(next),
                None => return Ok(None),
            }
        }
    }

    pub(super) fn read_path(&self, last: Option<&[u8]>) -> Attempt<LastKeyPath> {
        let mut path = LastKeyPath::default();
        let mut node = self.cache.read(ROOT)?;
        for _ in 0..DEPTH_MAX {
            let level = self.with_view(&node, |view, _| Some(view.level()))?;
            if let Some(removed) = path.removed.get_mut(usize::from(level > 0)) {
                *removed += 1;
            }
            if node.page() != ROOT {
                path.freed.push((node.page(), 1));
            }
            let Some(key) = last else {
                // Nothing of it is used any more.
                self.free_children(&node, 0, &mut path)?;
                return Ok(path);
            };
            if level == 0 {
                path.entries = self.with_view(&node, |view, fetch| {
                    let entry = |index| {
                        let slot = view.slot(index)?;
                        let long = if slot.long { Some(view.long_key(&slot)?) } else { None };
                        let (word, rest) = view.payload(&slot)?;
                        let rest = view.words().copy(rest.start, rest.len())?;
                        let key = view.full_key(&slot, &mut *fetch)?;
                        Some(PathEntry { key, word, long, rest })
                    };
                    (0..view.count()).map(entry).collect()
                })?;
                // From the lowest level up; a root with one child is none.
                path.levels.reverse();
                let leads_on = |top: &OpenNode| top.cells.is_empty() && top.first_child.is_none();
                while path.levels.last().is_some_and(leads_on) {
                    path.levels.pop();
                }
                return if node.is_unchanged() { Ok(path) } else { Err(Stop::Restart) };
            }
            node = self.read_path_node(node, key, &mut path)?;
        }
        Err(self.damage(node.page(), "the tree is too deep"))
    }

    /// Decodes an inner node of the path up to the child that leads to `key`, and returns that
    /// child.
    fn read_path_node<'t>(
        &'t self,
        node: ReadGuard<'t>,
        key: &[u8],
        path: &mut LastKeyPath,
    ) -> Attempt<ReadGuard<'t>> {
        let (index, child, mut cells) = self.with_view(&node, |view, fetch| {
            let index = view.child_of(key, fetch)?;
            let cell = |index| {
                let mut cell = view.cell(index)?;
                if cell.long.is_some() {
                    cell.key = view.full_key(&view.slot(index)?, &mut *fetch)?;
                }
                Some(cell)
            };
            let cells = (0..index).map(cell).collect::<Option<Vec<Cell>>>()?;
            Some((index, view.child(index)?, cells))
        })?;
        let first_child = self.with_view(&node, |view, _| view.child(0))?;
        self.free_children(&node, index + 1, path)?;
        let lower = std::mem::take(&mut path.lower);
        let mut open = OpenNode { first_child: Some(first_child), ..OpenNode::default() };
        // The child comes back under another number, with the separator before it.
        path.lower = if let Some(cell) = cells.pop() {
            LowerSeparator { key: cell.key, long: cell.long }
        } else {
            open.first_child = None;
            LowerSeparator { key: lower.key.clone(), long: None }
        };
        open.lower = lower;
        for cell in cells {
            open.push(self.shape, cell);
        }
        path.levels.push(open);
        self.child_of(&node, child)
    }

    /// Records the children of a node from number `first` on, with everything below, as removed:
    /// they have no entries.
    fn free_children(
        &self,
        node: &ReadGuard<'_>,
        first: usize,
        path: &mut LastKeyPath,
    ) -> Attempt<()> {
        let (level, children, longs) = self.with_view(node, |view, _| {
            let count = view.count();
            if view.is_leaf() {
                return Some((0, Vec::new(), Vec::new()));
            }
            let children = (first..=count).map(|index| view.child(index));
            let long = |index| {
                let slot = view.slot(index)?;
                if slot.long { view.long_key(&slot).map(Some) } else { Some(None) }
            };
            let longs = (first.saturating_sub(1)..count).map(long).collect::<Option<Vec<_>>>()?;
            Some((view.level(), children.collect::<Option<Vec<_>>>()?, longs))
        })?;
        for long in longs.into_iter().flatten() {
            path.freed.push(self.pages_of_key(long));
        }
        for child in children {
            let child = self.child_of(node, child)?;
            let (below, count) =
                self.with_view(&child, |view, _| Some((view.level(), view.count())))?;
            if below + 1 != level || below == 0 && count > 0 {
                return Err(self.damage(child.page(), "it is no leaf without entries"));
            }
            path.freed.push((child.page(), 1));
            if let Some(removed) = path.removed.get_mut(usize::from(below > 0)) {
                *removed += 1;
            }
            self.free_children(&child, 0, path)?;
        }
        Ok(())
    }
}
