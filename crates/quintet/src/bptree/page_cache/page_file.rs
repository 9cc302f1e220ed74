//! Reads of pages from their file, bypassing the cache, and their verification.
//!
//! A read applies the overlay's changes to what the file has. The cache and the checker both read
//! through here, so they verify the same.
//!
//! Invariants: bytes are a page only once checksum and page number match.

use std::io;

use super::{cache::PageCache, page_id::PageId};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Stopwatch, write_all_at},
    util::{
        codec::{Decoder, crc32c_append, to_u64},
        mutant::mutant,
    },
};

impl PageCache {
    /// Returns the file offset of a page.
    pub fn offset(&self, page: PageId) -> u64 {
        u64::from(page.0) * to_u64(self.options.page_bytes)
    }

    /// Reads a page from disk, bypassing the cache, and verifies it. Returns the units that the
    /// journal has changed, if any.
    pub fn read_page(&self, page: PageId, buffer: &mut AlignedBuffer) -> Result<Option<u64>> {
        let offset = self.offset(page);
        // The journal may have a page that was never in the file.
        let count = match self.file() {
            Err(_) if self.overlay.has(page) => 0,
            _ => self.read_file(offset, buffer.as_mut_slice())?,
        };
        let location = (self.label.as_str(), offset);
        let units = self.overlay.patch(page, buffer.as_mut_slice(), location)?;
        let damage = |what: String| Error::corruption(self.label.clone(), offset, what);
        if units.is_none() && count < self.options.page_bytes {
            return Err(damage(format!("the file ends within page {}", page.0)));
        }
        verify(self.options.salt, page, buffer.as_slice()).map_err(damage)?;
        Ok(units)
    }

    /// Reads whole pages of a direct extent.
    pub fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let count = self.read_file(offset, out)?;
        if count < out.len() {
            return Err(Error::corruption(
                self.label.clone(),
                offset,
                "the file ends within a value",
            ));
        }
        Ok(())
    }

    /// Reads whole blocks and returns the number of bytes read: fewer only at the end of the file.
    pub fn read_file(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let watch = Stopwatch::start();
        let outcome = self.read_blocks(offset, out);
        watch.stop(|counters, time| {
            counters.file_reads += 1;
            counters.file_read_bytes += outcome.as_ref().map_or(0, |bytes| to_u64(*bytes));
            counters.file_read_time += time;
        });
        outcome
    }

    fn read_blocks(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let file = self.file()?;
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + to_u64(done)) {
                Ok(count) => {
                    done += count;
                    // With direct I/O a read cannot continue after a file that ends within a block.
                    if count == 0 || !to_u64(count).is_multiple_of(BLOCK_BYTES) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(format!("read {}", self.label), error)),
            }
        }
        Ok(done)
    }

    /// Writes whole pages of a direct extent. They are durable once the file is synced.
    pub fn write_raw(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&**self.file()?, bytes, offset)
            .map_err(|error| Error::io(format!("write {}", self.label), error))
    }
}

/// Returns the checksum of a page: of all bytes after the checksum.
pub fn checksum(salt: u32, page: &[u8]) -> u32 {
    crc32c_append(salt, page.get(4..).unwrap_or(&[]))
}

/// Verifies that these bytes are the page; the error says what is wrong.
pub(super) fn verify(salt: u32, page: PageId, bytes: &[u8]) -> Result<(), String> {
    let mut decoder = Decoder::new(bytes);
    let (found, number) = (decoder.u32(), decoder.u32());
    let expected = checksum(salt, bytes);
    let is_intact = mutant!(PageSkipsChecksum: true, else found == Some(expected));
    if !is_intact {
        let found = found.unwrap_or_default();
        return Err(format!("page checksum {expected:08x}, stored {found:08x}"));
    }
    if number != Some(page.0) {
        let number = number.unwrap_or_default();
        return Err(format!("page {} is stored as page {number}", page.0));
    }
    Ok(())
}
