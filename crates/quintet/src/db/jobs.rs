//! The background jobs of an open database. A scheduler runs them; a test steps them one by one.
//!
//! | job | what | when |
//! |---|---|---|
//! | `log-sync` | makes buffered commits durable | `sync_interval` after the first un-synced one |
//! | `log-prepare` | prepares the log's next pages and segment | when the log asks |
//! | `persist` | a round of [`persist`](super::persist), and removing dropped tables' files | when an engine or the log's length asks |
//! | `expire` | the [`sweep`](super::sweep) | when a value expires |
//!
//! Invariants: jobs hold the core weakly or for one run only, so closing can stop them and wait; a
//! failure is kept for `stats`, and tried again after a pause unless the log has failed for good.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    core::{Core, JobKind},
    sweep::Sweep,
};
use crate::{
    Result,
    io::{Job, Next},
    util::sync::{AtomicBool, Ordering},
};

/// Between tries of what failed: a full disk, most often.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Until an engine that waits for rest is asked again.
const LATER_PAUSE: Duration = Duration::from_secs(1);

/// One job.
struct Task {
    core: Weak<Core>,
    kind: JobKind,
    sweep: Sweep,
    /// Of `log-sync`: the interval has begun.
    waiting: AtomicBool,
}

/// Starts all jobs.
pub(super) fn start(core: &Arc<Core>) {
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
    // What was replayed is not synced again by itself, and may be long.
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
                // What came in meanwhile woke nobody.
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

fn retry(core: &Core, outcome: &Result<()>) -> Next {
    core.note_background(outcome);
    let failed = core.log.failure().is_some() || core.catalog.failure().is_some();
    if outcome.is_ok() || failed { Next::WhenWoken } else { Next::After(RETRY_PAUSE) }
}

impl Task {
    /// Woken by the first un-synced commit: waits for the interval, then syncs, until all is
    /// durable.
    fn log_sync(&self, core: &Core) -> Next {
        if !self.waiting.swap(true, Ordering::Relaxed) {
            return Next::After(core.sync_interval);
        }
        self.waiting.store(false, Ordering::Relaxed);
        if core.log.durable() < core.log.end() && core.log.sync().is_err() {
            // The log has failed for good, and says so to every writer.
            return Next::WhenWoken;
        }
        core.sync_armed.store(false, Ordering::SeqCst);
        // A commit that came in between saw the flag still set and did not wake anyone.
        if core.log.durable() < core.log.end() && !core.sync_armed.swap(true, Ordering::SeqCst) {
            self.waiting.store(true, Ordering::Relaxed);
            return Next::After(core.sync_interval);
        }
        Next::WhenWoken
    }
}
