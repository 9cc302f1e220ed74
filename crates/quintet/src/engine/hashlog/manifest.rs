//! The manifest: what is in the data files, and the checkpoint of the index.
//!
//! What: an append-only file of publications. Each adds the extents flushed since the last one,
//! with a hint for each of their entries, and names what was freed; it takes effect with its last
//! record, the commit.
//! Why: a hint is all that the index needs of an entry, so opening reads 10 bytes an entry instead
//! of the entry; written once with its extent, the checkpoint is incremental by nature, where
//! rewriting dirty regions of the index would write most of it at each persist (inserts are
//! random).
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QHLINDEX` |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 47 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of this manifest; newer ones replace it |
//! | 512 | | publications | each at a multiple of 512: a begin, records, a commit |
//!
//! A record is `body size (4), crc (4), kind (1), body`; the CRC32C covers salt (ids and number),
//! kind, size and body, but for an extent's hints, which have their own. Integers of bodies are 8
//! bytes.
//!
//! | kind | body |
//! |---|---|
//! | 1 begin | sequence of the publication |
//! | 2 extent | chunk, serial, order, created, file, offset, bytes of the place; start, end, entry count, body crc, first lsn, last lsn, sealed (0, 1), span; hint crc; then hints |
//! | 3 drop | chunk, serial |
//! | 4 large | number, lsn, file, offset, bytes of the place, value size |
//! | 5 drop large | number |
//! | 6 commit | sequence, complete lsn, next serial, next large number, next file number, collided (0, 1) |
//!
//! Hints begin with the varint of a size that all entries have, or 0. Each: the low 56 bits of the
//! hash (7 bytes); where sizes differ the varint of its size, `key and value bytes * 8 + wide * 4 +
//! kind` (0 put, 1 tombstone, 2 large); for a large one the varint of its number.
//!
//! Invariants: a publication is synced before anything that it frees is freed. What follows the
//! last commit never happened, unless a later publication's begin stands behind it: then the bytes
//! between are damaged. No sector is written twice once it is part of a commit.
//!
//! Thread rules: belongs to maintenance (one thread at a time).

#![deny(clippy::indexing_slicing)]

use std::{io, sync::Arc};

use super::files::{Owner, label};
use crate::{
    Error, Result,
    codec::{
        Decoder, crc32c, crc32c_append, low_u8, put_u32, put_u64, put_varint, round_up, to_u64,
        to_usize,
    },
    disk::{Dir, File, Open, SECTOR_BYTES, read_exact_at, read_up_to, write_all_at},
};

const MAGIC: &[u8; 8] = b"QHLINDEX";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 48;
const FRAME_BYTES: usize = 9;
const EXTENT_BYTES: usize = 16 * 8;
/// Buffered records are written once there are this many bytes of them.
const WRITE_BYTES: usize = 1 << 20;
const UNFINISHED: &str = "manifest-new";

const BEGIN: u8 = 1;
const EXTENT: u8 = 2;
const DROP: u8 = 3;
const LARGE: u8 = 4;
const DROP_LARGE: u8 = 5;
const COMMIT: u8 = 6;

/// An extent as the manifest knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) chunk: u64,
    pub(super) serial: u64,
    pub(super) order: u64,
    pub(super) created: u64,
    pub(super) file: u64,
    pub(super) offset: u64,
    pub(super) place_bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) entry_count: u64,
    pub(super) body_crc: u64,
    pub(super) first_lsn: u64,
    pub(super) last_lsn: u64,
    pub(super) sealed: u64,
    /// Units that a read of one entry should fetch.
    pub(super) span: u64,
}

/// A large value as the manifest knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LargeRecord {
    pub(super) number: u64,
    pub(super) lsn: u64,
    pub(super) file: u64,
    pub(super) offset: u64,
    pub(super) place_bytes: u64,
    pub(super) bytes: u64,
}

/// What a commit says of the whole table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) sequence: u64,
    pub(super) complete: u64,
    pub(super) next_serial: u64,
    pub(super) next_large: u64,
    pub(super) next_file: u64,
    pub(super) collided: u64,
}

/// One hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) hash: u64,
    /// Bytes of key and value.
    pub(super) payload: u64,
    /// 1 where the head is wide.
    pub(super) wide: u64,
    /// 0 put, 1 tombstone, 2 large.
    pub(super) kind: u64,
    pub(super) large: u64,
}

/// Bits of hashes in hints: enough to tell keys apart but for one table in ten of 100 million.
/// Two keys that agree in them count as collided.
pub(super) const HINT_HASH_MASK: u64 = (1 << 56) - 1;

impl Hint {
    fn sizes(&self) -> u64 {
        self.payload << 3 | self.wide << 2 | self.kind
    }
}

/// Encodes an extent's hints.
pub(super) fn encode_hints(hints: &[Hint]) -> Vec<u8> {
    let first = hints.first().map_or(0, Hint::sizes);
    let common = if hints.iter().all(|hint| hint.sizes() == first) { first } else { 0 };
    let mut out = Vec::with_capacity(hints.len() * 9 + 10);
    put_varint(&mut out, common);
    for hint in hints {
        out.extend_from_slice(hint.hash.to_le_bytes().get(..7).unwrap_or(&[]));
        if common == 0 {
            put_varint(&mut out, hint.sizes());
        }
        if hint.kind == 2 {
            put_varint(&mut out, hint.large);
        }
    }
    out
}

/// Reads an extent's hints. Ends early at bytes that are none: see [`HintReader::is_empty`].
#[derive(Debug)]
pub(super) struct HintReader<'a> {
    decoder: Decoder<'a>,
    common: u64,
}

impl<'a> HintReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Decoder::new(bytes);
        let common = decoder.varint().unwrap_or(0);
        Self { decoder, common }
    }

    /// Whether everything has been read.
    pub(super) fn is_empty(&self) -> bool {
        self.decoder.is_empty()
    }
}

impl Iterator for HintReader<'_> {
    type Item = Hint;

    #[inline]
    fn next(&mut self) -> Option<Hint> {
        let mut hash = [0; 8];
        hash.split_at_mut(7).0.copy_from_slice(self.decoder.take(7)?);
        let sizes = if self.common == 0 { self.decoder.varint()? } else { self.common };
        let large = if sizes & 3 == 2 { self.decoder.varint()? } else { 0 };
        Some(Hint {
            hash: u64::from_le_bytes(hash),
            payload: sizes >> 3,
            wide: sizes >> 2 & 1,
            kind: sizes & 3,
            large,
        })
    }
}

/// Where an extent's hints are in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

/// What the last commit left.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) commit: Commit,
    pub(super) extents: Vec<(Extent, Hints)>,
    pub(super) larges: Vec<LargeRecord>,
}

impl Contents {
    fn add(&mut self, record: Record) {
        match record {
            Record::Extent(extent, hints) => self.extents.push((extent, hints)),
            Record::Drop { chunk, serial } => {
                self.extents.retain(|(extent, _)| extent.chunk != chunk || extent.serial != serial);
            }

            Record::Large(large) => self.larges.push(large),
            Record::DropLarge(number) => self.larges.retain(|large| large.number != number),
            Record::Commit(commit) => self.commit = commit,
            Record::Begin(_) => {}
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Record {
    Begin(u64),
    Extent(Extent, Hints),
    Drop { chunk: u64, serial: u64 },
    Large(LargeRecord),
    DropLarge(u64),
    Commit(Commit),
}

fn words<const N: usize>(decoder: &mut Decoder<'_>) -> Option<[u64; N]> {
    let mut out = [0; N];
    for word in &mut out {
        *word = decoder.u64()?;
    }
    Some(out)
}

/// Decodes a body without hints; `hints` is where those would begin.
fn decode(kind: u8, body: &[u8], hints: Hints) -> Option<Record> {
    let mut decoder = Decoder::new(body);
    let record = match kind {
        BEGIN => Record::Begin(decoder.u64()?),
        EXTENT => {
            let [chunk, serial, order, created, file, offset, place_bytes] = words(&mut decoder)?;
            let [start, end, entry_count, body_crc, first_lsn, last_lsn] = words(&mut decoder)?;
            let [sealed, span, crc] = words(&mut decoder)?;
            let extent = Extent {
                chunk,
                serial,
                order,
                created,
                file,
                offset,
                place_bytes,
                start,
                end,
                entry_count,
                body_crc,
                first_lsn,
                last_lsn,
                sealed,
                span,
            };
            Record::Extent(extent, Hints { crc: u32::try_from(crc).ok()?, ..hints })
        }
        DROP => {
            let [chunk, serial] = words(&mut decoder)?;
            Record::Drop { chunk, serial }
        }
        LARGE => {
            let [number, lsn, file, offset, place_bytes, bytes] = words(&mut decoder)?;
            Record::Large(LargeRecord { number, lsn, file, offset, place_bytes, bytes })
        }
        DROP_LARGE => Record::DropLarge(decoder.u64()?),
        COMMIT => {
            let [sequence, complete, next_serial, next_large, next_file, collided] =
                words(&mut decoder)?;
            Record::Commit(Commit {
                sequence,
                complete,
                next_serial,
                next_large,
                next_file,
                collided,
            })
        }
        _ => return None,
    };
    decoder.is_empty().then_some(record)
}

fn name_of(number: u64) -> String {
    format!("manifest-{number:08x}")
}

/// The number in a manifest's name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

/// Whether the name is one of a manifest that was never finished.
pub(super) fn is_unfinished(name: &str) -> bool {
    name == UNFINISHED
}

/// An open manifest.
#[derive(Debug)]
pub(super) struct Manifest {
    dir: Arc<dyn Dir>,
    owner: Owner,
    number: u64,
    file: Arc<dyn File>,
    label: String,
    salt: u32,
    /// Where the next publication begins, or, while one is written, its buffered bytes.
    end: u64,
    buffer: Vec<u8>,
    sequence: u64,
    pub(super) written_bytes: u64,
}

impl Manifest {
    /// Opens the newest of the manifests and reads it up to its last commit.
    pub(super) fn open(
        dir: &Arc<dyn Dir>,
        owner: Owner,
        number: u64,
        write: bool,
    ) -> Result<(Self, Contents)> {
        let name = name_of(number);
        let label = label(owner.table_id, &name);
        let how = if write { Open::WRITE } else { Open::READ };
        let file =
            dir.open(&name, how).map_err(|error| Error::io(format!("open {label}"), error))?;
        let mut manifest = Self::with_file(Arc::clone(dir), owner, number, file, label);
        manifest.verify_head()?;
        let contents = manifest.read()?;
        if write {
            // What never happened must not come back behind a later, shorter publication.
            let file = &manifest.file;
            let cut = file.len().and_then(|length| {
                if length > manifest.end { file.set_len(manifest.end) } else { Ok(()) }
            });
            cut.map_err(|error| Error::io(format!("cut {}", manifest.label), error))?;
        }
        Ok((manifest, contents))
    }

    fn with_file(
        dir: Arc<dyn Dir>,
        owner: Owner,
        number: u64,
        file: Arc<dyn File>,
        label: String,
    ) -> Self {
        let mut ids = owner.database_id.to_vec();
        put_u64(&mut ids, owner.table_id);
        put_u64(&mut ids, number);
        let salt = crc32c(&ids);
        Self {
            dir,
            owner,
            number,
            file,
            label,
            salt,
            end: SECTOR_BYTES,
            buffer: Vec::new(),
            sequence: 0,
            written_bytes: 0,
        }
    }

    fn head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(to_usize(SECTOR_BYTES));
        head.extend_from_slice(MAGIC);
        put_u32(&mut head, FORMAT);
        put_u32(&mut head, 0);
        head.extend_from_slice(&self.owner.database_id);
        put_u64(&mut head, self.owner.table_id);
        put_u64(&mut head, self.number);
        let crc = crc32c(&head).to_le_bytes();
        if let Some(field) = head.get_mut(12..16) {
            field.copy_from_slice(&crc);
        }
        head
    }

    fn verify_head(&self) -> Result<()> {
        let mut found = vec![0; HEAD_BYTES];
        let count = read_up_to(&*self.file, &mut found, 0)
            .map_err(|error| Error::io(format!("read {}", self.label), error))?;
        if count == HEAD_BYTES && found == self.head() {
            return Ok(());
        }
        let mut fields = Decoder::new(found.get(8..16).unwrap_or(&[]));
        let (format, crc) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
        if let Some(field) = found.get_mut(12..16) {
            field.fill(0);
        }
        let whole = count == HEAD_BYTES && found.starts_with(MAGIC) && crc32c(&found) == crc;
        if whole && format > FORMAT {
            let file = self.label.clone();
            return Err(Error::NewerFormat { file, found: format, supported: FORMAT });
        }
        Err(Error::corruption(&*self.label, 0, "the head is not that of this table's manifest"))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<bool> {
        match read_exact_at(&*self.file, out, offset) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Error::io(format!("read {}", self.label), error)),
        }
    }

    /// The record at `offset` and the offset past it; `None` for anything else.
    fn record(&self, offset: u64, length: u64) -> Result<Option<(Record, u64)>> {
        let mut start = [0; FRAME_BYTES + EXTENT_BYTES];
        let available = to_usize(length.saturating_sub(offset).min(to_u64(start.len())));
        let Some(start) = start.get_mut(..available) else { return Ok(None) };
        if !self.read_at(offset, start)? {
            return Ok(None);
        }
        let mut decoder = Decoder::new(start);
        let (Some(size), Some(crc), Some(kind)) = (decoder.u32(), decoder.u32(), decoder.u8())
        else {
            return Ok(None);
        };
        let size = u64::from(size);
        let body_at = offset + to_u64(FRAME_BYTES);
        let summed = if kind == EXTENT { size.min(to_u64(EXTENT_BYTES)) } else { size };
        let Some(body) = decoder.take(to_usize(summed)) else { return Ok(None) };
        if body_at + size > length || self.checksum(kind, size, body) != crc {
            return Ok(None);
        }
        let hints = Hints { offset: body_at + summed, bytes: size - summed, crc: 0 };
        Ok(decode(kind, body, hints).map(|record| (record, body_at + size)))
    }

    fn checksum(&self, kind: u8, size: u64, summed: &[u8]) -> u32 {
        let mut lead = vec![kind];
        put_u64(&mut lead, size);
        crc32c_append(crc32c_append(self.salt, &lead), summed)
    }

    fn read(&mut self) -> Result<Contents> {
        let length =
            self.file.len().map_err(|error| Error::io(format!("read {}", self.label), error))?;
        let mut contents = Contents::default();
        while let Some((records, next)) = self.publication(length)? {
            for record in records {
                contents.add(record);
            }
            self.end = next;
            self.sequence += 1;
        }
        self.refuse_damage(length)?;
        if self.sequence == 0 {
            return Err(Error::corruption(&*self.label, SECTOR_BYTES, "no commit is readable"));
        }
        Ok(contents)
    }

    /// The publication at `self.end`, if it is whole, and where the next one begins.
    fn publication(&self, length: u64) -> Result<Option<(Vec<Record>, u64)>> {
        let mut records = Vec::new();
        let mut offset = self.end;
        while let Some((record, next)) = self.record(offset, length)? {
            match record {
                Record::Begin(sequence) if offset == self.end && sequence == self.sequence => {}
                Record::Begin(_) => return Ok(None),
                _ if offset == self.end => return Ok(None),
                Record::Commit(commit) => {
                    if commit.sequence != self.sequence {
                        return Ok(None);
                    }
                    records.push(record);
                    return Ok(Some((records, round_up(next, SECTOR_BYTES))));
                }
                _ => {}
            }
            records.push(record);
            offset = next;
        }
        Ok(None)
    }

    /// A later publication behind the first unreadable one shows that this one was durable once.
    fn refuse_damage(&self, length: u64) -> Result<()> {
        let mut offset = self.end + SECTOR_BYTES;
        while offset < length {
            if let Some((Record::Begin(sequence), _)) = self.record(offset, length)?
                && sequence > self.sequence
            {
                let what = format!("publication {} is unreadable", self.sequence);
                return Err(Error::corruption(&*self.label, self.end, what));
            }
            offset += SECTOR_BYTES;
        }
        Ok(())
    }

    /// The hints of an extent, verified; `None` where they are damaged (the extent itself has all
    /// they say).
    pub(super) fn hints(&self, hints: &Hints) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; to_usize(hints.bytes)];
        let whole = self.read_at(hints.offset, &mut bytes)?;
        Ok((whole && crc32c(&bytes) == hints.crc).then_some(bytes))
    }

    fn frame(&mut self, kind: u8, body: &[u8], hints: &[u8]) {
        let size = to_u64(body.len() + hints.len());
        let crc = self.checksum(kind, size, body);
        self.buffer.extend_from_slice(&size.to_le_bytes()[..4]);
        put_u32(&mut self.buffer, crc);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(body);
        self.buffer.extend_from_slice(hints);
    }

    fn words(&mut self, kind: u8, words: &[u64], hints: &[u8]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.frame(kind, &body, hints);
    }

    /// Starts a publication. What an earlier, failed one left in the buffer is dropped.
    pub(super) fn begin(&mut self) {
        self.buffer.clear();
        self.words(BEGIN, &[self.sequence], &[]);
    }

    /// Adds an extent with its hints.
    pub(super) fn add_extent(&mut self, extent: &Extent, hints: &[u8]) {
        let words = [
            extent.chunk,
            extent.serial,
            extent.order,
            extent.created,
            extent.file,
            extent.offset,
            extent.place_bytes,
            extent.start,
            extent.end,
            extent.entry_count,
            extent.body_crc,
            extent.first_lsn,
            extent.last_lsn,
            extent.sealed,
            extent.span,
            u64::from(crc32c(hints)),
        ];
        self.words(EXTENT, &words, hints);
    }

    /// Says that a chunk's place is free.
    pub(super) fn add_drop(&mut self, chunk: u64, serial: u64) {
        self.words(DROP, &[chunk, serial], &[]);
    }

    /// Adds a large value.
    pub(super) fn add_large(&mut self, large: &LargeRecord) {
        let &LargeRecord { number, lsn, file, offset, place_bytes, bytes } = large;
        self.words(LARGE, &[number, lsn, file, offset, place_bytes, bytes], &[]);
    }

    /// Says that a large value's place is free.
    pub(super) fn add_drop_large(&mut self, number: u64) {
        self.words(DROP_LARGE, &[number], &[]);
    }

    /// Ends the publication and makes it durable. After an error, the manifest is as before on
    /// disk or the publication took effect: a failed sync leaves it open, and the caller
    /// writes no more.
    pub(super) fn commit(&mut self, commit: Commit) -> Result<()> {
        let Commit { complete, next_serial, next_large, next_file, collided, .. } = commit;
        let words = [self.sequence, complete, next_serial, next_large, next_file, collided];
        self.words(COMMIT, &words, &[]);
        let size = round_up(to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(size), 0);
        self.write_buffer(self.end)?;
        self.sync()?;
        self.end += size;
        self.sequence += 1;
        self.buffer.clear();
        Ok(())
    }

    fn write_buffer(&mut self, at: u64) -> Result<()> {
        write_all_at(&*self.file, &self.buffer, at)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        self.written_bytes += to_u64(self.buffer.len());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io(format!("sync {}", self.label), error))
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// The number in its name.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Makes the first manifest of a table, or one with what is still in force of `from`, and lets
    /// it take that one's place. Durable when this returns.
    pub(super) fn create(
        dir: &Arc<dyn Dir>,
        owner: Owner,
        number: u64,
        from: Option<(&Self, &Contents)>,
        commit: Commit,
    ) -> Result<Self> {
        let name = name_of(number);
        let label = label(owner.table_id, &name);
        let doing = |error| Error::io(format!("create {label}"), error);
        match dir.remove(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(doing(error)),
            _ => {}
        }
        let file = dir.open(UNFINISHED, Open::CREATE).map_err(doing)?;
        let mut new = Self::with_file(Arc::clone(dir), owner, number, file, label.clone());
        let mut head = new.head();
        head.resize(to_usize(SECTOR_BYTES), 0);
        write_all_at(&*new.file, &head, 0).map_err(doing)?;
        new.begin();
        let mut end = new.end;
        if let Some((old, contents)) = from {
            for (extent, place) in &contents.extents {
                // Damaged hints go over as none: the reader falls back to the extent.
                let hints = old.hints(place)?;
                match &hints {
                    Some(hints) => new.add_extent(extent, hints),
                    None => new.add_extent(extent, &[low_u8(0)]),
                }
                if new.buffer.len() >= WRITE_BYTES {
                    new.write_buffer(end)?;
                    end += to_u64(new.buffer.len());
                    new.buffer.clear();
                }
            }
            contents.larges.iter().for_each(|large| new.add_large(large));
        }
        let begun = new.end;
        new.end = end;
        let padding = end - begun;
        new.finish_first(commit, padding)?;
        dir.rename(UNFINISHED, &name).map_err(doing)?;
        dir.sync().map_err(doing)?;
        if let Some((old, _)) = from {
            dir.remove(&name_of(old.number)).map_err(doing)?;
        }
        Ok(new)
    }

    /// Ends a first publication of which `written` bytes are in the file already.
    fn finish_first(&mut self, commit: Commit, written: u64) -> Result<()> {
        let Commit { complete, next_serial, next_large, next_file, collided, .. } = commit;
        let words = [self.sequence, complete, next_serial, next_large, next_file, collided];
        self.words(COMMIT, &words, &[]);
        let end = round_up(self.end + to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(end - self.end), 0);
        debug_assert!(written + SECTOR_BYTES == self.end);
        self.write_buffer(self.end)?;
        self.file.sync_all().map_err(|error| Error::io(format!("sync {}", self.label), error))?;
        self.end = end;
        self.sequence += 1;
        self.buffer.clear();
        Ok(())
    }

    /// Reads the manifest again, as opening does: for a rewrite and for checks.
    pub(super) fn reread(&self) -> Result<Contents> {
        let file = Arc::clone(&self.file);
        let mut copy = Self::with_file(
            Arc::clone(&self.dir),
            self.owner,
            self.number,
            file,
            self.label.clone(),
        );
        copy.verify_head()?;
        copy.read()
    }
}
