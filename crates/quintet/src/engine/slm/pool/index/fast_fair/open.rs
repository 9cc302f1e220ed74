//! Creation, opening, sweeps and checks of the tree.

use std::sync::Arc;

use super::{
    FairTree, Goal, LEFT, MAGIC, NOWHERE, ROOT, Result, SIBLING, SLOTS, TREE_BYTES, pointer_at,
    prefix_at, slot_at,
};
use crate::{
    pmem::{Marks, Pool, is_link, link, target},
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

/// The size of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FairTreeShape {
    pub(crate) levels: u64,
    pub(crate) nodes: u64,
    pub(crate) keys: u64,
}

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

    /// Opens the tree at offset `at`, of which a crash interrupted at most a change of one of the
    /// keys `changed`, and completes that. Reads only the nodes on the paths to these keys. The
    /// owner knows the number of keys ([`set_keys`](Self::set_keys)).
    ///
    /// Fails with [`Error::Corruption`](crate::Error::Corruption) if these nodes are damaged.
    /// Others are verified when they are read.
    pub(crate) fn open_at(pool: &Arc<Pool>, at: u64, changed: &[&[u8]]) -> Result<Self> {
        if !pool.is_object(at) || pool.load(at) != MAGIC {
            return Err(pool.damage(at, "no index starts at this offset"));
        }
        let tree = Self::with(pool, at);
        mutant!(FairRepairsNothing => return Ok(tree));
        changed.iter().try_for_each(|key| tree.repair_paths(key))?;
        Ok(tree)
    }

    /// Returns the nodes of each level, from the leaves up, in key order.
    pub(super) fn levels(&self) -> Result<Vec<Vec<u64>>> {
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
            if self.head(child)?.level != head.level - 1 {
                return Err(self.pool.damage(first, "a child is on another level"));
            }
            first = child;
        }
    }

    /// Marks all objects of the tree for a sweep of the pool.
    #[cfg(test)]
    pub(crate) fn mark(&self, marks: &mut Marks<'_>) -> Result<()> {
        self.mark_inner(marks)?;
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            from = self.mark_leaves(marks, &key, 3)?;
        }
        // The sweep frees the unlinked objects.
        lock(&self.writer).clear();
        self.releases.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Marks the tree object and all inner nodes for a sweep. No thread may write meanwhile.
    pub(crate) fn mark_inner(&self, marks: &mut Marks<'_>) -> Result<()> {
        self.add_mark(marks, self.at)?;
        let mut first = self.follow(self.at + ROOT)?;
        while self.head(first)?.level > 0 {
            let (mut node, mut steps) = (first, 0);
            while node != 0 {
                self.mark_node(marks, node)?;
                node = self.follow(node + SIBLING)?;
                self.count_step(first, &mut steps)?;
            }
            first = self.follow(first + LEFT)?;
        }
        Ok(())
    }

    /// Marks up to `limit` leaves and their records, from the leaf of key `from` on. Returns where
    /// to continue; `None` at the end. No thread may write meanwhile.
    pub(crate) fn mark_leaves(
        &self,
        marks: &mut Marks<'_>,
        from: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let mut leaf = self.find_leaf(Goal::At(from))?;
        for _ in 0..limit {
            self.mark_node(marks, leaf)?;
            for slot in 0..self.end_of(leaf) {
                self.add_mark(marks, target(self.pool.load(pointer_at(leaf, slot))))?;
            }
            leaf = self.follow(leaf + SIBLING)?;
            if leaf == 0 {
                return Ok(None);
            }
        }
        let next = self.low_key(leaf)?;
        if next.as_slice() <= from {
            return Err(self.ranges_out_of_order());
        }
        Ok(Some(next))
    }

    /// Frees the unlinked objects that wait for it. Needed before a sweep ends.
    pub(crate) fn free_unlinked(&self) -> Result<()> {
        let mut limbo = lock(&self.writer);
        self.releases.fetch_add(1, Ordering::AcqRel);
        limbo.drain(..).try_for_each(|object| self.pool.free(object))
    }

    fn mark_node(&self, marks: &mut Marks<'_>, node: u64) -> Result<()> {
        self.add_mark(marks, node)?;
        self.add_mark(marks, self.follow(node + super::LOW)?)
    }

    fn add_mark(&self, marks: &mut Marks<'_>, at: u64) -> Result<()> {
        if at == 0 || marks.add(at) {
            return Ok(());
        }
        Err(self.pool.damage(at, "the index links to an offset without an object"))
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

    /// Returns the numbers of levels, nodes and keys. Reads all nodes and no key, and verifies the
    /// links between nodes. Fails with `Corruption`. No thread may write meanwhile.
    pub(crate) fn shape(&self) -> Result<FairTreeShape> {
        let nodes_max = self.pool.bytes() / super::NODE_BYTES;
        let mut shape = FairTreeShape::default();
        let mut first = self.follow(self.at + ROOT)?;
        loop {
            let level = self.head(first)?.level;
            shape.levels += 1;
            let mut node = first;
            while node != 0 {
                shape.nodes += 1;
                if self.head(node)?.level != level || shape.nodes > nodes_max {
                    return Err(self.pool.damage(node, "a node is on another level"));
                }
                shape.keys += if level == 0 { self.end_of(node) } else { 0 };
                node = self.follow(node + SIBLING)?;
            }
            let Some(below) = level.checked_sub(1) else { return Ok(shape) };
            let child = self.follow(first + LEFT)?;
            if self.head(child)?.level != below {
                return Err(self.pool.damage(first, "a child is on another level"));
            }
            first = child;
        }
    }
}

const _: () = assert!(to_usize(SLOTS) < 256);
