//! Data files: extents of chunks and large values, appended to files of at most `file_bytes`
//! (2 GiB by default). A larger value has its own file.
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
//! An extent is what one flush adds to a chunk. It begins with this head, at a multiple of 4096:
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
//! Invariants: a block is written once. File ranges are never reused: a freed range is punched out,
//! and a file without live ranges is removed. File numbers are never reused. A file fails if a sync
//! fails, or a write for a reason other than lack of space. A failed file keeps the ranges known to
//! be durable and gets no more writes. The rest of its data goes to another file.
//!
//! Locks: [`DataFiles`] is part of `Maintenance` (one thread at a time). Any thread may read a
//! [`FileRange`].

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
/// Version of the layout of data files and extents.
const FORMAT: u32 = 1;
const FILE_HEAD_BYTES: usize = 64;
/// Size of an extent's head in bytes.
pub(super) const EXTENT_HEAD_BYTES: usize = 128;

/// The database and table that files belong to. Every head repeats it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableIdentity {
    pub(super) database_id: [u8; 16],
    pub(super) table_id: u64,
}

/// An open data file.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    /// Path of the file, for messages.
    pub(super) label: String,
    /// Number of ranges allocated in it and not freed.
    live: AtomicU64,
    /// Bytes of those ranges.
    live_bytes: AtomicU64,
    /// See [`DataFile::has_failed`].
    failed: AtomicBool,
}

impl DataFile {
    fn new(number: u64, file: Arc<dyn File>, label: String) -> Arc<Self> {
        let (live, live_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { number, file, label, live, live_bytes, failed: AtomicBool::new(false) })
    }

    /// Returns whether a write or a sync failed for good. Data not known to be durable in the file
    /// may be lost.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// Returns whether a write that failed with `error` may be retried in the same file.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, QuotaExceeded, StorageFull, WouldBlock};
    matches!(error.kind(), Interrupted | QuotaExceeded | StorageFull | WouldBlock)
}

/// An allocated range of a data file.
#[derive(Clone, Debug)]
pub(super) struct FileRange {
    pub(super) file: Arc<DataFile>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl FileRange {
    /// Reads `length` bytes at `from` of the range. The buffer holds whole blocks; the data starts
    /// at the returned index.
    pub(super) fn read(&self, from: u64, length: usize) -> Result<(AlignedBuffer, usize)> {
        let (offset, skip, span) = self.span(from, length);
        let mut buffer = AlignedBuffer::zeroed(span);
        read_exact_at(&*self.file.file, buffer.as_mut_slice(), offset)
            .map_err(|error| self.read_error(offset, error))?;
        Ok((buffer, skip))
    }

    /// Returns the blocks that cover `length` bytes at `from`: their file offset, the index of the
    /// data in them, and their size.
    pub(super) fn span(&self, from: u64, length: usize) -> (u64, usize, usize) {
        let start = self.offset + from;
        let first = start & !(BLOCK_BYTES - 1);
        let end = round_up(start + to_u64(length), BLOCK_BYTES);
        (first, to_usize(start - first), to_usize(end - first))
    }

    /// Returns the error of a failed read at file offset `offset`.
    pub(super) fn read_error(&self, offset: u64, error: io::Error) -> Error {
        match error.kind() {
            // Requests are whole blocks. After a short read at the end of the file the rest of the
            // request is not, and some systems refuse it.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => Error::corruption(
                &*self.file.label,
                offset,
                "the file is truncated: data that the manifest names is missing",
            ),
            _ => Error::io(format!("read {}", self.file.label), error),
        }
    }

    /// Returns a `Corruption` error at `from` of the range.
    pub(super) fn damage(&self, from: u64, what: impl Into<String>) -> Error {
        Error::corruption(&*self.file.label, self.offset + from, what)
    }
}

/// The head of an extent or of a large value. See the module documentation.
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
    pub(super) fn encode(&self, magic: [u8; 8], owner: &TableIdentity) -> Vec<u8> {
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

    /// Decodes and verifies a head. Fails with a description if it is damaged or belongs to another
    /// table.
    pub(super) fn decode(
        bytes: &[u8],
        magic: [u8; 8],
        owner: &TableIdentity,
    ) -> Result<Self, String> {
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

/// Writes the CRC to bytes 12 to 15 of a head.
fn sign(head: &mut [u8]) {
    let crc = crc32c(head).to_le_bytes();
    if let Some(field) = head.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
}

/// Verifies the common fields of a head. Returns a decoder positioned behind the table id.
fn open_head<'a>(
    bytes: &'a [u8],
    size: usize,
    magic: [u8; 8],
    owner: &TableIdentity,
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
        return Err(format!("the magic is not {}", magic.escape_ascii()));
    }
    if crc32c(&copy) != crc {
        return Err("the checksum of the head does not match".to_owned());
    }
    if format != FORMAT {
        return Err(format!("format {format}, this release reads {FORMAT}"));
    }
    if database_id != owner.database_id || table_id != owner.table_id {
        return Err("the head names another table".to_owned());
    }
    Ok(decoder)
}

/// Decodes a data file's head: owner, number, and creation time in unix milliseconds.
pub(super) fn file_head(bytes: &[u8]) -> Result<(TableIdentity, u64, u64), String> {
    let mut decoder = Decoder::new(bytes.get(16..).unwrap_or(&[]));
    let mut ids = || Some((decoder.id()?, decoder.u64()?));
    let (database_id, table_id) = ids().ok_or("the head is cut off")?;
    let owner = TableIdentity { database_id, table_id };
    let mut decoder = open_head(bytes, FILE_HEAD_BYTES, FILE_MAGIC, &owner)?;
    let mut rest = || Some((decoder.u64()?, decoder.u64()?));
    let (number, created) = rest().ok_or("the head is cut off")?;
    Ok((owner, number, created))
}

/// The data files of a table: allocation, writes, syncs, and removal.
#[derive(Debug)]
pub(super) struct DataFiles {
    dir: Arc<dyn Dir>,
    owner: TableIdentity,
    /// Files with live ranges, and the current file.
    files: Vec<Arc<DataFile>>,
    /// The file that new ranges are allocated in, and its end. `None` until the first allocation
    /// after opening.
    current: Option<(Arc<DataFile>, u64)>,
    next_number: u64,
    /// Maximum size of a file in bytes.
    file_bytes_max: u64,
    /// Files written since the last sync.
    dirty: Vec<Arc<DataFile>>,
    /// Files whose names are not durable.
    unnamed: Vec<Arc<DataFile>>,
    /// Freed ranges that are not punched out yet.
    freed: Vec<FileRange>,
    pub(super) written_bytes: u64,
}

/// Returns the path of a table's file, for messages.
pub(super) fn label(table_id: u64, name: &str) -> String {
    format!("tables/{table_id}/{name}")
}

fn name_of(number: u64) -> String {
    format!("data-{number:08x}")
}

/// Returns the number in a data file's name; `None` for any other name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("data-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

impl DataFiles {
    pub(super) fn new(
        dir: Arc<dyn Dir>,
        owner: TableIdentity,
        file_bytes_max: u64,
        next_number: u64,
    ) -> Self {
        Self {
            dir,
            owner,
            files: Vec::new(),
            current: None,
            next_number,
            file_bytes_max,
            dirty: Vec::new(),
            unnamed: Vec::new(),
            freed: Vec::new(),
            written_bytes: 0,
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Opens a data file and verifies its head. Fails with `Corruption` if it is missing or
    /// damaged.
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
        let file_range = FileRange { file: Arc::clone(&file), offset: 0, bytes: BLOCK_BYTES };
        let (head, _) = file_range.read(0, to_usize(BLOCK_BYTES))?;
        let number_found = open_head(head.as_slice(), FILE_HEAD_BYTES, FILE_MAGIC, &self.owner)
            .map_err(|what| file_range.damage(0, what))?
            .u64();
        if number_found != Some(number) {
            return Err(
                file_range.damage(0, "the number in the head is not the number in the file's name")
            );
        }
        self.files.push(Arc::clone(&file));
        Ok(file)
    }

    /// Counts a live range of `file`.
    pub(super) fn adopt(file: &Arc<DataFile>, offset: u64, bytes: u64) -> FileRange {
        file.live.fetch_add(1, Ordering::Relaxed);
        file.live_bytes.fetch_add(bytes, Ordering::Relaxed);
        FileRange { file: Arc::clone(file), offset, bytes }
    }

    /// Allocates a range for `bytes`, rounded up to whole blocks, in the current file or in a new
    /// one. `now` is the creation time of a new file. A range above the maximum size of a file gets
    /// its own file. Fails if the disk is full.
    pub(super) fn allocate(&mut self, bytes: u64, now: u64) -> Result<FileRange> {
        let bytes = round_up(bytes, BLOCK_BYTES);
        let fits = |end: u64| end + bytes <= self.file_bytes_max;
        if let Some((file, end)) = &self.current
            && (file.has_failed() || !fits(*end))
        {
            let file = Arc::clone(file);
            self.current = None;
            if file.live.load(Ordering::Relaxed) == 0 {
                self.freed.push(FileRange { file, offset: 0, bytes: BLOCK_BYTES });
            }
        }
        let (file, end) = match self.current.take() {
            Some(current) => current,
            None => (self.create(now)?, BLOCK_BYTES),
        };
        let allocated = file.file.allocate(end + bytes);
        // On failure the file stays current: a later allocation continues here.
        let next = if allocated.is_ok() { end + bytes } else { end };
        if allocated.is_err() {
            // A part may be allocated, and another table may need it.
            let _ = file.file.set_len(end);
        }
        self.current = Some((Arc::clone(&file), next));
        allocated.map_err(|error| Error::io(format!("allocate {}", file.label), error))?;
        Ok(Self::adopt(&file, end, bytes))
    }

    fn create(&mut self, now: u64) -> Result<Arc<DataFile>> {
        let number = self.next_number;
        let name = name_of(number);
        let label = label(self.owner.table_id, &name);
        let doing = |error| Error::io(format!("create {label}"), error);
        // The number is used up even if the creation fails.
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
            // If this fails, the next open removes it.
            let _ = self.dir.remove(&name);
            return Err(doing(error));
        }
        let file = DataFile::new(number, file, label);
        self.files.push(Arc::clone(&file));
        self.dirty.push(Arc::clone(&file));
        self.unnamed.push(Arc::clone(&file));
        Ok(file)
    }

    /// Writes whole blocks at `from` of a range. They are durable after [`Self::sync`].
    pub(super) fn write(&mut self, file_range: &FileRange, from: u64, blocks: &[u8]) -> Result<()> {
        if let Err(error) = write_all_at(&*file_range.file.file, blocks, file_range.offset + from) {
            if !is_passing(&error) {
                file_range.file.fail();
            }
            return Err(Error::io(format!("write {}", file_range.file.label), error));
        }
        self.written_bytes += to_u64(blocks.len());
        if !self.dirty.iter().any(|file| file.number == file_range.file.number) {
            self.dirty.push(Arc::clone(&file_range.file));
        }
        Ok(())
    }

    /// Makes all writes and new names durable. After an error, the files for which
    /// [`DataFile::has_failed`] holds may have lost what was not durable. All other files are
    /// synced.
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

    /// Frees a range. No durable manifest may name it. [`Self::punch_freed`] returns it to the file
    /// system.
    pub(super) fn free(&mut self, file_range: FileRange) {
        file_range.file.live_bytes.fetch_sub(file_range.bytes, Ordering::Relaxed);
        file_range.file.live.fetch_sub(1, Ordering::Relaxed);
        self.freed.push(file_range);
    }

    /// Punches out freed ranges and removes files without live ranges. Returns the number of
    /// failures. The next call retries them.
    pub(super) fn punch_freed(&mut self) -> u64 {
        let mut freed = mem::take(&mut self.freed);
        freed.retain(|file_range| self.punch_range(file_range).is_err());
        self.freed = freed;
        to_u64(self.freed.len())
    }

    /// Punches out the end of a range behind its first `used` bytes. Nothing may be written there
    /// later. A failure only wastes the space until the range is freed.
    pub(super) fn trim(file_range: &FileRange, used: u64) {
        let from = round_up(used, BLOCK_BYTES);
        if from < file_range.bytes {
            let _ =
                file_range.file.file.punch_hole(file_range.offset + from, file_range.bytes - from);
        }
    }

    fn punch_range(&mut self, file_range: &FileRange) -> io::Result<()> {
        let file = &file_range.file;
        let is_current =
            self.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, file));
        if file.live.load(Ordering::Relaxed) > 0 || is_current {
            return file.file.punch_hole(file_range.offset, file_range.bytes);
        }
        if self.files.iter().all(|other| other.number != file.number) {
            // The file was removed with another of its ranges.
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

    /// Returns the bytes of all ranges and of the heads of files.
    pub(super) fn file_bytes(&self) -> u64 {
        let bytes = |file: &Arc<DataFile>| BLOCK_BYTES + file.live_bytes.load(Ordering::Relaxed);
        self.files.iter().map(bytes).sum()
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    const OWNER: TableIdentity = TableIdentity { database_id: [9; 16], table_id: 3 };

    #[test]
    fn extent_heads_round_trip_and_every_flipped_bit_is_noticed() {
        let head = ExtentHead { serial: 5, order: 6, start: 7, end: 800, ..Default::default() };
        let mut bytes = head.encode(CHUNK_MAGIC, &OWNER);
        assert_eq!(bytes.len(), EXTENT_HEAD_BYTES);
        assert_eq!(ExtentHead::decode(&bytes, CHUNK_MAGIC, &OWNER), Ok(head));
        assert!(ExtentHead::decode(&bytes, LARGE_MAGIC, &OWNER).is_err());
        let other = TableIdentity { table_id: 4, ..OWNER };
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
