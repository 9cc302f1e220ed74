//! Allocator of objects: the nodes and lists of a trie, each a power of two of words.
//!
//! An object of class `c` has `1 << c` words at a multiple of its size, so none crosses a region.
//! Free objects of a class are a stack, linked through their first words. (CedrusDB keeps a stack
//! of indexes in a space of its own, which is one more page to write for each push.) A class
//! without free objects splits one of a larger class before the space grows.
//!
//! The space shrinks as well (the paper's cannot). Free neighbours become one object. While objects
//! in use above a *boundary* are moved below it, free objects above it are kept at the bottom of
//! their stacks and are not allocated. When all words above the boundary are free, the space ends
//! there.

use super::word::UNITS_MAX;
use crate::{
    Error, Result,
    engine::trie::store::space::WordSpace,
    util::codec::{Decoder, put_varint, round_up, to_u64, to_usize},
};

/// Classes are below this. The largest object that fits every region has 8192 words.
pub(super) const CLASSES: u32 = 20;
const CLASS_COUNT: usize = 20;

/// Part of the words in use that stays free when the space shrinks.
const SLACK_PART: u64 = 8;

/// The allocator.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectAllocator {
    /// The end of the words that were ever part of an object.
    tail: u64,
    /// The first free object of each class; 0: none.
    free: [u64; CLASS_COUNT],
    /// Free objects of each class.
    free_count: [u64; CLASS_COUNT],
    /// Words from here on were never used, and are zero.
    zero_from: u64,
    shrinking: Option<Shrinking>,
    counts: AllocationCounts,
}

/// Counts of allocations since the table was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllocationCounts {
    pub(crate) allocated: u64,
    /// Allocations of a free object, or of a part of one.
    pub(crate) reused: u64,
    /// Classes without a free object that allocations searched.
    pub(crate) searched: u64,
}

/// A shrink in progress.
#[derive(Clone, Copy, Debug)]
struct Shrinking {
    boundary: u64,
    /// The last free object of each class.
    bottoms: [u64; CLASS_COUNT],
    /// Free words above the boundary.
    free_above: u64,
}

/// An allocated object.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewObject {
    pub(super) at: u64,
    /// All its words are zero.
    pub(super) is_zero: bool,
}

impl ObjectAllocator {
    /// An allocator whose first object is at `tail`.
    pub(super) fn starting_at(tail: u64) -> Self {
        Self { tail, ..Self::default() }
    }

    /// The first free object of a class, and the number of free objects.
    fn head(&mut self, class: u32) -> Option<(&mut u64, &mut u64)> {
        let class = to_usize(u64::from(class));
        Some((self.free.get_mut(class)?, self.free_count.get_mut(class)?))
    }

    /// Allocates an object: a free one, or one at the end of the space. Fails with [`Error::Limit`]
    /// if the space is full, and with errors of loading the region at its end.
    pub(super) fn allocate(&mut self, space: &WordSpace, class: u32) -> Result<NewObject> {
        self.counts.allocated += 1;
        match self.allocate_free(space, class) {
            Some(object) => Ok(object),
            None => self.extend(space, class),
        }
    }

    /// Allocates a free object, or splits a larger one.
    fn allocate_free(&mut self, space: &WordSpace, class: u32) -> Option<NewObject> {
        for larger in class..CLASSES {
            let Some(at) = self.pop(space, larger) else {
                self.counts.searched += 1;
                continue;
            };
            self.counts.reused += 1;
            // The upper halves become free, the lowest is the object.
            for half in (class..larger).rev() {
                self.push(space, half, at + (1 << half));
            }
            return Some(NewObject { at, is_zero: false });
        }
        None
    }

    /// Pops a free object. Returns `None` also if the first one is not in memory: an allocation of
    /// a free object never reads the disk.
    fn pop(&mut self, space: &WordSpace, class: u32) -> Option<u64> {
        let boundary = self.boundary();
        let (head, count) = self.head(class)?;
        let at = *head;
        if at == 0 || at >= boundary {
            return None;
        }
        *head = space.get(at)?;
        *count = count.saturating_sub(1);
        Some(at)
    }

    /// Frees an object.
    pub(super) fn push(&mut self, space: &WordSpace, class: u32, at: u64) {
        if at >= self.boundary() {
            return self.push_below(space, class, at);
        }
        let Some((head, count)) = self.head(class) else { return };
        let is_first = *head == 0;
        space.set(at, *head);
        *head = at;
        *count += 1;
        if is_first {
            self.set_bottom(class, at);
        }
    }

    /// Frees an object above the boundary: adds it at the bottom of its stack, where it is not
    /// allocated.
    fn push_below(&mut self, space: &WordSpace, class: u32, at: u64) {
        let Some(bottom) = self.bottom(class) else { return };
        let is_first = self.head(class).is_none_or(|(head, _)| *head == 0);
        if !is_first && space.get(bottom).is_none() {
            // A word that is not in memory cannot be changed: the space does not shrink.
            self.shrinking = None;
            return self.push(space, class, at);
        }
        space.set(at, 0);
        if !is_first {
            space.set(bottom, at);
        }
        let Some((head, count)) = self.head(class) else { return };
        if is_first {
            *head = at;
        }
        *count += 1;
        self.set_bottom(class, at);
        if let Some(shrinking) = &mut self.shrinking {
            shrinking.free_above += 1 << class;
        }
    }

    fn boundary(&self) -> u64 {
        self.shrinking.map_or(u64::MAX, |shrinking| shrinking.boundary)
    }

    fn bottom(&self, class: u32) -> Option<u64> {
        self.shrinking?.bottoms.get(to_usize(u64::from(class))).copied()
    }

    fn set_bottom(&mut self, class: u32, at: u64) {
        if let Some(shrinking) = &mut self.shrinking
            && let Some(bottom) = shrinking.bottoms.get_mut(to_usize(u64::from(class)))
        {
            *bottom = at;
        }
    }

    /// Begins to shrink the space to little more than the words in use, if that frees a region and
    /// an eighth of the words. Merges free neighbours. Returns the boundary, or `None` if it does
    /// not begin, which is also the case if free objects are not in memory.
    pub(super) fn begin_shrinking(&mut self, space: &WordSpace) -> Option<u64> {
        let region = space.region_words();
        let used = self.tail.saturating_sub(self.free_words());
        let boundary = round_up(used + used / SLACK_PART, region);
        if boundary + region.max(self.tail / SLACK_PART) > self.tail {
            return None;
        }
        let merged = merge_neighbours(self.collect(space)?, region);
        self.free = [0; CLASS_COUNT];
        self.free_count = [0; CLASS_COUNT];
        self.shrinking =
            Some(Shrinking { boundary: u64::MAX, bottoms: [0; CLASS_COUNT], free_above: 0 });
        let mut free_above = 0;
        for (class, mut objects) in (0..).zip(merged) {
            objects.sort_unstable();
            // The lowest is allocated first.
            for at in objects.into_iter().rev() {
                self.push(space, class, at);
                free_above += if at >= boundary { 1 << class } else { 0 };
            }
        }
        let shrinking = self.shrinking.as_mut()?;
        (shrinking.boundary, shrinking.free_above) = (boundary, free_above);
        Some(boundary)
    }

    /// All free objects by class; `None` if some are not in memory.
    fn collect(&self, space: &WordSpace) -> Option<Vec<Vec<u64>>> {
        let lists = self.free_heads().zip(self.free_counts());
        let list = |((_, head), (_, count)): ((u32, u64), (u32, u64))| {
            let (mut at, mut objects) = (head, Vec::new());
            let is_possible = count <= self.tail;
            while at != 0 && is_possible && to_u64(objects.len()) < count {
                objects.push(at);
                at = space.get(at)?;
            }
            is_possible.then_some(objects)
        };
        lists.map(list).collect()
    }

    /// Allocates a free object below the boundary, for one that is moved there.
    pub(super) fn allocate_below(&mut self, space: &WordSpace, class: u32) -> Option<NewObject> {
        self.shrinking?;
        self.allocate_free(space, class)
    }

    /// Ends what [`Self::begin_shrinking`] began. If all words above the boundary are free, the
    /// space ends there, and its former end is returned. The caller keeps writers out.
    pub(super) fn end_shrinking(&mut self, space: &WordSpace) -> Option<u64> {
        let Shrinking { boundary, free_above, .. } = self.shrinking.take()?;
        if free_above != self.tail - boundary {
            return None;
        }
        // The objects of each stack that are below the boundary are its first; the others are cut
        // off.
        let mut kept = [(0, 0); CLASS_COUNT];
        for (kept, ((_, head), _)) in kept.iter_mut().zip(self.free_heads().zip(self.free_counts()))
        {
            let (mut at, mut last, mut count) = (head, 0, 0);
            while at != 0 && at < boundary {
                (last, count, at) = (at, count + 1, space.get(at)?);
            }
            *kept = (last, count);
        }
        for ((last, count), (head, counted)) in
            kept.into_iter().zip(self.free.iter_mut().zip(&mut self.free_count))
        {
            *counted = count;
            if last == 0 {
                *head = 0;
            } else {
                space.set(last, 0);
            }
        }
        let end = self.tail;
        self.zero_from = self.zero_from.max(round_up(end, space.region_words()));
        self.tail = boundary;
        Some(end)
    }

    /// Words of free objects.
    pub(super) fn free_words(&self) -> u64 {
        let words = self.free_counts().map(|(class, count)| count.saturating_mul(1 << class));
        words.fold(0, u64::saturating_add)
    }

    /// Words below `end` may not be zero, whatever the tail.
    pub(super) fn set_used_end(&mut self, end: u64) {
        self.zero_from = self.zero_from.max(end);
    }

    /// Allocates an object at the end of the space. Words that alignment skips become free objects.
    fn extend(&mut self, space: &WordSpace, class: u32) -> Result<NewObject> {
        let size = 1_u64 << class;
        while !self.tail.is_multiple_of(size) {
            let gap = self.tail.trailing_zeros();
            Self::enter(space, self.tail)?;
            let at = self.tail;
            self.tail += 1 << gap;
            self.push(space, gap, at);
        }
        let at = self.tail;
        if at + size > space.words_max().min(UNITS_MAX * 2) {
            let what = "the table's trie fills its address space: use several tables".to_owned();
            return Err(Error::Limit { what });
        }
        Self::enter(space, at)?;
        self.tail += size;
        Ok(NewObject { at, is_zero: at >= self.zero_from })
    }

    /// Makes the region of a word usable: begins it with its first word, or loads it if it was
    /// begun before the table was opened. (Loading later would overwrite stores.)
    fn enter(space: &WordSpace, at: u64) -> Result<()> {
        if at & (space.region_words() - 1) == 0 {
            space.begin_region(at);
        } else if space.get(at).is_none() {
            space.load(at)?;
        }
        Ok(())
    }

    /// The end of the words that were ever part of an object.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Counts of allocations.
    pub(super) fn counts(&self) -> AllocationCounts {
        self.counts
    }

    /// The number of free objects of each class.
    pub(super) fn free_counts(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.free_count)
    }

    /// The first free object of each class; 0: none.
    pub(super) fn free_heads(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.free)
    }

    /// Appends the allocator's state.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.tail);
        for word in self.free.iter().chain(&self.free_count) {
            put_varint(out, *word);
        }
    }

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else.
    pub(super) fn decode(rest: &mut Decoder<'_>, space: &WordSpace) -> Option<Self> {
        let objects = Self::decode_any(rest)?;
        (objects.tail <= space.words_max()).then_some(objects)
    }

    /// As [`Self::decode`], for a space of any size.
    pub(super) fn decode_any(rest: &mut Decoder<'_>) -> Option<Self> {
        let mut objects = Self::starting_at(rest.varint()?);
        for word in objects.free.iter_mut().chain(&mut objects.free_count) {
            *word = rest.varint()?;
        }
        let tail = objects.tail;
        objects.free.iter().all(|at| *at < tail).then_some(objects)
    }
}

/// Free objects by class, after pairs that form an object of the next class were merged.
fn merge_neighbours(mut by_class: Vec<Vec<u64>>, region_words: u64) -> Vec<Vec<u64>> {
    for class in 0..CLASS_COUNT - 1 {
        let size = 1 << class;
        if size * 2 > region_words {
            break;
        }
        let Some(objects) = by_class.get_mut(class) else { break };
        let mut objects = std::mem::take(objects);
        objects.sort_unstable();
        let (mut left, mut larger) = (Vec::new(), Vec::new());
        let mut rest = objects.into_iter().peekable();
        while let Some(at) = rest.next() {
            if at.is_multiple_of(size * 2) && rest.next_if_eq(&(at + size)).is_some() {
                larger.push(at);
            } else {
                left.push(at);
            }
        }
        for (class, objects) in [(class, left), (class + 1, larger)] {
            by_class.get_mut(class).into_iter().for_each(|all| all.extend(&objects));
        }
    }
    by_class
}
