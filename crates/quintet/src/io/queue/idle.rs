//! The pool of idle queues.
//!
//! Problem: creating a queue costs system calls, and threads if the kernel has no `io_uring`; a
//! batch of reads needs one for microseconds.
//!
//! Invariants: a queue that is handed out has nothing in flight. A returned queue may still have
//! detached reads ([`Pending::abandon`](super::Pending::abandon)). It keeps their files and buffers
//! until they end, and another queue is handed out meanwhile.
//!
//! Threads: any thread.

use std::sync::Arc;

use super::{Completion, Flow, Queue, Request};
use crate::{
    Error, Result,
    io::Env,
    util::{
        codec::to_u64,
        sync::{Mutex, lock},
    },
};

/// Requests in flight on one queue.
pub const DEPTH: usize = 64;
/// Maximum number of idle queues.
const IDLE_MAX: usize = 16;

/// The idle queues.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle(Arc<Mutex<Vec<Box<dyn Queue>>>>);

impl Idle {
    /// Returns an idle queue without requests in flight, if there is one.
    pub(super) fn lend(&self) -> Option<Box<dyn Queue>> {
        let mut idle = lock(self.0.as_ref());
        let at = idle.iter_mut().position(|queue| has_ended(&mut **queue, 0));
        // Of many that are all busy still, the one that has been so for longest.
        let at = at.or_else(|| (idle.len() >= IDLE_MAX).then_some(0))?;
        let mut queue = idle.remove(at);
        drop(idle);
        while queue.pending() > 0 {
            has_ended(&mut *queue, 1);
        }
        Some(queue)
    }

    /// Returns a queue to the pool. Only detached reads may be in flight.
    pub(super) fn keep(&self, queue: Box<dyn Queue>) {
        let mut idle = lock(self.0.as_ref());
        if idle.len() < IDLE_MAX {
            idle.push(queue);
        }
    }
}

/// Whether nothing is under way, once so many have ended.
fn has_ended(queue: &mut dyn Queue, at_least: usize) -> bool {
    if queue.pending() > 0 {
        queue.wait(at_least, &mut Vec::new());
    }
    queue.pending() == 0
}

/// A pool of queues of one environment.
#[derive(Debug, Default)]
pub struct Queues(Idle);

impl Queues {
    fn lend(&self, env: &dyn Env) -> Result<Box<dyn Queue>> {
        match self.0.lend() {
            Some(queue) => Ok(queue),
            None => env.queue(DEPTH).map_err(|error| Error::io("make a queue of requests", error)),
        }
    }

    /// Returns a queue for transfers that are waited for one by one.
    ///
    /// # Errors
    /// [`Error::Io`] if the system refuses a new queue.
    pub fn flow(&self, env: &dyn Env) -> Result<Flow> {
        Ok(Flow::new(self.lend(env)?, self.0.clone()))
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
        let mut queue = self.lend(env)?;
        let outcome = work(&mut *queue);
        // A failed `work` may have left writes in flight; dropping the queue waits for them.
        if queue.pending() == 0 {
            self.0.keep(queue);
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

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    /// A queue that completes one request at each wait.
    #[derive(Debug)]
    struct Slow {
        #[expect(dead_code, reason = "it tells them apart when they are printed")]
        name: usize,
        left: usize,
    }

    impl Queue for Slow {
        fn submit(&mut self, _token: u64, _request: Request) {
            self.left += 1;
        }

        fn wait(&mut self, at_least: usize, _done: &mut Vec<Completion>) {
            self.left -= at_least.min(1).min(self.left);
        }

        fn pending(&self) -> usize {
            self.left
        }
    }

    #[test]
    fn what_is_lent_has_nothing_under_way() {
        let idle = Idle::default();
        assert!(idle.lend().is_none());
        idle.keep(Box::new(Slow { name: 0, left: 3 }));
        assert!(idle.lend().is_none(), "its reads are under way: another one serves");
        idle.keep(Box::new(Slow { name: 1, left: 0 }));
        let lent = idle.lend().unwrap();
        assert!(format!("{lent:?}").contains("name: 1"), "{lent:?}");
        // As many as are kept, all with something under way: the oldest is waited for.
        for name in 2..=IDLE_MAX + 1 {
            idle.keep(Box::new(Slow { name, left: 2 }));
        }
        let lent = idle.lend().unwrap();
        assert!(format!("{lent:?}").contains("name: 0, left: 0"), "{lent:?}");
        assert!(idle.lend().is_none());
    }
}
