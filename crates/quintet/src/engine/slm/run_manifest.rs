//! The manifest: all runs that have a file, and their part in checkpoints of the index.
//!
//! At each checkpoint the manifest writes the list of runs with live state into the index
//! ([`super::run_list`]). So one group of the redo journal has index, list and live counts.
//!
//! Invariant: the list leaves out a run whose entries are all dead and to which no later index
//! update will point. Its file is removed once that checkpoint is durable. No other file is
//! removed.
//!
//! Thread rules: one lock, the last but one in the lock order of the table.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, sync::Arc};

use super::{
    index_key::{Coding, IndexKeyCodec, LIST_KEY},
    mutants,
    run::{RunSet, SortedRun},
    run_list::{RunList, RunRecord},
};
use crate::{
    Error, Result,
    bptree::{CountChange, Tree, checkpoint::CheckpointParticipant},
    lsm::sst::SstOwner,
    util::{
        mutant::mutant,
        sync::{AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
};

/// The mutable state of the manifest.
#[derive(Debug, Default)]
struct ManifestState {
    /// Every run that has a file, by number.
    runs: BTreeMap<u32, Arc<SortedRun>>,
    /// Numbers of the dead runs that the list of the newest checkpoint leaves out. That checkpoint
    /// may not be durable yet.
    omitted_runs: Vec<u32>,
    /// Numbers of the runs that the newest durable list leaves out: their files can be removed.
    removable_runs: Vec<u32>,
    /// The name of a run's file may not be durable yet.
    has_new_names: bool,
}

/// The manifest of a table's runs. It takes part in each checkpoint of the index.
#[derive(Debug)]
pub(super) struct RunManifest {
    owner: SstOwner,
    state: Mutex<ManifestState>,
    /// The number of the next run.
    next: AtomicU64,
    /// How the index stores keys. Unset until [`Self::load`].
    keys: OnceLock<Arc<IndexKeyCodec>>,
}

impl RunManifest {
    /// Creates an empty manifest.
    pub(super) fn new(owner: SstOwner) -> Self {
        let (state, keys) = Default::default();
        Self { owner, state, next: AtomicU64::new(1), keys }
    }

    /// Fills the manifest with the runs that opening has found.
    pub(super) fn load(&self, next: u32, runs: &RunSet, keys: &Arc<IndexKeyCodec>) {
        let _ = self.keys.set(Arc::clone(keys));
        self.next.store(u64::from(next).max(1), Ordering::Relaxed);
        lock(&self.state).runs = runs.iter().map(|run| (run.number, Arc::clone(run))).collect();
    }

    /// Allocates a run number. Fails with `Limit` after 2^32 runs.
    pub(super) fn next_number(&self) -> Result<u32> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let what = "the table has used all 2^32 run numbers; copy it to a new table";
        u32::try_from(number).map_err(|_| Error::Limit { what: what.to_owned() })
    }

    /// Adds a run whose file is complete.
    pub(super) fn add(&self, run: &Arc<SortedRun>) {
        let mut state = lock(&self.state);
        state.runs.insert(run.number, Arc::clone(run));
        state.has_new_names = true;
    }

    /// Whether the next checkpoint drops a run.
    pub(super) fn has_dead(&self) -> bool {
        lock(&self.state).runs.values().any(|run| run.is_dead())
    }

    /// Returns the list of runs for the pool, with the runs whose live entries are still to come.
    /// Leaves the dead runs out, and adds their numbers to `omitted`.
    pub(super) fn pool_list(&self, omitted: &mut Vec<u32>) -> RunList {
        let state = lock(&self.state);
        let mut runs = Vec::new();
        for run in state.runs.values() {
            if run.is_dead() {
                omitted.push(run.number);
                continue;
            }
            let (live, reasons, file_bytes) = (run.live(), run.reasons(), run.sst.file_bytes);
            runs.push(RunRecord { number: run.number, file_bytes, live, reasons });
        }
        let next = u32::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let coding = self.keys.get().map_or(Coding::Open, |keys| keys.coding());
        RunList { next, runs, coding }
    }

    /// Notes that the durable list leaves these runs out: their files can be removed.
    pub(super) fn add_removable(&self, omitted: Vec<u32>) {
        let mut state = lock(&self.state);
        for number in omitted {
            if !state.removable_runs.contains(&number) {
                state.removable_runs.push(number);
            }
        }
    }

    /// Removes the runs that the newest durable list leaves out, and returns their numbers.
    pub(super) fn remove_unlisted(&self) -> Vec<u32> {
        let mut state = lock(&self.state);
        let removed = std::mem::take(&mut state.removable_runs);
        for number in &removed {
            state.runs.remove(number);
        }
        removed
    }
}

impl CheckpointParticipant for RunManifest {
    fn join(&self, tree: &Tree) -> Result<CountChange> {
        let mut state = lock(&self.state);
        let (mut omitted_runs, mut runs) = (Vec::new(), Vec::new());
        for run in state.runs.values() {
            let (live, reasons) = (run.live(), run.reasons());
            if live > 0 {
                let file_bytes = run.sst.file_bytes;
                runs.push(RunRecord { number: run.number, file_bytes, live, reasons });
            } else if run.is_dead() {
                omitted_runs.push(run.number);
            }
        }
        let next = u32::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let coding = self.keys.get().map_or(Coding::Open, |keys| keys.coding());
        let coding = mutant!(SlmForgetsKeyCode: mutants::without_code(coding), else coding);
        let list = RunList { next, runs, coding }.encode();
        mutant!(SlmRemovesRunsEarly => mutants::remove_runs(&self.owner, &omitted_runs));
        state.omitted_runs = omitted_runs;
        let is_empty = state.runs.is_empty();
        mutant!(SlmCutsWithoutList => if !is_empty { return Ok(CountChange::default()); });
        tree.put(LIST_KEY, [&list, &[]], None)
    }

    fn make_durable(&self) -> Result<()> {
        let has_new_names = std::mem::take(&mut lock(&self.state).has_new_names);
        if mutant!(SlmSkipsDirSync: true, else !has_new_names) {
            return Ok(());
        }
        let synced = self.owner.dir.sync();
        synced.map_err(|error| {
            lock(&self.state).has_new_names = true;
            Error::io(format!("sync {}", self.owner.label("")), error)
        })
    }

    fn on_durable(&self) {
        let omitted_runs = std::mem::take(&mut lock(&self.state).omitted_runs);
        self.add_removable(omitted_runs);
    }
}
