//! Checkpoint rounds. Engines write to their files what only the log holds. The catalog records how
//! far each table is complete. The log removes the segments that no table needs.
//!
//! A round of all tables:
//! 1. `up_to` is the LSN below which every record is applied. The log is synced to it.
//! 2. Each table checkpoints, under its `maintenance` lock, and returns the LSN that its files are
//!    complete to.
//! 3. One edit of the catalog records these LSNs and the new start of the log.
//! 4. The log removes the segments below its new start.
//! 5. If no table lacks anything, the log moves to a small segment, and a second edit advances its
//!    start.
//!
//! Invariants:
//! - Rounds run one at a time, in the order of request. A thread that persists or compacts in a
//!   loop cannot starve a writer that needs a round.
//! - A round reads `up_to` before it looks at any table. So a table with nothing unpersisted is
//!   complete to `up_to`, and an idle table never holds the log.
//! - The log is durable to `up_to` before the catalog records that it starts there.
//! - A round waits for no merge: an engine pauses a merge when [`Host::is_round_due`] returns
//!   true.
//! - A checkpoint or compaction that meets a full disk is tried again with the space that is kept
//!   for it ([`full_disk`]).
//! - A checkpoint that lacks file descriptors closes tables that nothing uses, and is tried again.
//! - The catalog records an engine's LSN only after the engine's files are durable to it, and
//!   records the log's new start before segments are removed.
//!
//! - What a checkpoint has completed is in the catalog before another edit removes the log for it:
//!   `advancing` is held between the two.
//!
//! Tables in persistent memory are complete without a checkpoint. After a sync of the log, one edit
//! of the catalog records that and shortens the log ([`CheckpointScheduler::note_durable`]), also
//! while a table is maintained.
//!
//! Locks: the round, `advancing`, then the `maintenance` of one table after the other; see
//! `ARCHITECTURE.md`.
//!
//! [`Host::is_round_due`]: crate::contract::Host::is_round_due

mod full_disk;
mod mutants;
mod periodic;
pub(crate) mod space_reserve;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use periodic::PeriodicRounds;
use space_reserve::SpaceReserve;

use super::{
    catalog::edit::Progress,
    tables::{host::DatabaseHost, registry::TableRegistry, state::TableState},
};
use crate::{
    Error, Result,
    contract::{Engine as _, MaintenanceMode, PendingWork},
    io::{Env, write_throttle::brake},
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{
            AtomicU64, CachePadded, Mutex, Ordering, fair_mutex::FairMutex, lock,
            shared_work::SharedWork,
        },
        timed_counter::TimedCounter,
    },
    wal::Log,
};

/// Writes are delayed in the last one of this many parts of the recovery budget.
const DELAY_SHARE: u64 = 4;
/// Minimum size in bytes of that part. A smaller one is persisted too soon for delays to help.
const DELAY_BYTES_MIN: u64 = 1 << 20;
/// Pause between two rounds for lack of space.
pub(crate) const SPACE_ROUND_PAUSE: Duration = Duration::from_secs(1);
/// Without a round, the log is shortened by at least one part in this many of the recovery budget.
/// Opening reads about so much log of tables that are always complete.
const SHORTENED_SHARE: u64 = 32;

/// When all tables are checkpointed, at the latest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointLimits {
    /// Bound of the log that opening replays, in bytes.
    pub(crate) recovery_budget: u64,
    /// Time between two rounds of tables with unpersisted updates. Zero: no bound.
    pub(crate) interval: Duration,
}

/// Decides when tables are checkpointed, runs the rounds, and bounds the log that opening replays.
#[derive(Debug)]
pub(crate) struct CheckpointScheduler {
    env: Arc<dyn Env>,
    log: Arc<Log>,
    host: Arc<DatabaseHost>,
    /// Bound of the log that opening replays, in bytes.
    recovery_budget: u64,
    /// Held by a checkpoint round; one at a time.
    pub(crate) round: FairMutex,
    /// Of the writer that closes tables for all writers that lack memory.
    pub(crate) closing: SharedWork,
    /// No table needs the log below this LSN.
    log_start: AtomicU64,
    /// The LSN that the last successful round over all tables covered.
    round_end: AtomicU64,
    periodic: PeriodicRounds,
    /// The space that a round may use on a full disk.
    pub(crate) space: SpaceReserve,
    /// Rounds for lack of space. There is a pause between two: one that fails may have written a
    /// lot, and each delete requests a round.
    space_rounds: PeriodicRounds,
    /// Held from the first checkpoint of a round to the edit of the catalog that records it.
    advancing: Mutex<()>,
    /// Counters since the database was opened. Each has a cache line of its own: every write reads
    /// the fields above.
    pub(crate) rounds: CachePadded<TimedCounter>,
    pub(crate) write_stalls: CachePadded<AtomicU64>,
    pub(crate) write_delays: CachePadded<AtomicU64>,
}

impl CheckpointScheduler {
    /// Creates the scheduler of a log that no table needs below `log_start`.
    pub(crate) fn new(
        env: Arc<dyn Env>,
        (log, host, space): (Arc<Log>, Arc<DatabaseHost>, SpaceReserve),
        limits: CheckpointLimits,
        log_start: Lsn,
    ) -> Self {
        let now = env.monotonic();
        Self {
            env,
            log,
            host,
            recovery_budget: limits.recovery_budget,
            periodic: PeriodicRounds::new(limits.interval, now + limits.interval),
            space,
            space_rounds: PeriodicRounds::new(SPACE_ROUND_PAUSE, now),
            advancing: Mutex::default(),
            round: FairMutex::default(),
            closing: SharedWork::default(),
            log_start: AtomicU64::new(log_start.0),
            round_end: AtomicU64::new(0),
            rounds: CachePadded(TimedCounter::default()),
            write_stalls: CachePadded(AtomicU64::new(0)),
            write_delays: CachePadded(AtomicU64::new(0)),
        }
    }

    /// Returns the bound of the log that opening replays, in bytes.
    pub(crate) fn recovery_budget(&self) -> u64 {
        self.recovery_budget
    }

    /// Returns the time between two periodic rounds. Zero: there are none.
    pub(crate) fn interval(&self) -> Duration {
        self.periodic.interval()
    }

    /// Returns the time until the next periodic round. `None`: there are none.
    pub(crate) fn next_periodic(&self) -> Option<Duration> {
        self.periodic.remaining(self.env.monotonic())
    }

    /// Returns the LSN below which no table needs the log.
    pub(crate) fn log_start(&self) -> Lsn {
        Lsn(self.log_start.load(Ordering::Relaxed))
    }

    /// Returns the bytes of log that opening would replay.
    pub(crate) fn replayed_log_bytes(&self, end: Lsn) -> u64 {
        end.0.saturating_sub(self.log_start.load(Ordering::Relaxed))
    }

    /// Returns the bytes of log since the last round over all tables. Equal to
    /// [`CheckpointScheduler::replayed_log_bytes`], unless a failed table holds the log. Another
    /// round would not help then.
    pub(crate) fn unpersisted_log_bytes(&self, end: Lsn) -> u64 {
        let last = self.round_end.load(Ordering::Relaxed);
        self.replayed_log_bytes(end).min(end.0.saturating_sub(last))
    }

    /// Returns whether the unpersisted log, up to `end`, is long enough for a round of all tables.
    #[inline]
    fn is_log_long(&self, end: Lsn) -> bool {
        self.unpersisted_log_bytes(end) > self.recovery_budget / 2
    }

    /// Requests a round if the log, which ends at `end`, needs one. A writer calls it after its
    /// commit.
    #[inline]
    pub(crate) fn request_round_if_due(&self, end: Lsn) {
        if self.is_log_long(end) {
            self.host.request_round();
        }
    }

    /// Delays a writer, or makes it run a checkpoint round, if background work has fallen behind.
    /// So recovery stays bounded. `end` is that of the log. A write that `frees` space continues if
    /// the round fails, because the disk may be full.
    pub(crate) fn bound_recovery(
        &self,
        env: &dyn Env,
        tables: &TableRegistry,
        end: Lsn,
        frees: bool,
    ) -> Result<()> {
        let unpersisted = self.unpersisted_log_bytes(end);
        let delay_bytes = self.recovery_budget / DELAY_SHARE;
        let excess = unpersisted.saturating_sub(self.recovery_budget - delay_bytes);
        if excess == 0 {
            return Ok(());
        }
        if unpersisted <= self.recovery_budget {
            if delay_bytes >= DELAY_BYTES_MIN && !brake(env, excess, delay_bytes).is_zero() {
                self.write_delays.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        self.write_stalls.fetch_add(1, Ordering::Relaxed);
        let outcome = self.checkpoint_all_above(tables, self.recovery_budget);
        if frees { Ok(()) } else { outcome }
    }

    /// Tells the tables how far the log is durable, after a sync. Some are complete to there
    /// without a checkpoint. If only they keep the log long, shortens it. Waits for no maintenance.
    pub(crate) fn note_durable(&self, tables: &TableRegistry) -> Result<()> {
        let applied = self.log.applied();
        let up_to = mutant!(TablesNotedBeforeSync: applied, else applied.min(self.log.durable()));
        // A table that has failed lacks an operation that the log has. One without new operations
        // is complete.
        let note = |table: &TableState| {
            let is_behind = table.is_live() && table.is_dirty();
            let lsn = is_behind.then(|| table.engine.note_durable(up_to)).flatten()?;
            Some((table.id, lsn))
        };
        let complete = BTreeMap::from_iter(tables.filter_map(note));
        if complete.is_empty() || !self.is_shorter_by_enough(tables, up_to, &complete) {
            return Ok(());
        }
        // A round that is at work shortens the log itself.
        let Ok(_advancing) = self.advancing.try_lock() else { return Ok(()) };
        tables.check_open()?;
        let mut progress = Progress::default();
        for table in tables.all() {
            if let Some(lsn) = complete.get(&table.id) {
                table.record_persisted(*lsn);
                progress.tables.push((table.id, *lsn));
            }
        }
        self.advance_log(tables, up_to, progress)
    }

    /// Returns whether the log would be much shorter with what these tables are complete to.
    fn is_shorter_by_enough(
        &self,
        tables: &TableRegistry,
        up_to: Lsn,
        complete: &BTreeMap<u64, Lsn>,
    ) -> bool {
        let start = tables.needed_from(up_to, complete);
        self.replayed_log_bytes(start) >= self.recovery_budget / SHORTENED_SHARE
    }

    /// Checkpoints `chosen` now, even if little is unpersisted.
    pub(crate) fn checkpoint(
        &self,
        tables: &TableRegistry,
        chosen: &[Arc<TableState>],
    ) -> Result<()> {
        let _round = self.round.lock();
        self.run_round(tables, chosen.to_vec())
    }

    /// Checkpoints all tables now.
    pub(crate) fn checkpoint_all(&self, tables: &TableRegistry) -> Result<()> {
        let _round = self.round.lock();
        self.run_whole_round(tables)
    }

    /// Checkpoints all tables, unless another thread's round has meanwhile reduced the unpersisted
    /// log to at most `bytes`.
    pub(crate) fn checkpoint_all_above(&self, tables: &TableRegistry, bytes: u64) -> Result<()> {
        let _round = self.round.lock();
        if self.unpersisted_log_bytes(self.log.end()) <= bytes {
            Ok(())
        } else {
            self.run_whole_round(tables)
        }
    }

    /// Returns whether a table's engine, the length of the log, or a full disk needs a round.
    pub(crate) fn is_round_needed(&self, tables: &TableRegistry) -> bool {
        let needs_round = |table: &Arc<TableState>| {
            table.is_live()
                && !self.waits_for_space(table)
                && matches!(
                    table.engine.pending_work(),
                    PendingWork::Checkpoint | PendingWork::Maintain
                )
        };
        self.is_log_long(self.log.end())
            || self.is_space_round_due(tables)
            || tables.any(needs_round)
    }

    /// Maintains and checkpoints the tables whose engines need it, and all tables when the
    /// unpersisted log is long or a periodic round is due.
    pub(crate) fn run_due_work(&self, tables: &TableRegistry) -> Result<()> {
        let _round = self.round.lock();
        let mut live = tables.all();
        live.retain(|table| table.is_live());
        let mut outcome = Ok(());
        // A writer may have requested this round after the round before had ended.
        self.host.clear_round_request();
        for table in live {
            let waits = self.waits_for_space(&table);
            if !waits && table.engine.pending_work() == PendingWork::Maintain {
                let step = |mode| retry_with_files(tables, || maintain(tables, &table, mode));
                // Only a step that gives space back may take what is kept.
                let space_step = || self.with_space(&table, || step(MaintenanceMode::SpaceStep));
                let stepped = match step(MaintenanceMode::Step) {
                    Err(Error::DiskFull { .. }) => space_step(),
                    stepped => table.note_space(stepped),
                };
                outcome = outcome.and(stepped);
            }
        }
        let is_due = self.periodic.is_due(self.env.monotonic());
        let lacks_space = self.is_space_round_due(tables);
        let has_unpersisted = self.unpersisted_log_bytes(self.log.end()) > 0;
        if self.is_log_long(self.log.end()) || (lacks_space || is_due) && has_unpersisted {
            outcome = outcome.and(self.run_whole_round(tables));
            if lacks_space {
                self.give_space_back(tables);
            }
            return outcome;
        }
        if lacks_space {
            self.give_space_back(tables);
        }
        if is_due {
            self.periodic.begin(self.env.monotonic());
        }
        let mut live = tables.all();
        live.retain(|table| {
            table.is_live()
                && !self.waits_for_space(table)
                && table.engine.pending_work() == PendingWork::Checkpoint
        });
        if live.is_empty() { outcome } else { outcome.and(self.run_round(tables, live)) }
    }

    /// Compacts one table, and checkpoints it if the compaction leaves unwritten state.
    pub(crate) fn compact(&self, tables: &TableRegistry, table: &Arc<TableState>) -> Result<()> {
        let _round = self.round.lock();
        self.with_space(table, || maintain(tables, table, MaintenanceMode::Full))?;
        if table.engine.pending_work() == PendingWork::Checkpoint {
            self.run_round(tables, vec![Arc::clone(table)])?;
        }
        Ok(())
    }

    /// Adopts a table's sorted load, as a round of that table. `also` is checkpointed before it.
    pub(crate) fn adopt_load(
        &self,
        tables: &TableRegistry,
        table: &TableState,
        also: Option<&Arc<TableState>>,
    ) -> Result<()> {
        let _round = self.round.lock();
        let _advancing = lock(&self.advancing);
        tables.check_writable()?;
        let up_to = self.log.applied();
        self.log.sync()?;
        let mut progress = Progress::default();
        if let Some(also) = also {
            let _maintenance = lock(&also.maintenance);
            tables.check_usable(also)?;
            let lsn = also.engine.checkpoint(up_to)?;
            also.record_persisted(lsn);
            progress.tables.push((also.id, lsn));
        }
        {
            let _maintenance = lock(&table.maintenance);
            tables.check_usable(table)?;
            let mut load = lock(&table.load);
            let load = load.as_mut().ok_or(Error::Closed)?;
            let lsn = load.adopt(up_to)?;
            table.record_persisted(lsn);
            progress.tables.push((table.id, lsn));
        }
        // After the load is visible: a feed that began before then fails.
        self.log.note_unlogged();
        self.advance_log(tables, up_to, progress)
    }

    /// Removes the files of dropped tables, unless the database is closed: another process may use
    /// the same numbers then. Keeps those for which `is_kept` returns true.
    pub(crate) fn remove_dropped(
        &self,
        tables: &TableRegistry,
        is_kept: impl Fn(&TableState) -> bool,
    ) {
        loop {
            // Another round may run between two steps.
            let _round = self.round.lock();
            if tables.is_closed() || !tables.remove_pending(&is_kept) {
                return;
            }
        }
    }

    /// Runs a round over all tables. The caller holds `round`.
    fn run_whole_round(&self, tables: &TableRegistry) -> Result<()> {
        let (up_to, begun) = (self.log.applied(), self.env.monotonic());
        self.run_round(tables, tables.all())?;
        // From the start of the round: it may lack what was written meanwhile.
        self.periodic.begin(begun);
        self.round_end.fetch_max(up_to.0, Ordering::Relaxed);
        self.host.clear_round_request();
        Ok(())
    }

    /// Runs a round over the `chosen` tables, and drops each after its checkpoint: then it can be
    /// closed if the next one lacks file descriptors. The caller holds `round`.
    fn run_round(&self, tables: &TableRegistry, chosen: Vec<Arc<TableState>>) -> Result<()> {
        tables.check_open()?;
        let begun = self.env.monotonic();
        let outcome = self.run_steps(tables, chosen);
        self.rounds.add(self.env.monotonic().saturating_sub(begun));
        outcome
    }

    /// Does what [`CheckpointScheduler::run_round`] counts.
    fn run_steps(&self, tables: &TableRegistry, chosen: Vec<Arc<TableState>>) -> Result<()> {
        let _advancing = lock(&self.advancing);
        let up_to = self.log.applied();
        if self.log.durable() < up_to {
            self.log.sync()?;
        }
        mutant!(CatalogRecordsCompleteEarly => mutants::record_early(tables, &chosen, up_to)?);
        let mut outcome = Ok(());
        let mut progress = Progress::default();
        for table in chosen {
            // A table that fails does not keep the others from being checkpointed.
            let checkpoint = || retry_with_files(tables, || checkpoint_table(&table, up_to));
            match self.with_space(&table, checkpoint) {
                Ok(Some(lsn)) => progress.tables.push((table.id, lsn)),
                Ok(None) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        self.advance_log(tables, up_to, progress)?;
        if outcome.is_ok() {
            self.space.adjust(self.reserve_needed());
        }
        // True if no write came since the round began.
        if outcome.is_ok()
            && self.replayed_log_bytes(self.log.end()) == 0
            && self.log.move_to_small_segment()?
        {
            self.log.sync()?;
            self.advance_log(tables, self.log.applied(), Progress::default())?;
            self.log.release_spares()?;
        }
        outcome
    }

    /// Records in the catalog how far tables are complete, and removes the log below `up_to` that
    /// no table needs.
    fn advance_log(
        &self,
        tables: &TableRegistry,
        up_to: Lsn,
        mut progress: Progress,
    ) -> Result<()> {
        let log_start = tables.needed_from(up_to, &BTreeMap::new());
        let advanced = log_start > self.log_start();
        if !advanced && progress.tables.is_empty() {
            return Ok(());
        }
        progress.log_start = log_start;
        progress.log_durable = self.log.durable();
        mutant!(PrunesBeforeCatalog => self.log.prune(log_start)?);
        tables.sync_directories()?;
        tables.catalog.progress(progress)?;
        tables.report_edits();
        self.log_start.fetch_max(log_start.0, Ordering::Relaxed);
        self.log.prune(log_start)
    }
}

fn maintain(tables: &TableRegistry, table: &TableState, mode: MaintenanceMode) -> Result<()> {
    tables.check_open()?;
    let _maintenance = lock(&table.maintenance);
    tables.check_takes_writes(table)?;
    table.engine.maintain(mode)
}

/// Runs the work of a table, and again after closing tables without a handle whose files are
/// complete, if it lacks file descriptors.
fn retry_with_files<T>(tables: &TableRegistry, work: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match work() {
            Err(error) if error.is_out_of_files() => {
                let unused = tables.unused();
                let closed = mutant!(RoundKeepsFiles: 0, else tables.close_unused(&unused));
                if closed == 0 {
                    return Err(error);
                }
            }
            outcome => return outcome,
        }
    }
}

/// Checkpoints a table that was not dropped, as [`TableState::checkpoint`] does.
fn checkpoint_table(table: &TableState, up_to: Lsn) -> Result<Option<Lsn>> {
    let _maintenance = lock(&table.maintenance);
    if table.is_live() { table.checkpoint(up_to) } else { Ok(None) }
}
