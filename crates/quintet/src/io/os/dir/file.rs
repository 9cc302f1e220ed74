//! Files of the real system.

use std::{
    fmt, io,
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{
        Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, fdatasync,
        fstat, fsync, ftruncate,
    },
    io::{Errno, pread, pwrite, retry_on_intr},
};

use super::open_count::OpenCount;
use crate::io::{
    AlignedBuffer, BLOCK_BYTES, File, Mapping, map::Store, persistence::MappedMemory, write_all_at,
};
use crate::util::{
    codec::{round_up, to_u64, to_usize},
    sync::system::{Mutex, lock},
};

/// Bytes of one write of zeros, which replaces a missing feature of the file system.
const ZEROS_BYTES: u64 = 1 << 20;

/// An open file.
pub(crate) struct OsFile {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether the descriptor bypasses the page cache. Cleared for good when the file system
    /// refuses a transfer with the promised alignment (it may need more than a block).
    direct: AtomicBool,
    /// Live mappings made through this handle, which `set_len` must not truncate. The lock makes
    /// the two exclude each other.
    mappings: Mutex<Vec<Weak<Mapping>>>,
    /// The kind of memory of its mappings.
    memory: MappedMemory,
    _count: OpenCount,
}

impl OsFile {
    pub(crate) fn new(fd: OwnedFd, path: PathBuf, direct: bool) -> Self {
        let (direct, mappings) = (AtomicBool::new(direct), Mutex::default());
        let memory = MappedMemory::AsItIs;
        Self { fd, path, direct, mappings, memory, _count: OpenCount::new() }
    }

    pub(crate) fn on(self, memory: MappedMemory) -> Self {
        Self { memory, ..self }
    }

    fn is_emulated(&self) -> bool {
        matches!(self.memory, MappedMemory::Emulated(_)) && !lock(&self.mappings).is_empty()
    }

    fn map_as(&self, size: u64, store: Store) -> io::Result<Arc<Mapping>> {
        let mut mappings = lock(&self.mappings);
        if self.len()? < size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than its mapping would be",
            ));
        }
        // SAFETY: the file is at least `size` long, as was just checked under the lock that
        // `set_len` takes; `set_len` refuses to cut it while the mapping is in `mappings`. By the
        // contract of `File::map` the database's exclusive lock keeps all others from doing so.
        #[expect(unsafe_code, reason = "the one place that maps files; listed in UNSAFE.md")]
        let mapping = Arc::new(unsafe { Mapping::file(self.fd.as_fd(), size, store) }?);
        mappings.retain(|mapping| mapping.strong_count() > 0);
        mappings.push(Arc::downgrade(&mapping));
        Ok(mapping)
    }

    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// Switches to the page cache. Harmless if two threads do it at once.
    fn leave_direct(&self) -> io::Result<()> {
        fcntl_setfl(&self.fd, fcntl_getfl(&self.fd)? - OFlags::DIRECT)?;
        self.direct.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Handles `EINVAL` of a direct transfer. Either the caller broke the alignment (an error), or
    /// the file system refuses the promised alignment (ordinary I/O from now on).
    pub(crate) fn refused(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if is_aligned(bytes, offset) && i64::try_from(offset).is_ok() {
            self.leave_direct()
        } else {
            Err(Errno::INVAL.into())
        }
    }

    /// Extends the file to `size` with written zeros, which allocate space immediately. The last
    /// block already has its space. Holes below the old size stay: callers preallocate before the
    /// first write.
    pub(crate) fn allocate_by_writing(&self, size: u64) -> io::Result<()> {
        let length = self.len()?;
        if length >= size {
            return Ok(());
        }
        let start = round_up(length, BLOCK_BYTES);
        if start < size {
            // Write whole blocks, because the file may be under direct I/O, then truncate to the
            // exact size.
            self.write_zeros(start, round_up(size, BLOCK_BYTES))?;
        }
        Ok(retry_on_intr(|| ftruncate(&self.fd, size))?)
    }

    /// Overwrites a range with zeros, up to the end of the file. Under direct I/O its bounds must
    /// be whole blocks.
    pub(crate) fn clear_by_writing(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_zeros(offset, offset.saturating_add(length).min(self.len()?))
    }

    fn write_zeros(&self, mut start: u64, end: u64) -> io::Result<()> {
        let zeros = AlignedBuffer::zeroed(to_usize(ZEROS_BYTES.min(end.saturating_sub(start))));
        while start < end {
            let count = to_usize(ZEROS_BYTES.min(end - start));
            write_all_at(self, zeros.as_slice().get(..count).unwrap_or(&[]), start)?;
            start += to_u64(count);
        }
        Ok(())
    }
}

impl fmt::Debug for OsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OsFile")
            .field("path", &self.path)
            .field("direct", &self.is_direct())
            .finish_non_exhaustive()
    }
}

impl File for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match retry_on_intr(|| pread(&self.fd, &mut *buffer, offset)) {
            Err(Errno::INVAL) if self.is_direct() => {
                // A continued read at the end of the file: nothing to read, whatever the alignment.
                if !is_aligned(buffer, offset) && offset >= self.len()? {
                    return Ok(0);
                }
                self.refused(buffer, offset)?;
                Ok(retry_on_intr(|| pread(&self.fd, &mut *buffer, offset))?)
            }
            result => Ok(result?),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match retry_on_intr(|| pwrite(&self.fd, bytes, offset)) {
            Err(Errno::INVAL) if self.is_direct() => {
                self.refused(bytes, offset)?;
                Ok(retry_on_intr(|| pwrite(&self.fd, bytes, offset))?)
            }
            result => Ok(result?),
        }
    }

    fn len(&self) -> io::Result<u64> {
        u64::try_from(fstat(&self.fd)?.st_size).map_err(io::Error::other)
    }

    /// Fails with `InvalidInput` if it would truncate a live mapping that was made through this
    /// handle.
    fn set_len(&self, size: u64) -> io::Result<()> {
        let mut mappings = lock(&self.mappings);
        mappings.retain(|mapping| mapping.strong_count() > 0);
        if mappings.iter().filter_map(Weak::upgrade).any(|mapping| mapping.bytes() > size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is mapped beyond its new size",
            ));
        }
        Ok(retry_on_intr(|| ftruncate(&self.fd, size))?)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let length = self.len()?;
        if length >= size {
            return Ok(());
        }
        let more = size - length;
        match retry_on_intr(|| fallocate(&self.fd, FallocateFlags::empty(), length, more)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.allocate_by_writing(size),
            result => Ok(result?),
        }
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| fallocate(&self.fd, flags, offset, length)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.clear_by_writing(offset, length),
            result => Ok(result?),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.is_emulated() {
            // Emulated memory is only the page cache: nothing goes to the disk.
            return Ok(());
        }
        // An interrupted sync has not reported anything about the data, so this is not a retry of a
        // failed sync.
        Ok(retry_on_intr(|| fdatasync(&self.fd))?)
    }

    fn sync_range(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        mapping.sync(range)
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fsync(&self.fd))?)
    }

    /// Fails with `InvalidInput` if the file is shorter than `size`.
    fn map(&self, size: u64) -> io::Result<Arc<Mapping>> {
        match self.memory {
            MappedMemory::Emulated(slowness) => self.map_as(size, Store::Emulated(slowness)),
            MappedMemory::AsItIs => match self.map_persistent(size) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    self.map_as(size, Store::Pages)
                }
                mapped => mapped,
            },
        }
    }

    fn map_persistent(&self, size: u64) -> io::Result<Arc<Mapping>> {
        self.map_as(size, Store::Persistent).map_err(|error| match error.raw_os_error() {
            // The error that means "no DAX" depends on the file system and the kernel version.
            Some(code)
                if [Errno::OPNOTSUPP, Errno::INVAL].map(Errno::raw_os_error).contains(&code) =>
            {
                io::Error::new(io::ErrorKind::Unsupported, error)
            }
            _ => error,
        })
    }

    fn map_private(&self, size: u64) -> io::Result<Arc<Mapping>> {
        self.map_as(size, Store::Private)
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fadvise(&self.fd, 0, None, Advice::DontNeed))?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// Whether a transfer has the alignment that direct I/O needs.
fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    let address = to_u64(bytes.as_ptr().addr());
    (address | to_u64(bytes.len()) | offset).is_multiple_of(BLOCK_BYTES)
}
