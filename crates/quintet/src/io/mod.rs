//! The operating system behind traits: files, clocks, randomness, background jobs.
//!
//! Problem: the database must run unchanged on the real system, on a simulated disk with faults and
//! crashes, and under a recorder.
//! How: [`Env`], [`Dir`] and [`File`] are the traits. A [`Queue`] runs many reads and writes at
//! once. A [`Job`] is background work. [`os`] implements them on Linux, `sim` in memory, and
//! `recorder` wraps another `Env` and keeps a trace that replays on the simulator.
//!
//! Invariants:
//! - No other module opens files, reads clocks, draws random numbers or starts threads.
//! - Each method says what is durable when it returns. A write is durable after a later `sync_data`
//!   or `sync_all` of that file returned `Ok`. A new name, a rename or a removal is durable after a
//!   later `sync` of its directory returned `Ok`. Nothing else is guaranteed.
//! - A failed sync is final for everything written before it. No caller retries it.
//! - The caller chooses names of one path component. Symbolic links are never followed.
//!
//! Threads: any number of threads may share a trait object, except a [`Queue`], which one thread
//! uses at a time.
//!
//! Start reading at [`File`]; `contract_tests` checks each implementation.

pub mod array;
pub mod buffer;
#[cfg(test)]
mod contract_tests;
pub mod map;
pub mod memory;
pub mod os;
pub mod persistence;
pub mod queue;
#[cfg(feature = "testing")]
pub mod recorder;
#[cfg(feature = "testing")]
pub mod sim;
pub mod write_throttle;

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use array::Array;
pub use buffer::AlignedBuffer;
pub use map::Mapping;
pub use memory::{Region, prefetch, store};
pub use queue::{Completion, DEPTH as QUEUE_DEPTH, Flow, Pending, Queue, Queues, Request};

/// Bytes of a sector: the smallest unit that a disk writes atomically.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of a block: the alignment of direct I/O, and the page size of the page cache.
pub const BLOCK_BYTES: u64 = 4096;

/// The operating system as the database sees it.
pub trait Env: Send + Sync + fmt::Debug {
    /// Opens the directory at `path`. With `create`, creates it and its missing parents; a created
    /// directory is durable in its parent when this returns.
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// Returns the canonical absolute path of an existing directory, with links resolved.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.open_dir(path, false).map(|dir| dir.path().to_owned())
    }
    /// Returns monotonic time. Its zero is arbitrary.
    fn monotonic(&self) -> Duration;
    /// Blocks the calling thread for `time`. A simulated system advances its clock and does not
    /// block.
    fn pause(&self, time: Duration) {
        crate::util::sync::park_timeout(time);
    }
    /// Returns milliseconds since 1970 by the wall clock, which may jump in either direction.
    fn unix_millis(&self) -> u64;
    /// Fills `out` with unpredictable bytes.
    fn random(&self, out: &mut [u8]);
    /// Returns an identifier that changes with each boot of the kernel. While it stays the same, no
    /// page of the page cache was lost.
    fn boot_id(&self) -> [u8; 16];
    /// Returns the memory that this process may use, in bytes: the machine's, or the limit of its
    /// control group if that is smaller.
    fn memory_bytes(&self) -> u64;
    /// Starts a job in the background. Two runs of a job never overlap. See [`Job`].
    fn start(&self, job: Arc<dyn Job>) -> JobHandle;
    /// Calls `task` with 0 to `count - 1`, possibly on several threads, and returns when all calls
    /// have ended. The calling thread runs the first. A simulated system runs them in order.
    fn parallel(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }
    /// Creates a queue with up to `depth` requests in flight.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// Background work. The scheduler calls `run` when the job is woken or its delay has passed. Tests
/// step jobs one by one.
pub trait Job: Send + Sync {
    /// A short name: `log-sync`.
    fn name(&self) -> &'static str;
    /// Whether the job's thread should have a lower priority, because no caller waits for the job
    /// while it keeps up.
    fn is_patient(&self) -> bool {
        false
    }
    /// Does a bounded amount of work and returns when to run again.
    fn run(&self) -> Next;
}

/// When a job wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Immediately: there is more to do.
    Now,
    /// After this time, or earlier if woken.
    After(Duration),
    /// Only when woken.
    WhenWoken,
}

/// Control of one started job. Dropping the handle stops the job.
#[derive(Debug)]
pub struct JobHandle(Box<dyn JobControl>);

/// The scheduler's side of a [`JobHandle`].
pub trait JobControl: Send + Sync + fmt::Debug {
    /// Makes the job due immediately. Cheap; the caller may hold locks.
    fn wake(&self);
    /// Waits for a run in progress, unless the job stops itself, and prevents further runs.
    fn stop(&self);
}

impl JobHandle {
    /// Wraps the control that a scheduler made.
    pub fn new(control: Box<dyn JobControl>) -> Self {
        Self(control)
    }

    /// Makes the job due immediately.
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.0.stop();
    }
}

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
