//! Where the blocks of a file were put: a word for each, which whoever owns the file keeps.
//!
//! Invariants and thread rules: those of [`super`]. A place is a hint of where to look; what is
//! there says itself which block it is.

use std::sync::Arc;

use super::Blocks;
use crate::util::{
    codec::{to_u64, to_usize},
    sync::{AtomicU32, Ordering},
};

/// Where a block was put, if it was.
#[derive(Debug)]
pub(crate) struct Place(pub(super) AtomicU32);

impl Default for Place {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

/// A block's place, and the identity that its frame has to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    pub(super) place: &'a Place,
    pub(super) id: u64,
}

impl Slot<'_> {
    /// Starts loading the place.
    #[inline]
    pub(crate) fn prefetch(&self) {
        crate::io::prefetch(&self.place.0);
    }

    /// The frame that the place names.
    #[inline]
    pub(super) fn frame(&self) -> Option<u32> {
        self.place.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// What a block gets that has just been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// A frame that nobody needs, if there is one.
    Spare,
    /// A frame, as a block that was read: somebody may want it soon.
    Turn,
    /// The same, and it counts as used again: it takes the place of a block that was.
    Kept,
}

/// Places of the blocks of one file, drawn from the budget. Their frames are free again when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct Places {
    all: Vec<Place>,
    /// The identity of block 0; the others follow.
    first: u64,
    /// Bytes that were drawn.
    charged: u64,
    blocks: Arc<Blocks>,
}

impl Places {
    /// Places of no blocks yet.
    pub(crate) fn new(blocks: &Arc<Blocks>, first: u64) -> Self {
        Self { all: Vec::new(), first, charged: 0, blocks: Arc::clone(blocks) }
    }

    /// Places for this many blocks.
    pub(crate) fn with_count(mut self, count: u32) -> Self {
        self.all.resize_with(to_usize(u64::from(count)), Place::default);
        self.all.shrink_to_fit();
        let bytes = to_u64(self.all.len() * size_of::<Place>());
        self.blocks.budget.take_anyway(bytes.saturating_sub(self.charged));
        self.charged = self.charged.max(bytes);
        self
    }

    /// One more block, which has just been written.
    pub(crate) fn push(&mut self, payload: Option<&[&[u8]]>, room: Room) {
        let place = Place::default();
        if let Some(payload) = payload {
            let slot = Slot { place: &place, id: self.first + to_u64(self.all.len()) };
            match room {
                Room::Spare => self.blocks.put(slot, payload, Blocks::take_free),
                Room::Turn | Room::Kept => self.blocks.fill(slot, payload),
            }
            if room == Room::Kept
                && let Some(cell) = slot.frame()
            {
                self.blocks.count_use(cell);
            }
        }
        self.all.push(place);
    }

    /// The place of a block.
    #[inline]
    pub(crate) fn get(&self, block: u32) -> Option<Slot<'_>> {
        let place = self.all.get(to_usize(u64::from(block)))?;
        Some(Slot { place, id: self.first + u64::from(block) })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.blocks.release(&self.all, self.first);
        self.blocks.budget.give(self.charged);
    }
}
