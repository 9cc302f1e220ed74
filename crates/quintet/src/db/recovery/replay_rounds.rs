//! Checkpoint rounds while the log is replayed as writes: they free the log that tables no longer
//! need.
//!
//! Problem: on a full disk most of the data may be in the log. What does not fit in memory goes to
//! the tables' files, and needs the space that the log takes.
//!
//! How: an opening that meets a full disk is repeated in steps ([`STEPS_BYTES`]). After each step
//! of the log, all open tables are checkpointed, the catalog records the new start of the log, and
//! the segments below it are removed. So a step needs space for its own operations only, and frees
//! about as much. An opening with enough space has no rounds: the first checkpoint afterwards
//! writes each page once.
//!
//! Invariants:
//! - A round runs between two records: everything below `up_to` is applied, and nothing above it.
//! - The order is that of [`crate::db::checkpoint`]: log durable, files durable, catalog durable,
//!   segments removed. So an opening that fails or dies after a round loses nothing, and the next
//!   one continues there.
//! - A table that replay has not opened has no record between the LSN that the catalog has for it
//!   and `up_to`.
//! - A full disk does not end replay: the round is tried again after the next step.
//!
//! Threads: the opening thread alone.

use super::target::ReplayTarget;
use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind},
    db::{
        catalog::{Catalog, edit::Progress, tree::CatalogTree},
        tables::{loader::TableLoader, state::TableState},
    },
    util::{codec::Lsn, mutant::mutant, sync::lock},
    wal::Log,
};

/// Bytes of log between two rounds of the attempts to open a database on a full disk. A round costs
/// some ten syncs, so the first attempt has few.
pub(super) const STEPS_BYTES: [u64; 2] = [4 << 20, 512 << 10];
/// Free space with which an attempt in the smallest steps goes on: a step takes a few times its
/// size in the files of some engines.
const NEEDED_BYTES: u64 = 6 << 20;

/// How much of the log is replayed before tables are checkpointed.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplayPace {
    /// All of it. Engines write what does not fit in memory.
    ByMemory,
    /// This many bytes.
    Steps(u64),
}

impl ReplayPace {
    /// Returns the bytes of log that are replayed between two rounds, and before the first one.
    pub(super) const fn step_bytes(self) -> u64 {
        match self {
            Self::ByMemory => u64::MAX,
            Self::Steps(bytes) => bytes,
        }
    }
}

/// What the rounds of a replay need. See the module documentation.
pub(super) struct ReplayRounds<'t, 'a> {
    target: &'t ReplayTarget<'a>,
    loader: &'t TableLoader,
    catalog: &'t Catalog,
    log: &'t Log,
    step_bytes: u64,
    /// A round is due at the first record at or behind this LSN.
    next: Lsn,
}

impl<'t, 'a> ReplayRounds<'t, 'a> {
    /// Returns the rounds of a replay that continues at `start`, after its first step.
    pub(super) fn new(
        (target, loader): (&'t ReplayTarget<'a>, &'t TableLoader),
        catalog: &'t Catalog,
        (log, start): (&'t Log, Lsn),
        pace: ReplayPace,
    ) -> Self {
        let step_bytes = pace.step_bytes();
        let next = if step_bytes == u64::MAX { Lsn(u64::MAX) } else { start };
        Self { target, loader, catalog, log, step_bytes, next }
    }

    /// Returns whether a round is due before the record at `lsn`.
    pub(super) fn is_due(&self, lsn: Lsn) -> bool {
        lsn >= self.next
    }

    /// Runs a round. Every record below `up_to` is applied.
    pub(super) fn run(&mut self, up_to: Lsn) -> Result<()> {
        self.next = Lsn(up_to.0.saturating_add(self.step_bytes));
        mutant!(ReplayKeepsLog => return Ok(()));
        match self.checkpoint(up_to) {
            Err(Error::DiskFull { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Checkpoints the tables, records that in the catalog, and removes the log that no table
    /// needs. A table whose checkpoint lacks space keeps its log.
    fn checkpoint(&self, up_to: Lsn) -> Result<()> {
        self.log.sync()?;
        let mut progress = Progress::default();
        let mut log_start = up_to;
        for table in self.target.open_tables() {
            if let Some(lsn) = checkpoint_table(table, up_to)? {
                progress.tables.push((table.id, lsn));
            }
            let needed = mutant!(ReplayForgetsTables: up_to, else table.needed_from(up_to));
            log_start = log_start.min(needed);
        }
        let recorded = self.catalog.with_tree(CatalogTree::log_bounds).0;
        if log_start <= recorded && progress.tables.is_empty() {
            return Ok(());
        }
        progress.log_start = log_start.max(recorded);
        progress.log_durable = self.log.durable();
        self.loader.sync_directories()?;
        self.catalog.progress(progress)?;
        self.log.record_catalog_edit(self.catalog.edits());
        self.log.prune(log_start)?;
        // Writers have new files made. Kept ones would take the space that the next round needs.
        self.log.release_spares()
    }
}

/// Checkpoints a table as [`TableState::checkpoint`] does, if that is worth it and has the space.
fn checkpoint_table(table: &TableState, up_to: Lsn) -> Result<Option<Lsn>> {
    let _maintenance = lock(&table.maintenance);
    // A checkpoint of `naive` writes the whole table: only after as much log as that.
    let is_late = table.kind != EngineKind::Naive
        || up_to.0.saturating_sub(table.persisted().0) >= table.engine.stats().live_bytes;
    if !is_late {
        return Ok(None);
    }
    match table.checkpoint(up_to) {
        Err(Error::DiskFull { .. }) => Ok(None),
        outcome => outcome,
    }
}

/// Adds to the error of a full disk how much of the log is left, and what it needs.
pub(super) fn explain_full_disk(error: Error, (catalog, log): (&Catalog, &Log)) -> Error {
    let Error::DiskFull { doing } = error else { return error };
    let start = catalog.with_tree(CatalogTree::log_bounds).0;
    let left = log.end().0.saturating_sub(start.0);
    let doing = format!(
        "replay {left} bytes of the log, which memory_budget cannot hold: {doing}; about \
         {NEEDED_BYTES} free bytes, or a larger memory_budget, are needed"
    );
    Error::DiskFull { doing }
}
