//! How far the sweep of a pool is.

use crate::pmem::{Pool, SlabSweep};

/// How far the sweep is.
#[derive(Debug)]
pub(super) enum PoolSweep {
    /// Not begun.
    Due,
    /// The leaves from this key on are not marked.
    Leaves(SlabSweep, Vec<u8>),
    /// All leaves are marked.
    Rest(SlabSweep),
    /// Nothing is left to sweep.
    Done,
}

impl PoolSweep {
    pub(super) fn new(pool: &Pool) -> Self {
        if pool.needs_sweep() { Self::Due } else { Self::Done }
    }
}
