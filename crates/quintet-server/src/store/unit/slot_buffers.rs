//! The memory of the slots of a unit, which the next unit of the thread takes.
//!
//! Why: a unit serves the requests of one read of a connection. To let its vectors grow anew takes
//! longer than to load a key.

use std::cell::Cell;

use hashbrown::HashTable;

use crate::store::slot::Slot;

/// Most slots that stay with a thread. A unit commits when it has half as many.
const SLOTS_MAX: usize = 1024;
/// Most bytes of a value that stay with a thread.
const SCRATCH_BYTES_MAX: usize = 16 << 10;

thread_local! {
    static SPARE: Cell<SlotBuffers> = Cell::default();
}

/// Empty vectors with memory.
#[derive(Debug, Default)]
pub(super) struct SlotBuffers {
    pub(super) slots: Vec<Slot>,
    pub(super) index: HashTable<(u64, usize)>,
    pub(super) scratch: Vec<u8>,
}

impl SlotBuffers {
    /// Takes those that the last unit of this thread has left.
    pub(super) fn take() -> Self {
        SPARE.take()
    }

    /// Leaves them to the next unit of this thread, without their content. Large ones are freed.
    pub(super) fn put_back(mut self) {
        self.slots.clear();
        self.index.clear();
        self.scratch.clear();
        let is_small =
            self.slots.capacity() <= SLOTS_MAX && self.scratch.capacity() <= SCRATCH_BYTES_MAX;
        if is_small {
            SPARE.set(self);
        }
    }
}
