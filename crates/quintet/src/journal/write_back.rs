//! Write-back: asynchronous writes of blocks in place.
//!
//! Why: block writes must not wait for one another. All of them must have succeeded before the sync
//! after which their journal groups are retired.
//!
//! How: [`Writeback`] submits blocks to a [`Queue`], bounds the bytes in flight and collects the
//! completions.
//!
//! Invariants: [`Writeback::finish`] returns `Ok` only if every block that was submitted since the
//! last call was written completely. The blocks are durable after a sync of their files.
//!
//! Threads: one at a time.

use std::sync::Arc;

use crate::{
    Error, Result,
    io::{AlignedBuffer, Completion, Env, File, Queue, Request},
    util::codec::to_u64,
};

/// Maximum number of requests in flight: enough to keep the device busy.
const DEPTH: usize = 32;

/// Writes in flight. See the module head.
#[derive(Debug)]
pub(crate) struct Writeback {
    queue: Box<dyn Queue>,
    inflight_bytes: u64,
    inflight_bytes_max: u64,
    /// File and length of each request, by token.
    requests: Vec<(String, usize)>,
    completions: Vec<Completion>,
    /// The first error since the last [`Writeback::finish`].
    failure: Option<Error>,
    written_bytes: u64,
    /// Length of the buffers that are reused; 0: none.
    buffer_bytes: usize,
    free_buffers: Vec<AlignedBuffer>,
}

impl Writeback {
    /// Returns a writer without a bound on the bytes in flight.
    pub(crate) fn new(env: &dyn Env) -> Result<Self> {
        Self::bounded(env, u64::MAX)
    }

    /// Returns a writer with less than `bytes_max` bytes in flight, except for a single larger
    /// write.
    pub(crate) fn bounded(env: &dyn Env, bytes_max: u64) -> Result<Self> {
        let queue =
            env.queue(DEPTH).map_err(|error| Error::io("set up a queue for writes", error))?;
        Ok(Self {
            queue,
            inflight_bytes: 0,
            inflight_bytes_max: bytes_max,
            requests: Vec::new(),
            completions: Vec::new(),
            failure: None,
            written_bytes: 0,
            buffer_bytes: 0,
            free_buffers: Vec::new(),
        })
    }

    /// Returns a buffer of `bytes` bytes with arbitrary content. Reuses that of a completed write
    /// if there is one. All calls must pass the same size.
    pub(crate) fn buffer(&mut self, bytes: usize) -> AlignedBuffer {
        self.buffer_bytes = bytes;
        self.free_buffers.pop().unwrap_or_else(|| AlignedBuffer::zeroed(bytes))
    }

    /// Submits a write of `buffer[..length]` at `offset`. Messages call the file `label`. Waits
    /// while too many requests or bytes are in flight. An error is returned by
    /// [`Writeback::finish`].
    pub(crate) fn write(
        &mut self,
        (file, label): (&Arc<dyn File>, &str),
        offset: u64,
        buffer: AlignedBuffer,
        length: usize,
    ) {
        let length = length.min(buffer.len());
        let token = to_u64(self.requests.len());
        self.requests.push((label.to_owned(), length));
        self.inflight_bytes += to_u64(length);
        self.queue.submit(token, Request::Write { file: Arc::clone(file), offset, buffer, length });
        if self.queue.pending() >= DEPTH {
            self.collect(DEPTH / 2);
        }
        while self.inflight_bytes >= self.inflight_bytes_max {
            self.collect(1);
        }
    }

    /// Waits for all requests. Returns the first error since the last call, if there was one.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while self.queue.pending() > 0 {
            self.collect(self.queue.pending());
        }
        self.requests.clear();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Returns whether a write has failed since the last [`Writeback::finish`].
    pub(crate) const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns how many bytes were written in all.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Waits for at least `at_least` completions and processes all that there are.
    fn collect(&mut self, at_least: usize) {
        self.queue.wait(at_least, &mut self.completions);
        for completion in self.completions.drain(..) {
            let request = usize::try_from(completion.token).ok();
            let Some((label, length)) = request.and_then(|index| self.requests.get(index)) else {
                continue;
            };
            self.inflight_bytes -= to_u64(*length);
            let outcome = completion.result.and_then(|count| {
                let is_complete = count == *length;
                is_complete.then_some(count).ok_or_else(|| std::io::ErrorKind::WriteZero.into())
            });
            match outcome {
                Ok(count) => self.written_bytes += to_u64(count),
                Err(error) if self.failure.is_none() => {
                    self.failure = Some(Error::io(format!("write {label}"), error));
                }
                Err(_) => {}
            }
            if self.buffer_bytes > 0 && completion.buffer.len() == self.buffer_bytes {
                self.free_buffers.push(completion.buffer);
            }
        }
    }
}
