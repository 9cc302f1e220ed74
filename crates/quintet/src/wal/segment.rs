//! Segment files: preallocated, mapped, self-describing.
//!
//! What: the head of a segment, its file name, how one is made (or made again from a pruned one),
//! and the mapped segment that writers reserve space in.
//! Why: a segment is allocated in full and durable under its final name before the first record
//! goes in, so that a commit never meets a full disk half-way and an acknowledged record never
//! lies in a file that a crash can take back.
//!
//! Invariants: segment numbers are consecutive and each base LSN is the previous base plus
//! capacity; the nonce is fresh whenever a file becomes a segment, so that old records in it never
//! parse again.
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
        mutant::{self, Bug},
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

/// What a segment's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
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
    /// Whether a process appended to the segment and has not closed it.
    pub in_use: bool,
    /// Offset at and behind which no record begins, as long as the kernel runs that the segment
    /// was made under; the capacity where that is not known.
    pub reach: u64,
    /// Whether a sync failed while the segment was in use.
    pub failed: bool,
    /// Number of the newest catalog edit when it was noted here last, 0 for none: a catalog that
    /// ends before it is older than the log.
    pub catalog: u64,
}

impl Head {
    /// The head's block.
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

    /// The head at the front of a segment file; what is wrong with it where it is none.
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
        let noted = block.get(to_usize(CATALOG_OFFSET)..).map(Decoder::new);
        if let Some((number, crc)) = noted.and_then(|mut words| Some((words.u64()?, words.u64()?)))
            && crc == head.catalog_crc(number)
        {
            head.catalog = number;
        }
        Ok(head)
    }

    /// What the records' checksums start from.
    pub(super) fn salt(&self) -> u32 {
        record::salt(self.database_id, self.number, self.nonce)
    }

    /// The word that says that the segment is in use, and that no record begins behind the block
    /// that `end` is in. All bits are set where its number does not fit: then they may begin
    /// anywhere.
    fn in_use_word(&self, end: u64) -> u64 {
        let blocks = u32::try_from(end.div_ceil(BLOCK_BYTES)).ok();
        let Some(blocks) = blocks.filter(|blocks| *blocks < IN_USE_BIT) else { return u64::MAX };
        let half = IN_USE_BIT | blocks.max(1);
        u64::from(half) << 32 | u64::from(crc32c_append(self.salt(), &half.to_le_bytes()))
    }

    /// What a word of [`Self::in_use_word`] was made of, in whole blocks.
    fn reach_of(&self, word: u64) -> Option<u64> {
        let reach = (word >> 32 & u64::from(!IN_USE_BIT)) * BLOCK_BYTES;
        (word != u64::MAX && word == self.in_use_word(reach)).then_some(reach)
    }

    fn catalog_crc(&self, number: u64) -> u64 {
        u64::from(crc32c_append(self.salt(), &number.to_le_bytes()))
    }

    /// Whether the segment was made and the log never went on in it. Its making may have failed:
    /// what is cached of it need not be on the disk.
    pub(super) fn was_never_used(&self) -> bool {
        !self.in_use && self.catalog == 0
    }

    /// LSN past the segment's last byte.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.base.0 + self.capacity)
    }
}

/// Why a head does not parse.
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

/// The name of segment `number` in the log's directory.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:016x}.log")
}

/// The number in a segment's name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// The name for messages, relative to the database's directory.
pub(super) fn display_name(number: u64) -> String {
    format!("log/{}", file_name(number))
}

/// A mapped segment that records go into.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) head: Head,
    pub(super) salt: u32,
    pub(super) file: Arc<dyn File>,
    pub(super) mapping: Arc<Mapping>,
    /// Offset of the next reservation. Grows past the capacity by reservations that found no room.
    tail: AtomicU64,
    /// Pages below this offset have been made writable, and the head's reach is no less.
    prepared: AtomicU64,
    /// Recovery may have written anywhere in the file: the next sync is of all of it.
    is_fresh: AtomicBool,
    /// The head was stored to since the last sync.
    head_marked: AtomicBool,
}

impl Segment {
    /// Wraps an open, whole segment file whose records end at `tail` (an offset).
    pub(super) fn open(head: Head, file: Arc<dyn File>, tail: u64) -> Result<Self> {
        let doing = || format!("map {}", display_name(head.number));
        let mapping = file.map(head.capacity).map_err(|error| Error::io(doing(), error))?;
        Ok(Self {
            head,
            salt: head.salt(),
            file,
            mapping,
            tail: AtomicU64::new(tail),
            prepared: AtomicU64::new(tail),
            is_fresh: AtomicBool::new(true),
            head_marked: AtomicBool::new(false),
        })
    }

    /// Makes segment `head.number` in `dir` and makes it durable: from the pruned file `recycled`
    /// or new.
    pub(super) fn create(dir: &dyn Dir, head: Head, recycled: Option<&str>) -> Result<Self> {
        let name = file_name(head.number);
        let made = Self::create_file(dir, &head, &name, recycled);
        if made.is_err() {
            // Best effort: a leftover is recognised and removed by the next recovery anyway.
            let _ = dir.remove(&name);
        }
        let file = made.map_err(|error| Error::io(format!("create log/{name}"), error))?;
        let mut segment = Self::open(head, file, HEAD_BYTES)?;
        segment.is_fresh = AtomicBool::new(false);
        Ok(segment)
    }

    fn create_file(
        dir: &dyn Dir,
        head: &Head,
        name: &str,
        recycled: Option<&str>,
    ) -> std::io::Result<Arc<dyn File>> {
        let file = if let Some(old) = recycled {
            dir.rename(old, name)?;
            dir.open(name, Open::WRITE)?
        } else {
            let file = match dir.open(name, Open::CREATE) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    // An earlier try failed, and so did its removal.
                    dir.remove(name)?;
                    dir.open(name, Open::CREATE)?
                }
                opened => opened?,
            };
            file.allocate(head.capacity)?;
            file
        };
        io::write_all_at(&*file, &head.to_block(), 0)?;
        if !mutant::active(Bug::LogSkipsSegmentHeadSync) {
            file.sync_all()?;
        }
        if !mutant::active(Bug::LogSkipsSegmentDirSync) {
            dir.sync()?;
        }
        Ok(file)
    }

    /// Reserves `size` bytes: one atomic add. The offset is good if the whole range lies in the
    /// capacity.
    #[inline]
    pub(super) fn reserve(&self, size: u64) -> u64 {
        self.tail.fetch_add(size, Ordering::AcqRel)
    }

    /// Offset past the last reservation.
    pub(super) fn used(&self) -> u64 {
        self.tail.load(Ordering::Acquire).min(self.head.capacity)
    }

    /// How many bytes past the last reservation are ready for stores.
    pub(super) fn prepared_ahead(&self) -> u64 {
        self.prepared.load(Ordering::Acquire).saturating_sub(self.used())
    }

    /// Makes the pages up to offset `to` ready for stores, where they are not. Every record lies in
    /// pages that somebody has asked for here, so the head says first how far they reach: opening
    /// after a kill searches for records behind an unfinished one, and not beyond.
    pub(super) fn prepare_pages(&self, to: u64) {
        let to = to.min(self.head.capacity);
        if to > self.prepared.load(Ordering::Acquire) {
            self.note_reach(to);
        }
        let from = self.prepared.fetch_max(to, Ordering::AcqRel);
        if from < to {
            self.mapping.prepare_writes(from..to);
        }
    }

    /// Makes the records below `end` durable, given that those below `durable` are. Pages that were
    /// prepared ahead of the records are left out, because they would be written twice.
    pub(super) fn sync(&self, durable: Lsn, end: Lsn) -> std::io::Result<()> {
        let marked = self.head_marked.swap(false, Ordering::AcqRel);
        if self.is_fresh.swap(false, Ordering::AcqRel) {
            return self.file.sync_data();
        }
        let offset = |lsn: Lsn| lsn.0.saturating_sub(self.head.base.0).min(self.head.capacity);
        // What lies between head and records is clean, and costs nothing.
        let from = if marked { 0 } else { offset(durable) };
        let mut to = offset(end);
        if mutant::active(Bug::LogSyncsTooFewLines) {
            to -= to % LINE_BYTES;
        }
        self.file.sync_range(&self.mapping, from..to)
    }

    /// LSN past the last reservation.
    pub(super) fn reserved_end(&self) -> Lsn {
        Lsn(self.head.base.0 + self.used())
    }

    /// Notes in the head that a process appends, or has closed the log cleanly. Lives in the page
    /// cache: it only counts while the kernel stays up.
    pub(super) fn mark_in_use(&self, in_use: bool) {
        let reach = self.prepared.load(Ordering::Acquire);
        self.store(IN_USE_OFFSET, if in_use { self.head.in_use_word(reach) } else { 0 });
    }

    /// Notes in the head that records may begin before offset `end`, if it says less. Only counts
    /// in the page cache: nothing has to become durable.
    fn note_reach(&self, end: u64) {
        let Some(word) = self.mapping.words().get(to_usize(IN_USE_OFFSET / 8)) else { return };
        let noted = self.head.in_use_word(end);
        let raised = |now: u64| {
            let now = u64::from_le(now);
            (now != 0 && now < noted).then_some(noted.to_le())
        };
        if !mutant::active(Bug::LogNotesTooShortReach) {
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, raised);
        }
    }

    /// Notes in the head that a sync failed. Reaches the page cache, perhaps the disk.
    pub(super) fn mark_failed(&self) {
        // All bits of the word, so that one flipped bit does not undo the mark.
        self.store(FAILED_OFFSET, u64::MAX);
    }

    /// Notes in the head the newest edit of the catalog, which is durable. Reaches the disk with a
    /// later sync; a note that is torn counts as none.
    pub(super) fn note_catalog(&self, number: u64) {
        self.store(CATALOG_OFFSET, number);
        self.store(CATALOG_CRC_OFFSET, self.head.catalog_crc(number));
    }

    fn store(&self, offset: u64, value: u64) {
        if let Some(word) = self.mapping.words().get(to_usize(offset / 8)) {
            word.store(value.to_le(), Ordering::Relaxed);
        }
        self.head_marked.store(true, Ordering::Release);
    }
}

/// Notes in an unmapped segment's head that a sync failed: what is cached need not be on the disk.
/// Best effort, as the disk has just failed.
pub(super) fn note_failed(file: &dyn File) {
    let _ = io::write_all_at(file, &u64::MAX.to_le_bytes(), FAILED_OFFSET);
}

/// A fresh nonce.
pub(super) fn nonce(env: &dyn Env) -> u64 {
    let mut bytes = [0; 8];
    env.random(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
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
        assert_eq!(Head::parse(&block).unwrap(), head());
    }

    #[test]
    fn any_flipped_bit_or_cut_of_the_fields_is_noticed() {
        let block = head().to_block();
        for bit in 0..FIELDS_BYTES * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::parse(&damaged).is_err(), "bit {bit}");
        }
        for cut in 0..block.len() {
            assert!(Head::parse(&block[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_torn_or_damaged_note_of_the_catalog_counts_as_none() {
        let mut block = head().to_block();
        let note = [7_u64.to_le_bytes(), head().catalog_crc(7).to_le_bytes()].concat();
        block[4064..4080].copy_from_slice(&note);
        assert_eq!(Head::parse(&block).unwrap(), Head { catalog: 7, ..head() });
        for bit in 0..96 {
            let mut damaged = block.clone();
            damaged[4064 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::parse(&damaged).unwrap(), head(), "bit {bit}");
        }
    }

    #[test]
    fn golden_bytes_of_a_reach_and_a_damaged_one_counts_as_none() {
        let mut block = head().to_block();
        block[4080..4088].copy_from_slice(&head().in_use_word(4097).to_le_bytes());
        assert_eq!(block[4084..4088], [2, 0, 0, 0x80]);
        let check = crc32c_append(head().salt(), &[2, 0, 0, 0x80]);
        assert_eq!(block[4080..4084], check.to_le_bytes());
        let in_use = Head { in_use: true, reach: 8192, ..head() };
        assert_eq!(Head::parse(&block).unwrap(), in_use);
        for bit in 0..64 {
            let mut damaged = block.clone();
            damaged[4080 + bit / 8] ^= 1 << (bit % 8);
            let unknown = Head { reach: head().capacity, ..in_use };
            assert_eq!(Head::parse(&damaged).unwrap(), unknown, "bit {bit}");
        }
        // What releases before this note wrote.
        block[4080..4088].fill(0xff);
        assert_eq!(Head::parse(&block).unwrap(), Head { in_use: true, ..head() });
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
