//! Queues of reads and writes: many requests in flight at once.
//!
//! Problem: one thread keeps a modern disk busy only with tens of requests in flight.
//! How: [`Queue`] is the trait. The system has two implementations: `io_uring` if the kernel
//! permits it (`uring`), else a thread pool (`pool`). [`Queues`] pools idle queues for reuse. A
//! [`Flow`] is a queue whose transfers are waited for one by one.
//!
//! Invariants:
//! - A request owns its buffer until it completes. The buffer is neither freed nor read while the
//!   kernel writes into it.
//! - Each submitted request yields exactly one completion, also on errors.
//! - A short transfer continues at the byte where it stopped, or at the last whole block before it
//!   if a file under direct I/O refuses that. Interrupted and deferred calls are repeated. Both
//!   implementations do this with [`Transfer`], so that their results are the same.
//!
//! Threads: one thread uses a queue at a time (`Send`; methods take `&mut self`).

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

/// How often in a row a transfer may be interrupted or deferred without progress before its error
/// is the result. Far more than signals cause; the limit keeps a file that always fails this way
/// from blocking its queue forever.
const RETRIES_MAX: u32 = 10_000;

/// One read or write. Its length is `length`, at most the buffer's.
#[derive(Debug)]
pub enum Request {
    /// Reads into `buffer[..length]` from `offset`.
    Read {
        /// The file.
        file: Arc<dyn File>,
        /// Byte offset in the file.
        offset: u64,
        /// The buffer.
        buffer: AlignedBuffer,
        /// Bytes to transfer.
        length: usize,
    },
    /// Writes `buffer[..length]` at `offset`. Not durable until the file is synced.
    Write {
        /// The file.
        file: Arc<dyn File>,
        /// Byte offset in the file.
        offset: u64,
        /// The buffer.
        buffer: AlignedBuffer,
        /// Bytes to transfer.
        length: usize,
    },
}

/// The completion of one request.
#[derive(Debug)]
pub struct Completion {
    /// The token given at submission.
    pub token: u64,
    /// The request's buffer.
    pub buffer: AlignedBuffer,
    /// The number of bytes transferred, or the error. A read is short only at the end of the file;
    /// a write never is.
    pub result: io::Result<usize>,
}

/// A queue of requests in flight. Completions come in any order. Dropping the queue waits for all
/// of them.
pub trait Queue: Send + fmt::Debug {
    /// Submits a request. Blocks while `depth` requests are in flight. The queue may hold a few
    /// back until the next `wait` (with `at_least` 0 too), to submit them with one system call.
    fn submit(&mut self, token: u64, request: Request);
    /// Waits until at least `at_least` requests have completed, or none is in flight, and appends
    /// the completions to `done`.
    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>);
    /// Returns the number of requests submitted and not yet returned by `wait`.
    fn pending(&self) -> usize;
}

/// Implementations of a queue of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// `io_uring` if the kernel permits it, else the thread pool.
    #[default]
    Auto,
    /// `io_uring`; creating the queue fails without it.
    #[cfg(feature = "testing")]
    Uring,
    /// The thread pool.
    Pool,
}

/// Creates a queue of the system. Fails if the kernel refuses it.
pub(super) fn system(kind: QueueKind, depth: usize) -> io::Result<Box<dyn Queue>> {
    match kind {
        QueueKind::Pool => Ok(Box::new(pool::PoolQueue::new(depth))),
        #[cfg(feature = "testing")]
        QueueKind::Uring => uring_queue(depth),
        // Old kernels, sandboxes and limits on locked memory refuse it.
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

/// A request in flight, and its progress.
#[derive(Debug)]
struct Transfer {
    token: u64,
    write: bool,
    file: Arc<dyn File>,
    offset: u64,
    buffer: AlignedBuffer,
    /// Bytes requested; at most the buffer's length.
    length: usize,
    /// Bytes transferred; at most `length`.
    done: usize,
    /// Attempts without progress since the last byte was transferred.
    retries: u32,
    /// Whether the transfer was moved back to a whole block. A second time would not help.
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

    /// Returns the file offset of the next byte.
    fn position(&self) -> u64 {
        self.offset.saturating_add(to_u64(self.done))
    }

    /// Returns the remaining bytes.
    fn left(&self) -> usize {
        self.length - self.done
    }

    /// Records the result of one call. Returns `Some` if the request is complete.
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

    /// Completes the request with blocking calls of the file.
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

/// Whether the call may be repeated. The kernel cancels a queue's requests when the thread that
/// submitted them ends, and by then another thread may own the queue.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error())
}
