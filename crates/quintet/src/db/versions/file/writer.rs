//! Writes a file of versions. Dropping the writer before [`VersionFileWriter::finish`] removes the
//! file.
//!
//! Threads: a writer belongs to one thread.

use std::{mem, sync::Arc};

use super::{
    block::{self, BLOCK_BYTES, VersionEntry},
    fences::BlockFences,
    file_name::{FileName, VERSIONS_NAME},
    filter::VersionFilter,
    reader::{FileParts, VersionFile},
};
use crate::{
    Error, Result,
    io::{File, write_all_at},
    lsm::block_cache::BlockCache,
    util::{
        budget::{Budget, Reservation},
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Maximum bytes of a write, which common disks take at full speed, and minimum.
const WRITE_BYTES_MAX: u64 = 512 << 10;
const WRITE_BYTES_MIN: u64 = 32 << 10;
/// A write has at most the memory budget divided by this.
const WRITE_SHARE: u64 = 128;

/// The writer. See the module head.
#[derive(Debug)]
pub(in crate::db::versions) struct VersionFileWriter {
    name: FileName,
    file: Arc<dyn File>,
    number: u64,
    /// Bytes of a write.
    write_bytes: usize,
    /// Bytes that are not written yet, and where they go.
    buffer: Vec<u8>,
    written: u64,
    /// Where the current block begins in the buffer, if it has an entry.
    block: Option<usize>,
    last_key: Vec<u8>,
    /// The highest LSN.
    last: Lsn,
    versions: u64,
    fences: BlockFences,
    filter: VersionFilter,
    cache: Arc<BlockCache>,
    budget: Arc<Budget>,
    /// The memory of the buffer and the filter.
    _reserved: Reservation,
}

impl VersionFileWriter {
    pub(super) fn new(
        (name, file, number): (FileName, Arc<dyn File>, u64),
        versions: u64,
        (cache, budget): (&Arc<BlockCache>, &Arc<Budget>),
    ) -> Self {
        let filter = VersionFilter::new(versions);
        let write_bytes = (budget.limit() / WRITE_SHARE).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX);
        let reserved = budget.reserve_transient(write_bytes + filter.memory_bytes());
        Self {
            name,
            file,
            number,
            write_bytes: to_usize(write_bytes),
            buffer: Vec::new(),
            written: 0,
            block: None,
            last_key: Vec::new(),
            last: Lsn(0),
            versions: 0,
            fences: BlockFences::default(),
            filter,
            cache: Arc::clone(cache),
            budget: Arc::clone(budget),
            _reserved: reserved,
        }
    }

    /// Adds a version. Keys ascend, and so do the LSNs of one key. `half` is the high half of the
    /// key's hash.
    pub(in crate::db::versions) fn add(
        &mut self,
        (key, half): (&[u8], u32),
        lsn: Lsn,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let start = self.block.unwrap_or_else(|| {
            let start = self.buffer.len();
            self.fences.push(self.written + to_u64(start), &self.last_key, key);
            block::begin(&mut self.buffer);
            self.block = Some(start);
            start
        });
        VersionEntry { key, half, lsn, value }.encode(&mut self.buffer);
        self.last = self.last.max(lsn);
        self.versions += 1;
        if self.versions == 1 || *key != *self.last_key {
            self.filter.add(half);
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        if self.buffer.len() - start >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<()> {
        let Some(start) = self.block.take() else { return Ok(()) };
        block::finish(&mut self.buffer, start);
        if self.buffer.len() >= self.write_bytes { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let written = write_all_at(&*self.file, &self.buffer, self.written);
        let written = mutant!(VersionFileIgnoresErrors: written.or(Ok(())), else written);
        written.map_err(|error| {
            Error::io(format!("write {VERSIONS_NAME}/{}", self.name.name), error)
        })?;
        self.written += to_u64(self.buffer.len());
        self.buffer.clear();
        Ok(())
    }

    /// Ends the file, which is not synced. Returns `None` if it has no versions.
    pub(in crate::db::versions) fn finish(mut self) -> Result<Option<VersionFile>> {
        self.end_block()?;
        if self.versions == 0 {
            return Ok(None);
        }
        self.write()?;
        self.fences.finish(self.written);
        Ok(Some(VersionFile::new(FileParts {
            name: self.name,
            file: self.file,
            number: self.number,
            fences: mem::take(&mut self.fences),
            filter: self.filter,
            last: self.last,
            versions: self.versions,
            bytes: self.written,
            cache: self.cache,
            budget: self.budget,
        })))
    }
}
