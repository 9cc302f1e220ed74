//! The idle queues of a pool ([`Queues`](super::Queues)).
//!
//! Invariants: a queue that is taken out has nothing in flight. A returned queue may still have
//! detached reads ([`Pending::abandon`](super::Pending::abandon)). It keeps their files and buffers
//! until they end, and another queue is taken out meanwhile.
//!
//! Threads: any thread.

use std::sync::Arc;

use crate::{
    io::Queue,
    util::sync::{Mutex, lock},
};

/// Maximum number of idle queues.
const IDLE_MAX: usize = 16;

/// The idle queues.
#[derive(Clone, Debug, Default)]
pub(super) struct IdleQueues(Arc<Mutex<Vec<Box<dyn Queue>>>>);

impl IdleQueues {
    /// Returns an idle queue without requests in flight, if there is one.
    pub(super) fn take(&self) -> Option<Box<dyn Queue>> {
        let mut idle = lock(self.0.as_ref());
        let at = idle.iter_mut().position(|queue| has_ended(&mut **queue, 0));
        // If all are busy and the pool is full, the one that was returned first.
        let at = at.or_else(|| (idle.len() >= IDLE_MAX).then_some(0))?;
        let mut queue = idle.remove(at);
        drop(idle);
        while queue.pending() > 0 {
            has_ended(&mut *queue, 1);
        }
        Some(queue)
    }

    /// Returns a queue to the pool. Only detached reads may be in flight.
    pub(super) fn put_back(&self, queue: Box<dyn Queue>) {
        let mut idle = lock(self.0.as_ref());
        if idle.len() < IDLE_MAX {
            idle.push(queue);
        }
    }
}

/// Waits for `at_least` requests; returns whether none is in flight then.
fn has_ended(queue: &mut dyn Queue, at_least: usize) -> bool {
    if queue.pending() > 0 {
        queue.wait(at_least, &mut Vec::new());
    }
    queue.pending() == 0
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::io::{Completion, Request};

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
    fn a_queue_that_is_taken_out_has_nothing_in_flight() {
        let idle = IdleQueues::default();
        assert!(idle.take().is_none());
        idle.put_back(Box::new(Slow { name: 0, left: 3 }));
        assert!(idle.take().is_none(), "its reads are under way: another one serves");
        idle.put_back(Box::new(Slow { name: 1, left: 0 }));
        let queue = idle.take().unwrap();
        assert!(format!("{queue:?}").contains("name: 1"), "{queue:?}");
        // As many as are kept, all with something under way: the oldest is waited for.
        for name in 2..=IDLE_MAX + 1 {
            idle.put_back(Box::new(Slow { name, left: 2 }));
        }
        let queue = idle.take().unwrap();
        assert!(format!("{queue:?}").contains("name: 0, left: 0"), "{queue:?}");
        assert!(idle.take().is_none());
    }
}
