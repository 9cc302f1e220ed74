//! Queues between their uses.
//!
//! Why: making a queue costs system calls (and threads, where the kernel has no `io_uring`); a
//! batch of reads needs one for microseconds.
//!
//! Thread rules: any thread borrows. Reads that were left under way end before their queue is lent
//! again; until then it holds their files and buffers.

use std::sync::Arc;

use super::{Completion, Flow, Queue, Request};
use crate::{
    Error, Result,
    codec::to_u64,
    disk::Env,
    sync::{Mutex, lock},
};

/// Requests under way at once on one queue.
pub const DEPTH: usize = 64;
/// Queues that are kept for the next use.
const IDLE_MAX: usize = 16;

/// Queues that nobody uses now.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle(Arc<Mutex<Vec<Box<dyn Queue>>>>);

impl Idle {
    /// One that nobody uses now, if there is any.
    pub(super) fn lend(&self) -> Option<Box<dyn Queue>> {
        let mut queue = lock(self.0.as_ref()).pop()?;
        // Nobody waits for what is still under way.
        while queue.pending() > 0 {
            queue.wait(queue.pending(), &mut Vec::new());
        }
        Some(queue)
    }

    /// Takes a queue back.
    pub(super) fn keep(&self, queue: Box<dyn Queue>) {
        let mut idle = lock(self.0.as_ref());
        if idle.len() < IDLE_MAX {
            idle.push(queue);
        }
    }
}

/// Where queues are borrowed.
#[derive(Debug, Default)]
pub struct Queues(Idle);

impl Queues {
    fn lend(&self, env: &dyn Env) -> Result<Box<dyn Queue>> {
        match self.0.lend() {
            Some(queue) => Ok(queue),
            None => env.queue(DEPTH).map_err(|error| Error::io("make a queue of requests", error)),
        }
    }

    /// Lends a queue for transfers that are waited for one by one.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives none.
    pub fn flow(&self, env: &dyn Env) -> Result<Flow> {
        Ok(Flow::new(self.lend(env)?, self.0.clone()))
    }

    /// Lends a queue, a new one where none is idle.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives none; else what `work` says.
    pub fn with<T>(
        &self,
        env: &dyn Env,
        work: impl FnOnce(&mut dyn Queue) -> Result<T>,
    ) -> Result<T> {
        let mut queue = self.lend(env)?;
        let outcome = work(&mut *queue);
        self.0.keep(queue);
        outcome
    }

    /// Has all requests under way at once and waits for all: completions in the requests' order.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives no queue. The error of a request is in its completion.
    pub fn transfer(
        &self,
        env: &dyn Env,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Completion>> {
        self.with(env, |queue| {
            let mut done = Vec::new();
            for (token, request) in requests.into_iter().enumerate() {
                queue.submit(to_u64(token), request);
            }
            while queue.pending() > 0 {
                let pending = queue.pending();
                queue.wait(pending, &mut done);
            }
            done.sort_unstable_by_key(|completion| completion.token);
            Ok(done)
        })
    }
}
