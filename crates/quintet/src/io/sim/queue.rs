//! A queue whose requests take effect in a seeded order.

use std::{io, sync::Arc};

use super::{random::Random, shared::SimShared};
use crate::{
    io::{Completion, Queue, Request, read_up_to, write_all_at},
    util::codec::{to_u64, to_usize},
};

/// A simulated queue. A request takes effect when its completion is picked: at the latest when the
/// caller waits for it or drops the queue.
#[derive(Debug)]
pub(super) struct SimQueue {
    depth: usize,
    random: Random,
    waiting: Vec<(u64, Request)>,
    ended: Vec<Completion>,
    /// Keeps the disk alive.
    _shared: Arc<SimShared>,
}

impl SimQueue {
    pub(super) fn new(depth: usize, random: Random, shared: Arc<SimShared>) -> Self {
        Self { depth, random, waiting: Vec::new(), ended: Vec::new(), _shared: shared }
    }

    /// Executes one request, chosen by the seed.
    fn complete_one(&mut self) {
        let index = to_usize(self.random.below(to_u64(self.waiting.len())));
        let (token, request) = self.waiting.swap_remove(index);
        let completion = match request {
            Request::Read { file, offset, mut buffer, length } => {
                let length = length.min(buffer.len());
                let result = match buffer.as_mut_slice().get_mut(..length) {
                    Some(target) => read_up_to(&*file, target, offset),
                    None => Err(io::ErrorKind::InvalidInput.into()),
                };
                Completion { token, buffer, result }
            }
            Request::Write { file, offset, buffer, length } => {
                let length = length.min(buffer.len());
                let result = match buffer.as_slice().get(..length) {
                    Some(source) => write_all_at(&*file, source, offset).map(|()| length),
                    None => Err(io::ErrorKind::InvalidInput.into()),
                };
                Completion { token, buffer, result }
            }
        };
        self.ended.push(completion);
    }
}

impl Queue for SimQueue {
    fn submit(&mut self, token: u64, request: Request) {
        if self.waiting.len() >= self.depth.max(1) {
            self.complete_one();
        }
        self.waiting.push((token, request));
        if self.random.below(4) == 0 {
            self.complete_one();
        }
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) {
        while self.ended.len() < at_least && !self.waiting.is_empty() {
            self.complete_one();
        }
        done.append(&mut self.ended);
    }

    fn pending(&self) -> usize {
        self.waiting.len() + self.ended.len()
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        while !self.waiting.is_empty() {
            self.complete_one();
        }
    }
}
