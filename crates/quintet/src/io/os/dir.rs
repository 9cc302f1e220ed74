//! Directories and locks of the real system.

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

use super::{
    super::{Dir, DirEntry, File, LockGuard, Open, persistence::Memory},
    file::OsFile,
};

/// Only the owner reads and writes what a database keeps.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const DIR_MODE: Mode = Mode::RWXU;

/// Directories are opened to be read, so that they can be synced and listed.
const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Without `NONBLOCK`, opening a pipe that somebody put in a file's place would wait for its other
/// end; it is taken off again once the file is known to be one.
const FILE_FLAGS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// How often a lock is tried anew on a file that is replaced under our hands. Each round needs
/// another process to replace it at just that moment: whoever does it so often holds it, for all
/// we know.
const LOCK_ROUNDS: usize = 16;

/// An open directory.
pub(super) struct OsDir {
    fd: OwnedFd,
    path: PathBuf,
    /// What mappings of its files are.
    memory: Memory,
}

impl OsDir {
    /// The same, with mappings of this kind in it and below.
    pub(super) fn on(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// Opens `path`, which may run through links; with `create`, makes what is missing of it.
    pub(super) fn open_path(path: &Path, create: bool) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = open_existing(path);
        let Some(name) = path.file_name().filter(|_| create) else {
            return Ok(Self { fd: opened?, path: path.to_owned(), memory: Memory::AsItIs });
        };
        let fd = match opened {
            Ok(fd) => {
                // Whoever made it may have died before its name was durable.
                match open_existing(parent_of(path)) {
                    Ok(parent) => sync_dir(&parent)?,
                    // A parent that may be passed but not read was not made by us.
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
        Ok(Self { fd, path: path.to_owned(), memory: Memory::AsItIs })
    }

    pub(super) fn lock_file(&self, name: &str, exclusive: bool) -> io::Result<OwnedFd> {
        let open = |flags| retry_on_intr(|| openat(&self.fd, name, flags, FILE_MODE));
        let fd = match open(FILE_FLAGS | OFlags::RDWR | OFlags::CREATE) {
            // A reader of a database that it may not write can still exclude writers.
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

    /// Whether `name` still is the file behind `fd`.
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
        // Direct I/O is asked for after the opening: where it is refused, older kernels have made
        // the file all the same, and a second attempt to make it would find it there.
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
        Ok(Arc::new(Self { fd, path: self.path.join(name), memory: self.memory }))
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
                // Not every file system keeps the kind beside the name.
                FileType::Unknown => {
                    match retry_on_intr(|| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        // Removed since the listing.
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
            // The lock counts only while the name leads to it: another opener would find, and lock,
            // the file that took its place.
            if self.names(name, &fd)? {
                return Ok(Box::new(OsLock(fd)));
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// A lock of an open file description: it excludes other processes and other openings alike.
#[derive(Debug)]
struct OsLock(OwnedFd);

impl LockGuard for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing alone would leave the lock with a child that was forked, and not yet become
        // another program, while we held it. Nothing can be done about a failure; closing follows.
        let _ = retry_on_intr(|| flock(&self.0, FlockOperation::Unlock));
    }
}

/// Refuses what is not one plain path component.
fn component(name: &str) -> io::Result<&str> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is not a file name"),
        ));
    }
    Ok(name)
}

/// The directory that holds the last component of `path`.
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
        // "Does not support synchronisation": a file system that keeps directories durable by
        // itself, or not at all. There is nothing more to be had from it.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
