//! Sorted loads: many entries in ascending key order.
//!
//! [`SortedLoader`] takes entries one by one. An engine that can build its structure from sorted
//! entries ([`Engine::load`], `btree`) writes full pages and bypasses the log. The other engines
//! receive batches through the log. A logged entry is written several times and costs a
//! microsecond; a page of a hundred sorted entries is written once.
//!
//! While a load bypasses the log, the table is [`TableStatus::Loading`] and refuses other writes.
//! The pages of the load belong to no checkpoint until the last step adopts them all at once,
//! durably. The log has no record of them. Recovery is still correct, because it starts from the
//! table's files. A table that must be rebuilt from its log alone needs [`LoadOptions::logged`].
//!
//! Invariants:
//! - A load is ended before its database is closed. No load writes to files that another process
//!   may own.
//! - Entries that expire are in the expiry index's files before the load is adopted.
//!
//! [`Engine::load`]: crate::contract::Engine::load

#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::borrow::Borrow;

use super::{batch::Batch, table::Table, typed::TypedTable, write_options::PutOptions};
use crate::{
    Error, Result,
    contract::{BulkLoad, Engine as _, MemoryWait, Op, OrderedEngine},
    db::{
        core::condition::Condition,
        core::{Core, durability::Durability},
        encoding::envelope::Envelope,
        expiry::entry::expiry_of,
        limits::{check_key, check_value},
        tables::{
            job_handles::JobKind,
            state::{TableState, TableStatus},
        },
    },
    util::{
        mutant::mutant,
        sync::{Ordering, lock},
        types::{TypedKey, TypedValue},
    },
};

/// Encoded size in bytes at which a batch is committed. Large enough that the commit costs
/// little for each entry, and small beside the smallest memory budget.
pub(super) const BATCH_BYTES: u64 = 256 << 10;

/// Options of a sorted load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    logged: bool,
    durability: Option<Durability>,
}

impl LoadOptions {
    /// Returns the default options: bypass the log if the engine can. Not while the log is kept for
    /// change feeds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes through the log in batches, on every engine. Needed for tables that must be rebuilt
    /// from the log alone.
    #[must_use]
    pub fn logged(mut self) -> Self {
        self.logged = true;
        self
    }

    /// Overrides the database's durability for batches. A load that bypasses the log is always
    /// durable.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// A sorted load in progress; [`Table::sorted_loader`] starts it. Dropping it without
/// [`SortedLoader::commit`] discards the load, except batches that are already committed.
#[derive(Debug)]
pub struct SortedLoader {
    table: Table,
    path: LoadPath,
    /// The next key must be greater than this one; empty: any key is allowed.
    last: Vec<u8>,
    /// The greatest key of the table at the begin of the load; empty: it had none.
    last_before: Vec<u8>,
    entries: u64,
    /// Whether some entries expire.
    expires: bool,
    failure: Option<Error>,
}

#[derive(Debug)]
enum LoadPath {
    /// The engine's load is in [`TableState::load`].
    BypassesLog,
    ThroughLog(Box<Batch>, Durability),
}

impl Table {
    /// Loads entries in strictly ascending key order and returns their number. Same as
    /// [`Table::sorted_loader`] with default options, with a commit at the end of `entries`.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("numbers")?;
    /// table.load_sorted((0..1000_u32).map(|number| (number.to_be_bytes(), "value")))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_sorted<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut loader = self.sorted_loader(LoadOptions::new())?;
        for (key, value) in entries {
            loader.put(key, value)?;
        }
        loader.commit()
    }

    /// Starts a load of entries in strictly ascending key order. Faster than puts if the engine can
    /// build its structure from sorted entries.
    ///
    /// On `btree`, every key must be greater than every key of the table. The load takes effect
    /// whole and durably at [`SortedLoader::commit`]. Until it ends, other writes fail with
    /// [`Error::Loading`], and reads see the old state. It uses about 3 MiB of memory.
    ///
    /// Three cases go through the log: the other engines, [`LoadOptions::logged`], and a log that
    /// is kept for change feeds ([`Database::changes`](crate::Database::changes)). Entries are
    /// committed in atomic batches of 256 KiB (a larger entry is one batch). Each batch is visible
    /// when it is committed. Committed batches stay after an error, and other writes go on. Entries
    /// replace existing ones.
    ///
    /// Fails as [`Table::put`] does.
    pub fn sorted_loader(&self, options: LoadOptions) -> Result<SortedLoader> {
        let core = &self.session.core;
        core.tables.check_writable()?;
        if let Err(error) = core.tables.check_takes_writes(&self.state) {
            return self.follow(error)?.sorted_loader(options);
        }
        // A change feed shows what is in the log.
        let is_logged = options.logged || core.log.is_retained();
        let (path, last) =
            if is_logged || self.state.engine.ordered().and_then(OrderedEngine::bulk).is_none() {
                let batch = Box::new(Batch::new(self.session.clone()));
                let durability = options.durability.unwrap_or(core.durability);
                (LoadPath::ThroughLog(batch, durability), Vec::new())
            } else {
                (LoadPath::BypassesLog, core.begin_load(&self.state)?)
            };
        let table = self.clone();
        let last_before = last.clone();
        Ok(SortedLoader {
            table,
            path,
            last,
            last_before,
            entries: 0,
            expires: false,
            failure: None,
        })
    }
}

impl<K: TypedKey, V: TypedValue> TypedTable<K, V> {
    /// Loads entries in strictly ascending key order and returns their number. As
    /// [`Table::load_sorted`].
    pub fn load_sorted<Q, W>(&self, entries: impl IntoIterator<Item = (Q, W)>) -> Result<u64>
    where
        Q: Borrow<K>,
        W: Borrow<V>,
    {
        let mut loader = self.table().sorted_loader(LoadOptions::new())?;
        for (key, value) in entries {
            let key = key.borrow().encode();
            value.borrow().with_bytes(|value| loader.put(key, value))?;
        }
        loader.commit()
    }
}

impl SortedLoader {
    /// Adds an entry. [`Error::OutOfOrder`], [`Error::Limit`], [`Error::TypeMismatch`] and
    /// [`Error::InvalidOption`] refuse only this entry. Any other error ends the load.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, PutOptions::new())
    }

    /// Adds an entry with an expiry or a type tag. A ttl counts from this call. A condition or a
    /// durability is refused with [`Error::InvalidOption`]. Otherwise as [`SortedLoader::put`].
    pub fn put_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> Result<()> {
        let (key, body) = (key.as_ref(), value.as_ref());
        self.table.session.core.tables.check_process()?;
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        check_key(key)?;
        check_value(body)?;
        if options.condition != Condition::Always || options.durability.is_some() {
            let what = "a put in a sorted load has neither a condition nor a durability";
            return Err(Error::InvalidOption { name: "load".to_owned(), what: what.to_owned() });
        }
        let core = &self.table.session.core;
        let expires_at = options.expiry(|| core.host.clock.now())?;
        let envelope = Envelope { expires_at, type_tag: options.type_tag }.encode();
        let op = Op::Put { key, head: envelope.as_slice(), body };
        core.tables.check_types(&self.table.state, &op)?;
        if key <= &*self.last {
            return Err(Error::OutOfOrder { key: key.to_vec(), after: self.last.clone() });
        }
        if let Err(error) = self.add(&op, options) {
            self.failure = Some(error.clone());
            return Err(error);
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.entries += 1;
        Ok(())
    }

    fn add(&mut self, op: &Op<'_>, options: PutOptions) -> Result<()> {
        let Op::Put { key, head, body } = *op else { return Ok(()) };
        let (core, state) = (&self.table.session.core, &self.table.state);
        match &mut self.path {
            LoadPath::ThroughLog(batch, durability) => {
                batch.put_with(&self.table, key, body, options);
                if batch.bytes() < BATCH_BYTES { Ok(()) } else { batch.commit_with(*durability) }
            }
            LoadPath::BypassesLog => {
                if expiry_of(op).is_some() {
                    core.expiry.admit(&core.tables, state, op, &MemoryWait::default())?;
                    core.expiry.add_loaded(state, op)?;
                    self.expires = true;
                }
                let mut load = lock(&state.load);
                let load = load.as_mut().ok_or_else(|| core.missing_load(state))?;
                load.put(key, head, body)
            }
        }
    }

    /// Returns the number of entries added so far.
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// Returns whether no entry was added.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Ends the load and returns the number of entries. On `btree` they are visible and durable
    /// then.
    ///
    /// Fails with the error that ended the load, as [`Table::put`] does, or with
    /// [`Error::StaleTable`] if the table was dropped meanwhile. Nothing has changed then, except
    /// committed batches. If the disk fails at the last step and keeps failing, the load may be
    /// found whole at the next open.
    pub fn commit(mut self) -> Result<u64> {
        self.table.session.core.tables.check_process()?;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (core, state) = (&self.table.session.core, &self.table.state);
        match &mut self.path {
            LoadPath::ThroughLog(batch, durability) => batch.commit_with(*durability)?,
            LoadPath::BypassesLog if self.entries == 0 => {}
            LoadPath::BypassesLog => {
                {
                    let mut load = lock(&state.load);
                    load.as_mut().ok_or_else(|| core.missing_load(state))?.finish()?;
                }
                let index = core.expiry.table().filter(|_| self.expires);
                mutant!(SnapshotSeesLoads: (), else
                    core.versions.begin_load(state, &self.last_before));
                let adopted = core.checkpoints.adopt_load(&core.tables, state, index);
                core.versions.end_load(state, adopted.is_ok());
                adopted?;
                core.counters.commits.fetch_add(1, Ordering::Relaxed);
                let stripes = core.tables.stripes.hold_every();
                stripes.begin_write();
                stripes.end_write();
            }
        }
        Ok(self.entries)
    }
}

impl Drop for SortedLoader {
    fn drop(&mut self) {
        let is_forked = self.table.session.core.tables.is_forked();
        if matches!(self.path, LoadPath::BypassesLog) && !is_forked {
            end_load(&self.table.state);
            if self.expires {
                // The sweep skipped entries that became due during the load.
                self.table.session.core.host.jobs.wake(JobKind::Expire);
            }
        }
    }
}

impl Core {
    /// Sets the table's status to loading and starts the engine's load. Returns the greatest key of
    /// the table, which the keys of the load must exceed.
    fn begin_load(&self, table: &TableState) -> Result<Vec<u8>> {
        {
            // A writer that checked the status before holds a stripe until its write is applied.
            let _every = self.tables.stripes.hold_every();
            self.tables.check_open()?;
            self.tables.check_takes_writes(table)?;
            if !table.exchange_status(TableStatus::Open, TableStatus::Loading) {
                return Err(Error::Loading { table: self.tables.name_of(table) });
            }
        }
        let begun = {
            let _maintenance = lock(&table.maintenance);
            table.engine.ordered().and_then(OrderedEngine::bulk).map(BulkLoad::begin_load)
        };
        let begun = begun.unwrap_or_else(|| Err(self.missing_load(table)));
        let last = begun.and_then(|start| {
            *lock(&table.load) = Some(start.load);
            // Closing sets the status first and ends loads afterwards.
            self.tables.check_open()?;
            Ok(start.last.unwrap_or_default())
        });
        last.inspect_err(|_| end_load(table))
    }

    /// Returns the reason why a table has no load.
    fn missing_load(&self, table: &TableState) -> Error {
        self.tables.check_usable(table).err().unwrap_or(Error::Closed)
    }
}

/// Drops a table's load, adopted or not, and lets other writes in.
fn end_load(table: &TableState) {
    drop(lock(&table.load).take());
    table.exchange_status(TableStatus::Loading, TableStatus::Open);
}
