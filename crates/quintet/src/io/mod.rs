//! The only road to the operating system: files, clocks, randomness and background jobs.
//!
//! What: three small traits, [`Env`], [`Dir`] and [`File`], a [`Queue`] for many reads and writes
//! at once, and [`Job`]s for everything that runs in the background.
//! Why: everything above runs unchanged on the real system ([`os`]), on a simulated disk whose
//! faults and crashes a test chooses (`sim`), and under a recorder whose trace replays on the
//! simulator (`record`).
//!
//! Invariants:
//! - No other module opens files, reads clocks, draws randomness or starts threads.
//! - What is durable when a call returns is said at each method, and nothing else is promised: a
//!   write is durable after a later `sync_data` or `sync_all` of that file returned `Ok`; a new
//!   name, a rename or a removal is durable after a later `sync` of its directory returned `Ok`.
//! - A failed sync is final for what was written before it: nobody retries it.
//! - Names are single path components chosen by the caller; symbolic links are never followed.
//!
//! Thread rules: every trait object may be used from any number of threads.

pub mod array;
pub mod buffer;
pub mod map;
pub mod memory;
pub mod os;
pub mod persistence;
pub mod queue;
#[cfg(feature = "testing")]
pub mod recorder;
#[cfg(feature = "testing")]
pub mod sim;
#[cfg(test)]
mod traits;
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

/// The smallest unit that a disk writes whole; direct I/O is aligned to [`BLOCK_BYTES`].
pub const SECTOR_BYTES: u64 = 512;
/// The unit of direct I/O and of the page cache.
pub const BLOCK_BYTES: u64 = 4096;

/// The system that a database runs on.
pub trait Env: Send + Sync + fmt::Debug {
    /// Opens the directory at `path`; with `create`, makes it (and its parents) where it is
    /// missing. A created directory is durable in its parent when this returns.
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// The one absolute path of an existing directory, whatever the links to it.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.open_dir(path, false).map(|dir| dir.path().to_owned())
    }
    /// Time that never goes back; its zero is arbitrary.
    fn monotonic(&self) -> Duration;
    /// Lets this much time pass. On a simulated system its clock goes on, and nobody waits.
    fn pause(&self, time: Duration) {
        crate::util::sync::park_timeout(time);
    }
    /// Milliseconds since 1970 by the wall clock, which may jump either way.
    fn unix_millis(&self) -> u64;
    /// Fills `out` with unpredictable bytes.
    fn random(&self, out: &mut [u8]);
    /// Changes with every boot of the kernel: while it stays the same, the page cache is whole.
    fn boot_id(&self) -> [u8; 16];
    /// Memory that this process may use, in bytes: the machine's, or its control group's if
    /// smaller.
    fn memory_bytes(&self) -> u64;
    /// Runs `job` in the background whenever it is due, never twice at once. See [`Job`].
    fn start(&self, job: Arc<dyn Job>) -> JobHandle;
    /// Calls `task` with 0 to `count - 1`, on as many threads as pay, and returns when all have
    /// ended. The first is done by the calling thread. A simulated system does them one after the
    /// other.
    fn parallel(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }
    /// A queue on which up to `depth` requests are under way at once.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// Background work. The scheduler calls `run` when the job is woken or its delay is over; a test
/// steps jobs one by one.
pub trait Job: Send + Sync {
    /// A short name: `log-sync`.
    fn name(&self) -> &'static str;
    /// Whether it should let others have the processor first: nobody waits for it while it keeps
    /// up.
    fn is_patient(&self) -> bool {
        false
    }
    /// Does a bounded piece of work and says when to run again.
    fn run(&self) -> Next;
}

/// When a job wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: there is more to do.
    Now,
    /// After this time, or when woken.
    After(Duration),
    /// When woken.
    WhenWoken,
}

/// Control of one started job. Dropping the handle stops the job.
#[derive(Debug)]
pub struct JobHandle(Box<dyn JobControl>);

/// What a scheduler offers for each job.
pub trait JobControl: Send + Sync + fmt::Debug {
    /// Makes the job due at once. Cheap; may be called with locks held.
    fn wake(&self);
    /// Lets a running call end and prevents any other.
    fn stop(&self);
}

impl JobHandle {
    /// Wraps a scheduler's control.
    pub fn new(control: Box<dyn JobControl>) -> Self {
        Self(control)
    }

    /// Makes the job due at once.
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
    /// Make the file; fails with `AlreadyExists` where there is one.
    pub create_new: bool,
    /// Go round the page cache: offsets, lengths and buffers are multiples of [`BLOCK_BYTES`]
    /// ([`AlignedBuffer`]). Where the file system has no direct I/O, ordinary I/O is used.
    pub direct: bool,
}

impl Open {
    /// For reading.
    pub const READ: Self = Self { write: false, create_new: false, direct: false };
    /// For reading and writing a file that exists.
    pub const WRITE: Self = Self { write: true, create_new: false, direct: false };
    /// For reading and writing a file that must not exist yet.
    pub const CREATE: Self = Self { write: true, create_new: true, direct: false };

    /// The same, with direct I/O.
    #[must_use]
    pub const fn direct(self) -> Self {
        Self { direct: true, ..self }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name, one path component.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A directory. Files are made with mode 0600, directories with 0700.
pub trait Dir: Send + Sync + fmt::Debug {
    /// The path, for messages.
    fn path(&self) -> &Path;
    /// Opens or makes a file. A new file's name is durable after [`Dir::sync`].
    fn open(&self, name: &str, how: Open) -> io::Result<Arc<dyn File>>;
    /// Opens a directory below this one; with `create`, makes it where it is missing (durable
    /// after [`Dir::sync`] of this one).
    fn open_dir(&self, name: &str, create: bool) -> io::Result<Arc<dyn Dir>>;
    /// Everything in this directory, sorted by name. Names that are not UTF-8 are left out.
    fn list(&self) -> io::Result<Vec<DirEntry>>;
    /// Gives `from` the name `to`, replacing a file there, at once. Durable after [`Dir::sync`];
    /// until then either name may be found after a crash, never neither.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Durable after [`Dir::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Removes an empty directory. Durable after [`Dir::sync`].
    fn remove_dir(&self, name: &str) -> io::Result<()>;
    /// Makes all earlier creations, renames and removals in this directory durable.
    fn sync(&self) -> io::Result<()>;
    /// Locks the file `name` (made if missing) until the guard is dropped: exclusively, or shared
    /// with other shared holders. `WouldBlock` where somebody else holds it. The lock goes
    /// with the process.
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
    /// Reads at `offset`; returns how many bytes came, 0 at the end of the file. May be short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`, growing the file; returns how many bytes went. May be short. Not
    /// durable.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// The file's size.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or grows the file; what is grown reads as zeros. Durable after `sync_all`.
    fn set_len(&self, size: u64) -> io::Result<()>;
    /// Grows the file to at least `size` bytes and reserves disk space for what it grows by, so
    /// that later writes there cannot meet a full disk. Holes of the rest stay holes. Durable after
    /// `sync_all`.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Gives the space of a range back; it reads as zeros. The size stays. Durable after
    /// `sync_all`.
    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Makes everything written before the call durable, mapped stores included, with as much
    /// metadata as reading it back needs. An error is final: see the module head.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes at least the bytes `range` of the file durable, with what was stored there through
    /// `mapping`, one of its own; the rest need not be. An error is final, as `sync_data`'s.
    fn sync_range(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        let _ = (mapping, range);
        self.sync_data()
    }
    /// As `sync_data`, with all metadata.
    fn sync_all(&self) -> io::Result<()>;
    /// Maps the first `size` bytes, shared and writable. The file must be that long, stay that
    /// long and be exclusively locked by its database for as long as the mapping lives. Stores
    /// reach `read_at` at once and the disk with `sync_data`, or at any moment before it, in
    /// any order.
    fn map(&self, size: u64) -> io::Result<Arc<Mapping>>;
    /// As `map`, of persistent memory itself (DAX with `MAP_SYNC`): a store is durable once its
    /// cache line was written back ([`persistence`]) and a fence passed, without any call of this
    /// trait. `Unsupported` where the file is not on persistent memory.
    fn map_persistent(&self, size: u64) -> io::Result<Arc<Mapping>> {
        let _ = size;
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Drops clean cached pages, so that later reads come from the disk. A hint.
    fn drop_cache(&self) -> io::Result<()>;
    /// The descriptor behind this file, for queues of the same system; `None` on simulated files.
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// Reads exactly `buffer.len()` bytes; `UnexpectedEof` where the file is shorter.
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

/// Reads up to `buffer.len()` bytes, fewer only at the end of the file.
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

/// Writes all of `bytes`.
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
