//! Writing pieces: blocks as entries come, then the index and what tells where the blocks are.

use std::{mem, sync::Arc};

use super::{BLOCKS_START, FORMAT, Footer, Owner, Piece, Section, Span, head};
use crate::{
    Error, Result,
    io::{
        AlignedBuffer, BLOCK_BYTES, File, Flow, Open, Pending, Request, read_exact_at, write_all_at,
    },
    lsm::{
        block_cache::{BlockHandles, CacheAdmission, decoded_block::DecodedBlockCache},
        sst::{
            block::{self, Entries, Filling, Packing, UNIT_BYTES},
            block_index::{self, BlockIndex},
            block_offsets::BlockOffsets,
            key_section::Gather,
        },
    },
    util::{
        budget::Reservation,
        codec::{crc32c_append, low_u32, to_u64, to_usize},
        mutant::{self, Bug},
        sync::OnceLock,
    },
};

/// Data is handed to the disk in pieces of at least and at most this size.
const WRITE_BYTES_MIN: u64 = 128 << 10;
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// A block begins at a disk block of its own where at most this part of the one before is wasted:
/// then a get reads one.
const WASTE_SHARE: u64 = 16;

/// How pieces are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SstShape {
    pub(crate) block_bytes: usize,
    pub(crate) packing: Packing,
    /// Data is handed to the disk when there is so much.
    pub(crate) write_bytes: usize,
    /// Keys are kept apart from their values too, where that pays.
    pub(crate) keys: bool,
}

impl SstShape {
    /// How much is handed to the disk at once with a memory budget of so many bytes.
    pub(crate) fn write_bytes(budget: u64) -> usize {
        to_usize((budget / 128).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX))
    }
}

/// Writes a piece: entries in key order, then the index. The disk takes one part while the next one
/// is filled.
#[derive(Debug)]
pub(crate) struct SstWriter {
    owner: Owner,
    number: u64,
    label: String,
    file: Arc<dyn File>,
    shape: SstShape,
    salt: u32,
    /// What is not yet handed to the disk, and where it goes.
    buffer: Vec<u8>,
    written: u64,
    /// What was handed to the disk is on its way, or was last.
    flow: Flow,
    under_way: Option<Pending>,
    aligned: AlignedBuffer,
    offsets: Vec<u32>,
    /// The block that is filled.
    filling: Filling,
    /// The last key.
    last_key: Vec<u8>,
    /// Keys apart, and the memory that they take until the piece is finished.
    keys: Option<(Gather, Reservation)>,
    fences: block_index::Builder,
    /// Entries of the piece before the block that is filled.
    entries_before: u64,
    footer: Footer,
    /// Where blocks go that were written, and what room the one gets that is filled.
    cache: Arc<DecodedBlockCache>,
    places: BlockHandles,
    room: CacheAdmission,
}

impl SstWriter {
    /// Makes the file. Its name is durable after the directory's next sync.
    pub(crate) fn create(
        owner: &Owner,
        number: u64,
        shape: SstShape,
        (cache, flow): (&Arc<DecodedBlockCache>, &Flow),
    ) -> Result<Self> {
        let name = owner.kind.name_of(number);
        let label = owner.label(&name);
        let file = owner.dir.open(&name, Open::CREATE.direct());
        let file = file.map_err(|error| Error::io(format!("create {label}"), error))?;
        let mut buffer = head(FORMAT, owner, number);
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
            filling: Filling::default(),
            last_key: Vec::new(),
            keys: shape.keys.then(|| (Gather::default(), cache.charge(0))),
            fences: block_index::Builder::default(),
            entries_before: 0,
            footer: Footer {
                block_bytes: to_u64(shape.block_bytes),
                format: FORMAT,
                ..Footer::default()
            },
            places: cache.places(number),
            cache: Arc::clone(cache),
            room: CacheAdmission::IfFree,
        })
    }

    /// Where the next byte goes.
    fn position(&self) -> u64 {
        self.written + to_u64(self.buffer.len())
    }

    /// Bytes of blocks so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.position() + to_u64(self.filling.entries().len()) - BLOCKS_START
    }

    /// Adds an entry, `None` for a tombstone; the number of its block, and where it begins among
    /// the block's entries. The block gets the most room in the cache that an entry of it wants.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        room: CacheAdmission,
    ) -> Result<(u32, usize)> {
        let SstShape { block_bytes, packing, .. } = self.shape;
        let entry = (key, value.map_or(0, <[u8]>::len));
        if !self.filling.has_room(entry, block_bytes, packing) {
            self.end_block()?;
        }
        if self.filling.is_empty() && self.owner.kind.has_fences {
            self.fences.begin_block(&self.last_key, key);
        }
        self.room = self.room.max(room);
        let number = low_u32(to_u64(self.offsets.len() - 1));
        let offset = self.filling.add(key, value);
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
        if self.filling.is_empty() {
            return Ok(());
        }
        let number = low_u32(to_u64(self.offsets.len() - 1));
        let place = (self.salt, number);
        let start = self.position();
        self.filling.put(&mut self.buffer, place, self.shape.packing);
        let directory = self.cache.directory(self.filling.entries());
        let payload = directory.as_deref().map(|directory| [directory, self.filling.entries()]);
        let room = mem::replace(&mut self.room, CacheAdmission::IfFree);
        self.places.push(payload.as_ref().map(|payload| &payload[..]), room);
        self.filling.clear();
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
        if !mutant::active(Bug::LsmSyncsUnderWrite) {
            self.wait()?;
        }
        if !mutant::active(Bug::TphSkipsPieceSync) {
            let synced = self.file.sync_data();
            synced.map_err(|error| Error::io(format!("sync {}", self.label), error))?;
        }
        let damage = |what: &str| Error::corruption(&*self.label, 0, what);
        let fences = BlockIndex::decode(&fences, blocks);
        Ok(Piece {
            number: self.number,
            salt: self.salt,
            file_bytes: self.written,
            footer: self.footer,
            fences: fences.ok_or_else(|| damage("the fences do not parse"))?,
            head: head(FORMAT, &self.owner, self.number),
            places: OnceLock::from(self.places.with_count(blocks)),
            offsets: BlockOffsets::new(&self.offsets)
                .ok_or_else(|| damage("the offsets of blocks are impossible"))?,
            label: self.label,
            file: self.file,
        })
    }
}

/// Reads blocks of a piece that is being written.
#[derive(Debug)]
pub(crate) struct BlockReader<'a>(&'a SstWriter);

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
