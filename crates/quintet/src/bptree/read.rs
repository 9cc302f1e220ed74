//! Descents and lookups. They store nothing to shared memory, except on a page fault.
//!
//! Start with `Tree::leaf_of` (the descent) and `Tree::value_in` (the lookup in a leaf).

use super::{
    bounds::Bounds,
    node::{ExtentRef, Fetch, NodeView, StoredValue},
    page_cache::{PageId, ReadGuard},
    tree::{Attempt, DEPTH_MAX, ROOT, Stop, Tree},
};
use crate::{
    Result,
    contract::ValueSink,
    util::{codec::to_usize, sync::Ordering},
};

/// Which leaf a descent looks for.
#[derive(Clone, Copy, Debug)]
pub enum Target<'k> {
    /// The leaf that this key belongs to.
    Key(&'k [u8]),
    /// The leaf with the last keys below this one.
    Below(&'k [u8]),
    /// The last leaf.
    Last,
}

impl Target<'_> {
    /// Returns the number of the child to descend to.
    #[inline]
    pub fn child(self, view: &NodeView<'_>, fetch: Fetch<'_>) -> Option<usize> {
        match self {
            Target::Key(key) => view.child_of(key, fetch),
            Target::Below(key) => view.search(key, fetch).map(|(index, _)| index),
            Target::Last => Some(view.count()),
        }
    }
}

impl Tree {
    /// Returns a child of a node that has not changed since `child` was read from it.
    #[inline]
    pub(super) fn child_of(&self, node: &ReadGuard<'_>, child: u32) -> Attempt<ReadGuard<'_>> {
        let Some(next) = self.cache.lookup(PageId(child)) else {
            return self.load_child(node, child);
        };
        // The node was unchanged after the child's version was read.
        if node.is_unchanged() { Ok(next) } else { Err(Stop::Restart) }
    }

    #[cold]
    fn load_child(&self, node: &ReadGuard<'_>, child: u32) -> Attempt<ReadGuard<'_>> {
        // A page that has changed yields an arbitrary page number.
        if !node.is_unchanged() {
            return Err(Stop::Restart);
        }
        let next = self.cache.read(PageId(child));
        // An error of a page that is no longer the node's child must be ignored.
        if !node.is_unchanged() {
            return Err(Stop::Restart);
        }
        Ok(next?)
    }

    /// Returns the leaf that a key belongs to. Costs one node per level.
    #[inline]
    pub(super) fn leaf_of(&self, key: &[u8]) -> Attempt<ReadGuard<'_>> {
        let mut node = self.cache.read(ROOT)?;
        for _ in 0..DEPTH_MAX {
            let Some((child, level)) = self.child_for(&node, key)? else { return Ok(node) };
            if level == 1 {
                self.cache.prefetch_lines(child, self.leaf_lines.load(Ordering::Relaxed));
            }
            node = self.child_of(&node, child.0)?;
        }
        Err(if node.is_unchanged() {
            self.damage(node.page(), "the tree is too deep")
        } else {
            Stop::Restart
        })
    }

    /// Returns a leaf and its bounds. If the leaf is not in the cache, it is read from disk
    /// together with `ahead` leaves after it (before it, if `ahead` is negative).
    pub(super) fn bounded_leaf_ahead(
        &self,
        target: Target<'_>,
        ahead: isize,
    ) -> Attempt<(ReadGuard<'_>, Bounds)> {
        self.bounded_leaf_if(target, Some(ahead))?.ok_or(Stop::Restart)
    }

    /// As [`Tree::bounded_leaf_ahead`]. If `ahead` is `None`, returns `None` for a leaf that is not
    /// in the cache.
    pub(super) fn bounded_leaf_if(
        &self,
        target: Target<'_>,
        ahead: Option<isize>,
    ) -> Attempt<Option<(ReadGuard<'_>, Bounds)>> {
        let mut node = self.cache.read(ROOT)?;
        let mut bounds = Bounds::default();
        for _ in 0..DEPTH_MAX {
            let child = self.with_view(&node, |view, fetch| {
                if view.is_leaf() {
                    return Some(None);
                }
                let index = target.child(view, fetch)?;
                if let Some(below) = index.checked_sub(1) {
                    bounds.lower = Some(view.full_key(&view.slot(below)?, fetch)?);
                }
                if index < view.count() {
                    bounds.upper = Some(view.full_key(&view.slot(index)?, fetch)?);
                }
                let child = view.child(index)?;
                let ahead = ahead.filter(|ahead| *ahead != 0 && view.level() == 1);
                if let Some(ahead) = ahead.filter(|_| !self.cache.contains(PageId(child))) {
                    self.load_ahead(&node, view, index, ahead);
                }
                Some(Some((child, view.level())))
            })?;
            let Some((child, level)) = child else { return Ok(Some((node, bounds))) };
            if ahead.is_none() && level == 1 && !self.cache.contains(PageId(child)) {
                return Ok(None);
            }
            node = self.child_of(&node, child)?;
        }
        Err(Stop::Restart)
    }

    /// Loads child `index` of a node and children beside it into the cache.
    #[cold]
    fn load_ahead(&self, node: &ReadGuard<'_>, view: &NodeView<'_>, index: usize, ahead: isize) {
        let last = index.saturating_add_signed(ahead).min(view.count());
        let numbers = index.min(last)..=index.max(last);
        let pages: Option<Vec<_>> = numbers.map(|index| view.child(index).map(PageId)).collect();
        // A page that has changed yields arbitrary page numbers.
        if let Some(pages) = pages.filter(|_| node.is_unchanged()) {
            self.cache.load_many(&pages);
        }
    }

    /// Returns the value of a key. `make` gets the value's length and a function that copies it; it
    /// may be called again after a concurrent change.
    #[inline]
    pub fn get<V>(
        &self,
        key: &[u8],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
    ) -> Result<Option<V>> {
        let mut sink = BuildValue { make, value: None };
        let found = self.find(key, &mut sink)?;
        Ok(sink.value.filter(|_| found))
    }

    /// Passes the value of a key to `sink`, which may be called more than once.
    #[inline]
    pub fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        let mut adapter = SinkAdapter { sink, output: None };
        let found = self.find(key, &mut adapter)?;
        Ok(adapter.output.filter(|_| found))
    }

    /// Passes the value of a key to `sink`. Returns `false` if the key is absent.
    #[inline]
    pub(super) fn find<S: LeafSink>(&self, key: &[u8], sink: &mut S) -> Result<bool> {
        self.repeat(|tree| {
            let leaf = tree.leaf_of(key)?;
            tree.value_in(&leaf, key, sink)
        })
    }

    /// Passes the value of a key in this leaf to `sink`. Returns `false` if the key is absent.
    #[inline]
    pub(super) fn value_in<S: LeafSink>(
        &self,
        leaf: &ReadGuard<'_>,
        key: &[u8],
        sink: &mut S,
    ) -> Attempt<bool> {
        self.value_where(leaf, sink, |view, fetch| view.search_inside(key, fetch))
    }

    /// As [`Tree::value_in`], for the key that `search` finds.
    #[inline]
    pub(super) fn value_where<S: LeafSink>(
        &self,
        leaf: &ReadGuard<'_>,
        sink: &mut S,
        search: impl FnOnce(&NodeView<'_>, Fetch<'_>) -> Option<(usize, bool)>,
    ) -> Attempt<bool> {
        let stored = self.with_view(leaf, |view, fetch| {
            let (index, found) = search(view, fetch)?;
            if !found {
                return Some(None);
            }
            view.stored_value(&view.slot(index)?).map(Some)
        })?;
        if let Some(stored) = &stored {
            sink.read_from(self, leaf, stored)?;
        }
        if leaf.is_unchanged() { Ok(stored.is_some()) } else { Err(Stop::Restart) }
    }

    /// Returns a value as `make` builds it.
    #[inline]
    pub(super) fn make<V>(
        &self,
        leaf: &ReadGuard<'_>,
        stored: &StoredValue,
        make: &impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
    ) -> Attempt<V> {
        match stored {
            StoredValue::Inline(at, length) => {
                let mut whole = true;
                let value = make(*length, &mut |out: &mut [u8]| {
                    whole = leaf.words().copy_to(*at, out).is_some();
                });
                if whole { Ok(value) } else { Err(self.invalid_node(leaf)) }
            }
            StoredValue::Extent(extent) => {
                // A length from a page that has changed may be any.
                if !leaf.is_unchanged() {
                    return Err(Stop::Restart);
                }
                let mut outcome = Ok(());
                let value = make(to_usize(u64::from(extent.length)), &mut |out: &mut [u8]| {
                    outcome = self.read_value(leaf, extent, out);
                });
                outcome.map(|()| value)
            }
        }
    }

    /// Copies a value into `out`, replacing its content.
    #[inline]
    fn copy_value(
        &self,
        leaf: &ReadGuard<'_>,
        stored: &StoredValue,
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        match stored {
            StoredValue::Inline(at, length) => {
                out.resize(*length, 0);
                let copied = leaf.words().copy_to(*at, out);
                copied.ok_or_else(|| self.invalid_node(leaf))
            }
            StoredValue::Extent(extent) => self.copy_extent(leaf, extent, out),
        }
    }

    /// Passes a value in an extent to `sink`.
    #[cold]
    fn copy_extent_to<S: ValueSink>(
        &self,
        leaf: &ReadGuard<'_>,
        stored: &StoredValue,
        sink: &mut S,
    ) -> Attempt<S::Output> {
        // The length is arbitrary if the page has changed.
        let StoredValue::Extent(extent) = stored else { return Err(self.invalid_node(leaf)) };
        if !leaf.is_unchanged() {
            return Err(Stop::Restart);
        }
        let length = to_usize(u64::from(extent.length));
        // A direct extent has one checksum, over all of it: no part can be verified alone. A sink
        // that needs only the first bytes (the envelope, which says when the value expires) costs a
        // read of the whole value.
        let length = if extent.direct { length } else { sink.needed_bytes(length) };
        let mut outcome = Ok(());
        let output = sink.of_copy(length, &mut |out: &mut [u8]| {
            outcome = self.read_value(leaf, extent, out);
        });
        outcome.map(|()| output)
    }

    #[cold]
    fn copy_extent(
        &self,
        leaf: &ReadGuard<'_>,
        extent: &ExtentRef,
        out: &mut Vec<u8>,
    ) -> Attempt<()> {
        // A length from a page that has changed may be any.
        if !leaf.is_unchanged() {
            return Err(Stop::Restart);
        }
        out.clear();
        out.resize(to_usize(u64::from(extent.length)), 0);
        self.read_value(leaf, extent, out)
    }

    /// Returns the child of a node that a key belongs to, and the node's level; `None` for a leaf.
    #[inline]
    pub(super) fn child_for(
        &self,
        node: &ReadGuard<'_>,
        key: &[u8],
    ) -> Attempt<Option<(PageId, u8)>> {
        self.with_view(node, |view, fetch| {
            if view.is_leaf() {
                return Some(None);
            }
            let index = view.child_of(key, fetch)?;
            Some(Some((PageId(view.child(index)?), view.level())))
        })
    }
}

/// A consumer of values found in leaves.
pub(super) trait LeafSink {
    /// Copies a value out of its leaf. The copy is valid once the leaf is known to be unchanged;
    /// otherwise this may be called again.
    fn read_from(&mut self, tree: &Tree, leaf: &ReadGuard<'_>, stored: &StoredValue)
    -> Attempt<()>;
}

/// Builds the caller's type from a value.
pub(super) struct BuildValue<M, V> {
    pub(super) make: M,
    pub(super) value: Option<V>,
}

impl<V, M: Fn(usize, &mut dyn FnMut(&mut [u8])) -> V> LeafSink for BuildValue<M, V> {
    #[inline]
    fn read_from(
        &mut self,
        tree: &Tree,
        leaf: &ReadGuard<'_>,
        stored: &StoredValue,
    ) -> Attempt<()> {
        self.value = Some(tree.make(leaf, stored, &self.make)?);
        Ok(())
    }
}

/// Adapts a [`ValueSink`] to values of a leaf.
struct SinkAdapter<'s, S: ValueSink> {
    sink: &'s mut S,
    output: Option<S::Output>,
}

impl<S: ValueSink> LeafSink for SinkAdapter<'_, S> {
    #[inline]
    fn read_from(
        &mut self,
        tree: &Tree,
        leaf: &ReadGuard<'_>,
        stored: &StoredValue,
    ) -> Attempt<()> {
        if let StoredValue::Inline(at, length) = *stored {
            let words = leaf.words().atomics(at, length).ok_or_else(|| tree.invalid_node(leaf))?;
            self.output = Some(self.sink.of_words(words, (at, length)));
            return Ok(());
        }
        self.output = Some(tree.copy_extent_to(leaf, stored, self.sink)?);
        Ok(())
    }
}

/// Collects all bytes of a value.
#[derive(Debug, Default)]
pub(super) struct ValueBytes(pub(super) Vec<u8>);

impl LeafSink for ValueBytes {
    #[inline]
    fn read_from(
        &mut self,
        tree: &Tree,
        leaf: &ReadGuard<'_>,
        stored: &StoredValue,
    ) -> Attempt<()> {
        tree.copy_value(leaf, stored, &mut self.0)
    }
}
