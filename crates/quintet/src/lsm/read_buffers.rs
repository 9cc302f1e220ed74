//! A pool of buffers for disk reads.
//!
//! The system maps a buffer of 128 KiB and more separately. Each use of a fresh one costs a page
//! fault for each of its pages, and the pages are zeroed. The pool keeps up to 2 MiB of released
//! buffers for the next read.
//!
//! Invariants:
//! - Pooled buffers are reserved in the budget, without making other caches shrink. The budget can
//!   reclaim them.
//! - A buffer in use is not accounted here.
//!
//! Threads: any. One lock. No system call runs under it, except the one that frees a buffer.

use std::sync::{Arc, Weak};

use crate::{
    io::AlignedBuffer,
    util::{
        budget::{Budget, Reclaimable},
        codec::to_u64,
        sync::{Mutex, lock},
    },
};

/// Maximum bytes of pooled buffers of one table.
const POOLED_BYTES_MAX: u64 = 2 << 20;

/// The pool of one table. See the module head.
#[derive(Debug)]
pub(crate) struct ReadBuffers {
    pooled: Mutex<PooledBuffers>,
    budget: Arc<Budget>,
    table_id: u64,
}

#[derive(Debug, Default)]
struct PooledBuffers {
    buffers: Vec<AlignedBuffer>,
    bytes: u64,
}

impl PooledBuffers {
    fn pop(&mut self) -> Option<AlignedBuffer> {
        let buffer = self.buffers.pop()?;
        self.bytes -= capacity_of(&buffer);
        Some(buffer)
    }
}

fn capacity_of(buffer: &AlignedBuffer) -> u64 {
    to_u64(buffer.room())
}

impl ReadBuffers {
    /// Creates an empty pool and registers it with the budget.
    pub(crate) fn new(budget: &Arc<Budget>, table_id: u64) -> Arc<Self> {
        let buffers =
            Arc::new(Self { pooled: Mutex::default(), budget: Arc::clone(budget), table_id });
        budget.register_reclaimable(Arc::downgrade(&buffers) as Weak<dyn Reclaimable>);
        buffers
    }

    /// Returns a buffer of `bytes`, rounded up to whole disk blocks. Its contents are arbitrary.
    pub(crate) fn lend(&self, bytes: usize) -> AlignedBuffer {
        let pooled = lock(&self.pooled).pop();
        let mut buffer = pooled.unwrap_or_else(|| AlignedBuffer::zeroed(0));
        self.budget.release(capacity_of(&buffer));
        buffer.fit(bytes);
        buffer
    }

    /// Returns a buffer to the pool. It is freed if the pool is full or the budget has no free
    /// memory.
    pub(crate) fn keep(&self, buffer: AlignedBuffer) {
        let mut pooled = lock(&self.pooled);
        let bytes = capacity_of(&buffer);
        if pooled.bytes + bytes <= POOLED_BYTES_MAX && self.budget.try_reserve(bytes).is_ok() {
            pooled.bytes += bytes;
            pooled.buffers.push(buffer);
        }
    }
}

impl Reclaimable for ReadBuffers {
    fn table_id(&self) -> u64 {
        self.table_id
    }

    fn reclaimable_bytes(&self) -> u64 {
        lock(&self.pooled).bytes
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes
            && let Some(buffer) = lock(&self.pooled).pop()
        {
            freed += capacity_of(&buffer);
        }
        self.budget.release(freed);
        freed
    }
}

impl Drop for ReadBuffers {
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
        let buffers = ReadBuffers::new(&budget, 1);
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
        assert!((1 << 20..=POOLED_BYTES_MAX).contains(&held), "{held}: the second MiB is too much");
        budget.reserve(3 << 20).unwrap();
        assert_eq!((buffers.reclaimable_bytes(), budget.used()), (0, 3 << 20));
        // With no free memory, nothing is pooled.
        buffers.keep(AlignedBuffer::zeroed(4096));
        assert_eq!((buffers.reclaimable_bytes(), budget.used()), (0, 3 << 20));
        budget.release(3 << 20);
        buffers.keep(AlignedBuffer::zeroed(4096));
        assert!(budget.used() > 0);
        drop(buffers);
        assert_eq!(budget.used(), 0);
    }
}
