//! Queues of reads and writes: many requests in flight at once.
//!
//! Problem: one thread keeps a modern disk busy only with tens of requests in flight.
//! How: the trait [`Queue`] is in `io/request.rs`. The system has two implementations: `io_uring`
//! if the kernel permits it (`uring`), else a thread pool (`pool`). [`Queues`] pools idle queues
//! for reuse. A [`Flow`] is a queue whose transfers are waited for one by one.
//!
//! Invariants:
//! - A request owns its buffer until it completes. The buffer is neither freed nor read while the
//!   kernel writes into it.
//! - Each submitted request yields exactly one completion, also on errors.
//! - A short transfer continues at the byte where it stopped, or at the last whole block before it
//!   if a file under direct I/O refuses that. Interrupted and deferred calls are repeated. Both
//!   implementations do this with [`transfer::Transfer`], so that their results are the same.
//!
//! Threads: one thread uses a queue at a time (`Send`; methods take `&mut self`).

mod flow;
mod idle;
mod pool;
mod queues;
#[cfg(test)]
mod tests;
mod transfer;
#[cfg(target_os = "linux")]
mod uring;

use std::io;

pub use flow::{Flow, Pending};
pub use queues::{DEPTH, Queues};

use super::request::Queue;

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
