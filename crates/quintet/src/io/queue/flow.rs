//! Asynchronous transfers: reads ahead and writes behind.
//!
//! Problem: a merge that reads and writes files sequentially would wait for the disk half of its
//! time. With the next read and the last write in flight, it waits only for the slower side.
//!
//! Invariants: dropping a [`Pending`] waits for its transfer, so that no file is removed, synced or
//! read during a write that its owner dropped. Reads may be detached ([`Pending::abandon`]).
//!
//! Threads: the cursors and the writer of one merge share a [`Flow`] on one thread. Several threads
//! may use it, but a waiting thread blocks the others.

use std::{io, ops::Range, sync::Arc};

use super::idle::IdleQueues;
use crate::{
    io::{AlignedBuffer, Completion, Queue, Request},
    util::sync::{Mutex, lock},
};

/// A queue shared by several transfers that are waited for one by one.
#[derive(Clone, Debug)]
pub struct Flow(Arc<Mutex<FlowState>>);

#[derive(Debug)]
struct FlowState {
    /// `None` only while the state is dropped.
    queue: Option<Box<dyn Queue>>,
    /// Completions that no caller has received yet.
    ended: Vec<Completion>,
    next: u64,
    idle: IdleQueues,
}

/// A transfer in flight. Dropping it waits for its end.
#[derive(Debug)]
pub struct Pending {
    flow: Flow,
    token: u64,
    is_received: bool,
}

impl Flow {
    pub(super) fn new(queue: Box<dyn Queue>, idle: IdleQueues) -> Self {
        let shared = FlowState { queue: Some(queue), ended: Vec::new(), next: 0, idle };
        Self(Arc::new(Mutex::new(shared)))
    }

    /// Starts a transfer. Blocks only while the queue is full.
    pub fn start(&self, request: Request) -> Pending {
        let token = self.submit([request]).start;
        Pending { flow: self.clone(), token, is_received: false }
    }

    /// Starts transfers, with one system call if they are few.
    pub fn start_all(&self, requests: impl IntoIterator<Item = Request>) -> Vec<Pending> {
        let started = self.submit(requests);
        started.map(|token| Pending { flow: self.clone(), token, is_received: false }).collect()
    }

    /// Submits requests and returns their tokens.
    fn submit(&self, requests: impl IntoIterator<Item = Request>) -> Range<u64> {
        let mut shared = lock(self.0.as_ref());
        let FlowState { queue, ended, next, .. } = &mut *shared;
        let first = *next;
        for request in requests {
            if let Some(queue) = queue {
                queue.submit(*next, request);
            }
            *next += 1;
        }
        if let Some(queue) = queue {
            // Submits what the queue holds back.
            queue.wait(0, ended);
        }
        first..*next
    }

    fn wait_for(&self, token: u64) -> Completion {
        let mut shared = lock(self.0.as_ref());
        let FlowState { queue, ended, .. } = &mut *shared;
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
    /// Waits for the transfer and returns its completion.
    pub fn wait(mut self) -> Completion {
        self.is_received = true;
        self.flow.wait_for(self.token)
    }

    /// Detaches a read. The queue keeps its file and buffer until the read has ended and the queue
    /// is used again.
    pub fn abandon(mut self) {
        self.is_received = true;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_received {
            self.flow.wait_for(self.token);
        }
    }
}

impl Drop for FlowState {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.idle.put_back(queue);
        }
    }
}
