//! The manifest: the content of the data files, and an image of the index as hints.
//!
//! An append-only file of checkpoints. A checkpoint adds the extents flushed since the last one and
//! names dropped ones. Its last record, the commit, makes it valid. Behind the commit stand hints,
//! one for each entry of those extents.
//! A hint is all that the index needs of an entry, so opening reads 7 to 10 bytes an entry instead
//! of the entry. A hint is written once, with its extent. Rewriting dirty regions of the index
//! would write most of it at each checkpoint, because inserts are random.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QHLINDEX` |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 47 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | number | of this manifest; newer ones replace it |
//! | 512 | | checkpoints | each at a multiple of 512: a begin, records, a commit; at the next multiple of 512 the hints of its extents, in the records' order |
//!
//! [`record`] has the layout of records, [`hints`]
//! that of hints.
//!
//! Invariants:
//! - A checkpoint is synced before anything that it drops is freed.
//! - Bytes behind the last commit are ignored, unless the begin of a later checkpoint stands behind
//!   them: then they are damaged.
//! - Damaged hints are recreated from their extent.
//! - A sector of a committed checkpoint is never written again.
//! - After a failed sync the manifest is in doubt: it gets no more writes, and a new manifest
//!   replaces it. Until the new name is durable, a crash may leave either. Both are valid, because
//!   nothing that either names is freed.
//!
//! Locks: `maintenance` (one thread at a time).

#![deny(clippy::indexing_slicing)]

mod describe;
mod hints;
mod record;
mod window;

use std::{io, mem, sync::Arc};

pub(super) use self::describe::describe;
pub(super) use self::hints::{HINT_HASH_MASK, HintReader, IndexHint, encode_hints};
pub(super) use self::record::{Commit, Extent, HintsLocation, LargeRecord, ManifestContents};
use self::{
    record::{
        BEGIN, COMMIT, DROP, DROP_LARGE, EXTENT, FRAME_BYTES, LARGE, ManifestRecord,
        RECORD_BYTES_MAX, decode,
    },
    window::Window,
};
use super::files::{TableIdentity, label};
use crate::{
    Error, Result,
    io::{Dir, File, Open, SECTOR_BYTES, read_up_to, write_all_at},
    util::{
        codec::{
            Decoder, crc32c, crc32c_append, low_u32, put_u32, put_u64, round_up, to_u64, to_usize,
        },
        mutant::mutant,
    },
};

const MAGIC: &[u8; 8] = b"QHLINDEX";
/// Version of the layout.
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 48;
/// Bytes of hints that a rewrite buffers before a write.
const WRITE_BYTES: usize = 1 << 20;
/// Name of a manifest until it is complete.
const UNFINISHED: &str = "manifest-new";

/// Records, each with its offset.
type RecordList = Vec<(u64, ManifestRecord)>;

fn name_of(number: u64) -> String {
    format!("manifest-{number:08x}")
}

/// Returns the number in a manifest's name; `None` for any other name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

/// Returns whether `name` is that of an unfinished manifest.
pub(super) fn is_unfinished(name: &str) -> bool {
    name == UNFINISHED
}

/// An open manifest.
#[derive(Debug)]
pub(super) struct Manifest {
    dir: Arc<dyn Dir>,
    owner: TableIdentity,
    number: u64,
    file: Arc<dyn File>,
    label: String,
    /// Start of each record's checksum.
    salt: u32,
    /// Offset of the next checkpoint.
    end: u64,
    /// Records of the checkpoint that is being written.
    buffer: Vec<u8>,
    /// Hints of the checkpoint in the buffer.
    hints: Vec<u8>,
    /// Number of the next checkpoint.
    sequence: u64,
    /// A sync failed: a crash may leave this manifest with or without its last checkpoint, or
    /// another manifest.
    in_doubt: bool,
    pub(super) written_bytes: u64,
}

impl Manifest {
    /// Opens the newest manifest and reads it up to its last commit. With `write`, all of that is
    /// durable on return, and bytes behind the last commit are cut off.
    ///
    /// Fails with `Corruption` if the manifest is damaged, and with `NewerFormat`.
    pub(super) fn open(
        dir: &Arc<dyn Dir>,
        owner: TableIdentity,
        number: u64,
        write: bool,
    ) -> Result<(Self, ManifestContents)> {
        let name = name_of(number);
        let label = label(owner.table_id, &name);
        let how = if write { Open::WRITE } else { Open::READ };
        let file =
            dir.open(&name, how).map_err(|error| Error::io(format!("open {label}"), error))?;
        if write {
            // A killed process may have left a checkpoint or the name in the page cache only. The
            // log is pruned because the checkpoint exists, so it must be durable.
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
            // Bytes of an incomplete checkpoint must not reappear behind a later, shorter one.
            let file = &manifest.file;
            let cut = if length > manifest.end { file.set_len(manifest.end) } else { Ok(()) };
            cut.map_err(|error| Error::io(format!("cut {}", manifest.label), error))?;
        }
        Ok((manifest, contents))
    }

    fn with_file(
        dir: Arc<dyn Dir>,
        owner: TableIdentity,
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
        Err(Error::corruption(&*self.label, 0, "the head is damaged or names another table"))
    }

    /// Returns the record at `offset` and the offset of its end; `None` if there is no valid
    /// record.
    fn record(
        &self,
        window: &mut Window,
        offset: u64,
        length: u64,
    ) -> Result<Option<(ManifestRecord, u64)>> {
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

    /// Reads the checkpoints in the first `length` bytes.
    fn read(&mut self, window: &mut Window, length: u64) -> Result<ManifestContents> {
        let mut contents = ManifestContents::default();
        while let Some((records, next)) = self.read_checkpoint(window, length)? {
            for (_, record) in records {
                contents.add(record);
            }
            self.end = next;
            self.sequence += 1;
        }
        self.refuse_damage(window, length)?;
        if self.sequence == 0 {
            return Err(Error::corruption(
                &*self.label,
                SECTOR_BYTES,
                "the manifest has no readable commit",
            ));
        }
        Ok(contents)
    }

    /// Reads the checkpoint at `self.end`. Returns its records with their offsets, and the offset
    /// of the next one; `None` if it is not complete.
    fn read_checkpoint(
        &self,
        window: &mut Window,
        length: u64,
    ) -> Result<Option<(RecordList, u64)>> {
        let mut records = Vec::new();
        let mut offset = self.end;
        while let Some((record, next)) = self.record(window, offset, length)? {
            let last = matches!(record, ManifestRecord::Commit(_));
            match record {
                ManifestRecord::Begin(sequence)
                    if offset == self.end && sequence == self.sequence => {}
                ManifestRecord::Begin(_) => return Ok(None),
                _ if offset == self.end => return Ok(None),
                ManifestRecord::Commit(commit) if commit.sequence != self.sequence => {
                    return Ok(None);
                }
                _ => {}
            }
            records.push((offset, record));
            offset = next;
            if last {
                let end = locate_hints(&mut records, round_up(offset, SECTOR_BYTES));
                return Ok(Some((records, round_up(end, SECTOR_BYTES))));
            }
        }
        Ok(None)
    }

    /// Fails with `Corruption` if a later checkpoint follows the first unreadable one: that one was
    /// durable, so it is damaged.
    fn refuse_damage(&self, window: &mut Window, length: u64) -> Result<()> {
        let mut offset = self.end + SECTOR_BYTES;
        while offset < length {
            if let Some((ManifestRecord::Begin(sequence), _)) =
                self.record(window, offset, length)?
                && sequence > self.sequence
            {
                let what = format!("checkpoint {} is unreadable", self.sequence);
                return Err(Error::corruption(&*self.label, self.end, what));
            }
            offset += SECTOR_BYTES;
        }
        Ok(())
    }

    /// Returns the verified hints of an extent; `None` if they are damaged. They can be recreated
    /// from the extent.
    pub(super) fn hints(&self, hints: &HintsLocation) -> Result<Option<Vec<u8>>> {
        let length =
            self.file.len().map_err(|error| Error::io(format!("measure {}", self.label), error))?;
        if hints.offset.saturating_add(hints.bytes) > length {
            return Ok(None);
        }
        let bytes = self.unverified_hints(hints)?;
        Ok((crc32c(&bytes) == hints.crc).then_some(bytes))
    }

    /// Returns the hints of an extent without verification, with zeros behind the end of the file.
    fn unverified_hints(&self, hints: &HintsLocation) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(hints.bytes)];
        read_up_to(&*self.file, &mut bytes, hints.offset)
            .map_err(|error| Error::io(format!("read {}", self.label), error))?;
        Ok(bytes)
    }

    /// Adds a record of these words to the buffer.
    fn words(&mut self, kind: u8, words: &[u64]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let crc = self.checksum(kind, &body);
        put_u32(&mut self.buffer, low_u32(to_u64(body.len())));
        put_u32(&mut self.buffer, crc);
        self.buffer.push(kind);
        self.buffer.extend_from_slice(&body);
    }

    /// Returns whether a sync failed: no checkpoint can be added.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Marks the manifest as in doubt: another one may have replaced it.
    pub(super) fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Starts a checkpoint. Discards the buffer of an earlier, failed one.
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

    /// Adds a drop of all extents of a chunk so far. Extents that follow are in another file range.
    pub(super) fn add_drop(&mut self, chunk: u64, serial: u64) {
        self.words(DROP, &[chunk, serial]);
    }

    /// Adds a large value.
    pub(super) fn add_large(&mut self, large: &LargeRecord) {
        let &LargeRecord { number, lsn, file, offset, range_bytes, bytes } = large;
        self.words(LARGE, &[number, lsn, file, offset, range_bytes, bytes]);
    }

    /// Adds a drop of a large value.
    pub(super) fn add_drop_large(&mut self, number: u64) {
        self.words(DROP_LARGE, &[number]);
    }

    /// Ends the checkpoint and makes it durable. A failed write has no effect: the next checkpoint
    /// overwrites it. After a failed sync the manifest is in doubt.
    pub(super) fn commit(&mut self, commit: Commit) -> Result<()> {
        self.end_records(commit);
        let hints = mem::take(&mut self.hints);
        self.buffer.extend_from_slice(&hints);
        self.fill_sector();
        self.write_buffer(self.end)?;
        let synced = mutant!(HashlogSkipsManifestSync: Ok(()), else self.file.sync_data());
        if let Err(error) = synced {
            self.in_doubt = true;
            return Err(Error::io(format!("sync {}", self.label), error));
        }
        self.advance(self.end + to_u64(self.buffer.len()));
        Ok(())
    }

    /// Adds the last record of a checkpoint to the buffer.
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

    /// Advances to the next checkpoint.
    fn advance(&mut self, end: u64) {
        self.end = end;
        self.sequence += 1;
        // The buffer may be large: free it.
        self.buffer = Vec::new();
    }

    fn write_buffer(&mut self, at: u64) -> Result<()> {
        write_all_at(&*self.file, &self.buffer, at)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        self.written_bytes += to_u64(self.buffer.len());
        Ok(())
    }

    /// Returns the size of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// Returns the number in its name.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Writes a manifest under a temporary name: the first of a table, or one with the live content
    /// of `from`. Its content is durable on return. [`Self::install`] renames it.
    pub(super) fn prepare(
        dir: &Arc<dyn Dir>,
        owner: TableIdentity,
        number: u64,
        from: Option<(&Self, &ManifestContents)>,
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
            // The disk may be full: release the space.
            let _ = dir.remove(UNFINISHED);
        }
        written.map(|()| new)
    }

    /// Writes the head, and one checkpoint with the live content of `from`.
    fn write_all_of(
        &mut self,
        from: Option<(&Self, &ManifestContents)>,
        commit: Commit,
    ) -> Result<()> {
        let mut head = self.head();
        head.resize(to_usize(SECTOR_BYTES), 0);
        let doing = |label: &str, error| Error::io(format!("create {label}"), error);
        write_all_at(&*self.file, &head, 0).map_err(|error| doing(&self.label, error))?;
        self.begin();
        let nothing = ManifestContents::default();
        let contents = from.map_or(&nothing, |(_, contents)| contents);
        for (extent, hints) in &contents.extents {
            self.words(EXTENT, &extent.words(hints.crc));
        }
        contents.larges.iter().for_each(|large| self.add_large(large));
        self.end_records(commit);
        let mut at = self.end;
        if let Some((old, contents)) = from {
            for (_, hints) in &contents.extents {
                // Damaged hints are copied as they are: their checksum still shows the damage.
                let bytes = old.unverified_hints(hints)?;
                self.buffer.extend_from_slice(&bytes);
                if self.buffer.len() >= WRITE_BYTES {
                    self.write_buffer(at)?;
                    at += to_u64(self.buffer.len());
                    self.buffer.clear();
                }
            }
        }
        // The records before the hints fill whole sectors.
        let end = round_up(at + to_u64(self.buffer.len()), SECTOR_BYTES);
        self.buffer.resize(to_usize(end - at), 0);
        self.write_buffer(at)?;
        self.file.sync_all().map_err(|error| doing(&self.label, error))?;
        self.advance(end);
        Ok(())
    }

    /// Renames a prepared manifest to its final name, durably. After an error, a crash may leave
    /// this one or the one before.
    pub(super) fn install(&self) -> Result<()> {
        let renamed = self.dir.rename(UNFINISHED, &name_of(self.number));
        renamed
            .and_then(|()| self.dir.sync())
            .map_err(|error| Error::io(format!("rename {}", self.label), error))
    }

    /// Removes the file of a replaced manifest. If that fails, the next open does it.
    pub(super) fn discard(self) {
        let _ = self.dir.remove(&name_of(self.number));
    }

    /// Reads the durable part of the manifest again, for a rewrite or a check. Fails with
    /// `Corruption` if it is damaged.
    pub(super) fn reread(&self) -> Result<ManifestContents> {
        let file = Arc::clone(&self.file);
        let dir = Arc::clone(&self.dir);
        let mut copy = Self::with_file(dir, self.owner, self.number, file, self.label.clone());
        copy.verify_head()?;
        let contents = copy.read(&mut Window::new(Arc::clone(&self.file)), self.end)?;
        if copy.end != self.end {
            let what = format!("checkpoint {} is unreadable", copy.sequence);
            return Err(Error::corruption(&*self.label, copy.end, what));
        }
        Ok(contents)
    }
}

/// Sets the offsets of the hints in a checkpoint's records, from `at` on. Returns the end of the
/// hints.
fn locate_hints(records: &mut [(u64, ManifestRecord)], mut at: u64) -> u64 {
    for (_, record) in records {
        if let ManifestRecord::Extent(_, hints) = record {
            hints.offset = at;
            at += hints.bytes;
        }
    }
    at
}
