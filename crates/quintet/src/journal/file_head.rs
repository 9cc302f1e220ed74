//! The head of a file of pages, and reads of its blocks.
//!
//! Why: a file says what it is and which table it belongs to, so that no file of another table or
//! of a newer format is read as this table's.
//!
//! The head is in the first block:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | of the kind of file |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 63 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | region size | in bytes |
//! | 48 | 16 | reserved | 0 |

use std::{io, sync::Arc};

use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, Open, write_all_at},
    journal::redo::Owner,
    util::codec::{Decoder, crc32c, put_u32, put_u64, to_u64, to_usize},
};

const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 64;

/// Reads blocks by direct I/O and returns the number of bytes read. It is lower than the buffer's
/// length at the end of the file, which is within a block if the file was truncated.
pub(crate) fn read_blocks(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    // Direct I/O takes no offset within a block. A read that ended there met the end of the file.
    while done < buffer.len() && to_u64(done).is_multiple_of(BLOCK_BYTES) {
        let rest = buffer.get_mut(done..).unwrap_or(&mut []);
        match file.read_at(rest, offset + to_u64(done)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Fills the buffer as [`read_blocks`] does. Fails with `UnexpectedEof` if the file is shorter.
pub(crate) fn read_all_blocks(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let count = read_blocks(file, buffer, offset)?;
    if count == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The bytes of a head. See the module head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHead(Vec<u8>);

/// The fields of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadFields {
    pub(crate) magic: [u8; 8],
    pub(crate) database_id: [u8; 16],
    pub(crate) table_id: u64,
    pub(crate) region_bytes: u64,
}

impl FileHead {
    /// Decodes the head that `bytes` begin with, of any table. `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<HeadFields> {
        let head = bytes.get(..HEAD_BYTES)?;
        let mut rest = Decoder::new(head);
        let magic = *rest.take(8)?.first_chunk::<8>()?;
        let (format, crc) = (rest.u32()?, rest.u32()?);
        let (database_id, table_id) = (rest.id()?, rest.u64()?);
        let fields = HeadFields { magic, database_id, table_id, region_bytes: rest.u64()? };
        let mut whole = head.to_vec();
        whole.get_mut(12..16)?.fill(0);
        (format == FORMAT && crc32c(&whole) == crc).then_some(fields)
    }

    /// Returns the head for a file of this kind (`magic`) and table.
    pub(crate) fn new(magic: [u8; 8], owner: &Owner, region_bytes: u64) -> Self {
        let mut out = magic.to_vec();
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        out.extend_from_slice(&owner.database_id);
        put_u64(&mut out, owner.table_id);
        put_u64(&mut out, region_bytes);
        out.resize(HEAD_BYTES, 0);
        let crc = crc32c(&out).to_le_bytes();
        if let Some(field) = out.get_mut(12..16) {
            field.copy_from_slice(&crc);
        }
        Self(out)
    }

    /// Creates the file. Its head and its name are durable on return. Replaces a file that a
    /// process left when it died: no checkpoint names it.
    pub(crate) fn create(&self, owner: &Owner, name: &str) -> Result<Arc<dyn File>> {
        let io = |error| Error::io(format!("create {}", owner.label(name)), error);
        if owner.dir.list().map_err(io)?.iter().any(|entry| entry.name == name) {
            owner.dir.remove(name).map_err(io)?;
        }
        let file = owner.dir.open(name, Open::CREATE.direct()).map_err(io)?;
        let mut block = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
        if let Some(head) = block.as_mut_slice().get_mut(..HEAD_BYTES) {
            head.copy_from_slice(&self.0);
        }
        write_all_at(&*file, block.as_slice(), 0).map_err(io)?;
        file.sync_all().map_err(io)?;
        owner.dir.sync().map_err(io)?;
        Ok(file)
    }

    /// Opens the file and compares its head. `None` if there is no such file. Fails with
    /// `NewerFormat` or `Corruption` if the head is another. Unless `read_only`, syncs the file.
    pub(crate) fn open(
        &self,
        owner: &Owner,
        name: &str,
        read_only: bool,
    ) -> Result<Option<Arc<dyn File>>> {
        let how = if read_only { Open::READ } else { Open::WRITE };
        let file = self.open_as(owner, name, how)?;
        if let Some(file) = file.as_ref().filter(|_| !read_only) {
            // A process that died may have left writes that it never synced.
            let synced = file.sync_all();
            synced.map_err(|error| Error::io(format!("open {}", owner.label(name)), error))?;
        }
        Ok(file)
    }

    /// Opens for writing as [`open`](Self::open) does, without the sync. For a file whose content
    /// does not depend on earlier writes being durable.
    pub(crate) fn open_unsynced(&self, owner: &Owner, name: &str) -> Result<Option<Arc<dyn File>>> {
        self.open_as(owner, name, Open::WRITE)
    }

    fn open_as(&self, owner: &Owner, name: &str, how: Open) -> Result<Option<Arc<dyn File>>> {
        let io = |error| Error::io(format!("open {}", owner.label(name)), error);
        if !owner.dir.list().map_err(io)?.iter().any(|entry| entry.name == name) {
            return Ok(None);
        }
        let file = owner.dir.open(name, how.direct()).map_err(io)?;
        let mut block = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
        let count = read_blocks(&*file, block.as_mut_slice(), 0).map_err(io)?;
        let found = block.as_slice().get(..HEAD_BYTES.min(count)).unwrap_or(&[]);
        if found == self.0 {
            return Ok(Some(file));
        }
        let format = found.get(8..12).and_then(|bytes| bytes.first_chunk::<4>());
        match format.map(|bytes| u32::from_le_bytes(*bytes)) {
            Some(newer) if newer > FORMAT && found.get(..8) == self.0.get(..8) => {
                Err(Error::NewerFormat { file: owner.label(name), found: newer, supported: FORMAT })
            }
            _ => Err(Error::corruption(
                owner.label(name),
                0,
                "its head is not that of this table's file",
            )),
        }
    }
}
