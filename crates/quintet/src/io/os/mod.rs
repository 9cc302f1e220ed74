//! The real system: Linux, through rustix.
//!
//! Problem: callers must not deal with descriptors, interrupted calls or file systems that lack a
//! feature.
//! How: [`OsEnv`] implements [`Env`]. It provides directories, files and locks (`dir`, `file`),
//! background threads (`jobs`) and facts about the machine (`host`).
//!
//! Invariants:
//! - Files below an opened directory are reached relative to its descriptor, one component at a
//!   time, without following links. Moving or replacing a parent cannot redirect a write. The path
//!   given to [`Env::open_dir`] may contain links.
//! - Calls that a signal interrupts are repeated here; callers never see `Interrupted`.
//! - If a file system lacks direct I/O, preallocation or holes, ordinary I/O or written zeros have
//!   the same effect; only the cost differs.
//!
//! Threads: any thread may use everything. No lock is held across a blocking call, except by
//! [`File::set_len`](super::File::set_len) and [`File::map`](super::File::map), which exclude each
//! other.

mod dir;
mod host;
mod jobs;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use super::{
    Dir, Env, Job, JobHandle,
    persistence::MappedMemory,
    queue::{self, QueueKind},
    request::Queue,
};
use crate::util::sync::OnceLock;

/// The zero of [`Env::monotonic`]: one for the process, so that times of two environments can be
/// compared.
static MONOTONIC_ZERO: OnceLock<Instant> = OnceLock::new();

/// The system that this process runs on.
#[derive(Debug)]
pub struct OsEnv {
    boot_id: [u8; 16],
    queue: QueueKind,
    memory: MappedMemory,
}

impl OsEnv {
    /// Returns the system, with the best queue that the kernel permits.
    pub fn new() -> Self {
        Self::with_queue(QueueKind::Auto)
    }

    /// Returns the system, with queues of one kind.
    pub fn with_queue(queue: QueueKind) -> Self {
        Self { boot_id: host::boot_id(), queue, memory: MappedMemory::AsItIs }
    }

    /// Returns this environment with mappings of the given memory.
    #[must_use]
    pub fn on(self, memory: MappedMemory) -> Self {
        Self { memory, ..self }
    }
}

impl Default for OsEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Env for OsEnv {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(dir::OsDir::open_path(path, create)?.on(self.memory)))
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }

    fn monotonic(&self) -> Duration {
        // Read the zero first: on the first call it must not be later than "now".
        let zero = *MONOTONIC_ZERO.get_or_init(Instant::now);
        Instant::now().saturating_duration_since(zero)
    }

    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self, out: &mut [u8]) {
        host::random(out);
    }

    fn boot_id(&self) -> [u8; 16] {
        self.boot_id
    }

    fn memory_bytes(&self) -> u64 {
        host::memory_bytes()
    }

    fn open_files(&self) -> (u64, u64) {
        (dir::open_count::OpenCount::now(), host::files_max())
    }

    /// Starts a thread with the job's name. The job is due immediately. If the system refuses a
    /// thread, each [`JobHandle::wake`] tries again.
    fn start(&self, job: Arc<dyn Job>) -> JobHandle {
        JobHandle::new(Box::new(jobs::JobThread::start(job)))
    }

    fn parallel(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        if count == 0 {
            return;
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
        let next = AtomicUsize::new(1);
        let work = || {
            while let Some(index) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count)
            {
                task(index);
            }
        };
        std::thread::scope(|scope| {
            // If the system refuses threads, this thread runs all tasks.
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let helpers: Vec<_> = (1..threads).filter_map(start).collect();
            task(0);
            work();
            for helper in helpers {
                if let Err(panic) = helper.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        queue::system(self.queue, depth)
    }
}
