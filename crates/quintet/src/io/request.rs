//! Requests of reads and writes, their completions, and the trait [`Queue`] that runs them.

use std::{fmt, io, sync::Arc};

use super::{buffer::AlignedBuffer, file::File};

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
