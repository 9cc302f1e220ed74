//! A file of the journal: appending groups, and reading it forwards.

#![deny(clippy::indexing_slicing)]

use std::{io, sync::Arc};

use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, read_up_to, write_all_at},
    util::{
        codec::{round_up, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Prefix of the files' names. The file's number follows as eight hexadecimal digits.
pub(super) const PREFIX: &str = "redo-";
/// Bytes of a write or read.
const CHUNK_BYTES: usize = 1 << 20;

/// Returns the name of file `number`.
pub(super) fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:08x}")
}

/// Returns the number in a file's name; `None` for the name of another file.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()?;
    (name_of(number) == name).then_some(number)
}

/// A file of the journal.
#[derive(Debug)]
pub(super) struct JournalFile {
    pub(super) name: String,
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    /// Offset of the next group.
    pub(super) end: u64,
    /// Preallocated size in bytes.
    pub(super) size: u64,
    /// Sequence of the last group in the file; 0: none.
    pub(super) last: u64,
    /// The file takes no more groups.
    pub(super) is_closed: bool,
}

impl JournalFile {
    /// Appends a group and syncs it. If the file is too small, preallocates it to `size` first.
    pub(super) fn append(&mut self, bytes: &[u8], size: u64) -> io::Result<()> {
        let space = round_up(to_u64(bytes.len()), BLOCK_BYTES);
        let end = self.end + space;
        if end > self.size {
            self.size = allocate(&*self.file, size, end)?;
            self.file.sync_all()?;
        }
        let mut offset = self.end;
        let mut buffer = AlignedBuffer::zeroed(CHUNK_BYTES.min(to_usize(space)));
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let padded = to_usize(round_up(to_u64(chunk.len()), BLOCK_BYTES));
            let target = buffer.as_mut_slice().get_mut(..padded).unwrap_or(&mut []);
            let (front, back) = target.split_at_mut(chunk.len());
            front.copy_from_slice(chunk);
            back.fill(0);
            write_all_at(&*self.file, target, offset)?;
            offset += to_u64(padded);
        }
        mutant!(RedoSkipsSync: Ok(()), else self.file.sync_data())?;
        self.end = end;
        Ok(())
    }

    /// Gives back the space behind the last group.
    pub(super) fn shrink(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.size = self.end;
        Ok(())
    }
}

/// Preallocates a file to `size` bytes, or on a disk without that space to `end`. Returns which.
pub(super) fn allocate(file: &dyn File, size: u64, end: u64) -> io::Result<u64> {
    match file.allocate(size) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull && end < size => {
            file.allocate(end).map(|()| end)
        }
        allocated => allocated.map(|()| size),
    }
}

/// Reads a file forwards in large chunks.
pub(super) struct ForwardReader<'a> {
    file: &'a dyn File,
    pub(super) label: &'a str,
    size: u64,
    /// Bytes from `start` on that were read and not passed yet.
    buffered: Vec<u8>,
    start: u64,
}

impl<'a> ForwardReader<'a> {
    /// Returns a reader of the first `size` bytes of `file`. Messages call it `label`.
    pub(super) fn new(file: &'a dyn File, label: &'a str, size: u64) -> Self {
        Self { file, label, size, buffered: Vec::new(), start: 0 }
    }

    /// Returns `length` bytes at `offset`, which must not be below the offset of an earlier call.
    /// `None` past the end of the file.
    pub(super) fn get(&mut self, offset: u64, length: u64) -> Result<Option<&[u8]>> {
        let end = offset.saturating_add(length);
        if end > self.size {
            return Ok(None);
        }
        if offset > self.start {
            let passed = to_usize(offset - self.start).min(self.buffered.len());
            // Reads are whole blocks, so the buffer starts at a block.
            self.buffered.drain(..passed);
            self.start =
                if self.buffered.is_empty() { offset } else { self.start + to_u64(passed) };
        }
        while self.start + to_u64(self.buffered.len()) < end {
            let at = self.start + to_u64(self.buffered.len());
            let left = to_usize(self.size.saturating_sub(at));
            let mut buffer = AlignedBuffer::zeroed(CHUNK_BYTES.min(left));
            let count = read_up_to(self.file, buffer.as_mut_slice(), at)
                .map_err(|error| Error::io(format!("read {}", self.label), error))?;
            if count == 0 {
                return Ok(None);
            }
            self.buffered.extend_from_slice(buffer.as_slice().get(..count).unwrap_or(&[]));
        }
        Ok(self.buffered.get(to_usize(offset - self.start)..to_usize(end - self.start)))
    }
}
