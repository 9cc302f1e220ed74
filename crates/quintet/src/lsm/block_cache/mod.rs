//! Hot blocks of immutable files, in frames of memory.
//!
//! What: whoever owns a file keeps [`BlockHandles`] for its blocks: a word each that says in which
//! frame
//! it was put. A read through the place takes no lock and writes no shared memory, but for a count
//! of uses that stops at three. Frames fill as blocks are read, and give way to others; what a
//! block gets that has just been written, its writer says ([`CacheAdmission`]). With the file's
//! places go
//! its blocks: what a merge replaced takes no memory.
//! Why: no table to probe. The place is found by the block's number, so a hit costs one word and
//! the frame itself; and a block of an immutable file never changes, so nothing is written back.
//!
//! Which block gives way (S3-FIFO, Yang and others 2023): a new block waits in a short queue. If it
//! was used again by the time it comes to the queue's end, it goes to the long queue, else it
//! leaves and only its number is remembered for a while; a block that is remembered goes to the
//! long queue at once. In the long queue each use is worth another round. So what is read once, as
//! by a scan, passes through a tenth of the memory. A queue says with each frame which fill it
//! waits for: a frame that was emptied and filled again meanwhile waits in its new place alone.
//!
//! Blocks are of many sizes. Memory is in *cells* of a few lines of the processor's cache; a frame
//! is as many cells side by side as its block needs ([`cells`]). Queues hold frames of all sizes,
//! so memory goes to whatever size is used. Where a large block takes the place of smaller ones,
//! the next few whose turn it is leave; if none of them leaves a hole that is large enough, what
//! lies beside the last one leaves too.
//!
//! A frame, in words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | version: the number of the fill that made it, never used again, and mixed; 0: it is being written or empty |
//! | 1 | the block's identity, of the owner's choice, mixed |
//! | 2 | words of the frame behind the head |
//! | 3 .. | what the owner put there |
//!
//! A byte for each cell counts the uses of the frame that begins there since it was looked at last,
//! and says whether it waits in the long queue.
//!
//! Invariants: a look at a frame counts only if its version was the same before and after, and its
//! identity is the one that was asked for. So a place may name a frame that has another block by
//! now, and needs no care when its block leaves. It may also name a cell inside a larger frame:
//! identities and versions are mixed with a secret, so what a block holds is not taken for them,
//! but by one chance in 2^64; and nothing is written through a place but a count of uses, which
//! lies apart, unless [`cells`] says that a frame begins there. A frame that is shown in place
//! ([`pins`]) stays as it is. Memory is drawn from the budget in chunks, while a sixteenth of it is
//! free (an eighth of a small one), and given back by [`BlockCache::shrink`].
//!
//! Thread rules: any thread. Fills and shrinking hold `admin`.

mod allocator;
pub(crate) mod decoded_block;
mod handles;
#[cfg(all(test, model))]
mod models;
mod pins;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{collections::VecDeque, io, mem, ops::Range, sync::Arc};

pub(crate) use self::handles::{BlockHandle, BlockHandles, BlockRef, CacheAdmission};
use self::{
    allocator::{CHUNK_CELLS_MAX, Cells},
    pins::{Pinned, Pins},
};
use crate::{
    io::Region,
    util::{
        budget::{Budget, Reclaimable},
        codec::{low_u32, round_up, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicU64, Mutex, Ordering, fence, lock},
        words::{WORD_BYTES, store_bytes},
    },
};

/// Memory comes and goes in chunks of this size, or a multiple of it.
const CHUNK_BYTES: u64 = if cfg!(any(test, model)) { 64 << 10 } else { 2 << 20 };
const HEAD_WORDS: usize = 3;
/// Words of a line. Cells begin at lines.
const LINE_WORDS: usize = 8;
/// A cell has two lines, or a part of so many of an ordinary block where that is more.
const CELL_LINES_MIN: u64 = 2;
const CELL_SHARE: u64 = 64;
/// A frame has at most so many bytes, if that is more than an ordinary block.
const FRAME_BYTES_MAX: u64 = 512 << 10;
/// Ordinary blocks of a chunk at least; and what its cells are a multiple of, so that it ends with
/// a page.
const CHUNK_BLOCKS_MIN: u64 = 8;
const CHUNK_CELLS_ALIGN: u64 = 64;
/// One frame has at most one byte of so many that there may be.
const FRAME_SHARE: u64 = 16;
/// Blocks that leave, at most, before those beside the last one do.
const TURNS_MAX: usize = 4;
/// Counts of uses in a word.
const USES_A_WORD: u64 = 8;
/// Uses that are counted.
const USES_MAX: u64 = 3;
/// The bits of a count, and the one that says: in the long queue.
const USES_MASK: u64 = 0x7f;
const IS_LONG: u64 = 0x80;
/// The short queue has one cell of so many.
const SHORT_SHARE: usize = 10;
/// One byte of so many of the budget is left to others; of a small budget twice as much, up to so
/// many chunks, because memory comes back in chunks.
const SPARE_SHARE: u64 = 16;
const SPARE_CHUNKS: u64 = 4;
/// Numbers of blocks that are remembered, at least.
const GHOSTS_MIN: usize = 64;
/// Queues of so many are not tidied.
const QUEUES_MIN: usize = 64;
/// Files lock so many of their places at once when they go.
const RELEASE_TURN: usize = 256;
/// Frames that are looked at, at most, for one that can be used.
const LOOKS_MAX: usize = 128;

/// The frames. See the module head.
#[derive(Debug)]
pub(crate) struct BlockCache {
    frames: Region,
    /// A byte for each cell.
    uses: Region,
    pins: Pins,
    secret: u64,
    /// Words of a cell, and cells of a chunk.
    cell_words: usize,
    chunk_cells: usize,
    /// Chunks at most, and at most for now.
    chunks_max: usize,
    chunks_now: AtomicU64,
    /// Cells of the largest frame.
    frame_cells_max: u32,
    budget: Arc<Budget>,
    admin: Mutex<Admin>,
    fills_total: AtomicU64,
    evicted_total: AtomicU64,
}

#[derive(Debug)]
struct Admin {
    /// Chunks that are drawn from the budget.
    chunks: usize,
    cells: Cells,
    short: VecDeque<Waiting>,
    long: VecDeque<Waiting>,
    /// Cells of the frames in the short queue.
    short_cells: usize,
    /// Identities of what left the short queue, each in the slot that its bits say.
    ghosts: Vec<u64>,
    /// Fills so far.
    fills: u64,
}

/// A frame that waits for its turn to leave.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    frame: u32,
    cells: u32,
    /// Of the fill that it waits for.
    version: u64,
}

/// Finds room for a frame of so many cells.
type TakeFrame = fn(&BlockCache, &mut Admin, u32) -> Option<u32>;

/// Spreads the bits of an identity.
fn mix(id: u64) -> u64 {
    let mixed = (id ^ id >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

impl BlockCache {
    /// Frames for ordinary blocks of up to `payload_bytes`, and for larger ones, in at most `bytes`
    /// of memory. Nobody who chooses what blocks hold knows the secret.
    pub(crate) fn new(
        (bytes, payload_bytes): (u64, usize),
        secret: u64,
        budget: &Arc<Budget>,
    ) -> io::Result<Self> {
        let line_bytes = to_u64(LINE_WORDS * WORD_BYTES);
        let of_block = to_u64(payload_bytes + HEAD_WORDS * WORD_BYTES);
        let cell_bytes =
            round_up((of_block / CELL_SHARE).max(CELL_LINES_MIN * line_bytes), line_bytes);
        let chunk_bytes = CHUNK_BYTES.max(of_block * CHUNK_BLOCKS_MIN);
        let chunk_cells = round_up(chunk_bytes.div_ceil(cell_bytes), CHUNK_CELLS_ALIGN);
        let chunk_cells = chunk_cells.min(CHUNK_CELLS_MAX);
        let chunk_bytes = chunk_cells * cell_bytes;
        let most = FRAME_BYTES_MAX.min(bytes / FRAME_SHARE).min(chunk_bytes);
        let frame_cells_max = (most / cell_bytes).max(of_block.div_ceil(cell_bytes));
        // Cells have numbers of 32 bits.
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
            chunks_now: AtomicU64::new(chunks_max),
            frame_cells_max: low_u32(frame_cells_max),
            budget: Arc::clone(budget),
            admin: Mutex::new(Admin::new(low_u32(chunk_cells))),
            fills_total: AtomicU64::new(0),
            evicted_total: AtomicU64::new(0),
        })
    }

    /// Whether it can hold anything.
    pub(crate) fn is_on(&self) -> bool {
        self.chunks_max > 0
    }

    /// Bytes of the largest block that is cached; `None` where none is.
    pub(crate) fn payload_bytes_max(&self) -> Option<usize> {
        self.is_on().then(|| self.payload_words(self.frame_cells_max) * WORD_BYTES)
    }

    /// Words of a frame behind its head.
    fn payload_words(&self, cells: u32) -> usize {
        self.cell_words * to_usize(u64::from(cells)) - HEAD_WORDS
    }

    /// Cells of the smallest frame that so many bytes fit.
    fn cells_for(&self, bytes: usize) -> Option<u32> {
        let words = HEAD_WORDS + bytes.div_ceil(WORD_BYTES);
        let cells = u32::try_from(words.div_ceil(self.cell_words)).ok();
        cells.filter(|cells| *cells <= self.frame_cells_max)
    }

    /// What a frame's head says of a block or a fill: nothing that a block holds by chance.
    #[inline]
    fn sealed(&self, number: u64) -> u64 {
        // Steps that can be undone: different numbers stay different, but for the two of 0 and 1.
        mix(mix(number ^ self.secret) ^ self.secret.rotate_left(32)).max(1)
    }

    /// All words from a cell on that may be a frame's.
    #[inline]
    fn words(&self, cell: u32) -> &[AtomicU64] {
        let first = to_usize(u64::from(cell)) * self.cell_words;
        self.frames.words().get(first..).unwrap_or(&[])
    }

    /// Version, identity and size of the frame that begins at a cell, and what is behind them.
    #[inline]
    fn head(&self, cell: u32) -> Option<(&[AtomicU64; HEAD_WORDS], &[AtomicU64])> {
        self.words(cell).split_first_chunk()
    }

    /// The word that the uses of a cell's frame are counted in, and at which bit.
    #[inline]
    fn uses(&self, cell: u32) -> Option<(&AtomicU64, u64)> {
        let cell = u64::from(cell);
        Some((self.uses.words().get(to_usize(cell / USES_A_WORD))?, cell % USES_A_WORD * 8))
    }

    /// Takes the uses since the last time.
    fn take_uses(&self, cell: u32, keep: impl FnOnce(u64) -> u64) -> u64 {
        let Some((word, at)) = self.uses(cell) else { return 0 };
        let count = word.load(Ordering::Relaxed) >> at & USES_MASK;
        let kept = keep(count).min(count);
        word.fetch_sub((count - kept) << at, Ordering::Relaxed);
        count
    }

    /// Starts loading what a place names. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, slot: BlockRef<'_>) {
        if let Some(cell) = slot.frame() {
            self.words(cell).iter().step_by(LINE_WORDS).take(3).for_each(crate::io::prefetch);
        }
    }

    /// Starts loading the front of what a place names, and what lies about byte `at` of the block.
    /// A hint.
    #[inline]
    pub(crate) fn prefetch_near(&self, slot: BlockRef<'_>, at: usize) {
        let Some(cell) = slot.frame() else { return };
        let words = self.words(cell);
        let near = HEAD_WORDS + at / WORD_BYTES;
        for word in [0, LINE_WORDS, near, near + LINE_WORDS, near + 2 * LINE_WORDS] {
            words.get(word).into_iter().for_each(crate::io::prefetch);
        }
    }

    /// Whether a block is here. It may leave at any time.
    pub(crate) fn has(&self, slot: BlockRef<'_>) -> bool {
        let head = slot.frame().and_then(|cell| self.head(cell));
        head.is_some_and(|([version, owner, _], _)| {
            version.load(Ordering::Relaxed) != 0
                && owner.load(Ordering::Relaxed) == self.sealed(slot.id)
        })
    }

    /// Whether a block is here, and not only because it was put here once.
    pub(crate) fn is_used(&self, slot: BlockRef<'_>) -> bool {
        let uses = slot.frame().and_then(|cell| self.uses(cell));
        uses.is_some_and(|(word, at)| word.load(Ordering::Relaxed) >> at & 0xff > 0)
            && self.has(slot)
    }

    /// What `look` makes of a block; `None` where it is not here. What `look` is given may change
    /// under it: then its result is thrown away.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        slot: BlockRef<'_>,
        look: impl FnOnce(&[AtomicU64]) -> T,
    ) -> Option<T> {
        let cell = slot.frame()?;
        let ([version, owner, size], payload) = self.head(cell)?;
        // What stands at the front of a block goes over its first line; uses are counted last.
        payload.get(8).into_iter().for_each(crate::io::prefetch);
        self.uses(cell).into_iter().for_each(|(word, _)| crate::io::prefetch(word));
        let before = version.load(Ordering::Acquire);
        let is_other = owner.load(Ordering::Relaxed) != self.sealed(slot.id);
        if before == 0 || (is_other && !mutant::active(Bug::BlockKeepsIdentity)) {
            return None;
        }
        let found = look(payload.get(..to_usize(size.load(Ordering::Relaxed)))?);
        fence(Ordering::Acquire);
        if version.load(Ordering::Relaxed) != before && !mutant::active(Bug::BlockNotValidated) {
            return None;
        }
        // Where another block has the frame by now, its count is one off.
        self.count_use(cell);
        Some(found)
    }

    /// The first word of a block, which does not count as a use.
    pub(crate) fn first_word(&self, slot: BlockRef<'_>) -> Option<u64> {
        let ([version, owner, _], payload) = self.head(slot.frame()?)?;
        let before = version.load(Ordering::Acquire);
        let is_here = before != 0 && owner.load(Ordering::Relaxed) == self.sealed(slot.id);
        let word = payload.first()?.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (is_here && version.load(Ordering::Relaxed) == before).then_some(word)
    }

    /// Counts a use of a block, if it is here.
    pub(crate) fn touch(&self, slot: BlockRef<'_>) {
        if let Some(cell) = slot.frame().filter(|_| self.has(slot)) {
            self.count_use(cell);
        }
    }

    /// A block that nobody will ask for any more leaves, unless it is pinned.
    pub(crate) fn leave(&self, slot: BlockRef<'_>) {
        let mut admin = lock(&self.admin);
        if let Some(cell) = slot.frame().filter(|cell| self.holds(&admin, *cell, slot.id)) {
            self.empty(&mut admin, cell);
        }
    }

    #[inline]
    fn count_use(&self, cell: u32) {
        if let Some((word, at)) = self.uses(cell)
            && word.load(Ordering::Relaxed) >> at & USES_MASK < USES_MAX
        {
            word.fetch_add(1 << at, Ordering::Relaxed);
        }
    }

    /// A block that stays where it is while the caller has it; `None` where it is not here, or
    /// [`pins`] has no slot.
    #[inline]
    pub(crate) fn pin(&self, slot: BlockRef<'_>) -> Option<Pinned<'_>> {
        let cell = slot.frame()?;
        let ([version, owner, size], payload) = self.head(cell)?;
        let pin = self.pins.take(cell)?;
        let is_there = version.load(Ordering::Acquire) != 0
            && owner.load(Ordering::Relaxed) == self.sealed(slot.id);
        if !is_there {
            return None;
        }
        let words = payload.get(..to_usize(size.load(Ordering::Relaxed)))?;
        self.count_use(cell);
        Some(Pinned::new(words, pin))
    }

    /// Puts a block into a frame, unless it is there, too large, or there is no memory.
    pub(crate) fn fill(&self, slot: BlockRef<'_>, payload: &[&[u8]]) {
        self.put(slot, payload, Self::take_frame);
    }

    fn put(&self, slot: BlockRef<'_>, payload: &[&[u8]], find: TakeFrame) {
        let bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let Some(cells) = self.cells_for(bytes).filter(|_| self.is_on()) else { return };
        let mut admin = lock(&self.admin);
        if slot.frame().is_some_and(|cell| self.holds(&admin, cell, slot.id)) {
            return;
        }
        let Some(cell) = find(self, &mut admin, cells) else { return };
        let Some(([version, owner, size], words)) = self.head(cell) else { return };
        admin.fills += 1;
        let fill = self.sealed(admin.fills);
        version.store(0, Ordering::Relaxed);
        // Also after the versions of whatever was in these cells before.
        fence(Ordering::Release);
        owner.store(self.sealed(slot.id), Ordering::Relaxed);
        size.store(to_u64(self.payload_words(cells)), Ordering::Relaxed);
        store_bytes(words.get(..self.payload_words(cells)).unwrap_or(&[]), payload);
        if let Some((word, at)) = self.uses(cell) {
            word.fetch_and(!(0xff << at), Ordering::Relaxed);
        }
        version.store(fill, Ordering::Release);
        let waiting = Waiting { frame: cell, cells, version: fill };
        if admin.forget(self.sealed(slot.id)) {
            self.wait_long(&mut admin, waiting);
        } else {
            admin.short_cells += to_usize(u64::from(cells));
            admin.short.push_back(waiting);
        }
        self.tidy(&mut admin);
        slot.place.0.store(cell + 1, Ordering::Relaxed);
        self.fills_total.fetch_add(1, Ordering::Relaxed);
    }

    /// Has a frame wait in the long queue.
    fn wait_long(&self, admin: &mut Admin, one: Waiting) {
        if let Some((word, at)) = self.uses(one.frame) {
            word.fetch_or(IS_LONG << at, Ordering::Relaxed);
        }
        admin.long.push_back(one);
    }

    /// Whether the frame at a cell has this block; it stays for those who hold `admin`.
    fn holds(&self, admin: &Admin, cell: u32, id: u64) -> bool {
        let begins = admin.cells.begins_at(cell);
        let owner = self.head(cell).map(|([_, owner, _], _)| owner.load(Ordering::Relaxed));
        begins && owner == Some(self.sealed(id))
    }

    /// Whether a frame is still that of the fill it waits for.
    fn waits(&self, admin: &Admin, one: Waiting) -> bool {
        let version = self.head(one.frame).map(|([version, ..], _)| version);
        admin.cells.begins_at(one.frame)
            && version.is_some_and(|version| version.load(Ordering::Relaxed) == one.version)
    }

    /// Takes those that wait for nothing out of the queues, once they are as many as the others.
    fn tidy(&self, admin: &mut Admin) {
        if admin.short.len() + admin.long.len() > 2 * admin.cells.frames() + QUEUES_MIN {
            let (mut short, mut long) = (mem::take(&mut admin.short), mem::take(&mut admin.long));
            short.retain(|one| self.waits(admin, *one));
            long.retain(|one| self.waits(admin, *one));
            (admin.short, admin.long) = (short, long);
            admin.count_short();
        }
    }

    /// Empties the frames of blocks whose file is gone.
    fn release(&self, places: &[BlockHandle], first: u64) {
        let mut id = first;
        for turn in places.chunks(RELEASE_TURN) {
            let mut admin = lock(&self.admin);
            for place in turn {
                let cell = (BlockRef { place, id }).frame();
                if let Some(cell) = cell.filter(|cell| self.holds(&admin, *cell, id)) {
                    self.empty(&mut admin, cell);
                }
                id += 1;
            }
        }
    }

    /// Empties the frame that begins at a cell, if one does that nobody has pinned: the free cells
    /// that it is among then.
    fn empty(&self, admin: &mut Admin, cell: u32) -> Option<Range<u32>> {
        if !admin.cells.begins_at(cell) {
            return None;
        }
        if let Some(([version, owner, _], _)) = self.head(cell) {
            let before = version.load(Ordering::Relaxed);
            version.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.pins.has(cell) && !mutant::active(Bug::PinnedFrameEmptied) {
                version.store(before, Ordering::Release);
                return None;
            }
            // Or the cell would seem to hold its block again where a larger frame ends in the word
            // of its version.
            owner.store(0, Ordering::Relaxed);
        }
        admin.cells.give(cell)
    }

    /// A frame that holds nothing.
    fn take_free(&self, admin: &mut Admin, cells: u32) -> Option<u32> {
        admin.cells.cut(cells).or_else(|| {
            self.grow(admin);
            admin.cells.cut(cells)
        })
    }

    /// A frame that holds nothing, or whose turn it is to leave, with as many others as are needed.
    fn take_frame(&self, admin: &mut Admin, cells: u32) -> Option<u32> {
        let mut found = self.take_free(admin, cells);
        let mut last = None;
        for _ in 0..TURNS_MAX {
            if found.is_some() {
                return found;
            }
            let one = self.evict(admin)?;
            match self.empty(admin, one.frame) {
                Some(free) => {
                    self.evicted_total.fetch_add(1, Ordering::Relaxed);
                    last = Some(free);
                }
                // It is pinned.
                None => self.wait_long(admin, one),
            }
            found = admin.cells.cut(cells);
        }
        found.or_else(|| {
            self.widen(admin, last?, cells);
            admin.cells.cut(cells)
        })
    }

    /// Empties frames beside free cells, those that are used least first, until they are so many:
    /// or none of them, if all are pinned.
    fn widen(&self, admin: &mut Admin, mut free: Range<u32>, cells: u32) {
        let count = |cell: &u32| {
            self.uses(*cell).map_or(0, |(word, at)| word.load(Ordering::Relaxed) >> at & 0xff)
        };
        while free.end - free.start < cells {
            let mut beside: Vec<u32> = admin.cells.beside(&free).into_iter().flatten().collect();
            beside.sort_by_key(count);
            let emptied = beside.iter().find_map(|cell| self.empty(admin, *cell));
            let Some(wider) = emptied else { return };
            self.evicted_total.fetch_add(1, Ordering::Relaxed);
            free = wider;
        }
    }

    /// The cells of a chunk.
    fn cells_of(&self, chunk: usize) -> Range<u32> {
        let first = low_u32(to_u64(chunk * self.chunk_cells));
        first..first + low_u32(to_u64(self.chunk_cells))
    }

    fn chunk_bytes(&self) -> u64 {
        to_u64(self.chunk_cells * self.cell_words * WORD_BYTES)
    }

    /// One more chunk, where there is memory that nobody else will need soon.
    fn grow(&self, admin: &mut Admin) {
        let bytes = self.chunk_bytes();
        let least = self.budget.limit() / SPARE_SHARE;
        let spare = least.max((least * 2).min(SPARE_CHUNKS * bytes));
        let is_free = self.budget.used().saturating_add(bytes + spare) <= self.budget.limit();
        let most = self.chunks_now.load(Ordering::Relaxed);
        if to_u64(admin.chunks) >= most || !is_free || self.budget.try_reserve(bytes).is_err() {
            return;
        }
        let cells = self.cells_of(admin.chunks);
        if admin.chunks == 0 {
            // At once: chunks end within huge pages.
            self.frames.advise_huge(0..to_u64(self.chunks_max) * bytes);
            self.uses.advise_huge(0..to_u64(self.chunks_max * self.chunk_cells));
        }
        admin.chunks += 1;
        admin.cells.extend(cells);
    }

    /// The frame whose turn it is to leave.
    fn evict(&self, admin: &mut Admin) -> Option<Waiting> {
        let cells = admin.chunks * self.chunk_cells;
        let mut looks = 0;
        loop {
            let is_short = admin.short_cells * SHORT_SHARE > cells || admin.long.is_empty();
            let one = if is_short {
                let one = admin.short.pop_front()?;
                admin.short_cells -= to_usize(u64::from(one.cells));
                one
            } else {
                admin.long.pop_front()?
            };
            if !self.waits(admin, one) {
                continue;
            }
            looks += 1;
            let keep = |count: u64| if is_short { 0 } else { count.saturating_sub(1) };
            if self.take_uses(one.frame, keep) > 0 && looks < LOOKS_MAX {
                self.wait_long(admin, one);
                continue;
            }
            if is_short && let Some(([_, owner, _], _)) = self.head(one.frame) {
                admin.remember(owner.load(Ordering::Relaxed));
            }
            return Some(one);
        }
    }

    /// Takes at most so many bytes from now on, within what it was made for; gives back the rest.
    pub(crate) fn set_most(&self, bytes: u64) {
        let most = (bytes / self.chunk_bytes()).min(to_u64(self.chunks_max));
        self.chunks_now.store(most, Ordering::Relaxed);
        let excess = self.memory_bytes().saturating_sub(most * self.chunk_bytes());
        if excess > 0 {
            self.shrink(excess);
        }
    }

    /// Gives back at least `bytes` of memory, or all there is up to what is pinned; how much.
    pub(crate) fn shrink(&self, bytes: u64) -> u64 {
        let chunk = self.chunk_bytes();
        let mut admin = lock(&self.admin);
        let mut given = 0;
        while given < bytes && admin.chunks > 0 {
            for cell in self.cells_of(admin.chunks - 1) {
                self.empty(&mut admin, cell);
            }
            if !admin.cells.are_free(&self.cells_of(admin.chunks - 1)) {
                // Somebody looks at a frame of it in place.
                break;
            }
            admin.chunks -= 1;
            // Whoever reads zeros from here on sees the versions gone as well: taking the pages
            // away waits for every processor.
            fence(Ordering::SeqCst);
            let range = to_u64(admin.chunks) * chunk;
            self.frames.discard(range..range + chunk);
            given += chunk;
        }
        let left = self.cells_of(admin.chunks).start;
        admin.cells.truncate(left);
        admin.short.retain(|one| one.frame < left);
        admin.long.retain(|one| one.frame < left);
        admin.count_short();
        drop(admin);
        self.budget.release(given);
        given
    }

    /// What its memory is drawn from.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Bytes that are drawn from the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        to_u64(lock(&self.admin).chunks) * self.chunk_bytes()
    }

    /// Blocks that were put into frames, and those that gave way, since the start.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.fills_total), load(&self.evicted_total))
    }
}

impl Reclaimable for BlockCache {
    fn reclaimable_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        self.shrink(bytes)
    }
}

impl Admin {
    fn new(chunk_cells: u32) -> Self {
        Self {
            chunks: 0,
            cells: Cells::new(chunk_cells),
            short: VecDeque::new(),
            long: VecDeque::new(),
            short_cells: 0,
            ghosts: Vec::new(),
            fills: 0,
        }
    }

    fn count_short(&mut self) {
        self.short_cells = self.short.iter().map(|one| to_usize(u64::from(one.cells))).sum();
    }

    fn ghost(&mut self, id: u64) -> Option<&mut u64> {
        let mask = to_u64(self.ghosts.len()).checked_sub(1)?;
        self.ghosts.get_mut(to_usize(mix(id) & mask))
    }

    /// As many as there are frames, and up to twice that, are remembered.
    fn remember(&mut self, id: u64) {
        if self.cells.frames() >= self.ghosts.len() {
            let more = (self.cells.frames() + 1).next_power_of_two().max(GHOSTS_MIN);
            for id in mem::replace(&mut self.ghosts, vec![0; more]) {
                if let Some(slot) = self.ghost(id) {
                    *slot = id;
                }
            }
        }
        if let Some(slot) = self.ghost(id) {
            *slot = id;
        }
    }

    /// Whether the block left lately; from now on it did not.
    fn forget(&mut self, id: u64) -> bool {
        match self.ghost(id) {
            Some(slot) if *slot == id => {
                *slot = 0;
                true
            }
            _ => false,
        }
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.shrink(u64::MAX);
    }
}
