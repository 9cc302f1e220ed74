//! The state of an open database. [`Core`] ties its components together; each owns its data:
//!
//! | component | what it owns |
//! |---|---|
//! | [`TableRegistry`] | the catalog and the open tables |
//! | [`ExpiryIndex`] | the index of values that expire |
//! | [`CheckpointScheduler`] | the checkpoint rounds and the bound of the log |
//! | [`VersionStore`] | the open snapshots, and the earlier values that they show |
//! | [`Stripes`] | the locks that order the writes of one key |
//! | [`KeyLocks`] | the keys that transactions have locked |
//! | [`LogJobs`] | the requests to sync and to prepare the log |
//! | [`DatabaseHost`] | the clock and the job handles; engines call it |
//!
//! Lock order: `ARCHITECTURE.md`.

pub(crate) mod condition;
pub(crate) mod durability;
pub(crate) mod key_change;
pub(crate) mod key_locks;
pub(crate) mod log_jobs;

use std::{fmt, sync::Arc, time::Duration};

use durability::Durability;
use key_locks::KeyLocks;
use log_jobs::LogJobs;

use super::{
    catalog::edit::Progress,
    checkpoint::CheckpointScheduler,
    expiry::ExpiryIndex,
    tables::{
        host::DatabaseHost, job_handles::JobKind, registry::TableRegistry, state::TableState,
    },
    versions::VersionStore,
};
use crate::{
    Error, Result,
    contract::TableOptions,
    io::{Dir, Env, LockGuard},
    util::{
        budget::Budget,
        mutant::mutant,
        sync::{AtomicU64, CachePadded, Mutex, lock},
    },
    wal::Log,
};

/// Maximum number of times that tables are closed for one that is opened or created. Other threads
/// may take what they released.
const OPEN_RETRIES_MAX: u32 = 4;
/// One part in this many of the open tables is closed at once.
const CLOSED_SHARE: usize = 4;

/// Counters since the database was opened.
#[derive(Debug, Default)]
pub(crate) struct CommitCounters {
    pub(crate) commits: AtomicU64,
    pub(crate) expired_swept: AtomicU64,
    /// Transactions that have committed writes.
    pub(crate) transactions: AtomicU64,
    /// Transactions that ended because another commit changed what they depend on.
    pub(crate) conflicts: AtomicU64,
    /// Transactions that ended because they waited for locks of each other.
    pub(crate) deadlocks: AtomicU64,
}

/// An open database.
pub(crate) struct Core {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) durability: Durability,
    pub(crate) sync_interval: Duration,
    pub(crate) budget: Arc<Budget>,
    pub(crate) log: Arc<Log>,
    pub(crate) host: Arc<DatabaseHost>,
    pub(crate) tables: TableRegistry,
    pub(crate) expiry: ExpiryIndex,
    pub(crate) checkpoints: CheckpointScheduler,
    pub(crate) versions: Arc<VersionStore>,
    pub(crate) key_locks: KeyLocks,
    pub(crate) log_jobs: LogJobs,
    pub(crate) counters: CachePadded<CommitCounters>,
    /// The last failure of a background job that has not succeeded since.
    pub(crate) background_failure: Mutex<Option<String>>,
    /// The lock of the directory. `None` once the database is closed.
    pub(crate) lock: Mutex<Option<Box<dyn LockGuard>>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("path", &self.dir.path()).finish_non_exhaustive()
    }
}

impl Core {
    /// Keeps the failure of a background job for the statistics, or removes it after a success.
    pub(crate) fn record_background(&self, outcome: &Result<()>) {
        let failure = outcome.as_ref().err().map(ToString::to_string);
        *lock(&self.background_failure) = failure;
    }

    /// Returns the table with a number, and opens it if necessary. `None`: there is none. Closes
    /// tables without a handle if too many are open, or if there is no memory for this one.
    pub(crate) fn open_table(&self, id: u64) -> Result<Option<Arc<TableState>>> {
        if let Some(table) = self.tables.find(id) {
            return Ok(Some(table));
        }
        self.make_room_for_table();
        let opened = self.retry_with_room(|| self.tables.open(id));
        // A table that holds its entries in memory reads them all, whatever the budget.
        if self.budget.used() > self.budget.limit() {
            self.close_unused(usize::MAX);
        }
        opened
    }

    /// Creates a table. Closes others as [`Core::open_table`] does.
    pub(crate) fn create_table(
        &self,
        path: &str,
        options: &TableOptions,
    ) -> Result<Arc<TableState>> {
        self.make_room_for_table();
        self.retry_with_room(|| self.tables.create(path, options))
    }

    /// Runs `open`, and again after closing tables without a handle if it lacks memory or files. A
    /// running round holds the tables that it works on, so a lack of files waits for its end.
    fn retry_with_room<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..OPEN_RETRIES_MAX {
            let closed = match open() {
                Err(Error::OutOfMemory { .. }) => self.close_unused(usize::MAX),
                Err(error) if error.is_out_of_files() => {
                    drop(self.checkpoints.round.lock());
                    self.close_unused(usize::MAX)
                }
                outcome => return outcome,
            };
            if closed == 0 {
                break;
            }
        }
        open()
    }

    /// Closes tables without a handle if too many are open. The caller holds no lock of the lock
    /// order from the checkpoint round on.
    pub(crate) fn make_room_for_table(&self) {
        if !self.tables.has_room() {
            // Several at once share one round.
            self.close_unused(self.tables.open_count() / CLOSED_SHARE + 1);
        }
    }

    /// Checkpoints and closes up to `count` tables without a handle, the least recently used first.
    /// Returns how many it closed: a table stays open if its checkpoint fails.
    #[cold]
    pub(crate) fn close_unused(&self, count: usize) -> usize {
        let mut ids = self.tables.unused();
        ids.truncate(count);
        if !self.tables.is_read_only() {
            let chosen = mutant!(ClosesUnsavedTables: Vec::new(), else self.tables.unsaved(&ids));
            if !chosen.is_empty() {
                let _ = self.checkpoints.checkpoint(&self.tables, &chosen);
            }
        }
        self.tables.close_unused(&ids)
    }

    /// Drops the table at `path`, or (unless `table_only`) the directory with all its tables. A
    /// background job removes their files.
    pub(crate) fn drop_path(&self, path: &str, table_only: bool) -> Result<()> {
        if self.tables.drop_path(path, table_only, || self.versions.next_number())? {
            self.expiry.request_purge();
        }
        self.host.jobs.wake(JobKind::Persist);
        Ok(())
    }

    /// Replaces a table by an empty one. A background job removes the files of the old one.
    pub(crate) fn clear_table(&self, table: &Arc<TableState>) -> Result<()> {
        self.tables.check_writable()?;
        self.make_room_for_table();
        let clear = || self.tables.clear(table, |mark| self.versions.number_for(mark));
        if self.retry_with_room(clear)? {
            self.expiry.request_purge();
        }
        self.host.jobs.wake(JobKind::Persist);
        Ok(())
    }

    /// Removes the files of dropped tables, except of those that an open snapshot may read.
    pub(crate) fn remove_dropped(&self) {
        let is_kept = |table: &TableState| {
            self.versions.keeps_dropped((table.created_at(), table.dropped_at()))
        };
        self.checkpoints.remove_dropped(&self.tables, is_kept);
    }

    /// Stops the jobs, makes every commit durable and releases the lock of the directory. A second
    /// close does nothing. Fails with [`Error::Forked`](crate::Error::Forked) in a forked child.
    pub(crate) fn close(&self) -> Result<()> {
        self.tables.check_process()?;
        if self.tables.is_read_only() {
            self.tables.close();
            lock(&self.lock).take();
            return Ok(());
        }
        self.host.jobs.stop();
        let _round = self.checkpoints.round.lock();
        {
            // A commit checks that the database is open under a stripe, and appends its record
            // before it releases the stripe.
            let _every = self.tables.stripes.hold_every();
            if !self.tables.close() {
                return Ok(());
            }
        }
        self.versions.close();
        // A sorted load must not write to files that may soon belong to another process.
        self.tables.all().iter().for_each(|table| drop(lock(&table.load).take()));
        while self.tables.remove_pending(|_| false) {}
        let outcome = self.close_files();
        lock(&self.lock).take();
        outcome
    }

    /// Closes the log and the catalog. Both are durable when the call returns.
    fn close_files(&self) -> Result<()> {
        self.log.close()?;
        self.tables.catalog.progress(Progress {
            log_start: self.checkpoints.log_start(),
            log_durable: self.log.durable(),
            tables: Vec::new(),
        })?;
        self.tables.report_edits();
        self.tables.catalog.close()
    }
}
