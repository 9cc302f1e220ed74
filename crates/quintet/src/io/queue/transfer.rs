//! A transfer: one request and its progress, with the rules for short and failed calls.

use std::{io, sync::Arc};

use crate::{
    io::{AlignedBuffer, BLOCK_BYTES, Completion, File, Request},
    util::codec::{to_u64, to_usize},
};

/// Maximum number of consecutive interruptions or deferrals of a transfer without progress. Then
/// its error is the result. Signals cause far fewer; the limit keeps a file that always fails this
/// way from blocking its queue forever.
const RETRIES_MAX: u32 = 10_000;

/// A request in flight, and its progress.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) token: u64,
    pub(super) write: bool,
    pub(super) file: Arc<dyn File>,
    pub(super) offset: u64,
    pub(super) buffer: AlignedBuffer,
    /// Bytes requested; at most the buffer's length.
    pub(super) length: usize,
    /// Bytes transferred; at most `length`.
    pub(super) done: usize,
    /// Attempts without progress since the last byte was transferred.
    pub(super) retries: u32,
    /// Whether the transfer was moved back to a whole block. A second time would not help.
    pub(super) set_back: bool,
}

impl Transfer {
    pub(super) fn new(token: u64, request: Request) -> Self {
        let (write, file, offset, buffer, length) = match request {
            Request::Read { file, offset, buffer, length } => (false, file, offset, buffer, length),
            Request::Write { file, offset, buffer, length } => (true, file, offset, buffer, length),
        };
        let length = length.min(buffer.len());
        Self { token, write, file, offset, buffer, length, done: 0, retries: 0, set_back: false }
    }

    /// Returns the file offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.offset.saturating_add(to_u64(self.done))
    }

    /// Returns the remaining bytes.
    pub(super) fn left(&self) -> usize {
        self.length - self.done
    }

    /// Records the result of one call. Returns `Some` if the request is complete.
    pub(super) fn advance(&mut self, outcome: io::Result<usize>) -> Option<io::Result<usize>> {
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
    pub(super) fn finish(mut self) -> Completion {
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

    pub(super) fn complete(self, result: io::Result<usize>) -> Completion {
        Completion { token: self.token, buffer: self.buffer, result }
    }
}

/// Whether the call may be repeated. The kernel cancels a queue's requests when the thread that
/// submitted them ends, and by then another thread may own the queue.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error())
}
