//! The handles of the background jobs, with which any thread wakes them.
//!
//! Locks: a slot is never locked across a call that may take another lock.

use crate::{
    io::JobHandle,
    util::sync::{Mutex, lock},
};

/// A background job of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    LogSync,
    LogPrepare,
    Persist,
    Expire,
    Memory,
    Versions,
}

/// The handles of the started jobs.
#[derive(Debug, Default)]
pub(crate) struct JobHandles {
    slots: [Mutex<Option<JobHandle>>; 6],
}

impl JobHandles {
    fn slot(&self, kind: JobKind) -> &Mutex<Option<JobHandle>> {
        let [log_sync, log_prepare, persist, expire, memory, versions] = &self.slots;
        match kind {
            JobKind::LogSync => log_sync,
            JobKind::LogPrepare => log_prepare,
            JobKind::Persist => persist,
            JobKind::Expire => expire,
            JobKind::Memory => memory,
            JobKind::Versions => versions,
        }
    }

    pub(crate) fn set(&self, kind: JobKind, handle: JobHandle) {
        *lock(self.slot(kind)) = Some(handle);
    }

    pub(crate) fn wake(&self, kind: JobKind) {
        if let Some(handle) = &*lock(self.slot(kind)) {
            handle.wake();
        }
    }

    /// Stops all jobs and waits for those that run.
    pub(crate) fn stop(&self) {
        for slot in &self.slots {
            // Dropped without the slot's lock: the job that the drop waits for may be waking
            // another job.
            let handle = lock(slot).take();
            drop(handle);
        }
    }
}
