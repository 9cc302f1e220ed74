//! The catalog's file: a head and a sequence of checksummed edits. The parent module has the
//! layout.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::edit::{CatalogChange, decode_all};
use crate::{
    Error, Result,
    io::{BLOCK_BYTES, Dir, File, Open, read_up_to, write_all_at},
    util::{
        codec::{Decoder, crc32c, crc32c_append, put_u32, put_u64, to_u64, to_usize},
        mutant::mutant,
    },
};

/// The file's name in the database's directory.
pub(crate) const NAME: &str = "catalog";
/// The name of a catalog until it is complete and durable.
pub(crate) const UNFINISHED_NAME: &str = "catalog.tmp";

const MAGIC: &[u8; 8] = b"QUINTCAT";
const VERSION: u32 = 1;
/// The head's checksum covers everything before it.
const HEAD_CRC_OFFSET: usize = 32;
/// Offsets of the two records of the length. Each is in its own sector, so that a torn write of one
/// leaves the other intact.
const SLOT_OFFSETS: [u64; 2] = [512, 1024];
const SLOT_BYTES: usize = 20;
const EDITS_OFFSET: u64 = BLOCK_BYTES;
const EDIT_HEAD_BYTES: u64 = 16;
/// Maximum size of an edit in bytes. A longer one counts as damaged.
const EDIT_BYTES_MAX: u32 = 64 << 20;
/// A rewritten catalog is split into edits of about this many bytes.
const DUMP_EDIT_BYTES: usize = 64 << 10;
/// Minimum growth in bytes before a rewrite.
const REWRITE_BYTES_MIN: u64 = 8 << 10;
/// The file grows by zeros to a multiple of this many bytes. Edits overwrite them, so the sync of
/// an edit writes its block alone, and not the size of the file as well.
const PREPARED_BYTES: u64 = 16 << 10;
/// The file is rewritten when less than one byte in this many is live.
const REWRITE_FACTOR: u64 = 4;

/// The open file. The lock of the catalog protects it.
#[derive(Debug)]
pub(super) struct CatalogFile {
    dir: Arc<dyn Dir>,
    file: Arc<dyn File>,
    database_id: [u8; 16],
    /// Offset of the next edit.
    end: u64,
    /// End of the zeros that are prepared for edits.
    prepared_end: u64,
    /// Sequence of the next edit.
    sequence: u64,
    /// The slot to write next. Never the newest one that is valid.
    next_slot: usize,
    /// Size in bytes above which the file is rewritten.
    rewrite_at: u64,
    /// The first failed sync. It is unknown then whether the last edit is durable.
    failure: Option<String>,
}

/// The contents of a catalog's file.
#[derive(Debug)]
pub(super) struct CatalogContents {
    pub(super) database_id: [u8; 16],
    /// Past the last complete edit.
    pub(super) end: u64,
    pub(super) next_sequence: u64,
    /// The slot that is damaged or has the older length.
    pub(super) next_slot: usize,
    /// The size of the file in bytes. A torn edit and prepared zeros are past `end`.
    pub(super) file_bytes: u64,
    /// Whether all bytes past `end` are zeros.
    pub(super) is_tail_zero: bool,
    /// The edits, with their offsets.
    pub(super) edits: Vec<(u64, Vec<CatalogChange>)>,
}

fn io_error(doing: &str) -> impl FnOnce(std::io::Error) -> Error {
    let doing = format!("{doing} {NAME}");
    move |error| Error::io(doing, error)
}

fn damage(offset: u64, what: impl Into<String>) -> Error {
    Error::corruption(NAME, offset, what)
}

fn encode_slot(database_id: [u8; 16], sequence: u64, end: u64) -> Vec<u8> {
    let mut slot = Vec::with_capacity(SLOT_BYTES);
    put_u64(&mut slot, sequence);
    put_u64(&mut slot, end);
    let crc = crc32c_append(crc32c(&database_id), &slot);
    put_u32(&mut slot, crc);
    slot
}

fn decode_slot(database_id: [u8; 16], bytes: &[u8]) -> Option<(u64, u64)> {
    let mut decoder = Decoder::new(bytes);
    let (sequence, end) = (decoder.u64()?, decoder.u64()?);
    let crc = crc32c_append(crc32c(&database_id), bytes.get(..16)?);
    (decoder.u32()? == crc).then_some((sequence, end))
}

fn edit_crc(database_id: [u8; 16], offset: u64, sequence: u64, body: &[u8]) -> u32 {
    let crc = crc32c_append(crc32c(&database_id), &offset.to_le_bytes());
    let crc = crc32c_append(crc, &sequence.to_le_bytes());
    crc32c_append(crc32c_append(crc, &to_u64(body.len()).to_le_bytes()), body)
}

/// Appends the bytes of an edit at `offset` of the file.
fn encode_edit(out: &mut Vec<u8>, database_id: [u8; 16], offset: u64, sequence: u64, body: &[u8]) {
    put_u32(out, u32::try_from(body.len()).unwrap_or(u32::MAX));
    put_u32(out, edit_crc(database_id, offset, sequence, body));
    put_u64(out, sequence);
    out.extend_from_slice(body);
}

/// Returns the bytes of a catalog with `changes`, and the sequence after its last edit.
fn encode_file(
    database_id: [u8; 16],
    first_sequence: u64,
    changes: &[CatalogChange],
) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    put_u32(&mut bytes, VERSION);
    put_u32(&mut bytes, 0);
    bytes.extend_from_slice(&database_id);
    let crc = crc32c(&bytes);
    put_u32(&mut bytes, crc);
    bytes.resize(to_usize(EDITS_OFFSET), 0);
    let mut sequence = first_sequence;
    let mut body = Vec::new();
    let mut rest = changes.iter().peekable();
    while let Some(change) = rest.next() {
        change.encode(&mut body);
        if body.len() >= DUMP_EDIT_BYTES || rest.peek().is_none() {
            let offset = to_u64(bytes.len());
            encode_edit(&mut bytes, database_id, offset, sequence, &body);
            sequence += 1;
            body.clear();
        }
    }
    let slot = encode_slot(database_id, sequence, to_u64(bytes.len()));
    for offset in SLOT_OFFSETS.map(to_usize) {
        if let Some(target) = bytes.get_mut(offset..offset + SLOT_BYTES) {
            target.copy_from_slice(&slot);
        }
    }
    (bytes, sequence)
}

/// Reads and verifies a catalog.
pub(super) fn read(file: &dyn File) -> Result<CatalogContents> {
    let size = file.len().map_err(io_error("measure"))?;
    // After a failed sync the cache may have bytes that will never reach the disk.
    let _ = file.drop_cache();
    let mut bytes = vec![0; to_usize(size)];
    let read = read_up_to(file, &mut bytes, 0).map_err(io_error("read"))?;
    bytes.truncate(read);
    parse(&bytes)
}

/// Verifies the bytes of a catalog.
pub(super) fn parse(bytes: &[u8]) -> Result<CatalogContents> {
    let database_id = parse_head(bytes)?;
    let slot = |offset: u64| {
        let bytes = bytes.get(to_usize(offset)..)?.get(..SLOT_BYTES)?;
        decode_slot(database_id, bytes)
    };
    let [first_slot, _] = SLOT_OFFSETS;
    let (newest, (_, committed)) = (0..)
        .zip(SLOT_OFFSETS)
        .filter_map(|(index, offset)| Some((index, slot(offset)?)))
        .max_by_key(|(_, slot)| *slot)
        .ok_or_else(|| damage(first_slot, "both records of its length are damaged"))?;
    let mut contents = CatalogContents {
        database_id,
        end: EDITS_OFFSET,
        next_sequence: 0,
        next_slot: 1 - newest,
        file_bytes: to_u64(bytes.len()),
        is_tail_zero: true,
        edits: Vec::new(),
    };
    while let Some((sequence, body)) = parse_edit(bytes, &contents) {
        let what = "an edit passes its checksum and does not parse";
        let changes = decode_all(body).ok_or_else(|| damage(contents.end, what))?;
        contents.edits.push((contents.end, changes));
        contents.end += EDIT_HEAD_BYTES + to_u64(body.len());
        contents.next_sequence = sequence + 1;
    }
    if contents.end < committed {
        let what = format!("an edit is damaged; edits reach to byte {committed}");
        return Err(damage(contents.end, what));
    }
    let mut tail = bytes.iter().skip(to_usize(contents.end));
    contents.is_tail_zero = tail.all(|byte| *byte == 0);
    Ok(contents)
}

fn parse_head(bytes: &[u8]) -> Result<[u8; 16]> {
    let mut decoder = Decoder::new(bytes);
    if decoder.take(MAGIC.len()) != Some(MAGIC) {
        return Err(damage(0, "not a catalog: the magic is wrong"));
    }
    let (version, _zero) = (decoder.u32(), decoder.u32());
    let (id, crc) = (decoder.id(), decoder.u32());
    let expected = bytes.get(..HEAD_CRC_OFFSET).map(crc32c);
    let (Some(version), Some(id)) = (version, id) else {
        return Err(damage(0, "the file ends in its head"));
    };
    if crc.is_none() || crc != expected {
        return Err(damage(0, "the head's checksum is wrong"));
    }
    if version != VERSION {
        return Err(Error::NewerFormat {
            file: NAME.to_owned(),
            found: version,
            supported: VERSION,
        });
    }
    Ok(id)
}

/// Returns the sequence and the body of the edit after those that `contents` has, if it is
/// complete.
fn parse_edit<'a>(bytes: &'a [u8], contents: &CatalogContents) -> Option<(u64, &'a [u8])> {
    let mut decoder = Decoder::new(bytes.get(to_usize(contents.end)..)?);
    let (length, crc, sequence) = (decoder.u32()?, decoder.u32()?, decoder.u64()?);
    if length == 0 || length > EDIT_BYTES_MAX || sequence == u64::MAX {
        return None;
    }
    let in_order = contents.edits.is_empty() || sequence == contents.next_sequence;
    let body = decoder.take(to_usize(u64::from(length)))?;
    let expected = edit_crc(contents.database_id, contents.end, sequence, body);
    let sound = mutant!(CatalogSkipsChecksum: true, else crc == expected);
    (in_order && sound).then_some((sequence, body))
}

impl CatalogFile {
    /// Creates a catalog with `changes`, and replaces an older one. Durable when the call returns.
    pub(super) fn create(
        dir: &Arc<dyn Dir>,
        database_id: [u8; 16],
        first_sequence: u64,
        changes: &[CatalogChange],
    ) -> Result<Self> {
        let file = Self::prepare(dir, database_id, first_sequence, changes)?;
        file.publish()?;
        Ok(file)
    }

    /// Writes a catalog under the unfinished name. Its content is durable when the call returns.
    fn prepare(
        dir: &Arc<dyn Dir>,
        database_id: [u8; 16],
        first_sequence: u64,
        changes: &[CatalogChange],
    ) -> Result<Self> {
        let (bytes, sequence) = encode_file(database_id, first_sequence, changes);
        remove_unfinished(dir)?;
        let file = dir.open(UNFINISHED_NAME, Open::CREATE).map_err(io_error("create"))?;
        write_all_at(&*file, &bytes, 0).map_err(io_error("write"))?;
        let synced = mutant!(CatalogRenamesBeforeSync: Ok(()), else file.sync_all());
        synced.map_err(io_error("sync"))?;
        let end = to_u64(bytes.len());
        Ok(Self {
            dir: Arc::clone(dir),
            file,
            database_id,
            end,
            prepared_end: end,
            sequence,
            next_slot: 0,
            rewrite_at: rewrite_at(end),
            failure: None,
        })
    }

    /// Renames a prepared catalog to its final name. Durable when the call returns.
    fn publish(&self) -> Result<()> {
        self.dir.rename(UNFINISHED_NAME, NAME).map_err(io_error("rename"))?;
        mutant!(CatalogSkipsDirSync => return Ok(()));
        self.dir.sync().map_err(io_error("sync the directory of"))
    }

    /// Opens a catalog that was read for more edits, and cuts a torn last edit off.
    pub(super) fn resume(
        dir: &Arc<dyn Dir>,
        contents: &CatalogContents,
        live_bytes: u64,
    ) -> Result<Self> {
        let file = dir.open(NAME, Open::WRITE).map_err(io_error("open"))?;
        let is_torn = !contents.is_tail_zero;
        if is_torn {
            file.set_len(contents.end).map_err(io_error("cut"))?;
        }
        // The last edit of a process that died may be in the cache only. Later answers depend on
        // it, so it must be durable first.
        file.sync_all().map_err(io_error("sync"))?;
        // A creation or a rewrite may have failed before the name was durable.
        dir.sync().map_err(io_error("sync the directory of"))?;
        Ok(Self {
            dir: Arc::clone(dir),
            file,
            database_id: contents.database_id,
            end: contents.end,
            prepared_end: if is_torn { contents.end } else { contents.file_bytes },
            sequence: contents.next_sequence,
            next_slot: contents.next_slot,
            rewrite_at: rewrite_at(live_bytes),
            failure: None,
        })
    }

    /// Returns the size in bytes of a catalog with `changes` only.
    pub(super) fn size_of(changes: &[CatalogChange]) -> u64 {
        let (bytes, _) = encode_file([0; 16], 0, changes);
        to_u64(bytes.len())
    }

    /// Returns the sequence of the next edit, which is the number of edits so far.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the file's size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.end.max(self.prepared_end)
    }

    /// Refuses later edits because of a failed sync.
    pub(super) fn fail(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| error.to_string());
    }

    /// Returns the first failed sync.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns whether the file is long enough for a rewrite.
    pub(super) fn wants_rewrite(&self) -> bool {
        self.end > self.rewrite_at && self.failure.is_none()
    }

    /// Appends an edit. Durable when the call returns. Fails with [`Error::LogFailed`] after a
    /// failed sync.
    pub(super) fn append(&mut self, changes: &[CatalogChange]) -> Result<()> {
        self.check_sound()?;
        let mut body = Vec::new();
        for change in changes {
            change.encode(&mut body);
        }
        let mut bytes = Vec::new();
        encode_edit(&mut bytes, self.database_id, self.end, self.sequence, &body);
        self.prepare_zeros(self.end + to_u64(bytes.len()));
        // The next edit overwrites the bytes of a failed write.
        write_all_at(&*self.file, &bytes, self.end).map_err(io_error("write"))?;
        let synced = mutant!(CatalogSkipsSync: Ok(()), else self.file.sync_data());
        if let Err(error) = synced {
            let error = io_error("sync")(error);
            self.failure = Some(error.to_string());
            return Err(error);
        }
        self.end += to_u64(bytes.len());
        self.sequence += 1;
        // The slots alternate, and are synced with the next edit: they only tell a damaged edit
        // from a torn one. After a crash the slot that may be torn is written first, so one slot
        // is always valid.
        let slot = encode_slot(self.database_id, self.sequence, self.end);
        let [first, second] = SLOT_OFFSETS;
        let offset = if self.next_slot == 0 { first } else { second };
        self.next_slot = 1 - self.next_slot;
        // The edit is durable. A slot that cannot be written costs only that distinction.
        let _ = write_all_at(&*self.file, &slot, offset);
        Ok(())
    }

    /// Writes zeros up to a multiple of [`PREPARED_BYTES`] past `end`, unless there are some.
    fn prepare_zeros(&mut self, end: u64) {
        if end <= self.prepared_end {
            return;
        }
        let target = (end / PREPARED_BYTES + 1) * PREPARED_BYTES;
        let zeros = vec![0; to_usize(target - self.prepared_end)];
        // The disk may be full. The edit may still fit.
        if write_all_at(&*self.file, &zeros, self.prepared_end).is_ok() {
            self.prepared_end = target;
        }
    }

    /// Replaces the file by one with `changes` only. The old file stays in use if the new one
    /// cannot be prepared.
    pub(super) fn rewrite(&mut self, changes: &[CatalogChange]) -> Result<()> {
        self.check_sound()?;
        let prepared = Self::prepare(&self.dir, self.database_id, self.sequence, changes);
        let file = match prepared {
            Ok(file) => file,
            Err(error) => {
                // The disk may be full.
                let _ = self.dir.remove(UNFINISHED_NAME);
                // The next attempt follows when the file has grown as much again, not with the next
                // edit.
                self.rewrite_at = rewrite_at(self.end);
                return Err(error);
            }
        };
        match file.publish() {
            Ok(()) => {
                *self = file;
                Ok(())
            }
            Err(error) => {
                // It is unknown which of the two files has the name after a crash.
                self.failure = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Makes all edits and both slots durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check_sound()?;
        self.file.sync_data().map_err(|error| {
            let error = io_error("sync")(error);
            self.failure = Some(error.to_string());
            error
        })
    }

    fn check_sound(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(Error::LogFailed { reason: reason.clone() }),
        }
    }
}

fn remove_unfinished(dir: &Arc<dyn Dir>) -> Result<()> {
    match dir.remove(UNFINISHED_NAME) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove an unfinished")(error))
        }
        _ => Ok(()),
    }
}

/// Returns the size in bytes above which a file with `live_bytes` after its last rewrite is
/// rewritten.
fn rewrite_at(live_bytes: u64) -> u64 {
    EDITS_OFFSET
        + ((live_bytes - EDITS_OFFSET.min(live_bytes)) * REWRITE_FACTOR).max(REWRITE_BYTES_MIN)
}
