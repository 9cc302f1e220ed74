//! The file of images, and the changes that no image has.

use std::{collections::BTreeMap, sync::Arc};

use crate::{io::File, util::codec::to_usize};

/// Most bytes of memory that an unsaved or pending change takes: twice its size, because arrays
/// grow by doubling.
pub(crate) const CHANGE_BYTES: u64 = 32;

/// The image of a region: its slot in the file and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) slot: u64,
    pub(super) crc: u32,
}

/// The state of the file, and changes that no image has.
#[derive(Debug, Default)]
pub(super) struct SpaceFile {
    pub(super) file: Option<Arc<dyn File>>,
    pub(super) images: BTreeMap<u64, Image>,
    /// Slots that neither a valid image nor its predecessor needs.
    pub(super) free: Vec<u64>,
    pub(super) slot_count: u64,
    /// Committed changes since the image, by region.
    pub(super) pending: BTreeMap<u64, PendingChanges>,
    /// Changes that checkpoints took and whose group is not durable: sorted by word, the latest
    /// value of each.
    pub(super) in_flight: Changes,
    /// The lists that the last checkpoint took, until they are merged into `in_flight`.
    pub(super) taken: Vec<Changes>,
}

/// A change of a word in a region. It has no padding: a table may have millions of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionChange {
    index: u32,
    value: [u8; 8],
}

impl RegionChange {
    pub(super) fn new(index: u32, value: u64) -> Self {
        Self { index, value: value.to_le_bytes() }
    }

    /// Returns the word in the region, and its value.
    pub(super) fn index_and_value(self) -> (u32, u64) {
        (self.index, u64::from_le_bytes(self.value))
    }
}

const _: () = assert!(size_of::<RegionChange>() == 12);

/// Committed changes of one region.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    /// The journal group with the first of them.
    pub(super) since: u64,
    pub(super) changes: Vec<RegionChange>,
}

/// Changes: word and value.
pub(super) type Changes = Vec<(u64, u64)>;

/// Images that were written and are in no durable state yet.
#[derive(Debug, Default)]
pub(crate) struct NewImages {
    pub(super) new: BTreeMap<u64, Image>,
    pub(crate) written_bytes: u64,
}

/// Applies committed changes to an image.
pub(super) fn apply_pending(changes: Option<&PendingChanges>, bytes: &mut [u8]) {
    let (words, _) = bytes.as_chunks_mut::<8>();
    for change in changes.into_iter().flat_map(|pending| &pending.changes) {
        let (index, value) = change.index_and_value();
        if let Some(word) = words.get_mut(to_usize(u64::from(index))) {
            *word = value.to_le_bytes();
        }
    }
}
