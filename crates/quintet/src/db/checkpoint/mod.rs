//! Checkpoint rounds: engines write to their files what only the log holds, the catalog records how
//! far each table is complete, and the log removes the segments that no table needs.
//!
//! Invariants:
//! - Rounds run one at a time, in the order of request. A thread that persists or compacts in a
//!   loop cannot starve a writer that needs a round. A round reads `up_to` (everything below is
//!   applied) before it looks at any table. So a table with nothing un-persisted is complete to
//!   `up_to`, and an idle table never holds the log.
//! - The log is durable to `up_to` before the catalog records that it starts there.
//! - If nothing is left to persist, the log moves to a small segment, and a second edit of the
//!   catalog advances its start.
//! - A round waits for no merge: an engine pauses a merge when [`Host::is_round_due`] returns
//!   true.
//! - The catalog records an engine's LSN only after the engine's files are durable to it, and
//!   records the log's new start before segments are removed.
//!
//! Locks: the round, then the `maintenance` of one table after the other; see `ARCHITECTURE.md`.
//!
//! [`Host::is_round_due`]: crate::contract::Host::is_round_due

use std::sync::Arc;

use super::{
    catalog::edit::Progress,
    core::{Core, TableState},
};
use crate::{
    Error, Result,
    contract::{Engine as _, MaintenanceMode, PendingWork},
    util::{
        codec::Lsn,
        mutant::{self, Bug, mutant},
        sync::{Ordering, lock, read},
    },
};

impl Core {
    /// Checkpoints these tables now, however little they lack.
    pub(crate) fn persist_tables(&self, tables: &[Arc<TableState>]) -> Result<()> {
        let _round = self.round.lock();
        self.persist_round(tables)
    }

    /// Checkpoints all tables now.
    pub(crate) fn persist_all(&self) -> Result<()> {
        let _round = self.round.lock();
        self.persist_whole_round()
    }

    /// Checkpoints all tables, unless another thread's round has meanwhile reduced the unpersisted
    /// log to at most `bytes`.
    pub(crate) fn persist_all_over(&self, bytes: u64) -> Result<()> {
        let _round = self.round.lock();
        if self.arrears(self.log.end()) <= bytes { Ok(()) } else { self.persist_whole_round() }
    }

    /// Returns the bytes of log since the last round over all tables. Equal to
    /// [`Core::unpersisted_bytes`], unless a failed table holds the log, in which case another
    /// round would not help.
    pub(crate) fn arrears(&self, end: Lsn) -> u64 {
        let last = self.round_end.load(Ordering::Relaxed);
        self.unpersisted_bytes(end).min(end.0.saturating_sub(last))
    }

    /// Returns whether a table's engine, or the length of the log, needs a round.
    pub(crate) fn is_anything_due(&self) -> bool {
        let wants = |table: &Arc<TableState>| {
            table.is_live()
                && matches!(
                    table.engine.pending_work(),
                    PendingWork::Checkpoint | PendingWork::Maintain
                )
        };
        self.arrears(self.log.end()) > self.recovery_budget / 2
            || read(&self.tables).values().any(wants)
    }

    fn persist_whole_round(&self) -> Result<()> {
        let up_to = self.log.applied();
        self.persist_round(&self.all_tables())?;
        self.round_end.fetch_max(up_to.0, Ordering::Relaxed);
        self.shared.round_due.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Maintains and checkpoints the tables whose engines need it, and all tables when much of the
    /// log is unpersisted.
    pub(crate) fn persist_due(&self) -> Result<()> {
        let _round = self.round.lock();
        let mut tables = self.all_tables();
        tables.retain(|table| table.is_live());
        let mut outcome = Ok(());
        // A writer that saw it due before the last round ended may have set it after.
        self.shared.round_due.store(false, Ordering::Relaxed);
        for table in &tables {
            if table.engine.pending_work() == PendingWork::Maintain {
                outcome = outcome.and(self.maintain(table, MaintenanceMode::Step));
            }
        }
        if self.arrears(self.log.end()) > self.recovery_budget / 2 {
            return outcome.and(self.persist_whole_round());
        }
        tables.retain(|table| table.engine.pending_work() == PendingWork::Checkpoint);
        if tables.is_empty() { outcome } else { outcome.and(self.persist_round(&tables)) }
    }

    /// Returns whether an engine has work for an idle time.
    pub(crate) fn wants_persist_later(&self) -> bool {
        self.all_tables()
            .iter()
            .any(|table| table.is_live() && table.engine.pending_work() == PendingWork::Later)
    }

    /// Compacts one table, and checkpoints it if the compaction leaves unwritten state.
    pub(crate) fn compact(&self, table: &Arc<TableState>) -> Result<()> {
        let _round = self.round.lock();
        self.maintain(table, MaintenanceMode::Full)?;
        if table.engine.pending_work() == PendingWork::Checkpoint {
            self.persist_round(std::slice::from_ref(table))?;
        }
        Ok(())
    }

    /// Adopts a table's sorted load, as a round of that table. `also` is checkpointed before it.
    pub(crate) fn adopt_load(
        &self,
        table: &TableState,
        also: Option<&Arc<TableState>>,
    ) -> Result<()> {
        let _round = self.round.lock();
        self.check_writable()?;
        let up_to = self.log.applied();
        self.log.sync()?;
        let mut progress = Progress::default();
        if let Some(also) = also {
            let _maintenance = lock(&also.maintenance);
            self.check_usable(also)?;
            let lsn = also.engine.checkpoint(up_to)?;
            also.note_persisted(lsn);
            progress.tables.push((also.id, lsn));
        }
        {
            let _maintenance = lock(&table.maintenance);
            self.check_usable(table)?;
            let mut load = lock(&table.load);
            let load = load.as_mut().ok_or(Error::Closed)?;
            let lsn = load.adopt(up_to)?;
            table.note_persisted(lsn);
            progress.tables.push((table.id, lsn));
        }
        self.advance_log(up_to, progress)
    }

    fn maintain(&self, table: &TableState, mode: MaintenanceMode) -> Result<()> {
        self.check_open()?;
        let _maintenance = lock(&table.maintenance);
        self.check_takes_writes(table)?;
        table.engine.maintain(mode)
    }

    /// Runs a round over `tables`. The caller holds `round`.
    fn persist_round(&self, tables: &[Arc<TableState>]) -> Result<()> {
        self.check_open()?;
        self.counters.persist_rounds.fetch_add(1, Ordering::Relaxed);
        let up_to = self.log.applied();
        if self.log.durable() < up_to {
            self.log.sync()?;
        }
        let mut outcome = Ok(());
        let mut progress = Progress::default();
        if mutant::active(Bug::CatalogRecordsCompleteEarly) {
            let tables = tables.iter().filter(|table| table.is_dirty());
            let tables = tables.map(|table| (table.id, up_to)).collect();
            self.catalog.progress(Progress { tables, ..Progress::default() })?;
        }
        for table in tables {
            // A table that fails does not keep the others from being checkpointed.
            match persist_table(table, up_to) {
                Ok(Some(lsn)) => progress.tables.push((table.id, lsn)),
                Ok(None) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        self.advance_log(up_to, progress)?;
        // True if no write came since the round began.
        if outcome.is_ok()
            && self.unpersisted_bytes(self.log.end()) == 0
            && self.log.move_to_small_segment()?
        {
            self.log.sync()?;
            self.advance_log(self.log.applied(), Progress::default())?;
            self.log.release_spares()?;
        }
        outcome
    }

    /// Records in the catalog how far tables are complete, and removes the log below `up_to` that
    /// no table needs.
    fn advance_log(&self, up_to: Lsn, mut progress: Progress) -> Result<()> {
        let log_start = self.needed_from(up_to);
        let advanced = log_start.0 > self.log_start.load(Ordering::Relaxed);
        if !advanced && progress.tables.is_empty() {
            return Ok(());
        }
        progress.log_start = log_start;
        progress.log_durable = self.log.durable();
        mutant!(PrunesBeforeCatalog => self.log.prune(log_start)?);
        self.catalog.progress(progress)?;
        self.note_catalog();
        self.log_start.fetch_max(log_start.0, Ordering::Relaxed);
        self.log.prune(log_start)
    }

    /// Returns the first LSN that some table still needs the log for, at most `up_to`.
    fn needed_from(&self, up_to: Lsn) -> Lsn {
        let needed = |table: &Arc<TableState>| {
            if table.is_dirty() { table.persisted().min(up_to) } else { up_to }
        };
        read(&self.tables).values().map(needed).min().unwrap_or(up_to)
    }

    /// Removes the files of dropped tables. The next open removes what a failure leaves.
    pub(crate) fn bury(&self) {
        let _round = self.round.lock();
        // After the close, another process may use the same numbers.
        if !self.is_closed() {
            self.bury_alone();
        }
    }

    /// As [`Core::bury`]. The caller holds `round`, and the database's lock is held.
    pub(crate) fn bury_alone(&self) {
        let doomed = std::mem::take(&mut *lock(&self.doomed));
        for table in &doomed {
            let _maintenance = lock(&table.maintenance);
            let _ = super::recovery::remove_tree(&self.tables_dir, &table.id.to_string());
        }
    }
}

/// Checkpoints a table. Returns the LSN that its files are complete to, if it has advanced.
fn persist_table(table: &TableState, up_to: Lsn) -> Result<Option<Lsn>> {
    let _maintenance = lock(&table.maintenance);
    let wanted = table.is_dirty() || table.engine.pending_work() == PendingWork::Checkpoint;
    if !table.is_live() || !wanted {
        return Ok(None);
    }
    let before = table.persisted();
    let lsn = table.engine.checkpoint(up_to)?;
    table.note_persisted(lsn);
    Ok((lsn > before).then_some(lsn))
}
