//! Many keys at once.
//!
//! What: keys go down together, level by level, so that the lines that one waits for come while
//! others are looked at. Keys in order that share a leaf share its descent. Leaves that are not in
//! the cache are read from the disk together, so that the device has all of them under way.
//! Why: a lookup waits for memory, or the disk, nearly all of its time.

use super::{
    DEPTH_MAX, ROOT, Step, Stop, Tree,
    node::{NodeView, Sought},
    read::{Bytes, Made, Sink, Target},
};
use crate::{
    Result,
    bptree::page_cache::{PageId, ReadGuard},
    util::{
        codec::to_usize,
        mutant::{self, Bug},
    },
};

/// Keys that go down together: as many as lines that a processor has under way.
const BATCH: usize = 32;
/// Keys whose leaves are read from the disk together: several times what a device has under way,
/// so that it is seldom idle.
const COLD_BATCH: usize = 256;

/// Called with the position of a key and its value.
pub type EachValue<'e> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'e;

impl Tree {
    /// The values of several keys, in their order; `make` as in [`Tree::get`].
    pub fn multi_get<V>(
        &self,
        keys: &[&[u8]],
        make: impl Fn(usize, &mut dyn FnMut(&mut [u8])) -> V,
        out: &mut Vec<Option<V>>,
    ) -> Result<()> {
        let start = out.len();
        out.resize_with(start + keys.len(), || None);
        let mut sink = Made { make, value: None };
        self.many(keys, &mut sink, &mut |sink, index, found| {
            if let Some(place) = out.get_mut(start + index) {
                *place = sink.value.take().filter(|_| found);
            }
            Ok(())
        })
    }

    /// The values of several keys: `each` is called once for each with its position, in any order.
    pub fn multi_get_each(&self, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<()> {
        self.many(keys, &mut Bytes::default(), &mut |bytes, index, found| {
            each(index, found.then_some(bytes.0.as_slice()))
        })
    }

    /// Calls `each` for each key, when `sink` has its value or (`false`) there is none.
    fn many<S: Sink>(
        &self,
        keys: &[&[u8]],
        sink: &mut S,
        each: &mut impl FnMut(&mut S, usize, bool) -> Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        // Random keys are told by the first few.
        if keys.len() > 1 && keys.is_sorted() {
            start = self.runs(keys, sink, each)?;
        }
        let mut missing = Vec::new();
        let rest = keys.get(start..).unwrap_or(&[]);
        for (number, keys) in rest.chunks(BATCH).enumerate() {
            let mut group = Group::new(self.cache.read(ROOT)?, keys);
            while group.is_above_leaves {
                self.step(&mut group);
            }
            for (index, (going, key)) in group.goings.iter().zip(keys).enumerate() {
                let index = start + number * BATCH + index;
                let found = going.as_ref().map(|going| self.value_of(going, key, sink));
                match found {
                    Some(Ok(found)) => each(sink, index, found)?,
                    Some(Err(Stop::Failed(error))) => return Err(error),
                    // It changed, or is not in the cache.
                    Some(Err(Stop::Again)) | None => missing.push(index),
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { self.many_missing(keys, &missing, sink, each) }
    }

    /// Looks up sorted keys leaf by leaf, while each leaf has several of them; returns how many.
    fn runs<S: Sink>(
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
                bounds.upper.as_deref().is_none_or(|upper| key < upper)
                    || mutant::active(Bug::RunOfKeysLeavesItsLeaf)
            };
            if !is_inside(second) {
                break;
            }
            for key in rest.iter().take_while(|key| is_inside(key)) {
                let found = match self.value_in(&leaf, key, sink) {
                    Ok(found) => found,
                    Err(Stop::Failed(error)) => return Err(error),
                    Err(Stop::Again) => self.find(key, sink)?,
                };
                each(sink, start, found)?;
                start += 1;
            }
        }
        Ok(start)
    }

    /// Looks up keys (numbers of which are in `missing`) whose leaves are not in the cache.
    #[cold]
    fn many_missing<S: Sink>(
        &self,
        keys: &[&[u8]],
        missing: &[usize],
        sink: &mut S,
        each: &mut impl FnMut(&mut S, usize, bool) -> Result<()>,
    ) -> Result<()> {
        // What is read is to be there still when it is looked at.
        let most = to_usize(self.cache.frames_reachable() / 8).clamp(1, COLD_BATCH);
        for numbers in missing.chunks(most) {
            let keys =
                || numbers.iter().filter_map(|number| Some((*number, keys.get(*number).copied()?)));
            self.bring(keys().map(|(_, key)| key));
            for (number, key) in keys() {
                let found = self.find(key, sink)?;
                each(sink, number, found)?;
            }
        }
        Ok(())
    }

    /// Brings the leaves of these keys into the cache, those that are missing all at once. A hint.
    /// Says whether any was missing.
    pub fn bring<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let mut pages: Vec<PageId> = keys
            .filter_map(|key| self.leaf_page_of(key).ok()?)
            .filter(|page| !self.cache.contains(*page))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        self.cache.load_many(&pages);
        !pages.is_empty()
    }

    /// The page of the leaf that a key belongs to; `None`: the root is one.
    fn leaf_page_of(&self, key: &[u8]) -> Step<Option<PageId>> {
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

    /// Searches the nodes that the keys of a group are at, and takes those that are not at leaves
    /// a level down.
    fn step<'t>(&'t self, group: &mut Group<'t, '_>) {
        let Group { keys, goings, is_above_leaves } = group;
        // Header and hints of each are on their way, then its slots, then its entry.
        for (place, key) in goings.iter_mut().zip(*keys) {
            let Some(going) = place else { continue };
            let sought = NodeView::new(going.node.words()).and_then(|view| {
                let sought = view.seek(key)?;
                view.prefetch_slots(&sought);
                Some(sought)
            });
            match sought {
                Some(sought) => going.sought = sought,
                None => *place = None,
            }
        }
        for place in goings.iter_mut() {
            let Some(going) = place else { continue };
            let at = NodeView::new(going.node.words()).and_then(|view| {
                let at = view.narrow(&going.sought)?;
                view.prefetch_near(at);
                Some(at)
            });
            match at {
                Some(at) => going.at = at,
                None => *place = None,
            }
        }
        let mut children = [None; BATCH];
        *is_above_leaves = false;
        for ((place, key), child) in goings.iter_mut().zip(*keys).zip(&mut children) {
            let Some(going) = place else { continue };
            let next = self.look(&going.node, |view, fetch| {
                if view.is_leaf() {
                    return Some(None);
                }
                let (index, found) = view.settle(&going.sought, going.at, key, fetch)?;
                view.child(index + usize::from(found)).map(|child| Some(PageId(child)))
            });
            match next {
                Ok(Some(page)) => {
                    self.cache.prefetch(page);
                    *child = Some(page);
                }
                Ok(None) => {}
                Err(_) => *place = None,
            }
        }
        for (place, child) in goings.iter_mut().zip(children) {
            if let (Some(going), Some(child)) = (&mut *place, child) {
                *is_above_leaves = true;
                match self.cache.look(child).filter(|_| going.node.is_unchanged()) {
                    Some(node) => going.node = node,
                    None => *place = None,
                }
            }
        }
    }

    /// Gives the value of a key, whose leaf was searched, to `sink`; `false`: there is none.
    #[inline]
    fn value_of<S: Sink>(&self, going: &Going<'_>, key: &[u8], sink: &mut S) -> Step<bool> {
        self.value_where(&going.node, sink, |view, fetch| {
            view.settle(&going.sought, going.at, key, fetch)
        })
    }
}

/// Keys on their way down.
struct Group<'t, 'k> {
    keys: &'k [&'k [u8]],
    /// Of each key; `None` where its way is not in the cache, or changed.
    goings: [Option<Going<'t>>; BATCH],
    is_above_leaves: bool,
}

/// Where a key is on its way down.
#[derive(Clone, Copy)]
struct Going<'t> {
    node: ReadGuard<'t>,
    /// What the search of `node` has found.
    sought: Sought,
    at: usize,
}

impl<'t, 'k> Group<'t, 'k> {
    fn new(root: ReadGuard<'t>, keys: &'k [&'k [u8]]) -> Self {
        let mut goings = [None; BATCH];
        let going = Going { node: root, sought: Sought::default(), at: 0 };
        goings.iter_mut().zip(keys).for_each(|(place, _)| *place = Some(going));
        Self { keys, goings, is_above_leaves: true }
    }
}
