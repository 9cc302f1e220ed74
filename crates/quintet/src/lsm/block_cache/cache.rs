//! The cache itself: lookups, fills, and eviction. See the head of [`super`].

use std::{io, mem, ops::Range, sync::Arc};

use super::{
    allocator::CHUNK_CELLS_MAX,
    handle::{BlockHandle, BlockRef},
    pins::{PinnedBlock, Pins},
    queues::{CacheState, QueueEntry, mix},
};
use crate::{
    io::Region,
    util::{
        budget::Budget,
        codec::{low_u32, round_up, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, fence, lock},
        words::{WORD_BYTES, store_bytes},
    },
};

/// Memory is reserved and released in chunks of this size, or a multiple of it.
const CHUNK_BYTES: u64 = if cfg!(any(test, model)) { 64 << 10 } else { 2 << 20 };
const HEAD_WORDS: usize = 3;
/// Words of a cache line. Cells begin at cache lines.
const CACHE_LINE_WORDS: usize = 8;
/// Minimum cache lines of a cell, and the minimum fraction (1/64) of an ordinary block that a cell
/// has.
const CELL_LINES_MIN: u64 = 2;
const CELL_FRACTION: u64 = 64;
/// Maximum bytes of a frame, if an ordinary block needs less.
const FRAME_BYTES_MAX: u64 = 512 << 10;
/// Minimum number of ordinary blocks in a chunk; and the number that its cells are a multiple of,
/// so that it ends at a page boundary.
const CHUNK_BLOCKS_MIN: u64 = 8;
const CHUNK_CELLS_ALIGN: u64 = 64;
/// A frame has at most this fraction (1/16) of the cache.
const FRAME_FRACTION: u64 = 16;
/// Maximum number of frames evicted in queue order before neighbours are.
const EVICTIONS_MAX: usize = 4;
/// Use counts in a word.
const USES_A_WORD: u64 = 8;
/// Maximum of a use count.
const USES_MAX: u64 = 3;
/// The bits of a use count, and the bit for membership of the long queue.
const USES_MASK: u64 = 0x7f;
const IS_LONG: u64 = 0x80;
/// Target fraction (1/10) of the cells that the short queue has.
const SHORT_FRACTION: usize = 10;
/// Stale entries of shorter queues are not removed.
const QUEUES_MIN: usize = 64;
/// Number of handles that are released under one lock when a file is dropped.
const RELEASE_BATCH: usize = 256;
/// Maximum number of used frames that one eviction moves to the long queue.
const PASSES_MAX: usize = 128;

/// The block cache. See the head of [`super`].
#[derive(Debug)]
pub(crate) struct BlockCache {
    pub(super) frames: Region,
    /// A byte for each cell: its use count and [`IS_LONG`].
    pub(super) uses: Region,
    pub(super) pins: Pins,
    pub(super) secret: u64,
    /// Words of a cell, and cells of a chunk.
    pub(super) cell_words: usize,
    pub(super) chunk_cells: usize,
    /// Maximum number of chunks, and the current bound.
    pub(super) chunks_max: usize,
    pub(super) chunks_bound: AtomicU64,
    /// Cells of the largest frame.
    pub(super) frame_cells_max: u32,
    pub(super) budget: Arc<Budget>,
    /// The table that reads through the cache.
    pub(super) table_id: u64,
    /// Number of chunks that the budget refused since other tables were last asked.
    pub(super) refusals: AtomicU64,
    pub(super) state: Mutex<CacheState>,
    pub(super) fills_total: AtomicU64,
    pub(super) evicted_total: AtomicU64,
}

/// Allocates a frame of `cells`.
pub(super) type FrameSource = fn(&BlockCache, &mut CacheState, u32) -> Option<u32>;

impl BlockCache {
    /// Creates an empty cache of at most `bytes`, for ordinary blocks of up to `payload_bytes` and
    /// for larger ones. `secret` must be unknown to those who choose the contents of blocks. Fails
    /// if the system has no address space.
    pub(crate) fn new(
        (bytes, payload_bytes): (u64, usize),
        secret: u64,
        (budget, table_id): (&Arc<Budget>, u64),
    ) -> io::Result<Self> {
        let line_bytes = to_u64(CACHE_LINE_WORDS * WORD_BYTES);
        let of_block = to_u64(payload_bytes + HEAD_WORDS * WORD_BYTES);
        let cell_bytes =
            round_up((of_block / CELL_FRACTION).max(CELL_LINES_MIN * line_bytes), line_bytes);
        let chunk_bytes = CHUNK_BYTES.max(of_block * CHUNK_BLOCKS_MIN);
        let chunk_cells = round_up(chunk_bytes.div_ceil(cell_bytes), CHUNK_CELLS_ALIGN);
        let chunk_cells = chunk_cells.min(CHUNK_CELLS_MAX);
        let chunk_bytes = chunk_cells * cell_bytes;
        let most = FRAME_BYTES_MAX.min(bytes / FRAME_FRACTION).min(chunk_bytes);
        let frame_cells_max = (most / cell_bytes).max(of_block.div_ceil(cell_bytes));
        // Cell numbers have 32 bits.
        let chunks_max = (bytes / chunk_bytes).min(u64::from(u32::MAX - 1) / chunk_cells);
        let cells_max = chunks_max * chunk_cells;
        Ok(Self {
            frames: Region::reserve(cells_max * cell_bytes)?,
            uses: Region::reserve(cells_max.next_multiple_of(USES_A_WORD))?,
            pins: Pins::new(),
            secret,
            cell_words: to_usize(cell_bytes) / WORD_BYTES,
            chunk_cells: to_usize(chunk_cells),
            chunks_max: to_usize(chunks_max),
            chunks_bound: AtomicU64::new(chunks_max),
            frame_cells_max: low_u32(frame_cells_max),
            budget: Arc::clone(budget),
            table_id,
            refusals: AtomicU64::new(0),
            state: Mutex::new(CacheState::new(low_u32(chunk_cells))),
            fills_total: AtomicU64::new(0),
            evicted_total: AtomicU64::new(0),
        })
    }

    /// Returns whether the cache can hold a block.
    pub(crate) fn is_on(&self) -> bool {
        self.chunks_max > 0
    }

    /// Returns the maximum bytes of a cached block; `None` if the cache is off.
    pub(crate) fn payload_bytes_max(&self) -> Option<usize> {
        self.is_on().then(|| self.payload_words(self.frame_cells_max) * WORD_BYTES)
    }

    /// Returns the words of a frame after its head.
    fn payload_words(&self, cells: u32) -> usize {
        self.cell_words * to_usize(u64::from(cells)) - HEAD_WORDS
    }

    /// Returns the cells of the smallest frame for a payload of `bytes`; `None` if it is too large.
    pub(super) fn cells_for(&self, bytes: usize) -> Option<u32> {
        let words = HEAD_WORDS + bytes.div_ceil(WORD_BYTES);
        let cells = u32::try_from(words.div_ceil(self.cell_words)).ok();
        cells.filter(|cells| *cells <= self.frame_cells_max)
    }

    /// Mixes a block's identity or a fill's number with the secret, for a frame's head. Block data
    /// does not equal it by chance.
    #[inline]
    fn mixed(&self, number: u64) -> u64 {
        // All steps are bijective: different numbers stay different, except the two that become 0
        // and 1.
        mix(mix(number ^ self.secret) ^ self.secret.rotate_left(32)).max(1)
    }

    /// Returns all words from a cell on that a frame may have.
    #[inline]
    fn words(&self, cell: u32) -> &[AtomicU64] {
        let first = to_usize(u64::from(cell)) * self.cell_words;
        self.frames.words().get(first..).unwrap_or(&[])
    }

    /// Returns version, identity and size of the frame that begins at a cell, and the words after
    /// them.
    #[inline]
    fn head(&self, cell: u32) -> Option<(&[AtomicU64; HEAD_WORDS], &[AtomicU64])> {
        self.words(cell).split_first_chunk()
    }

    /// Returns the word with the use count of a cell's frame, and the bit it begins at.
    #[inline]
    fn uses(&self, cell: u32) -> Option<(&AtomicU64, u64)> {
        let cell = u64::from(cell);
        Some((self.uses.words().get(to_usize(cell / USES_A_WORD))?, cell % USES_A_WORD * 8))
    }

    /// Returns the use count of a frame, and lowers it to `keep(count)`.
    fn lower_uses(&self, cell: u32, keep: impl FnOnce(u64) -> u64) -> u64 {
        let Some((word, at)) = self.uses(cell) else { return 0 };
        let count = word.load(Ordering::Relaxed) >> at & USES_MASK;
        let kept = keep(count).min(count);
        word.fetch_sub((count - kept) << at, Ordering::Relaxed);
        count
    }

    /// Prefetches the frame of a handle. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, slot: BlockRef<'_>) {
        if let Some(cell) = slot.frame() {
            self.words(cell).iter().step_by(CACHE_LINE_WORDS).take(3).for_each(crate::io::prefetch);
        }
    }

    /// Prefetches the head of a handle's frame, and the bytes around offset `at` of the block. A
    /// hint.
    #[inline]
    pub(crate) fn prefetch_near(&self, slot: BlockRef<'_>, at: usize) {
        let Some(cell) = slot.frame() else { return };
        let words = self.words(cell);
        let near = HEAD_WORDS + at / WORD_BYTES;
        for word in
            [0, CACHE_LINE_WORDS, near, near + CACHE_LINE_WORDS, near + 2 * CACHE_LINE_WORDS]
        {
            words.get(word).into_iter().for_each(crate::io::prefetch);
        }
    }

    /// Returns whether a block is cached. It may be evicted at any time.
    pub(crate) fn has(&self, slot: BlockRef<'_>) -> bool {
        let head = slot.frame().and_then(|cell| self.head(cell));
        head.is_some_and(|([version, owner, _], _)| {
            version.load(Ordering::Relaxed) != 0
                && owner.load(Ordering::Relaxed) == self.mixed(slot.id)
        })
    }

    /// Returns whether a block is cached and was used since the last eviction pass, or is in the
    /// long queue.
    pub(crate) fn is_used(&self, slot: BlockRef<'_>) -> bool {
        let uses = slot.frame().and_then(|cell| self.uses(cell));
        uses.is_some_and(|(word, at)| word.load(Ordering::Relaxed) >> at & 0xff > 0)
            && self.has(slot)
    }

    /// Calls `look` with a cached block. Returns `None` if it is not cached. The words may change
    /// during the call: then the result is discarded.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        slot: BlockRef<'_>,
        look: impl FnOnce(&[AtomicU64]) -> T,
    ) -> Option<T> {
        let cell = slot.frame()?;
        let ([version, owner, size], payload) = self.head(cell)?;
        // The directory of a block is longer than its first cache line; uses are counted last.
        payload.get(8).into_iter().for_each(crate::io::prefetch);
        self.uses(cell).into_iter().for_each(|(word, _)| crate::io::prefetch(word));
        let before = version.load(Ordering::Acquire);
        let is_other = owner.load(Ordering::Relaxed) != self.mixed(slot.id);
        if before == 0 || mutant!(BlockKeepsIdentity: false, else is_other) {
            return None;
        }
        let found = look(payload.get(..to_usize(size.load(Ordering::Relaxed)))?);
        fence(Ordering::Acquire);
        let after = version.load(Ordering::Relaxed);
        if mutant!(BlockNotValidated: false, else after != before) {
            return None;
        }
        // If the frame has another block by now, that block's count is off by one.
        self.count_use(cell);
        Some(found)
    }

    /// Returns the first word of a cached block, without counting a use.
    pub(crate) fn first_word(&self, slot: BlockRef<'_>) -> Option<u64> {
        let ([version, owner, _], payload) = self.head(slot.frame()?)?;
        let before = version.load(Ordering::Acquire);
        let is_here = before != 0 && owner.load(Ordering::Relaxed) == self.mixed(slot.id);
        let word = payload.first()?.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (is_here && version.load(Ordering::Relaxed) == before).then_some(word)
    }

    /// Counts a use of a block, if it is cached.
    pub(crate) fn touch(&self, slot: BlockRef<'_>) {
        if let Some(cell) = slot.frame().filter(|_| self.has(slot)) {
            self.count_use(cell);
        }
    }

    /// Evicts a block that is not needed any more, unless it is pinned.
    pub(crate) fn evict_block(&self, slot: BlockRef<'_>) {
        let mut state = lock(&self.state);
        if let Some(cell) = slot.frame().filter(|cell| self.has_block(&state, *cell, slot.id)) {
            self.free_frame(&mut state, cell);
        }
    }

    #[inline]
    pub(super) fn count_use(&self, cell: u32) {
        if let Some((word, at)) = self.uses(cell)
            && word.load(Ordering::Relaxed) >> at & USES_MASK < USES_MAX
        {
            word.fetch_add(1 << at, Ordering::Relaxed);
        }
    }

    /// Pins a block: its frame does not change until the result is dropped. Returns `None` if it is
    /// not cached, or all slots of [`pins`] are taken.
    #[inline]
    pub(crate) fn pin(&self, slot: BlockRef<'_>) -> Option<PinnedBlock<'_>> {
        let cell = slot.frame()?;
        let ([version, owner, size], payload) = self.head(cell)?;
        let pin = self.pins.acquire(cell)?;
        let is_there = version.load(Ordering::Acquire) != 0
            && owner.load(Ordering::Relaxed) == self.mixed(slot.id);
        if !is_there {
            return None;
        }
        let words = payload.get(..to_usize(size.load(Ordering::Relaxed)))?;
        self.count_use(cell);
        Some(PinnedBlock::new(words, pin))
    }

    /// Caches a block, unless it is cached, it is too large, or there is no memory.
    pub(crate) fn fill(&self, slot: BlockRef<'_>, payload: &[&[u8]]) {
        self.fill_from(slot, payload, Self::allocate_frame);
        self.take_from_others();
    }

    pub(super) fn fill_from(&self, slot: BlockRef<'_>, payload: &[&[u8]], find: FrameSource) {
        let bytes: usize = payload.iter().map(|sst| sst.len()).sum();
        let Some(cells) = self.cells_for(bytes).filter(|_| self.is_on()) else { return };
        let mut state = lock(&self.state);
        if slot.frame().is_some_and(|cell| self.has_block(&state, cell, slot.id)) {
            return;
        }
        let Some(cell) = find(self, &mut state, cells) else { return };
        let Some(([version, owner, size], words)) = self.head(cell) else { return };
        state.fills += 1;
        let fill = self.mixed(state.fills);
        version.store(0, Ordering::Relaxed);
        // Also ordered after the versions of earlier frames in these cells.
        fence(Ordering::Release);
        owner.store(self.mixed(slot.id), Ordering::Relaxed);
        size.store(to_u64(self.payload_words(cells)), Ordering::Relaxed);
        store_bytes(words.get(..self.payload_words(cells)).unwrap_or(&[]), payload);
        if let Some((word, at)) = self.uses(cell) {
            word.fetch_and(!(0xff << at), Ordering::Relaxed);
        }
        version.store(fill, Ordering::Release);
        let waiting = QueueEntry { frame: cell, cells, version: fill };
        if state.remove_ghost(self.mixed(slot.id)) {
            self.push_long(&mut state, waiting);
        } else {
            state.short_cells += to_usize(u64::from(cells));
            state.short.push_back(waiting);
        }
        self.remove_stale_entries(&mut state);
        slot.handle.0.store(cell + 1, Ordering::Relaxed);
        self.fills_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Appends a frame to the long queue.
    fn push_long(&self, state: &mut CacheState, one: QueueEntry) {
        if let Some((word, at)) = self.uses(one.frame) {
            word.fetch_or(IS_LONG << at, Ordering::Relaxed);
        }
        state.long.push_back(one);
    }

    /// Returns whether the frame at a cell has this block. The caller holds `state`, so that the
    /// answer stays true.
    fn has_block(&self, state: &CacheState, cell: u32, id: u64) -> bool {
        let begins = state.cells.begins_at(cell);
        let owner = self.head(cell).map(|([_, owner, _], _)| owner.load(Ordering::Relaxed));
        begins && owner == Some(self.mixed(id))
    }

    /// Returns whether a queue entry is for the current fill of its frame.
    fn is_current(&self, state: &CacheState, one: QueueEntry) -> bool {
        let version = self.head(one.frame).map(|([version, ..], _)| version);
        state.cells.begins_at(one.frame)
            && version.is_some_and(|version| version.load(Ordering::Relaxed) == one.version)
    }

    /// Removes stale queue entries, once they are as many as the frames.
    fn remove_stale_entries(&self, state: &mut CacheState) {
        if state.short.len() + state.long.len() > 2 * state.cells.frames() + QUEUES_MIN {
            let (mut short, mut long) = (mem::take(&mut state.short), mem::take(&mut state.long));
            short.retain(|one| self.is_current(state, *one));
            long.retain(|one| self.is_current(state, *one));
            (state.short, state.long) = (short, long);
            state.recount_short();
        }
    }

    /// Frees the frames of a file's blocks.
    pub(super) fn release(&self, handles: &[BlockHandle], first: u64) {
        let mut id = first;
        for turn in handles.chunks(RELEASE_BATCH) {
            let mut state = lock(&self.state);
            for handle in turn {
                let cell = (BlockRef { handle, id }).frame();
                if let Some(cell) = cell.filter(|cell| self.has_block(&state, *cell, id)) {
                    self.free_frame(&mut state, cell);
                }
                id += 1;
            }
        }
    }

    /// Frees the frame that begins at a cell, unless it is pinned. Returns the free cells that it
    /// is part of then.
    pub(super) fn free_frame(&self, state: &mut CacheState, cell: u32) -> Option<Range<u32>> {
        if !state.cells.begins_at(cell) {
            return None;
        }
        if let Some(([version, owner, _], _)) = self.head(cell) {
            let before = version.load(Ordering::Relaxed);
            version.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if mutant!(PinnedFrameEmptied: false, else self.pins.has(cell)) {
                version.store(before, Ordering::Release);
                return None;
            }
            // Otherwise a larger frame that ends in the word of its version could make the cell
            // look like the block again.
            owner.store(0, Ordering::Relaxed);
        }
        state.cells.free_frame(cell)
    }

    /// Allocates a frame from free memory.
    pub(super) fn allocate_free(&self, state: &mut CacheState, cells: u32) -> Option<u32> {
        state.cells.allocate(cells).or_else(|| {
            self.grow(state);
            state.cells.allocate(cells)
        })
    }

    /// Allocates a frame from free memory, or by eviction of as many others as are needed.
    fn allocate_frame(&self, state: &mut CacheState, cells: u32) -> Option<u32> {
        let mut found = self.allocate_free(state, cells);
        let mut last = None;
        for _ in 0..EVICTIONS_MAX {
            if found.is_some() {
                return found;
            }
            let one = self.pop_victim(state)?;
            match self.free_frame(state, one.frame) {
                Some(free) => {
                    self.evicted_total.fetch_add(1, Ordering::Relaxed);
                    last = Some(free);
                }
                // It is pinned.
                None => self.push_long(state, one),
            }
            found = state.cells.allocate(cells);
        }
        found.or_else(|| {
            self.evict_neighbours(state, last?, cells);
            state.cells.allocate(cells)
        })
    }

    /// Evicts neighbours of free cells, the least used first, until `cells` are free, or all
    /// neighbours are pinned.
    fn evict_neighbours(&self, state: &mut CacheState, mut free: Range<u32>, cells: u32) {
        let count = |cell: &u32| {
            self.uses(*cell).map_or(0, |(word, at)| word.load(Ordering::Relaxed) >> at & 0xff)
        };
        while free.end - free.start < cells {
            let mut beside: Vec<u32> =
                state.cells.neighbours(&free).into_iter().flatten().collect();
            beside.sort_by_key(count);
            let emptied = beside.iter().find_map(|cell| self.free_frame(state, *cell));
            let Some(wider) = emptied else { return };
            self.evicted_total.fetch_add(1, Ordering::Relaxed);
            free = wider;
        }
    }

    /// Returns the cells of a chunk.
    pub(super) fn cells_of(&self, chunk: usize) -> Range<u32> {
        let first = low_u32(to_u64(chunk * self.chunk_cells));
        first..first + low_u32(to_u64(self.chunk_cells))
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        to_u64(self.chunk_cells * self.cell_words * WORD_BYTES)
    }

    /// Removes the next frame to evict from its queue.
    fn pop_victim(&self, state: &mut CacheState) -> Option<QueueEntry> {
        let cells = state.chunks * self.chunk_cells;
        let mut passes = 0;
        loop {
            let is_short = state.short_cells * SHORT_FRACTION > cells || state.long.is_empty();
            let one = if is_short {
                let one = state.short.pop_front()?;
                state.short_cells -= to_usize(u64::from(one.cells));
                one
            } else {
                state.long.pop_front()?
            };
            if !self.is_current(state, one) {
                continue;
            }
            passes += 1;
            let keep = |count: u64| if is_short { 0 } else { count.saturating_sub(1) };
            if self.lower_uses(one.frame, keep) > 0 && passes < PASSES_MAX {
                self.push_long(state, one);
                continue;
            }
            if is_short && let Some(([_, owner, _], _)) = self.head(one.frame) {
                state.add_ghost(owner.load(Ordering::Relaxed));
            }
            return Some(one);
        }
    }

    /// Returns how many blocks were cached and how many evicted since the start.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.fills_total), load(&self.evicted_total))
    }
}
