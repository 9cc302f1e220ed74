//! The index in the pool: a FAST & FAIR tree, the list of runs, and the log of updates.
//!
//! A batch of updates and the live counts after it are one step ([`update_log`]). So the index and
//! the counts agree whenever the pool is opened. No compaction log is needed: a merge that a crash
//! interrupts has moved whole batches, and its input runs keep their other live entries.
//!
//! Invariants:
//! - The list has a run before the index points to it, and the run's file and name are durable
//!   before that.
//! - A run leaves the list when it has no live entry and none will come. Its file is removed
//!   afterwards.
//!
//! Threads: lookups and scans take no lock. All changes hold `state`.

mod fast_fair;
mod run_records;
mod update_log;

use std::{collections::BTreeMap, sync::Arc};

pub(in crate::engine::slm) use self::update_log::UpdateBatch;
use self::{
    fast_fair::{FairTree, PUT_BYTES},
    run_records::RunRecords,
    update_log::UpdateLog,
};
use super::roots::TREE;
#[cfg(test)]
use crate::util::sync::{AtomicBool, Ordering};
use crate::{
    Error, Result,
    bptree::scan_forward::{EntryRun, ForwardScan},
    engine::slm::{index_key::IndexKey, index_value::IndexValue, run_list::RunList},
    pmem::{Marks, Pool, is_link, link, target},
    util::{
        codec::to_u64,
        format::LineSink,
        mutant::mutant,
        sync::{Mutex, MutexGuard, lock},
    },
};

/// What changes of the index need.
#[derive(Debug)]
pub(super) struct IndexState {
    log: UpdateLog,
    records: RunRecords,
    /// The batch that is in the log and not wholly in the index: the pool was full, or a crash came
    /// and the pool is full until it is swept. The counts are those before it.
    pending: Option<UpdateBatch>,
}

/// The index in the pool. See the module head.
#[derive(Debug)]
pub(in crate::engine::slm) struct PoolIndex {
    pool: Arc<Pool>,
    pub(super) tree: FairTree,
    state: Mutex<IndexState>,
    /// The list of runs at opening.
    opened: RunList,
    /// Batches are begun although the pool may lack the space for them.
    #[cfg(test)]
    assumes_space: AtomicBool,
}

impl PoolIndex {
    /// Opens the index, and completes the batch that a crash interrupted; creates it unless
    /// `is_made`. Reads only what that batch concerns. If the pool has no space before its sweep,
    /// the batch is left to [`finish_interrupted`](Self::finish_interrupted). Fails with
    /// `Corruption`, and a creation with `DiskFull`.
    pub(super) fn open(pool: &Arc<Pool>, is_made: bool) -> Result<Self> {
        if !is_made {
            let tree = FairTree::create(pool)?;
            pool.publish(Pool::root_at(TREE), link(tree.root()));
            let mut records = RunRecords::default();
            records.replace(pool, RunList::default())?;
            let state = IndexState { log: UpdateLog::create(pool)?, records, pending: None };
            return Ok(Self::new(pool, tree, state, RunList::default()));
        }
        let (records, mut list) = RunRecords::open(pool)?;
        let (log, pending) = UpdateLog::open(pool)?;
        let updates = pending.iter().flat_map(|batch| &batch.updates);
        let changed: Vec<&[u8]> = updates.map(|(key, _)| key.as_slice()).collect();
        let tree = open_tree(pool, &changed)?;
        let state = IndexState { log, records, pending };
        let mut index = Self::new(pool, tree, state, RunList::default());
        let finished = index.finish_interrupted(|counts| {
            for (run, count) in counts {
                if let Some(record) = list.runs.iter_mut().find(|record| record.number == *run) {
                    record.live = *count;
                }
            }
        });
        match finished {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) if mutant!(SlmPoolOpensSwept: false, else true) => {}
            Err(error) => return Err(error),
        }
        index.tree.set_keys(list.runs.iter().map(|run| run.live).sum());
        index.opened = list;
        Ok(index)
    }

    fn new(pool: &Arc<Pool>, tree: FairTree, state: IndexState, opened: RunList) -> Self {
        Self {
            pool: Arc::clone(pool),
            tree,
            state: Mutex::new(state),
            opened,
            #[cfg(test)]
            assumes_space: AtomicBool::new(false),
        }
    }

    /// Begins batches although the pool may lack the space for them.
    #[cfg(test)]
    pub(in crate::engine::slm) fn assume_space(&self, assumes: bool) {
        self.assumes_space.store(assumes, Ordering::Relaxed);
    }

    /// Whether a batch is begun and not completed.
    #[cfg(test)]
    pub(in crate::engine::slm) fn is_interrupted(&self) -> bool {
        lock(&self.state).pending.is_some()
    }

    fn has_space(&self, bytes: u64) -> bool {
        #[cfg(test)]
        if self.assumes_space.load(Ordering::Relaxed) {
            return true;
        }
        self.pool.has_space(bytes)
    }

    /// Returns the list of runs at opening.
    pub(in crate::engine::slm) const fn opened_list(&self) -> &RunList {
        &self.opened
    }

    /// Returns the name of the pool's file, for messages.
    pub(in crate::engine::slm) fn label(&self) -> &str {
        self.pool.label()
    }

    /// Returns the index value of a key.
    #[inline]
    pub(in crate::engine::slm) fn get(&self, key: IndexKey<'_>) -> Result<Option<IndexValue>> {
        Ok(self.tree.get(key.0)?.map(IndexValue::of_word))
    }

    /// Copies about `limit` entries from the start of a scan on, as the tree of pages does.
    pub(in crate::engine::slm) fn scan_forward(
        &self,
        scan: &mut ForwardScan,
        limit: usize,
        out: &mut EntryRun,
    ) -> Result<()> {
        out.clear();
        let found = self.tree.scan_up(&scan.start, scan.end.as_deref(), limit)?;
        found.entries.iter().for_each(|(key, word)| out.push(key, &word.to_le_bytes()));
        match found.next {
            Some(next) => scan.start = next,
            None => scan.is_over = true,
        }
        Ok(())
    }

    /// Copies about `limit` entries below the end of a scan, descending. The scan then ends below
    /// the last of them.
    pub(in crate::engine::slm) fn scan_reverse(
        &self,
        scan: &mut ForwardScan,
        limit: usize,
        out: &mut EntryRun,
    ) -> Result<()> {
        out.clear();
        let found = self.tree.scan_down(&scan.start, scan.end.as_deref(), limit)?;
        found.entries.iter().for_each(|(key, word)| out.push(key, &word.to_le_bytes()));
        match found.next {
            Some(next) => scan.end = Some(next),
            None => scan.is_over = true,
        }
        Ok(())
    }

    /// Returns about how many of `total` keys are in a range.
    pub(in crate::engine::slm) fn estimate(
        &self,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        total: u64,
    ) -> Result<u64> {
        self.tree.estimate(start, end, total)
    }

    /// Completes the batch that a crash or a full pool has interrupted, if there is one: as
    /// [`apply`](Self::apply). Values of the index and counts of runs agree afterwards.
    pub(in crate::engine::slm) fn finish_interrupted(
        &self,
        mut show: impl FnMut(&BTreeMap<u32, u64>),
    ) -> Result<()> {
        let mut state = lock(&self.state);
        if state.pending.is_some() {
            self.finish_pending(&mut state, &mut show)?;
            // An opening did not know how much of the batch is in the tree.
            self.tree.set_keys(state.records.live(&self.pool));
        }
        Ok(())
    }

    /// Applies a batch: the updates and the live counts after them are persistent on return.
    /// Passes the counts to `show` before the list of runs can be replaced. The caller has
    /// completed an interrupted batch before it computed this one, and keeps others from applying.
    ///
    /// Fails with `DiskFull` if the pool lacks the space for all of it; nothing has changed then.
    pub(in crate::engine::slm) fn apply(
        &self,
        batch: &UpdateBatch,
        mut show: impl FnMut(&BTreeMap<u32, u64>),
    ) -> Result<()> {
        let mut state = lock(&self.state);
        self.finish_pending(&mut state, &mut show)?;
        let bytes = |(key, _): &(Vec<u8>, Option<u64>)| PUT_BYTES + 3 * to_u64(key.len());
        // Twice: an opening repeats the batch, and has not swept what a crash has left of it.
        let needed = 2 * batch.updates.iter().map(bytes).sum::<u64>();
        if !self.has_space(needed) {
            return Err(self.full(needed));
        }
        mutant!(SlmPoolSkipsUpdateLog: (), else state.log.begin(&self.pool, batch)?);
        state.pending = Some(batch.clone());
        self.finish_pending(&mut state, &mut show)
    }

    fn full(&self, needed: u64) -> Error {
        let doing = format!(
            "find {needed} bytes for the index in {}: a larger pmem_bytes, in a new table, helps",
            self.pool.label()
        );
        Error::DiskFull { doing }
    }

    /// Brings the batch in the log to the index and the counts. Every step may be repeated.
    fn finish_pending(
        &self,
        state: &mut IndexState,
        show: &mut dyn FnMut(&BTreeMap<u32, u64>),
    ) -> Result<()> {
        let Some(batch) = &state.pending else { return Ok(()) };
        for (key, value) in &batch.updates {
            match value {
                Some(value) => self.tree.put(key, *value)?,
                None => self.tree.delete(key)?,
            };
        }
        mutant!(SlmPoolForgetsLive: (), else state.records.set_counts(&self.pool, &batch.counts));
        mutant!(SlmPoolSkipsUpdateLog: (), else state.log.end(&self.pool));
        show(&batch.counts);
        state.pending = None;
        Ok(())
    }

    /// Replaces the list of runs by the one that `list` returns while no batch is applied.
    /// Persistent on return.
    pub(in crate::engine::slm) fn replace_list(
        &self,
        list: impl FnOnce() -> RunList,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        if state.pending.is_some() {
            // The counts in memory are those before the batch that failed.
            return Err(self.full(0));
        }
        state.records.replace(&self.pool, list())
    }

    /// Keeps other threads from changing the index.
    pub(super) fn exclusive(&self) -> MutexGuard<'_, IndexState> {
        lock(&self.state)
    }

    /// Marks the list of runs and the log for a sweep.
    pub(super) fn mark_lists(&self, state: &IndexState, marks: &mut Marks<'_>) -> Result<()> {
        state.records.mark(&self.pool, marks)?;
        state.log.mark(&self.pool, marks)
    }

    /// Verifies the tree. Fails with `Corruption`. Returns the number of keys.
    pub(in crate::engine::slm) fn check(&self) -> Result<u64> {
        let _exclusive = self.exclusive();
        self.tree.check()
    }
}

/// Opens the tree that the pool's root links to, and repairs the nodes of the keys `changed`.
fn open_tree(pool: &Arc<Pool>, changed: &[&[u8]]) -> Result<FairTree> {
    let word = pool.root(TREE);
    if !is_link(word) || word == 0 {
        return Err(pool.damage(Pool::root_at(TREE), "the link to the index is damaged"));
    }
    FairTree::open_at(pool, target(word), changed)
}

/// Passes a description of the runs, the log of updates and the tree to `say`. Fails with
/// `Corruption` at the first part that is damaged. The pool must be a copy.
pub(super) fn describe(pool: &Arc<Pool>, say: &mut LineSink<'_>) -> Result<()> {
    let (_, list) = RunRecords::open(pool)?;
    say(&format!("runs: {}", list.runs.len()));
    for run in &list.runs {
        let (number, bytes, live) = (run.number, run.file_bytes, run.live);
        if !say(&format!("  run {number}: {bytes} bytes, {live} live entries")) {
            return Ok(());
        }
    }
    let (_, pending) = UpdateLog::open(pool)?;
    let updates = pending.map_or(0, |batch| batch.updates.len());
    say(&format!("log of index updates: {updates} updates of an interrupted batch"));
    // Without keys to repair: opening completes an interrupted change, a description does not.
    let shape = open_tree(pool, &[])?.shape()?;
    say(&format!("index: height {}, {} nodes, {} entries", shape.levels, shape.nodes, shape.keys));
    Ok(())
}
