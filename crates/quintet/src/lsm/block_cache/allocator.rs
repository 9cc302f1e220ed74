//! The allocator of the block cache: best fit over runs of cells, with boundary tags (Knuth, 1962).
//!
//! A frame is cut from the smallest free run that is large enough. A freed frame is merged with
//! adjacent free runs.
//!
//! A tag for each cell:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 13 | cells of the frame or the run, less one |
//! | 14, 15 | 0: inside of one, or beyond the end; 1: a frame begins here; 2: a frame of more than one cell ends here; 3: a free run begins or ends here |
//!
//! Invariants:
//! - Every cell is in one frame or in one free run. Neither crosses the end of a chunk.
//! - No two free runs of a chunk are adjacent.
//!
//! Threads: the caller holds the cache's `state` lock.

use std::{collections::BTreeSet, ops::Range};

use crate::util::codec::to_usize;

/// Maximum cells of a chunk: lengths have 14 bits.
pub(super) const CHUNK_CELLS_MAX: u64 = 1 << LENGTH_BITS;
const LENGTH_BITS: u32 = 14;
const LENGTH_MASK: u16 = (1 << LENGTH_BITS) - 1;
const BEGIN: u16 = 1 << LENGTH_BITS;
const END: u16 = 2 << LENGTH_BITS;
const FREE: u16 = 3 << LENGTH_BITS;

/// The cells of all chunks. See the module head.
#[derive(Debug)]
pub(super) struct CellAllocator {
    of_chunk: u32,
    tags: Vec<u16>,
    /// Free runs: length in cells, and first cell.
    free: BTreeSet<(u32, u32)>,
    /// Number of frames.
    frames: usize,
}

fn index(number: u32) -> usize {
    to_usize(u64::from(number))
}

fn length(range: &Range<u32>) -> u32 {
    range.end - range.start
}

impl CellAllocator {
    /// Creates an allocator without cells, for chunks of `chunk_cells`.
    pub(super) fn new(chunk_cells: u32) -> Self {
        Self { of_chunk: chunk_cells, tags: Vec::new(), free: BTreeSet::new(), frames: 0 }
    }

    /// Adds a free chunk after the last one.
    pub(super) fn extend(&mut self, cells: Range<u32>) {
        self.tags.resize(index(cells.end), 0);
        self.add_free_run(cells);
    }

    /// Removes all cells from `end` on, where a chunk begins. They must be free.
    pub(super) fn truncate(&mut self, end: u32) {
        self.tags.truncate(index(end));
        self.free.retain(|(_, first)| *first < end);
    }

    /// Returns the number of frames.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    fn tag(&self, cell: u32) -> (u16, u32) {
        let tag = self.tags.get(index(cell)).copied().unwrap_or(0);
        (tag & !LENGTH_MASK, u32::from(tag & LENGTH_MASK) + 1)
    }

    fn set(&mut self, cell: u32, tag: u16) {
        if let Some(stored) = self.tags.get_mut(index(cell)) {
            *stored = tag;
        }
    }

    /// Tags the first cell of a range, and the last one if it is another.
    fn mark(&mut self, cells: &Range<u32>, (first, last): (u16, u16)) {
        let less_one = u16::try_from(length(cells) - 1).unwrap_or(LENGTH_MASK);
        self.set(cells.end - 1, last | less_one);
        self.set(cells.start, first | less_one);
    }

    fn clear(&mut self, cells: &Range<u32>) {
        self.set(cells.end - 1, 0);
        self.set(cells.start, 0);
    }

    fn add_free_run(&mut self, cells: Range<u32>) {
        self.mark(&cells, (FREE, FREE));
        self.free.insert((length(&cells), cells.start));
    }

    /// Returns the cells of the frame that begins at a cell, if one does.
    pub(super) fn frame_at(&self, cell: u32) -> Option<Range<u32>> {
        let (kind, cells) = self.tag(cell);
        (kind == BEGIN).then(|| cell..cell + cells)
    }

    /// Returns whether a frame begins at a cell.
    pub(super) fn begins_at(&self, cell: u32) -> bool {
        self.tag(cell).0 == BEGIN
    }

    /// Returns the frames of the same chunk that are adjacent to a free run: the one before and the
    /// one after.
    pub(super) fn neighbours(&self, run: &Range<u32>) -> [Option<u32>; 2] {
        let before = run.start.checked_sub(1).filter(|_| !run.start.is_multiple_of(self.of_chunk));
        let before = before.and_then(|last| match self.tag(last) {
            (BEGIN, _) => Some(last),
            (END, cells) => Some(last + 1 - cells),
            _ => None,
        });
        let behind = Some(run.end).filter(|end| !end.is_multiple_of(self.of_chunk));
        [before, behind.filter(|cell| self.begins_at(*cell))]
    }

    /// Returns whether all cells of a chunk are free.
    pub(super) fn are_free(&self, chunk: &Range<u32>) -> bool {
        self.tag(chunk.start) == (FREE, length(chunk))
    }

    /// Allocates a frame of `cells` from the smallest free run that is large enough. Returns its
    /// first cell. Costs O(log free runs).
    pub(super) fn allocate(&mut self, cells: u32) -> Option<u32> {
        let (found, first) = *self.free.range((cells, 0)..).next()?;
        self.free.remove(&(found, first));
        self.clear(&(first..first + found));
        if found > cells {
            self.add_free_run(first + cells..first + found);
        }
        self.mark(&(first..first + cells), (BEGIN, END));
        self.frames += 1;
        Some(first)
    }

    /// Frees the frame that begins at a cell, if one does. Returns the free run that it is part of
    /// then.
    pub(super) fn free_frame(&mut self, cell: u32) -> Option<Range<u32>> {
        let mut run = self.frame_at(cell)?;
        self.clear(&run);
        self.frames -= 1;
        if !run.start.is_multiple_of(self.of_chunk)
            && let (FREE, cells) = self.tag(run.start - 1)
        {
            let before = run.start - cells..run.start;
            self.free.remove(&(cells, before.start));
            self.clear(&before);
            run.start = before.start;
        }
        if !run.end.is_multiple_of(self.of_chunk)
            && let (FREE, cells) = self.tag(run.end)
        {
            let behind = run.end..run.end + cells;
            self.free.remove(&(cells, behind.start));
            self.clear(&behind);
            run.end = behind.end;
        }
        self.add_free_run(run.clone());
        Some(run)
    }

    /// Returns the cells in free runs, in frames, and in the largest free run, and checks the
    /// invariants.
    #[cfg(test)]
    #[cfg(not(model))]
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let (mut at, mut free, mut used, mut frames) = (0, 0, 0, 0);
        let end = u32::try_from(self.tags.len()).unwrap();
        let mut was_free = false;
        while at < end {
            let (kind, cells) = self.tag(at);
            assert!(kind == BEGIN || kind == FREE, "a frame or a run begins where one ends");
            let last = self.tag(at + cells - 1);
            assert!(cells == 1 || last == (if kind == BEGIN { END } else { FREE }, cells));
            assert_eq!(at / self.of_chunk, (at + cells - 1) / self.of_chunk);
            let meets = was_free && !at.is_multiple_of(self.of_chunk);
            assert!(!(meets && kind == FREE), "free runs that meet are one");
            was_free = kind == FREE;
            if was_free {
                assert!(self.free.contains(&(cells, at)));
                free += index(cells);
            } else {
                (used, frames) = (used + index(cells), frames + 1);
            }
            at += cells;
        }
        assert_eq!(frames, self.frames);
        assert_eq!(free, self.free.iter().map(|(cells, _)| index(*cells)).sum::<usize>());
        (free, used, self.free.last().map_or(0, |(cells, _)| index(*cells)))
    }
}
