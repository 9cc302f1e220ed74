//! The catalog's file: a head and a sequence of checksummed edits. The parent module has the
//! layout.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use super::edit::{Change, decode_all};
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
/// The name of a catalog that is being written.
pub(crate) const UNFINISHED_NAME: &str = "catalog.tmp";

const MAGIC: &[u8; 8] = b"QUINTCAT";
const VERSION: u32 = 1;
/// The head's checksum covers everything before it.
const HEAD_CRC_OFFSET: usize = 32;
/// Each in its own sector, so that a torn write of one leaves the other intact.
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
/// The file is rewritten when less than one byte in this many is live.
const REWRITE_FACTOR: u64 = 4;

/// The open file. One owner at a time: the catalog's lock.
#[derive(Debug)]
pub(super) struct CatalogFile {
    dir: Arc<dyn Dir>,
    file: Arc<dyn File>,
    database_id: [u8; 16],
    /// Where the next edit goes.
    end: u64,
    /// Of the next edit.
    sequence: u64,
    /// The slot to write next: not the newest one that is whole.
    next_slot: usize,
    /// The file is rewritten when it is longer.
    rewrite_at: u64,
    /// The first failed sync: whether the last edit is on the disk is not known.
    failure: Option<String>,
}

/// What a catalog's file holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) database_id: [u8; 16],
    /// Past the last whole edit.
    pub(super) end: u64,
    pub(super) next_sequence: u64,
    /// The slot that is damaged, or holds the older length.
    pub(super) next_slot: usize,
    /// The size of the file; what lies past `end` is a torn edit.
    pub(super) file_bytes: u64,
    pub(super) edits: Vec<(u64, Vec<Change>)>,
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

/// Appends the bytes of an edit that will lie at `offset`.
fn encode_edit(out: &mut Vec<u8>, database_id: [u8; 16], offset: u64, sequence: u64, body: &[u8]) {
    put_u32(out, u32::try_from(body.len()).unwrap_or(u32::MAX));
    put_u32(out, edit_crc(database_id, offset, sequence, body));
    put_u64(out, sequence);
    out.extend_from_slice(body);
}

/// The bytes of a whole catalog that holds `changes`, and the number of edits.
fn encode_file(database_id: [u8; 16], first_sequence: u64, changes: &[Change]) -> (Vec<u8>, u64) {
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
pub(super) fn read(file: &dyn File) -> Result<Contents> {
    let size = file.len().map_err(io_error("measure"))?;
    // After a failed sync the cache may show what the disk does not have, and never will.
    let _ = file.drop_cache();
    let mut bytes = vec![0; to_usize(size)];
    let read = read_up_to(file, &mut bytes, 0).map_err(io_error("read"))?;
    bytes.truncate(read);
    parse(&bytes)
}

/// Verifies the bytes of a catalog.
pub(super) fn parse(bytes: &[u8]) -> Result<Contents> {
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
    let mut contents = Contents {
        database_id,
        end: EDITS_OFFSET,
        next_sequence: 0,
        next_slot: 1 - newest,
        file_bytes: to_u64(bytes.len()),
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

/// The edit at the end of what is read so far, where a whole one is there.
fn parse_edit<'a>(bytes: &'a [u8], contents: &Contents) -> Option<(u64, &'a [u8])> {
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
    /// Makes a catalog that holds `changes`, in place of any there. Durable when this returns.
    pub(super) fn create(
        dir: &Arc<dyn Dir>,
        database_id: [u8; 16],
        first_sequence: u64,
        changes: &[Change],
    ) -> Result<Self> {
        let file = Self::prepare(dir, database_id, first_sequence, changes)?;
        file.publish()?;
        Ok(file)
    }

    /// Writes a whole catalog under the unfinished name; its content is durable when this returns.
    fn prepare(
        dir: &Arc<dyn Dir>,
        database_id: [u8; 16],
        first_sequence: u64,
        changes: &[Change],
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
            sequence,
            next_slot: 0,
            rewrite_at: rewrite_at(end),
            failure: None,
        })
    }

    /// Gives a prepared catalog its name.
    fn publish(&self) -> Result<()> {
        self.dir.rename(UNFINISHED_NAME, NAME).map_err(io_error("rename"))?;
        mutant!(CatalogSkipsDirSync => return Ok(()));
        self.dir.sync().map_err(io_error("sync the directory of"))
    }

    /// Goes on with a catalog that was read; a torn last edit is cut off for good.
    pub(super) fn resume(dir: &Arc<dyn Dir>, contents: &Contents, live_bytes: u64) -> Result<Self> {
        let file = dir.open(NAME, Open::WRITE).map_err(io_error("open"))?;
        if contents.end < contents.file_bytes {
            file.set_len(contents.end).map_err(io_error("cut"))?;
        }
        // A process that died may have left an edit that is whole in the cache alone. What is
        // served from here on rests on it.
        file.sync_all().map_err(io_error("sync"))?;
        // Its name too: a creation or a rewrite may have died, or failed, before it was durable.
        dir.sync().map_err(io_error("sync the directory of"))?;
        Ok(Self {
            dir: Arc::clone(dir),
            file,
            database_id: contents.database_id,
            end: contents.end,
            sequence: contents.next_sequence,
            next_slot: contents.next_slot,
            rewrite_at: rewrite_at(live_bytes),
            failure: None,
        })
    }

    /// The size of a catalog that holds `changes` alone.
    pub(super) fn size_of(changes: &[Change]) -> u64 {
        let (bytes, _) = encode_file([0; 16], 0, changes);
        to_u64(bytes.len())
    }

    /// Of the next edit: how many there have been.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The file's size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// The first failed sync.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether the file is mostly dead.
    pub(super) fn wants_rewrite(&self) -> bool {
        self.end > self.rewrite_at && self.failure.is_none()
    }

    /// Appends an edit. Durable when this returns. After a failed sync nothing more is taken.
    pub(super) fn append(&mut self, changes: &[Change]) -> Result<()> {
        self.check_sound()?;
        let mut body = Vec::new();
        for change in changes {
            change.encode(&mut body);
        }
        let mut bytes = Vec::new();
        encode_edit(&mut bytes, self.database_id, self.end, self.sequence, &body);
        // A failed write has changed nothing that counts: the next edit is written over it.
        write_all_at(&*self.file, &bytes, self.end).map_err(io_error("write"))?;
        let synced = mutant!(CatalogSkipsSync: Ok(()), else self.file.sync_data());
        if let Err(error) = synced {
            let error = io_error("sync")(error);
            self.failure = Some(error.to_string());
            return Err(error);
        }
        self.end += to_u64(bytes.len());
        self.sequence += 1;
        // Alternating, and synced with the next edit: it only has to tell a damaged edit from a
        // torn one. After a crash it goes on with the one that may be torn, so that one is always
        // whole.
        let slot = encode_slot(self.database_id, self.sequence, self.end);
        let [first, second] = SLOT_OFFSETS;
        let offset = if self.next_slot == 0 { first } else { second };
        self.next_slot = 1 - self.next_slot;
        // The edit is durable: a slot that cannot be written costs only that distinction.
        let _ = write_all_at(&*self.file, &slot, offset);
        Ok(())
    }

    /// Replaces the file by one that holds `changes` alone. The old one stays where that fails
    /// early.
    pub(super) fn rewrite(&mut self, changes: &[Change]) -> Result<()> {
        self.check_sound()?;
        let prepared = Self::prepare(&self.dir, self.database_id, self.sequence, changes);
        let file = match prepared {
            Ok(file) => file,
            Err(error) => {
                // The space may be what is missing.
                let _ = self.dir.remove(UNFINISHED_NAME);
                // Not with every edit: when the file has grown as much again.
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
                // Which of the two has the name after a crash is not known.
                self.failure = Some(error.to_string());
                Err(error)
            }
        }
    }

    /// Makes everything in the file durable, the slots included.
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

fn rewrite_at(live_bytes: u64) -> u64 {
    EDITS_OFFSET
        + ((live_bytes - EDITS_OFFSET.min(live_bytes)) * REWRITE_FACTOR).max(REWRITE_BYTES_MIN)
}
