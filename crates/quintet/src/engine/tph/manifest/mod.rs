//! The manifest: the SSTs of each table, and the tables of each level.
//!
//! A manifest is a file of edits, `manifest-<number>`. The first edit has a whole version of the
//! table set; each further edit turns the previous version into the next. An edit lists the tables
//! that a flush or a merge changed, and takes effect with one sync.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHMANI` |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 47 with this field zero |
//! | 16 | 32 | identity | database id (16), table id (8), number (8) |
//! | 48 | | | zeros |
//! | 512 | | edits | each at a multiple of 512, zeros between them |
//!
//! An edit:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | size | of the body |
//! | 4 | 4 | crc | CRC32C of the identity, the edit's offset (8 bytes), size and body |
//! | 8 | | body | [`edit`] |
//!
//! Invariants:
//! - All files that an edit lists are durable before the edit is written, with their names.
//! - The manifest with the highest number is the current one.
//! - Bytes after the last whole edit have no effect, unless another edit follows them: then they
//!   are damage.
//! - A file is removed only after an edit without it is durable. So the version before an edit in
//!   doubt always has its files.
//! - The loss of a damaged last edit matters only if the files must be complete to a later LSN than
//!   the version before it. [`TphManifest::open`] checks this.
//! - No sector is written twice. After a failed write, the contents of the disk are in doubt: no
//!   edit is appended, and the next version goes to a new manifest. Its contents are synced before
//!   it is renamed. A manifest that is much longer than its version needs is replaced in the same
//!   way.
//!
//! Threads: the publisher of the table owns the manifest, behind its lock.

#![deny(clippy::indexing_slicing)]

mod edit;
mod format;
mod record;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{io, sync::Arc};

pub(super) use self::{
    format::{UNFINISHED, decode, name_of, number_of},
    record::{LEVELS_MAX, SstRecord, TphTableRecord, VersionRecord},
};

use self::format::{edit_bytes, header, identity_of, refuse_newer};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, Open, SECTOR_BYTES, write_all_at},
    lsm::sst::SstOwner,
    util::{
        codec::{round_up, to_u64, to_usize},
        mutant::mutant,
    },
};

/// Maximum length of a manifest in bytes: longer files are refused before memory is allocated.
const BYTES_MAX: u64 = 1 << 30;
/// A manifest is replaced when it is this many times as long as its first edit.
const REWRITE_TIMES: u64 = if cfg!(test) { 2 } else { 8 };
/// Minimum length in bytes of a manifest that is replaced for its length.
const REWRITE_BYTES: u64 = if cfg!(test) { 2 << 10 } else { 16 << 10 };

/// The current manifest and its contents. See the module head.
#[derive(Debug, Default)]
pub(super) struct TphManifest {
    pub(super) contents: VersionRecord,
    /// Number of the manifest, and the highest number that a write has tried.
    number: u64,
    number_tried: u64,
    file: Option<Arc<dyn File>>,
    /// Offset of the next edit.
    end: u64,
    /// Bytes up to the end of the first edit, which has a whole version.
    first_bytes: u64,
    /// The contents of the disk are unknown after a failed write: no edit may follow.
    in_doubt: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(super) struct ManifestWrite {
    pub(super) bytes: u64,
    /// Name of the manifest that was replaced.
    pub(super) replaced: Option<String>,
}

impl TphManifest {
    /// Reads the manifest with this number. The files must have every effect below LSN `complete`;
    /// fails with `Corruption` if they may lack one.
    pub(super) fn open(owner: &SstOwner, number: u64, write: bool, complete: u64) -> Result<Self> {
        let name = name_of(number);
        let label = owner.label(&name);
        let mode = if write { Open::WRITE } else { Open::READ };
        let file = owner.dir.open(&name, mode);
        let file = file.map_err(|error| Error::io(format!("read {label}"), error))?;
        if write {
            // After a crash of the process, the file or its name may be in the page cache alone.
            // The log is pruned up to `complete`, so both must be durable first.
            file.sync_all().map_err(|error| Error::io(format!("sync {label}"), error))?;
            sync_dir(owner)?;
        }
        let bytes = read_past_cache(owner, &name, &label)?;
        refuse_newer(&bytes, &label)?;
        let damage = |(offset, what): (u64, String)| Error::corruption(&*label, offset, what);
        let found = decode(&bytes).map_err(damage)?;
        if found.identity != (owner.database_id, owner.table_id, number) {
            return Err(damage((
                16,
                "the header names another manifest or another table".to_owned(),
            )));
        }
        if found.contents.complete < complete && found.is_torn {
            return Err(damage((found.end, "the last edit is damaged".to_owned())));
        }
        Ok(Self {
            contents: found.contents,
            number,
            number_tried: number,
            file: Some(file),
            end: found.end,
            first_bytes: SECTOR_BYTES,
            // No edit is appended to bytes that are none.
            in_doubt: to_u64(bytes.len()) > found.end,
        })
    }

    /// Returns the bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// Writes a version and makes it durable. After a failure, a crash may find this version or the
    /// previous one; the next successful call decides.
    pub(super) fn publish(
        &mut self,
        owner: &SstOwner,
        contents: VersionRecord,
    ) -> Result<ManifestWrite> {
        // Before the edit, so that the directory has the name of each SST that the edit lists.
        mutant!(TphNamesPiecesLate: (), else sync_dir(owner)?);
        let is_long = self.end > REWRITE_BYTES.max(self.first_bytes * REWRITE_TIMES);
        let written = match self.file.clone().filter(|_| !self.in_doubt && !is_long) {
            Some(file) => self.append(owner, &*file, &contents)?,
            None => self.replace(owner, &contents)?,
        };
        self.contents = contents;
        Ok(written)
    }

    fn append(
        &mut self,
        owner: &SstOwner,
        file: &dyn File,
        contents: &VersionRecord,
    ) -> Result<ManifestWrite> {
        let label = owner.label(&name_of(self.number));
        let identity = identity_of(&owner.database_id, owner.table_id, self.number);
        let bytes = edit_bytes(&identity, self.end, &contents.encode_edit(&self.contents));
        let (offset, end) = (self.end, self.end + to_u64(bytes.len()));
        self.in_doubt = true;
        mutant!(TphTrustsFailedEdit => (self.in_doubt, self.end) = (false, end));
        write_all_at(file, &bytes, offset)
            .map_err(|error| Error::io(format!("write {label}"), error))?;
        let synced = mutant!(TphSkipsEditSync: Ok(()), else file.sync_data());
        synced.map_err(|error| Error::io(format!("sync {label}"), error))?;
        self.in_doubt = false;
        self.end = end;
        Ok(ManifestWrite { bytes: to_u64(bytes.len()), replaced: None })
    }

    /// Writes a new manifest with the version and replaces the old one.
    fn replace(&mut self, owner: &SstOwner, contents: &VersionRecord) -> Result<ManifestWrite> {
        self.number_tried += 1;
        let number = self.number_tried;
        let label = owner.label(&name_of(number));
        let identity = identity_of(&owner.database_id, owner.table_id, number);
        let mut bytes = header(&identity);
        let body = contents.encode_edit(&VersionRecord::default());
        bytes.extend(edit_bytes(&identity, SECTOR_BYTES, &body));
        let io = |error: io::Error| Error::io(format!("write {label}"), error);
        match owner.dir.remove(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let file = owner.dir.open(UNFINISHED, Open::CREATE).map_err(io)?;
        write_all_at(&*file, &bytes, 0).map_err(io)?;
        let synced = mutant!(TphSkipsManifestSync: Ok(()), else file.sync_all());
        synced.map_err(|error| Error::io(format!("sync {label}"), error))?;
        // From here on, a crash may find either manifest.
        self.in_doubt = true;
        owner.dir.rename(UNFINISHED, &name_of(number)).map_err(io)?;
        mutant!(TphSkipsDirSync: (), else sync_dir(owner)?);
        let replaced = self.file.replace(file).map(|_| name_of(self.number));
        self.end = to_u64(bytes.len());
        (self.number, self.first_bytes, self.in_doubt) = (number, self.end, false);
        Ok(ManifestWrite { bytes: self.end, replaced })
    }

    /// Returns the name of the manifest that a failed write may have left.
    pub(super) fn failed_name(&self) -> Option<String> {
        (self.number_tried > self.number).then(|| name_of(self.number_tried))
    }
}

fn sync_dir(owner: &SstOwner) -> Result<()> {
    owner.dir.sync().map_err(|error| Error::io(format!("sync {}", owner.label("")), error))
}

/// Reads a file from the disk, past the page cache: the cache may have data of a failed sync that
/// is not on the disk.
fn read_past_cache(owner: &SstOwner, name: &str, label: &str) -> Result<Vec<u8>> {
    let io = |error: io::Error| Error::io(format!("read {label}"), error);
    let file = owner.dir.open(name, Open::READ.direct()).map_err(io)?;
    let length = file.len().map_err(io)?;
    if length > BYTES_MAX {
        return Err(Error::corruption(
            label,
            0,
            format!("a file of {length} bytes is too large for a manifest"),
        ));
    }
    let mut buffer = AlignedBuffer::zeroed(to_usize(round_up(length, BLOCK_BYTES)));
    let mut done = 0;
    // A read that ends within a block has reached the end of the file.
    while done < to_usize(length) && to_u64(done).is_multiple_of(BLOCK_BYTES) {
        let unread = buffer.as_mut_slice().get_mut(done..).unwrap_or(&mut []);
        match file.read_at(unread, to_u64(done)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io(error)),
        }
    }
    Ok(buffer.as_slice().get(..done.min(to_usize(length))).unwrap_or(&[]).to_vec())
}
