//! Writes SSTs: blocks as entries arrive, then index, block offsets, block index and key section.
//!
//! The disk writes one buffer while the next one is filled.
//!
//! Threads: a writer belongs to one thread; its writes run through a [`Flow`].

use std::{mem, sync::Arc};

use super::{
    block::{self, BlockBuilder, BlockEntries, Packing, UNIT_BYTES},
    block_index::{BlockIndex, BlockIndexBuilder},
    block_offsets::BlockOffsets,
    decoded_block::DecodedBlockCache,
    footer::{BLOCKS_START, FORMAT, Footer, Section, SstOwner, encode_head},
    key_section::KeySectionBuilder,
    order_section::chunk_count,
    reader::{Span, Sst},
};
use crate::{
    Error, Result,
    io::{
        AlignedBuffer, BLOCK_BYTES, File, Flow, Open, Pending, Request, read_exact_at, write_all_at,
    },
    lsm::block_cache::{BlockHandles, CacheAdmission},
    util::{
        budget::Reservation,
        codec::{crc32c_append, low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::OnceLock,
    },
};

/// Minimum and maximum bytes of a write.
const WRITE_BYTES_MIN: u64 = 128 << 10;
const WRITE_BYTES_MAX: u64 = 1 << 20;
/// A block is aligned to a disk block if that wastes at most this fraction (1/16) of the block
/// before: then a get reads fewer disk blocks.
const PADDING_FRACTION: u64 = 16;

/// How SSTs are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SstShape {
    pub(crate) block_bytes: usize,
    pub(crate) packing: Packing,
    /// Bytes of a write.
    pub(crate) write_bytes: usize,
    /// Whether to write a key section, where that pays.
    pub(crate) keys: bool,
}

impl SstShape {
    /// Returns the bytes of a write for a memory budget of `budget` bytes.
    pub(crate) fn write_bytes(budget: u64) -> usize {
        to_usize((budget / 128).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX))
    }
}

/// The writer of one SST. See the module head.
#[derive(Debug)]
pub(crate) struct SstWriter {
    owner: SstOwner,
    number: u64,
    label: String,
    file: Arc<dyn File>,
    shape: SstShape,
    salt: u32,
    /// Bytes that are not submitted yet, and their file offset.
    buffer: Vec<u8>,
    submitted: u64,
    /// The write under way, and the buffer for the next one.
    flow: Flow,
    pending_write: Option<Pending>,
    aligned: AlignedBuffer,
    offsets: Vec<u32>,
    /// The block under construction.
    block: BlockBuilder,
    /// The last key that was added.
    last_key: Vec<u8>,
    /// The key section under construction, and the memory reserved for it.
    key_section: Option<(KeySectionBuilder, Reservation)>,
    fences: BlockIndexBuilder,
    /// Number of entries before the current block.
    entries_before: u64,
    footer: Footer,
    /// The cache and the handles of finished blocks, and the admission class of the current block.
    cache: Arc<DecodedBlockCache>,
    handles: BlockHandles,
    room: CacheAdmission,
}

impl SstWriter {
    /// Creates the file. Its name is durable after the next sync of the directory.
    pub(crate) fn create(
        owner: &SstOwner,
        number: u64,
        shape: SstShape,
        (cache, flow): (&Arc<DecodedBlockCache>, &Flow),
    ) -> Result<Self> {
        let name = owner.kind.name_of(number);
        let label = owner.label(&name);
        let file = owner.dir.open(&name, Open::CREATE.direct());
        let file = file.map_err(|error| Error::io(format!("create {label}"), error))?;
        let mut buffer = encode_head(FORMAT, owner, number);
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
            submitted: 0,
            flow: flow.clone(),
            pending_write: None,
            aligned: AlignedBuffer::zeroed(0),
            offsets: vec![first],
            block: BlockBuilder::default(),
            last_key: Vec::new(),
            key_section: shape.keys.then(|| (KeySectionBuilder::default(), cache.charge(0))),
            fences: BlockIndexBuilder::default(),
            entries_before: 0,
            footer: Footer {
                block_bytes: to_u64(shape.block_bytes),
                format: FORMAT,
                ..Footer::default()
            },
            handles: cache.handles(number),
            cache: Arc::clone(cache),
            room: CacheAdmission::IfFree,
        })
    }

    /// Returns the file offset of the next byte.
    fn position(&self) -> u64 {
        self.submitted + to_u64(self.buffer.len())
    }

    /// Returns the salt that distinguishes the blocks of the file.
    pub(crate) fn salt(&self) -> u32 {
        self.salt
    }

    /// Returns the bytes of blocks so far.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.position() + to_u64(self.block.entries().len()) - BLOCKS_START
    }

    /// Adds an entry; a value of `None` is a tombstone. Keys must ascend. Returns the number of its
    /// block, and its offset among the block's entries. The block is cached with the highest class
    /// of its entries.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        room: CacheAdmission,
    ) -> Result<(u32, usize)> {
        let SstShape { block_bytes, packing, .. } = self.shape;
        let entry = (key, value.map_or(0, <[u8]>::len));
        if !self.block.has_room(entry, block_bytes, packing) {
            self.end_block()?;
        }
        if self.block.is_empty() && self.owner.kind.has_fences {
            self.fences.begin_block(&self.last_key, key);
        }
        self.room = self.room.max(room);
        let offset = self.block.add(key, value);
        let number = self.count_entry(key, value.map(<[u8]>::len));
        Ok((number, offset))
    }

    /// Counts an entry and adds its key to the key section. Keys must ascend. Returns the number of
    /// the next block.
    pub(crate) fn count_entry(&mut self, key: &[u8], value_bytes: Option<usize>) -> u32 {
        let number = low_u32(to_u64(self.offsets.len() - 1));
        self.footer.entries += 1;
        self.footer.tombstones += u64::from(value_bytes.is_none());
        self.footer.payload_bytes += to_u64(key.len() + value_bytes.unwrap_or(0));
        if let Some((keys, charge)) = &mut self.key_section
            && keys.add((&self.last_key, key), number, value_bytes, self.salt)
        {
            *charge = self.cache.charge(keys.bytes());
            self.key_section = self
                .key_section
                .take()
                .filter(|(keys, _)| keys.is_worthwhile(self.footer.payload_bytes));
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        number
    }

    /// Returns the salt and the number of the next block.
    fn next_place(&self) -> (u32, u32) {
        (self.salt, low_u32(to_u64(self.offsets.len() - 1)))
    }

    fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let start = self.position();
        let mut block = mem::take(&mut self.block);
        let place = self.next_place();
        block.put(&mut self.buffer, place, self.shape.packing);
        let room = mem::replace(&mut self.room, CacheAdmission::IfFree);
        let end = self.align_block(start, block.entries(), room)?;
        block.clear();
        self.block = block;
        let entries = self.footer.entries - self.entries_before;
        self.fences.end_block(end - start, entries, &self.last_key);
        self.entries_before = self.footer.entries;
        self.submit_if_full()
    }

    /// Adds a block of slots ([`super::slot_block`]) with these entries.
    pub(crate) fn add_slot_block(&mut self, block: &[u8], entries: &[u8]) -> Result<()> {
        let start = self.position();
        let place = self.next_place();
        block::put_block(&mut self.buffer, block, place, self.shape.packing);
        self.align_block(start, entries, CacheAdmission::IfFree)?;
        self.submit_if_full()
    }

    /// Caches the block that begins at `start` and ends the buffer, and pads it. Returns where the
    /// next block begins.
    fn align_block(&mut self, start: u64, entries: &[u8], room: CacheAdmission) -> Result<u64> {
        let directory = self.cache.directory(entries);
        let payload = directory.as_deref().map(|directory| [directory, entries]);
        self.handles.push(payload.as_ref().map(|payload| &payload[..]), room);
        let padding = self.position().next_multiple_of(BLOCK_BYTES) - self.position();
        // The length of compressed bytes is known only from the position of the next block.
        let is_plain = self.shape.packing == Packing::None;
        if is_plain && padding <= (self.position() - start) / PADDING_FRACTION {
            self.buffer.resize(self.buffer.len() + to_usize(padding), 0);
        }
        let end = self.position();
        let too_large = |_| Error::Limit {
            what: format!("{} exceeds 32 GiB, the maximum of a file", self.label),
        };
        self.offsets.push(u32::try_from(end / UNIT_BYTES).map_err(too_large)?);
        Ok(end)
    }

    fn submit_if_full(&mut self) -> Result<()> {
        if self.buffer.len() >= self.shape.write_bytes { self.submit_blocks() } else { Ok(()) }
    }

    /// Submits all whole disk blocks of the buffer, after the write before has ended.
    fn submit_blocks(&mut self) -> Result<()> {
        self.wait()?;
        let length = self.buffer.len() & !(to_usize(BLOCK_BYTES) - 1);
        let mut buffer = mem::replace(&mut self.aligned, AlignedBuffer::zeroed(0));
        buffer.fit(length);
        if let Some(source) = self.buffer.get(..length) {
            buffer.as_mut_slice().copy_from_slice(source);
        }
        let (file, offset) = (Arc::clone(&self.file), self.submitted);
        self.pending_write = Some(self.flow.start(Request::Write { file, offset, buffer, length }));
        self.buffer.drain(..length);
        self.submitted += to_u64(length);
        Ok(())
    }

    /// Waits until the write under way has ended.
    fn wait(&mut self) -> Result<()> {
        let Some(write) = self.pending_write.take() else { return Ok(()) };
        let done = write.wait();
        self.aligned = done.buffer;
        done.result.map_err(|error| Error::io(format!("write {}", self.label), error))?;
        Ok(())
    }

    /// Writes a section that consists of several parts.
    fn put_section(
        &mut self,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Section> {
        let offset = self.position();
        let mut crc = 0;
        for part in parts {
            crc = crc32c_append(crc, part.as_ref());
            for sst in part.as_ref().chunks(self.shape.write_bytes) {
                self.buffer.extend_from_slice(sst);
                if self.buffer.len() >= self.shape.write_bytes {
                    self.submit_blocks()?;
                }
            }
        }
        Ok(Section { offset, bytes: self.position() - offset, crc: u64::from(crc) })
    }

    /// Ends the last block. Returns the number of blocks.
    pub(crate) fn end_blocks(&mut self) -> Result<u32> {
        self.end_block()?;
        Ok(low_u32(to_u64(self.offsets.len() - 1)))
    }

    /// Writes the buffer, so that all blocks can be read back from the file.
    pub(crate) fn reader(&mut self) -> Result<BlockReader<'_>> {
        self.end_blocks()?;
        self.wait()?;
        let rest = self.buffer.len().next_multiple_of(to_usize(BLOCK_BYTES));
        let mut aligned = AlignedBuffer::zeroed(rest);
        if let Some(target) = aligned.as_mut_slice().get_mut(..self.buffer.len()) {
            target.copy_from_slice(&self.buffer);
        }
        write_all_at(&*self.file, aligned.as_slice(), self.submitted)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        Ok(BlockReader(self))
    }

    /// Writes the engine's index, which consists of several parts, and the other sections, and
    /// syncs the file. Its name is not durable yet.
    pub(crate) fn finish(
        mut self,
        index: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Sst> {
        self.end_blocks()?;
        let fences = self.fences.finish(&self.last_key);
        self.complete(index, &fences)
    }

    /// Writes the chunks of the key-location array ([`super::order_section`]), after the blocks.
    pub(crate) fn put_order(
        &mut self,
        chunks: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<()> {
        self.footer.order = self.put_section(chunks)?;
        Ok(())
    }

    /// Like [`Self::finish`], for a file with blocks of slots, whose hash is `local`.
    pub(crate) fn finish_slotted(
        self,
        index: impl IntoIterator<Item = impl AsRef<[u8]>>,
        local: &[u8],
    ) -> Result<Sst> {
        self.complete(index, local)
    }

    fn complete(
        mut self,
        index: impl IntoIterator<Item = impl AsRef<[u8]>>,
        fences: &[u8],
    ) -> Result<Sst> {
        let blocks = low_u32(to_u64(self.offsets.len() - 1));
        self.footer.blocks = u64::from(blocks);
        self.footer.index = self.put_section(index)?;
        let offsets: Vec<u8> =
            self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        self.footer.offsets = self.put_section([offsets])?;
        self.footer.fences = self.put_section([fences])?;
        let keys = self
            .key_section
            .take()
            .filter(|(keys, _)| keys.is_worthwhile(self.footer.payload_bytes));
        if let Some((keys, _charge)) = keys {
            self.footer.keys = self.put_section([keys.finish(self.salt)])?;
        }
        let block = to_usize(BLOCK_BYTES);
        self.buffer.resize(self.buffer.len().next_multiple_of(block), 0);
        self.buffer.extend(self.footer.encode(&self.owner, self.number));
        self.buffer.resize(self.buffer.len().next_multiple_of(block), 0);
        self.submit_blocks()?;
        mutant!(LsmSyncsUnderWrite: Ok(()), else self.wait())?;
        let synced = mutant!(TphSkipsPieceSync: Ok(()), else self.file.sync_data());
        synced.map_err(|error| Error::io(format!("sync {}", self.label), error))?;
        let damage = |what: &str| Error::corruption(&*self.label, 0, what);
        let fences = if self.owner.kind.has_slots {
            Some(BlockIndex::default())
        } else {
            BlockIndex::decode(fences, blocks)
        };
        Ok(Sst {
            number: self.number,
            salt: self.salt,
            file_bytes: self.submitted,
            footer: self.footer,
            fences: fences.ok_or_else(|| damage("the block index does not parse"))?,
            head: encode_head(FORMAT, &self.owner, self.number),
            handles: OnceLock::from(
                self.handles.with_count(blocks + chunk_count(self.footer.order.bytes)),
            ),
            offsets: BlockOffsets::new(&self.offsets)
                .ok_or_else(|| damage("the block offsets do not ascend"))?,
            label: self.label,
            file: self.file,
        })
    }
}

/// Reads blocks of an SST that is being written.
#[derive(Debug)]
pub(crate) struct BlockReader<'a>(&'a SstWriter);

impl BlockReader<'_> {
    /// Reads the entries of a block.
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
            BlockEntries::Plain(range) => Ok(stored.get(range).unwrap_or(&[]).to_vec()),
            BlockEntries::Unpacked(bytes) => Ok(bytes),
        }
    }
}
