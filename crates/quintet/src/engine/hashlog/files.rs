//! Data files: extents of chunks and large values, appended to files of at most 2 GiB.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QHASHLOG` |
//! | 8 | 4 | format | version of this layout: 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 63 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of this file |
//! | 48 | 8 | created | unix milliseconds |
//! | 56 | 8 | reserved | 0 |
//! | 4096 | | chunks | each at a multiple of 4096: one or more extents; large values likewise |
//!
//! An extent (what one flush added to a chunk) begins with this head, at a multiple of 4096:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QHLCHUNK`, or `QHLLARGE` before a large value |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 127 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | serial | of the chunk, or number of the large value; never used again |
//! | 48 | 8 | order | of the chunk: of two entries of a key, the one in the higher chunk is the newer |
//! | 56 | 4 | start | of this extent in its chunk, in units |
//! | 60 | 4 | end | of this extent in its chunk, in units |
//! | 64 | 4 | entry count | |
//! | 68 | 4 | body crc | CRC32C of what follows the head, to the end; packed: of directory and blocks |
//! | 72 | 8 | first lsn | lowest of the entries |
//! | 80 | 8 | last lsn | highest |
//! | 88 | 8 | created | unix milliseconds |
//! | 96 | 8 | updated | unix milliseconds |
//! | 104 | 8 | capacity | of the chunk in bytes; of a large value its size |
//! | 112 | 4 | packing | bytes of the directory of blocks that follows the head ([`super::pack`]); of a large value the bytes that it is packed to; 0: not packed |
//! | 116 | 12 | reserved | 0 |
//! | 128 | | entries | see [`super::entry`], or packed in blocks; after `QHLLARGE`: the value's bytes |
//!
//! Invariants: a block is written once. Places are never used again: what is freed is punched out,
//! and a file without anything live is removed. Numbers of files are never used again. A file of
//! which a sync failed, or a write for other than want of space, keeps what is known to be durable
//! in it and gets nothing more: what else it was given goes to another file.
//!
//! Thread rules: [`DataFiles`] belongs to maintenance (one thread at a time); a [`Place`] may be
//! read by any.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Dir, File, Open, read_exact_at, write_all_at},
    util::codec::{Decoder, crc32c, put_u32, put_u64, round_up, to_u64, to_usize},
};

const FILE_MAGIC: [u8; 8] = *b"QHASHLOG";
pub(super) const CHUNK_MAGIC: [u8; 8] = *b"QHLCHUNK";
pub(super) const LARGE_MAGIC: [u8; 8] = *b"QHLLARGE";
const FORMAT: u32 = 1;
const FILE_HEAD_BYTES: usize = 64;
/// Bytes of an extent's head.
pub(super) const EXTENT_HEAD_BYTES: usize = 128;
/// As in the paper.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Who the files belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) database_id: [u8; 16],
    pub(super) table_id: u64,
}

/// One file of chunks.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    /// For messages.
    pub(super) label: String,
    /// Chunks and large values placed in it and not freed.
    live: AtomicU64,
    /// Bytes of those.
    live_bytes: AtomicU64,
    failed: AtomicBool,
}

impl DataFile {
    fn new(number: u64, file: Arc<dyn File>, label: String) -> Arc<Self> {
        let (live, live_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { number, file, label, live, live_bytes, failed: AtomicBool::new(false) })
    }

    /// Whether a write or a sync of it failed for good: what is not known to be durable in it may
    /// never be.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// Whether a write that failed like this may be repeated in its place.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, QuotaExceeded, StorageFull, WouldBlock};
    matches!(error.kind(), Interrupted | QuotaExceeded | StorageFull | WouldBlock)
}

/// A range of a file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) file: Arc<DataFile>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Place {
    /// Reads `length` bytes at `from` of the place into whole blocks; the data starts at the
    /// returned index.
    pub(super) fn read(&self, from: u64, length: usize) -> Result<(AlignedBuffer, usize)> {
        let (offset, skip, span) = self.span(from, length);
        let mut buffer = AlignedBuffer::zeroed(span);
        read_exact_at(&*self.file.file, buffer.as_mut_slice(), offset)
            .map_err(|error| self.read_error(offset, error))?;
        Ok((buffer, skip))
    }

    /// The whole blocks around a range: file offset, index of the range in them, bytes.
    pub(super) fn span(&self, from: u64, length: usize) -> (u64, usize, usize) {
        let start = self.offset + from;
        let first = start & !(BLOCK_BYTES - 1);
        let end = round_up(start + to_u64(length), BLOCK_BYTES);
        (first, to_usize(start - first), to_usize(end - first))
    }

    pub(super) fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            // Requests are whole blocks: only what goes on after a short read at the end of the
            // file is not, and some systems refuse that.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                Error::corruption(&*self.file.label, offset, "the file ends before its data")
            }
            _ => Error::io(format!("read {}", self.file.label), error),
        }
    }

    pub(super) fn damage(&self, from: u64, what: impl Into<String>) -> Error {
        Error::corruption(&*self.file.label, self.offset + from, what)
    }
}

/// Head of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExtentHead {
    pub(super) serial: u64,
    pub(super) order: u64,
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) entry_count: u32,
    pub(super) body_crc: u32,
    pub(super) first_lsn: u64,
    pub(super) last_lsn: u64,
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) capacity: u64,
    pub(super) packing: u32,
}

impl ExtentHead {
    pub(super) fn encode(&self, magic: [u8; 8], owner: &Owner) -> Vec<u8> {
        let mut out = Vec::with_capacity(EXTENT_HEAD_BYTES);
        out.extend_from_slice(&magic);
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        out.extend_from_slice(&owner.database_id);
        put_u64(&mut out, owner.table_id);
        put_u64(&mut out, self.serial);
        put_u64(&mut out, self.order);
        for word in [self.start, self.end, self.entry_count, self.body_crc] {
            put_u32(&mut out, word);
        }
        let times = [self.created, self.updated, self.capacity];
        for word in [self.first_lsn, self.last_lsn].into_iter().chain(times) {
            put_u64(&mut out, word);
        }
        put_u32(&mut out, self.packing);
        out.resize(EXTENT_HEAD_BYTES, 0);
        sign(&mut out);
        out
    }

    /// Decodes a head; says what is wrong with one that is damaged or somebody else's.
    pub(super) fn decode(bytes: &[u8], magic: [u8; 8], owner: &Owner) -> Result<Self, String> {
        let mut decoder = open_head(bytes, EXTENT_HEAD_BYTES, magic, owner)?;
        let mut head = || {
            Some(Self {
                serial: decoder.u64()?,
                order: decoder.u64()?,
                start: decoder.u32()?,
                end: decoder.u32()?,
                entry_count: decoder.u32()?,
                body_crc: decoder.u32()?,
                first_lsn: decoder.u64()?,
                last_lsn: decoder.u64()?,
                created: decoder.u64()?,
                updated: decoder.u64()?,
                capacity: decoder.u64()?,
                packing: decoder.u32()?,
            })
        };
        head().ok_or_else(|| "the head is too short".to_owned())
    }
}

/// Puts the CRC into bytes 12 to 15 of a head.
fn sign(head: &mut [u8]) {
    let crc = crc32c(head).to_le_bytes();
    if let Some(field) = head.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
}

/// Verifies what all heads begin with; the decoder stands behind the table id.
fn open_head<'a>(
    bytes: &'a [u8],
    size: usize,
    magic: [u8; 8],
    owner: &Owner,
) -> Result<Decoder<'a>, String> {
    let bytes = bytes.get(..size).ok_or("the head is cut off")?;
    let mut copy = bytes.to_vec();
    if let Some(field) = copy.get_mut(12..16) {
        field.fill(0);
    }
    let mut decoder = Decoder::new(bytes);
    let mut fields = || {
        let magic = decoder.take(8)?;
        Some((magic, decoder.u32()?, decoder.u32()?, decoder.id()?, decoder.u64()?))
    };
    let (found_magic, format, crc, database_id, table_id) =
        fields().ok_or("the head is cut off")?;
    if found_magic != magic {
        return Err(format!("no {} here", magic.escape_ascii()));
    }
    if crc32c(&copy) != crc {
        return Err("the checksum of the head does not match".to_owned());
    }
    if format != FORMAT {
        return Err(format!("format {format}, this release reads {FORMAT}"));
    }
    if database_id != owner.database_id || table_id != owner.table_id {
        return Err("the head belongs to another table".to_owned());
    }
    Ok(decoder)
}

/// What a data file's head says: owner, number, and when it was created.
pub(super) fn file_head(bytes: &[u8]) -> Result<(Owner, u64, u64), String> {
    let mut decoder = Decoder::new(bytes.get(16..).unwrap_or(&[]));
    let mut ids = || Some((decoder.id()?, decoder.u64()?));
    let (database_id, table_id) = ids().ok_or("the head is cut off")?;
    let owner = Owner { database_id, table_id };
    let mut decoder = open_head(bytes, FILE_HEAD_BYTES, FILE_MAGIC, &owner)?;
    let mut rest = || Some((decoder.u64()?, decoder.u64()?));
    let (number, created) = rest().ok_or("the head is cut off")?;
    Ok((owner, number, created))
}

/// The files of a table.
#[derive(Debug)]
pub(super) struct DataFiles {
    dir: Arc<dyn Dir>,
    owner: Owner,
    /// All that have something live, and the one being filled.
    files: Vec<Arc<DataFile>>,
    /// The file being filled and where it ends; `None` until the first placement after opening.
    current: Option<(Arc<DataFile>, u64)>,
    next_number: u64,
    /// Written since the last sync.
    dirty: Vec<Arc<DataFile>>,
    /// Those whose names are not durable.
    unnamed: Vec<Arc<DataFile>>,
    /// Freed, and not yet given back to the file system.
    freed: Vec<Place>,
    pub(super) written_bytes: u64,
}

pub(super) fn label(table_id: u64, name: &str) -> String {
    format!("tables/{table_id}/{name}")
}

fn name_of(number: u64) -> String {
    format!("data-{number:08x}")
}

/// The number in a data file's name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("data-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

impl DataFiles {
    pub(super) fn new(dir: Arc<dyn Dir>, owner: Owner, next_number: u64) -> Self {
        Self {
            dir,
            owner,
            files: Vec::new(),
            current: None,
            next_number,
            dirty: Vec::new(),
            unnamed: Vec::new(),
            freed: Vec::new(),
            written_bytes: 0,
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Opens a file that holds something live and verifies its head.
    pub(super) fn open(&mut self, number: u64, write: bool) -> Result<Arc<DataFile>> {
        if let Some(file) = self.files.iter().find(|file| file.number == number) {
            return Ok(Arc::clone(file));
        }
        let name = name_of(number);
        let label = label(self.owner.table_id, &name);
        let how = if write { Open::WRITE } else { Open::READ };
        let file = match self.dir.open(&name, how.direct()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::corruption(label, 0, "the file is missing"));
            }
            Err(error) => return Err(Error::io(format!("open {label}"), error)),
        };
        let file = DataFile::new(number, file, label);
        let place = Place { file: Arc::clone(&file), offset: 0, bytes: BLOCK_BYTES };
        let (head, _) = place.read(0, to_usize(BLOCK_BYTES))?;
        let number_found = open_head(head.as_slice(), FILE_HEAD_BYTES, FILE_MAGIC, &self.owner)
            .map_err(|what| place.damage(0, what))?
            .u64();
        if number_found != Some(number) {
            return Err(place.damage(0, "the file has another file's number"));
        }
        self.files.push(Arc::clone(&file));
        Ok(file)
    }

    /// Counts a range that was live when the table was closed.
    pub(super) fn adopt(file: &Arc<DataFile>, offset: u64, bytes: u64) -> Place {
        file.live.fetch_add(1, Ordering::Relaxed);
        file.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        Place { file: Arc::clone(file), offset, bytes }
    }

    /// Reserves disk space for `bytes`.
    pub(super) fn place(&mut self, bytes: u64, now: u64) -> Result<Place> {
        let bytes = round_up(bytes, BLOCK_BYTES);
        let fits = |end: u64| end + bytes <= FILE_BYTES_MAX;
        if let Some((file, end)) = &self.current
            && (file.has_failed() || !fits(*end))
        {
            let file = Arc::clone(file);
            self.current = None;
            if file.live.load(Ordering::Relaxed) == 0 {
                self.freed.push(Place { file, offset: 0, bytes: BLOCK_BYTES });
            }
        }
        let (file, end) = match self.current.take() {
            Some(current) => current,
            None => (self.create(now)?, BLOCK_BYTES),
        };
        let allocated = file.file.allocate(end + bytes);
        // Kept also on failure: what is free later goes on here.
        let next = if allocated.is_ok() { end + bytes } else { end };
        self.current = Some((Arc::clone(&file), next));
        allocated.map_err(|error| Error::io(format!("allocate {}", file.label), error))?;
        Ok(Self::adopt(&file, end, bytes))
    }

    fn create(&mut self, now: u64) -> Result<Arc<DataFile>> {
        let number = self.next_number;
        let name = name_of(number);
        let label = label(self.owner.table_id, &name);
        let doing = |error| Error::io(format!("create {label}"), error);
        // Whatever becomes of this one, its number is used.
        self.next_number += 1;
        let file = self.dir.open(&name, Open::CREATE.direct()).map_err(doing)?;
        let mut head = Vec::with_capacity(FILE_HEAD_BYTES);
        head.extend_from_slice(&FILE_MAGIC);
        put_u32(&mut head, FORMAT);
        put_u32(&mut head, 0);
        head.extend_from_slice(&self.owner.database_id);
        for word in [self.owner.table_id, number, now, 0] {
            put_u64(&mut head, word);
        }
        sign(&mut head);
        let mut block = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
        block.as_mut_slice()[..FILE_HEAD_BYTES].copy_from_slice(&head);
        if let Err(error) = write_all_at(&*file, block.as_slice(), 0) {
            // Should this fail, the next open does it.
            let _ = self.dir.remove(&name);
            return Err(doing(error));
        }
        let file = DataFile::new(number, file, label);
        self.files.push(Arc::clone(&file));
        self.dirty.push(Arc::clone(&file));
        self.unnamed.push(Arc::clone(&file));
        Ok(file)
    }

    /// Writes whole blocks at `from` of a place. Durable after [`Self::sync`].
    pub(super) fn write(&mut self, place: &Place, from: u64, blocks: &[u8]) -> Result<()> {
        if let Err(error) = write_all_at(&*place.file.file, blocks, place.offset + from) {
            if !is_passing(&error) {
                place.file.fail();
            }
            return Err(Error::io(format!("write {}", place.file.label), error));
        }
        self.written_bytes += to_u64(blocks.len());
        if !self.dirty.iter().any(|file| file.number == place.file.number) {
            self.dirty.push(Arc::clone(&place.file));
        }
        Ok(())
    }

    /// Makes everything written durable, new names included. After an error, files that have
    /// failed ([`DataFile::has_failed`]) hold what is not durable and never will be; all others
    /// are synced.
    pub(super) fn sync(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for file in mem::take(&mut self.dirty) {
            if !file.has_failed()
                && let Err(error) = file.file.sync_all()
            {
                file.fail();
                outcome = outcome.and(Err(Error::io(format!("sync {}", file.label), error)));
            }
        }
        let unnamed = mem::take(&mut self.unnamed);
        if unnamed.iter().any(|file| !file.has_failed())
            && let Err(error) = self.dir.sync()
        {
            for file in &unnamed {
                file.fail();
            }
            let doing = format!("sync {}", self.dir.path().display());
            outcome = outcome.and(Err(Error::io(doing, error)));
        }
        outcome
    }

    /// Takes note that a place is not used any more: nothing that recovery reads names it.
    /// [`Self::give_back`] does the rest.
    pub(super) fn free(&mut self, place: Place) {
        place.file.live_bytes.fetch_sub(place.bytes, Ordering::Relaxed);
        place.file.live.fetch_sub(1, Ordering::Relaxed);
        self.freed.push(place);
    }

    /// Gives what was freed back to the file system; returns how often that failed. It is tried
    /// again with the next call.
    pub(super) fn give_back(&mut self) -> u64 {
        let mut freed = mem::take(&mut self.freed);
        freed.retain(|place| self.give_back_place(place).is_err());
        self.freed = freed;
        to_u64(self.freed.len())
    }

    /// Gives the rest of a place back to the file system: nothing more will be written there. A
    /// failure costs space alone, and that only until the place is freed.
    pub(super) fn trim(place: &Place, used: u64) {
        let from = round_up(used, BLOCK_BYTES);
        if from < place.bytes {
            let _ = place.file.file.punch_hole(place.offset + from, place.bytes - from);
        }
    }

    fn give_back_place(&mut self, place: &Place) -> io::Result<()> {
        let file = &place.file;
        let is_current =
            self.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, file));
        if file.live.load(Ordering::Relaxed) > 0 || is_current {
            return file.file.punch_hole(place.offset, place.bytes);
        }
        if self.files.iter().all(|other| other.number != file.number) {
            // It went with another of its places.
            return Ok(());
        }
        match self.dir.remove(&name_of(file.number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for files in [&mut self.files, &mut self.dirty, &mut self.unnamed] {
            files.retain(|other| other.number != file.number);
        }
        Ok(())
    }

    /// Bytes of what is placed, heads of files included.
    pub(super) fn file_bytes(&self) -> u64 {
        let bytes = |file: &Arc<DataFile>| BLOCK_BYTES + file.live_bytes.load(Ordering::Relaxed);
        self.files.iter().map(bytes).sum()
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { database_id: [9; 16], table_id: 3 };

    #[test]
    fn extent_heads_round_trip_and_every_flipped_bit_is_noticed() {
        let head = ExtentHead { serial: 5, order: 6, start: 7, end: 800, ..Default::default() };
        let mut bytes = head.encode(CHUNK_MAGIC, &OWNER);
        assert_eq!(bytes.len(), EXTENT_HEAD_BYTES);
        assert_eq!(ExtentHead::decode(&bytes, CHUNK_MAGIC, &OWNER), Ok(head));
        assert!(ExtentHead::decode(&bytes, LARGE_MAGIC, &OWNER).is_err());
        let other = Owner { table_id: 4, ..OWNER };
        assert!(ExtentHead::decode(&bytes, CHUNK_MAGIC, &other).is_err());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(ExtentHead::decode(&bytes, CHUNK_MAGIC, &OWNER).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn names_have_one_spelling() {
        assert_eq!(number_of("data-0000001f"), Some(31));
        for name in ["data-1f", "data-0000001F", "data-+000001f", "data", "data-00000001f"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
