//! Creation, opening and checks of the tree. Opening completes what a crash interrupted.
//!
//! A crash leaves at most, on each level:
//! - one entry that duplicates its left neighbour (a shift),
//! - entries that the sibling has too (a split before its truncation),
//! - a node that is missing in its parent (a split, or the removal of a leaf).

use std::sync::Arc;

use super::{
    FairTree, Goal, LEFT, MAGIC, NOWHERE, ROOT, Result, SIBLING, SLOTS, TREE_BYTES, pointer_at,
    prefix_at, slot_at,
};
use crate::{
    Error,
    pmem::{Marks, Pool, is_link, link, target},
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

impl FairTree {
    fn with(pool: &Arc<Pool>, at: u64) -> Self {
        Self {
            pool: Arc::clone(pool),
            at,
            writer: Mutex::default(),
            releases: AtomicU64::new(0),
            turns: std::array::from_fn(|_| AtomicU64::new(0)),
            keys: AtomicU64::new(0),
        }
    }

    /// Creates an empty tree. The caller must publish [`root`](Self::root).
    pub(crate) fn create(pool: &Arc<Pool>) -> Result<Self> {
        let at = pool.alloc(TREE_BYTES)?;
        let tree = Self::with(pool, at);
        let leaf = tree.write_root(0, 0, Vec::new())?;
        pool.store(at, MAGIC);
        pool.store(at + ROOT, link(leaf));
        pool.flush(at, TREE_BYTES);
        Ok(tree)
    }

    /// Opens the tree at offset `at` and completes what a crash interrupted. Reads all nodes.
    ///
    /// Fails with [`Error::Corruption`] if nodes are damaged. Records are verified when they are
    /// read.
    pub(crate) fn open(pool: &Arc<Pool>, at: u64) -> Result<Self> {
        if pool.load(at) != MAGIC {
            return Err(pool.damage(at, "no index starts at this offset"));
        }
        let tree = Self::with(pool, at);
        mutant!(FairRepairsNothing => return Ok(tree));
        tree.repair()?;
        Ok(tree)
    }

    /// Returns the nodes of each level, from the leaves up, in key order.
    fn levels(&self) -> Result<Vec<Vec<u64>>> {
        let mut levels = Vec::new();
        let mut first = self.follow(self.at + ROOT)?;
        let nodes_max = self.pool.bytes() / super::NODE_BYTES;
        loop {
            let head = self.head(first)?;
            let (mut nodes, mut node) = (Vec::new(), first);
            while node != 0 {
                if self.head(node)?.level != head.level || to_u64(nodes.len()) > nodes_max {
                    return Err(self.pool.damage(node, "a node is on another level"));
                }
                nodes.push(node);
                node = self.follow(node + SIBLING)?;
            }
            levels.push(nodes);
            if head.level == 0 {
                levels.reverse();
                return Ok(levels);
            }
            let child = self.follow(first + LEFT)?;
            if self.head(child)?.level + 1 != head.level {
                return Err(self.pool.damage(first, "a child is on another level"));
            }
            first = child;
        }
    }

    fn repair(&self) -> Result<()> {
        let levels = self.levels()?;
        for nodes in &levels {
            for node in nodes {
                self.drop_duplicates(*node)?;
                self.finish_cut(*node)?;
            }
        }
        let keys = levels.first().into_iter().flatten().map(|leaf| self.end_of(*leaf)).sum();
        self.keys.store(keys, Ordering::Relaxed);
        for (level, nodes) in (0_u8..).zip(&levels) {
            let parents = levels.get(usize::from(level) + 1).map_or(&[][..], |nodes| nodes);
            for child in self.without_parent(nodes, parents) {
                match self.add_child(level + 1, child) {
                    // The node stays reachable through its left neighbour.
                    Ok(()) | Err(Error::DiskFull { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns the nodes of a level that the level above lacks. Both are in order.
    fn without_parent(&self, nodes: &[u64], parents: &[u64]) -> Vec<u64> {
        let children = |parent: &u64| {
            let parent = *parent;
            let entries = (0..self.end_of(parent)).map(move |slot| pointer_at(parent, slot));
            std::iter::once(parent + LEFT).chain(entries)
        };
        let known = parents.iter().flat_map(children);
        let mut known = known.map(|at| target(self.pool.load(at))).peekable();
        // The root has no parent.
        let mut missing = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            if known.peek() == Some(node) {
                known.next();
            } else if index > 0 || !parents.is_empty() {
                missing.push(*node);
            }
        }
        missing
    }

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

    /// Marks all objects of the tree for a sweep of the pool.
    pub(crate) fn mark(&self, marks: &mut Marks<'_>) -> Result<()> {
        let mut add = |at: u64| {
            let added = at == 0 || marks.add(at);
            if added {
                Ok(())
            } else {
                Err(self.pool.damage(at, "the index links to an offset without an object"))
            }
        };
        add(self.at)?;
        for node in self.levels()?.into_iter().flatten() {
            add(node)?;
            add(self.follow(node + super::LOW)?)?;
            if self.head(node)?.level == 0 {
                for slot in 0..self.end_of(node) {
                    add(target(self.pool.load(pointer_at(node, slot))))?;
                }
            }
        }
        // The sweep frees the unlinked objects.
        lock(&self.writer).clear();
        self.releases.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Verifies order, ranges, levels, prefixes and checksums of keys. No thread may write
    /// meanwhile. Returns the number of keys.
    pub(crate) fn check(&self) -> Result<u64> {
        let _writer = lock(&self.writer);
        let levels = self.levels()?;
        let mut keys = 0;
        for (level, nodes) in levels.iter().enumerate() {
            for (index, node) in nodes.iter().enumerate() {
                let high = nodes.get(index + 1).map(|next| self.low_key(*next)).transpose()?;
                let entries = self.check_node(*node, high.as_deref())?;
                keys += if level == 0 { entries } else { 0 };
                let low = self.low_key(*node)?;
                if (index == 0) != low.is_empty() {
                    return Err(self
                        .pool
                        .damage(*node, "only the first node of a level may lack a lowest key"));
                }
                if self.find_node(self.head(*node)?.level, Goal::At(&low))? != Some(*node) {
                    return Err(self
                        .pool
                        .damage(*node, "a descent from the root does not find a node"));
                }
            }
        }
        if keys == self.keys() {
            Ok(keys)
        } else {
            let what = format!("the leaves have {keys} keys, the counter says {}", self.keys());
            Err(self.pool.damage(self.at, what))
        }
    }

    fn check_node(&self, node: u64, high: Option<&[u8]>) -> Result<u64> {
        let head = self.head(node)?;
        let mut last = self.low_key(node)?;
        let has_left = is_link(self.pool.load(node + LEFT));
        if (head.level == 0) == has_left
            || head.level == 0 && self.pool.load(node + LEFT) != NOWHERE
        {
            return Err(self.pool.damage(node, "a node's first child is wrong"));
        }
        if head.level > 0 {
            let first = self.low_key(self.follow(node + LEFT)?)?;
            if first != last {
                return Err(self.pool.damage(node, "a node's first child has another lowest key"));
            }
        }
        let count = self.end_of(node);
        for slot in 0..count {
            let child = self.follow(pointer_at(node, slot))?;
            let key = if head.level == 0 { self.read_key(child)? } else { self.low_key(child)? };
            let is_first = slot == 0 && head.level == 0;
            let in_order = if is_first { last <= key } else { last < key };
            if !in_order || high.is_some_and(|high| *key >= *high) {
                return Err(self.pool.damage(node, format!("entry {slot} is out of order")));
            }
            if self.pool.load(slot_at(node, slot)) != prefix_at(&key, head.skip) {
                return Err(self.pool.damage(node, format!("entry {slot} has another prefix")));
            }
            last = key;
        }
        Ok(count)
    }

    /// Returns the numbers of levels and of nodes.
    pub(crate) fn size(&self) -> Result<(u64, u64)> {
        let levels = self.levels()?;
        let nodes: usize = levels.iter().map(Vec::len).sum();
        Ok((to_u64(levels.len()), to_u64(nodes)))
    }
}

const _: () = assert!(to_usize(SLOTS) < 256);
