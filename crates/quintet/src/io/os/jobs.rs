//! Background jobs of the real system: one thread each.
//!
//! Invariants:
//! - `run` is called by the job's thread alone, so never twice at once, and never after `stop`
//!   returned (or, where the job stops itself, after that run).
//! - A wake is never lost: one that comes during a run makes the job due again after it.
//! - A job that panics is not run again; stopping it does not hang.
//!
//! Thread rules: `Shared::state` is never held while the job runs, so jobs may wake and stop one
//! another; two jobs that each stop the other from within wait for each other for ever.

use std::{
    fmt, io,
    sync::{Arc, PoisonError},
    thread::{self, JoinHandle, ThreadId},
    time::Instant,
};

use super::super::{Job, JobControl, Next};
use crate::util::sync::system::{Condvar, Mutex, lock};

/// What a patient job's niceness is above the process's: a third of the processor time of another
/// thread where there is too little for both.
#[cfg(target_os = "linux")]
const PATIENT_NICENESS: i32 = 5;

/// One job with its thread.
pub(super) struct JobThread {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    state: Mutex<State>,
    /// Told when `woken` is set or `life` leaves `Serving`.
    due: Condvar,
    /// Told when `life` becomes `Ended`.
    ended: Condvar,
}

struct State {
    /// The job until its thread has taken it.
    job: Option<Arc<dyn Job>>,
    thread: Option<JoinHandle<()>>,
    thread_id: Option<ThreadId>,
    /// Whether the thread waits for `due`; else nobody needs to be told.
    sleeping: bool,
    woken: bool,
    life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// The job runs when it is due, as soon as there is a thread.
    Serving,
    /// No run begins any more.
    Stopping,
    /// The thread is past its last run and has let go of the job; or it never began and never
    /// will.
    Ended,
}

impl JobThread {
    pub(super) fn start(job: Arc<dyn Job>) -> Self {
        let name = job.name();
        let shared = Arc::new(Shared {
            name,
            state: Mutex::new(State {
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
        // The system may be short of threads for a moment: the next wake tries again.
        let _ = control.spawn(&mut lock(&control.shared.state));
        control
    }

    /// Gives the job its thread. The caller holds the state, so nobody sees half of it.
    fn spawn(&self, state: &mut State) -> io::Result<()> {
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
            // The job stops itself: this run is the last, and nobody can wait for it here.
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
            // A panic of the job has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
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
            // What the job owns is gone when `stop` returns.
            drop(job);
        }
        drop(finish);
    }

    /// Waits for a wake; false when the job is to end.
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

    /// Does what the job asked for after a run: marks it woken, at once or when its delay is over.
    fn plan(&self, next: Next) {
        let mut state = lock(&self.state);
        let delay = match next {
            Next::Now => {
                state.woken = true;
                return;
            }
            Next::WhenWoken => return,
            Next::After(delay) => delay,
        };
        // A delay beyond the end of time waits for a wake.
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

/// Lowers the priority of this thread, and of those that the system starts for its reads and
/// writes. When what it waits for is done it is woken on the processor that was interrupted, and
/// with the same priority it would take that from a writer for milliseconds while another
/// processor is idle.
fn give_way() {
    // Elsewhere the call is about the whole process. It is refused where a policy forbids it, and
    // then nothing but time is lost.
    #[cfg(target_os = "linux")]
    if let Ok(before) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, before + PATIENT_NICENESS);
    }
}

/// Tells those who wait that the job's thread is done, however it came to that.
struct Finish<'a>(&'a Shared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).life = Life::Ended;
        self.0.ended.notify_all();
    }
}
