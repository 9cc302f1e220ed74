//! Group commit: many writers share one sync.
//!
//! Why: a sync costs as much as hundreds of commits. Waking all waiters through one condition
//! variable costs as much again as the sync.
//!
//! How: a writer that needs the log durable past an LSN joins the group. One member leads: it syncs
//! for all and wakes them. The others park, each on its own word.
//!
//! When a group starts its sync (the cohort rule):
//! 1. A writer that meets no other leads at once.
//! 2. Otherwise the members of the last sync are about to return, and the group waits for them. The
//!    writer whose arrival completes the group leads.
//! 3. If no writer arrives for half a sync's time, the longest waiter (the *gatherer*) leads with
//!    those that have arrived.
//!
//! So a single writer never waits, and many writers share each sync almost completely, with one
//! park and one wake a commit.
//!
//! Invariants:
//! - There is at most one leader.
//! - While there are waiters, there is a leader or a gatherer.
//! - A parked waiter is woken with an outcome that covers it, or to lead or gather.
//!
//! Threads: any. The state's lock is held for list operations only, never across a sync or a
//! wake. Source: Aether (VLDB 2010) and ELEDA; the cohort rule is ours.

use std::{mem, time::Duration};

use crate::util::{
    codec::Lsn,
    sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, Thread, lock, park_timeout, thread},
};

/// States of a [`ParkedWriter`].
const WAITING: u32 = 0;
/// A sync that covers the writer has ended, with or without success.
const DONE: u32 = 1;
const LEAD: u32 = 2;
const GATHER: u32 = 3;

/// Longest pause in arrivals that a gatherer waits for, even if syncs take longer.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// A parked writer. Its state is the word that it parks on.
#[derive(Debug)]
struct ParkedWriter {
    state: AtomicU32,
    thread: Thread,
    /// Writers that this one wakes in turn.
    followers: Mutex<Vec<Arc<ParkedWriter>>>,
}

impl ParkedWriter {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU32::new(WAITING),
            thread: thread::current(),
            followers: Mutex::new(Vec::new()),
        })
    }

    fn set(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }
}

/// Sets all of `writers` to [`DONE`] and wakes them. With many writers, waking is most of a
/// commit's cost, so they share it: each of the first eight wakes an equal share of the others.
fn wake(writers: Vec<Arc<ParkedWriter>>) {
    /// Writers that the caller itself wakes.
    const HEADS: usize = 8;
    let mut writers = writers.into_iter();
    let heads: Vec<Arc<ParkedWriter>> = writers.by_ref().take(HEADS).collect();
    let share = writers.len().div_ceil(HEADS);
    for head in heads {
        lock(&head.followers).extend(writers.by_ref().take(share));
        head.set(DONE);
    }
}

/// A writer that waits until the log is durable to `end`.
#[derive(Debug)]
struct CommitWaiter {
    end: Lsn,
    writer: Arc<ParkedWriter>,
}

#[derive(Debug, Default)]
struct GroupState {
    /// A writer leads. Then none gathers.
    has_leader: bool,
    /// The gatherer: one of the waiters, in state [`GATHER`].
    gatherer: Option<Arc<ParkedWriter>>,
    waiters: Vec<CommitWaiter>,
    /// Number of writers of a complete group, the leader included.
    cohort: usize,
    /// Duration of the last sync.
    sync_time: Duration,
}

impl GroupState {
    /// Makes the caller the leader. A gatherer becomes a plain waiter.
    fn become_leader(&mut self) {
        self.has_leader = true;
        if let Some(writer) = self.gatherer.take() {
            // Fails only if the gatherer itself becomes the leader.
            let _ =
                writer.state.compare_exchange(GATHER, WAITING, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn appoint_gatherer(&mut self, writer: &Arc<ParkedWriter>) {
        writer.state.store(GATHER, Ordering::Release);
        self.gatherer = Some(Arc::clone(writer));
    }
}

/// Group commit of one log.
#[derive(Debug)]
pub(super) struct GroupCommit {
    state: Mutex<GroupState>,
    durable: AtomicU64,
}

/// What a leader syncs: the log, or a model's device.
pub(super) trait SyncTarget {
    /// Makes the log durable at least to `end`. Returns the new durable end.
    fn sync_to(&self, end: Lsn) -> crate::Result<Lsn>;
    /// Fails if the log has failed. Then no writer may wait any more.
    fn check(&self) -> crate::Result<()>;
    /// Returns the monotonic time.
    fn now(&self) -> Duration;
}

impl GroupCommit {
    pub(super) fn new(durable: Lsn) -> Self {
        Self { state: Mutex::new(GroupState::default()), durable: AtomicU64::new(durable.0) }
    }

    /// Returns the LSN below which everything is durable.
    pub(super) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns when everything below `end` is durable, or with the failure that prevents it.
    pub(super) fn wait(&self, end: Lsn, log: &impl SyncTarget) -> crate::Result<()> {
        while self.durable() < end {
            log.check()?;
            if self.join(end) {
                self.lead(end, log)?;
            }
        }
        Ok(())
    }

    /// Returns whether the caller must lead. If not, a sync that covers `end` has ended, with or
    /// without success.
    fn join(&self, end: Lsn) -> bool {
        let writer = {
            let mut state = lock(&self.state);
            if self.durable() >= end {
                return false;
            }
            if !state.has_leader && state.waiters.len() + 1 >= state.cohort - state.cohort / 8 {
                state.become_leader();
                return true;
            }
            let writer = ParkedWriter::new();
            state.waiters.push(CommitWaiter { end, writer: Arc::clone(&writer) });
            if !state.has_leader && state.gatherer.is_none() {
                state.appoint_gatherer(&writer);
            }
            writer
        };
        loop {
            match writer.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                GATHER => {
                    if self.gather(&writer) {
                        return true;
                    }
                }
                LEAD => return true,
                _ => {
                    wake(mem::take(&mut *lock(&writer.followers)));
                    return false;
                }
            }
        }
    }

    /// Waits one pause as the gatherer. Returns whether it leads now: no writer arrived meanwhile.
    fn gather(&self, writer: &Arc<ParkedWriter>) -> bool {
        let (count, pause) = {
            let state = lock(&self.state);
            (state.waiters.len(), (state.sync_time / 2).min(PAUSE_MAX))
        };
        park_timeout(pause);
        let mut state = lock(&self.state);
        let gathers = writer.state.load(Ordering::Acquire) == GATHER;
        if !gathers || state.waiters.len() != count {
            return false;
        }
        state.become_leader();
        state.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.writer, writer));
        true
    }

    /// Syncs for the group and wakes its members.
    fn lead(&self, end: Lsn, log: &impl SyncTarget) -> crate::Result<()> {
        let start = log.now();
        let outcome = log.sync_to(end);
        if let Ok(durable) = &outcome {
            self.durable.fetch_max(durable.0, Ordering::AcqRel);
        }
        self.end_lead(outcome.is_err(), log.now().saturating_sub(start));
        outcome.map(drop)
    }

    /// Wakes the writers that the sync covers (all, after a failure). Leaves the others a gatherer,
    /// or a leader if they are a complete group already.
    fn end_lead(&self, failed: bool, sync_time: Duration) {
        let durable = self.durable();
        let (covered, next) = {
            let mut state = lock(&self.state);
            let (covered, others): (Vec<_>, Vec<_>) = mem::take(&mut state.waiters)
                .into_iter()
                .partition(|waiter| failed || waiter.end <= durable);
            state.waiters = others;
            state.sync_time = sync_time;
            state.cohort = covered.len() + 1 + state.waiters.len();
            // More than half have arrived already: they need not wait for the others.
            state.has_leader = state.waiters.len() * 2 > state.cohort;
            let next = if state.has_leader {
                let next = state.waiters.pop().map(|waiter| waiter.writer);
                next.inspect(|writer| writer.state.store(LEAD, Ordering::Release))
            } else {
                let next = state.waiters.first().map(|waiter| Arc::clone(&waiter.writer));
                next.inspect(|writer| state.appoint_gatherer(writer))
            };
            (covered, next)
        };
        if let Some(writer) = next {
            writer.thread.unpark();
        }
        wake(covered.into_iter().map(|waiter| waiter.writer).collect());
    }
}
