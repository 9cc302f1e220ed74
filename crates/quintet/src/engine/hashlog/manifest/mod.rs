//! The manifest: what is in the data files, and the checkpoint of the index.
//!
//! What: an append-only file of publications. Each adds the extents flushed since the last one,
//! and names what was freed; it takes effect with its last record, the commit. Behind the commit
//! stand hints: one for each entry of those extents.
//! Why: a hint is all that the index needs of an entry, so opening reads 7 to 10 bytes an entry
//! instead of the entry; written once with its extent, the checkpoint is incremental by nature,
//! where rewriting dirty regions of the index would write most of it at each persist (inserts are
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
//! | 512 | | publications | each at a multiple of 512: a begin, records, a commit; at the next multiple of 512 the hints of its extents, in the records' order |
//!
//! Records are laid out in [`record`], hints in [`hints`].
//!
//! Invariants: a publication is synced before anything that it frees is freed. What follows the
//! last commit never happened, unless a later publication's begin stands behind it: then the bytes
//! between are damaged. Hints that are not whole are made anew from their extent. No sector is
//! written twice once it is part of a commit. Where a sync fails, what the disk holds is in doubt:
//! that file gets nothing more, and another manifest takes its place. Until one has its name
//! durably, whichever of the two a crash leaves is right, because nothing that either names is
//! freed.
//!
//! Thread rules: belongs to maintenance (one thread at a time).

#![deny(clippy::indexing_slicing)]

mod describe;
mod hints;
mod record;
mod window;

use std::{io, mem, sync::Arc};

pub(super) use self::describe::describe;
pub(super) use self::hints::{HINT_HASH_MASK, Hint, HintReader, encode_hints};
pub(super) use self::record::{Commit, Contents, Extent, Hints, LargeRecord};
use self::{
    record::{
        BEGIN, COMMIT, DROP, DROP_LARGE, EXTENT, FRAME_BYTES, LARGE, RECORD_BYTES_MAX, Record,
        decode,
    },
    window::Window,
};
use super::files::{Owner, label};
use crate::{
    Error, Result,
    io::{Dir, File, Open, SECTOR_BYTES, read_up_to, write_all_at},
    util::{
        codec::{
            Decoder, crc32c, crc32c_append, low_u32, put_u32, put_u64, round_up, to_u64, to_usize,
        },
        mutant::{self, Bug},
    },
};

const MAGIC: &[u8; 8] = b"QHLINDEX";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 48;
/// Buffered records are written once there are this many bytes of them.
const WRITE_BYTES: usize = 1 << 20;
const UNFINISHED: &str = "manifest-new";

/// Records with their offsets.
type Records = Vec<(u64, Record)>;

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
    /// Of the publication in the buffer.
    hints: Vec<u8>,
    sequence: u64,
    /// Whether this is what a crash would leave, and goes on to be, is not known: a sync failed.
    in_doubt: bool,
    pub(super) written_bytes: u64,
}

impl Manifest {
    /// Opens the newest of the manifests and reads it up to its last commit. Unless it is opened
    /// for reading alone, all that was read is durable then.
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
        if write {
            // A process that died may have left a publication, or the name, in the cache alone.
            // The log is pruned on the strength of it.
            file.sync_all().map_err(|error| Error::io(format!("sync {label}"), error))?;
            let doing = |error| Error::io(format!("sync {}", dir.path().display()), error);
            dir.sync().map_err(doing)?;
        }
        let on_disk = dir.open(&name, Open::READ.direct());
        let on_disk = on_disk.map_err(|error| Error::io(format!("open {label}"), error))?;
        let mut manifest = Self::with_file(Arc::clone(dir), owner, number, file, label);
        manifest.verify_head()?;
        let length = manifest.file.len();
        let length =
            length.map_err(|error| Error::io(format!("read {}", manifest.label), error))?;
        let contents = manifest.read(&mut Window::new(on_disk), length)?;
        if write {
            // What never happened must not come back behind a later, shorter publication.
            let file = &manifest.file;
            let cut = if length > manifest.end { file.set_len(manifest.end) } else { Ok(()) };
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
            hints: Vec::new(),
            sequence: 0,
            in_doubt: false,
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

    /// The record at `offset` and the offset past it; `None` for anything else.
    fn record(
        &self,
        window: &mut Window,
        offset: u64,
        length: u64,
    ) -> Result<Option<(Record, u64)>> {
        let available = length.saturating_sub(offset).min(to_u64(FRAME_BYTES + RECORD_BYTES_MAX));
        let bytes = window
            .get(offset, to_usize(available))
            .map_err(|error| Error::io(format!("read {}", self.label), error))?;
        let mut decoder = Decoder::new(bytes);
        let (Some(size), Some(crc), Some(kind)) = (decoder.u32(), decoder.u32(), decoder.u8())
        else {
            return Ok(None);
        };
        let size = u64::from(size);
        let Some(body) = decoder.take(to_usize(size)) else { return Ok(None) };
        if self.checksum(kind, body) != crc {
            return Ok(None);
        }
        Ok(decode(kind, body).map(|record| (record, offset + to_u64(FRAME_BYTES) + size)))
    }

    fn checksum(&self, kind: u8, body: &[u8]) -> u32 {
        let mut lead = vec![kind];
        put_u64(&mut lead, to_u64(body.len()));
        crc32c_append(crc32c_append(self.salt, &lead), body)
    }

    /// Reads the publications in the first `length` bytes.
    fn read(&mut self, window: &mut Window, length: u64) -> Result<Contents> {
        let mut contents = Contents::default();
        while let Some((records, next)) = self.publication(window, length)? {
            for (_, record) in records {
                contents.add(record);
            }
            self.end = next;
            self.sequence += 1;
        }
        self.refuse_damage(window, length)?;
        if self.sequence == 0 {
            return Err(Error::corruption(&*self.label, SECTOR_BYTES, "no commit is readable"));
        }
        Ok(contents)
    }

    /// The publication at `self.end`, if it is whole, each record with its offset; and where the
    /// next one begins.
    fn publication(&self, window: &mut Window, length: u64) -> Result<Option<(Records, u64)>> {
        let mut records = Vec::new();
        let mut offset = self.end;
        while let Some((record, next)) = self.record(window, offset, length)? {
            let last = matches!(record, Record::Commit(_));
            match record {
                Record::Begin(sequence) if offset == self.end && sequence == self.sequence => {}
                Record::Begin(_) => return Ok(None),
                _ if offset == self.end => return Ok(None),
                Record::Commit(commit) if commit.sequence != self.sequence => return Ok(None),
                _ => {}
            }
            records.push((offset, record));
            offset = next;
            if last {
                let end = place_hints(&mut records, round_up(offset, SECTOR_BYTES));
                return Ok(Some((records, round_up(end, SECTOR_BYTES))));
            }
        }
        Ok(None)
    }

    /// A later publication behind the first unreadable one shows that this one was durable once.
    fn refuse_damage(&self, window: &mut Window, length: u64) -> Result<()> {
        let mut offset = self.end + SECTOR_BYTES;
        while offset < length {
            if let Some((Record::Begin(sequence), _)) = self.record(window, offset, length)?
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
        let length =
            self.file.len().map_err(|error| Error::io(format!("measure {}", self.label), error))?;
        if hints.offset.saturating_add(hints.bytes) > length {
            return Ok(None);
        }
        let bytes = self.unverified_hints(hints)?;
        Ok((crc32c(&bytes) == hints.crc).then_some(bytes))
    }

    /// The same, with zeros for what the file does not have.
    fn unverified_hints(&self, hints: &Hints) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(hints.bytes)];
        read_up_to(&*self.file, &mut bytes, hints.offset)
            .map_err(|error| Error::io(format!("read {}", self.label), error))?;
        Ok(bytes)
    }

    /// Adds a record to the buffer.
    fn words(&mut self, kind: u8, words: &[u64]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let crc = self.checksum(kind, &body);
        put_u32(&mut self.buffer, low_u32(to_u64(body.len())));
        put_u32(&mut self.buffer, crc);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&body);
    }

    /// Whether a publication can be added.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// From now on another manifest may have this one's place.
    pub(super) fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Starts a publication. What an earlier, failed one left in the buffer is dropped.
    pub(super) fn begin(&mut self) {
        debug_assert!(!self.in_doubt, "another manifest may be the one that a crash leaves");
        self.buffer.clear();
        self.hints.clear();
        self.words(BEGIN, &[self.sequence]);
    }

    /// Adds an extent with its hints.
    pub(super) fn add_extent(&mut self, extent: &Extent, hints: &[u8]) {
        debug_assert_eq!(extent.hint_bytes, to_u64(hints.len()), "the extent's hints");
        self.words(EXTENT, &extent.words(crc32c(hints)));
        self.hints.extend_from_slice(hints);
    }

    /// Says that all extents of a chunk so far are gone; those that follow are in another place.
    pub(super) fn add_drop(&mut self, chunk: u64, serial: u64) {
        self.words(DROP, &[chunk, serial]);
    }

    /// Adds a large value.
    pub(super) fn add_large(&mut self, large: &LargeRecord) {
        let &LargeRecord { number, lsn, file, offset, place_bytes, bytes } = large;
        self.words(LARGE, &[number, lsn, file, offset, place_bytes, bytes]);
    }

    /// Says that a large value's place is free.
    pub(super) fn add_drop_large(&mut self, number: u64) {
        self.words(DROP_LARGE, &[number]);
    }

    /// Ends the publication and makes it durable. A failed write has changed nothing that counts:
    /// the next publication is written over it. After a failed sync the manifest is in doubt.
    pub(super) fn commit(&mut self, commit: Commit) -> Result<()> {
        self.end_records(commit);
        let hints = mem::take(&mut self.hints);
        self.buffer.extend_from_slice(&hints);
        self.fill_sector();
        self.write_buffer(self.end)?;
        if !mutant::active(Bug::HashlogSkipsManifestSync)
            && let Err(error) = self.file.sync_data()
        {
            self.in_doubt = true;
            return Err(Error::io(format!("sync {}", self.label), error));
        }
        self.note_publication(self.end + to_u64(self.buffer.len()));
        Ok(())
    }

    /// Puts the last record of a publication into the buffer.
    fn end_records(&mut self, commit: Commit) {
        let Commit { complete, next_serial, next_large, next_file, collided, .. } = commit;
        let words = [self.sequence, complete, next_serial, next_large, next_file, collided];
        self.words(COMMIT, &words);
        self.fill_sector();
    }

    fn fill_sector(&mut self) {
        let size = round_up(to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(size), 0);
    }

    fn note_publication(&mut self, end: u64) {
        self.end = end;
        self.sequence += 1;
        // It may have been large.
        self.buffer = Vec::new();
    }

    fn write_buffer(&mut self, at: u64) -> Result<()> {
        write_all_at(&*self.file, &self.buffer, at)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        self.written_bytes += to_u64(self.buffer.len());
        Ok(())
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// The number in its name.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Writes the first manifest of a table, or one with what is still in force of `from`, under
    /// another name. Its content is durable when this returns; [`Self::publish`] gives it its
    /// name.
    pub(super) fn prepare(
        dir: &Arc<dyn Dir>,
        owner: Owner,
        number: u64,
        from: Option<(&Self, &Contents)>,
        commit: Commit,
    ) -> Result<Self> {
        let label = label(owner.table_id, &name_of(number));
        let doing = |error| Error::io(format!("create {label}"), error);
        match dir.remove(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(doing(error)),
            _ => {}
        }
        let file = dir.open(UNFINISHED, Open::CREATE).map_err(doing)?;
        let mut new = Self::with_file(Arc::clone(dir), owner, number, file, label.clone());
        let written = new.write_all_of(from, commit);
        if written.is_err() {
            // The space may be what is missing.
            let _ = dir.remove(UNFINISHED);
        }
        written.map(|()| new)
    }

    /// Writes the head and one publication of all that `from` holds.
    fn write_all_of(&mut self, from: Option<(&Self, &Contents)>, commit: Commit) -> Result<()> {
        let mut head = self.head();
        head.resize(to_usize(SECTOR_BYTES), 0);
        let doing = |label: &str, error| Error::io(format!("create {label}"), error);
        write_all_at(&*self.file, &head, 0).map_err(|error| doing(&self.label, error))?;
        self.begin();
        let nothing = Contents::default();
        let contents = from.map_or(&nothing, |(_, contents)| contents);
        for (extent, hints) in &contents.extents {
            self.words(EXTENT, &extent.words(hints.crc));
        }
        contents.larges.iter().for_each(|large| self.add_large(large));
        self.end_records(commit);
        let mut at = self.end;
        if let Some((old, contents)) = from {
            for (_, hints) in &contents.extents {
                // Damaged ones go over as they are: their checksum still says so.
                let bytes = old.unverified_hints(hints)?;
                self.buffer.extend_from_slice(&bytes);
                if self.buffer.len() >= WRITE_BYTES {
                    self.write_buffer(at)?;
                    at += to_u64(self.buffer.len());
                    self.buffer.clear();
                }
            }
        }
        // Whole sectors came before it.
        let end = round_up(at + to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(end - at), 0);
        self.write_buffer(at)?;
        self.file.sync_all().map_err(|error| doing(&self.label, error))?;
        self.note_publication(end);
        Ok(())
    }

    /// Gives a prepared manifest its name, durably. After an error either this one or the one
    /// before it is what a crash leaves.
    pub(super) fn publish(&self) -> Result<()> {
        let renamed = self.dir.rename(UNFINISHED, &name_of(self.number));
        renamed
            .and_then(|()| self.dir.sync())
            .map_err(|error| Error::io(format!("publish {}", self.label), error))
    }

    /// Removes the file of a manifest that another one has replaced. Where that fails, the next
    /// opening does it.
    pub(super) fn discard(self) {
        let _ = self.dir.remove(&name_of(self.number));
    }

    /// Reads the manifest again, as opening does, up to what is known to be durable: for a rewrite
    /// and for checks.
    pub(super) fn reread(&self) -> Result<Contents> {
        let file = Arc::clone(&self.file);
        let dir = Arc::clone(&self.dir);
        let mut copy = Self::with_file(dir, self.owner, self.number, file, self.label.clone());
        copy.verify_head()?;
        let contents = copy.read(&mut Window::new(Arc::clone(&self.file)), self.end)?;
        if copy.end != self.end {
            let what = format!("publication {} is unreadable", copy.sequence);
            return Err(Error::corruption(&*self.label, copy.end, what));
        }
        Ok(contents)
    }
}

/// Says where the hints of a publication's extents are, which begin at `at`; where they end.
fn place_hints(records: &mut [(u64, Record)], mut at: u64) -> u64 {
    for (_, record) in records {
        if let Record::Extent(_, hints) = record {
            hints.offset = at;
            at += hints.bytes;
        }
    }
    at
}
