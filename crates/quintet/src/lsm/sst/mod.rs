//! Sorted string tables (SSTs): immutable files of blocks in key order. The code calls one a
//! [`Piece`], the term of the CompassDB paper.
//!
//! A table of `tph` consists of several SSTs (`.ph`); its perfect-hash index is in the newest one.
//! `slm` calls an SST a run (`.run`) and finds its entries by its own index.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHPIEC`, or `QSLMRUN\0` of a run |
//! | 8 | 4 | format | 3; files of format 2, whose blocks have whole entries, are read too |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 63 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of the SST, never used again |
//! | 48 | 16 | reserved | 0 |
//! | 4096 | | blocks | [`crate::lsm::sst::block`], back to back; zeros up to a multiple of 4096 before a block where they are few |
//! | | | index | of the table, as `tph` has it; of a run, its first and last key (varint lengths) |
//! | | | offsets | where each block begins and the last ends, in units of 8 bytes: 4 bytes each |
//! | | | fences | the block index, [`crate::lsm::sst::block_index`]; empty in runs |
//! | | | keys | without their values, [`crate::lsm::sst::key_section`]; in SSTs of `tph`, where that pays |
//! | end - 4096 | 192 | footer | below |
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHFOOT`, or `QSLMFOOT` |
//! | 8 | 4 | format | the same |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 191 with this field zero |
//! | 16 | 32 | identity | database id, table id, number |
//! | 48 | 8 | blocks | number of blocks |
//! | 56 | 8 | entries | tombstones included |
//! | 64 | 8 | tombstones | |
//! | 72 | 8 | payload bytes | of keys and values |
//! | 80 | 72 | sections | of index, offsets, fences: offset, size, CRC32C (8 bytes each) |
//! | 152 | 24 | keys | their section |
//! | 176 | 8 | block bytes | the option `block_bytes` at that time; 0 in files of builds that did not store it |
//! | 184 | 8 | reserved | 0 |
//!
//! Invariants: an SST is complete and durable before the manifest lists it, and never changes. The
//! manifest has its length, which locates the footer.
//!
//! Gets know the block number from the engine's index. Only seeks search for a key, in the block
//! index.
//!
//! Difference from the paper: entries are in key order, not in the order of hash slots. So scans
//! read adjacent blocks, and no local hash table is needed: the slot stores the block number.

#![deny(clippy::indexing_slicing)]

pub(crate) mod block;
pub(crate) mod block_index;
pub(crate) mod block_offsets;
pub(crate) mod describe;
pub(crate) mod key_section;
mod mutants;
#[cfg(test)]
#[cfg(not(model))]
pub(crate) mod tests;
mod writer;

use std::{io, ops::Range, sync::Arc};

pub(crate) use self::writer::{SstShape, SstWriter};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Dir, File, Open, read_exact_at, read_up_to},
    lsm::{
        block_cache::{BlockHandles, BlockRef, CacheAdmission, decoded_block::DecodedBlockCache},
        cursor::merge::Direction,
        sst::{
            block::{BlockEntries, UNIT_BYTES},
            block_index::BlockIndex,
            block_offsets::BlockOffsets,
        },
    },
    util::{
        codec::{Decoder, crc32c, low_u32, put_u32, put_u64, round_up, to_u64, to_usize},
        mutant::mutant,
        sync::OnceLock,
    },
};

const FORMAT: u32 = 3;
/// The oldest format that can be read.
const FORMAT_OLDEST: u32 = 2;
/// Maximum of the option `block_bytes`.
pub(crate) const BLOCK_BYTES_MAX: u64 = 1 << 20;
const HEAD_BYTES: usize = 64;
const FOOT_BYTES: usize = 192;
/// Offset of the first block.
const BLOCKS_START: u64 = BLOCK_BYTES;

/// The kind of an SST: file suffix and magic numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) magic: [u8; 8],
    foot_magic: [u8; 8],
    suffix: &'static str,
    /// Whether files have a block index, for seeks by key.
    has_fences: bool,
}

impl Kind {
    /// An SST of a table of `tph`.
    pub(crate) const PIECE: Self =
        Self { magic: *b"QTPHPIEC", foot_magic: *b"QTPHFOOT", suffix: ".ph", has_fences: true };
    /// A run of `slm`.
    pub(crate) const RUN: Self =
        Self { magic: *b"QSLMRUN\0", foot_magic: *b"QSLMFOOT", suffix: ".run", has_fences: false };

    /// Returns the file name of SST `number`.
    pub(crate) fn name_of(self, number: u64) -> String {
        format!("{number:08x}{}", self.suffix)
    }

    /// Returns the number in a file name; `None` if it is not the name of such a file.
    pub(crate) fn number_of(self, name: &str) -> Option<u64> {
        let digits = name.strip_suffix(self.suffix).filter(|digits| digits.len() >= 8)?;
        u64::from_str_radix(digits, 16).ok().filter(|number| self.name_of(*number) == name)
    }
}

/// The table that SSTs belong to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) database_id: [u8; 16],
    pub(crate) table_id: u64,
}

impl Owner {
    /// Returns a file's path within the database, for messages.
    pub(crate) fn label(&self, name: &str) -> String {
        format!("tables/{}/{name}", self.table_id)
    }

    fn identity(&self, out: &mut Vec<u8>, number: u64) {
        out.extend_from_slice(&self.database_id);
        put_u64(out, self.table_id);
        put_u64(out, number);
    }
}

/// Stores the CRC in bytes 12 to 15.
fn store_crc(bytes: &mut [u8]) {
    let crc = crc32c(bytes).to_le_bytes();
    if let Some(field) = bytes.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
}

fn encode_identity(magic: [u8; 8], format: u32, owner: &Owner, number: u64) -> Vec<u8> {
    let mut out = magic.to_vec();
    put_u32(&mut out, format);
    put_u32(&mut out, 0);
    owner.identity(&mut out, number);
    out
}

fn encode_head(format: u32, owner: &Owner, number: u64) -> Vec<u8> {
    let mut out = encode_identity(owner.kind.magic, format, owner, number);
    out.resize(HEAD_BYTES, 0);
    store_crc(&mut out);
    out
}

/// A range of a file with its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    crc: u64,
}

/// The footer of an SST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) index: Section,
    pub(crate) offsets: Section,
    pub(crate) fences: Section,
    pub(crate) keys: Section,
    /// Maximum bytes of a block when it was written; 0: unknown.
    pub(crate) block_bytes: u64,
    format: u32,
}

/// Why a footer is refused.
enum FooterError {
    Damaged(String),
    /// It has this format, of a later release.
    Newer(u32),
}

impl From<&str> for FooterError {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

impl Footer {
    fn encode(&self, owner: &Owner, number: u64) -> Vec<u8> {
        let mut out = encode_identity(owner.kind.foot_magic, FORMAT, owner, number);
        for word in [self.blocks, self.entries, self.tombstones, self.payload_bytes] {
            put_u64(&mut out, word);
        }
        for section in [self.index, self.offsets, self.fences, self.keys] {
            put_u64(&mut out, section.offset);
            put_u64(&mut out, section.bytes);
            put_u64(&mut out, section.crc);
        }
        put_u64(&mut out, self.block_bytes);
        out.resize(FOOT_BYTES, 0);
        store_crc(&mut out);
        out
    }

    /// Decodes the footer of a file of `length` bytes.
    fn decode(bytes: &[u8], kind: Kind, identity: &[u8], length: u64) -> Result<Self, FooterError> {
        let bytes = bytes.get(..FOOT_BYTES).ok_or("the footer is cut off")?;
        let mut copy = bytes.to_vec();
        let mut decoder = Decoder::new(bytes);
        let magic = decoder.take(8).unwrap_or(&[]);
        let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32().unwrap_or(0));
        if let Some(field) = copy.get_mut(12..16) {
            field.fill(0);
        }
        if magic != kind.foot_magic || crc32c(&copy) != crc {
            return Err("the footer is missing, or its checksum does not match".into());
        }
        if format > FORMAT {
            return Err(FooterError::Newer(format));
        }
        if format < FORMAT_OLDEST {
            let what = format!("format {format}, this release reads {FORMAT_OLDEST} to {FORMAT}");
            return Err(FooterError::Damaged(what));
        }
        if decoder.take(32) != Some(identity) {
            return Err("the footer belongs to another file".into());
        }
        let mut words = || {
            let mut footer = Self {
                blocks: decoder.u64()?,
                entries: decoder.u64()?,
                tombstones: decoder.u64()?,
                payload_bytes: decoder.u64()?,
                format,
                ..Self::default()
            };
            let Self { index, offsets, fences, keys, .. } = &mut footer;
            for section in [index, offsets, fences, keys] {
                let (offset, bytes) = (decoder.u64()?, decoder.u64()?);
                *section = Section { offset, bytes, crc: decoder.u64()? };
                if offset.checked_add(bytes)? > length {
                    return None;
                }
            }
            footer.block_bytes = decoder.u64().filter(|bytes| *bytes <= BLOCK_BYTES_MAX)?;
            // No compression makes 256 bytes of one.
            let most = length.checked_mul(256)?;
            if footer.entries.max(footer.payload_bytes) > most || footer.tombstones > footer.entries
            {
                return None;
            }
            let counts = footer.blocks.checked_add(1)?.checked_mul(4)?;
            (counts == footer.offsets.bytes).then_some(footer)
        };
        words().ok_or_else(|| {
            "a count or a section in the footer is impossible for the file's length".into()
        })
    }
}

/// An SST that is open for reading. See the module head.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    file: Arc<dyn File>,
    pub(crate) label: String,
    salt: u32,
    pub(crate) file_bytes: u64,
    pub(crate) footer: Footer,
    offsets: BlockOffsets,
    fences: BlockIndex,
    head: Vec<u8>,
    /// The cache handles of its blocks; created when the first block is cached.
    handles: OnceLock<BlockHandles>,
}

/// A range of bytes, and the whole disk blocks to read for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// File offset of the read.
    pub(crate) offset: u64,
    /// Where the wanted bytes begin in the read, and how many they are.
    pub(crate) skip: usize,
    pub(crate) bytes: usize,
}

impl Span {
    pub(crate) fn of(range: Range<u64>) -> Self {
        let offset = range.start & !(BLOCK_BYTES - 1);
        let skip = to_usize(range.start - offset);
        Self { offset, skip, bytes: to_usize(range.end.saturating_sub(range.start)) }
    }

    /// Returns the bytes to read.
    pub(crate) fn whole(&self) -> usize {
        to_usize(round_up(to_u64(self.skip + self.bytes), BLOCK_BYTES))
    }
}

impl Piece {
    /// Opens the SST `number`, which the manifest says has `file_bytes`. Returns `Corruption` if
    /// the file is missing, has another length, or has a damaged footer, offsets or block index.
    /// Reads no blocks.
    pub(crate) fn open(owner: &Owner, number: u64, file_bytes: u64) -> Result<Self> {
        let name = owner.kind.name_of(number);
        let label = owner.label(&name);
        let file = owner.dir.open(&name, Open::READ.direct());
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::corruption(&*label, 0, "the file is missing"),
            _ => Error::io(format!("open {label}"), error),
        })?;
        let length = file.len().map_err(|error| Error::io(format!("read {label}"), error))?;
        if length != file_bytes || length < 2 * BLOCK_BYTES || length % BLOCK_BYTES != 0 {
            let what = format!("the file has {length} bytes, the manifest says {file_bytes}");
            return Err(Error::corruption(label, length, what));
        }
        let salt = block::salt_of(&owner.database_id, owner.table_id, number);
        let mut piece = Self {
            number,
            file,
            label,
            salt,
            file_bytes,
            footer: Footer::default(),
            offsets: BlockOffsets::default(),
            fences: BlockIndex::default(),
            head: Vec::new(),
            handles: OnceLock::new(),
        };
        piece.load(owner)?;
        Ok(piece)
    }

    fn load(&mut self, owner: &Owner) -> Result<()> {
        let at = self.file_bytes - BLOCK_BYTES;
        let foot = self.read(Span::of(at..self.file_bytes))?;
        let mut identity = Vec::new();
        owner.identity(&mut identity, self.number);
        self.footer = Footer::decode(foot.as_slice(), owner.kind, &identity, self.file_bytes)
            .map_err(|refused| self.footer_error(at, refused))?;
        self.head = encode_head(self.footer.format, owner, self.number);
        let offsets = self.section(self.footer.offsets)?;
        let (offsets, _) = offsets.as_chunks::<4>();
        let offsets: Vec<u32> = offsets.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let first = offsets.first().map(|offset| u64::from(*offset) * UNIT_BYTES);
        let last = offsets.last().map_or(0, |offset| u64::from(*offset) * UNIT_BYTES);
        let are_sound = first == Some(BLOCKS_START) && last <= self.footer.index.offset;
        self.offsets = BlockOffsets::new(&offsets)
            .filter(|_| are_sound)
            .ok_or_else(|| self.offsets_damage())?;
        let fences = self.section(self.footer.fences)?;
        let blocks = u32::try_from(self.footer.blocks).unwrap_or(u32::MAX);
        self.fences = BlockIndex::decode(&fences, blocks).ok_or_else(|| {
            self.damage(self.footer.fences.offset, "the block index does not parse")
        })?;
        Ok(())
    }

    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&*self.label, offset, what)
    }

    fn footer_error(&self, at: u64, refused: FooterError) -> Error {
        match refused {
            FooterError::Damaged(what) => self.damage(at, what),
            FooterError::Newer(found) => {
                let file = self.label.clone();
                Error::NewerFormat { file, found, supported: FORMAT }
            }
        }
    }

    fn offsets_damage(&self) -> Error {
        self.damage(
            self.footer.offsets.offset,
            "the block offsets do not ascend, or are outside of the file",
        )
    }

    /// Returns the error for a failed read.
    pub(crate) fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            // Requests are whole disk blocks. Only the continuation after a short read at the end
            // of the file is not, and some systems refuse that.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                self.damage(offset, "the file ends before its data")
            }
            _ => Error::io(format!("read {}", self.label), error),
        }
    }

    /// Returns the salt that distinguishes its blocks from those of other SSTs.
    pub(crate) fn salt(&self) -> u32 {
        self.salt
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Reads a span into a new buffer.
    pub(crate) fn read(&self, span: Span) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(0);
        self.read_into(span, &mut buffer)?;
        Ok(buffer)
    }

    /// Reads a span into `buffer`, which is resized.
    pub(crate) fn read_into(&self, span: Span, buffer: &mut AlignedBuffer) -> Result<()> {
        buffer.fit(span.whole());
        read_exact_at(&*self.file, buffer.as_mut_slice(), span.offset)
            .map_err(|error| self.read_error(span.offset, error))
    }

    /// Reads a section. Returns `Corruption` if its checksum does not match.
    pub(crate) fn section(&self, section: Section) -> Result<Vec<u8>> {
        let span = Span::of(section.offset..section.offset + section.bytes);
        let buffer = self.read(span)?;
        let bytes = buffer.as_slice().get(span.skip..span.skip + span.bytes).unwrap_or(&[]);
        if u64::from(crc32c(bytes)) != section.crc {
            return Err(self.damage(section.offset, "the section's checksum does not match"));
        }
        Ok(bytes.to_vec())
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        low_u32(to_u64(self.offsets.len().saturating_sub(1)))
    }

    /// Returns the bytes of all blocks.
    pub(crate) fn data_bytes(&self) -> u64 {
        let end = self.offsets.last().map_or(0, |offset| u64::from(offset) * UNIT_BYTES);
        end.saturating_sub(BLOCKS_START)
    }

    fn offset(&self, block: u32) -> u64 {
        let offset = self.offsets.get(to_usize(u64::from(block)));
        offset.map_or(0, |offset| u64::from(offset) * UNIT_BYTES)
    }

    /// Returns consecutive blocks from `start` on: at least one, and more until they have `bytes`.
    pub(crate) fn blocks_from(&self, start: u32, bytes: u64) -> Range<u32> {
        let limit = self.offset(start).saturating_add(bytes) / UNIT_BYTES;
        let ends = to_usize(u64::from(start)) + 1..self.offsets.len();
        let end = self.offsets.first_from(ends, limit);
        start..low_u32(to_u64(end)).min(self.blocks())
    }

    /// Returns consecutive blocks before `end`, of about `bytes`.
    pub(crate) fn blocks_before(&self, end: u32, bytes: u64) -> Range<u32> {
        let limit = self.offset(end).saturating_sub(bytes) / UNIT_BYTES;
        let start = self.offsets.first_from(0..to_usize(u64::from(end)), limit);
        low_u32(to_u64(start)).min(end.saturating_sub(1))..end
    }

    /// Returns the blocks that may hold a key: see [`BlockIndex::seek`]. Returns all of them if
    /// there is no block index.
    pub(crate) fn seek(&self, key: &[u8]) -> Range<u32> {
        self.fences.seek(key).unwrap_or(0..self.blocks())
    }

    /// Returns the span of consecutive blocks.
    pub(crate) fn span(&self, blocks: Range<u32>) -> Span {
        Span::of(self.offset(blocks.start)..self.offset(blocks.end))
    }

    /// Returns the bytes between the first block of the range and the block at its end.
    pub(crate) fn gap_bytes(&self, blocks: Range<u32>) -> u64 {
        self.offset(blocks.end).saturating_sub(self.offset(blocks.start.saturating_add(1)))
    }

    /// Extends a range of blocks in the direction of a scan by those that the same disk read
    /// contains as a whole.
    pub(crate) fn whole_blocks(&self, blocks: Range<u32>, way: Direction) -> Range<u32> {
        let span = self.span(blocks.clone());
        let end = span.offset + to_u64(span.whole());
        let Range { start: mut first, end: mut last } = blocks;
        match way {
            Direction::Up => {
                while last < self.blocks() && self.offset(last + 1) <= end {
                    last += 1;
                }
            }
            Direction::Down => {
                while first > 0 && self.offset(first - 1) >= span.offset {
                    first -= 1;
                }
            }
        }
        first..last
    }

    /// Verifies block `number` in a span that was read from block `first` on. Returns `Corruption`
    /// if its checksum does not match.
    pub(crate) fn open_block<'a>(
        &self,
        buffer: &'a AlignedBuffer,
        span: Span,
        (first, number): (u32, u32),
    ) -> Result<OpenBlock<'a>> {
        let at = |block| to_usize(self.offset(block).saturating_sub(self.offset(first)));
        let (start, end) = (at(number) + span.skip, at(number.saturating_add(1)) + span.skip);
        let stored = buffer.as_slice().get(start..end).unwrap_or(&[]);
        let place = (self.salt, number);
        let entries = mutant!(TphSkipsBlockChecksum: Ok(mutants::open(stored)), else block::open(stored, place));
        let entries = entries.map_err(|what| self.damage(self.offset(number), what))?;
        Ok(OpenBlock { stored, start, entries })
    }

    /// Returns the cache handle of a block, if any block of this SST is cached.
    #[inline]
    pub(crate) fn slot(&self, block: u32) -> Option<BlockRef<'_>> {
        self.handles.get()?.get(block)
    }

    /// Returns the cache handle of a block, to be filled; `None` if the cache is off.
    pub(crate) fn slot_to_fill(
        &self,
        block: u32,
        cache: &DecodedBlockCache,
    ) -> Option<BlockRef<'_>> {
        if !cache.blocks.is_on() {
            return None;
        }
        let made = || cache.handles(self.number).with_count(self.blocks());
        self.handles.get_or_init(made).get(block)
    }

    /// Returns the admission class for a block that an entry of `block` is copied to: a block that
    /// was used stays cached.
    pub(crate) fn room_of_copy(&self, block: u32, cache: &DecodedBlockCache) -> CacheAdmission {
        let is_used = self.slot(block).is_some_and(|slot| cache.blocks.is_used(slot));
        if is_used { CacheAdmission::Hot } else { CacheAdmission::IfFree }
    }

    /// Returns the bytes of memory of offsets and block index, without the engine's index.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.offsets.memory_bytes() + self.fences.memory_bytes()
    }

    /// Returns `Corruption` if the head of the file is not that of this SST.
    pub(crate) fn check_head(&self) -> Result<()> {
        let buffer = self.read(Span::of(0..to_u64(HEAD_BYTES)))?;
        if buffer.as_slice().get(..HEAD_BYTES) == Some(&*self.head) {
            return Ok(());
        }
        Err(self.damage(0, "the head of the file does not match its name and table"))
    }
}

/// A block whose checksum matched.
#[derive(Debug)]
pub(crate) struct OpenBlock<'a> {
    stored: &'a [u8],
    /// Where it begins in the read buffer.
    start: usize,
    entries: BlockEntries,
}

impl OpenBlock<'_> {
    /// Returns where its entries are in the read buffer; `None` for a compressed block.
    pub(crate) fn in_place(&self) -> Option<Range<usize>> {
        match &self.entries {
            BlockEntries::Plain(range) => Some(self.start + range.start..self.start + range.end),
            BlockEntries::Unpacked(_) => None,
        }
    }

    /// Returns its entries as a vector.
    pub(crate) fn into_entries(self) -> Vec<u8> {
        match self.entries {
            BlockEntries::Plain(range) => self.stored.get(range).unwrap_or(&[]).to_vec(),
            BlockEntries::Unpacked(bytes) => bytes,
        }
    }

    /// Returns its entries.
    pub(crate) fn entries(&self) -> &[u8] {
        match &self.entries {
            BlockEntries::Plain(range) => self.stored.get(range.clone()).unwrap_or(&[]),
            BlockEntries::Unpacked(bytes) => bytes,
        }
    }
}

/// Decodes the head of an SST: database id, table id, number. Returns `None` if its checksum does
/// not match.
pub(crate) fn decode_identity(bytes: &[u8]) -> Option<([u8; 16], u64, u64)> {
    let mut copy = bytes.get(..HEAD_BYTES)?.to_vec();
    let mut decoder = Decoder::new(copy.get(12..)?);
    let crc = decoder.u32()?;
    let found = (decoder.id()?, decoder.u64()?, decoder.u64()?);
    copy.get_mut(12..16)?.fill(0);
    (crc32c(&copy) == crc).then_some(found)
}

/// Reads the head of a file, or as much of it as there is.
pub(crate) fn read_head(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD_BYTES];
    let count = read_up_to(file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
