//! Requests to the background jobs of the log. Many commits request a sync before it runs; only the
//! first one wakes the job.

use crate::{
    db::tables::{host::DatabaseHost, job_handles::JobKind},
    util::sync::{AtomicBool, Ordering},
    wal::Log,
};

/// The requests to sync and to prepare the log that wait for their jobs.
#[derive(Debug, Default)]
pub(crate) struct LogJobs {
    sync_requested: AtomicBool,
    prepare_requested: AtomicBool,
}

impl LogJobs {
    /// Wakes the job that prepares the log, unless it is already woken.
    #[inline]
    pub(crate) fn request_prepare(&self, host: &DatabaseHost) {
        if !self.prepare_requested.swap(true, Ordering::AcqRel) {
            host.jobs.wake(JobKind::LogPrepare);
        }
    }

    /// The job begins: a later request wakes it again.
    pub(crate) fn begin_prepare(&self) {
        self.prepare_requested.store(false, Ordering::Release);
    }

    /// Wakes the job that syncs the log, unless it is already woken.
    #[inline]
    pub(crate) fn request_sync(&self, host: &DatabaseHost) {
        if !self.sync_requested.load(Ordering::SeqCst)
            && !self.sync_requested.swap(true, Ordering::SeqCst)
        {
            host.jobs.wake(JobKind::LogSync);
        }
    }

    /// The job has synced the log. Returns whether it must sync again, for a commit that came
    /// meanwhile.
    pub(crate) fn end_sync(&self, log: &Log) -> bool {
        self.sync_requested.store(false, Ordering::SeqCst);
        // A commit between the sync and the store saw a request and woke no job.
        log.durable() < log.end() && !self.sync_requested.swap(true, Ordering::SeqCst)
    }
}
