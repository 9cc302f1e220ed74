//! A manifest file: its head, its checkpoints, and how they are read.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::{
    record::{
        FRAME_BYTES, HintsLocation, ManifestContents, ManifestRecord, RECORD_BYTES_MAX, decode,
    },
    window::Window,
};
use crate::{
    Error, Result,
    engine::hashlog::files::{TableIdentity, label},
    io::{Dir, File, Open, SECTOR_BYTES, read_up_to},
    util::codec::{Decoder, crc32c, crc32c_append, put_u32, put_u64, round_up, to_u64, to_usize},
};

const MAGIC: &[u8; 8] = b"QHLINDEX";
/// Version of the layout.
const FORMAT: u32 = 1;
/// Bytes of the head.
pub(in crate::engine::hashlog) const HEAD_BYTES: usize = 48;
/// Name of a manifest until it is complete.
pub(in crate::engine::hashlog) const UNFINISHED: &str = "manifest-new";

/// Records, each with its offset.
type RecordList = Vec<(u64, ManifestRecord)>;

pub(in crate::engine::hashlog) fn name_of(number: u64) -> String {
    format!("manifest-{number:08x}")
}

/// Returns the number in a manifest's name; `None` for any other name.
pub(in crate::engine::hashlog) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

/// Returns whether `name` is that of an unfinished manifest.
pub(in crate::engine::hashlog) fn is_unfinished(name: &str) -> bool {
    name == UNFINISHED
}

/// An open manifest.
#[derive(Debug)]
pub(in crate::engine::hashlog) struct HashLogManifest {
    pub(in crate::engine::hashlog) dir: Arc<dyn Dir>,
    pub(in crate::engine::hashlog) owner: TableIdentity,
    pub(in crate::engine::hashlog) number: u64,
    pub(in crate::engine::hashlog) file: Arc<dyn File>,
    pub(in crate::engine::hashlog) label: String,
    /// Start of each record's checksum.
    pub(in crate::engine::hashlog) salt: u32,
    /// Offset of the next checkpoint.
    pub(in crate::engine::hashlog) end: u64,
    /// Records of the checkpoint that is being written.
    pub(in crate::engine::hashlog) buffer: Vec<u8>,
    /// Hints of the checkpoint in the buffer.
    pub(in crate::engine::hashlog) hints: Vec<u8>,
    /// Number of the next checkpoint.
    pub(in crate::engine::hashlog) sequence: u64,
    /// A sync failed: a crash may leave this manifest with or without its last checkpoint, or
    /// another manifest.
    pub(in crate::engine::hashlog) in_doubt: bool,
    pub(in crate::engine::hashlog) written_bytes: u64,
}

impl HashLogManifest {
    /// Opens the newest manifest and reads it up to its last commit. With `write`, all of that is
    /// durable on return, and bytes behind the last commit are cut off.
    ///
    /// Fails with `Corruption` if the manifest is damaged, and with `NewerFormat`.
    pub(in crate::engine::hashlog) fn open(
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

    pub(in crate::engine::hashlog) fn with_file(
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

    pub(in crate::engine::hashlog) fn head(&self) -> Vec<u8> {
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

    pub(in crate::engine::hashlog) fn verify_head(&self) -> Result<()> {
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

    pub(in crate::engine::hashlog) fn checksum(&self, kind: u8, body: &[u8]) -> u32 {
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
    pub(in crate::engine::hashlog) fn read_checkpoint(
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
    pub(in crate::engine::hashlog) fn refuse_damage(
        &self,
        window: &mut Window,
        length: u64,
    ) -> Result<()> {
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
    pub(in crate::engine::hashlog) fn hints(
        &self,
        hints: &HintsLocation,
    ) -> Result<Option<Vec<u8>>> {
        let length =
            self.file.len().map_err(|error| Error::io(format!("measure {}", self.label), error))?;
        if hints.offset.saturating_add(hints.bytes) > length {
            return Ok(None);
        }
        let bytes = self.unverified_hints(hints)?;
        Ok((crc32c(&bytes) == hints.crc).then_some(bytes))
    }

    /// Returns the hints of an extent without verification, with zeros behind the end of the file.
    pub(in crate::engine::hashlog) fn unverified_hints(
        &self,
        hints: &HintsLocation,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(hints.bytes)];
        read_up_to(&*self.file, &mut bytes, hints.offset)
            .map_err(|error| Error::io(format!("read {}", self.label), error))?;
        Ok(bytes)
    }

    /// Returns whether a sync failed: no checkpoint can be added.
    pub(in crate::engine::hashlog) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Marks the manifest as in doubt: another one may have replaced it.
    pub(in crate::engine::hashlog) fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Returns the size of the file in bytes.
    pub(in crate::engine::hashlog) fn bytes(&self) -> u64 {
        self.end
    }

    /// Returns the number in its name.
    pub(in crate::engine::hashlog) fn number(&self) -> u64 {
        self.number
    }

    /// Reads the durable part of the manifest again, for a rewrite or a check. Fails with
    /// `Corruption` if it is damaged.
    pub(in crate::engine::hashlog) fn reread(&self) -> Result<ManifestContents> {
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
