//! Extents: runs of pages for long keys and large values.
//!
//! How: long keys, and values of up to eight pages, are in pages of the cache. Larger values are
//! direct: they are written to and read from the file in one piece (except for maps of pages), and
//! bypass the cache. A database opened read-only writes no direct extent.
//!
//! A page of a cached extent (kind 3): the header of every page, then from byte 16 on its part of
//! the bytes. A direct extent is the value's bytes and nothing else: the leaf that refers to it has
//! its length and checksum.
//!
//! Invariants: an extent never changes; it is written before a node refers to it. A direct extent
//! is in pages that recovery cannot need.
//!
//! Threads: a reader holds no latch. It reads the extent and then verifies that the node that
//! refers to it is unchanged. A direct extent is also verified by its checksum.

use std::ops::Range;

use super::{
    node::{EXTENT, EXTENT_HEAD_BYTES, ExtentRef, LongKey},
    page_cache::PageId,
    tree::{Attempt, KEY_BYTES_MAX, PageReader, Stop, Tree},
};
use crate::{
    Result,
    io::AlignedBuffer,
    util::codec::{crc32c, low_u32, to_u64, to_usize},
};

/// Length of the longest cached extent of a value, in pages.
const CACHED_PAGES_MAX: usize = 8;
/// Size of one transfer of a direct extent, in bytes.
const PIECE_BYTES: usize = 1 << 20;

impl Tree {
    /// Returns the number of data bytes in a page of a cached extent.
    const fn part_bytes(&self) -> usize {
        self.shape.page_bytes - EXTENT_HEAD_BYTES
    }

    /// Whether a new value of this length bypasses the cache.
    pub fn is_direct(&self, length: usize) -> bool {
        self.writes_directly && length > CACHED_PAGES_MAX * self.part_bytes()
    }

    /// Returns the number of pages of an extent for a key or a value.
    pub fn extent_pages(&self, length: usize, direct: bool) -> u64 {
        let per_page = if direct { self.shape.page_bytes } else { self.part_bytes() };
        to_u64(length.div_ceil(per_page))
    }

    /// Writes a key or a value to a new extent in the cache.
    pub(super) fn write_cached(&self, transfer_pieces: [&[u8]; 2]) -> Result<PageId> {
        let length = transfer_pieces[0].len() + transfer_pieces[1].len();
        let count = self.extent_pages(length, false);
        let first = self.allocator.allocate_run(count, false);
        let mut bytes = transfer_pieces[0].iter().chain(transfer_pieces[1]).copied();
        for step in 0..count {
            let guard = self.cache.create(self.allocator.page_at(first, step))?;
            let edit = guard.edit();
            let mut head = [0; 8];
            head[0] = EXTENT;
            edit.put_bytes(8, &head);
            let part: Vec<u8> = bytes.by_ref().take(self.part_bytes()).collect();
            edit.put_bytes(EXTENT_HEAD_BYTES, &part);
        }
        Ok(first)
    }

    /// Writes a value to a new extent.
    pub(super) fn write_value(&self, transfer_pieces: [&[u8]; 2]) -> Result<ExtentRef> {
        let length = transfer_pieces[0].len() + transfer_pieces[1].len();
        let checksum =
            crate::util::codec::crc32c_append(crc32c(transfer_pieces[0]), transfer_pieces[1]);
        // A logged value must not be lost: if the direct write fails, the value goes to the cache
        // and the next checkpoint writes it.
        let written = if self.is_direct(length) {
            self.try_write_direct(length, transfer_pieces)
        } else {
            None
        };
        let direct = written.is_some();
        let page = written.map_or_else(|| self.write_cached(transfer_pieces), Ok)?;
        Ok(ExtentRef { length: low_u32(to_u64(length)), page: page.0, checksum, direct })
    }

    /// Writes a value to a new direct extent. Returns `None` if the write failed.
    fn try_write_direct(&self, length: usize, transfer_pieces: [&[u8]; 2]) -> Option<PageId> {
        let count = self.extent_pages(length, true);
        let first = self.allocator.allocate_run(count, true);
        // Stale cached content of these pages must not be written over the value.
        (0..count).for_each(|step| self.cache.discard(self.allocator.page_at(first, step)));
        let written = self.write_direct(first, transfer_pieces);
        if written.is_err() {
            self.allocator.free(first, count);
        }
        written.is_ok().then_some(first)
    }

    /// Calls `transfer` for each piece of a direct extent of this length: its file offset, and its
    /// range of the value's bytes.
    fn transfer_pieces(
        &self,
        first: PageId,
        length: usize,
        mut transfer: impl FnMut(u64, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let page_bytes = self.shape.page_bytes;
        let (mut done, mut step) = (0, 0);
        while done < length {
            let page = self.allocator.page_at(first, step);
            let pages = self.allocator.contiguous(page).min(to_u64(PIECE_BYTES / page_bytes));
            let count = (to_usize(pages) * page_bytes).min(length - done);
            transfer(self.cache.offset(page), done..done + count)?;
            done += count;
            step += pages;
        }
        Ok(())
    }

    /// Returns a buffer for the pieces of a value of this length.
    fn piece_buffer(&self, length: usize) -> AlignedBuffer {
        AlignedBuffer::zeroed(PIECE_BYTES.min(length.next_multiple_of(self.shape.page_bytes)))
    }

    pub(super) fn write_direct(&self, first: PageId, [head, body]: [&[u8]; 2]) -> Result<()> {
        let mut buffer = self.piece_buffer(head.len() + body.len());
        self.transfer_pieces(first, head.len() + body.len(), |offset, range| {
            let whole = range.len().next_multiple_of(self.shape.page_bytes);
            let target = buffer.as_mut_slice().get_mut(..whole).unwrap_or(&mut []);
            let from_head = head.get(range.start..range.end.min(head.len())).unwrap_or(&[]);
            let start = range.start.saturating_sub(head.len());
            let from_body = body.get(start..range.end.saturating_sub(head.len())).unwrap_or(&[]);
            let (front, rest) = target.split_at_mut(from_head.len());
            let (middle, rest) = rest.split_at_mut(from_body.len());
            front.copy_from_slice(from_head);
            middle.copy_from_slice(from_body);
            rest.fill(0);
            self.cache.write_raw(offset, target)
        })
    }

    /// Reads a cached extent that a node refers to.
    fn read_cached<G: PageReader>(&self, guard: &G, first: u32, out: &mut [u8]) -> Attempt<()> {
        // A page that has changed yields an arbitrary page number.
        if !guard.is_sound() {
            return Err(Stop::Restart);
        }
        let first = PageId(first);
        for (step, part) in out.chunks_mut(self.part_bytes()).enumerate() {
            let page = self.allocator.page_at(first, to_u64(step));
            let read = self.cache.read(page);
            if !guard.is_sound() {
                return Err(Stop::Restart);
            }
            let read = read?;
            let words = read.words();
            let sound = words.u8(8) == Some(EXTENT);
            let copied = words.copy_to(EXTENT_HEAD_BYTES, part);
            if !read.is_unchanged() || !guard.is_sound() {
                return Err(Stop::Restart);
            }
            if !sound || copied.is_none() {
                return Err(self.damage(page, "it is no part of an extent"));
            }
        }
        Ok(())
    }

    /// Reads a whole long key.
    pub(super) fn fetch<G: PageReader>(&self, guard: &G, long: LongKey) -> Attempt<Vec<u8>> {
        if !guard.is_sound() {
            return Err(Stop::Restart);
        }
        let mut key = vec![0; to_usize(u64::from(long.length)).min(KEY_BYTES_MAX)];
        self.read_cached(guard, long.page, &mut key)?;
        Ok(key)
    }

    /// Reads a value from its extent.
    pub(super) fn read_value<G: PageReader>(
        &self,
        guard: &G,
        extent: &ExtentRef,
        out: &mut [u8],
    ) -> Attempt<()> {
        if !extent.direct {
            return self.read_cached(guard, extent.page, out);
        }
        if !guard.is_sound() {
            return Err(Stop::Restart);
        }
        let read = self.read_direct(extent, out);
        // The pages may have been reused; the checksum tells.
        match read {
            Ok(true) => Ok(()),
            _ if !guard.is_sound() => Err(Stop::Restart),
            Ok(false) => Err(self.damage(PageId(extent.page), "the value's checksum is wrong")),
            Err(error) => Err(Stop::Failed(error)),
        }
    }

    /// Reads a direct extent. Returns `false` if the checksum does not match.
    pub(super) fn read_direct(&self, extent: &ExtentRef, out: &mut [u8]) -> Result<bool> {
        let mut buffer = self.piece_buffer(out.len());
        self.transfer_pieces(PageId(extent.page), out.len(), |offset, range| {
            let whole = range.len().next_multiple_of(self.shape.page_bytes);
            let source = buffer.as_mut_slice().get_mut(..whole).unwrap_or(&mut []);
            self.cache.read_raw(offset, source)?;
            let (count, source) = (range.len(), &*source);
            if let (Some(target), Some(source)) = (out.get_mut(range), source.get(..count)) {
                target.copy_from_slice(source);
            }
            Ok(())
        })?;
        Ok(crc32c(out) == extent.checksum)
    }

    /// Returns the pages of a value's extent: first page and count.
    pub(super) fn pages_of(&self, extent: &ExtentRef) -> (PageId, u64) {
        let length = to_usize(u64::from(extent.length));
        (PageId(extent.page), self.extent_pages(length, extent.direct))
    }

    /// Returns the pages of a long key's extent: first page and count.
    pub(super) fn pages_of_key(&self, long: LongKey) -> (PageId, u64) {
        (PageId(long.page), self.extent_pages(to_usize(u64::from(long.length)), false))
    }
}
