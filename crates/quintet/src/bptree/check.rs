//! Verification of the durable tree: the pages in the file, not those in the cache.
//!
//! It verifies:
//! - the checksums of all pages;
//! - the order of keys, within nodes and between them;
//! - levels, prefixes and byte counts of the nodes;
//! - long keys and extents;
//! - that each page is reached once, and that the maps mark exactly the reached pages as used.
//!
//! Threads: the caller prevents checkpoints from writing pages in place meanwhile. Writers may go
//! on: they change only the cache.

use std::ops::Range;

use super::{
    bounds::Bounds,
    node::{EXTENT, EXTENT_HEAD_BYTES, ExtentRef, LongKey, MAP, NodeView, SLOT_BYTES, StoredValue},
    page_allocator::{MAP_HEAD_BYTES, is_set},
    page_cache::{PageId, page_bytes::PageWords},
    tree::{DEPTH_MAX, KEY_BYTES_MAX, ROOT, Tree},
};
use crate::{
    Error, Result,
    io::AlignedBuffer,
    util::{
        codec::{crc32c, to_u64, to_usize},
        report::Report,
        sync::AtomicU64,
    },
};

/// A page read from the disk.
struct FilePage(Vec<AtomicU64>);

impl FilePage {
    fn words(&self) -> PageWords<'_> {
        PageWords::new(&self.0)
    }
}

struct TreeChecker<'t, 'r> {
    tree: &'t Tree,
    report: &'r mut Report,
    reached: Vec<u64>,
}

impl Tree {
    /// Verifies the durable tree and reports damage. Fails only if the file cannot be read.
    pub fn check(&self, report: &mut Report) -> Result<()> {
        let durable = self.allocator.durable();
        if durable.is_empty() {
            return Ok(());
        }
        let mut checker = TreeChecker { tree: self, report, reached: vec![0; durable.len()] };
        checker.mark(PageId(0));
        checker.page(PageId(0))?;
        checker.maps(&durable)?;
        checker.node(ROOT, None, &Bounds::default(), 0)?;
        checker.compare(&durable);
        Ok(())
    }
}

impl TreeChecker<'_, '_> {
    fn add(&mut self, page: PageId, what: &str) {
        let cache = self.tree.cache();
        self.report.add(cache.label(), cache.offset(page), format!("page {}: {what}", page.0));
    }

    /// Records that a page was reached. Returns `false` if it was reached before.
    fn mark(&mut self, page: PageId) -> bool {
        let mask = 1 << (page.0 % 64);
        let first = match self.reached.get_mut(to_usize(u64::from(page.0 / 64))) {
            Some(word) if *word & mask == 0 => {
                *word |= mask;
                true
            }
            _ => false,
        };
        if !first {
            self.add(page, "it is reached twice, or is past the file's end");
        }
        first
    }

    /// Reads a page. Reports damage and returns `None` for it.
    fn page(&mut self, page: PageId) -> Result<Option<FilePage>> {
        let cache = self.tree.cache();
        let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
        match cache.read_page(page, &mut buffer) {
            Ok(_) => {}
            Err(Error::Corruption { file, offset, what }) => {
                self.report.add(file, offset, what);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        self.report.checked_bytes += to_u64(buffer.len());
        let words = buffer.as_slice().chunks_exact(8).map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            AtomicU64::new(u64::from_le_bytes(word))
        });
        Ok(Some(FilePage(words.collect())))
    }

    fn maps(&mut self, durable: &[u64]) -> Result<()> {
        let granularity = self.tree.allocator.granularity();
        let per_extent = to_usize(granularity / 64);
        for (extent, bits) in durable.chunks(per_extent).enumerate() {
            let page = self.tree.allocator.map_page(to_u64(extent));
            if !self.mark(page) {
                continue;
            }
            let Some(found) = self.page(page)? else { continue };
            let words = found.words();
            let same = bits
                .iter()
                .enumerate()
                .all(|(index, bits)| words.word(MAP_HEAD_BYTES / 8 + index) == Some(*bits));
            if words.u8(8) != Some(MAP) || !same {
                self.add(page, "its map of pages is not the one in memory");
            }
        }
        Ok(())
    }

    fn compare(&mut self, durable: &[u64]) {
        for page in 0..to_u64(durable.len()) * 64 {
            let (used, reached) = (is_set(durable, page), is_set(&self.reached, page));
            let Ok(number) = u32::try_from(page) else { return };
            match (used, reached) {
                (true, false) => self.add(PageId(number), "it is marked used and leads nowhere"),
                (false, true) => self.add(PageId(number), "it is used and marked free"),
                _ => {}
            }
        }
    }

    fn node(&mut self, page: PageId, level: Option<u8>, bounds: &Bounds, depth: u8) -> Result<()> {
        if !self.mark(page) {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            self.add(page, "the tree is too deep");
            return Ok(());
        }
        let Some(found) = self.page(page)? else { return Ok(()) };
        let Some(view) = NodeView::new(found.words()) else {
            self.add(page, "it is no node");
            return Ok(());
        };
        if level.is_some_and(|level| level != view.level()) || view.is_leaf() != (view.level() == 0)
        {
            self.add(page, "its level is wrong");
        }
        let Some(keys) = self.entries(page, &view, bounds)? else {
            self.add(page, "its entries make no sense");
            return Ok(());
        };
        if view.is_leaf() {
            self.report.checked_entries += to_u64(keys.len());
            return Ok(());
        }
        for index in 0..=keys.len() {
            let Some(child) = view.child(index) else { continue };
            let lower = index.checked_sub(1).and_then(|below| keys.get(below));
            let bounds = Bounds {
                lower: lower.or(bounds.lower.as_ref()).cloned(),
                upper: keys.get(index).or(bounds.upper.as_ref()).cloned(),
            };
            self.node(PageId(child), view.level().checked_sub(1), &bounds, depth + 1)?;
        }
        Ok(())
    }

    /// Verifies the entries of a node and returns their keys; `None` if they make no sense.
    fn entries(
        &mut self,
        page: PageId,
        view: &NodeView<'_>,
        bounds: &Bounds,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let page_bytes = view.words().len();
        let Some(heap) = view.heap_start().filter(|heap| *heap >= view.slots_end()) else {
            return Ok(None);
        };
        let (mut keys, mut ranges): (Vec<Vec<u8>>, Vec<Range<usize>>) = Default::default();
        for index in 0..view.count() {
            let Some(slot) = view.slot(index) else { return Ok(None) };
            let Some(bytes) = view.entry_bytes(&slot) else { return Ok(None) };
            ranges.push(slot.offset..slot.offset + bytes);
            let key = if slot.long {
                let Some(long) = view.long_key(&slot) else { return Ok(None) };
                self.long_key(page, long)?
            } else {
                view.inline_key(&slot)
            };
            let Some(key) = key else { return Ok(None) };
            if view.inline_key(&slot).is_none_or(|known| !key.starts_with(&known)) {
                self.add(page, "a long key is not what the node says");
            }
            if view.is_leaf()
                && let Some(StoredValue::Extent(extent)) = view.stored_value(&slot)
            {
                self.value(page, &extent)?;
            }
            keys.push(key);
        }
        let inside = |key: &Vec<u8>| {
            bounds.lower.as_ref().is_none_or(|lower| lower <= key)
                && bounds.upper.as_ref().is_none_or(|upper| key < upper)
        };
        if !keys.windows(2).all(|pair| pair[0] < pair[1]) || !keys.iter().all(inside) {
            self.add(page, "its keys are out of order");
        }
        if view.prefix().is_none_or(|prefix| !shared(bounds, &prefix)) {
            self.add(page, "its prefix is not that of its bounds");
        }
        if !view.hints_match() || !view.heads_match() {
            self.add(page, "its heads or hints are not those of its keys");
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let overlap = ranges.windows(2).any(|pair| pair[0].end > pair[1].start);
        let used: usize = ranges.iter().map(Range::len).sum();
        let within = ranges.iter().all(|range| range.start >= heap && range.end <= page_bytes);
        if overlap || !within || used + view.dead() + heap != page_bytes {
            self.add(page, "its entries overlap, or its account of bytes is wrong");
        }
        debug_assert_eq!(view.slots_end(), view.slots_start() + view.count() * SLOT_BYTES);
        Ok(Some(keys))
    }

    fn long_key(&mut self, page: PageId, long: LongKey) -> Result<Option<Vec<u8>>> {
        let length = to_usize(u64::from(long.length));
        if length > KEY_BYTES_MAX {
            self.add(page, "a long key is longer than keys can be");
            return Ok(None);
        }
        let (first, count) = self.tree.pages_of_key(long);
        self.cached(first, count, length)
    }

    /// Reads an extent of pages.
    fn cached(&mut self, first: PageId, count: u64, length: usize) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        for step in 0..count {
            let page = self.tree.allocator.page_at(first, step);
            if !self.mark(page) {
                return Ok(None);
            }
            let Some(found) = self.page(page)? else { return Ok(None) };
            let words = found.words();
            if words.u8(8) != Some(EXTENT) {
                self.add(page, "it is no part of an extent");
                return Ok(None);
            }
            let part = (words.len() - EXTENT_HEAD_BYTES).min(length.saturating_sub(bytes.len()));
            bytes.extend(words.copy(EXTENT_HEAD_BYTES, part).unwrap_or_default());
        }
        Ok((bytes.len() == length).then_some(bytes))
    }

    fn value(&mut self, page: PageId, extent: &ExtentRef) -> Result<()> {
        let (first, count) = self.tree.pages_of(extent);
        let length = to_usize(u64::from(extent.length));
        let last = self.tree.allocator.page_at(first, count.saturating_sub(1));
        if first.0 == 0 || u64::from(last.0) >= to_u64(self.reached.len()) * 64 {
            self.add(page, "a value is past the file's end");
            return Ok(());
        }
        if extent.direct {
            let fresh = (0..count).all(|step| self.mark(self.tree.allocator.page_at(first, step)));
            let mut bytes = vec![0; length];
            let sound = match self.tree.read_direct(extent, &mut bytes) {
                Err(error) if !error.is_corruption() => return Err(error),
                sound => sound.unwrap_or(false),
            };
            self.report.checked_bytes += to_u64(length);
            if !sound || !fresh {
                self.add(first, "a value is damaged");
            }
            return Ok(());
        }
        let bytes = self.cached(first, count, length)?;
        if bytes.is_none_or(|bytes| crc32c(&bytes) != extent.checksum) {
            self.add(first, "a value is damaged");
        }
        Ok(())
    }
}

/// Whether every key between the bounds begins with the prefix.
fn shared(bounds: &Bounds, prefix: &[u8]) -> bool {
    prefix.is_empty()
        || [&bounds.lower, &bounds.upper]
            .into_iter()
            .all(|bound| bound.as_ref().is_some_and(|bound| bound.starts_with(prefix)))
}
