//! Transfers that go on behind the work that started them.
//!
//! Why: who reads and writes files from one end to the other would wait for the disk half of its
//! time; with the next read and the last write under way meanwhile, it waits for what is slower.
//!
//! Invariants: what was started has ended before its [`Pending`] is gone, so nobody removes, syncs
//! or reads a file under a write that its owner has forgotten; but reads may be left to themselves
//! ([`Pending::abandon`]).
//!
//! Thread rules: a [`Flow`] is shared by what one thread works on (the walks of a merge and its
//! writer). It may be used from several, but whoever waits holds the others up.

use std::{io, ops::Range, sync::Arc};

use super::{AlignedBuffer, Completion, Idle, Queue, Request};
use crate::util::sync::{Mutex, lock};

/// A queue that several transfers share, each waited for by itself.
#[derive(Clone, Debug)]
pub struct Flow(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    /// Taken away when nobody needs it any more.
    queue: Option<Box<dyn Queue>>,
    /// What has ended and was not yet asked for.
    ended: Vec<Completion>,
    next: u64,
    idle: Idle,
}

/// A transfer under way.
#[derive(Debug)]
pub struct Pending {
    flow: Flow,
    token: u64,
    is_taken: bool,
}

impl Flow {
    pub(super) fn new(queue: Box<dyn Queue>, idle: Idle) -> Self {
        let shared = Shared { queue: Some(queue), ended: Vec::new(), next: 0, idle };
        Self(Arc::new(Mutex::new(shared)))
    }

    /// Starts a transfer, and does not wait for it (but for a place in the queue).
    pub fn start(&self, request: Request) -> Pending {
        let token = self.submit([request]).start;
        Pending { flow: self.clone(), token, is_taken: false }
    }

    /// Starts transfers, with one call of the system where they are few.
    pub fn start_all(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Pending> {
        let started = self.submit(requests);
        started.map(|token| Pending { flow: self.clone(), token, is_taken: false }).collect()
    }

    /// The numbers that they have now.
    fn submit(&self, requests: impl IntoIterator<Item = Request>) -> Range<u64> {
        let mut shared = lock(self.0.as_ref());
        let Shared { queue, ended, next, .. } = &mut *shared;
        let first = *next;
        for request in requests {
            if let Some(queue) = queue {
                queue.submit(*next, request);
            }
            *next += 1;
        }
        if let Some(queue) = queue {
            // At once to the system.
            queue.wait(0, ended);
        }
        first..*next
    }

    fn wait_for(&self, token: u64) -> Completion {
        let mut shared = lock(self.0.as_ref());
        let Shared { queue, ended, .. } = &mut *shared;
        loop {
            if let Some(place) = ended.iter().position(|one| one.token == token) {
                return ended.swap_remove(place);
            }
            let queue = queue.as_mut().filter(|queue| queue.pending() > 0);
            let Some(queue) = queue else {
                let result = Err(io::Error::other("a queue has lost a request"));
                return Completion { token, buffer: AlignedBuffer::zeroed(0), result };
            };
            queue.wait(1, ended);
        }
    }
}

impl Pending {
    /// Waits for its end.
    pub fn wait(mut self) -> Completion {
        self.is_taken = true;
        self.flow.wait_for(self.token)
    }

    /// Leaves a read to itself. Its file and its buffer are held until it ends, and then until the
    /// queue is lent again.
    pub fn abandon(mut self) {
        self.is_taken = true;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_taken {
            self.flow.wait_for(self.token);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.idle.keep(queue);
        }
    }
}
