//! The tree's state, and what every operation uses: attempts that restart, views of nodes, counts.

use std::sync::Arc;

use super::{
    node::{Fetch, HEAD_BYTES, LongKey, NodeBuilder, NodeView, SLOT_BYTES, TreeShape},
    page_allocator::PageAllocator,
    page_cache::{PageCache, PageId, PageVersion, ReadGuard, WriteGuard, page_bytes::PageWords},
};
use crate::{
    Error, Result,
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicBool, AtomicU64, Backoff, Mutex, Ordering},
    },
};

/// The page number of the root. It never changes.
pub const ROOT: PageId = PageId(2);
/// Greatest depth of a tree that is not damaged, in levels. With two children a node, a deeper tree
/// would need more pages than there are page numbers.
pub const DEPTH_MAX: u8 = 32;
/// Length of the longest key, in bytes: twice what users' keys may have, because an index may
/// encode theirs.
pub const KEY_BYTES_MAX: usize = 1 << 17;
/// Maximum number of cache lines of slots to prefetch before a search knows which of them it needs.
const LEAF_LINES_MAX: usize = 16;

/// Returns whether the entry with this stored value is to be removed (a compaction filter).
pub type DropFilter<'c> = &'c dyn Fn(&[u8]) -> bool;

/// Why an attempt at an operation ended before its end.
#[derive(Debug)]
pub enum Stop {
    /// Another thread changed a page on the path: the operation must restart.
    Restart,
    /// The operation has failed.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The outcome of one attempt at an operation.
pub type Attempt<T> = Result<T, Stop>;

/// A B+-tree over a page cache. See the module documentation.
#[derive(Debug)]
pub struct Tree {
    pub(super) cache: Arc<PageCache>,
    pub(super) allocator: PageAllocator,
    pub(super) shape: TreeShape,
    /// Whether large values may be written directly to the file, bypassing the cache.
    pub(super) writes_directly: bool,
    /// Number of leaves and of inner nodes.
    pub(super) node_counts: [AtomicU64; 2],
    /// Number of cache lines at the start of a leaf that a search probably reads, as of the last
    /// split.
    pub(super) leaf_lines: AtomicU64,
    /// Whether recent puts came in ascending order, above all other keys.
    pub(super) is_appending: AtomicBool,
    /// The last leaf and its version after the latest of these puts.
    pub(super) last_leaf: Mutex<Option<PageVersion>>,
}

/// A page that the caller reads, with or without its latch.
pub trait PageReader {
    /// Returns the page's bytes.
    fn words(&self) -> PageWords<'_>;
    /// Whether everything read so far belongs to one state of the page.
    fn is_sound(&self) -> bool;
    /// Returns the page number.
    fn page(&self) -> PageId;
}

impl PageReader for ReadGuard<'_> {
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

impl PageReader for WriteGuard<'_> {
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

/// What an operation adds to the counts of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountChange {
    /// Number of keys added, negative if removed.
    pub keys: i64,
    /// Number of bytes of keys and values added, negative if removed.
    pub bytes: i64,
}

impl CountChange {
    pub(super) fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

/// Pages that a change unlinks: first page and count of each run.
pub(super) type Garbage = Vec<(PageId, u64)>;

impl Tree {
    /// Returns the tree in the pages of `cache`. The caller creates the root of a new tree with
    /// [`Tree::format`]. `writes_directly`: large values may be written directly to the file.
    /// `value_bytes`: see [`TreeShape::value_bytes`].
    pub fn new(
        cache: Arc<PageCache>,
        allocator: PageAllocator,
        writes_directly: bool,
        value_bytes: usize,
    ) -> Self {
        let shape = TreeShape { page_bytes: cache.page_bytes(), value_bytes };
        let node_counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let leaf_lines = AtomicU64::new(0);
        Self {
            cache,
            allocator,
            shape,
            writes_directly,
            node_counts,
            leaf_lines,
            is_appending: AtomicBool::new(false),
            last_leaf: Mutex::new(None),
        }
    }

    /// Returns the number of leaves.
    pub fn leaf_pages(&self) -> u64 {
        self.node_counts[0].load(Ordering::Relaxed)
    }

    /// Returns the number of inner nodes.
    pub fn inner_pages(&self) -> u64 {
        self.node_counts[1].load(Ordering::Relaxed)
    }

    /// Sets the number of leaves, inner nodes and keys of a tree that was opened.
    pub fn set_counts(&self, leaves: u64, inner: u64, keys: u64) {
        self.node_counts[0].store(leaves, Ordering::Relaxed);
        self.node_counts[1].store(inner, Ordering::Relaxed);
        self.set_leaf_lines(to_usize(keys.div_ceil(leaves.max(1)) * 4 / 3));
    }

    /// Records how many slots a full leaf has, as a hint for prefetching.
    pub(super) fn set_leaf_lines(&self, slots: usize) {
        let lines = (HEAD_BYTES + slots * SLOT_BYTES).div_ceil(64);
        // For larger leaves the hints in the node's header select few lines.
        let lines = if lines > LEAF_LINES_MAX { 0 } else { lines };
        self.leaf_lines.store(to_u64(lines), Ordering::Relaxed);
    }

    pub(super) fn count_node(&self, level: u8, more: bool) {
        let count = if level == 0 { &self.node_counts[0] } else { &self.node_counts[1] };
        if more {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of nodes from the root to a leaf, both included; 0 if the root cannot be
    /// read.
    pub fn height(&self) -> u64 {
        let level = self.repeat(|tree| {
            let root = tree.cache.read(ROOT)?;
            tree.with_view(&root, |view, _| Some(view.level()))
        });
        level.map_or(0, |level| u64::from(level) + 1)
    }

    /// Creates the root of a new tree: an empty leaf.
    pub fn format(&self) -> Result<()> {
        let empty = NodeBuilder { level: 0, prefix: &[], first_child: 0, cells: &[] };
        let page = empty.build(self.shape).unwrap_or_default();
        let guard = self.cache.create(ROOT)?;
        self.fill(&guard, page);
        self.count_node(0, true);
        Ok(())
    }

    /// Returns the page cache.
    pub fn cache(&self) -> &PageCache {
        &self.cache
    }

    /// Returns the map of free pages.
    pub const fn allocator(&self) -> &PageAllocator {
        &self.allocator
    }

    /// Returns the size limits.
    pub const fn shape(&self) -> TreeShape {
        self.shape
    }

    /// Sets all bytes of a page, except its checksum (the cache's).
    pub(super) fn fill(&self, guard: &WriteGuard<'_>, mut page: Vec<u8>) {
        debug_assert_eq!(page.len(), self.shape.page_bytes);
        if let Some(number) = page.get_mut(4..8) {
            number.copy_from_slice(&guard.page().0.to_le_bytes());
        }
        guard.edit().put_whole(&page);
    }

    /// Repeats `attempt` until no concurrent change interrupts it.
    pub(super) fn repeat<T>(&self, mut attempt: impl FnMut(&Self) -> Attempt<T>) -> Result<T> {
        let mut backoff = Backoff::default();
        loop {
            match attempt(self) {
                Ok(done) => return Ok(done),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Restart) => backoff.wait(),
            }
        }
    }

    /// Calls `look` with a view of a node. `None` from it means that the bytes make no sense: the
    /// attempt must restart, or, if the page has not changed, is damaged.
    #[inline]
    pub(super) fn with_view<G: PageReader, T>(
        &self,
        guard: &G,
        visit: impl FnOnce(&NodeView<'_>, Fetch<'_>) -> Option<T>,
    ) -> Attempt<T> {
        let mut failure = None;
        let mut fetch = |long: LongKey| {
            let fetched = self.fetch(guard, long);
            fetched.map_err(|stop| failure = Some(stop)).ok()
        };
        let view = NodeView::new(guard.words());
        match view.and_then(|view| visit(&view, &mut fetch)) {
            Some(found) => Ok(found),
            None => Err(failure.unwrap_or_else(|| self.invalid_node(guard))),
        }
    }

    /// A page whose bytes make no sense has changed meanwhile, or is damaged.
    #[cold]
    pub(super) fn invalid_node<G: PageReader>(&self, guard: &G) -> Stop {
        let page = guard.page();
        if guard.is_sound() {
            self.damage(page, "it is no node of the tree")
        } else {
            Stop::Restart
        }
    }

    #[cold]
    pub(super) fn damage(&self, page: PageId, what: &str) -> Stop {
        let (file, offset) = (self.cache.label().to_owned(), self.cache.offset(page));
        Stop::Failed(Error::corruption(file, offset, format!("page {}: {what}", page.0)))
    }

    /// Frees pages and discards their cached content, so that it is not written.
    pub(super) fn free_pages(&self, garbage: Garbage) {
        for (first, count) in garbage {
            for step in 0..count {
                self.cache.discard(self.allocator.page_at(first, step));
            }
            self.allocator.free(first, count);
        }
    }

    /// Returns the number of bytes of a node that are in use.
    pub(super) fn used_bytes(&self, view: &NodeView<'_>) -> usize {
        self.shape.page_bytes.saturating_sub(view.free())
    }
}

/// As [`Tree::fill`], but leaves the bytes between slots and entries as they are, so that they need
/// not be journaled.
pub(super) fn fill_used(guard: &WriteGuard<'_>, page: &[u8]) -> Option<()> {
    let number = |range: std::ops::Range<usize>| {
        let bytes = page.get(range)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let (count, prefix, heap) = (number(10..12)?, number(12..14)?, number(16..20)?);
    let slots_end = (HEAD_BYTES + prefix).next_multiple_of(8) + count * SLOT_BYTES;
    let (front, entries) = (page.get(8..slots_end)?, page.get(heap..)?);
    let edit = guard.edit();
    edit.put_bytes(8, front);
    edit.put_bytes(heap, entries);
    Some(())
}

pub(super) fn signed(bytes: usize) -> i64 {
    i64::try_from(to_u64(bytes)).unwrap_or(i64::MAX)
}

const _: () = assert!(ROOT.0 == 2, "the first extent begins with meta, map and root");
