//! Blocks on their way to their place: many writes under way at once, and the errors of all.
//!
//! What: [`Writeback`] hands images to a [`Queue`] and collects what becomes of them.
//! Why: block writes should neither wait for one another nor be forgotten; whoever wrote must know
//! that all have arrived before the sync that retires their journal groups.
//!
//! Invariants: [`Writeback::finish`] returns `Ok` only after every image handed over since the
//! last call was written whole. Durable they are after a sync of their files.
//!
//! Thread rules: one thread at a time.

use std::sync::Arc;

use crate::{
    Error, Result,
    io::{AlignedBuffer, Completion, Env, File, Queue, Request},
    util::codec::to_u64,
};

/// Requests under way: what keeps the device busy, and no more memory than that.
const DEPTH: usize = 32;

/// Writes under way. See the module head.
#[derive(Debug)]
pub(crate) struct Writeback {
    queue: Box<dyn Queue>,
    /// Bytes under way, and how many may be.
    waiting_bytes: u64,
    waiting_max: u64,
    /// File and length of each request, by token.
    expected: Vec<(String, usize)>,
    done: Vec<Completion>,
    failed: Option<Error>,
    written_bytes: u64,
    /// Buffers of this length serve again.
    spare_bytes: usize,
    spare: Vec<AlignedBuffer>,
}

impl Writeback {
    /// Nothing under way.
    pub(crate) fn new(env: &dyn Env) -> Result<Self> {
        Self::bounded(env, u64::MAX)
    }

    /// As [`Writeback::new`], with at most so many bytes under way, but for a single write.
    pub(crate) fn bounded(env: &dyn Env, waiting_max: u64) -> Result<Self> {
        let queue =
            env.queue(DEPTH).map_err(|error| Error::io("set up a queue for writes", error))?;
        Ok(Self {
            queue,
            waiting_bytes: 0,
            waiting_max,
            expected: Vec::new(),
            done: Vec::new(),
            failed: None,
            written_bytes: 0,
            spare_bytes: 0,
            spare: Vec::new(),
        })
    }

    /// A buffer of `bytes`, the same for all calls, that holds anything: one that was written, if
    /// there is one.
    pub(crate) fn buffer(&mut self, bytes: usize) -> AlignedBuffer {
        self.spare_bytes = bytes;
        self.spare.pop().unwrap_or_else(|| AlignedBuffer::zeroed(bytes))
    }

    /// Starts writing `buffer[..length]` at `offset`; `label` names the file in messages. Waits
    /// while as many as the depth are under way.
    pub(crate) fn write(
        &mut self,
        (file, label): (&Arc<dyn File>, &str),
        offset: u64,
        buffer: AlignedBuffer,
        length: usize,
    ) {
        let length = length.min(buffer.len());
        let token = to_u64(self.expected.len());
        self.expected.push((label.to_owned(), length));
        self.waiting_bytes += to_u64(length);
        self.queue.submit(token, Request::Write { file: Arc::clone(file), offset, buffer, length });
        if self.queue.pending() >= DEPTH {
            self.collect(DEPTH / 2);
        }
        while self.waiting_bytes >= self.waiting_max {
            self.collect(1);
        }
    }

    /// Waits for everything. The first error, if there was one, is returned once.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while self.queue.pending() > 0 {
            self.collect(self.queue.pending());
        }
        self.expected.clear();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Whether a write has failed since the last [`Writeback::finish`].
    pub(crate) const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Bytes that arrived since this was made.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn collect(&mut self, at_least: usize) {
        self.queue.wait(at_least, &mut self.done);
        for completion in self.done.drain(..) {
            let request = usize::try_from(completion.token).ok();
            let Some((label, length)) = request.and_then(|index| self.expected.get(index)) else {
                continue;
            };
            self.waiting_bytes -= to_u64(*length);
            let outcome = completion.result.and_then(|count| {
                let whole = count == *length;
                whole.then_some(count).ok_or_else(|| std::io::ErrorKind::WriteZero.into())
            });
            match outcome {
                Ok(count) => self.written_bytes += to_u64(count),
                Err(error) if self.failed.is_none() => {
                    self.failed = Some(Error::io(format!("write {label}"), error));
                }
                Err(_) => {}
            }
            if self.spare_bytes > 0 && completion.buffer.len() == self.spare_bytes {
                self.spare.push(completion.buffer);
            }
        }
    }
}
