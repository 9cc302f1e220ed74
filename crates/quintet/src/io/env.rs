//! The trait [`Env`]: clocks, randomness, background jobs, and the way to directories and queues.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{file::Dir, request::Queue};

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
    /// Returns the number of files that this process has open through an `Env`, and the number that
    /// it may open. A simulated system has no limit.
    fn open_files(&self) -> (u64, u64) {
        (0, u64::MAX)
    }
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
    fn run(&self) -> NextRun;
}

/// When a job wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
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
