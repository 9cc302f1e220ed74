//! A queue on `io_uring`.
//!
//! Invariants:
//! - `table[i]` is occupied from the push of the entry with user data `i` until its completion is
//!   reaped. Meanwhile nothing touches the transfer's buffer, and its file stays open.
//! - `held` has the entries that were pushed and that the kernel has not taken yet, oldest first.
//!   The kernel takes them in that order.
//! - At most `depth` slots are occupied, and the rings have at least that capacity: a push never
//!   fails, and completions never overflow.
//! - If the kernel stops serving the ring (a sandbox that is entered later), every request still
//!   completes. The queue waits for those that the kernel has, and does the others with blocking
//!   calls.
//!
//! Threads: as for every [`Queue`]; the kernel is the only other party.

#![expect(unsafe_code, reason = "handing buffers to the kernel; listed in UNSAFE.md")]

use std::{
    collections::VecDeque,
    io,
    mem::{self, ManuallyDrop},
    os::fd::{AsRawFd as _, RawFd},
    thread,
    time::Duration,
};

use io_uring::{IoUring, Probe, opcode, squeue, types::Fd};

use super::transfer::Transfer;
use crate::{
    io::{Completion, Queue, Request},
    util::codec::{low_u32, to_u64, to_usize},
};

/// Maximum number of requests in flight. The kernel allows 32,768; no disk gains beyond a few
/// hundred.
const DEPTH_MAX: usize = 4096;
/// Requests gathered before a system call submits them. A system call costs about a quarter of a
/// microsecond and a disk read fifty: eight requests share one call without a noticeable delay.
const BATCH: usize = 8;
/// Maximum bytes of one entry: lengths have 32 bits, and the kernel transfers less than 2 GiB at
/// once. Small in tests, so that they cover continued transfers.
const ENTRY_BYTES_MAX: usize = if cfg!(test) { 8192 } else { 1 << 30 };
/// Time between polls for completions when the ring can no longer be entered.
const POLL: Duration = Duration::from_millis(1);

/// A submission and a completion ring with the transfers that they refer to.
pub(super) struct UringQueue {
    ring: IoUring,
    /// Freed only by `drop`, once the kernel has released every buffer; leaked otherwise.
    table: ManuallyDrop<Vec<Option<Transfer>>>,
    /// Unoccupied slots of `table`.
    free: Vec<u32>,
    held: VecDeque<u32>,
    ended: Vec<Completion>,
    /// Whether the kernel no longer serves the ring.
    broken: bool,
}

impl UringQueue {
    /// Creates a ring. Fails if the kernel has no `io_uring`, forbids it, or lacks plain reads and
    /// writes.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let depth = u32::try_from(depth.clamp(1, DEPTH_MAX)).map_err(io::Error::other)?;
        let ring = IoUring::new(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut table = Vec::new();
        table.resize_with(to_usize(u64::from(depth)), || None);
        Ok(Self {
            ring,
            table: ManuallyDrop::new(table),
            free: (0..depth).rev().collect(),
            held: VecDeque::new(),
            ended: Vec::new(),
            broken: false,
        })
    }

    /// Returns the number of occupied slots: requests that the kernel has or will get.
    fn under_way(&self) -> usize {
        self.table.len() - self.free.len()
    }

    /// Puts `transfer` into a slot and its next call into the submission ring. Completes it with
    /// blocking calls if that is not possible.
    fn push(&mut self, mut transfer: Transfer) {
        let Some(fd) = transfer.file.descriptor().map(|fd| fd.as_raw_fd()) else {
            self.ended.push(transfer.finish());
            return;
        };
        if self.broken || transfer.left() == 0 {
            self.ended.push(transfer.finish());
            return;
        }
        let Some(slot) = self.free.pop() else {
            // `submit` has freed a slot. If it has not, the request completes nevertheless.
            self.ended.push(transfer.finish());
            return;
        };
        let entry = entry(&mut transfer, fd).user_data(u64::from(slot));
        let index = to_usize(u64::from(slot));
        if let Some(place) = self.table.get_mut(index) {
            *place = Some(transfer);
        }
        // SAFETY: the entry points into the heap block of the buffer in `table[slot]`, which moving
        // the `Transfer` there did not move, and to the descriptor of its file. Both stay,
        // untouched, until `take` has seen the completion: only `take` empties an occupied slot,
        // only once the kernel is done with it or is known never to have got it, and `drop` waits
        // or leaks.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_ok() {
            self.held.push_back(slot);
        } else if let Some(transfer) = self.take(slot) {
            self.ended.push(transfer.finish());
        }
    }

    /// Empties a slot that the kernel does not hold.
    fn take(&mut self, slot: u32) -> Option<Transfer> {
        let transfer = self.table.get_mut(to_usize(u64::from(slot)))?.take();
        if transfer.is_some() {
            self.free.push(slot);
        }
        transfer
    }

    /// Submits the held entries and waits until the kernel has completed `want` requests.
    fn enter(&mut self, want: usize) {
        while !self.broken && (want > 0 || !self.held.is_empty()) {
            match self.ring.submit_and_wait(want) {
                Ok(taken) => {
                    self.held.drain(..taken.min(self.held.len()));
                    if self.held.is_empty() {
                        return;
                    }
                }
                Err(error) => {
                    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                        // A signal: the caller decides whether to wait again.
                        Some(rustix::io::Errno::INTR) => {
                            if self.held.is_empty() {
                                return;
                            }
                        }
                        // The kernel lacks memory for requests, or completions must be reaped
                        // first.
                        Some(rustix::io::Errno::AGAIN | rustix::io::Errno::BUSY) => {
                            self.reap();
                            if want > 0 {
                                return;
                            }
                            thread::yield_now();
                        }
                        _ => self.give_up(),
                    }
                }
            }
        }
    }

    /// Stops using the ring. Requests that the kernel never got complete with blocking calls.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        while let Some(slot) = self.held.pop_front() {
            // The ring is never entered again, so the kernel never uses the pointers of the entry.
            if let Some(transfer) = self.take(slot) {
                self.ended.push(transfer.finish());
            }
        }
    }

    /// Reaps completions. Pushes transfers again that are not finished.
    fn reap(&mut self) {
        let finished: Vec<(u64, i32)> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (slot, result) in finished {
            let Some(mut transfer) = u32::try_from(slot).ok().and_then(|slot| self.take(slot))
            else {
                continue;
            };
            let outcome = usize::try_from(result)
                .map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()));
            if matches!(&outcome, Err(error) if is_refusal(error)) {
                // The file system refuses this form (direct I/O at this alignment, or any I/O from
                // a ring). The file's own calls have the fallback.
                self.ended.push(transfer.finish());
                continue;
            }
            match transfer.advance(outcome) {
                Some(result) => self.ended.push(transfer.complete(result)),
                None => self.push(transfer),
            }
        }
    }

    /// Waits for `want` completions, at most as many as are in flight, and reaps all there are. A
    /// signal may end the wait early.
    fn progress(&mut self, want: usize) {
        if self.broken {
            thread::sleep(POLL);
        } else {
            self.enter(want);
        }
        self.reap();
    }
}

impl Queue for UringQueue {
    fn submit(&mut self, token: u64, request: Request) {
        while self.free.is_empty() {
            self.progress(1);
        }
        self.push(Transfer::new(token, request));
        if self.held.len() >= BATCH.min(self.table.len()) {
            self.enter(0);
        }
    }

    fn wait(&mut self, at_least: usize, done: &mut Vec<Completion>) {
        self.enter(0);
        self.reap();
        while self.ended.len() < at_least && self.under_way() > 0 {
            self.progress((at_least - self.ended.len()).min(self.under_way()));
        }
        // Transfers that were pushed again run while the caller handles the completions.
        self.enter(0);
        done.append(&mut self.ended);
    }

    fn pending(&self) -> usize {
        self.under_way() + self.ended.len()
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        while self.under_way() > 0 {
            self.progress(self.under_way());
            self.ended.clear();
        }
        drop(mem::take(&mut *self.table));
    }
}

impl std::fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringQueue")
            .field("depth", &self.table.len())
            .field("under_way", &self.under_way())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Builds the entry of the next call of `transfer`.
fn entry(transfer: &mut Transfer, fd: RawFd) -> squeue::Entry {
    let count = transfer.left().min(ENTRY_BYTES_MAX);
    let length = low_u32(to_u64(count));
    let (position, range) = (transfer.position(), transfer.done..transfer.done + count);
    if transfer.write {
        let bytes = transfer.buffer.as_slice().get(range).unwrap_or(&[]);
        opcode::Write::new(Fd(fd), bytes.as_ptr(), length).offset(position).build()
    } else {
        let bytes = transfer.buffer.as_mut_slice().get_mut(range).unwrap_or(&mut []);
        opcode::Read::new(Fd(fd), bytes.as_mut_ptr(), length).offset(position).build()
    }
}
