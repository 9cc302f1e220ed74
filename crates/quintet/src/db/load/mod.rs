//! Sorted loads: many entries in ascending order at once.
//!
//! What: [`SortedLoader`] takes entries one by one and commits them; where the engine can build its
//! structure from sorted entries ([`Engine::load`]) they go round the log, else through it in
//! batches.
//! Why: an entry that is logged, found a place for, changed into a page, journaled and placed is
//! written several times and costs a microsecond; a page of a hundred sorted ones is written once.
//!
//! Round the log: the table is [`Status::Loading`] meanwhile, so nobody else writes it. What it
//! gets is in files that no state has, until the engine's files, complete to an LSN below which
//! everything is applied, have it: all at once and durably. The log knows nothing of it. That is
//! sound for recovery, since a table's files count before the log does; who wants to rebuild a
//! table from its log alone ([`LoadOptions::logged`]) has to load through it.
//!
//! Invariants:
//! - A load is ended before its database is closed, so nothing is written to files that may be
//!   another process's.
//! - What expires is in the expiry index's files before the load is adopted.
//!
//! [`Engine::load`]: crate::contract::Engine::load

#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{borrow::Borrow, sync::Arc};

use super::{
    Batch, Durability, PutOptions, Table, TypedTable,
    core::{Core, JobKind, Status, TableState},
    envelope::Envelope,
    expiry::expiry_of,
    options::{Condition, check_key, check_value},
};
use crate::{
    Error, Result,
    contract::{BulkLoad, Engine as _, Op, OrderedEngine},
    util::{
        sync::{Ordering, lock},
        types::{TypedKey, TypedValue},
    },
};

/// A batch is committed when it has this many bytes: enough that a commit costs its entries little,
/// and little beside the smallest budgets.
const BATCH_BYTES: u64 = 256 << 10;

/// How a sorted load is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    logged: bool,
    durability: Option<Durability>,
}

impl LoadOptions {
    /// Round the log where the engine can.
    pub fn new() -> Self {
        Self::default()
    }

    /// Through the log in batches, on every engine: for tables that are to be rebuilt from the log
    /// alone.
    #[must_use]
    pub fn logged(mut self) -> Self {
        self.logged = true;
        self
    }

    /// In place of the database's durability, for batches. What goes round the log is durable in
    /// any case.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// A sorted load under way: takes entries in strictly ascending order of their keys. Made by
/// [`Table::sorted_loader`], which says what it promises. Dropped without
/// [`SortedLoader::commit`], it has changed nothing, but for batches that are committed.
#[derive(Debug)]
pub struct SortedLoader {
    table: Table,
    way: Way,
    /// The key that the next has to be above; empty: any will do.
    last: Vec<u8>,
    entries: u64,
    /// Some of them expire.
    expires: bool,
    failure: Option<Error>,
}

#[derive(Debug)]
enum Way {
    /// The load is with the table.
    RoundTheLog,
    ThroughTheLog(Box<Batch>, Durability),
}

impl Table {
    /// Puts entries in strictly ascending order of their keys, and returns how many. As
    /// [`Table::sorted_loader`] with the default options; what `entries` gives is committed when
    /// it ends.
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

    /// Begins a load of entries in strictly ascending order of their keys: faster than puts where
    /// the engine can build its structure from them.
    ///
    /// On `btree`, all of the load or nothing takes effect, at [`SortedLoader::commit`], and is
    /// durable then. Its keys have to be above all that the table has. The entries go round the
    /// log, once, to full leaves in the table's own file; until the load ends, every other write
    /// to the table fails with [`Error::Loading`], while reads see it as it was. A load takes
    /// about 3 MiB of memory, however large it is.
    ///
    /// On the other engines, and with [`LoadOptions::logged`], the entries go through the log in
    /// atomic batches of 256 KiB (one larger entry is a batch), each visible when it is full; what
    /// was committed before an error stays, and other writes go on. Entries replace what the table
    /// has.
    ///
    /// Fails as [`Table::put`] does.
    pub fn sorted_loader(&self, options: LoadOptions) -> Result<SortedLoader> {
        let core = &self.session.core;
        core.check_writable()?;
        core.check_takes_writes(&self.state)?;
        let (way, last) = if options.logged
            || self.state.engine.ordered().and_then(OrderedEngine::bulk).is_none()
        {
            let batch = Box::new(Batch::new(Arc::clone(&self.session)));
            let durability = options.durability.unwrap_or(core.durability);
            (Way::ThroughTheLog(batch, durability), Vec::new())
        } else {
            (Way::RoundTheLog, core.begin_load(&self.state)?)
        };
        let table = self.clone();
        Ok(SortedLoader { table, way, last, entries: 0, expires: false, failure: None })
    }
}

impl<K: TypedKey, V: TypedValue> TypedTable<K, V> {
    /// Puts entries in strictly ascending order of their keys, and returns how many. As
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
    /// Adds an entry. Fails with [`Error::OutOfOrder`], [`Error::Limit`] and
    /// [`Error::TypeMismatch`], and has then not taken it, but takes others; any other error ends
    /// the load.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, PutOptions::new())
    }

    /// Adds an entry with an expiry or a type tag. A lifetime is counted from this call. Conditions
    /// and durability are refused. Otherwise as [`SortedLoader::put`].
    pub fn put_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> Result<()> {
        let (key, body) = (key.as_ref(), value.as_ref());
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        check_key(key)?;
        check_value(body)?;
        if options.condition != Condition::Always || options.durability.is_some() {
            let what = "a put in a sorted load has no condition and no durability of its own";
            return Err(Error::InvalidOption { name: "load".to_owned(), what: what.to_owned() });
        }
        let core = &self.table.session.core;
        let expires_at = options.expiry(|| core.shared.clock.now())?;
        let envelope = Envelope { expires_at, type_tag: options.type_tag }.encode();
        let op = Op::Put { key, head: envelope.as_slice(), body };
        core.check_types(&self.table.state, &op)?;
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
        match &mut self.way {
            Way::ThroughTheLog(batch, durability) => {
                batch.put_with(&self.table, key, body, options);
                if batch.bytes() < BATCH_BYTES { Ok(()) } else { batch.commit_with(*durability) }
            }
            Way::RoundTheLog => {
                if expiry_of(op).is_some() {
                    core.admit_expiry(state, op)?;
                    core.list_loaded(state, op)?;
                    self.expires = true;
                }
                let mut load = lock(&state.load);
                let load = load.as_mut().ok_or_else(|| core.load_is_gone(state))?;
                load.put(key, head, body)
            }
        }
    }

    /// Entries taken so far.
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// Whether it has taken none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Ends the load, and returns how many entries it had: on `btree` they are there and durable
    /// now.
    ///
    /// Fails with the error that ended the load before, as [`Table::put`] does, and with
    /// [`Error::StaleTable`] where the table was dropped meanwhile; nothing has changed then. One
    /// exception: if it is the disk that fails, in the very last step, and goes on failing, then
    /// the load may be found, whole, when the database is opened again.
    pub fn commit(mut self) -> Result<u64> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (core, state) = (&self.table.session.core, &self.table.state);
        match &mut self.way {
            Way::ThroughTheLog(batch, durability) => batch.commit_with(*durability)?,
            Way::RoundTheLog if self.entries == 0 => {}
            Way::RoundTheLog => {
                {
                    let mut load = lock(&state.load);
                    load.as_mut().ok_or_else(|| core.load_is_gone(state))?.finish()?;
                }
                let index = core.expiries.index().filter(|_| self.expires);
                core.adopt_load(state, index)?;
                core.counters.commits.fetch_add(1, Ordering::Relaxed);
                core.stripes.hold_every().bump();
            }
        }
        Ok(self.entries)
    }
}

impl Drop for SortedLoader {
    fn drop(&mut self) {
        if matches!(self.way, Way::RoundTheLog) {
            end_load(&self.table.state);
            if self.expires {
                // What came due meanwhile was left alone.
                self.table.session.core.shared.jobs.wake(JobKind::Expire);
            }
        }
    }
}

impl Core {
    /// Has a table be loaded; the key that those of the load have to be above.
    fn begin_load(&self, table: &TableState) -> Result<Vec<u8>> {
        {
            // Who is past the look at the table's status has applied its write after this.
            let _every = self.stripes.hold_every();
            self.check_open()?;
            self.check_takes_writes(table)?;
            if !table.turn(Status::Open, Status::Loading) {
                return Err(Error::Loading { table: self.name_of(table) });
            }
        }
        let begun = {
            let _maintenance = lock(&table.maintenance);
            table.engine.ordered().and_then(OrderedEngine::bulk).map(BulkLoad::begin_load)
        };
        let begun = begun.unwrap_or_else(|| Err(self.load_is_gone(table)));
        let last = begun.and_then(|start| {
            *lock(&table.load) = Some(start.load);
            // Closing notes that it has closed, and then ends loads.
            self.check_open()?;
            Ok(start.last.unwrap_or_default())
        });
        last.inspect_err(|_| end_load(table))
    }

    /// Why a table has no load.
    fn load_is_gone(&self, table: &TableState) -> Error {
        self.check_usable(table).err().unwrap_or(Error::Closed)
    }
}

/// Takes a table's load away, adopted or not, and lets others write.
fn end_load(table: &TableState) {
    drop(lock(&table.load).take());
    table.turn(Status::Loading, Status::Open);
}
