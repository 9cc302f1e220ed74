//! A planned read of an entry from the disk, and the entry that was read, with the bytes around it.
//!
//! Invariant: [`ColdEntry::entry`] returns only bytes that its checksum verifies.

use super::{entry::StoredEntry, files::FileRange, pack::PackedBlock};
use crate::{io::AlignedBuffer, util::codec::to_u64};

/// A planned read of an entry.
#[derive(Debug)]
pub(super) struct ColdRead {
    pub(super) file_range: FileRange,
    pub(super) serial: u64,
    pub(super) unit: u64,
    /// Offset in the file range, and number of bytes.
    pub(super) from: u64,
    pub(super) bytes: usize,
    /// The packed block to read, if the entry is in one.
    pub(super) block: Option<PackedBlock>,
}

impl ColdRead {
    /// Returns the blocks to read: their file offset, the index of the data in them, and their
    /// size.
    pub(super) fn span(&self) -> (u64, usize, usize) {
        self.file_range.span(self.from, self.bytes)
    }
}

/// An entry read from the disk.
#[derive(Debug)]
pub(super) struct ColdEntry {
    bytes: ColdBytes,
    serial: u64,
    unit: usize,
}

/// The bytes read, and the index of the entry in them.
#[derive(Debug)]
pub(super) enum ColdBytes {
    Plain(AlignedBuffer, usize),
    Unpacked(Vec<u8>, usize),
}

impl ColdEntry {
    /// Makes the entry of a chunk with this serial number that begins at a unit of it.
    pub(super) fn new(bytes: ColdBytes, serial: u64, unit: usize) -> Self {
        Self { bytes, serial, unit }
    }

    fn bytes(&self) -> &[u8] {
        let (bytes, skip) = match &self.bytes {
            ColdBytes::Plain(buffer, skip) => (buffer.as_slice(), *skip),
            ColdBytes::Unpacked(bytes, skip) => (bytes.as_slice(), *skip),
        };
        bytes.get(skip..).unwrap_or(&[])
    }

    /// Returns the memory that the entry's bytes take, with those around them.
    pub(super) fn memory_bytes(&self) -> u64 {
        to_u64(match &self.bytes {
            ColdBytes::Plain(buffer, _) => buffer.len(),
            ColdBytes::Unpacked(bytes, _) => bytes.capacity(),
        })
    }

    /// Returns the entry; `None` if its checksum does not match.
    pub(super) fn entry(&self) -> Option<StoredEntry<'_>> {
        StoredEntry::verify(self.bytes(), self.serial, self.unit)
    }
}
