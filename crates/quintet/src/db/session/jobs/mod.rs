//! The background jobs of an open database. A scheduler runs them; a test steps them one by one.
//!
//! | job | work | when |
//! |---|---|---|
//! | `log-sync` | makes buffered commits durable | `sync_interval` after the first unsynced one |
//! | `log-prepare` | prepares the log's next pages and segment | when the log asks |
//! | `persist` | a round of [`persist`](crate::db::checkpoint), and the removal of dropped tables' files | when an engine or the log's length asks |
//! | `expire` | the [`sweep`](crate::db::session::jobs::sweep) | when a value expires |
//!
//! Invariants:
//! - Jobs hold the core weakly, or for one run only, so that closing can stop them and wait.
//! - A failure is kept for `stats`. The job tries again after a pause, unless the log or the
//!   catalog has failed for good.

pub(crate) mod sweep;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    Result,
    db::{
        core::{Core, JobKind},
        session::jobs::sweep::Sweep,
    },
    io::{Job, Next},
    util::sync::{AtomicBool, Ordering},
};

/// Pause before a failed job runs again. The most frequent failure is a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before an engine that waits for an idle time is asked again.
const LATER_PAUSE: Duration = Duration::from_secs(1);

/// One job.
struct Task {
    core: Weak<Core>,
    kind: JobKind,
    sweep: Sweep,
    /// For `log-sync`: the interval has begun.
    waiting: AtomicBool,
}

/// Starts all jobs.
pub(crate) fn start(core: &Arc<Core>) {
    let kinds = [JobKind::LogSync, JobKind::LogPrepare, JobKind::Persist, JobKind::Expire];
    for kind in kinds {
        let task = Task {
            core: Arc::downgrade(core),
            kind,
            sweep: Sweep::default(),
            waiting: AtomicBool::new(false),
        };
        core.shared.jobs.set(kind, core.env.start(Arc::new(task)));
    }
    if core.log.wants_preparation() {
        core.prepare_armed.store(true, Ordering::Release);
        core.shared.jobs.wake(JobKind::LogPrepare);
    }
    if core.expiries.index().is_some() {
        core.shared.jobs.wake(JobKind::Expire);
    }
    // Replayed records may be long, and no later commit need come to sync them.
    if core.log.durable() < core.log.end() {
        core.sync_armed.store(true, Ordering::SeqCst);
        core.shared.jobs.wake(JobKind::LogSync);
    }
    core.shared.jobs.wake(JobKind::Persist);
}

impl Job for Task {
    fn name(&self) -> &'static str {
        match self.kind {
            JobKind::LogSync => "log-sync",
            JobKind::LogPrepare => "log-prepare",
            JobKind::Persist => "persist",
            JobKind::Expire => "expire",
        }
    }

    fn is_patient(&self) -> bool {
        matches!(self.kind, JobKind::Persist | JobKind::Expire)
    }

    fn run(&self) -> Next {
        let Some(core) = self.core.upgrade().filter(|core| !core.is_closed()) else {
            return Next::WhenWoken;
        };
        match self.kind {
            JobKind::LogSync => self.log_sync(&core),
            JobKind::LogPrepare => {
                core.prepare_armed.store(false, Ordering::Release);
                retry(&core, &core.log.prepare())
            }
            JobKind::Persist => {
                core.bury();
                let outcome = core.persist_due();
                // Requests during the round woke no job.
                let again = outcome.is_ok() && core.is_anything_due();
                match retry(&core, &outcome) {
                    _ if again => Next::Now,
                    Next::WhenWoken if core.wants_persist_later() => Next::After(LATER_PAUSE),
                    next => next,
                }
            }
            JobKind::Expire => self.sweep.run(&core),
        }
    }
}

/// Records the outcome of a job, and returns when it runs again.
fn retry(core: &Core, outcome: &Result<()>) -> Next {
    core.note_background(outcome);
    let failed = core.log.failure().is_some() || core.catalog.failure().is_some();
    if outcome.is_ok() || failed { Next::WhenWoken } else { Next::After(RETRY_PAUSE) }
}

impl Task {
    /// Runs when the first unsynced commit wakes it: waits for the interval, then syncs, until
    /// everything is durable.
    fn log_sync(&self, core: &Core) -> Next {
        if !self.waiting.swap(true, Ordering::Relaxed) {
            return Next::After(core.sync_interval);
        }
        self.waiting.store(false, Ordering::Relaxed);
        if core.log.durable() < core.log.end() && core.log.sync().is_err() {
            // The log has failed for good and reports it to every writer.
            return Next::WhenWoken;
        }
        core.sync_armed.store(false, Ordering::SeqCst);
        // A commit between the sync and the store saw the flag set and woke no job.
        if core.log.durable() < core.log.end() && !core.sync_armed.swap(true, Ordering::SeqCst) {
            self.waiting.store(true, Ordering::Relaxed);
            return Next::After(core.sync_interval);
        }
        Next::WhenWoken
    }
}
