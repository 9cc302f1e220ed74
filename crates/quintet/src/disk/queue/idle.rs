//! Queues between their uses.
//!
//! Why: making a queue costs system calls (and threads, where the kernel has no `io_uring`); a
//! batch of reads needs one for microseconds.
//!
//! Thread rules: any thread borrows; one that was left with requests under way is not kept.

use super::{Completion, Queue, Request};
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
#[derive(Debug, Default)]
pub struct Queues(Mutex<Vec<Box<dyn Queue>>>);

impl Queues {
    /// Lends a queue, a new one where none is idle.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives none; else what `work` says.
    pub fn with<T>(
        &self,
        env: &dyn Env,
        work: impl FnOnce(&mut dyn Queue) -> Result<T>,
    ) -> Result<T> {
        let idle = lock(&self.0).pop();
        let mut queue = match idle {
            Some(queue) => queue,
            None => env.queue(DEPTH).map_err(|error| Error::io("make a queue of reads", error))?,
        };
        let outcome = work(&mut *queue);
        if queue.pending() == 0 {
            let mut idle = lock(&self.0);
            if idle.len() < IDLE_MAX {
                idle.push(queue);
            }
        }
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
