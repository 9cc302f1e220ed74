//! The real system: Linux, through rustix.
//!
//! What: [`OsEnv`], which gives directories, files and locks (`dir`, `file`), background threads
//! (`jobs`) and what the machine says about itself (`host`).
//! Why: everything above sees only the traits of [`disk`](super), so nothing else has to know
//! about descriptors, interrupted calls or file systems that lack a feature.
//!
//! Invariants:
//! - Everything below an opened directory is reached relative to its descriptor, one component at
//!   a time, without following links: moving or replacing a parent cannot redirect a write. The
//!   path given to [`Env::open_dir`] itself is the user's choice and may run through links.
//! - Calls that a signal interrupts are taken up again here; callers never see `Interrupted`.
//! - Where a file system lacks direct I/O, preallocation or holes, the same effect is had another
//!   way (ordinary I/O, written zeros); only the cost differs.
//!
//! Thread rules: everything may be used from any thread; nothing here holds a lock across a
//! blocking call, but for [`File::set_len`](super::File::set_len) and
//! [`File::map`](super::File::map), which exclude one another.

mod dir;
mod file;
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
    persistence::Memory,
    queue::{self, Queue, QueueKind},
};
use crate::util::sync::OnceLock;

/// The zero of [`Env::monotonic`]: one for the process, so that times of two environments compare.
static MONOTONIC_ZERO: OnceLock<Instant> = OnceLock::new();

/// The system that this process runs on.
#[derive(Debug)]
pub struct OsEnv {
    boot_id: [u8; 16],
    queue: QueueKind,
    memory: Memory,
}

impl OsEnv {
    /// The system, with the best queue that the kernel permits.
    pub fn new() -> Self {
        Self::with_queue(QueueKind::Auto)
    }

    /// The system, with queues of one kind.
    pub fn with_queue(queue: QueueKind) -> Self {
        Self { boot_id: host::boot_id(), queue, memory: Memory::AsItIs }
    }

    /// The same, with mappings of this kind.
    #[must_use]
    pub fn on(self, memory: Memory) -> Self {
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
        // The zero is taken first: on the very first call it is then not later than "now".
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

    /// Starts a thread of the job's name. The job is due at once. Where the system gives no
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
            // Where the system gives no thread, this one does all.
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
