//! The state that the workers of a phase share.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::task::Task;
use crate::{expected_state::ExpectedState, failure::Failure, store::Store};

/// State that all workers of a phase share.
pub(super) struct SharedState<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) task: &'a Task<'a>,
    pub(super) truth: Option<&'a ExpectedState>,
    pub(super) ledger: InsertTracker,
    /// Whether a worker has failed; the other workers then stop.
    pub(super) stop: AtomicBool,
    pub(super) failure: Mutex<Option<Failure>>,
    /// Bytes written by the background writer of `readwhilewriting`.
    pub(super) background_bytes: AtomicU64,
}

impl<'a> SharedState<'a> {
    pub(super) fn new(
        store: &'a dyn Store,
        task: &'a Task<'a>,
        truth: Option<&'a ExpectedState>,
    ) -> Self {
        Self {
            store,
            task,
            truth,
            ledger: InsertTracker::new(task.amount.records),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
            background_bytes: AtomicU64::new(0),
        }
    }

    /// Records a failure. The first one counts.
    pub(super) fn fail(&self, failure: Failure) {
        lock(&self.failure).get_or_insert(failure);
        // After the failure is recorded: a worker that stops because of `stop` records a failure
        // too.
        self.stop.store(true, Ordering::Release);
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tracks inserted records: all records below [`InsertTracker::known`] are in the store. Workers
/// take record numbers in sequence. A record counts as known once it and all records before it are
/// in the store, so that no worker reads a record that is not there yet.
#[derive(Debug)]
pub(super) struct InsertTracker {
    next: AtomicU64,
    known: AtomicU64,
    /// Inserted records above `known`.
    early: Mutex<BTreeSet<u64>>,
}

impl InsertTracker {
    pub(super) fn new(records: u64) -> Self {
        Self {
            next: AtomicU64::new(records),
            known: AtomicU64::new(records),
            early: Mutex::new(BTreeSet::new()),
        }
    }

    /// Returns the number of records that are in the store.
    #[inline]
    pub(super) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn finish(&self, number: u64) {
        let mut early = lock(&self.early);
        let mut known = self.known.load(Ordering::Relaxed);
        if number != known {
            early.insert(number);
            return;
        }
        known += 1;
        while early.remove(&known) {
            known += 1;
        }
        self.known.store(known, Ordering::Release);
    }
}
