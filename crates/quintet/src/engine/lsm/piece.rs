//! Pieces: immutable files of blocks in key order. `tph` groups pieces (`.ph`) into tables, whose
//! index lies in the newest one; `slm` calls a piece a run (`.run`), and what finds its entries is
//! elsewhere.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHPIEC`, or `QSLMRUN\0` of a run |
//! | 8 | 4 | format | 2 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 63 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of the piece, never used again |
//! | 48 | 16 | reserved | 0 |
//! | 4096 | | blocks | [`super::block`], back to back; zeros up to a multiple of 4096 before a block where they are few |
//! | | | index | of the table, as `tph` has it; of a run, its first and last key (varint lengths) |
//! | | | offsets | where each block begins and the last ends, in units of 8 bytes: 4 bytes each |
//! | | | fences | where walks begin, [`super::fences`]; of a run, whose entries the index finds, none |
//! | | | keys | without their values, [`super::keys`]; of pieces of `tph`, where that pays |
//! | end - 4096 | 192 | footer | below |
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHFOOT`, or `QSLMFOOT` |
//! | 8 | 4 | format | 2 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 191 with this field zero |
//! | 16 | 32 | identity | database id, table id, number |
//! | 48 | 8 | blocks | how many |
//! | 56 | 8 | entries | tombstones included |
//! | 64 | 8 | tombstones | |
//! | 72 | 8 | payload bytes | of keys and values |
//! | 80 | 72 | sections | of index, offsets, fences: offset, size, CRC32C (8 bytes each) |
//! | 152 | 24 | keys | their section |
//! | 176 | 8 | block bytes | that blocks were made of (`block_bytes`); 0 in files of builds that did not say |
//! | 184 | 8 | reserved | 0 |
//!
//! Invariants: a piece is complete and durable before the manifest names it, and is never changed.
//! The footer is found by the length that the manifest says.
//!
//! Gets come with a block's number from the index; only seeks look for a key, by the fences.
//!
//! How we differ from the paper: entries are in key order, not in the order of slots, so scans
//! read what lies together; the slot names the block. No local hash table is needed for that.

#![deny(clippy::indexing_slicing)]

use std::{io, mem, ops::Range, sync::Arc};

use super::{
    block::{self, Entries, HEAD_BYTES as BLOCK_HEAD_BYTES, Packing, UNIT_BYTES},
    cached::Cache,
    fences::{self, Fences},
    keys::Gather,
    offsets::Offsets,
    walk::Way,
};
use crate::{
    Error, Result,
    budget::Charge,
    codec::{
        Decoder, crc32c, crc32c_append, low_u32, put_u32, put_u64, round_up, to_u64, to_usize,
    },
    disk::{
        AlignedBuffer, BLOCK_BYTES, Dir, File, Flow, Open, Pending, Request, read_exact_at,
        read_up_to, write_all_at,
    },
    pages::blocks::{Places, Room, Slot},
    seeded::{self, Bug},
    sync::OnceLock,
};

const FORMAT: u32 = 2;
/// The most that `block_bytes` may be.
pub(crate) const BLOCK_BYTES_MOST: u64 = 1 << 20;
const HEAD_BYTES: usize = 64;
const FOOT_BYTES: usize = 192;
/// Data is handed to the disk in pieces of at least and at most this size.
const WRITE_BYTES_MIN: u64 = 128 << 10;
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// Where blocks begin.
const BLOCKS_START: u64 = BLOCK_BYTES;
/// A block begins at a disk block of its own where at most this part of the one before is wasted:
/// then a get reads one.
const WASTE_SHARE: u64 = 16;

/// What the files are called, and what they begin with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) magic: [u8; 8],
    foot_magic: [u8; 8],
    suffix: &'static str,
    /// Walks begin at keys: it has fences.
    has_fences: bool,
}

impl Kind {
    /// A piece of a table of `tph`.
    pub(crate) const PIECE: Self =
        Self { magic: *b"QTPHPIEC", foot_magic: *b"QTPHFOOT", suffix: ".ph", has_fences: true };
    /// A run of `slm`.
    pub(crate) const RUN: Self =
        Self { magic: *b"QSLMRUN\0", foot_magic: *b"QSLMFOOT", suffix: ".run", has_fences: false };

    /// The name of a file.
    pub(crate) fn name_of(self, number: u64) -> String {
        format!("{number:08x}{}", self.suffix)
    }

    /// The number in a file's name.
    pub(crate) fn number_of(self, name: &str) -> Option<u64> {
        let digits = name.strip_suffix(self.suffix).filter(|digits| digits.len() >= 8)?;
        u64::from_str_radix(digits, 16).ok().filter(|number| self.name_of(*number) == name)
    }
}

/// Who the files belong to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) database_id: [u8; 16],
    pub(crate) table_id: u64,
}

impl Owner {
    /// A file's name for messages.
    pub(crate) fn label(&self, name: &str) -> String {
        format!("tables/{}/{name}", self.table_id)
    }

    fn identity(&self, out: &mut Vec<u8>, number: u64) {
        out.extend_from_slice(&self.database_id);
        put_u64(out, self.table_id);
        put_u64(out, number);
    }
}

/// Puts the CRC into bytes 12 to 15.
fn sign(bytes: &mut [u8]) {
    let crc = crc32c(bytes).to_le_bytes();
    if let Some(field) = bytes.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
}

fn begin(magic: [u8; 8], owner: &Owner, number: u64) -> Vec<u8> {
    let mut out = magic.to_vec();
    put_u32(&mut out, FORMAT);
    put_u32(&mut out, 0);
    owner.identity(&mut out, number);
    out
}

fn head(owner: &Owner, number: u64) -> Vec<u8> {
    let mut out = begin(owner.kind.magic, owner, number);
    out.resize(HEAD_BYTES, 0);
    sign(&mut out);
    out
}

/// A range of a file with its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    crc: u64,
}

/// What a piece says of itself.
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
    /// What blocks were to have at most; 0: unknown.
    pub(crate) block_bytes: u64,
}

impl Footer {
    fn encode(&self, owner: &Owner, number: u64) -> Vec<u8> {
        let mut out = begin(owner.kind.foot_magic, owner, number);
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
        sign(&mut out);
        out
    }

    /// Decodes the footer of a file of this length; says what is wrong with a damaged one.
    fn decode(bytes: &[u8], kind: Kind, identity: &[u8], length: u64) -> Result<Self, String> {
        let bytes = bytes.get(..FOOT_BYTES).ok_or("the footer is cut off")?;
        let mut copy = bytes.to_vec();
        let mut decoder = Decoder::new(bytes);
        let magic = decoder.take(8).unwrap_or(&[]);
        let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32().unwrap_or(0));
        if let Some(field) = copy.get_mut(12..16) {
            field.fill(0);
        }
        if magic != kind.foot_magic || crc32c(&copy) != crc {
            return Err("no footer, or its checksum does not match".to_owned());
        }
        if format != FORMAT {
            return Err(format!("format {format}, this release reads {FORMAT}"));
        }
        if decoder.take(32) != Some(identity) {
            return Err("the footer is that of another piece".to_owned());
        }
        let mut words = || {
            let mut footer = Self {
                blocks: decoder.u64()?,
                entries: decoder.u64()?,
                tombstones: decoder.u64()?,
                payload_bytes: decoder.u64()?,
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
            footer.block_bytes = decoder.u64().filter(|bytes| *bytes <= BLOCK_BYTES_MOST)?;
            // No packing makes 256 bytes of one.
            let most = length.checked_mul(256)?;
            if footer.entries.max(footer.payload_bytes) > most || footer.tombstones > footer.entries
            {
                return None;
            }
            let counts = footer.blocks.checked_add(1)?.checked_mul(4)?;
            (counts == footer.offsets.bytes).then_some(footer)
        };
        words().ok_or_else(|| "the footer names what the file cannot hold".to_owned())
    }
}

/// A piece, open for reading. See the module head.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    file: Arc<dyn File>,
    pub(crate) label: String,
    salt: u32,
    pub(crate) file_bytes: u64,
    pub(crate) footer: Footer,
    offsets: Offsets,
    fences: Fences,
    head: Vec<u8>,
    /// Where its blocks are in the cache; made when the first one is put there.
    places: OnceLock<Places>,
}

/// A read of whole disk blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Where in the file.
    pub(crate) offset: u64,
    /// Where the wanted bytes begin in it, and how many there are.
    pub(crate) skip: usize,
    pub(crate) bytes: usize,
}

impl Span {
    pub(crate) fn of(range: Range<u64>) -> Self {
        let offset = range.start & !(BLOCK_BYTES - 1);
        let skip = to_usize(range.start - offset);
        Self { offset, skip, bytes: to_usize(range.end.saturating_sub(range.start)) }
    }

    /// Bytes to be read.
    pub(crate) fn whole(&self) -> usize {
        to_usize(round_up(to_u64(self.skip + self.bytes), BLOCK_BYTES))
    }
}

impl Piece {
    /// Opens a piece of the length that the manifest says.
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
        let head = head(owner, number);
        let mut piece = Self {
            number,
            file,
            label,
            salt,
            file_bytes,
            footer: Footer::default(),
            offsets: Offsets::default(),
            fences: Fences::default(),
            head,
            places: OnceLock::new(),
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
            .map_err(|what| self.damage(at, what))?;
        let offsets = self.section(self.footer.offsets)?;
        let (offsets, _) = offsets.as_chunks::<4>();
        let offsets: Vec<u32> = offsets.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let first = offsets.first().map(|offset| u64::from(*offset) * UNIT_BYTES);
        let last = offsets.last().map_or(0, |offset| u64::from(*offset) * UNIT_BYTES);
        let are_sound = first == Some(BLOCKS_START) && last <= self.footer.index.offset;
        self.offsets =
            Offsets::new(&offsets).filter(|_| are_sound).ok_or_else(|| self.offsets_damage())?;
        let fences = self.section(self.footer.fences)?;
        let blocks = u32::try_from(self.footer.blocks).unwrap_or(u32::MAX);
        self.fences = Fences::decode(&fences, blocks)
            .ok_or_else(|| self.damage(self.footer.fences.offset, "the fences do not parse"))?;
        Ok(())
    }

    pub(crate) fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&*self.label, offset, what)
    }

    fn offsets_damage(&self) -> Error {
        self.damage(self.footer.offsets.offset, "the offsets of blocks are impossible")
    }

    /// What became of a read.
    pub(crate) fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            // Requests are whole blocks: only what goes on after a short read at the end of the
            // file is not, and some systems refuse that.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                self.damage(offset, "the file ends before its data")
            }
            _ => Error::io(format!("read {}", self.label), error),
        }
    }

    /// What tells its blocks from those of other pieces.
    pub(crate) fn salt(&self) -> u32 {
        self.salt
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Reads a span.
    pub(crate) fn read(&self, span: Span) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(0);
        self.read_into(span, &mut buffer)?;
        Ok(buffer)
    }

    /// The same, into a buffer that is used again.
    pub(crate) fn read_into(&self, span: Span, buffer: &mut AlignedBuffer) -> Result<()> {
        buffer.fit(span.whole());
        read_exact_at(&*self.file, buffer.as_mut_slice(), span.offset)
            .map_err(|error| self.read_error(span.offset, error))
    }

    /// A section's bytes, verified.
    pub(crate) fn section(&self, section: Section) -> Result<Vec<u8>> {
        let span = Span::of(section.offset..section.offset + section.bytes);
        let buffer = self.read(span)?;
        let bytes = buffer.as_slice().get(span.skip..span.skip + span.bytes).unwrap_or(&[]);
        if u64::from(crc32c(bytes)) != section.crc {
            return Err(self.damage(section.offset, "the section's checksum does not match"));
        }
        Ok(bytes.to_vec())
    }

    /// How many blocks.
    pub(crate) fn blocks(&self) -> u32 {
        low_u32(to_u64(self.offsets.len().saturating_sub(1)))
    }

    /// Bytes of the blocks.
    pub(crate) fn data_bytes(&self) -> u64 {
        let end = self.offsets.last().map_or(0, |offset| u64::from(offset) * UNIT_BYTES);
        end.saturating_sub(BLOCKS_START)
    }

    fn offset(&self, block: u32) -> u64 {
        let offset = self.offsets.get(to_usize(u64::from(block)));
        offset.map_or(0, |offset| u64::from(offset) * UNIT_BYTES)
    }

    /// A run of blocks from `start` on: at least one, while those before it have fewer than so many
    /// bytes.
    pub(crate) fn blocks_from(&self, start: u32, bytes: u64) -> Range<u32> {
        let limit = self.offset(start).saturating_add(bytes) / UNIT_BYTES;
        let ends = to_usize(u64::from(start)) + 1..self.offsets.len();
        let end = self.offsets.first_from(ends, limit);
        start..low_u32(to_u64(end)).min(self.blocks())
    }

    /// A run of blocks before `end`, of about so many bytes.
    pub(crate) fn blocks_before(&self, end: u32, bytes: u64) -> Range<u32> {
        let limit = self.offset(end).saturating_sub(bytes) / UNIT_BYTES;
        let start = self.offsets.first_from(0..to_usize(u64::from(end)), limit);
        low_u32(to_u64(start)).min(end.saturating_sub(1))..end
    }

    /// The blocks that may hold a key: see [`Fences::seek`]. All of them, where there are no
    /// fences.
    pub(crate) fn seek(&self, key: &[u8]) -> Range<u32> {
        self.fences.seek(key).unwrap_or(0..self.blocks())
    }

    /// Where a run of blocks is in the file.
    pub(crate) fn span(&self, blocks: Range<u32>) -> Span {
        Span::of(self.offset(blocks.start)..self.offset(blocks.end))
    }

    /// Bytes between two blocks.
    pub(crate) fn gap_bytes(&self, blocks: Range<u32>) -> u64 {
        self.offset(blocks.end).saturating_sub(self.offset(blocks.start.saturating_add(1)))
    }

    /// Some blocks, and those that follow them on a way and come whole with what is read of the
    /// disk for them.
    pub(crate) fn whole_blocks(&self, blocks: Range<u32>, way: Way) -> Range<u32> {
        let span = self.span(blocks.clone());
        let end = span.offset + to_u64(span.whole());
        let Range { start: mut first, end: mut last } = blocks;
        match way {
            Way::Up => {
                while last < self.blocks() && self.offset(last + 1) <= end {
                    last += 1;
                }
            }
            Way::Down => {
                while first > 0 && self.offset(first - 1) >= span.offset {
                    first -= 1;
                }
            }
        }
        first..last
    }

    /// Verifies one block of a span that was read from block `first` on.
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
        if seeded::active(Bug::TphSkipsBlockChecksum) {
            let entries = Entries::Plain(BLOCK_HEAD_BYTES..stored.len());
            return Ok(OpenBlock { stored, start, entries });
        }
        let entries = block::open(stored, place);
        let entries = entries.map_err(|what| self.damage(self.offset(number), what))?;
        Ok(OpenBlock { stored, start, entries })
    }

    /// Where a block is in the cache, if any block of this piece is.
    #[inline]
    pub(crate) fn slot(&self, block: u32) -> Option<Slot<'_>> {
        self.places.get()?.get(block)
    }

    /// The same, for one that is to be put there.
    pub(crate) fn slot_to_fill(&self, block: u32, cache: &Cache) -> Option<Slot<'_>> {
        if !cache.blocks.is_on() {
            return None;
        }
        let made = || cache.places(self.number).with_count(self.blocks());
        self.places.get_or_init(made).get(block)
    }

    /// What room a block gets that an entry of this one is copied to: what is used stays.
    pub(crate) fn room_of_copy(&self, block: u32, cache: &Cache) -> Room {
        let is_used = self.slot(block).is_some_and(|slot| cache.blocks.is_used(slot));
        if is_used { Room::Kept } else { Room::Spare }
    }

    /// Bytes of memory that finding entries takes, without the table's index.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.offsets.memory_bytes() + self.fences.memory_bytes()
    }

    /// What is wrong with the head.
    pub(crate) fn check_head(&self) -> Result<()> {
        let buffer = self.read(Span::of(0..to_u64(HEAD_BYTES)))?;
        if buffer.as_slice().get(..HEAD_BYTES) == Some(&*self.head) {
            return Ok(());
        }
        Err(self.damage(0, "the head is not that of this piece"))
    }
}

/// A block whose checksum matched.
#[derive(Debug)]
pub(crate) struct OpenBlock<'a> {
    stored: &'a [u8],
    /// Where it begins in what was read.
    start: usize,
    entries: Entries,
}

impl OpenBlock<'_> {
    /// Where its entries are in what was read; `None` of a packed block.
    pub(crate) fn in_place(&self) -> Option<Range<usize>> {
        match &self.entries {
            Entries::Plain(range) => Some(self.start + range.start..self.start + range.end),
            Entries::Unpacked(_) => None,
        }
    }

    /// Its entries.
    pub(crate) fn entries(&self) -> &[u8] {
        match &self.entries {
            Entries::Plain(range) => self.stored.get(range.clone()).unwrap_or(&[]),
            Entries::Unpacked(bytes) => bytes,
        }
    }
}

/// How pieces are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) block_bytes: usize,
    pub(crate) packing: Packing,
    /// Data is handed to the disk when there is so much.
    pub(crate) write_bytes: usize,
    /// Keys are kept apart from their values too, where that pays.
    pub(crate) keys: bool,
}

impl Shape {
    /// How much is handed to the disk at once with a memory budget of so many bytes.
    pub(crate) fn write_bytes(budget: u64) -> usize {
        to_usize((budget / 128).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX))
    }
}

/// Writes a piece: entries in key order, then the index. The disk takes one part while the next one
/// is filled.
#[derive(Debug)]
pub(crate) struct Writer {
    owner: Owner,
    number: u64,
    label: String,
    file: Arc<dyn File>,
    shape: Shape,
    salt: u32,
    /// What is not yet handed to the disk, and where it goes.
    buffer: Vec<u8>,
    written: u64,
    /// What was handed to the disk is on its way, or was last.
    flow: Flow,
    under_way: Option<Pending>,
    aligned: AlignedBuffer,
    offsets: Vec<u32>,
    /// Entries of the block that is filled.
    entries: Vec<u8>,
    /// The last key.
    last_key: Vec<u8>,
    /// Keys apart, and the memory that they take until the piece is finished.
    keys: Option<(Gather, Charge)>,
    fences: fences::Builder,
    /// Entries of the piece before the block that is filled.
    entries_before: u64,
    footer: Footer,
    /// Where blocks go that were written, and what room the one gets that is filled.
    cache: Arc<Cache>,
    places: Places,
    room: Room,
}

impl Writer {
    /// Makes the file. Its name is durable after the directory's next sync.
    pub(crate) fn create(
        owner: &Owner,
        number: u64,
        shape: Shape,
        (cache, flow): (&Arc<Cache>, &Flow),
    ) -> Result<Self> {
        let name = owner.kind.name_of(number);
        let label = owner.label(&name);
        let file = owner.dir.open(&name, Open::CREATE.direct());
        let file = file.map_err(|error| Error::io(format!("create {label}"), error))?;
        let mut buffer = head(owner, number);
        buffer.resize(to_usize(BLOCKS_START), 0);
        let first = low_u32(BLOCKS_START / UNIT_BYTES);
        Ok(Self {
            owner: owner.clone(),
            number,
            label,
            file,
            shape,
            salt: block::salt_of(&owner.database_id, owner.table_id, number),
            buffer,
            written: 0,
            flow: flow.clone(),
            under_way: None,
            aligned: AlignedBuffer::zeroed(0),
            offsets: vec![first],
            entries: Vec::new(),
            last_key: Vec::new(),
            keys: shape.keys.then(|| (Gather::default(), cache.charge(0))),
            fences: fences::Builder::default(),
            entries_before: 0,
            footer: Footer { block_bytes: to_u64(shape.block_bytes), ..Footer::default() },
            places: cache.places(number),
            cache: Arc::clone(cache),
            room: Room::Spare,
        })
    }

    /// Where the next byte goes.
    fn position(&self) -> u64 {
        self.written + to_u64(self.buffer.len())
    }

    /// Bytes of blocks so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.position() + to_u64(self.entries.len()) - BLOCKS_START
    }

    /// Adds an entry, `None` for a tombstone; the number of its block, and where it begins among
    /// the block's entries. The block gets the most room in the cache that an entry of it wants.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        room: Room,
    ) -> Result<(u32, usize)> {
        let bytes = block::entry_bytes(key.len(), value.map_or(0, <[u8]>::len));
        let most = self.shape.block_bytes - BLOCK_HEAD_BYTES;
        if !self.entries.is_empty() && self.entries.len() + bytes > most {
            self.end_block()?;
        }
        if self.entries.is_empty() && self.owner.kind.has_fences {
            self.fences.begin_block(&self.last_key, key);
        }
        self.room = self.room.max(room);
        let number = low_u32(to_u64(self.offsets.len() - 1));
        let offset = self.entries.len();
        block::put_entry(&mut self.entries, key, value);
        self.footer.entries += 1;
        self.footer.tombstones += u64::from(value.is_none());
        self.footer.payload_bytes += to_u64(key.len() + value.map_or(0, <[u8]>::len));
        if let Some((keys, charge)) = &mut self.keys
            && keys.add((&self.last_key, key), number, value.map(<[u8]>::len), self.salt)
        {
            *charge = self.cache.charge(keys.bytes());
            self.keys = self.keys.take().filter(|(keys, _)| keys.pays(self.footer.payload_bytes));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok((number, offset))
    }

    fn end_block(&mut self) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let number = low_u32(to_u64(self.offsets.len() - 1));
        let place = (self.salt, number);
        let start = self.position();
        block::put_block(&mut self.buffer, &self.entries, place, self.shape.packing);
        let directory = self.cache.directory(&self.entries);
        let payload = directory.as_deref().map(|directory| [directory, &*self.entries]);
        let room = mem::replace(&mut self.room, Room::Spare);
        self.places.push(payload.as_ref().map(|payload| &payload[..]), room);
        self.entries.clear();
        let waste = self.position().next_multiple_of(BLOCK_BYTES) - self.position();
        // Where packed bytes end, only the next block's place tells.
        let is_plain = self.shape.packing == Packing::None;
        if is_plain && waste <= (self.position() - start) / WASTE_SHARE {
            self.buffer.resize(self.buffer.len() + to_usize(waste), 0);
        }
        let end = self.position();
        let too_large = |_| Error::Limit { what: format!("{} exceeds 32 GiB", self.label) };
        self.offsets.push(u32::try_from(end / UNIT_BYTES).map_err(too_large)?);
        let entries = self.footer.entries - self.entries_before;
        self.fences.end_block(end - start, entries, &self.last_key);
        self.entries_before = self.footer.entries;
        if self.buffer.len() >= self.shape.write_bytes { self.write_whole() } else { Ok(()) }
    }

    /// Hands all whole disk blocks of the buffer to the disk, once it has what came before.
    fn write_whole(&mut self) -> Result<()> {
        self.wait()?;
        let length = self.buffer.len() & !(to_usize(BLOCK_BYTES) - 1);
        let mut buffer = mem::replace(&mut self.aligned, AlignedBuffer::zeroed(0));
        buffer.fit(length);
        if let Some(source) = self.buffer.get(..length) {
            buffer.as_mut_slice().copy_from_slice(source);
        }
        let (file, offset) = (Arc::clone(&self.file), self.written);
        self.under_way = Some(self.flow.start(Request::Write { file, offset, buffer, length }));
        self.buffer.drain(..length);
        self.written += to_u64(length);
        Ok(())
    }

    /// Waits until the disk has what it was handed.
    fn wait(&mut self) -> Result<()> {
        let Some(write) = self.under_way.take() else { return Ok(()) };
        let done = write.wait();
        self.aligned = done.buffer;
        done.result.map_err(|error| Error::io(format!("write {}", self.label), error))?;
        Ok(())
    }

    /// Writes a section that comes in parts.
    fn put_section(
        &mut self,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Section> {
        let offset = self.position();
        let mut crc = 0;
        for part in parts {
            crc = crc32c_append(crc, part.as_ref());
            for piece in part.as_ref().chunks(self.shape.write_bytes) {
                self.buffer.extend_from_slice(piece);
                if self.buffer.len() >= self.shape.write_bytes {
                    self.write_whole()?;
                }
            }
        }
        Ok(Section { offset, bytes: self.position() - offset, crc: u64::from(crc) })
    }

    /// Ends the blocks: how many there are.
    pub(crate) fn end_blocks(&mut self) -> Result<u32> {
        self.end_block()?;
        Ok(low_u32(to_u64(self.offsets.len() - 1)))
    }

    /// Writes what is buffered, so that the blocks can be read from the file.
    pub(crate) fn reader(&mut self) -> Result<BlockReader<'_>> {
        self.end_blocks()?;
        self.wait()?;
        let rest = self.buffer.len().next_multiple_of(to_usize(BLOCK_BYTES));
        let mut aligned = AlignedBuffer::zeroed(rest);
        if let Some(target) = aligned.as_mut_slice().get_mut(..self.buffer.len()) {
            target.copy_from_slice(&self.buffer);
        }
        write_all_at(&*self.file, aligned.as_slice(), self.written)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        Ok(BlockReader(self))
    }

    /// Ends the file with the table's index, which comes in parts, and makes it durable. Its name
    /// is not, yet.
    pub(crate) fn finish(
        mut self,
        index: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Piece> {
        let blocks = self.end_blocks()?;
        self.footer.blocks = u64::from(blocks);
        self.footer.index = self.put_section(index)?;
        let offsets: Vec<u8> =
            self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        self.footer.offsets = self.put_section([offsets])?;
        let fences = self.fences.finish(&self.last_key);
        self.footer.fences = self.put_section([&fences])?;
        let keys = self.keys.take().filter(|(keys, _)| keys.pays(self.footer.payload_bytes));
        if let Some((keys, _charge)) = keys {
            self.footer.keys = self.put_section([keys.finish(self.salt)])?;
        }
        let block = to_usize(BLOCK_BYTES);
        self.buffer.resize(self.buffer.len().next_multiple_of(block), 0);
        self.buffer.extend(self.footer.encode(&self.owner, self.number));
        self.buffer.resize(self.buffer.len().next_multiple_of(block), 0);
        self.write_whole()?;
        if !seeded::active(Bug::LsmSyncsUnderWrite) {
            self.wait()?;
        }
        if !seeded::active(Bug::TphSkipsPieceSync) {
            let synced = self.file.sync_data();
            synced.map_err(|error| Error::io(format!("sync {}", self.label), error))?;
        }
        let damage = |what: &str| Error::corruption(&*self.label, 0, what);
        let fences = Fences::decode(&fences, blocks);
        Ok(Piece {
            number: self.number,
            salt: self.salt,
            file_bytes: self.written,
            footer: self.footer,
            fences: fences.ok_or_else(|| damage("the fences do not parse"))?,
            head: head(&self.owner, self.number),
            places: OnceLock::from(self.places.with_count(blocks)),
            offsets: Offsets::new(&self.offsets)
                .ok_or_else(|| damage("the offsets of blocks are impossible"))?,
            label: self.label,
            file: self.file,
        })
    }
}

/// Reads blocks of a piece that is being written.
#[derive(Debug)]
pub(crate) struct BlockReader<'a>(&'a Writer);

impl BlockReader<'_> {
    /// The entries of a block.
    pub(crate) fn entries(&self, number: u32) -> Result<Vec<u8>> {
        let writer = self.0;
        let at = |block: u32| {
            let offset = writer.offsets.get(to_usize(u64::from(block)));
            offset.map_or(0, |offset| u64::from(*offset) * UNIT_BYTES)
        };
        let span = Span::of(at(number)..at(number + 1));
        let mut buffer = AlignedBuffer::zeroed(span.whole());
        read_exact_at(&*writer.file, buffer.as_mut_slice(), span.offset)
            .map_err(|error| Error::io(format!("read {}", writer.label), error))?;
        let stored = buffer.as_slice().get(span.skip..span.skip + span.bytes).unwrap_or(&[]);
        let entries = block::open(stored, (writer.salt, number));
        let damage = |what: &str| Error::corruption(&*writer.label, at(number), what);
        match entries.map_err(damage)? {
            Entries::Plain(range) => Ok(stored.get(range).unwrap_or(&[]).to_vec()),
            Entries::Unpacked(bytes) => Ok(bytes),
        }
    }
}

/// What the head of a piece says: the owner's ids and the number.
pub(crate) fn identity_of(bytes: &[u8]) -> Option<([u8; 16], u64, u64)> {
    let mut copy = bytes.get(..HEAD_BYTES)?.to_vec();
    let mut decoder = Decoder::new(copy.get(12..)?);
    let crc = decoder.u32()?;
    let found = (decoder.id()?, decoder.u64()?, decoder.u64()?);
    copy.get_mut(12..16)?.fill(0);
    (crc32c(&copy) == crc).then_some(found)
}

/// Reads the first bytes of a file, for those who look at it.
pub(crate) fn first_bytes(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD_BYTES];
    let count = read_up_to(file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
