//! Index updates: the only code that changes values in the index.
//!
//! An [`IndexEdit`] is a durable run and the index values of its entries. A flush replaces any
//! previous value of a key. A compaction changes a value only if the index still points to the
//! entry that it copied, because a flush may have replaced it meanwhile. The change of the value
//! and of both runs' live counts happens inside the gate: a checkpoint has all of it or nothing.
//!
//! After each [`UPDATE_BATCH`] keys, their words in the location cache
//! ([`crate::engine::slm::location_cache`]) are invalidated.
//!
//! Thread rules: `index_writer` is held for [`UPDATE_BATCH`] keys at a time. Between the lookup of
//! a value and its change no other thread changes it, and flushes and compactions alternate.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use super::{
    index_key::IndexKey,
    index_value::{BLOCKS_MAX, BlockAddress, IndexValue},
    pool::index::{PoolIndex, UpdateBatch},
    run::{RunSet, SortedRun},
    table::SlmTable,
};
use crate::{
    Result,
    bptree::{checkpoint::CHANGE_PAGES, finger::Finger},
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{Mutex, lock},
    },
};

/// Number of keys that are updated before another flush or compaction may take the lock.
const UPDATE_BATCH: usize = 256;

/// Bytes of memory of an update with a key of 24 bytes.
const UPDATE_BYTES: u64 = 72;
/// Maximum number of updates of one run, if memory allows it.
const UPDATES_MAX: usize = 1 << 20;
/// Number of updates that one run may have with the minimum of memory.
const UPDATES_MIN: usize = 1 << 12;
/// The part of the memory budget that the updates of a flush or a merge take at most.
const MEMORY_PART: u64 = 16;
const _: () = assert!(UPDATES_MAX >> BLOCKS_MAX.trailing_zeros() == 0);

/// The change of one key's value in the index.
#[derive(Clone, Copy, Debug)]
struct IndexUpdate {
    /// End of the key in [`IndexUpdates::keys`].
    key_end: usize,
    /// Hash of the user key.
    hash: u64,
    /// The new value; `None` removes the key.
    to: Option<IndexValue>,
    /// The address that the index must still have; `None` applies the update unconditionally.
    from: Option<BlockAddress>,
}

/// Index updates, in key order.
#[derive(Debug, Default)]
pub(super) struct IndexUpdates {
    /// The keys as the index stores them, one after the other.
    keys: Vec<u8>,
    list: Vec<IndexUpdate>,
}

impl IndexUpdates {
    /// Appends an update of a key that is greater than the previous ones.
    pub(super) fn push(
        &mut self,
        (hash, key): (u64, IndexKey<'_>),
        to: Option<IndexValue>,
        from: Option<BlockAddress>,
    ) {
        self.keys.extend_from_slice(key.0);
        self.list.push(IndexUpdate { key_end: self.keys.len(), hash, to, from });
    }

    /// Returns the maximum number of updates of one run within this budget of memory.
    fn count_max(budget: u64) -> usize {
        to_usize(budget / (MEMORY_PART * 2 * UPDATE_BYTES)).clamp(UPDATES_MIN, UPDATES_MAX)
    }

    /// Estimates the memory of the updates of a flush or a merge of `keys` keys. Those of one run
    /// (of `run_keys` keys) are applied while those of the next one are collected.
    pub(super) fn memory_bytes(keys: u64, run_keys: u64, budget: u64) -> u64 {
        keys.min(run_keys * 2).min(to_u64(Self::count_max(budget)) * 2) * UPDATE_BYTES
    }

    /// Whether the updates have reached the limit of their memory within this budget.
    pub(super) fn is_full(&self, budget: u64) -> bool {
        self.list.len() >= Self::count_max(budget)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn hashes(&self, batch: Range<usize>) -> impl Iterator<Item = u64> + Clone {
        self.list.get(batch).unwrap_or(&[]).iter().map(|one| one.hash)
    }

    fn key(&self, index: usize) -> IndexKey<'_> {
        let end = self.list.get(index).map_or(0, |one| one.key_end);
        let before = index.checked_sub(1).and_then(|before| self.list.get(before));
        IndexKey(self.keys.get(before.map_or(0, |one| one.key_end)..end).unwrap_or(&[]))
    }
}

/// A run and the index updates that point to it.
#[derive(Debug)]
pub(super) struct IndexEdit {
    /// `None` if all updates remove keys.
    pub(super) run: Option<Arc<SortedRun>>,
    pub(super) updates: IndexUpdates,
}

impl Drop for IndexEdit {
    /// Applied or abandoned: no further update will point to the run.
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.seal();
        }
    }
}

/// Returns the next edit, or `None` at the end.
pub(super) type EditSource<'p> = dyn FnMut() -> Result<Option<IndexEdit>> + Send + 'p;

impl SlmTable {
    /// Applies all edits of a flush or a merge. Each is applied while the next one is produced.
    pub(super) fn apply_edits(&self, produce: &mut EditSource<'_>) -> Result<()> {
        let mut ready = produce()?;
        while let Some(edit) = ready.take() {
            let producer = Mutex::new(&mut *produce);
            let (next, applied) = (Mutex::new(None), Mutex::new(Ok(())));
            self.context.env.parallel(2, &|side| {
                if side == 0 {
                    let made = (*lock(&producer))();
                    *lock(&next) = Some(made);
                } else {
                    *lock(&applied) = self.apply_edit(&edit);
                }
            });
            let (next, applied) =
                (lock(&next).take(), std::mem::replace(&mut *lock(&applied), Ok(())));
            applied?;
            ready = next.transpose()?.flatten();
        }
        Ok(())
    }

    /// Applies one edit.
    fn apply_edit(&self, edit: &IndexEdit) -> Result<()> {
        let count = edit.updates.len();
        let (mut first, mut finger) = (0, Finger::default());
        while first < count {
            let last = (first + UPDATE_BATCH).min(count);
            let applied = {
                let _writing = lock(&self.index_writer);
                let view = self.write_buffer.view.load();
                match self.pool_index() {
                    Some(index) => self.apply_in_pool(index, edit, first..last, &view.version),
                    None => (first..last).try_for_each(|index| {
                        self.apply_update(&edit.updates, index, &view.version, &mut finger)
                    }),
                }
            };
            // Also after a failure: the keys before the failed one have changed.
            self.location_cache.invalidate(edit.updates.hashes(first..last));
            applied?;
            first = last;
        }
        Ok(())
    }

    /// Applies some updates to the index in the pool, as one step with the live counts.
    fn apply_in_pool(
        &self,
        index: &PoolIndex,
        edit: &IndexEdit,
        updates: Range<usize>,
        runs: &RunSet,
    ) -> Result<()> {
        // Before any value or count is read: those of an interrupted batch do not agree.
        self.finish_index_batch(index)?;
        let mut batch = UpdateBatch::default();
        let mut moved = Vec::new();
        for number in updates {
            let key = edit.updates.key(number);
            let Some(one) = edit.updates.list.get(number) else { break };
            let old = index.get(key)?.map(|index_value| index_value.address);
            let is_stale = one.from.is_some() && old != one.from;
            let is_absent = one.to.is_none() && old.is_none();
            if is_absent || mutant!(SlmMovesUnconditionally: false, else is_stale) {
                continue;
            }
            let find = |address: BlockAddress| {
                runs.find(address.run)
                    .ok_or_else(|| self.missing_run(self.keys.format(key), address))
            };
            let before = old.map(find).transpose()?;
            let after = one.to.map(|to| find(to.address)).transpose()?;
            let mut count = |run: &Arc<SortedRun>, change: i64| {
                let live = batch.counts.entry(run.number).or_insert_with(|| run.live());
                *live = live.saturating_add_signed(change);
            };
            after.inspect(|run| count(run, 1));
            before.inspect(|run| count(run, -1));
            batch.updates.push((key.0.to_vec(), one.to.map(IndexValue::to_word)));
            moved.push((before.zip(old), after.zip(one.to)));
        }
        self.with_pool_space(|| index.apply(&batch, |counts| set_live(runs, counts)))?;
        for (before, after) in moved {
            if let Some((run, address)) = before {
                let new = after.and_then(|(run, to)| run.sst.slot(to.address.block));
                self.cache.replace(run.sst.slot(address.block), new);
            }
        }
        Ok(())
    }

    /// Completes the batch of updates that a crash or a full pool has interrupted.
    pub(super) fn finish_index_batch(&self, index: &PoolIndex) -> Result<()> {
        mutant!(SlmPoolLeavesInterrupted => return Ok(()));
        let view = self.write_buffer.view.load_full();
        self.with_pool_space(|| index.finish_interrupted(|counts| set_live(&view.version, counts)))
    }

    /// Applies one update: changes the index and both live counts, and drops the old block from the
    /// block cache if the replaced entry was alone in it.
    fn apply_update(
        &self,
        updates: &IndexUpdates,
        index: usize,
        runs: &RunSet,
        finger: &mut Finger,
    ) -> Result<()> {
        let (key, Some(one)) = (updates.key(index), updates.list.get(index)) else { return Ok(()) };
        let tree = &self.paged.tree;
        self.paged.make_room(CHANGE_PAGES + tree.pages_for(key.0, size_of::<BlockAddress>()))?;
        let pass = self.paged.gate.enter(key.0);
        let old = self.locate_near(finger, key)?;
        let is_stale = one.from.is_some() && old != one.from;
        if mutant!(SlmMovesUnconditionally: false, else is_stale) {
            return Ok(());
        }
        let find = |address: BlockAddress| {
            runs.find(address.run).ok_or_else(|| self.missing_run(self.keys.format(key), address))
        };
        let (before, after) =
            (old.map(find).transpose()?, one.to.map(|to| find(to.address)).transpose()?);
        let change = match one.to {
            Some(to) => tree.put_by_finger(finger, key.0, &to.encode())?,
            None if mutant!(SlmForgetsDeletes: true, else old.is_none()) => return Ok(()),
            None => tree.delete(key.0, None)?,
        };
        after.inspect(|run| run.add_live());
        before.inspect(|run| run.remove_live());
        if let (Some(run), Some(address)) = (before, old) {
            let new = after.zip(one.to);
            let new = new.and_then(|(run, to)| run.sst.slot(to.address.block));
            self.cache.replace(run.sst.slot(address.block), new);
        }
        pass.add(change);
        Ok(())
    }
}

/// Sets the live counts of these runs.
fn set_live(runs: &RunSet, counts: &BTreeMap<u32, u64>) {
    for (number, live) in counts {
        runs.find(*number).inspect(|run| run.set_live(*live));
    }
}
