//! Page groups: groups whose patches are sorted by page, with an index.
//!
//! Why: a group may have hundreds of megabytes. Gathering it in memory copies all of it, and
//! reading it when the table is opened takes seconds. With the index, recovery reads a page's
//! patches when the page is read.
//!
//! How: the patches of one key (a page's number) are stored together, and an index at the end of
//! the group lists them. [`PageGroupWriter`] streams a group to the file. [`PatchSource`] reads the
//! patches of one page.
//!
//! | offset in a group | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4096 | head | as of any group ([`super`]), of format 2; bytes behind the first 88 are 0 |
//! | 4096 | | page patches | of one page after the other |
//! | | | index | for each page, in ascending order: varint key - key of the one before, varint size; size 0: the patches of earlier groups for the key are void |
//! | | 4 | index crc | CRC32C of the sequence (8 bytes) and the index |
//!
//! The patches of a page are in any order: varint of zigzag(offset - end of the last patch of the
//! page), varint length, bytes. The head's *size* and *crc* are of everything behind it. Its field
//! at 84 is the size of the index, with its crc; the highest bit is set if the group is *sealed*.
//!
//! Invariants:
//! - The head of a sealed group is written after everything behind it is durable. So a valid head
//!   proves that the rest was written. Opening verifies only the index; a reader of page patches
//!   verifies the page that it builds from them.
//! - A group that fits in one buffer is not sealed. It is written at once, synced once and verified
//!   completely, as other groups are.

use std::{io, sync::Arc};

use super::{
    file::allocate,
    group::{GroupHead, HEAD_BYTES, RedoGroup, SEALED, index_entries, unzigzag, zigzag},
    journal::RedoJournal,
};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Env, File, read_up_to, write_all_at},
    journal::write_back::Writeback,
    util::{
        codec::{
            Decoder, Lsn, VARINT_BYTES_MAX, crc32c, crc32c_append, encode_varint, low_u32, put_u32,
            round_up, to_u64, to_usize,
        },
        mutant::mutant,
    },
};

/// Bytes of a write. Small in tests, so that their groups are sealed too.
const BUFFER_BYTES: usize = if cfg!(feature = "testing") { 8 << 10 } else { 256 << 10 };
/// Most bytes in flight: one write. Several writes into one file's new space wait for one another
/// in the kernel, and spin meanwhile.
const WAITING_BYTES_MAX: u64 = 256 << 10;
/// About how much memory a writer takes, in bytes, besides its index.
pub(crate) const WRITER_BYTES: u64 = WAITING_BYTES_MAX + (512 << 10);
/// Most bytes of the file that are preallocated in one step beyond the needed size.
const AHEAD_BYTES_MAX: u64 = 32 << 20;
/// Calls `each` with offset and bytes of each patch of a page. Returns `None` if `patches` do not
/// parse.
pub(crate) fn decode_patches(patches: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<()> {
    let (mut rest, mut end) = (Decoder::new(patches), 0_u64);
    while !rest.is_empty() {
        let offset = end.wrapping_add(unzigzag(rest.varint()?));
        let bytes = rest.bytes()?;
        end = offset.wrapping_add(to_u64(bytes.len()));
        each(offset, bytes);
    }
    Some(())
}

/// Appends a patch to those of a page. `end` is the end of the last one, 0 at first.
pub(crate) fn append_patch(patches: &mut Vec<u8>, end: &mut u64, offset: u64, bytes: &[u8]) {
    let mut buffer = [0; VARINT_BYTES_MAX];
    let distance = zigzag(offset.wrapping_sub(*end));
    patches.extend_from_slice(encode_varint(distance, &mut buffer));
    patches.extend_from_slice(encode_varint(to_u64(bytes.len()), &mut buffer));
    patches.extend_from_slice(bytes);
    *end = offset.wrapping_add(to_u64(bytes.len()));
}

/// The page patches of a group.
#[derive(Clone, Debug)]
pub(crate) enum PatchSource {
    /// In memory.
    Memory(Arc<Vec<u8>>),
    /// In a file, from this offset on.
    File(Arc<dyn File>, u64),
}

impl PatchSource {
    /// Returns the file, the offset and length of the blocks that hold `bytes` bytes at `at`, and
    /// where in them these begin. `None` if they are in memory.
    pub(crate) fn blocks(&self, at: u64, bytes: u64) -> Option<(&Arc<dyn File>, u64, u64, usize)> {
        let Self::File(file, start) = self else { return None };
        let from = start + at;
        let first = from - from % BLOCK_BYTES;
        let length = round_up(from + bytes, BLOCK_BYTES) - first;
        Some((file, first, length, to_usize(from - first)))
    }

    /// Reads `bytes` bytes at `at`.
    pub(crate) fn read(&self, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let (start, size) = (to_usize(at), to_usize(bytes));
        let slice = |source: &[u8], start: usize| {
            let patches = source.get(start..start + size).map(<[u8]>::to_vec);
            patches.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        match (self, self.blocks(at, bytes)) {
            (_, Some((file, offset, length, skip))) => {
                let mut buffer = AlignedBuffer::zeroed(to_usize(length));
                let count = read_up_to(&**file, buffer.as_mut_slice(), offset)?;
                slice(buffer.as_slice().get(..count).unwrap_or(&[]), skip)
            }
            (Self::Memory(patches), None) => slice(patches, start),
            (Self::File(..), None) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl RedoGroup {
    /// Returns key, offset and size of the patches of each page. Ends with `None` if the index does
    /// not parse, and for a group of the other kind.
    pub(crate) fn page_entries(&self) -> impl Iterator<Item = Option<(u64, u64, u64)>> {
        let other = (!self.head.has_page_patches()).then_some(None);
        other.into_iter().chain(index_entries(&self.index))
    }

    /// Returns whether this is a page group.
    pub(crate) fn has_page_patches(&self) -> bool {
        self.head.has_page_patches()
    }

    /// Returns the page patches.
    pub(crate) fn into_patch_source(self) -> PatchSource {
        match self.in_file {
            Some((file, start)) => PatchSource::File(file, start),
            None => PatchSource::Memory(Arc::new(self.bytes)),
        }
    }
}

/// Writes a page group. Dropped without [`PageGroupWriter::commit`], it leaves no group.
#[derive(Debug)]
pub(crate) struct PageGroupWriter<'r> {
    journal: &'r mut RedoJournal,
    writeback: Writeback,
    file: Arc<dyn File>,
    label: String,
    sequence: u64,
    /// Offset of the group in the file.
    start: u64,
    /// Preallocated size of the file.
    space: u64,
    /// Bytes behind the head that are submitted for writing.
    sent: u64,
    /// Bytes that are not submitted yet: the first `filled`.
    buffer: AlignedBuffer,
    filled: usize,
    crc: u32,
    index: Vec<u8>,
    last_key: u64,
    /// A failed preallocation. [`PageGroupWriter::commit`] returns it.
    failure: Option<io::Error>,
}

impl RedoJournal {
    /// Begins a page group. Even if it is not committed, its sequence is used up.
    pub(crate) fn begin_page_group(&mut self, env: &dyn Env) -> Result<PageGroupWriter<'_>> {
        let mut writeback = Writeback::bounded(env, WAITING_BYTES_MAX + 1)?;
        let buffer = writeback.buffer(BUFFER_BYTES);
        let sequence = self.next_sequence;
        let open = self.open_file()?;
        // Until the group is durable, no group may follow it in the file.
        open.is_closed = true;
        let (file, start, space) = (Arc::clone(&open.file), open.end, open.size);
        let name = open.name.clone();
        let label = self.owner.label(&name);
        self.next_sequence += 1;
        Ok(PageGroupWriter {
            journal: self,
            writeback,
            file,
            label,
            sequence,
            start,
            space,
            sent: 0,
            buffer,
            filled: 0,
            crc: crc32c(&[]),
            index: Vec::new(),
            last_key: 0,
            failure: None,
        })
    }
}

impl PageGroupWriter<'_> {
    /// Adds the patches of a page. Keys must not descend. Without patches, those of earlier groups
    /// for the key are void.
    pub(crate) fn add_page(&mut self, key: u64, patches: &[u8]) {
        let mut buffer = [0; VARINT_BYTES_MAX];
        let step = key.wrapping_sub(self.last_key);
        self.index.extend_from_slice(encode_varint(step, &mut buffer));
        self.index.extend_from_slice(encode_varint(to_u64(patches.len()), &mut buffer));
        self.last_key = key;
        self.write(patches);
    }

    /// Buffers bytes, and submits full buffers.
    fn write(&mut self, mut bytes: &[u8]) {
        self.crc = crc32c_append(self.crc, bytes);
        while !bytes.is_empty() {
            if self.filled == self.buffer.len() {
                self.send();
            }
            let count = bytes.len().min(self.buffer.len() - self.filled);
            let (now, later) = bytes.split_at(count);
            let room = self.buffer.as_mut_slice().get_mut(self.filled..self.filled + count);
            if let Some(room) = room {
                room.copy_from_slice(now);
            }
            self.filled += count;
            bytes = later;
        }
    }

    /// Submits the buffer, padded to whole blocks.
    fn send(&mut self) {
        let length = to_usize(round_up(to_u64(self.filled), BLOCK_BYTES));
        if let Some(rest) = self.buffer.as_mut_slice().get_mut(self.filled..length) {
            rest.fill(0);
        }
        let offset = self.start + BLOCK_BYTES + self.sent;
        self.make_space(offset + to_u64(length));
        let next = self.writeback.buffer(BUFFER_BYTES);
        let buffer = std::mem::replace(&mut self.buffer, next);
        if self.failure.is_none() {
            self.writeback.write((&self.file, &self.label), offset, buffer, length);
        }
        self.sent += to_u64(self.filled);
        self.filled = 0;
    }

    /// Preallocates the file to `end` or more.
    fn make_space(&mut self, end: u64) {
        if end <= self.space || self.failure.is_some() {
            return;
        }
        let ahead = self.sent.min(AHEAD_BYTES_MAX);
        let space =
            round_up(self.journal.grown_size(self.space, end).max(end + ahead), BLOCK_BYTES);
        match allocate(&*self.file, space, round_up(end, BLOCK_BYTES)) {
            Ok(space) => self.space = space,
            Err(error) => self.failure = Some(error),
        }
        self.journal.lacks_space = self.space < space;
    }

    /// Returns the size of the group so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        BLOCK_BYTES + self.sent + to_u64(self.filled)
    }

    /// Makes the group durable, as [`RedoJournal::commit_group`] does.
    pub(crate) fn commit(mut self, lsn: Lsn, needed: u64) -> Result<u64> {
        let needed = needed.clamp(self.journal.needed.min(self.sequence), self.sequence);
        let mut index = std::mem::take(&mut self.index);
        let sum = crc32c_append(crc32c(&self.sequence.to_le_bytes()), &index);
        put_u32(&mut index, sum);
        self.write(&index);
        let is_sealed = self.sent > 0;
        let sealed = if is_sealed { SEALED } else { 0 };
        let head = GroupHead {
            sequence: self.sequence,
            needed,
            lsn,
            size: self.sent + to_u64(self.filled),
            follows: self.journal.newest,
            crc: self.crc,
            index: low_u32(to_u64(index.len())) | sealed,
        };
        let head_bytes = head.encode(&self.journal.owner);
        let outcome = if is_sealed { self.seal(&head_bytes) } else { self.write_once(&head_bytes) };
        outcome?;
        let end = self.start + round_up(BLOCK_BYTES + head.size, BLOCK_BYTES);
        if let Some(file) = self.journal.files.last_mut() {
            (file.is_closed, file.end, file.size) = (false, end, self.space);
        }
        self.journal.finish_commit(self.sequence, needed);
        Ok(self.sequence)
    }

    fn io_error(&self, error: io::Error) -> Error {
        Error::io(format!("write {}", self.label), error)
    }

    /// Writes the head after the rest is durable.
    fn seal(&mut self, head: &[u8]) -> Result<()> {
        self.send();
        self.check_failure()?;
        self.writeback.finish()?;
        mutant!(RedoSealsEarly: Ok(()), else self.sync())?;
        let mut block = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
        if let Some(room) = block.as_mut_slice().get_mut(..HEAD_BYTES) {
            room.copy_from_slice(head);
        }
        let written = write_all_at(&*self.file, block.as_slice(), self.start);
        written.map_err(|error| self.io_error(error))?;
        self.sync()
    }

    /// Writes a small group, its head included, in one write.
    fn write_once(&mut self, head: &[u8]) -> Result<()> {
        let length = round_up(BLOCK_BYTES + to_u64(self.filled), BLOCK_BYTES);
        self.make_space(self.start + length);
        self.check_failure()?;
        let mut buffer = AlignedBuffer::zeroed(to_usize(length));
        let (front, back) = buffer.as_mut_slice().split_at_mut(to_usize(BLOCK_BYTES));
        for (room, bytes) in [
            (front.get_mut(..HEAD_BYTES), head.get(..HEAD_BYTES)),
            (back.get_mut(..self.filled), self.buffer.as_slice().get(..self.filled)),
        ] {
            if let (Some(room), Some(bytes)) = (room, bytes) {
                room.copy_from_slice(bytes);
            }
        }
        let written = write_all_at(&*self.file, buffer.as_slice(), self.start);
        written.map_err(|error| self.io_error(error))?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        mutant!(RedoSkipsSync => return Ok(()));
        self.file.sync_data().map_err(|error| self.io_error(error))
    }

    /// Returns the failed preallocation, if there is one.
    fn check_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), |error| Err(self.io_error(error)))
    }
}
