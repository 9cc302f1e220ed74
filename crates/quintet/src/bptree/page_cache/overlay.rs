//! What the journal has over the file's pages, until each is read.
//!
//! What: [`Layer`]s, one for each group of the journal, of what changed of each page; whoever reads
//! a page from the disk gets it with them applied, the oldest first.
//! Why: applying them all when a table is opened would read and write every page that was changed
//! since the last placing. A layer is where the pieces are, not what they hold: that is read with
//! the page.
//!
//! Invariants: the file's page with the changes applied is a whole page, checksum included, which
//! is verified after; a page that is only read leaves its frame like any other; once somebody
//! changes it, or has it placed, its frame alone has its changes, and they are here no more. Files
//! of layers stay as long as pages are here.
//!
//! Thread rules: any thread. Nothing is read under the lock.

use std::{collections::HashMap, sync::Arc};

use super::PageId;
use crate::{
    Error, Result,
    bptree::page_cache::page_bytes::UNITS,
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

/// Reads of pieces are put together while no more than this lies between them, and up to this.
const GAP_BYTES_MAX: u64 = 16 << 10;
const READ_BYTES_MAX: u64 = 256 << 10;

/// A piece of a layer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    page: u32,
    /// 0: what older layers have of the page is void.
    bytes: u32,
    at: u64,
}

/// What a group of the journal has of the pages.
#[derive(Debug)]
pub struct Layer {
    /// By page.
    pieces: Vec<Piece>,
    source: PatchSource,
}

/// A page, and what changes in it: offsets and bytes.
#[cfg(test)]
#[cfg(not(model))]
pub(super) type PagePatches<'a> = (u32, &'a [(u64, &'a [u8])]);

impl Layer {
    /// The pieces of a group, whose keys are numbers of pages; `None`: it is no such group.
    pub(crate) fn of(group: RedoGroup) -> Option<Self> {
        let mut pieces = Vec::new();
        for place in group.page_entries() {
            let (key, at, bytes) = place?;
            let page = u32::try_from(key).ok().filter(|page| *page < u32::MAX)?;
            pieces.push(Piece { page, bytes: u32::try_from(bytes).ok()?, at });
        }
        Some(Self { pieces, source: group.into_patch_source() })
    }

    /// What these pages change in.
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
            pieces.push(Piece { page: *page, bytes: size, at: to_u64(at) });
        }
        Self { pieces, source: PatchSource::Memory(Arc::new(bytes)) }
    }

    /// The pieces of a page.
    fn of_page(&self, page: PageId) -> &[Piece] {
        let start = self.pieces.partition_point(|piece| piece.page < page.0);
        let rest = self.pieces.get(start..).unwrap_or(&[]);
        let count = rest.iter().take_while(|piece| piece.page == page.0).count();
        rest.get(..count).unwrap_or(&[])
    }

    fn memory_bytes(&self) -> u64 {
        let held = match &self.source {
            PatchSource::Memory(bytes) => to_u64(bytes.len()),
            PatchSource::File(..) => 0,
        };
        held + to_u64(size_of_val(&*self.pieces))
    }
}

type Layers = Arc<[Layer]>;

/// A piece of a page: its layer and its place.
type Place = (usize, Piece);

#[derive(Debug, Default)]
struct State {
    layers: Layers,
    /// A bit for each page that is here, and how many are set; none below the first word is.
    present: Vec<u64>,
    left: usize,
    first_word: usize,
    /// Pieces that were read ahead, in the order of their layers.
    ahead: HashMap<PageId, Vec<Vec<u8>>>,
}

impl State {
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
        let layers: u64 = self.layers.iter().map(Layer::memory_bytes).sum();
        layers + to_u64(size_of_val(&*self.present))
    }
}

/// The pieces of a page that count, the oldest first.
fn places_of(layers: &[Layer], page: PageId) -> Vec<Place> {
    let mut places = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        for piece in layer.of_page(page) {
            if piece.bytes == 0 {
                places.clear();
            } else {
                places.push((number, *piece));
            }
        }
    }
    places
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// So that a table without an overlay, which soon is every one, pays nothing.
    filled: AtomicBool,
    /// Changes stay when their page is read.
    kept: AtomicBool,
    state: Mutex<State>,
}

impl Overlay {
    /// Replaces all of it; the oldest layer is first.
    pub(super) fn set(&self, layers: Vec<Layer>, keep: bool, budget: &Budget) {
        self.kept.store(keep, Ordering::Relaxed);
        let mut after = State { layers: layers.into(), ..State::default() };
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

    /// At most `count` pages that are here, from the first on.
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

    /// Whether there are changes of a page.
    pub(super) fn has(&self, page: PageId) -> bool {
        self.is_filled() && lock(&self.state).is_present(page)
    }

    /// Applies a page's changes, and says which units they are of; `None`: there are none.
    /// `label` names the file of pages, `offset` the page's place in it.
    pub(super) fn patch(
        &self,
        page: PageId,
        image: &mut [u8],
        (label, offset): (&str, u64),
    ) -> Result<Option<u64>> {
        if !self.is_filled() {
            return Ok(None);
        }
        let (layers, ahead) = {
            let mut state = lock(&self.state);
            if !state.is_present(page) {
                return Ok(None);
            }
            (Arc::clone(&state.layers), state.ahead.remove(&page))
        };
        let pieces = match ahead {
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

    /// A page's changes are in its frame, or nobody's: they are here no more. Whether they were.
    pub(super) fn take(&self, page: PageId, budget: &Budget) -> bool {
        if !self.is_filled() || self.kept.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = lock(&self.state);
        if !state.is_present(page) {
            return false;
        }
        state.set(page.0, false);
        state.ahead.remove(&page);
        if state.left == 0 {
            budget.release(state.memory_bytes());
            *state = State::default();
            self.filled.store(false, Ordering::Release);
        }
        true
    }

    /// Reads what the layers have of these pages, as many at once as a device has use for: for
    /// when the pages are read. A hint: what fails is read again then.
    pub(super) fn read_ahead(&self, pages: &[PageId], queue: &mut dyn Queue) {
        if !self.is_filled() {
            return;
        }
        let (layers, wanted) = {
            let state = lock(&self.state);
            let wanted = |page: &&PageId| state.is_present(**page);
            let wanted: Vec<PageId> = pages.iter().filter(wanted).copied().collect();
            (Arc::clone(&state.layers), wanted)
        };
        let mut places: Vec<(usize, Piece, usize, usize)> = Vec::new();
        let mut found: Vec<Vec<Option<Vec<u8>>>> = Vec::new();
        for (number, page) in wanted.iter().enumerate() {
            let of_page = places_of(&layers, *page);
            found.push(vec![None; of_page.len()]);
            places.extend(
                of_page
                    .into_iter()
                    .enumerate()
                    .map(|(at, (layer, piece))| (layer, piece, number, at)),
            );
        }
        places.sort_unstable_by_key(|(layer, piece, ..)| (*layer, piece.at));
        let reads = gather(&layers, &places);
        transfer(&layers, &reads, queue, &mut |read, held| {
            let (from, places) = (read.from, places.get(read.first..read.last).unwrap_or(&[]));
            for (layer, piece, number, at) in places {
                let Some(PatchSource::File(_, start)) =
                    layers.get(*layer).map(|layer| &layer.source)
                else {
                    continue;
                };
                let begin = to_usize(start + piece.at - from);
                let bytes = held.get(begin..begin + to_usize(u64::from(piece.bytes)));
                if let Some(place) = found.get_mut(*number).and_then(|found| found.get_mut(*at)) {
                    *place = bytes.map(<[u8]>::to_vec);
                }
            }
        });
        let mut state = lock(&self.state);
        for (page, found) in wanted.into_iter().zip(found) {
            if let Some(pieces) = found.into_iter().collect::<Option<Vec<_>>>()
                && state.is_present(page)
            {
                state.ahead.insert(page, pieces);
            }
        }
    }
}

/// One read of several pieces, those from `first` to `last`.
struct Read {
    layer: usize,
    from: u64,
    length: u64,
    first: usize,
    last: usize,
}

/// Puts reads of neighbouring pieces together. Pieces in memory need none.
fn gather(layers: &[Layer], places: &[(usize, Piece, usize, usize)]) -> Vec<Read> {
    let mut reads: Vec<Read> = Vec::new();
    for (index, (layer, piece, ..)) in places.iter().enumerate() {
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
            reads.push(Read { layer: *layer, from, length, first: index, last: index + 1 });
        }
    }
    reads
}

/// Has all reads under way, and shows `each` what came.
fn transfer(
    layers: &[Layer],
    reads: &[Read],
    queue: &mut dyn Queue,
    each: &mut impl FnMut(&Read, &[u8]),
) {
    let mut done = Vec::with_capacity(DEPTH);
    let mut show = |done: &mut Vec<Completion>| {
        for completion in done.drain(..) {
            let count = completion.result.unwrap_or(0);
            let held = completion.buffer.as_slice().get(..count).unwrap_or(&[]);
            if let Some(read) = reads.get(to_usize(completion.token)) {
                each(read, held);
            }
        }
    };
    for (token, read) in reads.iter().enumerate() {
        if queue.pending() >= DEPTH {
            queue.wait(1, &mut done);
            show(&mut done);
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
        show(&mut done);
    }
}

fn read_pieces(layers: &[Layer], page: PageId, label: &str) -> Result<Vec<Vec<u8>>> {
    let read = |(number, piece): Place| {
        let layer = layers.get(number)?;
        Some(layer.source.read(piece.at, u64::from(piece.bytes)))
    };
    let pieces = places_of(layers, page).into_iter().filter_map(read);
    pieces.collect::<std::io::Result<_>>().map_err(|error| {
        Error::io(format!("read what the journal has of page {} of {label}", page.0), error)
    })
}

/// Applies a piece; the units that it changes. `None`: it is no piece of a page.
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
