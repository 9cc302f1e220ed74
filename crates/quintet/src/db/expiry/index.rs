//! The expiry index of an open database: creation, admission, and the changes of its entries.

use std::sync::Arc;

use super::entry::ExpiryEntry;
use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind, MemoryWait, Op, TableOptions},
    db::{
        catalog::tree::EXPIRY_INDEX_NAME,
        tables::{
            host::DatabaseHost, job_handles::JobKind, registry::TableRegistry, state::TableState,
        },
    },
    util::{
        codec::Lsn,
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
    wal::{Appended, Log},
};

/// The expiry index, and the signals to the sweep.
#[derive(Debug)]
pub(crate) struct ExpiryIndex {
    /// Unset until the first value that expires.
    table: OnceLock<Arc<TableState>>,
    /// Held while the index is created.
    creation: Mutex<()>,
    /// Held while an entry of long keys changes, because these keys may have different stripes.
    long_keys: Mutex<()>,
    /// When the sweep runs next without a wake, in milliseconds since 1970. A writer that adds an
    /// earlier entry wakes it.
    pub(crate) next_sweep: AtomicU64,
    /// A table with entries was dropped; the sweep must remove them.
    pub(crate) purge_wanted: AtomicBool,
    log: Arc<Log>,
    host: Arc<DatabaseHost>,
}

impl ExpiryIndex {
    /// Creates the state with the index that the catalog has.
    pub(crate) fn new(
        table: Option<Arc<TableState>>,
        log: Arc<Log>,
        host: Arc<DatabaseHost>,
    ) -> Self {
        Self {
            table: table.map_or_else(OnceLock::new, OnceLock::from),
            creation: Mutex::new(()),
            long_keys: Mutex::new(()),
            next_sweep: AtomicU64::new(u64::MAX),
            purge_wanted: AtomicBool::new(false),
            log,
            host,
        }
    }

    /// Returns the table of the index, if it exists.
    #[inline]
    pub(crate) fn table(&self) -> Option<&Arc<TableState>> {
        self.table.get()
    }

    /// Returns whether `table` is the index.
    pub(crate) fn is_index(&self, table: &TableState) -> bool {
        self.table().is_some_and(|index| index.id == table.id)
    }

    /// Admits the entry of a put to the index, before the put is logged. Creates the index if it is
    /// missing.
    #[inline]
    pub(crate) fn admit(
        &self,
        tables: &TableRegistry,
        table: &TableState,
        op: &Op<'_>,
        wait: &MemoryWait,
    ) -> Result<()> {
        match ExpiryEntry::of(table.id, op) {
            None => Ok(()),
            Some(entry) => self.admit_entry(tables, &entry, wait),
        }
    }

    /// Reverses [`ExpiryIndex::admit`].
    pub(crate) fn cancel(&self, table: &TableState, op: &Op<'_>) {
        if let (Some(entry), Some(index)) = (ExpiryEntry::of(table.id, op), self.table()) {
            index.engine.cancel(&Op::Put { key: &entry.encode(), head: &[], body: &[] });
        }
    }

    fn admit_entry(
        &self,
        tables: &TableRegistry,
        entry: &ExpiryEntry<'_>,
        wait: &MemoryWait,
    ) -> Result<()> {
        let index = match self.table() {
            Some(index) => index,
            None => &self.create(tables)?,
        };
        tables.check_usable(index)?;
        index.engine.admit(&Op::Put { key: &entry.encode(), head: &[], body: &[] }, wait)
    }

    fn create(&self, tables: &TableRegistry) -> Result<Arc<TableState>> {
        let _creation = lock(&self.creation);
        if let Some(index) = self.table() {
            return Ok(Arc::clone(index));
        }
        let index = tables.create_expiry_index(&index_options())?;
        Ok(Arc::clone(self.table.get_or_init(|| index)))
    }

    /// Adds the entry of a put whose value expires, and removes the entry of the value that it
    /// replaced. The caller holds the key's stripe and the ticket of the put's record.
    #[inline]
    pub(crate) fn add(
        &self,
        table: &TableState,
        appended: Appended,
        op: &Op<'_>,
        replaced: Option<u64>,
    ) -> Result<()> {
        let Some(entry) = ExpiryEntry::of(table.id, op) else { return Ok(()) };
        let Some(index) = self.table() else { return Ok(()) };
        table.may_expire.store(true, Ordering::Release);
        mutant!(ExpiryIndexNotNoted: (), else index.record_applied(appended.end));
        self.change(index, appended.lsn, &entry, true)?;
        if let Some(time) = replaced.filter(|time| *time != entry.time) {
            self.remove(&ExpiryEntry { time, ..entry })?;
        }
        self.wake_sweep_before(entry.time);
        Ok(())
    }

    /// Adds the entry of a value in a sorted load, before the load is adopted. The caller has
    /// admitted it, and checkpoints the index before it adopts the load. If the load is discarded,
    /// the entry has no value.
    pub(crate) fn add_loaded(&self, table: &TableState, op: &Op<'_>) -> Result<()> {
        let Some(entry) = ExpiryEntry::of(table.id, op) else { return Ok(()) };
        let Some(index) = self.table() else { return Ok(()) };
        table.may_expire.store(true, Ordering::Release);
        self.change(index, self.log.end(), &entry, true)?;
        self.wake_sweep_before(entry.time);
        Ok(())
    }

    /// Removes an entry. The caller holds the key's stripe, and the value does not expire at that
    /// time.
    pub(crate) fn remove(&self, entry: &ExpiryEntry<'_>) -> Result<()> {
        let Some(index) = self.table() else { return Ok(()) };
        self.change(index, self.log.end(), entry, false)
    }

    fn change(
        &self,
        index: &TableState,
        lsn: Lsn,
        entry: &ExpiryEntry<'_>,
        add: bool,
    ) -> Result<()> {
        let _long_keys = entry.key_suffix().map(|_| lock(&self.long_keys));
        let outcome = entry.change(index, lsn, add);
        outcome.map_err(|error| stop(index, &error))
    }

    /// Removes the entry of a dropped table by its key in the index.
    pub(crate) fn remove_orphan(&self, index: &TableState, key: &[u8]) -> Result<()> {
        let outcome = index.engine.apply(self.log.end(), &Op::Delete { key });
        outcome.map_err(|error| stop(index, &error))
    }

    /// Makes the sweep remove the entries of dropped tables.
    pub(crate) fn request_purge(&self) {
        self.purge_wanted.store(true, Ordering::Release);
        self.host.jobs.wake(JobKind::Expire);
    }

    /// Wakes the sweep if it would run after `time`.
    fn wake_sweep_before(&self, time: u64) {
        // The sweep stores when it runs next and then reads the index: one of the two sees the
        // other.
        if time < self.next_sweep.fetch_min(time, Ordering::SeqCst) {
            self.host.jobs.wake(JobKind::Expire);
        }
    }
}

/// Stops the index after a failed change. From then on every value that expires is refused.
fn stop(index: &TableState, error: &Error) -> Error {
    index.fail(error);
    Error::TableFailed { table: EXPIRY_INDEX_NAME.to_owned(), reason: error.to_string() }
}

/// Returns the options of the index: small pages, since most of them are written once and emptied
/// once.
fn index_options() -> TableOptions {
    let options = TableOptions::new(EngineKind::BTree);
    let options = options.set("page_bytes", "4096").set("extend_granularity", "256");
    // A model checker creates each word of a cache again for each run.
    if cfg!(model) { options.set("cache_bytes", "1") } else { options }
}
