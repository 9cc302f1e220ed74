//! Background jobs of the real system: one thread each.
//!
//! Invariants:
//! - Only the job's thread calls `run`, so runs never overlap. No run begins after `stop` has
//!   returned (if the job stops itself: after that run).
//! - No wake is lost: a wake during a run makes the job due again after it.
//! - A job that panics is not run again, and stopping it does not hang.
//!
//! Threads: `JobShared::state` is not held while the job runs, so jobs may wake and stop one
//! another. Two jobs that stop each other from within deadlock.

use std::{
    fmt, io,
    sync::{Arc, PoisonError},
    thread::{self, JoinHandle, ThreadId},
    time::Instant,
};

use super::super::{Job, JobControl, NextRun};
use crate::util::sync::system::{Condvar, Mutex, lock};

/// Niceness of a patient job above the process's: it gets a third of the processor time of a normal
/// thread when the processor is contended.
#[cfg(target_os = "linux")]
const PATIENT_NICENESS: i32 = 5;

/// One job with its thread.
pub(super) struct JobThread {
    shared: Arc<JobShared>,
}

struct JobShared {
    name: &'static str,
    state: Mutex<JobState>,
    /// Notified when `woken` is set or `life` leaves `Serving`.
    due: Condvar,
    /// Notified when `life` becomes `Ended`.
    ended: Condvar,
}

struct JobState {
    /// The job, until its thread takes it.
    job: Option<Arc<dyn Job>>,
    thread: Option<JoinHandle<()>>,
    thread_id: Option<ThreadId>,
    /// Whether the thread waits for `due` and needs a notification.
    sleeping: bool,
    woken: bool,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// The job runs when it is due, once it has a thread.
    Serving,
    /// No further run begins.
    Stopping,
    /// The thread has made its last run and dropped the job, or it never started and never will.
    Ended,
}

impl JobThread {
    pub(super) fn start(job: Arc<dyn Job>) -> Self {
        let name = job.name();
        let shared = Arc::new(JobShared {
            name,
            state: Mutex::new(JobState {
                job: Some(job),
                thread: None,
                thread_id: None,
                sleeping: false,
                woken: true,
                life: Life::Serving,
            }),
            due: Condvar::new(),
            ended: Condvar::new(),
        });
        let control = Self { shared };
        // The system may lack threads temporarily: the next wake tries again.
        let _ = control.spawn(&mut lock(&control.shared.state));
        control
    }

    /// Starts the job's thread. The caller holds the state, so that no other thread sees it
    /// half-made.
    fn spawn(&self, state: &mut JobState) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new()
            .name(self.shared.name.to_owned())
            .spawn(move || shared.serve())?;
        state.thread_id = Some(thread.thread().id());
        state.thread = Some(thread);
        Ok(())
    }
}

impl fmt::Debug for JobThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobThread").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl JobControl for JobThread {
    fn wake(&self) {
        let mut state = lock(&self.shared.state);
        if !state.woken {
            state.woken = true;
            if state.sleeping {
                self.shared.due.notify_one();
            }
        }
        if state.thread_id.is_none() && state.life == Life::Serving {
            let _ = self.spawn(&mut state);
        }
    }

    fn stop(&self) {
        let mut state = lock(&self.shared.state);
        if state.life == Life::Serving {
            state.life = Life::Stopping;
            self.shared.due.notify_one();
        }
        if state.thread_id == Some(thread::current().id()) {
            // The job stops itself: this run is the last, and this thread cannot wait for itself.
            return;
        }
        if state.thread_id.is_none() {
            state.life = Life::Ended;
            state.job = None;
        }
        while state.life != Life::Ended {
            state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            // The panic hook has reported a panic of the job.
            let _ = thread.join();
        }
    }
}

impl JobShared {
    fn serve(&self) {
        let finish = Finish(self);
        let job = lock(&self.state).job.take();
        if let Some(job) = job {
            if job.is_patient() {
                give_way();
            }
            while self.wait_until_due() {
                self.plan(job.run());
            }
            // Drop the job before `stop` returns.
            drop(job);
        }
        drop(finish);
    }

    /// Waits for a wake. Returns `false` if the job must end.
    fn wait_until_due(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.life != Life::Serving {
                return false;
            }
            if state.woken {
                state.woken = false;
                return true;
            }
            state.sleeping = true;
            state = self.due.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping = false;
        }
    }

    /// Schedules the next run: immediately, or when the delay has passed.
    fn plan(&self, next: NextRun) {
        let mut state = lock(&self.state);
        let delay = match next {
            NextRun::Now => {
                state.woken = true;
                return;
            }
            NextRun::WhenWoken => return,
            NextRun::After(delay) => delay,
        };
        // A delay that overflows waits for a wake.
        let Some(deadline) = Instant::now().checked_add(delay) else { return };
        while !state.woken && state.life == Life::Serving {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.woken = true;
                break;
            }
            state.sleeping = true;
            state = self.due.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.sleeping = false;
        }
    }
}

/// Lowers the priority of this thread, and of the threads that the system starts for its I/O. When
/// its I/O completes, the thread is woken on the interrupted processor. With equal priority it
/// would take that processor from a writer for milliseconds while another is idle.
fn give_way() {
    // On other systems the call affects the whole process. A policy may refuse it; only time is
    // lost then.
    #[cfg(target_os = "linux")]
    if let Ok(before) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, before + PATIENT_NICENESS);
    }
}

/// Notifies the waiters that the job's thread has ended, also after a panic.
struct Finish<'a>(&'a JobShared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).life = Life::Ended;
        self.0.ended.notify_all();
    }
}
