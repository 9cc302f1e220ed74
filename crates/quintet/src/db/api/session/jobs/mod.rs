//! The background jobs of an open database. A scheduler runs them; a test steps them one by one.
//!
//! | job | work | when |
//! |---|---|---|
//! | `log-sync` | makes buffered commits durable | `sync_interval` after the first unsynced one |
//! | `log-prepare` | prepares the log's next pages and segment | when the log asks |
//! | `persist` | a [checkpoint round](crate::db::checkpoint), and the removal of dropped tables' files | when an engine or the log's length asks, or `checkpoint_interval` is over |
//! | `expire` | the [`sweep`] | when a value expires |
//! | `versions` | moves versions for snapshots to files | when they take too much memory |
//! | `memory` | orders entries of memtables | when an engine has queued a task |
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

use sweep::ExpirySweep;

use crate::{
    Result,
    db::{checkpoint::SPACE_ROUND_PAUSE, core::Core, tables::job_handles::JobKind},
    io::{Job, NextRun},
    util::{
        mutant::mutant,
        sync::{AtomicBool, Ordering},
    },
};

/// Pause before a failed job runs again. The most frequent failure is a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause before an engine is asked again whether its work for an idle time is due.
const IDLE_WORK_PAUSE: Duration = Duration::from_secs(1);

/// One job.
struct DatabaseJob {
    core: Weak<Core>,
    kind: JobKind,
    sweep: ExpirySweep,
    /// For `log-sync`: the interval has begun.
    interval_begun: AtomicBool,
}

/// Starts all jobs.
pub(super) fn start(core: &Arc<Core>) {
    let kinds = [
        JobKind::LogSync,
        JobKind::LogPrepare,
        JobKind::Persist,
        JobKind::Expire,
        JobKind::Memory,
        JobKind::Versions,
    ];
    for kind in kinds {
        let job = DatabaseJob {
            core: Arc::downgrade(core),
            kind,
            sweep: ExpirySweep::default(),
            interval_begun: AtomicBool::new(false),
        };
        core.host.jobs.set(kind, core.env.start(Arc::new(job)));
    }
    if core.log.wants_preparation() {
        core.log_jobs.request_prepare(&core.host);
    }
    if core.expiry.table().is_some() {
        core.host.jobs.wake(JobKind::Expire);
    }
    // Replayed records may not be durable, and perhaps no later commit requests a sync.
    if core.log.durable() < core.log.end() {
        core.log_jobs.request_sync(&core.host);
    }
    core.host.jobs.wake(JobKind::Persist);
}

impl Job for DatabaseJob {
    fn name(&self) -> &'static str {
        match self.kind {
            JobKind::LogSync => "log-sync",
            JobKind::LogPrepare => "log-prepare",
            JobKind::Persist => "persist",
            JobKind::Expire => "expire",
            JobKind::Memory => "memory",
            JobKind::Versions => "versions",
        }
    }

    fn is_patient(&self) -> bool {
        // Not `Memory`: a range waits for a memtable that it orders. Not `Versions`: a writer waits
        // for the memory that it frees.
        matches!(self.kind, JobKind::Persist | JobKind::Expire)
    }

    fn run(&self) -> NextRun {
        let Some(core) = self.core.upgrade().filter(|core| !core.tables.is_closed()) else {
            return NextRun::WhenWoken;
        };
        match self.kind {
            JobKind::LogSync => self.sync_log(&core),
            JobKind::LogPrepare => {
                core.log_jobs.begin_prepare();
                let prepared = core.log.prepare();
                if prepared.is_ok() {
                    core.checkpoints.adjust_reserve();
                }
                finish(&core, &prepared)
            }
            JobKind::Persist => persist(&core),
            JobKind::Expire => self.sweep.run(&core),
            JobKind::Memory if core.host.run_task() => NextRun::Now,
            JobKind::Memory => NextRun::WhenWoken,
            JobKind::Versions => finish(&core, &core.versions.keep_to_limits()),
        }
    }
}

/// Removes the files of dropped tables and runs the checkpoint work that is due.
fn persist(core: &Core) -> NextRun {
    core.remove_dropped();
    let outcome = core.checkpoints.run_due_work(&core.tables);
    // Requests during the round woke no job.
    let again = outcome.is_ok() && core.checkpoints.is_round_needed(&core.tables);
    let next = finish(core, &outcome);
    if again {
        return NextRun::Now;
    }
    if next != NextRun::WhenWoken {
        return next;
    }
    if core.checkpoints.is_any_space_short(&core.tables) {
        return NextRun::After(SPACE_ROUND_PAUSE);
    }
    let idle_work = core.tables.has_idle_work().then_some(IDLE_WORK_PAUSE);
    // Not after a failure: the round that is due then would follow at once.
    let periodic = core.checkpoints.next_periodic().filter(|_| outcome.is_ok());
    idle_work.into_iter().chain(periodic).min().map_or(NextRun::WhenWoken, NextRun::After)
}

/// Records the outcome of a job, and returns when it runs again.
fn finish(core: &Core, outcome: &Result<()>) -> NextRun {
    core.record_background(outcome);
    let failed = core.log.failure().is_some() || core.tables.catalog.failure().is_some();
    if outcome.is_ok() || failed { NextRun::WhenWoken } else { NextRun::After(RETRY_PAUSE) }
}

impl DatabaseJob {
    /// Runs when the first unsynced commit wakes it: waits for the interval, then syncs, until
    /// everything is durable.
    fn sync_log(&self, core: &Core) -> NextRun {
        if !self.interval_begun.swap(true, Ordering::Relaxed) {
            return NextRun::After(core.sync_interval);
        }
        self.interval_begun.store(false, Ordering::Relaxed);
        mutant!(TablesNotedBeforeSync => drop(core.checkpoints.note_durable(&core.tables)));
        if core.log.durable() < core.log.end() && core.log.sync().is_err() {
            // The log has failed for good and reports it to every writer.
            return NextRun::WhenWoken;
        }
        let shortened = core.checkpoints.note_durable(&core.tables);
        if shortened.is_err() {
            core.record_background(&shortened);
        }
        if core.log_jobs.end_sync(&core.log) {
            self.interval_begun.store(true, Ordering::Relaxed);
            return NextRun::After(core.sync_interval);
        }
        NextRun::WhenWoken
    }
}
