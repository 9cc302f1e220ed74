//! The overlay: journal changes that are applied to pages when they are read.
//!
//! What: one [`OverlayLayer`] for each journal group, with the changes of each page. A page that is
//! read from disk gets the changes of all layers, the oldest first. Why: to apply them all when a
//! table is opened would read and write every page that changed since the last write-back. A layer
//! stores where the pieces are; their content is read with the page.
//!
//! Invariants:
//! - The file's page with its changes applied is a whole page, whose checksum is verified
//!   afterwards.
//! - A page that is only read can be evicted like any other. Once it is changed or written back,
//!   only its frame has its changes, and they leave the overlay.
//! - The journal files of layers stay while any page is in the overlay.
//!
//! Threads: any thread. No I/O is done under the lock.

use std::{collections::HashMap, sync::Arc};

use super::{page_bytes::UNITS, page_id::PageId};
use crate::{
    Error, Result,
    io::{AlignedBuffer, Completion, Queue, Request, queue::DEPTH},
    journal::redo::{
        RedoGroup,
        page_patches::{PatchSource, decode_patches},
    },
    util::{
        budget::Budget,
        codec::{low_u32, to_u64, to_usize},
        sync::{AtomicBool, Mutex, Ordering, lock},
    },
};

#[cfg(test)]
#[cfg(not(model))]
use crate::journal::redo::page_patches::append_patch;

/// Reads of pieces are merged while the gap between them is at most `GAP_BYTES_MAX` and the read at
/// most `READ_BYTES_MAX` bytes.
const GAP_BYTES_MAX: u64 = 16 << 10;
const READ_BYTES_MAX: u64 = 256 << 10;

/// A piece: the changes of one page in one layer.
#[derive(Clone, Copy, Debug)]
struct PagePiece {
    page: u32,
    /// Size in bytes; 0 voids what older layers have of the page.
    bytes: u32,
    at: u64,
}

/// The changes of pages in one journal group.
#[derive(Debug)]
pub struct OverlayLayer {
    /// Sorted by page.
    pieces: Vec<PagePiece>,
    source: PatchSource,
}

/// A page and its changes: offsets and bytes.
#[cfg(test)]
#[cfg(not(model))]
type PagePatches<'a> = (u32, &'a [(u64, &'a [u8])]);

impl OverlayLayer {
    /// Returns the layer of a group whose keys are page numbers; `None` if the group is no such
    /// group.
    pub(crate) fn of(group: RedoGroup) -> Option<Self> {
        let mut pieces = Vec::new();
        for entry in group.page_entries() {
            let (key, at, bytes) = entry?;
            let page = u32::try_from(key).ok().filter(|page| *page < u32::MAX)?;
            pieces.push(PagePiece { page, bytes: u32::try_from(bytes).ok()?, at });
        }
        Some(Self { pieces, source: group.into_patch_source() })
    }

    /// Returns a layer of these changes.
    #[cfg(test)]
    #[cfg(not(model))]
    pub(super) fn of_patches(pages: &[PagePatches<'_>]) -> Self {
        let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
        for (page, patches) in pages {
            let (at, mut end) = (bytes.len(), 0);
            for (offset, patch) in *patches {
                append_patch(&mut bytes, &mut end, *offset, patch);
            }
            let size = low_u32(to_u64(bytes.len() - at));
            pieces.push(PagePiece { page: *page, bytes: size, at: to_u64(at) });
        }
        Self { pieces, source: PatchSource::Memory(Arc::new(bytes)) }
    }

    /// Returns the pieces of a page.
    fn of_page(&self, page: PageId) -> &[PagePiece] {
        let start = self.pieces.partition_point(|piece| piece.page < page.0);
        let rest = self.pieces.get(start..).unwrap_or(&[]);
        let count = rest.iter().take_while(|piece| piece.page == page.0).count();
        rest.get(..count).unwrap_or(&[])
    }

    fn memory_bytes(&self) -> u64 {
        let bytes = match &self.source {
            PatchSource::Memory(bytes) => to_u64(bytes.len()),
            PatchSource::File(..) => 0,
        };
        bytes + to_u64(size_of_val(&*self.pieces))
    }
}

type Layers = Arc<[OverlayLayer]>;

/// A piece with the number of its layer.
type LayerPiece = (usize, PagePiece);

#[derive(Debug, Default)]
struct OverlayState {
    layers: Layers,
    /// A bit for each page in the overlay, and the number of set bits. Words below `first_word` are
    /// zero.
    present: Vec<u64>,
    left: usize,
    first_word: usize,
    /// Pieces that were prefetched, in the order of their layers.
    prefetched: HashMap<PageId, Vec<Vec<u8>>>,
}

impl OverlayState {
    fn is_present(&self, page: PageId) -> bool {
        let word = self.present.get(to_usize(u64::from(page.0 / 64)));
        word.is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
    }

    fn set(&mut self, page: u32, is_present: bool) {
        let index = to_usize(u64::from(page / 64));
        if index >= self.present.len() {
            self.present.resize(index + 1, 0);
        }
        let Some(word) = self.present.get_mut(index) else { return };
        let (before, bit) = (*word, 1 << (page % 64));
        *word = if is_present { before | bit } else { before & !bit };
        match (before & bit != 0, is_present) {
            (false, true) => self.left += 1,
            (true, false) => self.left -= 1,
            _ => {}
        }
    }

    fn memory_bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(OverlayLayer::memory_bytes).sum();
        layers + to_u64(size_of_val(&*self.present))
    }
}

/// Returns the valid pieces of a page, the oldest first.
fn pieces_of(layers: &[OverlayLayer], page: PageId) -> Vec<LayerPiece> {
    let mut pieces = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        for piece in layer.of_page(page) {
            if piece.bytes == 0 {
                pieces.clear();
            } else {
                pieces.push((number, *piece));
            }
        }
    }
    pieces
}

/// The overlay. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// A table with an empty overlay checks only this flag.
    filled: AtomicBool,
    /// Whether changes stay in the overlay (read-only tables).
    is_read_only: AtomicBool,
    state: Mutex<OverlayState>,
}

impl Overlay {
    /// Replaces all layers; the oldest is first.
    pub(super) fn set(&self, layers: Vec<OverlayLayer>, keep: bool, budget: &Budget) {
        self.is_read_only.store(keep, Ordering::Relaxed);
        let mut after = OverlayState { layers: layers.into(), ..OverlayState::default() };
        for layer in &*Arc::clone(&after.layers) {
            layer.pieces.iter().for_each(|piece| after.set(piece.page, piece.bytes > 0));
        }
        budget.reserve_unchecked(after.memory_bytes());
        self.filled.store(after.left > 0, Ordering::Release);
        let before = std::mem::replace(&mut *lock(&self.state), after);
        budget.release(before.memory_bytes());
    }

    pub(super) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Returns at most `count` pages in the overlay, in order.
    pub(super) fn pages(&self, count: usize) -> Vec<PageId> {
        let mut pages = Vec::new();
        if !self.is_filled() {
            return pages;
        }
        let mut state = lock(&self.state);
        while state.present.get(state.first_word) == Some(&0) {
            state.first_word += 1;
        }
        for (index, word) in state.present.iter().enumerate().skip(state.first_word) {
            let mut rest = *word;
            while rest != 0 && pages.len() < count {
                pages.push(PageId(low_u32(to_u64(index) * 64) + rest.trailing_zeros()));
                rest &= rest - 1;
            }
            if pages.len() >= count {
                break;
            }
        }
        pages
    }

    /// Whether the overlay has changes of a page.
    pub(super) fn has(&self, page: PageId) -> bool {
        self.is_filled() && lock(&self.state).is_present(page)
    }

    /// Applies a page's changes to `image` and returns the units that they change; `None` if there
    /// are none. `label` names the file of pages, `offset` is the page's offset in it.
    pub(super) fn patch(
        &self,
        page: PageId,
        image: &mut [u8],
        (label, offset): (&str, u64),
    ) -> Result<Option<u64>> {
        if !self.is_filled() {
            return Ok(None);
        }
        let (layers, prefetched) = {
            let mut state = lock(&self.state);
            if !state.is_present(page) {
                return Ok(None);
            }
            (Arc::clone(&state.layers), state.prefetched.remove(&page))
        };
        let pieces = match prefetched {
            Some(pieces) => pieces,
            None => read_pieces(&layers, page, label)?,
        };
        let mut units = 0;
        for piece in pieces {
            let Some(changed) = apply(&piece, image) else {
                let what = format!("what the journal has of page {} does not parse", page.0);
                return Err(Error::corruption(label, offset, what));
            };
            units |= changed;
        }
        Ok(Some(units))
    }

    /// Removes a page's changes: its frame has them, or the page was freed. Returns whether there
    /// were any.
    pub(super) fn remove(&self, page: PageId, budget: &Budget) -> bool {
        if !self.is_filled() || self.is_read_only.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = lock(&self.state);
        if !state.is_present(page) {
            return false;
        }
        state.set(page.0, false);
        state.prefetched.remove(&page);
        if state.left == 0 {
            budget.release(state.memory_bytes());
            *state = OverlayState::default();
            self.filled.store(false, Ordering::Release);
        }
        true
    }

    /// Prefetches the layers' pieces of these pages in batches, before the pages are read. A hint:
    /// a failed read is repeated with the page.
    pub(super) fn prefetch_pieces(&self, pages: &[PageId], queue: &mut dyn Queue) {
        if !self.is_filled() {
            return;
        }
        let (layers, wanted) = {
            let state = lock(&self.state);
            let wanted = |page: &&PageId| state.is_present(**page);
            let wanted: Vec<PageId> = pages.iter().filter(wanted).copied().collect();
            (Arc::clone(&state.layers), wanted)
        };
        let mut pieces: Vec<(usize, PagePiece, usize, usize)> = Vec::new();
        let mut found: Vec<Vec<Option<Vec<u8>>>> = Vec::new();
        for (number, page) in wanted.iter().enumerate() {
            let of_page = pieces_of(&layers, *page);
            found.push(vec![None; of_page.len()]);
            pieces.extend(
                of_page
                    .into_iter()
                    .enumerate()
                    .map(|(at, (layer, piece))| (layer, piece, number, at)),
            );
        }
        pieces.sort_unstable_by_key(|(layer, piece, ..)| (*layer, piece.at));
        let reads = merge_reads(&layers, &pieces);
        run_reads(&layers, &reads, queue, &mut |read, bytes| {
            let (from, pieces) = (read.from, pieces.get(read.first..read.last).unwrap_or(&[]));
            for (layer, piece, number, at) in pieces {
                let Some(PatchSource::File(_, start)) =
                    layers.get(*layer).map(|layer| &layer.source)
                else {
                    continue;
                };
                let begin = to_usize(start + piece.at - from);
                let bytes = bytes.get(begin..begin + to_usize(u64::from(piece.bytes)));
                if let Some(target) = found.get_mut(*number).and_then(|found| found.get_mut(*at)) {
                    *target = bytes.map(<[u8]>::to_vec);
                }
            }
        });
        let mut state = lock(&self.state);
        for (page, found) in wanted.into_iter().zip(found) {
            if let Some(pieces) = found.into_iter().collect::<Option<Vec<_>>>()
                && state.is_present(page)
            {
                state.prefetched.insert(page, pieces);
            }
        }
    }
}

/// One read of the pieces `first..last`.
struct PieceRead {
    layer: usize,
    from: u64,
    length: u64,
    first: usize,
    last: usize,
}

/// Merges reads of neighbouring pieces. Pieces in memory need no read.
fn merge_reads(
    layers: &[OverlayLayer],
    pieces: &[(usize, PagePiece, usize, usize)],
) -> Vec<PieceRead> {
    let mut reads: Vec<PieceRead> = Vec::new();
    for (index, (layer, piece, ..)) in pieces.iter().enumerate() {
        let source = layers.get(*layer).map(|layer| &layer.source);
        let blocks = source.and_then(|source| source.blocks(piece.at, u64::from(piece.bytes)));
        let Some((_, from, length, _)) = blocks else { continue };
        if let Some(last) = reads.last_mut()
            && last.layer == *layer
            && from <= last.from + last.length + GAP_BYTES_MAX
            && from + length <= last.from + READ_BYTES_MAX
        {
            last.length = last.length.max(from + length - last.from);
            last.last = index + 1;
        } else {
            reads.push(PieceRead { layer: *layer, from, length, first: index, last: index + 1 });
        }
    }
    reads
}

/// Performs all reads and passes the results to `each`.
fn run_reads(
    layers: &[OverlayLayer],
    reads: &[PieceRead],
    queue: &mut dyn Queue,
    each: &mut impl FnMut(&PieceRead, &[u8]),
) {
    let mut done = Vec::with_capacity(DEPTH);
    let mut collect = |done: &mut Vec<Completion>| {
        for completion in done.drain(..) {
            let count = completion.result.unwrap_or(0);
            let bytes = completion.buffer.as_slice().get(..count).unwrap_or(&[]);
            if let Some(read) = reads.get(to_usize(completion.token)) {
                each(read, bytes);
            }
        }
    };
    for (token, read) in reads.iter().enumerate() {
        if queue.pending() >= DEPTH {
            queue.wait(1, &mut done);
            collect(&mut done);
        }
        let source = layers.get(read.layer).map(|layer| &layer.source);
        let Some(PatchSource::File(file, _)) = source else { continue };
        let length = to_usize(read.length);
        let buffer = AlignedBuffer::zeroed(length);
        let request = Request::Read { file: Arc::clone(file), offset: read.from, buffer, length };
        queue.submit(to_u64(token), request);
    }
    while queue.pending() > 0 {
        queue.wait(1, &mut done);
        collect(&mut done);
    }
}

fn read_pieces(layers: &[OverlayLayer], page: PageId, label: &str) -> Result<Vec<Vec<u8>>> {
    let read = |(number, piece): LayerPiece| {
        let layer = layers.get(number)?;
        Some(layer.source.read(piece.at, u64::from(piece.bytes)))
    };
    let pieces = pieces_of(layers, page).into_iter().filter_map(read);
    pieces.collect::<std::io::Result<_>>().map_err(|error| {
        Error::io(format!("read what the journal has of page {} of {label}", page.0), error)
    })
}

/// Applies a piece to a page and returns the units that it changes; `None` if the piece does not
/// parse.
fn apply(piece: &[u8], image: &mut [u8]) -> Option<u64> {
    let unit = image.len() / UNITS;
    let (mut units, mut is_inside) = (0_u64, true);
    decode_patches(piece, |offset, bytes| {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(bytes.len()));
        let Some((start, end)) = start.zip(end) else {
            is_inside = false;
            return;
        };
        match image.get_mut(start..end) {
            Some(target) => target.copy_from_slice(bytes),
            None => is_inside = false,
        }
        if is_inside {
            for index in start / unit..end.div_ceil(unit) {
                units |= 1_u64.checked_shl(low_u32(to_u64(index))).unwrap_or(0);
            }
        }
    })?;
    is_inside.then_some(units)
}
