//! The key section of an SST: its keys, apart from their values.
//!
//! Each entry has the key, the number of its block and the length of its value, in key order. A
//! merge leaves most SSTs of a table as they are, and needs only this of their entries. With values
//! of 1 KiB, it reads a fiftieth of the bytes.
//!
//! The section consists of chunks that are read one after the other. A chunk is stored like a block
//! ([`super::block`], never compressed). Its checksum is salted with its number among the chunks.
//! An entry in it:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | varint | shared | bytes that it shares with the key before; 0 for a chunk's first |
//! | varint | rest | bytes of the key after those |
//! | | | the rest of the key |
//! | varint | blocks | its block number minus that of the entry before; a chunk's first counts from block 0 |
//! | varint | value | `value length * 2 + tombstone` |
//!
//! Invariants:
//! - An SST has all of its keys here or none. Keys that are not much smaller than their values are
//!   not stored twice.
//! - The chunks are back to back and end with the section.
//!
//! Source: CompassDB, section 3.4. Its merges read arrays of 32-bit key hashes. Here keys are
//! whole, so that equal hashes cannot be confused.

#![deny(clippy::indexing_slicing)]

use std::{mem, sync::Arc};

use super::{
    block::{self, BlockEntries, HEAD_BYTES, Packing, UNIT_BYTES},
    reader::{Span, Sst},
};
use crate::{
    Result,
    io::{AlignedBuffer, Flow, Pending, Request},
    util::{
        codec::{Decoder, put_varint, round_up, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Size in bytes from which a chunk ends.
const CHUNK_BYTES: usize = if cfg!(test) { 512 } else { 32 << 10 };
/// The section is written if keys and values are at least this many times as large as it. With
/// values of 128 bytes (eight times as large), a load was a tenth faster but the files a tenth
/// larger: not written.
const PAYLOAD_FACTOR_MIN: u64 = if cfg!(test) { 1 } else { 12 };
/// Salt that distinguishes a chunk from a block of the same number.
const CHUNK_SALT: u32 = 0x6b65_7973;

/// Builds the key section while an SST is written.
#[derive(Debug, Default)]
pub(crate) struct KeySectionBuilder {
    /// Finished chunks.
    chunks: Vec<u8>,
    count: u32,
    /// Entries of the current chunk.
    entries: Vec<u8>,
    last_block: u32,
}

impl KeySectionBuilder {
    /// Adds the entry of `key`. `before` is the key that was added before it; a tombstone has no
    /// value bytes. Returns whether the entry ended a chunk.
    pub(crate) fn add(
        &mut self,
        (before, key): (&[u8], &[u8]),
        block: u32,
        value_bytes: Option<usize>,
        salt: u32,
    ) -> bool {
        let is_first = self.entries.is_empty();
        let same = || before.iter().zip(key).take_while(|(one, other)| one == other).count();
        let shared = if is_first { 0 } else { same() };
        if is_first {
            self.last_block = 0;
        }
        let rest = key.get(shared..).unwrap_or(&[]);
        put_varint(&mut self.entries, to_u64(shared));
        put_varint(&mut self.entries, to_u64(rest.len()));
        self.entries.extend_from_slice(rest);
        put_varint(&mut self.entries, u64::from(block.saturating_sub(self.last_block)));
        let value = to_u64(value_bytes.unwrap_or(0)) * 2 + u64::from(value_bytes.is_none());
        put_varint(&mut self.entries, value);
        self.last_block = block;
        let ends = self.entries.len() >= CHUNK_BYTES;
        if ends {
            self.end_chunk(salt);
        }
        ends
    }

    fn end_chunk(&mut self, salt: u32) {
        if !self.entries.is_empty() {
            let place = (salt ^ CHUNK_SALT, self.count);
            block::put_block(&mut self.chunks, &self.entries, place, Packing::None);
            self.count += 1;
            self.entries.clear();
        }
    }

    /// Returns the bytes of the section so far.
    pub(crate) fn bytes(&self) -> u64 {
        to_u64(self.chunks.len() + self.entries.len())
    }

    /// Returns whether the section pays beside `payload_bytes` of keys and values.
    pub(crate) fn is_worthwhile(&self, payload_bytes: u64) -> bool {
        self.bytes().saturating_mul(PAYLOAD_FACTOR_MIN) <= payload_bytes
    }

    /// Returns the encoded section.
    pub(crate) fn finish(mut self, salt: u32) -> Vec<u8> {
        self.end_chunk(salt);
        self.chunks
    }
}

/// An upward cursor over the key section of an SST. It reads ahead: the next read is under way
/// while the keys of the last one are visited.
#[derive(Debug)]
pub(crate) struct KeyCursor {
    sst: Arc<Sst>,
    /// Bytes of one read.
    read_bytes: u64,
    /// File offset of the next chunk, and its number.
    next: u64,
    chunk: u32,
    /// Bytes that were read and not yet visited, and the file offset of the first.
    bytes: Vec<u8>,
    bytes_start: u64,
    /// The read-ahead under way, and the buffer for the next one.
    flow: Flow,
    ahead: Option<(Span, Pending)>,
    spare: AlignedBuffer,
    /// The remaining entries of the chunk, as a range of the bytes.
    at: usize,
    end: usize,
    key: Vec<u8>,
    block: u32,
    value_bytes: Option<u64>,
    has_entry: bool,
}

impl KeyCursor {
    /// Creates a cursor that reads about `read_bytes` at a time; `None` if the SST has no key
    /// section.
    pub(crate) fn new(sst: &Arc<Sst>, read_bytes: u64, flow: &Flow) -> Option<Self> {
        let section = sst.footer.keys;
        if section.bytes == 0 {
            return None;
        }
        let mut cursor = Self {
            sst: Arc::clone(sst),
            read_bytes: read_bytes.max(1),
            next: section.offset,
            chunk: 0,
            bytes: Vec::new(),
            bytes_start: section.offset,
            flow: flow.clone(),
            ahead: None,
            spare: AlignedBuffer::zeroed(0),
            at: 0,
            end: 0,
            key: Vec::new(),
            block: 0,
            value_bytes: None,
            has_entry: false,
        };
        cursor.read_ahead();
        Some(cursor)
    }

    /// Returns the file offset at which the bytes read so far end.
    fn read_end(&self) -> u64 {
        self.bytes_start + to_u64(self.bytes.len())
    }

    /// Starts the next read-ahead.
    fn read_ahead(&mut self) {
        let section = self.sst.footer.keys;
        let start = self.read_end();
        let end = (start + self.read_bytes).min(section.offset + section.bytes);
        if start >= end {
            return;
        }
        let span = Span::of(start..end);
        let mut buffer = mem::replace(&mut self.spare, AlignedBuffer::zeroed(0));
        buffer.fit(span.whole());
        let (file, offset, length) = (Arc::clone(self.sst.file()), span.offset, buffer.len());
        let read = self.flow.start(Request::Read { file, offset, buffer, length });
        self.ahead = Some((span, read));
    }

    /// Returns the current key; `None` at the end.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.has_entry.then_some(self.key.as_slice())
    }

    /// Returns the block number of the current entry.
    pub(crate) fn block(&self) -> u32 {
        self.block
    }

    /// Returns the length of the current value; `None` for a tombstone.
    pub(crate) fn value_bytes(&self) -> Option<u64> {
        self.value_bytes
    }

    /// Loads the first entry, if that has not happened yet.
    pub(crate) fn load_first(&mut self) -> Result<()> {
        if self.chunk == 0 && self.at == self.end { self.advance() } else { Ok(()) }
    }

    /// Advances to the next key.
    pub(crate) fn advance(&mut self) -> Result<()> {
        self.has_entry = false;
        if self.at == self.end {
            let section = self.sst.footer.keys;
            if self.next >= section.offset + section.bytes {
                return Ok(());
            }
            self.load()?;
        }
        self.has_entry = true;
        match self.parse() {
            Some(()) => Ok(()),
            None => Err(self.damage("a key does not parse")),
        }
    }

    /// Decodes the entry at `at`.
    fn parse(&mut self) -> Option<()> {
        let entries = self.bytes.get(self.at..self.end)?;
        let mut decoder = Decoder::new(entries);
        let shared = to_usize(decoder.varint()?);
        let count = to_usize(decoder.varint()?);
        let rest = decoder.take(count)?;
        let blocks = decoder.varint()?;
        let value = decoder.varint()?;
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.block = u32::try_from(u64::from(self.block).checked_add(blocks)?).ok()?;
        self.value_bytes = (value & 1 == 0).then_some(value >> 1);
        self.at = self.end - decoder.rest().len();
        (self.block < self.sst.blocks()).then_some(())
    }

    /// Verifies the next chunk and positions before its first entry.
    fn load(&mut self) -> Result<()> {
        let section = self.sst.footer.keys;
        let rest = section.offset + section.bytes - self.next;
        self.fetch(to_u64(HEAD_BYTES).min(rest))?;
        let size = self.stored().get(4..HEAD_BYTES).and_then(|bytes| bytes.try_into().ok());
        let size = u64::from(u32::from_le_bytes(size.unwrap_or_default()));
        let bytes = round_up(to_u64(HEAD_BYTES) + size, UNIT_BYTES);
        if bytes > rest {
            return Err(self.damage("a chunk of keys ends after its section"));
        }
        self.fetch(bytes)?;
        let start = to_usize(self.next - self.bytes_start);
        let stored = self.stored().get(..to_usize(bytes)).unwrap_or(&[]);
        let place = (self.sst.salt() ^ CHUNK_SALT, self.chunk);
        let entries = block::open(stored, place).map_err(|what| self.damage(what))?;
        let BlockEntries::Plain(range) = entries else {
            return Err(self.damage("a chunk of keys is compressed"));
        };
        (self.at, self.end) = (start + range.start, start + range.end);
        self.next += bytes;
        self.chunk += 1;
        self.key.clear();
        self.block = 0;
        mutant!(TphMergePassesKeys => _ = self.parse());
        if self.at == self.end { Err(self.damage("a chunk of keys is empty")) } else { Ok(()) }
    }

    /// Returns the bytes read, from the next chunk on.
    fn stored(&self) -> &[u8] {
        self.bytes.get(to_usize(self.next - self.bytes_start)..).unwrap_or(&[])
    }

    /// Reads until at least `bytes` of the next chunk are there. The section must have them.
    fn fetch(&mut self, bytes: u64) -> Result<()> {
        while self.read_end() < self.next + bytes {
            self.bytes.drain(..to_usize(self.next - self.bytes_start));
            self.bytes_start = self.next;
            let Some((span, read)) = self.ahead.take() else {
                return Err(self.damage("the key section is shorter than its chunks"));
            };
            let done = read.wait();
            self.spare = done.buffer;
            if done.result.ok() != Some(span.whole()) {
                // A failed read-ahead is read again, and that read reports the error.
                self.sst.read_into(span, &mut self.spare)?;
            }
            let read = self.spare.as_slice().get(span.skip..span.skip + span.bytes);
            self.bytes.extend_from_slice(read.unwrap_or(&[]));
            self.read_ahead();
        }
        Ok(())
    }

    fn damage(&self, what: &str) -> crate::Error {
        self.sst.damage(self.next, what)
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::{
        contract::{Context, test_bench},
        io::{Open, sim::SimEnv, write_all_at},
        lsm::sst::{
            SstKind, SstOwner,
            tests::{Row, flow},
        },
    };

    fn write(context: &Context, rows: &[Row]) -> (SstOwner, Arc<Sst>) {
        crate::lsm::sst::tests::write(context, rows, Packing::Lz4)
    }

    fn read(sst: &Arc<Sst>, read_bytes: u64) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let Some(mut cursor) = KeyCursor::new(sst, read_bytes, &flow()) else { return Ok(rows) };
        cursor.load_first()?;
        let mut last = 0;
        while let Some(key) = cursor.key() {
            rows.push((key.to_vec(), cursor.value_bytes().map(to_usize)));
            assert!(cursor.block() >= last && cursor.block() < sst.blocks());
            last = cursor.block();
            cursor.advance()?;
        }
        Ok(rows)
    }

    fn rows() -> Vec<Row> {
        let value = |number: usize| (number % 7 != 3).then_some(number % 5 * 700);
        let mut rows: Vec<Row> =
            (0..900).map(|n| (format!("key-{:07}", n * 31).into_bytes(), value(n))).collect();
        // Longer than a chunk, and than what is read at once.
        rows.push(([b"long-".as_slice(), &[7; 9000]].concat(), Some(40_000)));
        rows.push(([b"long-".as_slice(), &[7; 9001]].concat(), None));
        rows.push((b"z".to_vec(), Some(0)));
        rows
    }

    #[test]
    fn keys_come_back_whatever_is_read_at_once() {
        let context = test_bench::context(&SimEnv::new(1), 64 << 20);
        let (owner, sst) = write(&context, &rows());
        for read_bytes in [0, 100, 5000, 1 << 20] {
            assert_eq!(read(&sst, read_bytes).unwrap(), rows());
        }
        let again = Arc::new(Sst::open(&owner, 1, sst.file_bytes).unwrap());
        assert_eq!(read(&again, 4096).unwrap(), rows());
    }

    #[test]
    fn keys_are_not_kept_where_they_are_most_of_the_data() {
        let context = test_bench::context(&SimEnv::new(1), 64 << 20);
        let short: Vec<Row> = (0..200_u8).map(|number| (vec![number], None)).collect();
        let (_, sst) = write(&context, &short);
        assert_eq!(sst.footer.keys.bytes, 0);
        assert!(KeyCursor::new(&sst, 0, &flow()).is_none());
    }

    #[test]
    fn a_flipped_byte_is_an_error_or_changes_nothing() {
        let context = test_bench::context(&SimEnv::new(1), 64 << 20);
        let (owner, sst) = write(&context, &rows());
        let section = sst.footer.keys;
        let file = owner.dir.open(&SstKind::PIECE.name_of(1), Open::WRITE).unwrap();
        let mut refused = 0;
        for at in (section.offset..section.offset + section.bytes).step_by(3) {
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            write_all_at(&*file, &[byte[0] ^ 0x10], at).unwrap();
            match read(&sst, 4096) {
                Ok(found) => assert_eq!(found, rows()),
                Err(error) => {
                    assert!(matches!(error, crate::Error::Corruption { .. }), "{error}");
                    refused += 1;
                }
            }
            write_all_at(&*file, &byte, at).unwrap();
        }
        // All but what fills chunks up.
        assert!(refused * 3 > section.bytes / 10 * 9, "{refused} of {}", section.bytes / 3);
    }
}
