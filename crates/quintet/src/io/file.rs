//! The traits [`Dir`] and [`File`], and transfers of exact lengths.

use std::{fmt, io, ops::Range, path::Path, sync::Arc};

use super::map::Mapping;
use crate::util::error::LockHolder;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Allow writes.
    pub write: bool,
    /// Create the file; fails with `AlreadyExists` if it exists.
    pub create_new: bool,
    /// Bypass the page cache: offsets, lengths and buffers are multiples of [`BLOCK_BYTES`]
    /// ([`AlignedBuffer`]). Falls back to ordinary I/O if the file system has no direct I/O.
    pub direct: bool,
}

impl Open {
    /// Opens an existing file for reading.
    pub const READ: Self = Self { write: false, create_new: false, direct: false };
    /// Opens an existing file for reading and writing.
    pub const WRITE: Self = Self { write: true, create_new: false, direct: false };
    /// Creates a file for reading and writing; it must not exist.
    pub const CREATE: Self = Self { write: true, create_new: true, direct: false };

    /// Returns these options with direct I/O.
    #[must_use]
    pub const fn direct(self) -> Self {
        Self { direct: true, ..self }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name: one path component.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A directory. New files get mode 0600, new directories 0700.
pub trait Dir: Send + Sync + fmt::Debug {
    /// Returns the path, for messages.
    fn path(&self) -> &Path;
    /// Opens or creates a file. A new file's name is durable after [`Dir::sync`].
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>>;
    /// Opens a subdirectory. With `create`, creates it if it is missing; its name is durable after
    /// [`Dir::sync`] of this directory.
    fn open_dir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// Lists this directory, sorted by name. Omits names that are not UTF-8.
    fn list(&self) -> io::Result<Vec<DirEntry>>;
    /// Renames `from` to `to` atomically, and replaces a file of that name. Durable after
    /// [`Dir::sync`]; a crash before it leaves at least one of the two names.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Dir::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Removes an empty directory. Durable after [`Dir::sync`].
    fn remove_dir(&self, name: &str) -> io::Result<()>;
    /// Makes earlier creations, renames and removals in this directory durable.
    fn sync(&self) -> io::Result<()>;
    /// Locks the file `name` (created if missing) until the guard is dropped: exclusively, or
    /// shared with other shared holders. Fails with `WouldBlock` if another holder conflicts. The
    /// lock ends with the process.
    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn LockGuard>>;
    /// Returns a holder of a lock of the file `name`, as far as the system tells. This process is
    /// preferred if it is one of several.
    fn lock_holder(&self, _name: &str) -> LockHolder {
        LockHolder::Unknown
    }
}

/// Holds a lock until dropped.
pub trait LockGuard: Send + Sync + fmt::Debug {}

/// A file. Offsets and lengths are in bytes.
#[cfg_attr(
    feature = "testing",
    expect(clippy::len_without_is_empty, reason = "`len` asks the system and may fail")
)]
pub trait File: Send + Sync + fmt::Debug {
    /// Reads at `offset` and returns the number of bytes read, 0 at the end of the file. May be
    /// short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset` and grows the file if needed. Returns the number of bytes written. May be
    /// short. Not durable.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Returns the file's size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Truncates or extends the file; new bytes read as zeros. Durable after `sync_all`.
    fn set_len(&self, size: u64) -> io::Result<()>;
    /// Extends the file to at least `size` bytes and reserves disk space for the added range, so
    /// that later writes there cannot fail with a full disk. Holes below the old size stay holes.
    /// Durable after `sync_all`.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Deallocates the space of a range, which reads as zeros afterwards. The file's size stays.
    /// Durable after `sync_all`.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Makes everything written before the call durable, stores to mappings included, with the
    /// metadata needed to read it back. An error is final: see the module documentation.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes at least the bytes of `range` durable, with the stores to them through `mapping`,
    /// which must be a mapping of this file. An error is final, as for `sync_data`.
    fn sync_range(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        let _ = (mapping, range);
        self.sync_data()
    }
    /// Does what `sync_data` does, and makes all metadata durable.
    fn sync_all(&self) -> io::Result<()>;
    /// Maps the first `size` bytes, shared and writable. While the mapping lives, the file must be
    /// at least that long and exclusively locked by its database. `read_at` sees stores
    /// immediately. They reach the disk with `sync_data`, or earlier, in any order.
    fn map(&self, size: u64) -> io::Result<Arc<Mapping>>;
    /// Maps persistent memory directly (DAX with `MAP_SYNC`). A store is durable once its cache
    /// line was written back ([`persistence`]) and a fence has passed; no call of this trait is
    /// needed. Fails with `Unsupported` if the file is not on persistent memory.
    fn map_persistent(&self, size: u64) -> io::Result<Arc<Mapping>> {
        let _ = size;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Maps the first `size` bytes for this process alone: stores change no file. Needs no write
    /// access. Fails with `Unsupported` where that is not implemented.
    fn map_private(&self, size: u64) -> io::Result<Arc<Mapping>> {
        let _ = size;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes the cache lines of a range persistent if the mapping is simulated persistent memory.
    /// Does nothing on systems, where the caller writes lines back itself.
    fn line_written_back(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Drops clean pages of this file from the page cache, so that later reads go to the disk. A
    /// hint.
    fn drop_cache(&self) -> io::Result<()>;
    /// Returns the file descriptor, for queues of the same system; `None` for simulated files.
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Reads exactly `buffer.len()` bytes. Fails with `UnexpectedEof` if the file is shorter.
pub fn read_exact_at(file: &dyn File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = buffer.get_mut(count..).unwrap_or(&mut []);
                offset += crate::util::codec::to_u64(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads up to `buffer.len()` bytes and returns the count, which is smaller only at the end of the
/// file.
pub fn read_up_to(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + crate::util::codec::to_u64(done)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`, and repeats short and interrupted writes.
pub fn write_all_at(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or(&[]);
                offset += crate::util::codec::to_u64(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
