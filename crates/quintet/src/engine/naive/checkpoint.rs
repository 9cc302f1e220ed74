//! Checkpoint files of the naive engine.
//!
//! A checkpoint is the whole table as a stream of entries, cut into checksummed blocks and written
//! once.
//! Opening reads it front to back and verifies all of it. Memory is bounded by one block and the
//! longest entry.
//!
//! Invariants: a file with its final name (`<LSN as 16 hex digits>.snapshot`) was complete and
//! durable when it got that name. A checksum covers every byte. The checksum of a block starts from
//! the head's checksum and includes the block's number, so a block of another file or position does
//! not pass.
//!
//! Head, 64 bytes:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QNAIVSNP` |
//! | 8 | 4 | version | 1 |
//! | 12 | 4 | | zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | lsn | complete to here; may hold later effects |
//! | 48 | 12 | | zero |
//! | 60 | 4 | crc | CRC32C of bytes 0 to 59 |
//!
//! Then blocks, each:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | length | bytes of payload, 1 to 65,536; 65,536 in all but the last |
//! | 4 | 4 | crc | CRC32C of the head's crc, the block's number (8 bytes), the length and the payload |
//! | 8 | | payload | a piece of the stream |
//!
//! Then the foot, 32 bytes, which ends the file:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | length | 0: not a block |
//! | 4 | 4 | crc | as a block's, with bytes 8 to 31 as payload |
//! | 8 | 8 | entries | in the stream |
//! | 16 | 8 | stream bytes | payload of all blocks |
//! | 24 | 8 | blocks | |
//!
//! The stream: for each entry, key length (varint), key, value length (varint), stored value
//! (envelope included). If the table resizes during the checkpoint, a key may appear twice; the
//! later entry holds.

#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use crate::{
    Error, Result,
    io::{Dir, File, Open, read_exact_at, write_all_at},
    util::{
        codec::{
            Decoder, Lsn, crc32c, crc32c_append, put_u32, put_u64, put_varint, to_u64, to_usize,
        },
        mutant::mutant,
    },
};

/// Name of a checkpoint file until it is complete.
pub const UNFINISHED_NAME: &str = "snapshot.tmp";

const SUFFIX: &str = ".snapshot";
const MAGIC: &[u8; 8] = b"QNAIVSNP";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
const BLOCK_HEAD_BYTES: usize = 8;
const FOOT_BYTES: u64 = 32;
/// Bytes of payload of a full block. At this size the checksum dominates the cost of the calls.
const PAYLOAD_BYTES: usize = 64 << 10;
/// Bytes that the writer buffers before a write.
const WRITE_BYTES: usize = 256 << 10;
/// Longest stored value accepted on reading: the limit on values plus the longest envelope.
const STORED_BYTES_MAX: u64 = (512 << 20) + 16;
const KEY_BYTES_MAX: u64 = 65_535;

/// The table and the LSN of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the database.
    pub database_id: [u8; 16],
    /// Id of the table.
    pub table_id: u64,
    /// The checkpoint is complete to this LSN. It may hold later effects.
    pub lsn: Lsn,
}

/// Counts of a verified checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Entries in the stream.
    pub entries: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
}

/// Returns the final name of the checkpoint at `lsn`.
pub fn name_of(lsn: Lsn) -> String {
    format!("{:016x}{SUFFIX}", lsn.0)
}

/// Returns the LSN in a checkpoint's final name; `None` for any other name.
pub fn lsn_of_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 16)?;
    let lsn = Lsn(u64::from_str_radix(digits, 16).ok()?);
    (name_of(lsn) == name).then_some(lsn)
}

fn head(identity: &Identity) -> (Vec<u8>, u32) {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(MAGIC);
    put_u32(&mut head, VERSION);
    put_u32(&mut head, 0);
    head.extend_from_slice(&identity.database_id);
    put_u64(&mut head, identity.table_id);
    put_u64(&mut head, identity.lsn.0);
    head.resize(HEAD_BYTES - 4, 0);
    let crc = crc32c(&head);
    put_u32(&mut head, crc);
    (head, crc)
}

fn block_crc(salt: u32, number: u64, length: u32, payload: &[u8]) -> u32 {
    let crc = crc32c_append(salt, &number.to_le_bytes());
    crc32c_append(crc32c_append(crc, &length.to_le_bytes()), payload)
}

/// Writes one checkpoint under [`UNFINISHED_NAME`].
#[derive(Debug)]
pub struct CheckpointWriter {
    file: Arc<dyn File>,
    label: String,
    salt: u32,
    /// Complete blocks that are not written yet.
    ready: Vec<u8>,
    /// File offset of `ready`.
    offset: u64,
    /// Payload of the open block.
    payload: Vec<u8>,
    blocks: u64,
    entries: u64,
    stream_bytes: u64,
}

impl CheckpointWriter {
    /// Starts a checkpoint in `dir`. Replaces an unfinished one. Fails if the file cannot be
    /// created.
    pub fn create(dir: &Arc<dyn Dir>, label: String, identity: &Identity) -> Result<Self> {
        match dir.remove(UNFINISHED_NAME) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("remove {label}"), error));
            }
            _ => {}
        }
        let file = dir
            .open(UNFINISHED_NAME, Open::CREATE)
            .map_err(|error| Error::io(format!("create {label}"), error))?;
        let (head, salt) = head(identity);
        Ok(Self {
            file,
            label,
            salt,
            ready: head,
            offset: 0,
            payload: Vec::new(),
            blocks: 0,
            entries: 0,
            stream_bytes: 0,
        })
    }

    /// Appends an entry to the stream. Fails if a write fails.
    pub fn entry(&mut self, key: &[u8], stored: &[u8]) -> Result<()> {
        let mut lengths = Vec::with_capacity(10);
        put_varint(&mut lengths, to_u64(key.len()));
        self.stream(&lengths)?;
        self.stream(key)?;
        lengths.clear();
        put_varint(&mut lengths, to_u64(stored.len()));
        self.stream(&lengths)?;
        self.stream(stored)?;
        self.entries += 1;
        Ok(())
    }

    /// Writes the last block and the foot, and syncs the file. Its name is not durable yet. Returns
    /// the size in bytes.
    pub fn finish(mut self) -> Result<u64> {
        self.end_block()?;
        let mut counts = Vec::with_capacity(24);
        for count in [self.entries, self.stream_bytes, self.blocks] {
            put_u64(&mut counts, count);
        }
        put_u32(&mut self.ready, 0);
        put_u32(&mut self.ready, block_crc(self.salt, self.blocks, 0, &counts));
        self.ready.extend_from_slice(&counts);
        self.write()?;
        mutant!(SnapshotRenamesBeforeSync => return Ok(self.offset));
        let io_error = |error| Error::io(format!("sync {}", self.label), error);
        self.file.sync_all().map_err(io_error)?;
        Ok(self.offset)
    }

    fn stream(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.stream_bytes += to_u64(bytes.len());
        while !bytes.is_empty() {
            let room = PAYLOAD_BYTES - self.payload.len();
            let (piece, rest) = bytes.split_at(room.min(bytes.len()));
            self.payload.extend_from_slice(piece);
            bytes = rest;
            if self.payload.len() == PAYLOAD_BYTES {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        if length == 0 {
            return Ok(());
        }
        put_u32(&mut self.ready, length);
        put_u32(&mut self.ready, block_crc(self.salt, self.blocks, length, &self.payload));
        self.ready.append(&mut self.payload);
        self.blocks += 1;
        if self.ready.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        write_all_at(&*self.file, &self.ready, self.offset)
            .map_err(|error| Error::io(format!("write {}", self.label), error))?;
        self.offset += to_u64(self.ready.len());
        self.ready.clear();
        Ok(())
    }
}

/// Returns the identity in the head of a checkpoint file. Reads and verifies the head only.
pub fn identify(file: &dyn File, label: &str) -> Result<Identity> {
    Ok(CheckpointReader::open(file, label)?.identity)
}

/// Reads and verifies a whole checkpoint file, and calls `visit` with each entry. Memory: one block
/// and the longest entry.
///
/// Fails with `Corruption` if the file is damaged or its identity is not `expected`. It may have
/// visited entries before that; the caller must discard them.
pub fn load(
    file: &dyn File,
    label: &str,
    expected: &Identity,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Summary> {
    let mut reader = CheckpointReader::open(file, label)?;
    if reader.identity != *expected {
        return Err(reader.damage(
            0,
            format!("the checkpoint has another identity than its name: {:?}", reader.identity),
        ));
    }
    // The end of the stream that is not a complete entry yet.
    let mut pending = Vec::new();
    let mut entries = 0;
    while reader.next_block(&mut pending)? {
        let mut decoder = Decoder::new(&pending);
        loop {
            let before = decoder.rest().len();
            match entry(&mut decoder) {
                Ok(Some((key, stored))) => {
                    visit(key, stored);
                    entries += 1;
                }
                Ok(None) => {
                    let used = pending.len() - before;
                    pending.drain(..used);
                    break;
                }
                Err(what) => return Err(reader.damage(reader.offset, what)),
            }
        }
    }
    reader.foot(entries, pending.is_empty())
}

/// A key and its stored value.
type KeyAndStored<'a> = (&'a [u8], &'a [u8]);

/// Decodes the next entry of the stream; `None` if it is not complete yet.
fn entry<'a>(decoder: &mut Decoder<'a>) -> Result<Option<KeyAndStored<'a>>, &'static str> {
    let mut ahead = decoder.clone();
    let mut part = |longest: u64, what| {
        let short = ahead.rest().len() < crate::util::codec::VARINT_BYTES_MAX;
        let Some(length) = ahead.varint() else { return if short { Ok(None) } else { Err(what) } };
        if length > longest {
            return Err(what);
        }
        Ok(ahead.take(to_usize(length)))
    };
    let Some(key) = part(KEY_BYTES_MAX, "a key's length is outside its limits")? else {
        return Ok(None);
    };
    if key.is_empty() {
        return Err("a key is empty");
    }
    let Some(stored) = part(STORED_BYTES_MAX, "a value's length is outside its limits")? else {
        return Ok(None);
    };
    *decoder = ahead;
    Ok(Some((key, stored)))
}

/// Reads the blocks of a checkpoint file in order.
struct CheckpointReader<'a> {
    file: &'a dyn File,
    label: &'a str,
    identity: Identity,
    salt: u32,
    size: u64,
    /// Offset of the next block.
    offset: u64,
    blocks: u64,
    stream_bytes: u64,
}

impl<'a> CheckpointReader<'a> {
    fn open(file: &'a dyn File, label: &'a str) -> Result<Self> {
        let size = file.len().map_err(|error| Error::io(format!("measure {label}"), error))?;
        let mut reader = Self {
            file,
            label,
            identity: Identity { database_id: [0; 16], table_id: 0, lsn: Lsn(0) },
            salt: 0,
            size,
            offset: to_u64(HEAD_BYTES),
            blocks: 0,
            stream_bytes: 0,
        };
        let head: [u8; HEAD_BYTES] = reader.read(0)?;
        let damage = |what: &str| Error::corruption(label, 0, what);
        let mut decoder = Decoder::new(&head);
        let magic = decoder.take(MAGIC.len());
        let version = decoder.u32().unwrap_or_default();
        let crc = head.last_chunk().copied().map_or(0, u32::from_le_bytes);
        if magic != Some(MAGIC) {
            return Err(damage("not a checkpoint of a naive table: the magic is wrong"));
        }
        if crc32c(head.get(..HEAD_BYTES - 4).unwrap_or_default()) != crc {
            return Err(damage("the head's checksum is wrong"));
        }
        if version != VERSION {
            return Err(Error::NewerFormat {
                file: label.to_owned(),
                found: version,
                supported: VERSION,
            });
        }
        reader.salt = crc;
        let _zero = decoder.u32();
        reader.identity = Identity {
            database_id: decoder.id().unwrap_or_default(),
            table_id: decoder.u64().unwrap_or_default(),
            lsn: Lsn(decoder.u64().unwrap_or_default()),
        };
        Ok(reader)
    }

    fn damage(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.label, offset, what)
    }

    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn fill(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(self.file, bytes, offset).map_err(|error| {
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                self.damage(offset, "the file is truncated")
            } else {
                Error::io(format!("read {}", self.label), error)
            }
        })
    }

    fn block_head(&self) -> Result<(u32, u32)> {
        let head: [u8; BLOCK_HEAD_BYTES] = self.read(self.offset)?;
        let mut decoder = Decoder::new(&head);
        Ok((decoder.u32().unwrap_or_default(), decoder.u32().unwrap_or_default()))
    }

    /// Appends the payload of the next block to `stream`. Returns `false` at the foot.
    fn next_block(&mut self, stream: &mut Vec<u8>) -> Result<bool> {
        let (length, crc) = self.block_head()?;
        if length == 0 {
            return Ok(false);
        }
        let bytes = to_usize(u64::from(length));
        if bytes > PAYLOAD_BYTES {
            return Err(self.damage(
                self.offset,
                format!("the length of block {} is {length} bytes, above the limit", self.blocks),
            ));
        }
        let start = stream.len();
        stream.resize(start + bytes, 0);
        let payload = stream.get_mut(start..).unwrap_or_default();
        self.fill(payload, self.offset + to_u64(BLOCK_HEAD_BYTES))?;
        let found = block_crc(self.salt, self.blocks, length, payload);
        let valid = mutant!(SnapshotSkipsChecksum: true, else found == crc);
        if !valid {
            let what = format!("the checksum of block {} is wrong", self.blocks);
            return Err(self.damage(self.offset, what));
        }
        self.offset += to_u64(BLOCK_HEAD_BYTES + bytes);
        self.blocks += 1;
        self.stream_bytes += u64::from(length);
        Ok(true)
    }

    fn foot(&self, entries: u64, stream_ended: bool) -> Result<Summary> {
        let (_, crc) = self.block_head()?;
        let counts: [u8; 24] = self.read(self.offset + to_u64(BLOCK_HEAD_BYTES))?;
        if block_crc(self.salt, self.blocks, 0, &counts) != crc {
            return Err(self.damage(self.offset, "the foot's checksum is wrong"));
        }
        let mut decoder = Decoder::new(&counts);
        for (name, found) in
            [("entries", entries), ("stream bytes", self.stream_bytes), ("blocks", self.blocks)]
        {
            let expected = decoder.u64().unwrap_or_default();
            if expected != found {
                let what = format!("the foot counts {expected} {name}, the file has {found}");
                return Err(self.damage(self.offset, what));
            }
        }
        if !stream_ended {
            return Err(self.damage(self.offset, "the last entry is incomplete"));
        }
        let end = self.offset + FOOT_BYTES;
        if self.size != end {
            let what = format!("the file has {} bytes but its foot ends at byte {end}", self.size);
            return Err(self.damage(end, what));
        }
        Ok(Summary { entries, file_bytes: end })
    }
}
