//! Descents and lookups. Nothing here stores to shared memory, a page fault apart.

use super::{
    DEPTH_MAX, ROOT, Step, Stop, Tree,
    node::{Held, NodeView},
};
use crate::{
    Result,
    codec::to_usize,
    pages::cache::{PageId, ReadGuard},
    sync::Ordering,
};

/// Keys that go down together.
const BATCH: usize = 32;

/// The separators between which a leaf's keys lie; `None` is unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Included.
    pub lower: Option<Vec<u8>>,
    /// Excluded.
    pub upper: Option<Vec<u8>>,
}

impl Bounds {
    /// What the two bounds share, as far as a page may hold it.
    pub fn prefix(&self, longest: usize) -> &[u8] {
        let (Some(lower), Some(upper)) = (&self.lower, &self.upper) else { return &[] };
        let shared = super::node::shared_len(lower, upper).min(longest);
        lower.get(..shared).unwrap_or(&[])
    }
}

/// Where a descent goes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'k> {
    /// To the leaf that this key belongs to.
    Key(&'k [u8]),
    /// To the leaf with the last keys below this one.
    Below(&'k [u8]),
    /// To the last leaf.
    Last,
}

impl Target<'_> {
    /// The number of the child.
    #[inline]
    pub fn child(self, view: &NodeView<'_>, fetch: super::node::Fetch<'_>) -> Option<usize> {
        match self {
            Target::Key(key) => view.child_of(key, fetch),
            Target::Below(key) => view.search(key, fetch).map(|(index, _)| index),
            Target::Last => Some(view.count()),
        }
    }
}

impl Tree {
    /// The child of a node, as of a moment at which the node was as it is.
    #[inline]
    pub(super) fn child_of(&self, node: &ReadGuard<'_>, child: u32) -> Step<ReadGuard<'_>> {
        if !node.is_unchanged() {
            return Err(Stop::Again);
        }
        let next = self.cache.read(PageId(child));
        // The child was this node's when its version was taken; an error of a page that is no
        // longer the node's is none.
        if !node.is_unchanged() {
            return Err(Stop::Again);
        }
        Ok(next?)
    }

    /// The leaf that a key belongs to.
    #[inline]
    pub(super) fn leaf_of(&self, key: &[u8]) -> Step<ReadGuard<'_>> {
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
            Stop::Again
        })
    }

    /// A leaf and its bounds.
    pub(super) fn bounded_leaf(&self, target: Target<'_>) -> Step<(ReadGuard<'_>, Bounds)> {
        self.bounded_leaf_ahead(target, 0)
    }

    /// As [`Tree::bounded_leaf`]; where the leaf is missing, it is read from the disk together with
    /// `ahead` leaves behind it (before it, if that is negative).
    pub(super) fn bounded_leaf_ahead(
        &self,
        target: Target<'_>,
        ahead: isize,
    ) -> Step<(ReadGuard<'_>, Bounds)> {
        let mut node = self.cache.read(ROOT)?;
        let mut bounds = Bounds::default();
        for _ in 0..DEPTH_MAX {
            let child = self.look(&node, |view, fetch| {
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
                if ahead != 0 && view.level() == 1 && !self.cache.contains(PageId(child)) {
                    self.load_ahead(&node, view, index, ahead);
                }
                Some(Some(child))
            })?;
            let Some(child) = child else { return Ok((node, bounds)) };
            node = self.child_of(&node, child)?;
        }
        Err(Stop::Again)
    }

    /// Brings child number `index` of a node and some beside it into the cache.
    #[cold]
    fn load_ahead(&self, node: &ReadGuard<'_>, view: &NodeView<'_>, index: usize, ahead: isize) {
        let last = index.saturating_add_signed(ahead).min(view.count());
        let numbers = index.min(last)..=index.max(last);
        let pages: Option<Vec<_>> = numbers.map(|index| view.child(index).map(PageId)).collect();
        // Numbers of a page that has changed lead anywhere.
        if let Some(pages) = pages.filter(|_| node.is_unchanged()) {
            self.cache.load_many(&pages);
        }
    }

    /// The value of a key: `make` gets its length and what copies it, and may be called again.
    #[inline]
    pub fn get<V>(
        &self,
        key: &[u8],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
    ) -> Result<Option<V>> {
        self.repeat(|tree| {
            let leaf = tree.leaf_of(key)?;
            tree.value_in(&leaf, key, &make)
        })
    }

    /// The value of a key in the leaf that it belongs to.
    #[inline]
    fn value_in<V>(
        &self,
        leaf: &ReadGuard<'_>,
        key: &[u8],
        make: &impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
    ) -> Step<Option<V>> {
        let held = self.look(leaf, |view, fetch| {
            let (index, found) = view.search_inside(key, fetch)?;
            if !found {
                return Some(None);
            }
            view.held(&view.slot(index)?).map(Some)
        })?;
        let value = match held {
            None => None,
            Some(held) => Some(self.make(leaf, &held, make)?),
        };
        if leaf.is_unchanged() { Ok(value) } else { Err(Stop::Again) }
    }

    /// A value as the caller wants it.
    #[inline]
    pub(super) fn make<V>(
        &self,
        leaf: &ReadGuard<'_>,
        held: &Held,
        make: &impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
    ) -> Step<V> {
        match held {
            Held::Here(at, length) => {
                let mut whole = true;
                let value = make(*length, &mut |out: &mut [u8]| {
                    whole = leaf.words().copy_to(*at, out).is_some();
                });
                if whole { Ok(value) } else { Err(self.senseless(leaf)) }
            }
            Held::Far(far) => {
                if !leaf.is_unchanged() {
                    return Err(Stop::Again);
                }
                let mut outcome = Ok(());
                let value = make(to_usize(u64::from(far.length)), &mut |out: &mut [u8]| {
                    outcome = self.read_value(leaf, far, out);
                });
                outcome.map(|()| value)
            }
        }
    }

    /// The values of several keys, in their order. They go down together, level by level, so that
    /// the lines that one waits for come while others are looked at; leaves that are missing are
    /// read from the disk at once.
    pub fn multi_get<V>(
        &self,
        keys: &[&[u8]],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
        out: &mut Vec<Option<V>>,
    ) -> Result<()> {
        out.reserve(keys.len());
        for keys in keys.chunks(BATCH) {
            let mut nodes: [Option<ReadGuard<'_>>; BATCH] = [None; BATCH];
            self.leaves_of(keys, &mut nodes)?;
            for (node, key) in nodes.iter().zip(keys) {
                let _ = view_of(node.as_ref()).and_then(|view| view.prefetch_slots(key));
            }
            for (node, key) in nodes.iter().zip(keys) {
                let _ = view_of(node.as_ref()).and_then(|view| view.prefetch_entry(key));
            }
            for (node, key) in nodes.iter().zip(keys) {
                let found = node.as_ref().map(|leaf| self.value_in(leaf, key, &make));
                out.push(match found {
                    Some(Ok(value)) => value,
                    Some(Err(Stop::Failed(error))) => return Err(error),
                    // It changed, or was missing: once more, alone.
                    Some(Err(Stop::Again)) | None => self.get(key, &make)?,
                });
            }
        }
        Ok(())
    }

    /// Brings the leaves of these keys into the cache, many at once. A hint: what fails is met
    /// again by who needs the leaf.
    pub fn load_leaves(&self, keys: &[impl AsRef<[u8]>]) {
        for keys in keys.chunks(BATCH) {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            let mut nodes: [Option<ReadGuard<'_>>; BATCH] = [None; BATCH];
            let _: Result<()> = self.leaves_of(&keys, &mut nodes);
        }
    }

    /// The leaves of at most [`BATCH`] keys, as far as they are in the cache and nothing changes;
    /// those that are not are brought there.
    fn leaves_of<'t>(
        &'t self,
        keys: &[&[u8]],
        nodes: &mut [Option<ReadGuard<'t>>; BATCH],
    ) -> Result<()> {
        let root = self.cache.read(ROOT)?;
        let nodes = nodes.get_mut(..keys.len()).unwrap_or(&mut []);
        nodes.fill(Some(root));
        let mut missing = Vec::new();
        for _ in 0..DEPTH_MAX {
            let mut children = [None; BATCH];
            let mut deeper = false;
            for ((node, key), child) in nodes.iter_mut().zip(keys).zip(&mut children) {
                let Some(here) = node else { continue };
                match self.child_for(here, key) {
                    Ok(Some((page, _))) => {
                        deeper = true;
                        *child = Some(page);
                        if !self.cache.prefetch(page) {
                            missing.push(page);
                        }
                    }
                    Ok(None) => {}
                    Err(_) => *node = None,
                }
            }
            if !deeper {
                break;
            }
            if !missing.is_empty() {
                missing.sort_unstable();
                missing.dedup();
                self.cache.load_many(&missing);
                missing.clear();
            }
            for (node, child) in nodes.iter_mut().zip(children) {
                if let (Some(here), Some(child)) = (*node, child) {
                    *node = self.child_of(&here, child.0).ok();
                }
            }
        }
        Ok(())
    }

    /// The child of a node that a key belongs to, and the node's level; `None` for a leaf.
    #[inline]
    fn child_for(&self, node: &ReadGuard<'_>, key: &[u8]) -> Step<Option<(PageId, u8)>> {
        self.look(node, |view, fetch| {
            if view.is_leaf() {
                return Some(None);
            }
            let index = view.child_of(key, fetch)?;
            Some(Some((PageId(view.child(index)?), view.level())))
        })
    }
}

fn view_of<'n>(node: Option<&'n ReadGuard<'_>>) -> Option<NodeView<'n>> {
    NodeView::new(node?.words())
}
