//! Nodes and lists: objects of a power of two of words, and the free ones.
//!
//! An object of class `c` has `1 << c` words and lies at a multiple of its size, so none crosses a
//! region. Free objects of a class are a stack, linked through their first words (CedrusDB keeps a
//! stack of indexes in a space of its own, which is one more page to write for each push). A class
//! without free objects splits one of a larger class before the space grows.

use super::word::UNITS_MAX;
use crate::{
    Error, Result,
    codec::{Decoder, put_varint, to_usize},
    pages::space::Space,
};

/// Classes are below this; the largest object that fits every region has 8192 words.
pub(super) const CLASSES: u32 = 20;
const CLASS_COUNT: usize = 20;

/// Where objects come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    /// The first words that were never part of an object.
    tail: u64,
    /// The first free object of each class; 0: none.
    free: [u64; CLASS_COUNT],
    /// Free objects of each class.
    free_count: [u64; CLASS_COUNT],
}

/// A fresh object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fresh {
    pub(super) at: u64,
    /// All its words are zero.
    pub(super) is_zero: bool,
}

impl Objects {
    pub(super) fn starting_at(tail: u64) -> Self {
        Self { tail, ..Self::default() }
    }

    fn head(&mut self, class: u32) -> Option<(&mut u64, &mut u64)> {
        let class = to_usize(u64::from(class));
        Some((self.free.get_mut(class)?, self.free_count.get_mut(class)?))
    }

    pub(super) fn take(&mut self, space: &Space, class: u32) -> Result<Fresh> {
        for larger in class..CLASSES {
            let Some(at) = self.pop(space, larger) else { continue };
            // Halves: the upper ones are free, the lowest is the object.
            for half in (class..larger).rev() {
                self.push(space, half, at + (1 << half));
            }
            return Ok(Fresh { at, is_zero: false });
        }
        self.extend(space, class)
    }

    /// `None` as well where the first one is not in memory: taking an object never reads the disk.
    fn pop(&mut self, space: &Space, class: u32) -> Option<u64> {
        let (head, count) = self.head(class)?;
        let at = *head;
        if at == 0 {
            return None;
        }
        *head = space.get(at)?;
        *count = count.saturating_sub(1);
        Some(at)
    }

    pub(super) fn push(&mut self, space: &Space, class: u32, at: u64) {
        if let Some((head, count)) = self.head(class) {
            space.set(at, *head);
            *head = at;
            *count += 1;
        }
    }

    fn extend(&mut self, space: &Space, class: u32) -> Result<Fresh> {
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
            let what = "the table's trie has as many nodes as memory_budget allows".to_owned();
            return Err(Error::Limit { what });
        }
        Self::enter(space, at)?;
        self.tail += size;
        Ok(Fresh { at, is_zero: true })
    }

    /// A region is begun with its first word. One that was begun before the table was opened is
    /// loaded: what is stored to it before that, loading would overwrite.
    fn enter(space: &Space, at: u64) -> Result<()> {
        if at & (space.region_words() - 1) == 0 {
            space.begin_region(at);
        } else if space.get(at).is_none() {
            space.load(at)?;
        }
        Ok(())
    }

    /// Words that were ever part of an object.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    pub(super) fn free_counts(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.free_count)
    }

    pub(super) fn free_heads(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.free)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.tail);
        for word in self.free.iter().chain(&self.free_count) {
            put_varint(out, *word);
        }
    }

    pub(super) fn decode(rest: &mut Decoder<'_>, space: &Space) -> Option<Self> {
        let mut objects = Self::starting_at(rest.varint()?);
        for word in objects.free.iter_mut().chain(&mut objects.free_count) {
            *word = rest.varint()?;
        }
        let tail = objects.tail;
        let sound = tail <= space.words_max() && objects.free.iter().all(|at| *at < tail);
        sound.then_some(objects)
    }
}
