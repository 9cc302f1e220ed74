//! The sweep of the pool: frees what a crash, or the previous opening, has left unreachable.
//!
//! The pool records persistently only which slabs are in use. So after an opening it allocates from
//! other slabs, until the sweep has found which objects of the old ones are reachable. The sweep
//! runs in the background, in steps, beside reads and writes:
//! 1. the inner nodes of the index,
//! 2. its leaves and records, some thousand a step, in key order,
//! 3. the memtables, the list of runs and the log of updates; then it ends.
//!
//! Correct beside changes: nothing is allocated in an old slab meanwhile. An old node stays where
//! it is in key order, and a split moves entries only to new nodes behind it. So the leaves before
//! the position of the sweep need no second visit. What is freed meanwhile stays free.

use super::SlmPool;
use crate::{
    Result,
    engine::slm::{run::RunSet, table::SlmTable},
    lsm::write_buffer::WriteBuffer,
    pmem::{Pool, SlabSweep},
    util::{mutant::mutant, sync::lock},
};

/// Number of leaves that one step marks. Writers of the index wait for it: about a millisecond.
const STEP_LEAVES: usize = if cfg!(test) { 4 } else { 2048 };

/// How far the sweep is.
#[derive(Debug)]
pub(super) enum SweepState {
    /// Not begun.
    Due,
    /// The leaves from this key on are not marked.
    Leaves(SlabSweep, Vec<u8>),
    /// All leaves are marked.
    Rest(SlabSweep),
    /// Nothing is left to sweep.
    Done,
}

impl SweepState {
    pub(super) fn new(pool: &Pool) -> Self {
        if pool.needs_sweep() { Self::Due } else { Self::Done }
    }
}

impl SlmPool {
    /// Whether the sweep has something left to do.
    pub(in crate::engine::slm) fn is_sweep_due(&self) -> bool {
        !matches!(*lock(&self.sweep), SweepState::Done)
    }

    /// Does all that is left of the sweep.
    pub(in crate::engine::slm) fn finish_sweep(
        &self,
        write_buffer: &WriteBuffer<RunSet>,
    ) -> Result<()> {
        while self.is_sweep_due() {
            self.sweep_step(write_buffer)?;
        }
        Ok(())
    }

    /// Does one step of the sweep. A step that fails is repeated from the beginning.
    pub(in crate::engine::slm) fn sweep_step(
        &self,
        write_buffer: &WriteBuffer<RunSet>,
    ) -> Result<()> {
        let mut place = lock(&self.sweep);
        *place = match std::mem::replace(&mut *place, SweepState::Due) {
            SweepState::Due => self.mark_inner()?,
            SweepState::Leaves(sweep, from) => self.mark_leaves(sweep, &from)?,
            SweepState::Rest(sweep) => self.mark_rest(sweep, write_buffer)?,
            SweepState::Done => SweepState::Done,
        };
        Ok(())
    }

    fn mark_inner(&self) -> Result<SweepState> {
        let Some(index) = &self.index else {
            return Ok(SweepState::Rest(self.pool.begin_sweep()));
        };
        let _exclusive = index.exclusive();
        let mut sweep = self.pool.begin_sweep();
        self.pool.mark(&mut sweep, |marks| index.tree.mark_inner(marks))?;
        mutant!(PmemSweepFreesReachable => return Ok(SweepState::Rest(sweep)));
        Ok(SweepState::Leaves(sweep, Vec::new()))
    }

    fn mark_leaves(&self, mut sweep: SlabSweep, from: &[u8]) -> Result<SweepState> {
        let Some(index) = &self.index else { return Ok(SweepState::Rest(sweep)) };
        let _exclusive = index.exclusive();
        let mut next = None;
        self.pool.mark(&mut sweep, |marks| {
            next = index.tree.mark_leaves(marks, from, STEP_LEAVES)?;
            Ok(())
        })?;
        Ok(match next {
            Some(next) => SweepState::Leaves(sweep, next),
            None => SweepState::Rest(sweep),
        })
    }

    fn mark_rest(
        &self,
        mut sweep: SlabSweep,
        write_buffer: &WriteBuffer<RunSet>,
    ) -> Result<SweepState> {
        // Held until the end: otherwise objects that wait to be freed could be allocated again.
        let state = self.index.as_ref().map(|index| index.exclusive());
        if let (Some(index), Some(state)) = (&self.index, &state) {
            self.pool.mark(&mut sweep, |marks| index.mark_lists(state, marks))?;
            index.tree.free_unlinked()?;
        }
        write_buffer.mark_memtables(&self.pool, &mut sweep)?;
        self.pool.end_sweep(sweep);
        Ok(SweepState::Done)
    }
}

impl SlmTable {
    /// Does one step of the sweep of the pool, if one is due. Returns whether it did.
    pub(in crate::engine::slm) fn sweep_pool(&self) -> Result<bool> {
        match &self.pool {
            Some(pool) if pool.is_sweep_due() => {
                pool.sweep_step(&self.write_buffer)?;
                self.context.host.wake();
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
