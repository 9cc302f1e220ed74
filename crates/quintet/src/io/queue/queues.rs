//! The pool of queues.
//!
//! Problem: creating a queue costs system calls, and threads if the kernel has no `io_uring`. A
//! batch of reads needs a queue for microseconds.
//!
//! Threads: any thread.

use super::{flow::Flow, idle::IdleQueues};
use crate::{
    Error, Result,
    io::{Completion, Env, Queue, Request},
    util::codec::to_u64,
};

/// Requests in flight on one queue.
pub const DEPTH: usize = 64;

/// A pool of queues of one environment. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Queues(IdleQueues);

impl Queues {
    fn take(&self, env: &dyn Env) -> Result<Box<dyn Queue>> {
        match self.0.take() {
            Some(queue) => Ok(queue),
            None => env.queue(DEPTH).map_err(|error| Error::io("make a queue of requests", error)),
        }
    }

    /// Returns a queue for transfers that are waited for one by one.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses a new queue.
    pub fn flow(&self, env: &dyn Env) -> Result<Flow> {
        Ok(Flow::new(self.take(env)?, self.0.clone()))
    }

    /// Calls `work` with an idle queue, or a new one if none is idle.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses a new queue; else the error of `work`.
    pub fn with<T>(
        &self,
        env: &dyn Env,
        work: impl FnOnce(&mut dyn Queue) -> Result<T>,
    ) -> Result<T> {
        let mut queue = self.take(env)?;
        let outcome = work(&mut *queue);
        // A failed `work` may have left writes in flight; dropping the queue waits for them.
        if queue.pending() == 0 {
            self.0.put_back(queue);
        }
        outcome
    }

    /// Runs all requests at once and waits for all. Completions are in the order of the requests.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses a new queue. A completion holds the error of its
    /// request.
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
