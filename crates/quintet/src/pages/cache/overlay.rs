//! What the journal holds of pages that the file has in an older state.
//!
//! What: the changes of each page, in order, as they were read from the journal when the table was
//! opened. Who reads such a page from the disk gets it with them applied.
//! Why: applying them all when a table is opened would read and write every page that was changed
//! since the last placing.
//!
//! Invariants: the file's page with the changes applied is a whole page, checksum included; once a
//! page's changes are in its frame they are here no more.

use std::collections::HashMap;

use super::{PageId, words::UNITS};
use crate::{
    budget::Budget,
    codec::{Decoder, low_u32, put_u32, to_u64, to_usize},
    sync::{AtomicBool, Mutex, Ordering, lock},
};

/// The changes of a page: offset (4), length (4), bytes, one after the other.
#[derive(Debug, Default)]
pub struct Patches(Vec<u8>);

impl Patches {
    /// Adds a change, which lies within the page.
    pub fn add(&mut self, offset: usize, bytes: &[u8]) {
        put_u32(&mut self.0, low_u32(to_u64(offset)));
        put_u32(&mut self.0, low_u32(to_u64(bytes.len())));
        self.0.extend_from_slice(bytes);
    }

    fn each(&self, mut each: impl FnMut(usize, &[u8])) {
        let mut rest = Decoder::new(&self.0);
        while let (Some(offset), Some(length)) = (rest.u32(), rest.u32()) {
            let bytes = rest.take(to_usize(u64::from(length))).unwrap_or(&[]);
            each(to_usize(u64::from(offset)), bytes);
        }
    }

    /// The units that change.
    pub fn units(&self, page_bytes: usize) -> u64 {
        let unit = page_bytes / UNITS;
        let mut units = 0;
        self.each(|offset, bytes| {
            for index in offset / unit..(offset + bytes.len()).div_ceil(unit) {
                units |= 1_u64.checked_shl(low_u32(to_u64(index))).unwrap_or(0);
            }
        });
        units
    }

    fn bytes(&self) -> u64 {
        to_u64(self.0.len())
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// So that a table without an overlay, which soon is every one, pays nothing.
    filled: AtomicBool,
    /// Changes stay when their page is read.
    kept: AtomicBool,
    pages: Mutex<HashMap<PageId, Patches>>,
}

impl Overlay {
    /// Replaces all of it.
    pub(super) fn set(&self, patches: HashMap<PageId, Patches>, keep: bool, budget: &Budget) {
        self.kept.store(keep, Ordering::Relaxed);
        let mut pages = lock(&self.pages);
        budget.give(pages.values().map(Patches::bytes).sum());
        budget.take_anyway(patches.values().map(Patches::bytes).sum());
        self.filled.store(!patches.is_empty(), Ordering::Release);
        *pages = patches;
    }

    /// At most `count` pages that are here.
    pub(super) fn pages(&self, count: usize) -> Vec<PageId> {
        if !self.filled.load(Ordering::Acquire) {
            return Vec::new();
        }
        lock(&self.pages).keys().take(count).copied().collect()
    }

    /// Whether there are changes of a page.
    pub(super) fn has(&self, page: PageId) -> bool {
        self.filled.load(Ordering::Acquire) && lock(&self.pages).contains_key(&page)
    }

    /// Applies a page's changes; `false`: there are none.
    pub(super) fn patch(&self, page: PageId, image: &mut [u8]) -> bool {
        if !self.filled.load(Ordering::Acquire) {
            return false;
        }
        let pages = lock(&self.pages);
        let Some(patches) = pages.get(&page) else { return false };
        patches.each(|offset, bytes| {
            if let Some(target) = image.get_mut(offset..offset + bytes.len()) {
                target.copy_from_slice(bytes);
            }
        });
        true
    }

    /// Takes a page's changes out, after `noted` was told of them.
    pub(super) fn take(&self, page: PageId, budget: &Budget, noted: impl FnOnce(&Patches)) {
        if !self.filled.load(Ordering::Acquire) || self.kept.load(Ordering::Relaxed) {
            return;
        }
        let mut pages = lock(&self.pages);
        if let Some(patches) = pages.get(&page) {
            noted(patches);
            budget.give(patches.bytes());
        }
        pages.remove(&page);
        self.filled.store(!pages.is_empty(), Ordering::Release);
    }
}
