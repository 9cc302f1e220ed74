//! Sorted bulk loads: builds the tree bottom-up in pages that nothing refers to yet.
//!
//! How: [`TreeBuilder`] takes entries in ascending order above all keys of the tree, fills leaves
//! and inner nodes completely, and writes whole pages; none goes through the
//! cache. The result is the content of a new root ([`BuiltRoot`]): with it the tree has the
//! entries, without it nothing has changed. Why: a put finds its leaf, changes it, and has its page
//! copied and journaled; a page of a hundred sorted entries needs none of that.
//!
//! A load continues a tree that has entries at its last key. The nodes on the path to that key are
//! rebuilt together with the new entries, and freed once the new root is in place; all other nodes
//! stay. Leaves right of the path are empty, and are freed too.
//!
//! A leaf is closed when its next entry would not fit. What fits depends on the prefix, and the
//! prefix on the separator after the leaf, so on the first key after it. It is thus known only when
//! the next key comes that the last entry of an open leaf fits. Inner nodes are the same one level
//! up. The last node of each level has no upper bound and so no prefix; if that makes it too large,
//! it is split in two.
//!
//! Invariants: of an open leaf or node, the entries before the last one fit with the prefix that
//! ends there. Pages are [`crate::bptree::page_allocator::PageAllocator::reserve`]d, so no
//! checkpoint has them before the root.
//!
//! Threads: the tree must not change from [`Tree::begin_build`] until the root is in place or the
//! load is given up; reads go on.

mod last_path;
mod node_fill;
mod open_leaf;
mod open_node;

use self::{
    last_path::PathEntry, node_fill::LowerSeparator, open_leaf::OpenLeaf, open_node::OpenNode,
};
use crate::{
    Error, Result,
    bptree::{
        checkpoint::write_back::PageWrites,
        node::{
            Cell, EXTENT, EXTENT_HEAD_BYTES, ExtentRef, LongKey, NodeBuilder, Payload, TreeShape,
        },
        page_cache::{PageId, WriteGuard, checksum},
        tree::{CountChange, Garbage, Tree, signed},
    },
    util::{
        codec::{crc32c, crc32c_append, low_u32, shared_len, to_u64},
        sync::Ordering,
    },
};

/// The tree that is built, and the writes of its pages.
pub(super) struct BuildTarget<'t> {
    pub(super) tree: &'t Tree,
    pub(super) writes: &'t mut PageWrites,
}

impl BuildTarget<'_> {
    /// Writes the page for `offset` of the file. An error may be of an earlier page.
    fn write(&mut self, offset: u64, page: &[u8]) -> Result<()> {
        self.writes.add(offset, page);
        // The end of the load returns the error itself.
        if self.writes.has_failed() { Err(load_failed()) } else { Ok(()) }
    }
}

/// The result of a load.
#[derive(Debug)]
pub(super) struct BuiltRoot {
    /// The page of the new root, without the cache's bytes.
    pub(super) root: Vec<u8>,
    /// The change of the counts.
    pub(super) change: CountChange,
    /// Pages that the new root does not refer to: first and count.
    pub(super) freed: Vec<(PageId, u64)>,
    /// Number of leaves and of inner nodes added.
    pub(super) nodes: [i64; 2],
}

/// A bulk load. See the module documentation.
#[derive(Debug)]
pub(super) struct TreeBuilder {
    shape: TreeShape,
    leaf: OpenLeaf,
    /// The open inner nodes, from level 1 on.
    levels: Vec<OpenNode>,
    /// Number of leaves and of inner nodes created, and removed.
    made: [u64; 2],
    removed: [u64; 2],
    freed: Garbage,
    change: CountChange,
    page: Vec<u8>,
}

impl Tree {
    /// Begins a load: reads the path to the last key. Returns that key too.
    pub(super) fn begin_build(&self) -> Result<(TreeBuilder, Option<Vec<u8>>)> {
        let last = self.last_key()?;
        let path = self.repeat(|tree| tree.read_path(last.as_deref()))?;
        let mut bulk = TreeBuilder {
            shape: self.shape,
            leaf: OpenLeaf::default(),
            levels: path.levels,
            made: [0; 2],
            removed: path.removed,
            freed: path.freed,
            change: CountChange::default(),
            page: vec![0; self.shape.page_bytes],
        };
        bulk.leaf.lower = path.lower;
        for PathEntry { key, word, long, rest } in path.entries {
            // Keys ascend: none shares more with the separator than the one before it.
            bulk.leaf.shared = shared_len(&bulk.leaf.lower.key, &key);
            bulk.leaf.push(self.shape, &key, (word, long), [&rest, &[]]);
        }
        Ok((bulk, last))
    }

    /// Replaces the root's content; the caller holds its latch.
    pub fn replace_root(&self, root: &WriteGuard<'_>, page: &[u8]) {
        self.fill(root, page.to_vec());
    }

    /// Counts the nodes of a load, or with `back` undoes that.
    pub fn count_nodes(&self, nodes: [i64; 2], back: bool) {
        for (count, more) in self.node_counts.iter().zip(nodes) {
            let more = if back { more.wrapping_neg() } else { more };
            count.fetch_add(more.cast_unsigned(), Ordering::Relaxed);
        }
        self.is_appending.store(false, Ordering::Relaxed);
    }
}

impl TreeBuilder {
    /// Adds an entry; its key must be above all others.
    pub fn push(
        &mut self,
        target: &mut BuildTarget<'_>,
        key: &[u8],
        value: [&[u8]; 2],
    ) -> Result<()> {
        let length = value[0].len() + value[1].len();
        if !self.leaf.entries.is_empty() {
            let shared = shared_len(self.leaf.last_key(), key);
            let prefix = self.leaf.shared.min(shared).min(self.shape.prefix_max());
            if self.leaf.fill.size(prefix) > self.shape.page_bytes {
                self.close_leaf(target, self.leaf.entries.len() - 1)?;
            }
            self.leaf.shared = self.leaf.shared.min(shared);
        }
        let is_long = self.shape.is_long(key);
        let long = if is_long { Some(self.write_long_key(target, key)?) } else { None };
        if self.shape.is_inline(key, length) {
            self.leaf.push(self.shape, key, (low_u32(to_u64(length)), long), value);
        } else {
            let extent = self.write_value(target, value)?;
            let (page, sum) = (extent.page.to_le_bytes(), extent.checksum.to_le_bytes());
            self.leaf.push(self.shape, key, (extent.word(), long), [&page, &sum]);
        }
        self.change.add(CountChange { keys: 1, bytes: signed(key.len() + length) });
        Ok(())
    }

    /// Writes the open nodes and returns the root.
    pub fn finish(mut self, target: &mut BuildTarget<'_>) -> Result<BuiltRoot> {
        if self.leaf.fill.size(0) > self.shape.page_bytes {
            let tail = self.leaf.tail(self.shape).max(1);
            self.close_leaf(target, tail)?;
        }
        self.build_leaf(target.tree, self.leaf.entries.len(), 0)?;
        self.made[0] += 1;
        if self.levels.is_empty() {
            return Ok(self.built());
        }
        let lower = std::mem::take(&mut self.leaf.lower);
        let page = self.write_page(target)?;
        self.add_child(target, 0, lower, page)?;
        let mut index = 0;
        while let Some(node) = self.levels.get(index) {
            if node.fill.size(0) > self.shape.page_bytes {
                let tail = node.tail(self.shape).max(1);
                self.close_node(target, index, tail)?;
            }
            let Some(node) = self.levels.get_mut(index) else { break };
            let (lower, count) = (std::mem::take(&mut node.lower), node.cells.len());
            self.build_node(target.tree, index, count, 0)?;
            self.made[1] += 1;
            index += 1;
            if index < self.levels.len() {
                let page = self.write_page(target)?;
                self.add_child(target, index, lower, page)?;
            }
        }
        Ok(self.built())
    }

    /// With the page that was built last as the root.
    fn built(self) -> BuiltRoot {
        let count = |index: usize| {
            let count = |counts: [u64; 2]| counts.get(index).copied().unwrap_or(0).cast_signed();
            count(self.made) - count(self.removed)
        };
        let nodes = [count(0), count(1)];
        BuiltRoot { root: self.page, change: self.change, freed: self.freed, nodes }
    }

    /// Closes the open leaf after its first `count` entries, of which there are more.
    fn close_leaf(&mut self, target: &mut BuildTarget<'_>, count: usize) -> Result<()> {
        let upper = LowerSeparator { key: self.leaf.separator(count), long: None };
        let shared = shared_len(&self.leaf.lower.key, &upper.key);
        self.build_leaf(target.tree, count, shared.min(self.shape.prefix_max()))?;
        target.tree.set_leaf_lines(count);
        self.made[0] += 1;
        self.leaf.drain(self.shape, count);
        self.leaf.shared = shared_len(&upper.key, self.leaf.last_key());
        let lower = std::mem::replace(&mut self.leaf.lower, upper);
        let page = self.write_page(target)?;
        self.add_child(target, 0, lower, page)
    }

    fn build_leaf(&mut self, tree: &Tree, count: usize, prefix: usize) -> Result<()> {
        let built = self.leaf.build(self.shape, count, prefix, &mut self.page);
        built.ok_or_else(|| does_not_fit(tree))
    }

    /// Appends a finished child and the separator before it to open node `index`, which is created
    /// if missing.
    fn add_child(
        &mut self,
        target: &mut BuildTarget<'_>,
        index: usize,
        lower: LowerSeparator,
        page: PageId,
    ) -> Result<()> {
        if index >= self.levels.len() {
            self.levels.push(OpenNode::default());
        }
        let Some(node) = self.levels.get_mut(index) else { return Ok(()) };
        if node.first_child.is_none() {
            node.first_child = Some(page.0);
            return Ok(());
        }
        let (prefix, count) = (node.prefix(self.shape, &lower.key), node.cells.len());
        if count > 1 && node.fill.size(prefix) > self.shape.page_bytes {
            self.close_node(target, index, count - 1)?;
        }
        let long = match lower.long {
            None if self.shape.is_long(&lower.key) => {
                Some(self.write_long_key(target, &lower.key)?)
            }
            long => long,
        };
        if let Some(node) = self.levels.get_mut(index) {
            let payload = Payload::Child(page.0);
            node.push(self.shape, Cell { key: lower.key, long, payload });
        }
        Ok(())
    }

    /// Closes open node `index` before separator `count`, which moves up.
    fn close_node(
        &mut self,
        target: &mut BuildTarget<'_>,
        index: usize,
        count: usize,
    ) -> Result<()> {
        let Some(node) = self.levels.get(index) else { return Ok(()) };
        let Some(up) = node.cells.get(count).cloned() else { return Ok(()) };
        let prefix = node.prefix(self.shape, &up.key);
        self.build_node(target.tree, index, count, prefix)?;
        self.made[1] += 1;
        let Some(node) = self.levels.get_mut(index) else { return Ok(()) };
        let rest = node.cells.split_off(count).into_iter().skip(1);
        let Payload::Child(first_child) = up.payload else { return Ok(()) };
        let next = OpenNode {
            lower: LowerSeparator { key: up.key, long: up.long },
            first_child: Some(first_child),
            ..OpenNode::default()
        };
        let closed = std::mem::replace(node, next);
        rest.for_each(|cell| node.push(self.shape, cell));
        let page = self.write_page(target)?;
        self.add_child(target, index + 1, closed.lower, page)
    }

    fn build_node(&mut self, tree: &Tree, index: usize, count: usize, prefix: usize) -> Result<()> {
        let node = self.levels.get(index);
        let built = node.and_then(|node| {
            let cells = node.cells.get(..count)?;
            let level = u8::try_from(index + 1).ok()?;
            let first_child = node.first_child?;
            let prefix = node.lower.key.get(..prefix)?;
            NodeBuilder { level, prefix, first_child, cells }.build(self.shape)
        });
        self.page = built.ok_or_else(|| does_not_fit(tree))?;
        Ok(())
    }

    /// Allocates a page number for the page that was built last, and passes the page to the sink.
    fn write_page(&mut self, target: &mut BuildTarget<'_>) -> Result<PageId> {
        let page = target.tree.reserve(1);
        self.write_as(target, page)?;
        Ok(page)
    }

    fn write_as(&mut self, target: &mut BuildTarget<'_>, page: PageId) -> Result<()> {
        if let Some(number) = self.page.get_mut(4..8) {
            number.copy_from_slice(&page.0.to_le_bytes());
        }
        let sum = checksum(target.tree.cache.salt(), &self.page);
        if let Some(head) = self.page.first_chunk_mut::<4>() {
            *head = sum.to_le_bytes();
        }
        target.write(target.tree.cache.offset(page), &self.page)
    }

    fn write_long_key(&mut self, target: &mut BuildTarget<'_>, key: &[u8]) -> Result<LongKey> {
        let page = self.write_extent(target, [key, &[]])?;
        Ok(LongKey { length: low_u32(to_u64(key.len())), page: page.0 })
    }

    fn write_value(
        &mut self,
        target: &mut BuildTarget<'_>,
        pieces: [&[u8]; 2],
    ) -> Result<ExtentRef> {
        let length = pieces[0].len() + pieces[1].len();
        let (tree, direct) = (target.tree, target.tree.is_direct(length));
        let page = if direct {
            let first = tree.reserve(tree.extent_pages(length, true));
            tree.write_direct(first, pieces)?;
            first
        } else {
            self.write_extent(target, pieces)?
        };
        let checksum = crc32c_append(crc32c(pieces[0]), pieces[1]);
        Ok(ExtentRef { length: low_u32(to_u64(length)), page: page.0, checksum, direct })
    }

    /// Writes bytes to a new extent of pages of the cache ([`crate::bptree::extent`]).
    fn write_extent(&mut self, target: &mut BuildTarget<'_>, pieces: [&[u8]; 2]) -> Result<PageId> {
        let tree = target.tree;
        let count = tree.extent_pages(pieces[0].len() + pieces[1].len(), false);
        let first = tree.reserve(count);
        let mut bytes = pieces[0].iter().chain(pieces[1]).copied();
        for step in 0..count {
            self.page.fill(0);
            if let Some(kind) = self.page.get_mut(8) {
                *kind = EXTENT;
            }
            let part = self.page.get_mut(EXTENT_HEAD_BYTES..).unwrap_or(&mut []);
            for (to, from) in part.iter_mut().zip(&mut bytes) {
                *to = from;
            }
            self.write_as(target, tree.allocator.page_at(first, step))?;
        }
        Ok(first)
    }
}

impl Tree {
    /// Reserves pages for a load.
    fn reserve(&self, count: u64) -> PageId {
        let first = self.allocator.reserve(count);
        // Stale cached content of these pages must not be written over what the load writes.
        (0..count).for_each(|step| self.cache.discard(self.allocator.page_at(first, step)));
        first
    }
}

fn does_not_fit(tree: &Tree) -> Error {
    let what = "the entries of a load do not fit in their page";
    Error::corruption(tree.cache.label(), 0, what)
}

/// Returns the error of calls after a load has failed.
pub(super) fn load_failed() -> Error {
    Error::Limit { what: "the load has failed, and takes no more entries".to_owned() }
}
