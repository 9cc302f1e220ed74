//! Directories and locks of the real system.

pub(super) mod file;
mod lock_holder;
pub(super) mod open_count;

use std::{
    ffi::OsStr,
    fmt, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{
        self, AtFlags, FileType, FlockOperation, Mode, OFlags, fcntl_setfl, flock, fstat, fsync,
        mkdirat, openat, renameat, statat, unlinkat,
    },
    io::{Errno, retry_on_intr},
};

use file::OsFile;
use lock_holder::{LockedFile, holder_of};
use open_count::OpenCount;

use crate::{
    io::{Dir, DirEntry, File, LockGuard, Open, persistence::MappedMemory, process::OwnerProcess},
    util::error::LockHolder,
};

/// Only the owner may read and write a database.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIR_MODE: Mode = Mode::RWXU;

/// Directories are opened for reading, so that they can be synced and listed.
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Without `NONBLOCK`, opening a pipe in a file's place would wait for its other end. The flag is
/// cleared once the file is known to be a regular file.
const FILE_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Number of attempts to lock a file that other processes replace concurrently. Each retry needs a
/// replacement at exactly that moment, so after these attempts the lock counts as held.
const LOCK_ROUNDS: usize = 16;

/// An open directory.
pub(super) struct OsDir {
    fd: OwnedFd,
    path: PathBuf,
    /// The kind of memory of its files' mappings.
    memory: MappedMemory,
    _count: OpenCount,
}

impl OsDir {
    fn new(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd, path, memory: MappedMemory::AsItIs, _count: OpenCount::new() }
    }

    /// Returns this directory with mappings of the given memory, here and in subdirectories.
    pub(super) fn on(self, memory: MappedMemory) -> Self {
        Self { memory, ..self }
    }

    /// Opens `path`, which may contain links. With `create`, creates its missing components.
    pub(super) fn open_path(path: &Path, create: bool) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = open_existing(path);
        let Some(name) = path.file_name().filter(|_| create) else {
            return Ok(Self::new(opened?, path.to_owned()));
        };
        let fd = match opened {
            Ok(fd) => {
                // Its creator may have died before the name was durable.
                match open_existing(parent_of(path)) {
                    Ok(parent) => sync_dir(&parent)?,
                    // A parent that this process may traverse but not read was not created by it.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                    Err(error) => return Err(error),
                }
                fd
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = Self::open_path(parent_of(path), true)?;
                make_dir(&parent.fd, name)?;
                sync_dir(&parent.fd)?;
                open_existing(path)?
            }
            Err(error) => return Err(error),
        };
        Ok(Self::new(fd, path.to_owned()))
    }

    pub(super) fn lock_file(&self, name: &str, exclusive: bool) -> io::Result<OwnedFd> {
        let open = |flags| retry_on_intr(|| openat(&self.fd, name, flags, FILE_MODE));
        let fd = match open(FILE_FLAGS | OFlags::RDWR | OFlags::CREATE) {
            // A process that may only read the database can still exclude writers.
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if !exclusive => {
                open(FILE_FLAGS | OFlags::RDONLY)
            }
            result => result,
        }?;
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        retry_on_intr(|| flock(&fd, operation))?;
        Ok(fd)
    }

    /// Whether `name` still refers to the file of `fd`.
    pub(super) fn names(&self, name: &str, fd: &OwnedFd) -> io::Result<bool> {
        let held = fstat(fd)?;
        match retry_on_intr(|| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Debug for OsDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OsDir").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Dir for OsDir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>> {
        let name = component(name)?;
        let access = if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        let create = if how.create_new { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
        let fd = retry_on_intr(|| openat(&self.fd, name, FILE_FLAGS | access | create, FILE_MODE))?;
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
        // Direct I/O is set after the open. If the open itself asked for it, older kernels would
        // create the file and then fail, and a second attempt would find it.
        let direct = how.direct
            && match fcntl_setfl(&fd, OFlags::DIRECT) {
                Ok(()) => true,
                Err(Errno::INVAL) => false,
                Err(error) => return Err(error.into()),
            };
        if !direct {
            fcntl_setfl(&fd, OFlags::empty())?;
        }
        Ok(Arc::new(OsFile::new(fd, self.path.join(name), direct).on(self.memory)))
    }

    fn open_dir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>> {
        let name = component(name)?;
        if create {
            make_dir(&self.fd, OsStr::new(name))?;
        }
        let fd =
            retry_on_intr(|| openat(&self.fd, name, DIR_FLAGS | OFlags::NOFOLLOW, Mode::empty()))?;
        Ok(Arc::new(Self::new(fd, self.path.join(name)).on(self.memory)))
    }

    fn list(&self) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in retry_on_intr(|| fs::Dir::read_from(&self.fd))? {
            let entry = entry?;
            let name = match entry.file_name().to_str() {
                Ok(name) if name != "." && name != ".." => name,
                _ => continue,
            };
            let kind = match entry.file_type() {
                // Not every file system stores the file type in the directory.
                FileType::Unknown => {
                    match retry_on_intr(|| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        // The file was removed after the listing.
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                kind => kind,
            };
            entries.push(DirEntry { name: name.to_owned(), is_dir: kind == FileType::Directory });
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (component(from)?, component(to)?);
        Ok(retry_on_intr(|| renameat(&self.fd, from, &self.fd, to))?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = component(name)?;
        Ok(retry_on_intr(|| unlinkat(&self.fd, name, AtFlags::empty()))?)
    }

    fn remove_dir(&self, name: &str) -> io::Result<()> {
        let name = component(name)?;
        Ok(retry_on_intr(|| unlinkat(&self.fd, name, AtFlags::REMOVEDIR))?)
    }

    fn sync(&self) -> io::Result<()> {
        sync_dir(&self.fd)
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn LockGuard>> {
        let name = component(name)?;
        for _ in 0..LOCK_ROUNDS {
            let fd = self.lock_file(name, exclusive)?;
            // The lock is valid only while the name refers to the file: another process would open,
            // and lock, a file that replaced it.
            if self.names(name, &fd)? {
                return Ok(Box::new(OsLock { fd, owner: OwnerProcess::this_process() }));
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn lock_holder(&self, name: &str) -> LockHolder {
        let found = retry_on_intr(|| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW));
        found.map_or(LockHolder::Unknown, |stat| {
            let (major, minor) = (fs::major(stat.st_dev), fs::minor(stat.st_dev));
            holder_of(LockedFile { major, minor, inode: stat.st_ino })
        })
    }
}

/// A lock of an open file description. It excludes other processes and other opens alike.
#[derive(Debug)]
struct OsLock {
    fd: OwnedFd,
    owner: OwnerProcess,
}

impl LockGuard for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent; unlocking there would release it.
        if self.owner.is_forked() {
            return;
        }
        // Unlock explicitly: a forked child has the descriptor too and would keep the lock after a
        // close. A failure is ignored; the close follows.
        let _ = retry_on_intr(|| flock(&self.fd, FlockOperation::Unlock));
    }
}

/// Fails unless `name` is one plain path component.
fn component(name: &str) -> io::Result<&str> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not a file name"),
        ));
    }
    Ok(name)
}

/// Returns the directory that contains the last component of `path`.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn open_existing(path: &Path) -> io::Result<OwnedFd> {
    Ok(retry_on_intr(|| fs::open(path, DIR_FLAGS, Mode::empty()))?)
}

fn make_dir(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match retry_on_intr(|| mkdirat(parent, name, DIR_MODE)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn sync_dir(fd: &OwnedFd) -> io::Result<()> {
    match retry_on_intr(|| fsync(fd)) {
        // The file system does not support a sync of directories. It makes them durable by itself
        // or not at all; nothing more can be done.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
