//! Reads all versions of a file in order, for merges. Reads many blocks at once, past the cache.

use super::{
    block::{self, VersionEntry},
    reader::VersionFile,
};
use crate::{
    Result,
    contract::Value,
    db::versions::cursor::{ReplacedValue, VersionCursor},
    util::codec::{Decoder, Lsn, to_u64, to_usize},
};

/// Bytes of a read.
const READ_BYTES: u64 = 256 << 10;

/// A cursor at a key of a file.
#[derive(Debug)]
struct FileCursor<'a> {
    file: &'a VersionFile,
    /// The blocks that were read, and the file offset of the first.
    bytes: Vec<u8>,
    offset: u64,
    /// The next block, and the end of those that were read.
    next_block: usize,
    read_end: usize,
    /// The entries of the current block that were not taken, in `bytes`.
    rest: std::ops::Range<usize>,
    /// The key of the next entry, if there is one.
    key: Option<Vec<u8>>,
}

impl VersionFile {
    /// Returns a cursor at the first key.
    pub(in crate::db::versions) fn cursor(&self) -> Result<Box<dyn VersionCursor + '_>> {
        Ok(Box::new(FileCursor::new(self)?))
    }
}

impl<'a> FileCursor<'a> {
    fn new(file: &'a VersionFile) -> Result<Self> {
        let mut cursor = Self {
            file,
            bytes: Vec::new(),
            offset: 0,
            next_block: 0,
            read_end: 0,
            rest: 0..0,
            key: Some(Vec::new()),
        };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Makes the next entry the current one.
    fn settle(&mut self) -> Result<()> {
        while self.rest.is_empty() {
            if self.next_block >= self.file.blocks() {
                self.key = None;
                return Ok(());
            }
            self.next_block()?;
        }
        let mut decoder = Decoder::new(self.bytes.get(self.rest.clone()).unwrap_or(&[]));
        let entry = VersionEntry::decode(&mut decoder);
        let entry = entry.ok_or_else(|| self.file.damage(self.offset))?;
        let key = self.key.get_or_insert_default();
        if *key != entry.key {
            key.clear();
            key.extend_from_slice(entry.key);
        }
        Ok(())
    }

    /// Makes the entries of the next block current.
    fn next_block(&mut self) -> Result<()> {
        if self.next_block == self.read_end {
            let start = self.file.span(self.next_block..self.next_block).start;
            self.read_end = self.next_block + 1;
            while self.read_end < self.file.blocks()
                && self.file.span(self.next_block..self.read_end + 1).end - start <= READ_BYTES
            {
                self.read_end += 1;
            }
            let span = self.file.span(self.next_block..self.read_end);
            self.offset = span.start;
            self.file.read(span, &mut self.bytes)?;
        }
        let span = self.file.span(self.next_block..self.next_block + 1);
        let (start, end) = (to_usize(span.start - self.offset), to_usize(span.end - self.offset));
        let block = self.bytes.get(start..end).unwrap_or(&[]);
        self.file.verify(block, span.start)?;
        self.rest = end - block::entries(block).rest().len()..end;
        self.next_block += 1;
        debug_assert!(to_u64(end) <= to_u64(self.bytes.len()), "a block is read as a whole");
        Ok(())
    }
}

impl VersionCursor for FileCursor<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    fn take(&mut self, lsn: Lsn, out: &mut Vec<ReplacedValue>) -> Result<u32> {
        let (mut taken, mut half) = (None, 0);
        while self.key.is_some() && (taken.is_none() || taken == self.key) {
            let mut decoder = Decoder::new(self.bytes.get(self.rest.clone()).unwrap_or(&[]));
            if let Some(entry) = VersionEntry::decode(&mut decoder) {
                half = entry.half;
                if entry.lsn >= lsn {
                    let value = |bytes: &[u8]| {
                        Value::fill_with(bytes.len(), |out| out.copy_from_slice(bytes))
                    };
                    out.push((entry.lsn, entry.value.map(value)));
                }
            }
            self.rest.start = self.rest.end - decoder.rest().len();
            if taken.is_none() {
                taken.clone_from(&self.key);
            }
            self.settle()?;
        }
        Ok(half)
    }
}
