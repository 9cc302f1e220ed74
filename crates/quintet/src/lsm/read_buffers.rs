//! Buffers for reads of the disk, between their uses.
//!
//! Why: one of 128 KiB and more has a mapping of its own, which costs a fault for each of its
//! pages, and all are zeroed when they are made.
//!
//! Invariants: what is kept is drawn from the budget, while there is memory that nobody has, and
//! given back when others need it. A buffer that is lent is not in the account.
//!
//! Thread rules: any thread; one lock, held for no system call but where a buffer goes.

use std::sync::{Arc, Weak};

use crate::{
    io::AlignedBuffer,
    util::{
        budget::{Budget, Reclaimable},
        codec::to_u64,
        sync::{Mutex, lock},
    },
};

/// Bytes that are kept for the next use, all buffers of a table together.
const KEPT_BYTES: u64 = 2 << 20;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Buffers {
    kept: Mutex<Kept>,
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<AlignedBuffer>,
    bytes: u64,
}

impl Kept {
    fn pop(&mut self) -> Option<AlignedBuffer> {
        let buffer = self.buffers.pop()?;
        self.bytes -= room(&buffer);
        Some(buffer)
    }
}

fn room(buffer: &AlignedBuffer) -> u64 {
    to_u64(buffer.room())
}

impl Buffers {
    pub(crate) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        let buffers = Arc::new(Self { kept: Mutex::default(), budget: Arc::clone(budget) });
        budget.register_reclaimable(Arc::downgrade(&buffers) as Weak<dyn Reclaimable>);
        buffers
    }

    /// A buffer of at least `bytes`, rounded up to whole blocks. The bytes are anything.
    pub(crate) fn lend(&self, bytes: usize) -> AlignedBuffer {
        let kept = lock(&self.kept).pop();
        let mut buffer = kept.unwrap_or_else(|| AlignedBuffer::zeroed(0));
        self.budget.release(room(&buffer));
        buffer.fit(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn keep(&self, buffer: AlignedBuffer) {
        let mut kept = lock(&self.kept);
        let bytes = room(&buffer);
        if kept.bytes + bytes <= KEPT_BYTES && self.budget.try_reserve(bytes).is_ok() {
            kept.bytes += bytes;
            kept.buffers.push(buffer);
        }
    }
}

impl Reclaimable for Buffers {
    fn reclaimable_bytes(&self) -> u64 {
        lock(&self.kept).bytes
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = 0;
        while given < bytes
            && let Some(buffer) = lock(&self.kept).pop()
        {
            given += room(&buffer);
        }
        self.budget.release(given);
        given
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.reclaim(u64::MAX);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_few_are_kept_and_others_get_their_memory() {
        let budget = Arc::new(Budget::new(3 << 20));
        let buffers = Buffers::new(&budget);
        let one = buffers.lend(5000);
        let address = one.as_slice().as_ptr();
        buffers.keep(one);
        assert!(budget.used() >= 8192);
        let again = buffers.lend(8192);
        assert_eq!((again.as_slice().as_ptr(), again.len()), (address, 8192));
        assert_eq!(budget.used(), 0);
        buffers.keep(again);
        let large = buffers.lend(1 << 20);
        assert_eq!(large.len(), 1 << 20);
        buffers.keep(large);
        buffers.keep(AlignedBuffer::zeroed(1 << 20));
        buffers.keep(AlignedBuffer::zeroed(4096));
        let held = buffers.reclaimable_bytes();
        assert_eq!(held, budget.used());
        assert!((1 << 20..=KEPT_BYTES).contains(&held), "{held}: the second MiB is too much");
        budget.reserve(3 << 20).unwrap();
        assert_eq!((buffers.reclaimable_bytes(), budget.used()), (0, 3 << 20));
        // Where nothing is free, nothing is kept.
        buffers.keep(AlignedBuffer::zeroed(4096));
        assert_eq!((buffers.reclaimable_bytes(), budget.used()), (0, 3 << 20));
        budget.release(3 << 20);
        buffers.keep(AlignedBuffer::zeroed(4096));
        assert!(budget.used() > 0);
        drop(buffers);
        assert_eq!(budget.used(), 0);
    }
}
