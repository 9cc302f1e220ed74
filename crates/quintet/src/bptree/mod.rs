//! A concurrent B+-tree of byte strings over a page cache.
//!
//! What: slotted pages with key heads and shared prefixes ([`node`], [`build`]), optimistic
//! descents ([`read`]), changes of one leaf under its latch and of several from the root down
//! ([`write`], [`balance`], [`split`]), scans both ways by re-descent ([`run`], [`scan`]),
//! extents for what does not fit in a page ([`extent`]), and the map of free pages ([`space`]).
//! Why: keys in order, one leaf a lookup, and no lock for readers.
//!
//! A descent reads a node, remembers the child, takes the child's version, and then makes sure that
//! the node had not changed: so each step was true at one moment, and a descent that meets a change
//! begins anew. The root never moves: when it is full, its content moves to a new child.
//!
//! A writer upgrades the leaf that its descent found. Where the leaf has no room (or gets too
//! empty), it goes again from the root, latching parent and child: a child that could not take one
//! more separator is split before it is entered, so a split never has to go back up.
//!
//! Leaves of trees of many small entries are packed, and share with a neighbour before they split
//! ([`spread`]).
//!
//! Sorted entries behind all others need no writer at all: whole pages are built from them, and a
//! new root makes them the tree's ([`bulk`]).
//!
//! Keys that come in order are looked for in the leaf of the one before first ([`near`]).
//!
//! There are no links between leaves. A descent knows the separators that bound its leaf; a scan
//! goes on with the bound of the leaf that it has read.
//!
//! Puts in ascending order fill leaves to the end: a full last leaf is left as it is, and a new one
//! begins with the new key. While they go on, the last leaf is known and needs no descent.
//!
//! Latch order: parent before child, left sibling before right, any of them before a page that
//! was just taken from the free pages. A writer that upgraded a leaf waits for no other node.
//!
//! Invariants:
//! - All leaves have level 0 and one depth; a child's level is one less than its parent's.
//! - Keys of a child lie from its separator (included) to the next one (excluded).
//! - A node's prefix is shared by the two separators that bound it.
//! - What is freed is freed after the change that let go of it, under the same cut.
//!
//! Thread rules: any number of readers and writers. The engine serialises writes of one key.
//!
//! How we differ from the paper (ckvs): versions instead of lock coupling; variable-length keys
//! with prefixes and heads; deletes merge; duplicates cannot exist; separators are as short as
//! tells their neighbours apart.

pub mod build;
pub mod bulk;
pub mod check;
pub(crate) mod checkpoint;
pub mod extent;
pub mod finger;
#[cfg(all(test, shuttle))]
mod models;
mod multi_get;
pub mod node;
pub mod page_allocator;
pub(crate) mod page_cache;
pub mod read;
mod redistribute;
pub mod restructure;
pub mod scan_forward;
pub mod scan_reverse;
mod split;
#[cfg(test)]
#[cfg(not(model))]
pub(crate) mod tests;
pub mod write;

use std::sync::Arc;

use self::{
    node::{Fetch, HEAD_BYTES, LongKey, NodeView},
    page_allocator::Space,
};
use crate::{
    Error,
    bptree::page_cache::{PageCache, PageId, ReadGuard, Seen, WriteGuard, page_bytes::PageWords},
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, Backoff, Mutex, Ordering},
    },
};

/// The page of the root.
pub const ROOT: PageId = PageId(2);
/// Longest way from the root that is believed: with two children a node, more pages than there
/// are numbers.
pub const DEPTH_MAX: u8 = 32;

/// Longest key, in bytes: twice what users' may have, because an index may code theirs.
pub const KEY_BYTES_MAX: usize = 1 << 17;
/// Most lines of slots that are fetched before it is known which of them are needed.
const LEAF_LINES_MAX: usize = 16;

/// Sizes that follow from the page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// A power of two from 4096 to 65,536.
    pub page_bytes: usize,
    /// Leaves whose values all have this many bytes are packed, and share with a neighbour before
    /// they split: for trees of many small entries. 0: none are.
    pub value_bytes: usize,
}

impl Shape {
    /// Whether a leaf with so many entries is packed, if they all are as they have to be.
    pub const fn packs(self, count: usize) -> bool {
        self.value_bytes > 0 && count > 0
    }

    /// Keys of at most this many bytes are in their node; of longer ones, this much is.
    pub const fn key_inline_max(self) -> usize {
        self.page_bytes / 16
    }

    /// Longest prefix.
    pub const fn prefix_max(self) -> usize {
        self.page_bytes / 16
    }

    /// Entries (slot included) of at most this many bytes are in their leaf: so of two halves of
    /// a full leaf each takes one more.
    pub const fn entry_max(self) -> usize {
        (self.page_bytes - HEAD_BYTES) / 4 - 16
    }

    /// Bytes of the longest separator with its slot.
    pub const fn separator_max(self) -> usize {
        self.key_inline_max() + 24
    }

    /// A node with fewer bytes in use looks for a sibling to merge with.
    pub const fn underfull(self) -> usize {
        self.page_bytes / 4
    }

    /// Two siblings are merged if they take at most this together: not so much that the next
    /// insert splits them again.
    pub const fn merged_max(self) -> usize {
        self.page_bytes / 8 * 7
    }
}

/// Why an attempt ended early.
#[derive(Debug)]
pub enum Stop {
    /// Something changed meanwhile: begin anew.
    Again,
    /// It cannot be done.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// One attempt.
pub type Step<T> = Result<T, Stop>;

/// The tree. See the module head.
#[derive(Debug)]
pub struct Tree {
    cache: Arc<PageCache>,
    space: Space,
    shape: Shape,
    /// Whether large values may go to the file at once.
    writes_directly: bool,
    /// Leaves, and inner nodes.
    node_counts: [AtomicU64; 2],
    /// Lines of a leaf, from its start, that a search is likely to look at: as of the last split.
    leaf_lines: AtomicU64,
    /// Keys come in ascending order, behind all others.
    is_appending: AtomicBool,
    /// The last leaf, as the last of these puts left it.
    last_leaf: Mutex<Option<Seen>>,
}

/// A page that is looked at, with or without its latch.
pub trait Looked {
    /// Its bytes.
    fn words(&self) -> PageWords<'_>;
    /// Whether what was read is one state.
    fn is_sound(&self) -> bool;
    /// Its number.
    fn page(&self) -> PageId;
}

impl Looked for ReadGuard<'_> {
    #[inline]
    fn words(&self) -> PageWords<'_> {
        self.words()
    }

    #[inline]
    fn is_sound(&self) -> bool {
        self.is_unchanged()
    }

    fn page(&self) -> PageId {
        self.page()
    }
}

impl Looked for WriteGuard<'_> {
    fn words(&self) -> PageWords<'_> {
        self.words()
    }

    fn is_sound(&self) -> bool {
        true
    }

    fn page(&self) -> PageId {
        self.page()
    }
}

/// What a change did to the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Keys more.
    pub keys: i64,
    /// Bytes of keys and values more.
    pub bytes: i64,
}

impl Change {
    fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

/// Pages that a change lets go of: first and count.
type Garbage = Vec<(PageId, u64)>;

impl Tree {
    /// The tree in these pages. For a new one, [`Tree::format`] makes the root.
    /// `writes_directly`: large values may be written to the file at once. `value_bytes`: see
    /// [`Shape`].
    pub fn new(
        cache: Arc<PageCache>,
        space: Space,
        writes_directly: bool,
        value_bytes: usize,
    ) -> Self {
        let shape = Shape { page_bytes: cache.page_bytes(), value_bytes };
        let node_counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let leaf_lines = AtomicU64::new(0);
        Self {
            cache,
            space,
            shape,
            writes_directly,
            node_counts,
            leaf_lines,
            is_appending: AtomicBool::new(false),
            last_leaf: Mutex::new(None),
        }
    }

    /// Leaves.
    pub fn leaf_pages(&self) -> u64 {
        self.node_counts[0].load(Ordering::Relaxed)
    }

    /// Inner nodes.
    pub fn inner_pages(&self) -> u64 {
        self.node_counts[1].load(Ordering::Relaxed)
    }

    /// Says how many leaves, inner nodes and keys there are: of a tree that was read.
    pub fn set_counts(&self, leaves: u64, inner: u64, keys: u64) {
        self.node_counts[0].store(leaves, Ordering::Relaxed);
        self.node_counts[1].store(inner, Ordering::Relaxed);
        self.note_leaf_size(to_usize(keys.div_ceil(leaves.max(1)) * 4 / 3));
    }

    /// Notes how many slots a full leaf has.
    fn note_leaf_size(&self, slots: usize) {
        let lines = (HEAD_BYTES + slots * node::SLOT_BYTES).div_ceil(64);
        // Of more than these the hints leave few.
        let lines = if lines > LEAF_LINES_MAX { 0 } else { lines };
        self.leaf_lines.store(to_u64(lines), Ordering::Relaxed);
    }

    fn count_node(&self, level: u8, more: bool) {
        let count = if level == 0 { &self.node_counts[0] } else { &self.node_counts[1] };
        if more {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Nodes from the root to a leaf.
    pub fn height(&self) -> u64 {
        let level = self.repeat(|tree| {
            let root = tree.cache.read(ROOT)?;
            tree.look(&root, |view, _| Some(view.level()))
        });
        level.map_or(0, |level| u64::from(level) + 1)
    }

    /// Makes the root of a new tree: an empty leaf.
    pub fn format(&self) -> crate::Result<()> {
        let empty = build::NodeBuilder { level: 0, prefix: &[], first_child: 0, cells: &[] };
        let page = empty.build(self.shape).unwrap_or_default();
        let guard = self.cache.create(ROOT)?;
        self.fill(&guard, page);
        self.count_node(0, true);
        Ok(())
    }

    /// The cache.
    pub fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// The free pages.
    pub const fn space(&self) -> &Space {
        &self.space
    }

    /// The sizes.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Sets a page's bytes, but for those of the cache.
    fn fill(&self, guard: &WriteGuard<'_>, mut page: Vec<u8>) {
        debug_assert_eq!(page.len(), self.shape.page_bytes);
        if let Some(number) = page.get_mut(4..8) {
            number.copy_from_slice(&guard.page().0.to_le_bytes());
        }
        guard.edit().put_whole(&page);
    }

    /// Tries until nothing changes meanwhile.
    fn repeat<T>(&self, mut attempt: impl FnMut(&Self) -> Step<T>) -> crate::Result<T> {
        let mut patience = Backoff::default();
        loop {
            match attempt(self) {
                Ok(done) => return Ok(done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Again) => patience.wait(),
            }
        }
    }

    /// Looks at a node.
    #[inline]
    fn look<G: Looked, T>(
        &self,
        guard: &G,
        look: impl FnOnce(&NodeView<'_>, Fetch<'_>) -> Option<T>,
    ) -> Step<T> {
        let mut failure = None;
        let mut fetch = |long: LongKey| {
            let fetched = self.fetch(guard, long);
            fetched.map_err(|stop| failure = Some(stop)).ok()
        };
        let view = NodeView::new(guard.words());
        match view.and_then(|view| look(&view, &mut fetch)) {
            Some(found) => Ok(found),
            None => Err(failure.unwrap_or_else(|| self.senseless(guard))),
        }
    }

    /// A page that makes no sense has changed, or is damaged.
    #[cold]
    fn senseless<G: Looked>(&self, guard: &G) -> Stop {
        let page = guard.page();
        if guard.is_sound() { self.damage(page, "it is no node of the tree") } else { Stop::Again }
    }

    #[cold]
    fn damage(&self, page: PageId, what: &str) -> Stop {
        let (file, offset) = (self.cache.label().to_owned(), self.cache.offset(page));
        Stop::Failed(Error::corruption(file, offset, format!("page {}: {what}", page.0)))
    }

    /// Gives pages back; those in the cache need not be written.
    fn let_go(&self, garbage: Garbage) {
        for (first, count) in garbage {
            for step in 0..count {
                self.cache.discard(self.space.page_at(first, step));
            }
            self.space.give(first, count);
        }
    }

    /// Bytes of a node that are in use.
    fn used_bytes(&self, view: &NodeView<'_>) -> usize {
        self.shape.page_bytes.saturating_sub(view.free())
    }
}

/// As [`Tree::fill`]; what lies between slots and entries stays what it is, so that it need not
/// be journaled.
fn fill_used(guard: &WriteGuard<'_>, page: &[u8]) -> Option<()> {
    let number = |range: std::ops::Range<usize>| {
        let bytes = page.get(range)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let (count, prefix, heap) = (number(10..12)?, number(12..14)?, number(16..20)?);
    let slots_end = (HEAD_BYTES + prefix).next_multiple_of(8) + count * node::SLOT_BYTES;
    let (front, entries) = (page.get(8..slots_end)?, page.get(heap..)?);
    let edit = guard.edit();
    edit.put_bytes(8, front);
    edit.put_bytes(heap, entries);
    Some(())
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(to_u64(bytes)).unwrap_or(i64::MAX)
}
