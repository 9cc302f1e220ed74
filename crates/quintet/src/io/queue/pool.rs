//! A queue on a thread pool, for kernels without `io_uring`.
//!
//! Invariants: `queued + running` is at most `depth`. A thread puts its transfer into `ended`
//! before it starts the next. Threads start on demand, up to [`THREADS_MAX`]. Dropping the queue
//! completes everything submitted, then ends the threads.
//!
//! Threads: one lock, [`PoolShared::state`], not held during a transfer.

use std::{
    any::Any,
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
    thread::{self, JoinHandle},
};

use super::transfer::Transfer;
use crate::{
    io::{AlignedBuffer, Completion, Queue, Request},
    util::sync::system::{Condvar, Mutex, MutexGuard, lock},
};

/// Maximum number of threads of one queue. Enough to overlap the waits of a disk; more would
/// compete with the database's own threads for the processor.
const THREADS_MAX: usize = 8;

/// A queue on threads that read and write.
#[derive(Debug)]
pub(super) struct PoolQueue {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
    depth: usize,
    /// Requests submitted and not yet returned by `wait`.
    pending: usize,
}

#[derive(Debug, Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    /// Notified when `queued` grows or `closing` is set.
    work: Condvar,
    /// Notified when `ended` grows.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    queued: VecDeque<Transfer>,
    running: usize,
    /// Threads that wait for `work`.
    idle: usize,
    ended: Vec<Completion>,
    closing: bool,
}

impl PoolQueue {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            shared: Arc::new(PoolShared::default()),
            threads: Vec::new(),
            depth: depth.max(1),
            pending: 0,
        }
    }
}

impl Queue for PoolQueue {
    fn submit(&mut self, token: u64, request: Request) {
        let transfer = Transfer::new(token, request);
        self.pending += 1;
        let mut state = lock(&self.shared.state);
        while state.queued.len() + state.running >= self.depth {
            state = wait(&self.shared.progress, state);
        }
        if state.queued.len() >= state.idle && self.threads.len() < THREADS_MAX.min(self.depth) {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name("disk-queue".to_owned());
            match builder.spawn(move || shared.serve()) {
                Ok(thread) => self.threads.push(thread),
                // If no thread could be started, this thread does the transfer; else the existing
                // ones do it.
                Err(_) if self.threads.is_empty() => {
                    drop(state);
                    let completion = transfer.finish();
                    lock(&self.shared.state).ended.push(completion);
                    return;
                }
                Err(_) => {}
            }
        }
        state.queued.push_back(transfer);
        drop(state);
        self.shared.work.notify_one();
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) {
        let mut state = lock(&self.shared.state);
        while state.ended.len() < at_least && state.queued.len() + state.running > 0 {
            state = wait(&self.shared.progress, state);
        }
        self.pending -= state.ended.len();
        done.append(&mut state.ended);
    }

    fn pending(&self) -> usize {
        self.pending
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        lock(&self.shared.state).closing = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // The threads catch panics of transfers.
            let _ = thread.join();
        }
    }
}

impl PoolShared {
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(transfer) = state.queued.pop_front() {
                state.running += 1;
                drop(state);
                let token = transfer.token;
                // A transfer that panics loses its buffer, but not the thread: the caller gets an
                // error.
                let completion = catch_unwind(AssertUnwindSafe(|| transfer.finish()))
                    .unwrap_or_else(|panic| lost(token, panic.as_ref()));
                state = lock(&self.state);
                state.running -= 1;
                state.ended.push(completion);
                self.progress.notify_one();
            } else if state.closing {
                return;
            } else {
                state.idle += 1;
                state = wait(&self.work, state);
                state.idle -= 1;
            }
        }
    }
}

fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, PoolState>) -> MutexGuard<'a, PoolState> {
    condition.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Returns the completion of a transfer that panicked.
fn lost(token: u64, panic: &(dyn Any + Send)) -> Completion {
    let what = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    Completion {
        token,
        buffer: AlignedBuffer::zeroed(0),
        result: Err(io::Error::other(format!("a transfer panicked: {what}"))),
    }
}
