//! Pages in their file: where they are, and whether what was read is one.
//!
//! What: reads round the cache, with the journal's newest changes over what the file has.
//! Why: whoever needs a page without a frame, and the cache itself, take the same way and verify
//! the same.
//!
//! Invariants: nothing counts as a page before its checksum and its number match.

use std::io;

use super::{PageCache, PageId};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, write_all_at},
    util::{
        codec::{Decoder, crc32c_append, to_u64},
        mutant::{self, Bug},
    },
};

impl PageCache {
    /// Where a page begins in the file.
    pub fn offset(&self, page: PageId) -> u64 {
        u64::from(page.0) * to_u64(self.options.page_bytes)
    }

    /// Reads a page from the disk, round the cache, and verifies it. Says which of its units the
    /// journal has, if any.
    pub fn read_page(&self, page: PageId, buffer: &mut AlignedBuffer) -> Result<Option<u64>> {
        let offset = self.offset(page);
        // What the journal has may be of a page that never was in the file.
        let count = match self.file() {
            Err(_) if self.overlay.has(page) => 0,
            _ => self.read_file(offset, buffer.as_mut_slice())?,
        };
        let place = (self.label.as_str(), offset);
        let units = self.overlay.patch(page, buffer.as_mut_slice(), place)?;
        let damage = |what: String| Error::corruption(self.label.clone(), offset, what);
        if units.is_none() && count < self.options.page_bytes {
            return Err(damage(format!("the file ends within page {}", page.0)));
        }
        verify(self.options.salt, page, buffer.as_slice()).map_err(damage)?;
        Ok(units)
    }

    /// Reads whole pages that are no pages of the cache.
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

    /// Reads whole blocks, fewer only at the end of the file, and returns how many bytes came.
    pub fn read_file(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let file = self.file()?;
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + to_u64(done)) {
                Ok(count) => {
                    done += count;
                    // A file that ends within a block cannot be read on with direct I/O.
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

    /// Writes whole pages that are no pages of the cache. Not durable until the file is synced.
    pub fn write_raw(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&**self.file()?, bytes, offset)
            .map_err(|error| Error::io(format!("write {}", self.label), error))
    }
}

/// The checksum of a page: of everything behind it.
pub fn checksum(salt: u32, page: &[u8]) -> u32 {
    crc32c_append(salt, page.get(4..).unwrap_or(&[]))
}

/// Whether these bytes are a page; what is wrong.
pub(super) fn verify(salt: u32, page: PageId, bytes: &[u8]) -> Result<(), String> {
    let mut decoder = Decoder::new(bytes);
    let (found, number) = (decoder.u32(), decoder.u32());
    let expected = checksum(salt, bytes);
    if found != Some(expected) && !mutant::active(Bug::PageSkipsChecksum) {
        let found = found.unwrap_or_default();
        return Err(format!("page checksum {expected:08x}, stored {found:08x}"));
    }
    if number != Some(page.0) {
        let number = number.unwrap_or_default();
        return Err(format!("page {} is stored as page {number}", page.0));
    }
    Ok(())
}
