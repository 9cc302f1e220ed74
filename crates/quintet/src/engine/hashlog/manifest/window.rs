//! A read buffer over a manifest: holds a window of the file.
//!
//! Opening uses direct I/O here. After a failed sync the page cache may show data that the disk
//! lacks, and the log is pruned because the manifest's checkpoints exist. (Hints may come from the
//! page cache: they can be recreated.)

use std::{io, sync::Arc};

use crate::{
    io::{AlignedBuffer, BLOCK_BYTES, File},
    util::codec::{to_u64, to_usize},
};

/// Minimum size of a window in bytes. The records of most checkpoints are shorter.
const WINDOW_BYTES_MIN: usize = 8 << 10;
/// Maximum size of a window in bytes. A rewritten manifest is one long checkpoint.
const WINDOW_BYTES_MAX: usize = 256 << 10;

/// The buffer. See the module documentation.
#[derive(Debug)]
pub(in crate::engine::hashlog) struct Window {
    file: Arc<dyn File>,
    start: u64,
    buffer: AlignedBuffer,
    filled: usize,
}

impl Window {
    pub(in crate::engine::hashlog) fn new(file: Arc<dyn File>) -> Self {
        Self { file, start: 0, buffer: AlignedBuffer::zeroed(0), filled: 0 }
    }

    /// Returns `size` bytes at `offset`, or fewer at the end of the file.
    pub(in crate::engine::hashlog) fn get(
        &mut self,
        offset: u64,
        size: usize,
    ) -> io::Result<&[u8]> {
        let wanted = offset + to_u64(size);
        if offset < self.start || wanted > self.start + to_u64(self.filled) {
            self.fill(offset, size)?;
        }
        let from = to_usize(offset - self.start).min(self.filled);
        let bytes = self.buffer.as_slice().get(from..self.filled).unwrap_or(&[]);
        Ok(bytes.get(..size).unwrap_or(bytes))
    }

    fn fill(&mut self, offset: u64, size: usize) -> io::Result<()> {
        let goes_on = offset >= self.start && offset <= self.start + to_u64(self.filled);
        let bytes = if goes_on { self.buffer.len() * 4 } else { 0 };
        let start = offset & !(BLOCK_BYTES - 1);
        let bytes = bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        let bytes = bytes.max(to_usize(offset - start) + size);
        let mut buffer = AlignedBuffer::zeroed(bytes.next_multiple_of(to_usize(BLOCK_BYTES)));
        let mut filled = 0;
        while let Some(rest) =
            buffer.as_mut_slice().get_mut(filled..).filter(|rest| !rest.is_empty())
        {
            let count = self.file.read_at(rest, start + to_u64(filled))?;
            filled += count;
            // A read is short at the end of the file. With direct I/O the rest would not be
            // aligned.
            if count == 0 || !to_u64(count).is_multiple_of(BLOCK_BYTES) {
                break;
            }
        }
        *self = Self { file: Arc::clone(&self.file), start, buffer, filled };
        Ok(())
    }
}
