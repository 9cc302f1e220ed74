//! Persisting: engines write what the log alone holds, the catalog records it, the log lets go of
//! it.
//!
//! Invariants:
//! - One round at a time, in the order in which they were asked for: who persists or compacts in a
//!   loop keeps no writer waiting that needs a round itself. It takes `up_to` (everything below is
//!   applied) before it looks at any table, so a table with nothing un-persisted is complete to
//!   `up_to`: an idle table never holds the log.
//! - The log is durable to `up_to` before the catalog says that it starts there.
//! - Where nothing is left to be persisted, the log rests: it moves to a small segment, and its
//!   start moves on with a second edit of the catalog.
//! - A round waits for no merge: an engine pauses one where [`Host::is_round_due`](
//!   crate::contract::Host::is_round_due) says so.
//! - The catalog records an engine's LSN only after the engine's files are durable to it, and
//!   names the log's new start before segments go.

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
        mutant::{self, Bug},
        sync::{Ordering, lock, read},
    },
};

impl Core {
    /// Persists these tables now, however little they lack.
    pub(super) fn persist_tables(&self, tables: &[Arc<TableState>]) -> Result<()> {
        let _round = self.round.lock();
        self.persist_round(tables)
    }

    /// Persists all tables now.
    pub(super) fn persist_all(&self) -> Result<()> {
        let _round = self.round.lock();
        self.persist_whole_round()
    }

    /// Persists all tables, unless somebody else has meanwhile: at most `bytes` of log are in
    /// arrears.
    pub(super) fn persist_all_over(&self, bytes: u64) -> Result<()> {
        let _round = self.round.lock();
        if self.arrears(self.log.end()) <= bytes { Ok(()) } else { self.persist_whole_round() }
    }

    /// Bytes of log since the last round over all tables. As [`Core::unpersisted_bytes`], unless a
    /// table that has stopped holds the log: another round would not help then.
    pub(super) fn arrears(&self, end: Lsn) -> u64 {
        let last = self.round_end.load(Ordering::Relaxed);
        self.unpersisted_bytes(end).min(end.0.saturating_sub(last))
    }

    /// Whether a table's engine, or the log's length, asks for a round.
    pub(super) fn is_anything_due(&self) -> bool {
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

    /// Persists the tables whose engines ask for it, and all when much log is un-persisted.
    pub(super) fn persist_due(&self) -> Result<()> {
        let _round = self.round.lock();
        let mut tables = self.all_tables();
        tables.retain(|table| table.is_live());
        let mut outcome = Ok(());
        // Who saw that before the last round ended may have said so after it.
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

    /// Whether an engine has work for when the writers rest.
    pub(super) fn wants_persist_later(&self) -> bool {
        self.all_tables()
            .iter()
            .any(|table| table.is_live() && table.engine.pending_work() == PendingWork::Later)
    }

    /// Compacts one table, and writes what that leaves to be written.
    pub(super) fn compact(&self, table: &Arc<TableState>) -> Result<()> {
        let _round = self.round.lock();
        self.maintain(table, MaintenanceMode::Full)?;
        if table.engine.pending_work() == PendingWork::Checkpoint {
            self.persist_round(std::slice::from_ref(table))?;
        }
        Ok(())
    }

    /// Adopts a table's load, as a round of persisting that table. `also` is persisted before.
    pub(super) fn adopt_load(
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

    /// The caller holds `round`.
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
            // One table that fails does not keep the others from being persisted.
            match persist_table(table, up_to) {
                Ok(Some(lsn)) => progress.tables.push((table.id, lsn)),
                Ok(None) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        self.advance_log(up_to, progress)?;
        // Whether nobody has written since the round began.
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

    /// Records what is complete now, and has the log let go of what nobody needs of what is below
    /// `up_to`.
    fn advance_log(&self, up_to: Lsn, mut progress: Progress) -> Result<()> {
        let log_start = self.needed_from(up_to);
        let advanced = log_start.0 > self.log_start.load(Ordering::Relaxed);
        if !advanced && progress.tables.is_empty() {
            return Ok(());
        }
        progress.log_start = log_start;
        progress.log_durable = self.log.durable();
        if mutant::active(Bug::PrunesBeforeCatalog) {
            self.log.prune(log_start)?;
        }
        self.catalog.progress(progress)?;
        self.note_catalog();
        self.log_start.fetch_max(log_start.0, Ordering::Relaxed);
        self.log.prune(log_start)
    }

    /// The first LSN that some table still needs the log for, at most `up_to`.
    fn needed_from(&self, up_to: Lsn) -> Lsn {
        let needed = |table: &Arc<TableState>| {
            if table.is_dirty() { table.persisted().min(up_to) } else { up_to }
        };
        read(&self.tables).values().map(needed).min().unwrap_or(up_to)
    }

    /// Removes the files of tables that were dropped. What is left over, the next open removes.
    pub(super) fn bury(&self) {
        let _round = self.round.lock();
        // Once closed, the numbers may be another process's.
        if !self.is_closed() {
            self.bury_alone();
        }
    }

    /// The caller holds `round`, and the database's lock is held.
    pub(super) fn bury_alone(&self) {
        let doomed = std::mem::take(&mut *lock(&self.doomed));
        for table in &doomed {
            let _maintenance = lock(&table.maintenance);
            let _ = super::recovery::remove_tree(&self.tables_dir, &table.id.to_string());
        }
    }
}

/// What the table's files are complete to now, if that has changed.
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
