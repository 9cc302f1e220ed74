//! Lookups of many keys at once.
//!
//! Why: a lookup waits for memory, or the disk, nearly all of its time.
//!
//! How: a group of keys descends together, level by level. The search of one key runs while the
//! cache lines of the others load (group prefetching). Sorted keys that share a leaf share its
//! descent. Leaves that are not in the cache are read together, so that the device has many reads
//! in flight.

use super::{
    node::{NodeSearch, NodeView},
    page_cache::{PageId, ReadGuard},
    read::{BuildValue, LeafSink, Target, ValueBytes},
    tree::{Attempt, DEPTH_MAX, ROOT, Stop, Tree},
};
use crate::{
    Result,
    util::{codec::to_usize, mutant::mutant},
};

/// Number of keys that descend together: as many as a processor has cache-line loads in flight.
const BATCH: usize = 32;
/// Number of keys whose leaves are read from disk together: several times the queue depth of a
/// device, so that it is seldom idle.
const COLD_BATCH: usize = 256;

/// Called with the position of a key, and its value if the key exists.
pub type EachValue<'e> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'e;

impl Tree {
    /// Appends the values of several keys to `out`, in the order of the keys. `make` as in
    /// [`Tree::get`].
    pub fn multi_get<V>(
        &self,
        keys: &[&[u8]],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
        out: &mut Vec<Option<V>>,
    ) -> Result<()> {
        let start = out.len();
        out.resize_with(start + keys.len(), || None);
        let mut sink = BuildValue { make, value: None };
        self.look_up_all(keys, &mut sink, &mut |sink, index, found| {
            if let Some(entry) = out.get_mut(start + index) {
                *entry = sink.value.take().filter(|_| found);
            }
            Ok(())
        })
    }

    /// Calls `each` once for each key, with the key's position and value, in any order.
    pub fn multi_get_each(&self, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<()> {
        self.look_up_all(keys, &mut ValueBytes::default(), &mut |bytes, index, found| {
            each(index, found.then_some(bytes.0.as_slice()))
        })
    }

    /// Calls `each` for each key. The flag says whether the key exists; then `sink` has its value.
    fn look_up_all<S: LeafSink>(
        &self,
        keys: &[&[u8]],
        sink: &mut S,
        each: &mut impl FnMut(&mut S, usize, bool) -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        // The first few keys show that keys are random.
        if keys.len() > 1 && keys.is_sorted() {
            start = self.look_up_runs(keys, sink, each)?;
        }
        let mut missing = Vec::new();
        let rest = keys.get(start..).unwrap_or(&[]);
        for (number, keys) in rest.chunks(BATCH).enumerate() {
            let mut group = KeyGroup::new(self.cache.read(ROOT)?, keys);
            while group.is_above_leaves {
                self.step(&mut group);
            }
            for (index, (descent, key)) in group.descents.iter().zip(keys).enumerate() {
                let index = start + number * BATCH + index;
                let found = descent.as_ref().map(|descent| self.value_of(descent, key, sink));
                match found {
                    Some(Ok(found)) => each(sink, index, found)?,
                    Some(Err(Stop::Failed(error))) => return Err(error),
                    // The path has changed, or is not in the cache.
                    Some(Err(Stop::Restart)) | None => missing.push(index),
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { self.look_up_missing(keys, &missing, sink, each) }
    }

    /// Looks up sorted keys leaf by leaf, as long as each leaf has several of them. Returns the
    /// number of keys looked up.
    fn look_up_runs<S: LeafSink>(
        &self,
        keys: &[&[u8]],
        sink: &mut S,
        each: &mut impl FnMut(&mut S, usize, bool) -> Result<()>,
    ) -> Result<usize> {
        let mut start = 0;
        while let Some(rest @ [first, second, ..]) = keys.get(start..) {
            let leaf = self.repeat(|_| self.bounded_leaf_if(Target::Key(first), None))?;
            let Some((leaf, bounds)) = leaf else { break };
            let is_inside = |key: &[u8]| {
                mutant!(RunOfKeysLeavesItsLeaf => return true);
                bounds.upper.as_deref().is_none_or(|upper| key < upper)
            };
            if !is_inside(second) {
                break;
            }
            for key in rest.iter().take_while(|key| is_inside(key)) {
                let found = match self.value_in(&leaf, key, sink) {
                    Ok(found) => found,
                    Err(Stop::Failed(error)) => return Err(error),
                    Err(Stop::Restart) => self.find(key, sink)?,
                };
                each(sink, start, found)?;
                start += 1;
            }
        }
        Ok(start)
    }

    /// Looks up the keys at the positions `missing`, whose leaves are not in the cache.
    #[cold]
    fn look_up_missing<S: LeafSink>(
        &self,
        keys: &[&[u8]],
        missing: &[usize],
        sink: &mut S,
        each: &mut impl FnMut(&mut S, usize, bool) -> Result<()>,
    ) -> Result<()> {
        // The pages of a chunk must still be cached when they are searched.
        let most = to_usize(self.cache.frames_reachable() / 8).clamp(1, COLD_BATCH);
        for numbers in missing.chunks(most) {
            let keys =
                || numbers.iter().filter_map(|number| Some((*number, keys.get(*number).copied()?)));
            self.load_leaves(keys().map(|(_, key)| key));
            for (number, key) in keys() {
                let found = self.find(key, sink)?;
                each(sink, number, found)?;
            }
        }
        Ok(())
    }

    /// Loads the missing leaves of these keys into the cache with one batch of reads. A hint:
    /// errors are ignored. Returns whether any leaf was missing.
    pub fn load_leaves<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let mut pages: Vec<PageId> = keys
            .filter_map(|key| self.leaf_page_of(key).ok()?)
            .filter(|page| !self.cache.contains(*page))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        self.cache.load_many(&pages);
        !pages.is_empty()
    }

    /// Returns the page of the leaf that a key belongs to; `None` if the root is a leaf.
    fn leaf_page_of(&self, key: &[u8]) -> Attempt<Option<PageId>> {
        let mut node = self.cache.read(ROOT)?;
        for _ in 0..DEPTH_MAX {
            match self.child_for(&node, key)? {
                None => break,
                Some((page, 1)) if node.is_unchanged() => return Ok(Some(page)),
                Some((page, _)) => node = self.child_of(&node, page.0)?,
            }
        }
        Ok(None)
    }

    /// Searches the current node of each key of a group, and moves those that are not at leaves one
    /// level down.
    fn step<'t>(&'t self, group: &mut KeyGroup<'t, '_>) {
        let KeyGroup { keys, descents, is_above_leaves } = group;
        // Each pass uses what the previous one prefetched: header and hints, then slots, then the
        // entry.
        for (entry, key) in descents.iter_mut().zip(*keys) {
            let Some(descent) = entry else { continue };
            let search = NodeView::new(descent.node.words()).and_then(|view| {
                let search = view.seek(key)?;
                view.prefetch_slots(&search);
                Some(search)
            });
            match search {
                Some(search) => descent.search = search,
                None => *entry = None,
            }
        }
        for entry in descents.iter_mut() {
            let Some(descent) = entry else { continue };
            let at = NodeView::new(descent.node.words()).and_then(|view| {
                let at = view.narrow(&descent.search)?;
                view.prefetch_near(at);
                Some(at)
            });
            match at {
                Some(at) => descent.at = at,
                None => *entry = None,
            }
        }
        let mut children = [None; BATCH];
        *is_above_leaves = false;
        for ((entry, key), child) in descents.iter_mut().zip(*keys).zip(&mut children) {
            let Some(descent) = entry else { continue };
            let next = self.with_view(&descent.node, |view, fetch| {
                if view.is_leaf() {
                    return Some(None);
                }
                let (index, found) = view.compare_at(&descent.search, descent.at, key, fetch)?;
                view.child(index + usize::from(found)).map(|child| Some(PageId(child)))
            });
            match next {
                Ok(Some(page)) => {
                    self.cache.prefetch(page);
                    *child = Some(page);
                }
                Ok(None) => {}
                Err(_) => *entry = None,
            }
        }
        for (entry, child) in descents.iter_mut().zip(children) {
            if let (Some(descent), Some(child)) = (&mut *entry, child) {
                *is_above_leaves = true;
                match self.cache.lookup(child).filter(|_| descent.node.is_unchanged()) {
                    Some(node) => descent.node = node,
                    None => *entry = None,
                }
            }
        }
    }

    /// Passes the value of a key, whose leaf was searched, to `sink`. Returns `false` if the key is
    /// absent.
    #[inline]
    fn value_of<S: LeafSink>(
        &self,
        descent: &KeyDescent<'_>,
        key: &[u8],
        sink: &mut S,
    ) -> Attempt<bool> {
        self.value_where(&descent.node, sink, |view, fetch| {
            view.compare_at(&descent.search, descent.at, key, fetch)
        })
    }
}

/// A group of keys that descends together.
struct KeyGroup<'t, 'k> {
    keys: &'k [&'k [u8]],
    /// The descent of each key; `None` if its path is not in the cache, or has changed.
    descents: [Option<KeyDescent<'t>>; BATCH],
    is_above_leaves: bool,
}

/// The position of one key's descent.
#[derive(Clone, Copy)]
struct KeyDescent<'t> {
    node: ReadGuard<'t>,
    /// The state of the search in `node`.
    search: NodeSearch,
    at: usize,
}

impl<'t, 'k> KeyGroup<'t, 'k> {
    fn new(root: ReadGuard<'t>, keys: &'k [&'k [u8]]) -> Self {
        let mut descents = [None; BATCH];
        let descent = KeyDescent { node: root, search: NodeSearch::default(), at: 0 };
        descents.iter_mut().zip(keys).for_each(|(entry, _)| *entry = Some(descent));
        Self { keys, descents, is_above_leaves: true }
    }
}
