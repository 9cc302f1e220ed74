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

use super::{slm_pool::SlmPool, sweep_state::PoolSweep};
use crate::{
    Result,
    engine::slm::run::RunSet,
    lsm::write_buffer::WriteBuffer,
    pmem::SlabSweep,
    util::{mutant::mutant, sync::lock},
};

/// Number of leaves that one step marks. Writers of the index wait for it: about a millisecond.
const STEP_LEAVES: usize = if cfg!(test) { 4 } else { 2048 };

impl SlmPool {
    /// Whether the sweep has something left to do.
    pub(in crate::engine::slm) fn is_sweep_due(&self) -> bool {
        !matches!(*lock(&self.sweep), PoolSweep::Done)
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
        *place = match std::mem::replace(&mut *place, PoolSweep::Due) {
            PoolSweep::Due => self.mark_inner()?,
            PoolSweep::Leaves(sweep, from) => self.mark_leaves(sweep, &from)?,
            PoolSweep::Rest(sweep) => self.mark_rest(sweep, write_buffer)?,
            PoolSweep::Done => PoolSweep::Done,
        };
        Ok(())
    }

    fn mark_inner(&self) -> Result<PoolSweep> {
        let Some(index) = &self.index else {
            return Ok(PoolSweep::Rest(self.pool.begin_sweep()));
        };
        let _exclusive = index.exclusive();
        let mut sweep = self.pool.begin_sweep();
        self.pool.mark(&mut sweep, |marks| index.tree.mark_inner(marks))?;
        mutant!(PmemSweepFreesReachable => return Ok(PoolSweep::Rest(sweep)));
        Ok(PoolSweep::Leaves(sweep, Vec::new()))
    }

    fn mark_leaves(&self, mut sweep: SlabSweep, from: &[u8]) -> Result<PoolSweep> {
        let Some(index) = &self.index else { return Ok(PoolSweep::Rest(sweep)) };
        let _exclusive = index.exclusive();
        let mut next = None;
        self.pool.mark(&mut sweep, |marks| {
            next = index.tree.mark_leaves(marks, from, STEP_LEAVES)?;
            Ok(())
        })?;
        Ok(match next {
            Some(next) => PoolSweep::Leaves(sweep, next),
            None => PoolSweep::Rest(sweep),
        })
    }

    fn mark_rest(
        &self,
        mut sweep: SlabSweep,
        write_buffer: &WriteBuffer<RunSet>,
    ) -> Result<PoolSweep> {
        // Held until the end: otherwise objects that wait to be freed could be allocated again.
        let state = self.index.as_ref().map(|index| index.exclusive());
        if let (Some(index), Some(state)) = (&self.index, &state) {
            self.pool.mark(&mut sweep, |marks| index.mark_lists(state, marks))?;
            index.tree.free_unlinked()?;
        }
        write_buffer.mark_memtables(&self.pool, &mut sweep)?;
        self.pool.end_sweep(sweep);
        Ok(PoolSweep::Done)
    }
}
