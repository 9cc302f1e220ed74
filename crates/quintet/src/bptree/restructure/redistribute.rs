//! Redistribution: a full leaf shares entries with its right neighbour before the tree gets a new
//! leaf.
//!
//! How: the entries of the full leaf and its right neighbour are divided anew over two leaves, or
//! over three if two would be more than 15/16 full. A plain leaf that is full is packed first, if
//! that makes room. After the B*-tree (Knuth, The Art of Computer Programming, volume 3, 6.2.4).
//!
//! Why: leaves that split alone are 69 % full with random keys, and here 80 %. An index that must
//! be in memory is a seventh smaller. It changes one more page and copies two leaves, so only trees
//! of many small entries ([`crate::bptree::node::TreeShape::value_bytes`]) do it.
//!
//! Invariants: a leaf shares only with a child of the same parent, so one latched parent has all
//! their separators. Nothing changes before all pages are built and the parent is known to have
//! room.

use super::leaf_entries::{FullLeaf, LeafEntries, NewEntry};
use crate::{
    Error,
    bptree::{
        bounds::Bounds,
        node::{Cell, EntrySlot, HEAD_BYTES, Payload},
        page_cache::{PageId, WriteGuard},
        tree::{Attempt, ROOT, Stop, Tree, fill_used},
    },
    util::mutant::mutant,
};

/// Maximum fill of two leaves after sharing, in sixteenths. By simulation (200 entries a leaf,
/// random keys) leaves are 70, 79, 80 and 82 % full without sharing, with 14 sixteenths, 15, and
/// 15.5. An insert copies 2.5, 3.2, 4 and 5.2 entries on average. Sharing with both neighbours
/// gives 83 % with 15 sixteenths and copies 6.5.
const FULL_SIXTEENTHS: usize = 15;

/// A slot of a parent, and the size of its entry in bytes.
struct Separator {
    slot: EntrySlot,
    bytes: usize,
}

impl Tree {
    /// Puts an entry into a full leaf by sharing with its right neighbour. Returns `false`, with no
    /// change, if that is not possible.
    pub(super) fn redistribute(
        &self,
        parent: &WriteGuard<'_>,
        parent_bounds: &Bounds,
        full: &FullLeaf<'_>,
        new: &NewEntry<'_>,
    ) -> Attempt<bool> {
        if self.shape.value_bytes == 0 {
            return Ok(false);
        }
        if self.pack(full, new)? {
            return Ok(true);
        }
        let Some((right, separator)) = self.neighbour(parent, full)? else { return Ok(false) };
        let high = self.child_bounds(parent, full.index + 1, parent_bounds)?;
        let whole = Bounds { lower: full.bounds.lower.clone(), upper: high.upper };
        let base = whole.prefix(self.shape.prefix_max());
        let begins = |prefix: &[u8]| prefix.starts_with(base);
        let entries = self.with_view(full.leaf, |view, _| {
            let mut entries = LeafEntries::new(base.to_vec());
            let added = entries.add_leaf_with(view, (new.at, new.found), new.key, new.value);
            Some(
                added
                    .filter(|()| view.prefix().is_some_and(|prefix| begins(&prefix)))
                    .map(|()| entries),
            )
        })?;
        let Some(mut entries) = entries else { return Ok(false) };
        let right_taken = self.with_view(&right, |view, _| {
            let fits = view.prefix().is_some_and(|prefix| begins(&prefix));
            Some(fits && entries.add_leaf(view).is_some())
        })?;
        if !right_taken {
            return Ok(false);
        }
        let room = self.shape.page_bytes - HEAD_BYTES - base.len();
        let parts = if entries.size(self.shape) * 16 <= 2 * room * FULL_SIXTEENTHS { 2 } else { 3 };
        if entries.count() < parts {
            return Ok(false);
        }
        let Some(built) = self.build_parts(&entries, parts, whole) else { return Ok(false) };
        self.store_parts((parent, full.index, separator), (full.leaf, &right), &built)?;
        self.set_leaf_lines(entries.count() / 2);
        Ok(true)
    }

    /// Puts an entry into a full plain leaf by packing the leaf. Returns `false`, with no change,
    /// if that is not possible. The last leaf begins plain: its keys share bytes that are not yet a
    /// prefix, because the leaf has no upper bound.
    fn pack(&self, full: &FullLeaf<'_>, new: &NewEntry<'_>) -> Attempt<bool> {
        let added = self.with_view(full.leaf, |view, _| {
            if view.packed().is_some() {
                return Some(None);
            }
            let mut entries = LeafEntries::new(view.prefix()?);
            let added = entries.add_leaf_with(view, (new.at, new.found), new.key, new.value);
            Some(added.map(|()| (entries, view.count())))
        })?;
        let Some((entries, old_count)) = added else { return Ok(false) };
        let page = entries.page_within(self.shape, 0..entries.count(), full.bounds);
        let Some(page) = page else { return Ok(false) };
        fill_used(full.leaf, &page).ok_or(Stop::Restart)?;
        if full.bounds.upper.is_none() && !new.found && new.at == old_count {
            self.set_last_leaf(full.leaf.version_after());
        }
        Ok(true)
    }

    /// Returns the latched right neighbour of a leaf, and the separator between the two. Returns
    /// `None` if there is none, or the parent has no room for the new separators.
    fn neighbour(
        &self,
        parent: &WriteGuard<'_>,
        full: &FullLeaf<'_>,
    ) -> Attempt<Option<(WriteGuard<'_>, Separator)>> {
        let found = self.with_view(parent, |view, _| {
            if full.index >= view.count() || view.free() < 2 * self.shape.separator_max() {
                return Some(None);
            }
            let slot = view.slot(full.index)?;
            let bytes = view.entry_bytes(&slot)?;
            Some(Some((view.child(full.index + 1)?, Separator { slot, bytes })))
        })?;
        let Some((page, separator)) = found.filter(|(_, separator)| !separator.slot.long) else {
            return Ok(None);
        };
        let page = PageId(page);
        if page == parent.page() || page == full.leaf.page() || page == ROOT {
            return Err(self.damage(parent.page(), "it has a child twice"));
        }
        match self.cache.write(page) {
            Ok(right) if self.is_leaf(&right)? => Ok(Some((right, separator))),
            Ok(right) => {
                Err(self.damage(right.page(), "its level does not follow from its parent's"))
            }
            // Redistribution is optional: the leaf splits alone.
            Err(Error::Io { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Builds pages of similar size, and the separators between them. Returns `None` if that is not
    /// possible.
    fn build_parts(&self, entries: &LeafEntries, parts: usize, whole: Bounds) -> Option<LeafPages> {
        let (mut pages, mut separators) = (Vec::new(), Vec::new());
        let (mut first, mut rest) = (0, whole);
        for left in (1..=parts).rev() {
            let last = if left == 1 { entries.count() } else { first + entries.part(first, left) };
            let mut bounds = rest.clone();
            if left > 1 {
                let separator = entries.separator(last)?;
                if self.shape.is_long(&separator) {
                    return None;
                }
                (bounds, rest) = rest.divide(&separator);
                separators.push(separator);
            }
            pages.push(entries.page_within(self.shape, first..last, &bounds)?);
            first = last;
        }
        Some(LeafPages { pages, separators })
    }

    /// Stores the pages in the two leaves, and in a new leaf between them if there are three.
    fn store_parts(
        &self,
        (parent, index, old): (&WriteGuard<'_>, usize, Separator),
        (left, right): (&WriteGuard<'_>, &WriteGuard<'_>),
        built: &LeafPages,
    ) -> Attempt<()> {
        let old = Some((old.slot, old.bytes));
        let (first, last) = match (built.pages.as_slice(), built.separators.as_slice()) {
            ([first, last], [only]) => {
                self.put_separator((parent, index), only, right.page(), old)?;
                (first, last)
            }
            ([first, middle, last], [below, above]) => {
                let between = self.cache.create_to_fill(self.allocator.allocate())?;
                self.put_separator((parent, index), below, between.page(), old)?;
                self.put_separator((parent, index + 1), above, right.page(), None)?;
                self.fill(&between, middle.clone());
                self.count_node(0, true);
                (first, last)
            }
            _ => return Err(self.damage(left.page(), "it cannot be shared")),
        };
        fill_used(left, first).ok_or(Stop::Restart)?;
        fill_used(right, last).ok_or(Stop::Restart)
    }

    /// Inserts a separator and the child right of it as slot `index` of a latched node, or replaces
    /// that slot if `old` gives it and its entry's size.
    fn put_separator(
        &self,
        (parent, index): (&WriteGuard<'_>, usize),
        separator: &[u8],
        child: PageId,
        old: Option<(EntrySlot, usize)>,
    ) -> Attempt<()> {
        mutant!(SpreadKeepsSeparator => if old.is_some() { return Ok(()); });
        let payload = Payload::Child(child.0);
        let cell = Cell { key: separator.to_vec(), long: None, payload };
        if self.put_cell(parent, index, &cell, old)? {
            return Ok(());
        }
        Err(self.damage(parent.page(), "it has no room for a separator"))
    }
}

/// The pages, and the separators between them.
struct LeafPages {
    pages: Vec<Vec<u8>>,
    separators: Vec<Vec<u8>>,
}
