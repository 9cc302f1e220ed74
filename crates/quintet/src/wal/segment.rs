//! Segment files: preallocated, mapped, with a head that describes them.
//!
//! Why: a segment is allocated in full and durable under its final name before its first record. So
//! a commit never meets a full disk half-way. A crash cannot remove a file that has an acknowledged
//! record.
//!
//! How: [`SegmentHead`] encodes and parses the head. [`Segment`] is the mapped file that writers
//! reserve space in. A pruned file can become a segment again.
//!
//! Invariants:
//! - Segment numbers are consecutive. Each base LSN is the previous base plus its capacity.
//! - A file gets a new nonce when it becomes a segment, so that its old records never parse again.
//!
//! Threads: any. All fields of a [`Segment`] that change are atomic.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTLOGSEG` |
//! | 8 | 4 | version | format version, 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 11 and 16 to 79 |
//! | 16 | 16 | database id | of the database |
//! | 32 | 8 | number | of the segment, from 1 |
//! | 40 | 8 | base lsn | LSN of the file's first byte |
//! | 48 | 8 | capacity | size of the file in bytes |
//! | 56 | 16 | boot id | of the kernel that the segment was made under |
//! | 72 | 8 | nonce | random, salts the records |
//! | 80 | 3984 | | zeros |
//! | 4064 | 8 | catalog | number of the newest catalog edit when this was noted; 0: none |
//! | 4072 | 8 | catalog crc | CRC32C of the records' salt and the number; else the number counts as 0 |
//! | 4080 | 4 | in use check | of a reach, CRC32C of the records' salt and the four bytes of the reach |
//! | 4084 | 4 | in use | not zero while a process appends; zeroed by a clean close. Bit 31 is set; below it the reach: no record begins at or behind so many blocks of 4096 bytes. Unless its check is right, they may begin anywhere |
//! | 4088 | 8 | failed | not zero after a failed sync: cached pages may not be on disk |
//! | 4096 | | records | see [`super::record`] |

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::record;
use crate::{
    Error, Result,
    io::{self, BLOCK_BYTES, Dir, Env, File, Mapping, Open, persistence::LINE_BYTES},
    util::{
        codec::{Decoder, Lsn, crc32c, crc32c_append, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Bytes before the first record.
pub(super) const HEAD_BYTES: u64 = BLOCK_BYTES;
const MAGIC: &[u8; 8] = b"QTLOGSEG";
const VERSION: u32 = 1;
const FIELDS_BYTES: usize = 80;
const CATALOG_OFFSET: u64 = HEAD_BYTES - 32;
const CATALOG_CRC_OFFSET: u64 = HEAD_BYTES - 24;
const IN_USE_OFFSET: u64 = HEAD_BYTES - 16;
/// In the half of the word that has the reach: two bits are set at least, so that one flipped bit
/// does not undo the mark.
const IN_USE_BIT: u32 = 1 << 31;
const FAILED_OFFSET: u64 = HEAD_BYTES - 8;

/// The head of a segment, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// Identity of the database.
    pub database_id: [u8; 16],
    /// Number of the segment, from 1.
    pub number: u64,
    /// LSN of the file's first byte.
    pub base: Lsn,
    /// Size of the file in bytes.
    pub capacity: u64,
    /// The kernel's boot id when the segment was made.
    pub boot_id: [u8; 16],
    /// Salt of the records.
    pub nonce: u64,
    /// Whether a process appended to the segment and did not close it.
    pub in_use: bool,
    /// Offset at and behind which no record begins. Valid only under the kernel (boot id) that the
    /// segment was made under. The capacity if it is not known.
    pub reach: u64,
    /// Whether a sync failed while the segment was in use.
    pub failed: bool,
    /// Number of the newest catalog edit that was recorded here; 0 for none. A catalog that ends
    /// before it is older than the log.
    pub catalog: u64,
}

impl SegmentHead {
    /// Encodes the head as the file's first block.
    pub(super) fn to_block(self) -> Vec<u8> {
        let mut block = Vec::with_capacity(to_usize(HEAD_BYTES));
        block.extend_from_slice(MAGIC);
        block.extend_from_slice(&VERSION.to_le_bytes());
        let mut fields = Vec::with_capacity(FIELDS_BYTES);
        fields.extend_from_slice(&self.database_id);
        fields.extend_from_slice(&self.number.to_le_bytes());
        fields.extend_from_slice(&self.base.0.to_le_bytes());
        fields.extend_from_slice(&self.capacity.to_le_bytes());
        fields.extend_from_slice(&self.boot_id);
        fields.extend_from_slice(&self.nonce.to_le_bytes());
        let crc = crc32c_append(crc32c(&block), &fields);
        block.extend_from_slice(&crc.to_le_bytes());
        block.extend_from_slice(&fields);
        block.resize(to_usize(HEAD_BYTES), 0);
        block
    }

    /// Parses the first block of a segment file. Fails with what is wrong with it.
    pub(super) fn parse(block: &[u8]) -> Result<Self, HeadFault> {
        let mut decoder = Decoder::new(block);
        let torn = || HeadFault::Damaged("the segment head ends early".to_owned());
        if decoder.take(MAGIC.len()).ok_or_else(torn)? != MAGIC {
            return Err(HeadFault::Damaged("no segment head here".to_owned()));
        }
        let version = decoder.u32().ok_or_else(torn)?;
        let crc = decoder.u32().ok_or_else(torn)?;
        let fields = block.get(16..FIELDS_BYTES).ok_or_else(torn)?;
        let found = crc32c_append(crc32c(block.get(..12).ok_or_else(torn)?), fields);
        if found != crc {
            return Err(HeadFault::Damaged(format!(
                "segment head checksum is {found:08x}, expected {crc:08x}"
            )));
        }
        if version != VERSION {
            return Err(HeadFault::Version(version));
        }
        let flag = |offset: u64| {
            let word = block.get(to_usize(offset)..to_usize(offset) + 8).ok_or_else(torn)?;
            Ok(word.iter().any(|byte| *byte != 0))
        };
        let (in_use, failed) = (flag(IN_USE_OFFSET)?, flag(FAILED_OFFSET)?);
        let mut head = (|| {
            Some(Self {
                database_id: decoder.id()?,
                number: decoder.u64()?,
                base: Lsn(decoder.u64()?),
                capacity: decoder.u64()?,
                boot_id: decoder.id()?,
                nonce: decoder.u64()?,
                in_use,
                reach: u64::MAX,
                failed,
                catalog: 0,
            })
        })()
        .ok_or_else(torn)?;
        if head.capacity < HEAD_BYTES || head.base.0.checked_add(head.capacity).is_none() {
            return Err(HeadFault::Damaged(format!("impossible capacity {}", head.capacity)));
        }
        let word = block.get(to_usize(IN_USE_OFFSET)..).and_then(|word| Decoder::new(word).u64());
        head.reach = head.reach_of(word.unwrap_or(0)).unwrap_or(head.capacity).min(head.capacity);
        let stored = block.get(to_usize(CATALOG_OFFSET)..).map(Decoder::new);
        if let Some((number, crc)) = stored.and_then(|mut words| Some((words.u64()?, words.u64()?)))
            && crc == head.catalog_crc(number)
        {
            head.catalog = number;
        }
        Ok(head)
    }

    /// Returns the checksum that the records' checksums start from.
    pub(super) fn salt(&self) -> u32 {
        record::salt(self.database_id, self.number, self.nonce)
    }

    /// Returns the word for a segment in use whose records all begin in or before the block of
    /// `end`. If the block's number does not fit, all bits are set: records may begin anywhere.
    fn in_use_word(&self, end: u64) -> u64 {
        let blocks = u32::try_from(end.div_ceil(BLOCK_BYTES)).ok();
        let Some(blocks) = blocks.filter(|blocks| *blocks < IN_USE_BIT) else { return u64::MAX };
        let half = IN_USE_BIT | blocks.max(1);
        u64::from(half) << 32 | u64::from(crc32c_append(self.salt(), &half.to_le_bytes()))
    }

    /// Decodes a word of [`Self::in_use_word`] into the offset, rounded up to whole blocks.
    fn reach_of(&self, word: u64) -> Option<u64> {
        let reach = (word >> 32 & u64::from(!IN_USE_BIT)) * BLOCK_BYTES;
        (word != u64::MAX && word == self.in_use_word(reach)).then_some(reach)
    }

    fn catalog_crc(&self, number: u64) -> u64 {
        u64::from(crc32c_append(self.salt(), &number.to_le_bytes()))
    }

    /// Returns whether the log never moved to the segment. Its creation may have failed, so its
    /// cached pages need not be on the disk.
    pub(super) fn was_never_used(&self) -> bool {
        !self.in_use && self.catalog == 0
    }

    /// Returns the LSN past the segment's last byte.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.base.0 + self.capacity)
    }
}

/// Reason why a head does not parse.
#[derive(Debug)]
pub(super) enum HeadFault {
    Damaged(String),
    Version(u32),
}

impl HeadFault {
    pub(super) fn into_error(self, file: &str) -> Error {
        match self {
            Self::Damaged(what) => Error::corruption(file, 0, what),
            Self::Version(found) => {
                Error::NewerFormat { file: file.to_owned(), found, supported: VERSION }
            }
        }
    }
}

/// Returns the name of segment `number` in the log's directory.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:016x}.log")
}

/// Returns the number in a segment's file name; `None` for any other name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Returns the name for messages, relative to the database's directory.
pub(super) fn display_name(number: u64) -> String {
    format!("log/{}", file_name(number))
}

/// A mapped segment that writers append to.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) head: SegmentHead,
    pub(super) salt: u32,
    pub(super) file: Arc<dyn File>,
    pub(super) mapping: Arc<Mapping>,
    /// Offset of the next reservation. Reservations that do not fit move it past the capacity.
    tail: AtomicU64,
    /// Pages below this offset are writable, and the head's reach is no less.
    prepared: AtomicU64,
    /// Recovery may have written anywhere in the file: the next sync covers all of it.
    needs_full_sync: AtomicBool,
    /// The head has stores that no sync covers.
    is_head_dirty: AtomicBool,
}

impl Segment {
    /// Maps a complete segment file whose records end at offset `tail`.
    pub(super) fn open(head: SegmentHead, file: Arc<dyn File>, tail: u64) -> Result<Self> {
        let doing = || format!("map {}", display_name(head.number));
        let mapping = file.map(head.capacity).map_err(|error| Error::io(doing(), error))?;
        Ok(Self {
            head,
            salt: head.salt(),
            file,
            mapping,
            tail: AtomicU64::new(tail),
            prepared: AtomicU64::new(tail),
            needs_full_sync: AtomicBool::new(true),
            is_head_dirty: AtomicBool::new(false),
        })
    }

    /// Creates segment `head.number` in `dir`, from the pruned file `recycled` or a new file. It is
    /// durable when this returns.
    pub(super) fn create(dir: &dyn Dir, head: SegmentHead, recycled: Option<&str>) -> Result<Self> {
        let name = file_name(head.number);
        let made = Self::create_file(dir, &head, &name, recycled);
        if made.is_err() {
            // Best effort: the next recovery recognises and removes the file.
            let _ = dir.remove(&name);
        }
        let file = made.map_err(|error| Error::io(format!("create log/{name}"), error))?;
        let mut segment = Self::open(head, file, HEAD_BYTES)?;
        segment.needs_full_sync = AtomicBool::new(false);
        Ok(segment)
    }

    fn create_file(
        dir: &dyn Dir,
        head: &SegmentHead,
        name: &str,
        recycled: Option<&str>,
    ) -> std::io::Result<Arc<dyn File>> {
        let file = if let Some(old) = recycled {
            dir.rename(old, name)?;
            dir.open(name, Open::WRITE)?
        } else {
            let file = match dir.open(name, Open::CREATE) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    // An earlier attempt failed, and so did the removal of its file.
                    dir.remove(name)?;
                    dir.open(name, Open::CREATE)?
                }
                opened => opened?,
            };
            file.allocate(head.capacity)?;
            file
        };
        io::write_all_at(&*file, &head.to_block(), 0)?;
        mutant!(LogSkipsSegmentHeadSync: Ok(()), else file.sync_all())?;
        mutant!(LogSkipsSegmentDirSync: Ok(()), else dir.sync())?;
        Ok(file)
    }

    /// Reserves `size` bytes by one atomic add and returns their offset. The reservation is valid
    /// if the whole range is within the capacity.
    #[inline]
    pub(super) fn reserve(&self, size: u64) -> u64 {
        self.tail.fetch_add(size, Ordering::AcqRel)
    }

    /// Returns the offset past the last reservation.
    pub(super) fn used(&self) -> u64 {
        self.tail.load(Ordering::Acquire).min(self.head.capacity)
    }

    /// Returns how many bytes past the last reservation are ready for stores.
    pub(super) fn prepared_ahead(&self) -> u64 {
        self.prepared.load(Ordering::Acquire).saturating_sub(self.used())
    }

    /// Makes the pages up to offset `to` ready for stores. Raises the head's reach first, so that
    /// every record begins below it: recovery after a kill searches for records behind an
    /// unfinished one only up to the reach.
    pub(super) fn prepare_pages(&self, to: u64) {
        let to = to.min(self.head.capacity);
        if to > self.prepared.load(Ordering::Acquire) {
            self.raise_reach(to);
        }
        let from = self.prepared.fetch_max(to, Ordering::AcqRel);
        if from < to {
            self.mapping.prepare_writes(from..to);
        }
    }

    /// Makes the records below `end` durable; those below `durable` are already. Leaves out pages
    /// that were prepared ahead of the records, because they would be written twice.
    pub(super) fn sync(&self, durable: Lsn, end: Lsn) -> std::io::Result<()> {
        let head_dirty = self.is_head_dirty.swap(false, Ordering::AcqRel);
        if self.needs_full_sync.swap(false, Ordering::AcqRel) {
            return self.file.sync_data();
        }
        let offset = |lsn: Lsn| lsn.0.saturating_sub(self.head.base.0).min(self.head.capacity);
        // Pages between the head and the unsynced records are clean and cost nothing.
        let from = if head_dirty { 0 } else { offset(durable) };
        let to = offset(end);
        let to = mutant!(LogSyncsTooFewLines: to - to % LINE_BYTES, else to);
        self.file.sync_range(&self.mapping, from..to)
    }

    /// Returns the LSN past the last reservation.
    pub(super) fn reserved_end(&self) -> Lsn {
        Lsn(self.head.base.0 + self.used())
    }

    /// Marks the segment as in use, or as closed cleanly. The mark need not become durable: it
    /// counts only under the kernel that wrote it, which still has the cached page.
    pub(super) fn mark_in_use(&self, in_use: bool) {
        let reach = self.prepared.load(Ordering::Acquire);
        self.store(IN_USE_OFFSET, if in_use { self.head.in_use_word(reach) } else { 0 });
    }

    /// Raises the reach in the head to `end`, if it is lower. It need not become durable: it counts
    /// only under the kernel that wrote it.
    fn raise_reach(&self, end: u64) {
        mutant!(LogNotesTooShortReach => return);
        let Some(word) = self.mapping.words().get(to_usize(IN_USE_OFFSET / 8)) else { return };
        let wanted = self.head.in_use_word(end);
        let raised = |now: u64| {
            let now = u64::from_le(now);
            (now != 0 && now < wanted).then_some(wanted.to_le())
        };
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, raised);
    }

    /// Marks in the head that a sync failed. The mark reaches the page cache, perhaps the disk.
    pub(super) fn mark_failed(&self) {
        // All bits of the word, so that one flipped bit does not undo the mark.
        self.store(FAILED_OFFSET, u64::MAX);
    }

    /// Stores the number of the catalog's newest durable edit in the head. It becomes durable with
    /// a later sync; a torn one counts as none.
    pub(super) fn store_catalog_edit(&self, number: u64) {
        self.store(CATALOG_OFFSET, number);
        self.store(CATALOG_CRC_OFFSET, self.head.catalog_crc(number));
    }

    fn store(&self, offset: u64, value: u64) {
        if let Some(word) = self.mapping.words().get(to_usize(offset / 8)) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
        self.is_head_dirty.store(true, Ordering::Release);
    }
}

/// Marks in the head of an unmapped segment that a sync failed: its cached pages need not be on the
/// disk. Best effort, because the disk has just failed.
pub(super) fn mark_failed(file: &dyn File) {
    let _ = io::write_all_at(file, &u64::MAX.to_le_bytes(), FAILED_OFFSET);
}

/// Removes segment `number` from the log's directory.
pub(super) fn remove(dir: &dyn Dir, number: u64) -> Result<()> {
    dir.remove(&file_name(number))
        .map_err(|error| Error::io(format!("remove {}", display_name(number)), error))
}

/// Returns a random nonce.
pub(super) fn random_nonce(env: &dyn Env) -> u64 {
    let mut bytes = [0; 8];
    env.random(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    fn head() -> SegmentHead {
        SegmentHead {
            database_id: *b"0123456789abcdef",
            number: 3,
            base: Lsn(1 << 20),
            capacity: 65536,
            boot_id: *b"bootbootbootboot",
            nonce: 0x0102_0304_0506_0708,
            in_use: false,
            reach: 65536,
            failed: false,
            catalog: 0,
        }
    }

    #[test]
    fn golden_bytes_of_a_segment_head() {
        let block = head().to_block();
        assert_eq!(block.len(), 4096);
        assert_eq!(&block[..12], b"QTLOGSEG\x01\0\0\0");
        assert_eq!(&block[16..40], b"0123456789abcdef\x03\0\0\0\0\0\0\0");
        assert_eq!(&block[40..56], b"\0\0\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0");
        assert_eq!(&block[56..80], b"bootbootbootboot\x08\x07\x06\x05\x04\x03\x02\x01");
        assert!(block[80..].iter().all(|byte| *byte == 0));
        assert_eq!(SegmentHead::parse(&block).unwrap(), head());
    }

    #[test]
    fn a_flipped_bit_or_a_truncation_invalidates_a_head() {
        let block = head().to_block();
        for bit in 0..FIELDS_BYTES * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHead::parse(&damaged).is_err(), "bit {bit}");
        }
        for cut in 0..block.len() {
            assert!(SegmentHead::parse(&block[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_torn_or_damaged_catalog_edit_counts_as_none() {
        let mut block = head().to_block();
        let edit = [7_u64.to_le_bytes(), head().catalog_crc(7).to_le_bytes()].concat();
        block[4064..4080].copy_from_slice(&edit);
        assert_eq!(SegmentHead::parse(&block).unwrap(), SegmentHead { catalog: 7, ..head() });
        for bit in 0..96 {
            let mut damaged = block.clone();
            damaged[4064 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHead::parse(&damaged).unwrap(), head(), "bit {bit}");
        }
    }

    #[test]
    fn golden_bytes_of_a_reach_and_a_damaged_reach_counts_as_none() {
        let mut block = head().to_block();
        block[4080..4088].copy_from_slice(&head().in_use_word(4097).to_le_bytes());
        assert_eq!(block[4084..4088], [2, 0, 0, 0x80]);
        let check = crc32c_append(head().salt(), &[2, 0, 0, 0x80]);
        assert_eq!(block[4080..4084], check.to_le_bytes());
        let in_use = SegmentHead { in_use: true, reach: 8192, ..head() };
        assert_eq!(SegmentHead::parse(&block).unwrap(), in_use);
        for bit in 0..64 {
            let mut damaged = block.clone();
            damaged[4080 + bit / 8] ^= 1 << (bit % 8);
            let unknown = SegmentHead { reach: head().capacity, ..in_use };
            assert_eq!(SegmentHead::parse(&damaged).unwrap(), unknown, "bit {bit}");
        }
        // Written by builds that have no reach.
        block[4080..4088].fill(0xff);
        assert_eq!(SegmentHead::parse(&block).unwrap(), SegmentHead { in_use: true, ..head() });
        assert_eq!(head().in_use_word(u64::MAX), u64::MAX);
    }

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(number_of(&file_name(0x1f)), Some(0x1f));
        for name in ["1.log", "000000000000000g.log", "0000000000000001", "catalog"] {
            assert_eq!(number_of(name), None);
        }
    }
}
