//! An open SST: reads and verifies its sections and blocks, and finds blocks by key and by offset.
//!
//! In memory it has the footer, the block offsets and the block index. It does not cache blocks
//! itself: it has the cache handles of its blocks.
//!
//! Threads: any; all methods take `&self` and no lock.

use std::{io, ops::Range, sync::Arc};

use super::{
    block::{BlockEntries, UNIT_BYTES, open, salt_of},
    block_index::BlockIndex,
    block_offsets::BlockOffsets,
    decoded_block::DecodedBlockCache,
    footer::{
        BLOCKS_START, FORMAT, Footer, FooterError, HEAD_BYTES, Section, SstOwner, encode_head,
    },
    mutants::open_unverified,
    order_section::{CHUNK_BYTES, CHUNK_SALT, EntryLocation, chunk_count},
};
use crate::{
    Error, Result,
    contract::Direction,
    io::{AlignedBuffer, BLOCK_BYTES, File, Open, Stopwatch, read_exact_at},
    lsm::block_cache::{BlockHandles, BlockRef, CacheAdmission},
    util::{
        codec::{crc32c, low_u32, put_u64, round_up, to_u64, to_usize},
        mutant::mutant,
        sync::OnceLock,
    },
};

/// An SST that is open for reading. See the head of [`super`].
#[derive(Debug)]
pub(crate) struct Sst {
    pub(crate) number: u64,
    pub(super) file: Arc<dyn File>,
    pub(crate) label: String,
    pub(super) salt: u32,
    pub(crate) file_bytes: u64,
    pub(crate) footer: Footer,
    pub(super) offsets: BlockOffsets,
    pub(super) fences: BlockIndex,
    pub(super) head: Vec<u8>,
    /// The cache handles of its blocks; created when the first block is cached.
    pub(super) handles: OnceLock<BlockHandles>,
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

impl Sst {
    /// Opens the SST `number`, which the manifest says has `file_bytes`. Returns `Corruption` if
    /// the file is missing, has another length, or has a damaged footer, offsets or block index.
    /// Reads no blocks.
    pub(crate) fn open(owner: &SstOwner, number: u64, file_bytes: u64) -> Result<Self> {
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
        let salt = salt_of(&owner.database_id, owner.table_id, number);
        let mut sst = Self {
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
        sst.load(owner)?;
        Ok(sst)
    }

    fn load(&mut self, owner: &SstOwner) -> Result<()> {
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
        if owner.kind.has_slots {
            return Ok(());
        }
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
            FooterError::OtherKind(tiers) => Error::InvalidOption {
                name: "tiers".to_owned(),
                what: format!(
                    "{} was written with tiers={tiers}; the option is fixed when a table is \
                     created",
                    self.label
                ),
            },
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
        let watch = Stopwatch::start();
        let outcome = read_exact_at(&*self.file, buffer.as_mut_slice(), span.offset);
        watch.stop(|counters, time| {
            counters.file_reads += 1;
            counters.file_read_bytes += to_u64(span.whole());
            counters.file_read_time += time;
        });
        outcome.map_err(|error| self.read_error(span.offset, error))
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
        let entries =
            mutant!(TphSkipsBlockChecksum: Ok(open_unverified(stored)), else open(stored, place));
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
        let count = self.blocks() + chunk_count(self.footer.order.bytes);
        let made = || cache.handles(self.number).with_count(count);
        self.handles.get_or_init(made).get(block)
    }

    /// Returns the admission class for a block that an entry of `block` is copied to: a block that
    /// was used stays cached.
    pub(crate) fn room_of_copy(&self, block: u32, cache: &DecodedBlockCache) -> CacheAdmission {
        let is_used = self.slot(block).is_some_and(|slot| cache.blocks.is_used(slot));
        if is_used { CacheAdmission::Hot } else { CacheAdmission::IfFree }
    }

    /// Reads chunks of the key-location array and appends their rows to `out`. Returns `Corruption`
    /// if a chunk is damaged or ends early.
    pub(crate) fn order_chunks(
        &self,
        chunks: Range<u64>,
        out: &mut Vec<EntryLocation>,
    ) -> Result<()> {
        let section = self.footer.order;
        let end = section.offset + section.bytes;
        let bounds = chunks.start * CHUNK_BYTES..chunks.end * CHUNK_BYTES;
        let start = (section.offset + bounds.start).min(end);
        let span = Span::of(start..(section.offset + bounds.end).min(end));
        let buffer = self.read(span)?;
        let bytes = buffer.as_slice().get(span.skip..span.skip + span.bytes).unwrap_or(&[]);
        let damage = |number: u64, what: &str| {
            self.damage(
                section.offset + number * CHUNK_BYTES,
                format!("key-location array: {what}"),
            )
        };
        for (number, stored) in chunks.clone().zip(bytes.chunks(to_usize(CHUNK_BYTES))) {
            let place = (self.salt() ^ CHUNK_SALT, low_u32(number));
            let entries = mutant!(TphSkipsOrderChecksum: Ok(open_unverified(stored)),
                else open(stored, place));
            let entries = entries.map_err(|what| damage(number, what))?;
            let BlockEntries::Plain(range) = entries else {
                return Err(damage(number, "a chunk is compressed"));
            };
            let (rows, rest) = stored.get(range).unwrap_or(&[]).as_chunks::<8>();
            if !rest.is_empty() {
                return Err(damage(number, "a row is cut off"));
            }
            out.extend(rows.iter().map(|row| EntryLocation::from_word(u64::from_le_bytes(*row))));
        }
        Ok(())
    }

    /// Reads one chunk of the key-location array, from the cache if it is there. Adds it to the
    /// cache.
    pub(crate) fn order_chunk(
        &self,
        number: u64,
        cache: Option<&DecodedBlockCache>,
    ) -> Result<Vec<EntryLocation>> {
        // The chunks have the handles behind those of the blocks.
        let handle = self.blocks().saturating_add(low_u32(number));
        let mut bytes = Vec::new();
        if cache.and_then(|cache| cache.copy_bytes(self.slot(handle), &mut bytes)).is_some() {
            let (rows, _) = bytes.as_chunks::<8>();
            let row = |row: &[u8; 8]| EntryLocation::from_word(u64::from_le_bytes(*row));
            return Ok(rows.iter().map(row).collect());
        }
        let mut rows = Vec::new();
        self.order_chunks(number..number + 1, &mut rows)?;
        if let Some(cache) = cache {
            bytes.clear();
            for row in &rows {
                put_u64(&mut bytes, row.to_word());
            }
            cache.fill_bytes(self.slot_to_fill(handle, cache), &bytes);
        }
        Ok(rows)
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
