//! Repair of the tree: completes what a crash interrupted.
//!
//! A crash leaves at most, on each level:
//! - one entry that duplicates its left neighbour (a shift),
//! - entries that the sibling has too (a split before its truncation),
//! - a node that is missing in its parent (a split, or the removal of a leaf).
//!
//! All of them are on the path to the key that was being changed, or in a neighbour of a node of
//! that path. An owner that knows the key repairs these nodes alone ([`FairTree::open_at`]).

use super::{FairTree, Goal, LEFT, LOW, Result, SIBLING, SLOTS, pointer_at};
use crate::{
    Error,
    pmem::{is_link, target},
    util::mutant::mutant,
};

impl FairTree {
    fn drop_duplicates(&self, node: u64) -> Result<()> {
        let mut slot = 0;
        let mut left = self.pool.load(node + LEFT);
        let mut end = self.end_of(node);
        if end == SLOTS {
            return Err(self.pool.damage(node, "a node's entries have no end marker"));
        }
        while slot < end {
            let pointer = self.pool.load(pointer_at(node, slot));
            if pointer == left {
                self.shift_left(node, slot, end);
                end -= 1;
                continue;
            }
            if !is_link(pointer) {
                return Err(self.pool.damage(pointer_at(node, slot), "no link"));
            }
            left = pointer;
            slot += 1;
        }
        Ok(())
    }

    /// Truncates a node at the first entry that its sibling has too.
    fn finish_cut(&self, node: u64) -> Result<()> {
        let sibling = self.follow(node + SIBLING)?;
        if sibling == 0 {
            return Ok(());
        }
        let head = self.head(sibling)?;
        let at = if head.level == 0 { pointer_at(sibling, 0) } else { sibling + LEFT };
        let first = self.pool.load(at);
        let both = (0..self.end_of(node))
            .find(|slot| first != 0 && self.pool.load(pointer_at(node, *slot)) == first);
        if let Some(slot) = both {
            self.pool.replace(pointer_at(node, slot), 0);
        }
        Ok(())
    }

    /// Repairs the nodes on the path to a key, and their neighbours. Nodes are entered into their
    /// parents last: these must be whole.
    pub(super) fn repair_paths(&self, key: &[u8]) -> Result<()> {
        let mut level = 0;
        while let Some(node) = self.find_node(level, Goal::At(key))? {
            for node in self.with_neighbours(level, node)? {
                self.drop_duplicates(node)?;
                self.finish_cut(node)?;
            }
            mutant!(FairRepairsLeavesAlone => return Ok(()));
            level += 1;
        }
        level = 0;
        while let Some(node) = self.find_node(level, Goal::At(key))? {
            for node in self.with_neighbours(level, node)? {
                self.enter_into_parent(level, node)?;
            }
            level += 1;
        }
        Ok(())
    }

    /// Returns a node with the nodes before and behind it.
    fn with_neighbours(&self, level: u8, node: u64) -> Result<Vec<u64>> {
        let mut nodes = Vec::new();
        let low = self.low_key(node)?;
        if !low.is_empty() {
            nodes.extend(self.find_node(level, Goal::Below(&low))?);
        }
        nodes.push(node);
        nodes.extend(Some(self.follow(node + SIBLING)?).filter(|sibling| *sibling != 0));
        Ok(nodes)
    }

    /// Enters a node of a level into its parent if that lacks it. The first node of a level is the
    /// root, or the first child of its parent.
    fn enter_into_parent(&self, level: u8, node: u64) -> Result<()> {
        if self.follow(node + LOW)? == 0 {
            return Ok(());
        }
        let low = self.low_key(node)?;
        if let Some(parent) = self.find_node(level + 1, Goal::At(&low))?
            && target(self.pool.load(parent + LEFT)) == node
        {
            return Ok(());
        }
        match self.add_child(level + 1, node) {
            // The node stays reachable through its left neighbour.
            Ok(()) | Err(Error::DiskFull { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
