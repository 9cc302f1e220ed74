//! Descents and lookups. Nothing here stores to shared memory, a page fault apart.

use super::{
    DEPTH_MAX, ROOT, Step, Stop, Tree,
    node::{Held, NodeView},
};
use crate::{
    Result,
    codec::to_usize,
    pages::cache::{PageId, ReadGuard},
};

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
            let child = self.look(&node, |view, fetch| {
                if view.is_leaf() {
                    return Some(None);
                }
                let index = view.child_of(key, fetch)?;
                view.child(index).map(Some)
            })?;
            let Some(child) = child else { return Ok(node) };
            node = self.child_of(&node, child)?;
        }
        Err(if node.is_unchanged() {
            self.damage(node.page(), "the tree is too deep")
        } else {
            Stop::Again
        })
    }

    /// A leaf and its bounds.
    pub(super) fn bounded_leaf(&self, target: Target<'_>) -> Step<(ReadGuard<'_>, Bounds)> {
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
                view.child(index).map(Some)
            })?;
            let Some(child) = child else { return Ok((node, bounds)) };
            node = self.child_of(&node, child)?;
        }
        Err(Stop::Again)
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
            let (index, found) = view.search(key, fetch)?;
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

    /// The values of several keys, in their order. Keys that share a leaf share its descent.
    pub fn multi_get<V>(
        &self,
        keys: &[&[u8]],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
        out: &mut Vec<Option<V>>,
    ) -> Result<()> {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|index| keys.get(*index));
        let mut found: Vec<(usize, Option<V>)> = Vec::with_capacity(keys.len());
        let mut last: Option<(ReadGuard<'_>, Bounds)> = None;
        for index in order {
            let Some(key) = keys.get(index).copied() else { continue };
            let value = self.repeat(|_| {
                let inside = |bounds: &Bounds| bounds.upper.as_deref().is_none_or(|up| key < up);
                let reused = last.take().filter(|(_, bounds)| inside(bounds));
                let (leaf, bounds) = match reused {
                    Some(kept) => kept,
                    None if keys.len() < 4 => (self.leaf_of(key)?, Bounds::default()),
                    None => self.bounded_leaf(Target::Key(key))?,
                };
                let value = self.value_in(&leaf, key, &make)?;
                last = (keys.len() >= 4).then_some((leaf, bounds));
                Ok(value)
            })?;
            found.push((index, value));
        }
        found.sort_unstable_by_key(|(index, _)| *index);
        out.extend(found.into_iter().map(|(_, value)| value));
        Ok(())
    }
}
