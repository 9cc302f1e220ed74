//! Lists of records (the paper's sluggish lists), in the layout that the table's options name.
//!
//! *Lines* (the default): an object of `1 << class` words, records' words from the front without
//! gaps, then zeros. A search of a list reads one or two cache lines at the default sluggishness.
//!
//! *Chain* (the paper's layout, for its experiments): cells of two words, the newest record first.
//!
//! | word of a cell | meaning |
//! |---|---|
//! | 0 | a record |
//! | 1 | the rest: the last record, or a link to the next cell (a list of class 1) |
//!
//! A search of a chain has a dependent cache miss for each record before the one that it finds, as
//! in the paper.
//!
//! How we differ from the paper: its chain links the records themselves, and changes the links in
//! place. Here a record that a checkpoint has never changes. A link in it could change only by
//! copying the record, and every record before it in the chain, which would leave more waste than
//! compaction frees. So the cell is in the journaled space, and holds the tag as well. Records of
//! other keys are not read; the dependent misses of the chain remain.

use std::ops::ControlFlow;

use super::{
    layout::Layout,
    lazy_trie::{LazyTrie, damaged, word_at},
    objects,
    search::{RecordVerdict, SearchResult, judge},
    word::{self, TrieSlot},
};
use crate::{
    Error, Result,
    util::{
        codec::{low_u32, to_u64},
        sync::Ordering,
    },
};

/// The class of a cell.
pub(super) const CELL: u32 = 1;
/// The most cells of a chain. A longer one is damage, or a reader that a change misled.
pub(super) const CHAIN_MAX: usize = 1 << 16;

/// The position of a record in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainPosition {
    /// Its cell.
    pub(super) cell: u64,
    /// The word that links to the cell.
    pub(super) link: u64,
    /// The other word of the cell.
    pub(super) other: u64,
}

/// The class of an array with room for `count` records.
fn class_for(count: usize) -> u32 {
    low_u32(u64::from(to_u64(count).max(2).next_power_of_two().trailing_zeros()))
}

impl LazyTrie {
    /// The two words of a cell; `None` if it is not in memory.
    #[inline]
    fn cell(&self, at: u64) -> Option<(u64, u64)> {
        let [first, rest] = self.space.words(at, 1 << CELL)? else { return None };
        Some((first.load(Ordering::Relaxed), rest.load(Ordering::Acquire)))
    }

    /// As [`LazyTrie::find`], in the chain that begins with the cell at `at`.
    pub(super) fn search_chain<T>(
        &self,
        mut at: u64,
        hash: u64,
        look: &mut impl FnMut(u64, u64) -> RecordVerdict<T>,
    ) -> SearchResult<T> {
        for _ in 0..CHAIN_MAX {
            let Some((first, rest)) = self.cell(at) else { return SearchResult::Load(at) };
            if let ControlFlow::Break(end) = judge(first, at, hash, look) {
                return end;
            }
            match TrieSlot::of(rest) {
                TrieSlot::List { at: next, .. } => at = next,
                TrieSlot::Record(last) => {
                    return match judge(last, at + 1, hash, look) {
                        ControlFlow::Break(end) => end,
                        ControlFlow::Continue(()) => SearchResult::Missing,
                    };
                }
                _ => return SearchResult::Changed,
            }
        }
        SearchResult::Changed
    }

    /// Passes the words of a list to `visit`. Returns as `Err` a word that is not in memory. Beside
    /// writers, the words may be anything.
    pub(super) fn visit_list(
        &self,
        class: u32,
        mut at: u64,
        visit: &mut impl FnMut(u64),
    ) -> Result<(), u64> {
        if self.layout == Layout::Lines {
            let words = self.space.words(at, 1 << class).ok_or(at)?;
            let words = words.iter().map(|word| word.load(Ordering::Relaxed));
            words.take_while(|word| *word != 0).for_each(visit);
            return Ok(());
        }
        for _ in 0..CHAIN_MAX {
            let (first, rest) = self.cell(at).ok_or(at)?;
            visit(first);
            let TrieSlot::List { at: next, .. } = TrieSlot::of(rest) else {
                visit(rest);
                break;
            };
            at = next;
        }
        Ok(())
    }

    /// The words of a list; loads what is not in memory. The caller has the subtree locked.
    pub(super) fn read_list(&self, class: u32, at: u64) -> Result<Vec<u64>> {
        let mut last = None;
        loop {
            let mut words = Vec::new();
            match self.visit_list(class, at, &mut |word| words.push(word)) {
                Ok(()) => return Ok(words),
                Err(index) if last.replace(index) == Some(index) => {
                    return Err(damaged("a list is outside the trie"));
                }
                Err(index) => self.space.load(index)?,
            }
        }
    }

    /// Builds a list of two or more records and returns its word. Fails with [`Error::Limit`] if
    /// they are too many.
    pub(super) fn build_list(&self, words: &[u64]) -> Result<u64> {
        if self.layout == Layout::Lines {
            return self.build_line(words);
        }
        let Some((last, front)) = words.split_last() else { return Ok(0) };
        check_length(words.len())?;
        front.iter().rev().try_fold(*last, |rest, first| self.build_cell(*first, rest))
    }

    fn build_line(&self, words: &[u64]) -> Result<u64> {
        let class = class_for(words.len());
        if class >= objects::CLASSES || 1 << class > self.space.region_words() {
            return Err(too_many(words.len()));
        }
        let object = self.allocate(class)?;
        self.fill(object, class, words);
        self.counts.list_words.fetch_add(1 << class, Ordering::Relaxed);
        Ok(word::list(class, object.at))
    }

    /// Adds a record before a chain that begins at `rest` and has the records `words`.
    pub(super) fn extend_chain(&self, first: u64, rest: u64, words: &[u64]) -> Result<u64> {
        check_length(words.len())?;
        self.build_cell(first, rest)
    }

    fn build_cell(&self, first: u64, rest: u64) -> Result<u64> {
        let object = self.allocate(CELL)?;
        self.fill(object, CELL, &[first, rest]);
        self.counts.list_words.fetch_add(1 << CELL, Ordering::Relaxed);
        Ok(word::list(CELL, object.at))
    }

    /// Frees the object at `at`.
    pub(super) fn free_object(&self, class: u32, at: u64) {
        self.counts.list_words.fetch_sub(1 << class, Ordering::Relaxed);
        self.free(class, at);
    }

    /// Frees a list.
    pub(super) fn free_list(&self, class: u32, mut at: u64) -> Result<()> {
        for _ in 0..CHAIN_MAX {
            let rest = match self.layout {
                Layout::Lines => 0,
                Layout::Chain => word_at(&self.space, at + 1)?,
            };
            self.free_object(class, at);
            let TrieSlot::List { at: next, .. } = TrieSlot::of(rest) else { return Ok(()) };
            at = next;
        }
        Err(damaged("a chain has no end"))
    }

    /// The position of the record `wanted` in the chain that the word at `link` links to.
    pub(super) fn find_in_chain(
        &self,
        mut link: u64,
        wanted: u64,
    ) -> Result<Option<ChainPosition>> {
        for _ in 0..CHAIN_MAX {
            let TrieSlot::List { at: cell, .. } = TrieSlot::of(word_at(&self.space, link)?) else {
                return Ok(None);
            };
            let [first, rest] = [word_at(&self.space, cell)?, word_at(&self.space, cell + 1)?];
            if first == wanted {
                return Ok(Some(ChainPosition { cell, link, other: rest }));
            }
            if rest == wanted {
                return Ok(Some(ChainPosition { cell, link, other: first }));
            }
            link = cell + 1;
        }
        Err(damaged("a chain has no end"))
    }
}

fn check_length(count: usize) -> Result<()> {
    if count < CHAIN_MAX { Ok(()) } else { Err(too_many(count)) }
}

fn too_many(count: usize) -> Error {
    Error::Limit { what: format!("{count} keys of a table have the same hash") }
}
