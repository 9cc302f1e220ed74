//! Lookups and puts of keys in order. Most are in the leaf of the previous key and need no descent.
//!
//! How: a [`Finger`] holds the last leaf with its version, and the separators that bound it (finger
//! search).
//!
//! Invariants: a leaf's bounds change only with its version. While the version is the same, a key
//! between the bounds belongs to the leaf. A put through the same [`Finger`] updates its version.

use super::{
    bounds::Bounds,
    page_cache::{PageVersion, ReadGuard},
    read::{BuildValue, Target},
    tree::{Attempt, CountChange, Garbage, Tree},
    write::NewValue,
};
use crate::{Result, util::mutant::mutant};

/// The leaf of the previous key, and its bounds. See the module documentation.
#[derive(Debug, Default)]
pub struct Finger {
    leaf: Option<PageVersion>,
    bounds: Bounds,
}

impl Finger {
    fn has(&self, key: &[u8]) -> bool {
        mutant!(NearKeyLeavesItsLeaf => return true);
        let Bounds { lower, upper } = &self.bounds;
        lower.as_deref().is_none_or(|lower| lower <= key)
            && upper.as_deref().is_none_or(|upper| key < upper)
    }
}

impl Tree {
    /// Returns the leaf that a key belongs to: the finger's, or the one that a descent finds.
    fn leaf_by_finger(&self, finger: &mut Finger, key: &[u8]) -> Attempt<ReadGuard<'_>> {
        let leaf = finger.leaf.as_ref().filter(|_| finger.has(key));
        if let Some(leaf) = leaf.and_then(|leaf| self.cache.revalidate(leaf)) {
            return Ok(leaf);
        }
        let (leaf, bounds) = self.bounded_leaf_ahead(Target::Key(key), 0)?;
        *finger = Finger { leaf: Some(leaf.page_version()), bounds };
        Ok(leaf)
    }

    /// As [`Tree::get`], for a key that is probably close to the previous one.
    pub fn get_by_finger<V>(
        &self,
        finger: &mut Finger,
        key: &[u8],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
    ) -> Result<Option<V>> {
        let mut sink = BuildValue { make, value: None };
        let found = self.repeat(|tree| {
            let leaf = tree.leaf_by_finger(finger, key)?;
            tree.value_in(&leaf, key, &mut sink)
        })?;
        Ok(sink.value.filter(|_| found))
    }

    /// As [`Tree::put`], for a key that is probably close to the previous one.
    pub fn put_by_finger(
        &self,
        finger: &mut Finger,
        key: &[u8],
        value: &[u8],
    ) -> Result<CountChange> {
        if !self.shape().is_inline(key, value.len()) {
            return self.put(key, [value, &[]], None);
        }
        let stored = NewValue::Inline([value, &[]]);
        let mut garbage = Garbage::new();
        let done = self.repeat(|tree| {
            let leaf = tree.leaf_by_finger(finger, key)?;
            let put = tree.put_at(&leaf, key, &stored, &mut garbage)?;
            finger.leaf = put.as_ref().map(|(_, after)| *after);
            Ok(put.map(|(change, _)| change))
        });
        let change = match done {
            Ok(None) => self.put_from_root(key, &stored, &mut garbage),
            outcome => outcome.map(Option::unwrap_or_default),
        };
        self.free_pages(garbage);
        change
    }
}
