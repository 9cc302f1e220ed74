//! Groups of pieces: what changed of one key each, found without reading the others.
//!
//! What: a group whose patches are in pieces, each of one key (a page's number), with an index at
//! its end. [`PieceWriter`] writes one as it comes; [`Pieces`] reads a piece where it is.
//! Why: a group may have hundreds of megabytes. To gather it in memory costs a copy of all of it,
//! and to read it when the table is opened takes seconds.
//!
//! | offset in a group | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4096 | head | as of any group ([`super`]), of format 2; what is behind its 88 bytes is 0 |
//! | 4096 | | pieces | one after the other |
//! | | | index | for each piece, in ascending order: varint key - key of the one before, varint size; size 0: what earlier groups have of the key is void |
//! | | 4 | index crc | CRC32C of the sequence (8 bytes) and the index |
//!
//! A piece is patches in any order: varint of zigzag(offset - end of the last patch in the piece),
//! varint length, bytes. The head's *size* and *crc* are of everything behind it; its field at 84
//! is the size of the index, its crc included, and in the highest bit whether it is *sealed*.
//!
//! Invariants:
//! - The head of a sealed group is written once everything behind it is durable. So a head that is
//!   found vouches for the rest, of which opening verifies the index alone; whoever reads a piece
//!   verifies what it makes of it.
//! - A group that fits in one buffer is not sealed: it is written at once, synced once and verified
//!   whole, as other groups are.

use std::{io, sync::Arc};

use super::{Group, HEAD_BYTES, Head, Redo, unzigzag, zigzag};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Env, File, read_up_to, write_all_at},
    journal::write_back::Writeback,
    util::{
        codec::{
            Decoder, Lsn, VARINT_BYTES_MAX, crc32c, crc32c_append, encode_varint, low_u32, put_u32,
            round_up, to_u64, to_usize,
        },
        mutant::{self, Bug},
    },
};

/// What is written at once; small in tests, so that their groups are sealed too.
const BUFFER_BYTES: usize = if cfg!(feature = "testing") { 8 << 10 } else { 256 << 10 };
/// Bytes under way at most: one write. Several into one file's new space wait for one another in
/// the system, and spin meanwhile.
const WAITING_BYTES_MAX: u64 = 256 << 10;
/// What a writer has in memory, about, beside its index.
pub(crate) const WRITER_BYTES: u64 = WAITING_BYTES_MAX + (512 << 10);
/// Space of the file that is taken in one step beyond what is needed, at most.
const AHEAD_BYTES_MAX: u64 = 32 << 20;
/// In the head's field of the index size.
const SEALED: u32 = 1 << 31;

impl Head {
    /// Whether the group is one of pieces.
    pub(super) fn has_pieces(&self) -> bool {
        self.index != 0
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.index & SEALED != 0
    }

    fn index_bytes(&self) -> u64 {
        u64::from(self.index & !SEALED)
    }

    /// Where in the group the index is, and its size.
    pub(super) fn index_place(&self) -> Option<(u64, u64)> {
        let before = self.size.checked_sub(self.index_bytes())?;
        Some((BLOCK_BYTES + before, self.index_bytes()))
    }
}

/// The index of a group, without its checksum; `None`: it is not what was written.
pub(super) fn verified_index(head: &Head, index: &[u8]) -> Option<Vec<u8>> {
    let (entries, stored) = index.split_last_chunk::<4>()?;
    let sum = crc32c_append(crc32c(&head.sequence.to_le_bytes()), entries);
    (u32::from_le_bytes(*stored) == sum).then(|| entries.to_vec())
}

/// Key, place and size of each piece that an index names.
pub(super) fn places(index: &[u8]) -> impl Iterator<Item = Option<(u64, u64, u64)>> {
    let (mut rest, mut key, mut at) = (Decoder::new(index), 0_u64, 0_u64);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut next = || {
            key = key.checked_add(rest.varint()?)?;
            let (start, bytes) = (at, rest.varint()?);
            at = at.checked_add(bytes)?;
            Some((key, start, bytes))
        };
        let place = next();
        if place.is_none() {
            rest = Decoder::new(&[]);
        }
        Some(place)
    })
}

/// Shows `each` the patches of a piece: offset and bytes. `None`: it does not parse.
pub(crate) fn patches_of(piece: &[u8], mut each: impl FnMut(u64, &[u8])) -> Option<()> {
    let (mut rest, mut end) = (Decoder::new(piece), 0_u64);
    while !rest.is_empty() {
        let offset = end.wrapping_add(unzigzag(rest.varint()?));
        let bytes = rest.bytes()?;
        end = offset.wrapping_add(to_u64(bytes.len()));
        each(offset, bytes);
    }
    Some(())
}

/// Adds a patch to a piece that ends at `end`.
pub(crate) fn add_patch(piece: &mut Vec<u8>, end: &mut u64, offset: u64, bytes: &[u8]) {
    let mut buffer = [0; VARINT_BYTES_MAX];
    let distance = zigzag(offset.wrapping_sub(*end));
    piece.extend_from_slice(encode_varint(distance, &mut buffer));
    piece.extend_from_slice(encode_varint(to_u64(bytes.len()), &mut buffer));
    piece.extend_from_slice(bytes);
    *end = offset.wrapping_add(to_u64(bytes.len()));
}

/// Where the pieces of a group are.
#[derive(Clone, Debug)]
pub(crate) enum Pieces {
    /// In memory.
    Here(Arc<Vec<u8>>),
    /// In a file, from this byte on.
    There(Arc<dyn File>, u64),
}

impl Pieces {
    /// The blocks of a file that bytes of the pieces are in, and where in them they begin; `None`:
    /// they are in memory.
    pub(crate) fn blocks(&self, at: u64, bytes: u64) -> Option<(&Arc<dyn File>, u64, u64, usize)> {
        let Self::There(file, start) = self else { return None };
        let from = start + at;
        let first = from - from % BLOCK_BYTES;
        let length = round_up(from + bytes, BLOCK_BYTES) - first;
        Some((file, first, length, to_usize(from - first)))
    }

    /// A piece.
    pub(crate) fn read(&self, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let (start, size) = (to_usize(at), to_usize(bytes));
        let cut = |held: &[u8], start: usize| {
            let piece = held.get(start..start + size).map(<[u8]>::to_vec);
            piece.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        match (self, self.blocks(at, bytes)) {
            (_, Some((file, offset, length, skip))) => {
                let mut buffer = AlignedBuffer::zeroed(to_usize(length));
                let count = read_up_to(&**file, buffer.as_mut_slice(), offset)?;
                cut(buffer.as_slice().get(..count).unwrap_or(&[]), skip)
            }
            (Self::Here(held), None) => cut(held, start),
            (Self::There(..), None) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Group {
    /// Key, place and size of each piece; `None` for what does not parse, and for a group of
    /// another kind.
    pub(crate) fn places(&self) -> impl Iterator<Item = Option<(u64, u64, u64)>> {
        let other = (!self.head.has_pieces()).then_some(None);
        other.into_iter().chain(places(&self.index))
    }

    /// Whether it is one of pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        self.head.has_pieces()
    }

    /// Where its pieces are.
    pub(crate) fn into_pieces(self) -> Pieces {
        match self.far {
            Some((file, start)) => Pieces::There(file, start),
            None => Pieces::Here(Arc::new(self.bytes)),
        }
    }
}

/// A group of pieces on its way to the journal. Dropped without [`PieceWriter::commit`], it never
/// happened.
#[derive(Debug)]
pub(crate) struct PieceWriter<'r> {
    redo: &'r mut Redo,
    writeback: Writeback,
    file: Arc<dyn File>,
    label: String,
    sequence: u64,
    /// Where in the file the group begins, and what of it the file has space for.
    start: u64,
    space: u64,
    /// Bytes behind the head that were handed over, and those that wait.
    sent: u64,
    buffer: AlignedBuffer,
    filled: usize,
    crc: u32,
    index: Vec<u8>,
    last_key: u64,
    failure: Option<io::Error>,
}

impl Redo {
    /// Begins a group of pieces. Whatever becomes of it, its number is gone.
    pub(crate) fn begin(&mut self, env: &dyn Env) -> Result<PieceWriter<'_>> {
        let mut writeback = Writeback::bounded(env, WAITING_BYTES_MAX + 1)?;
        let buffer = writeback.buffer(BUFFER_BYTES);
        let sequence = self.next_sequence;
        let turn = self.turn()?;
        // Until the group is durable, nothing follows it.
        turn.closed = true;
        let (file, start, space) = (Arc::clone(&turn.file), turn.end, turn.size);
        let name = turn.name.clone();
        let label = self.owner.label(&name);
        self.next_sequence += 1;
        Ok(PieceWriter {
            redo: self,
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

impl PieceWriter<'_> {
    /// Adds a piece. Keys do not descend. An empty one says that what earlier groups have of the
    /// key is void.
    pub(crate) fn add(&mut self, key: u64, piece: &[u8]) {
        let mut buffer = [0; VARINT_BYTES_MAX];
        let step = key.wrapping_sub(self.last_key);
        self.index.extend_from_slice(encode_varint(step, &mut buffer));
        self.index.extend_from_slice(encode_varint(to_u64(piece.len()), &mut buffer));
        self.last_key = key;
        self.write(piece);
    }

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

    /// Hands what waits over, in whole blocks.
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

    fn make_space(&mut self, end: u64) {
        if end <= self.space || self.failure.is_some() {
            return;
        }
        let ahead = self.sent.min(AHEAD_BYTES_MAX);
        let space = round_up(self.redo.space_for(self.space, end).max(end + ahead), BLOCK_BYTES);
        match self.file.allocate(space) {
            Ok(()) => self.space = space,
            Err(error) => self.failure = Some(error),
        }
    }

    /// Bytes of the group so far.
    pub(crate) fn bytes(&self) -> u64 {
        BLOCK_BYTES + self.sent + to_u64(self.filled)
    }

    /// Makes the group durable. As [`Redo::commit_keeping`].
    pub(crate) fn commit(mut self, lsn: Lsn, needed: u64) -> Result<u64> {
        let needed = needed.clamp(self.redo.needed.min(self.sequence), self.sequence);
        let mut index = std::mem::take(&mut self.index);
        let sum = crc32c_append(crc32c(&self.sequence.to_le_bytes()), &index);
        put_u32(&mut index, sum);
        self.write(&index);
        let is_sealed = self.sent > 0;
        let sealed = if is_sealed { SEALED } else { 0 };
        let head = Head {
            sequence: self.sequence,
            needed,
            lsn,
            size: self.sent + to_u64(self.filled),
            follows: self.redo.newest,
            crc: self.crc,
            index: low_u32(to_u64(index.len())) | sealed,
        };
        let head_bytes = head.encode(&self.redo.owner);
        let outcome = if is_sealed { self.seal(&head_bytes) } else { self.write_once(&head_bytes) };
        outcome?;
        let end = self.start + round_up(BLOCK_BYTES + head.size, BLOCK_BYTES);
        if let Some(turn) = self.redo.turns.last_mut() {
            (turn.closed, turn.end, turn.size) = (false, end, self.space);
        }
        self.redo.note_committed(self.sequence, needed);
        Ok(self.sequence)
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io(format!("write {}", self.label), error)
    }

    /// Writes the head once the rest is durable.
    fn seal(&mut self, head: &[u8]) -> Result<()> {
        self.send();
        self.take_failure()?;
        self.writeback.finish()?;
        let sync = |early: bool| {
            let skips = mutant::active(Bug::RedoSkipsSync) || early;
            if skips { Ok(()) } else { self.file.sync_data() }
        };
        sync(mutant::active(Bug::RedoSealsEarly)).map_err(|error| self.failed(error))?;
        let mut block = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
        if let Some(room) = block.as_mut_slice().get_mut(..HEAD_BYTES) {
            room.copy_from_slice(head);
        }
        let written = write_all_at(&*self.file, block.as_slice(), self.start);
        written.and_then(|()| sync(false)).map_err(|error| self.failed(error))
    }

    /// Writes a small group, head and all.
    fn write_once(&mut self, head: &[u8]) -> Result<()> {
        let length = round_up(BLOCK_BYTES + to_u64(self.filled), BLOCK_BYTES);
        self.make_space(self.start + length);
        self.take_failure()?;
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
        let skips = mutant::active(Bug::RedoSkipsSync);
        let synced = written.and_then(|()| if skips { Ok(()) } else { self.file.sync_data() });
        synced.map_err(|error| self.failed(error))
    }

    fn take_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), |error| Err(self.failed(error)))
    }
}
