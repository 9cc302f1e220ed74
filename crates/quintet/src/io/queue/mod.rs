//! Many reads and writes at once.
//!
//! What: the trait [`Queue`] and two ways to have it of the system: `io_uring` where the kernel
//! permits (`uring`), else a few threads (`pool`). [`Queues`] lends them; a [`Flow`] is one whose
//! transfers are waited for one by one.
//! Why: one thread keeps a modern disk busy only with tens of requests under way.
//!
//! Invariants:
//! - Requests own their buffers until they are completed, so nothing can be freed or read while
//!   the kernel writes into it.
//! - Each submitted request gives exactly one completion, whatever fails.
//! - A transfer that ends early is taken up again: at the byte where it stopped, or, where a file
//!   under direct I/O refuses that, at the last whole block before. Interrupted and deferred calls
//!   are repeated. Both kinds do this by [`Transfer`], so that their results are the same.
//!
//! Thread rules: a queue belongs to one thread at a time (`Send`, methods take `&mut self`).

mod flow;
mod idle;
mod pool;
#[cfg(test)]
mod tests;
#[cfg(target_os = "linux")]
mod uring;

use std::{fmt, io, sync::Arc};

pub use flow::{Flow, Pending};
use idle::Idle;
pub use idle::{DEPTH, Queues};

use super::{AlignedBuffer, BLOCK_BYTES, File};
use crate::util::codec::{to_u64, to_usize};

/// How often in a row a transfer may be interrupted or deferred without a byte moved, before its
/// error is the request's. Far beyond what signals do; it only keeps a file that always answers so
/// from holding up its queue for ever.
const RETRIES_MAX: u32 = 10_000;

/// One transfer. Lengths are the buffer's, or `length` where it is smaller.
#[derive(Debug)]
pub enum Request {
    /// Fill `buffer[..length]` from `offset`.
    Read {
        /// From where.
        file: Arc<dyn File>,
        /// Byte offset in the file.
        offset: u64,
        /// To where.
        buffer: AlignedBuffer,
        /// How many bytes.
        length: usize,
    },
    /// Write `buffer[..length]` at `offset`. Not durable until the file is synced.
    Write {
        /// To where.
        file: Arc<dyn File>,
        /// Byte offset in the file.
        offset: u64,
        /// From where.
        buffer: AlignedBuffer,
        /// How many bytes.
        length: usize,
    },
}

/// The end of one request.
#[derive(Debug)]
pub struct Completion {
    /// The number given at submission.
    pub token: u64,
    /// The buffer, back.
    pub buffer: AlignedBuffer,
    /// Bytes transferred (a read is short only at the end of the file; a write never is), or the
    /// error.
    pub result: io::Result<usize>,
}

/// A queue of requests under way. Completions come in any order. Dropping the queue waits for
/// them.
pub trait Queue: Send + fmt::Debug {
    /// Starts a request; waits for a place when `depth` are under way. A few may be held back
    /// until the next `wait` (`at_least` 0 is enough), so that they go to the system at once.
    fn submit(&mut self, token: u64, request: Request);
    /// Waits until at least `at_least` requests have ended (or none is under way) and appends
    /// them.
    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>);
    /// Requests submitted and not yet returned by `wait`.
    fn pending(&self) -> usize;
}

/// The ways to have a queue of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// `io_uring` where the kernel permits it, else the pool.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    #[cfg(feature = "testing")]
    Uring,
    /// A pool of threads.
    Pool,
}

/// A queue of the system.
pub(super) fn system(kind: QueueKind, depth: usize) -> io::Result<Box<dyn Queue>> {
    match kind {
        QueueKind::Pool => Ok(Box::new(pool::PoolQueue::new(depth))),
        #[cfg(feature = "testing")]
        QueueKind::Uring => uring_queue(depth),
        // Kernels without it, sandboxes and administrators that forbid it, limits on locked memory.
        QueueKind::Auto => uring_queue(depth).or_else(|_| system(QueueKind::Pool, depth)),
    }
}

#[cfg(target_os = "linux")]
fn uring_queue(depth: usize) -> io::Result<Box<dyn Queue>> {
    Ok(Box::new(uring::UringQueue::new(depth)?))
}

#[cfg(not(target_os = "linux"))]
fn uring_queue(_depth: usize) -> io::Result<Box<dyn Queue>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A request on its way, with how far it has come.
#[derive(Debug)]
struct Transfer {
    token: u64,
    write: bool,
    file: Arc<dyn File>,
    offset: u64,
    buffer: AlignedBuffer,
    /// How many bytes are asked for; at most the buffer's length.
    length: usize,
    /// How many have been moved; at most `length`.
    done: usize,
    /// Fruitless attempts since the last byte was moved.
    retries: u32,
    /// Whether it was set back to a whole block; that helps once or never.
    set_back: bool,
}

impl Transfer {
    fn new(token: u64, request: Request) -> Self {
        let (write, file, offset, buffer, length) = match request {
            Request::Read { file, offset, buffer, length } => (false, file, offset, buffer, length),
            Request::Write { file, offset, buffer, length } => (true, file, offset, buffer, length),
        };
        let length = length.min(buffer.len());
        Self { token, write, file, offset, buffer, length, done: 0, retries: 0, set_back: false }
    }

    /// Where in the file the next byte goes or comes from.
    fn position(&self) -> u64 {
        self.offset.saturating_add(to_u64(self.done))
    }

    /// What is still to be moved, in bytes.
    fn left(&self) -> usize {
        self.length - self.done
    }

    /// Takes in the outcome of one call; `Some` when the request has ended.
    fn advance(&mut self, outcome: io::Result<usize>) -> Option<io::Result<usize>> {
        match outcome {
            Ok(0) if self.left() > 0 && self.write => {
                return Some(Err(io::ErrorKind::WriteZero.into()));
            }
            Ok(0) => return Some(Ok(self.done)),
            Ok(count) => {
                self.retries = 0;
                self.done = self.done.saturating_add(count).min(self.length);
                if self.left() == 0 {
                    return Some(Ok(self.done));
                }
            }
            Err(error) if is_passing(&error) && self.retries < RETRIES_MAX => self.retries += 1,
            Err(error) => {
                let whole = self.done & !(to_usize(BLOCK_BYTES) - 1);
                let aligns = error.kind() == io::ErrorKind::InvalidInput && whole < self.done;
                if !aligns || self.set_back {
                    return Some(Err(error));
                }
                self.set_back = true;
                self.done = whole;
            }
        }
        None
    }

    /// Does the rest by the file's own calls, and waits for them.
    fn finish(mut self) -> Completion {
        if self.left() == 0 {
            let done = self.done;
            return self.complete(Ok(done));
        }
        loop {
            let (position, range) = (self.position(), self.done..self.length);
            let outcome = if self.write {
                let bytes = self.buffer.as_slice().get(range).unwrap_or(&[]);
                self.file.write_at(bytes, position)
            } else {
                let bytes = self.buffer.as_mut_slice().get_mut(range).unwrap_or(&mut []);
                self.file.read_at(bytes, position)
            };
            if let Some(result) = self.advance(outcome) {
                return self.complete(result);
            }
        }
    }

    fn complete(self, result: io::Result<usize>) -> Completion {
        Completion { token: self.token, buffer: self.buffer, result }
    }
}

/// Whether the same call may simply be made again. A queue's requests are cancelled by the kernel
/// when the thread that submitted them ends; the queue may have been moved to another by then.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error())
}
