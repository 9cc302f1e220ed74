//! Sorted bulk loads: builds the tree bottom-up in pages that nothing refers to yet.
//!
//! How: [`TreeBuilder`] takes entries in ascending order above all keys of the tree, fills leaves
//! and inner nodes completely, and passes whole pages to a [`PageSink`]; none goes through the
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

use super::{
    node::{
        Cell, EXTENT, EXTENT_HEAD_BYTES, EntrySlot, ExtentRef, HEAD_BYTES, HINTS, LongKey,
        NodeBuilder, Payload, REFERENCE_BYTES, SLOT_BYTES, TreeShape, hint_step, leaf_header,
        shared_len, skip_of,
    },
    page_cache::{PageId, ReadGuard, WriteGuard, checksum},
    tree::{Attempt, CountChange, DEPTH_MAX, Garbage, ROOT, Stop, Tree, signed},
};
use crate::{
    Result,
    util::{
        codec::{crc32c, crc32c_append, low_u32, to_u64},
        sync::Ordering,
    },
};

/// A consumer of finished pages.
pub trait PageSink {
    /// Takes the page for `offset` of the file. An error may be of an earlier page.
    fn write(&mut self, offset: u64, page: &[u8]) -> Result<()>;
}

/// The tree that is built, and the sink of its pages.
pub struct BuildTarget<'s> {
    /// The tree.
    pub tree: &'s Tree,
    /// Takes the tree's pages.
    pub sink: &'s mut dyn PageSink,
}

/// The result of a load.
#[derive(Debug)]
pub struct BuiltRoot {
    /// The page of the new root, without the cache's bytes.
    pub root: Vec<u8>,
    /// The change of the counts.
    pub change: CountChange,
    /// Pages that the new root does not refer to: first and count.
    pub freed: Vec<(PageId, u64)>,
    /// Number of leaves and of inner nodes added.
    pub nodes: [i64; 2],
}

/// The size of entries in a node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeFill {
    /// In bytes, with whole keys; of long keys the most that a node holds.
    bytes: usize,
    /// Number of entries whose key loses the prefix.
    short: usize,
}

impl NodeFill {
    fn add(&mut self, shape: TreeShape, (key, payload): (usize, usize), long: bool) {
        let key_bytes = if long { shape.key_inline_max() + REFERENCE_BYTES } else { key };
        self.bytes += SLOT_BYTES + 4 + key_bytes + payload;
        self.short += usize::from(!long);
    }

    /// Returns the size of a node with a prefix of this length.
    const fn size(&self, prefix: usize) -> usize {
        (HEAD_BYTES + prefix).next_multiple_of(8) + self.bytes - self.short * prefix
    }
}

/// An entry of the open leaf: where its key and what follows it lie.
#[derive(Clone, Copy, Debug)]
struct StagedEntry {
    start: usize,
    key_end: usize,
    end: usize,
    /// As in the page.
    word: u32,
    long: Option<LongKey>,
}

/// The separator before a node, and its extent if it is long and has one. Empty if there is none.
#[derive(Clone, Debug, Default)]
struct LowerSeparator {
    key: Vec<u8>,
    long: Option<LongKey>,
}

/// The leaf under construction.
#[derive(Debug, Default)]
struct OpenLeaf {
    lower: LowerSeparator,
    bytes: Vec<u8>,
    entries: Vec<StagedEntry>,
    fill: NodeFill,
    /// What `lower` and the last key share.
    shared: usize,
}

impl OpenLeaf {
    fn key(&self, index: usize) -> &[u8] {
        let entry = self.entries.get(index);
        entry.and_then(|entry| self.bytes.get(entry.start..entry.key_end)).unwrap_or(&[])
    }

    fn last_key(&self) -> &[u8] {
        self.key(self.entries.len().wrapping_sub(1))
    }

    /// Returns the shortest key above entry `index - 1` that is not above entry `index`.
    fn separator(&self, index: usize) -> Vec<u8> {
        let (below, above) = (self.key(index.wrapping_sub(1)), self.key(index));
        above.get(..=shared_len(below, above)).unwrap_or(above).to_vec()
    }

    fn push(
        &mut self,
        shape: TreeShape,
        key: &[u8],
        staged: (u32, Option<LongKey>),
        rest: [&[u8]; 2],
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        for piece in rest {
            self.bytes.extend_from_slice(piece);
        }
        let end = self.bytes.len();
        let (word, long) = staged;
        self.fill.add(shape, (key.len(), end - key_end), long.is_some());
        self.entries.push(StagedEntry { start, key_end, end, word, long });
    }

    /// Removes the first entries, which are in a finished page.
    fn drain(&mut self, shape: TreeShape, count: usize) {
        let from = self.entries.get(count).map_or(self.bytes.len(), |entry| entry.start);
        self.bytes.drain(..from);
        self.entries.drain(..count);
        self.fill = NodeFill::default();
        for entry in &mut self.entries {
            entry.start -= from;
            entry.key_end -= from;
            entry.end -= from;
            let sizes = (entry.key_end - entry.start, entry.end - entry.key_end);
            self.fill.add(shape, sizes, entry.long.is_some());
        }
    }

    /// Returns the first entry of the longest suffix that fits in a leaf without a prefix.
    fn tail(&self, shape: TreeShape) -> usize {
        let mut fill = NodeFill::default();
        let fitting = self.entries.iter().rev().take_while(|entry| {
            let sizes = (entry.key_end - entry.start, entry.end - entry.key_end);
            fill.add(shape, sizes, entry.long.is_some());
            fill.size(0) <= shape.page_bytes
        });
        self.entries.len() - fitting.count()
    }

    /// Builds the page of the first `count` entries, with a prefix of this length.
    fn build(&self, shape: TreeShape, count: usize, prefix: usize, page: &mut [u8]) -> Option<()> {
        page.fill(0);
        let entries = self.entries.get(..count)?;
        let suffix = |entry: &StagedEntry| {
            let suffix = self.bytes.get(entry.start + prefix..entry.key_end)?;
            let inline = if entry.long.is_some() { shape.key_inline_max() } else { suffix.len() };
            suffix.get(..inline.min(suffix.len()))
        };
        let skip = match (entries.first(), entries.last()) {
            (Some(first), Some(last)) => skip_of(suffix(first)?, suffix(last)?),
            _ => 0,
        };
        let slots = (HEAD_BYTES + prefix).next_multiple_of(8);
        let mut heap = shape.page_bytes;
        for (index, entry) in entries.iter().enumerate() {
            let (key, rest) = (suffix(entry)?, self.bytes.get(entry.key_end..entry.end)?);
            let reference = if entry.long.is_some() { REFERENCE_BYTES } else { 0 };
            let bytes = 4 + key.len() + reference + rest.len();
            heap = heap.checked_sub(bytes)?;
            let (word, target) = page.get_mut(heap..heap + bytes)?.split_at_mut_checked(4)?;
            word.copy_from_slice(&entry.word.to_le_bytes());
            let (front, target) = target.split_at_mut_checked(key.len())?;
            front.copy_from_slice(key);
            let (middle, back) = target.split_at_mut_checked(reference)?;
            if let (Some(long), Some((length, page))) = (entry.long, middle.split_at_mut_checked(4))
            {
                length.copy_from_slice(&long.length.to_le_bytes());
                page.copy_from_slice(&long.page.to_le_bytes());
            }
            back.copy_from_slice(rest);
            let at = slots + index * SLOT_BYTES;
            let slot = EntrySlot::encode(key, skip, entry.long.is_some(), heap).to_le_bytes();
            page.get_mut(at..at + SLOT_BYTES)?.copy_from_slice(&slot);
        }
        let front = leaf_header(count, self.key(0).get(..prefix)?, heap, (skip, 0))?;
        page.get_mut(8..8 + front.len())?.copy_from_slice(&front);
        let step = hint_step(count);
        for hint in 0..if step == 0 { 0 } else { HINTS } {
            let at = slots + (hint + 1) * step * SLOT_BYTES + 4;
            page.copy_within(at..at + 4, 32 + hint * 4);
        }
        (slots + count * SLOT_BYTES <= heap).then_some(())
    }
}

/// An inner node under construction.
#[derive(Debug, Default)]
struct OpenNode {
    lower: LowerSeparator,
    /// Missing until the first child is finished.
    first_child: Option<u32>,
    cells: Vec<Cell>,
    fill: NodeFill,
}

fn cell_sizes(cell: &Cell) -> (usize, usize) {
    (cell.key.len(), 0)
}

impl OpenNode {
    fn push(&mut self, shape: TreeShape, cell: Cell) {
        self.fill.add(shape, cell_sizes(&cell), cell.long.is_some());
        self.cells.push(cell);
    }

    /// Returns the length of the node's prefix if `upper` is its upper bound.
    fn prefix(&self, shape: TreeShape, upper: &[u8]) -> usize {
        shared_len(&self.lower.key, upper).min(shape.prefix_max())
    }

    /// Returns the separator before the longest suffix that fits in a node without a prefix.
    fn tail(&self, shape: TreeShape) -> usize {
        let mut fill = NodeFill::default();
        let fitting = self.cells.iter().rev().take_while(|cell| {
            fill.add(shape, cell_sizes(cell), cell.long.is_some());
            fill.size(0) <= shape.page_bytes
        });
        self.cells.len() - fitting.count()
    }
}

/// A bulk load. See the module documentation.
#[derive(Debug)]
pub struct TreeBuilder {
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

/// An entry of the leaf of the last key.
struct PathEntry {
    key: Vec<u8>,
    /// As in [`StagedEntry`].
    word: u32,
    long: Option<LongKey>,
    /// What follows the key.
    rest: Vec<u8>,
}

/// The decoded path to the last key.
#[derive(Default)]
struct LastKeyPath {
    levels: Vec<OpenNode>,
    lower: LowerSeparator,
    entries: Vec<PathEntry>,
    removed: [u64; 2],
    freed: Garbage,
}

impl Tree {
    /// Begins a load: reads the path to the last key. Returns that key too.
    pub fn begin_build(&self) -> Result<(TreeBuilder, Option<Vec<u8>>)> {
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

    fn last_key(&self) -> Result<Option<Vec<u8>>> {
        let mut before: Option<Vec<u8>> = None;
        loop {
            let place = (before.as_deref(), None);
            let found = self.scan_reverse(place, (1, 0), |_, _| (), |key, ()| key)?;
            if let Some(key) = found.entries.into_iter().next() {
                return Ok(Some(key));
            }
            match found.next {
                Some(next) => before = Some(next),
                None => return Ok(None),
            }
        }
    }

    fn read_path(&self, last: Option<&[u8]>) -> Attempt<LastKeyPath> {
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
        target.sink.write(target.tree.cache.offset(page), &self.page)
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

    /// Writes bytes to a new extent of pages of the cache ([`super::extent`]).
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

fn does_not_fit(tree: &Tree) -> crate::Error {
    let what = "the entries of a load do not fit in their page";
    crate::Error::corruption(tree.cache.label(), 0, what)
}
