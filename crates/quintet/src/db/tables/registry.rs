//! The registry of the open tables: the catalog, and the state of each table by number.
//!
//! A table is created, renamed and dropped by an edit of the catalog. The log is synced before each
//! edit, so that after a power loss names and contents are one prefix of the history.
//!
//! Invariants:
//! - The registry has exactly the tables of the catalog, and for a moment a table whose edit is
//!   about to become durable.
//! - A new table is in the registry before the catalog has its name: a thread that finds the name
//!   finds the table.
//!
//! Locks: the map of tables and the pending removals are leaves; see `ARCHITECTURE.md`.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    host::DatabaseHost,
    loader::TableLoader,
    state::{TableState, TableStatus},
};
use crate::{
    Error, Result,
    contract::{Engine as _, PendingWork, TableOptions},
    db::catalog::{Catalog, edit::TableDefinition, paths::ResolvedPath, tree::TableNode},
    engine::check_table_options,
    io::{Dir, Env, process::ProcessState},
    util::{
        codec::{Decoder, Lsn},
        sync::{Mutex, Ordering, RwLock, lock, read, write},
    },
    wal::Log,
};

/// The status of a closed registry.
const CLOSED: u8 = 1;

/// The open tables of a database.
#[derive(Debug)]
pub(crate) struct TableRegistry {
    loader: TableLoader,
    pub(crate) catalog: Catalog,
    tables: RwLock<HashMap<u64, Arc<TableState>>>,
    /// Dropped tables whose files are still to be removed.
    pending_removals: Mutex<Vec<Arc<TableState>>>,
    pub(super) host: Arc<DatabaseHost>,
    log: Arc<Log>,
    /// 0, or [`CLOSED`].
    status: ProcessState,
}

impl TableRegistry {
    /// Creates the registry of the tables that `loader` has opened.
    pub(crate) fn new(
        loader: TableLoader,
        catalog: Catalog,
        tables: HashMap<u64, Arc<TableState>>,
        log: Arc<Log>,
    ) -> Self {
        Self {
            host: Arc::clone(&loader.host),
            loader,
            catalog,
            tables: RwLock::new(tables),
            pending_removals: Mutex::new(Vec::new()),
            log,
            status: ProcessState::new(0),
        }
    }

    /// Returns whether the database was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.loader.read_only
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.status.get() == Some(CLOSED)
    }

    /// Closes the registry and every table. Returns `false`, and changes nothing, if it was closed.
    pub(crate) fn close(&self) -> bool {
        if !self.status.raise(CLOSED) {
            return false;
        }
        self.all().iter().for_each(|table| table.advance_status(TableStatus::Closed));
        true
    }

    /// Returns whether this process has inherited the database through `fork`. It must not use it
    /// then: not even a lock, which another thread may have held at the fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.status.is_forked()
    }

    /// Fails if this process has inherited the database through `fork`.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Fails if the database is closed, or inherited through `fork`.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.status.get() {
            Some(0) => Ok(()),
            Some(_) => Err(Error::Closed),
            None => Err(Error::Forked),
        }
    }

    /// Fails if the database is closed, inherited or read-only, or its catalog has failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        match self.catalog.failure() {
            None => Ok(()),
            Some(reason) => Err(Error::LogFailed { reason: reason.to_owned() }),
        }
    }

    /// Fails if the table takes no reads.
    #[inline]
    pub(crate) fn check_usable(&self, table: &TableState) -> Result<()> {
        match table.status() {
            TableStatus::Open | TableStatus::Loading => Ok(()),
            status => Err(self.unusable(table, status)),
        }
    }

    /// Fails if the table takes no writes.
    #[inline]
    pub(crate) fn check_takes_writes(&self, table: &TableState) -> Result<()> {
        match table.status() {
            TableStatus::Open => Ok(()),
            status => Err(self.unusable(table, status)),
        }
    }

    #[cold]
    fn unusable(&self, table: &TableState, status: TableStatus) -> Error {
        if status == TableStatus::Forked {
            return Error::Forked;
        }
        let name = self.name_of(table);
        match status {
            TableStatus::Failed => Error::TableFailed {
                table: name,
                reason: table.failure().unwrap_or_default().to_owned(),
            },
            TableStatus::Dropped => Error::StaleTable { name },
            TableStatus::Loading => Error::Loading { table: name },
            TableStatus::Closed | TableStatus::Open | TableStatus::Forked => Error::Closed,
        }
    }

    /// Returns a table's current name, or its last one. Empty in a forked child.
    pub(crate) fn name_of(&self, table: &TableState) -> String {
        if self.is_forked() {
            return String::new();
        }
        if let Some(name) = table.dropped_name.get() {
            return name.clone();
        }
        let name = self.catalog.with_tree(|tree| tree.path(table.id));
        name.or_else(|| table.dropped_name.get().cloned()).unwrap_or_default()
    }

    /// Returns the table with a number.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<TableState>> {
        read(&self.tables).get(&id).cloned()
    }

    /// Returns all tables, by number.
    pub(crate) fn all(&self) -> Vec<Arc<TableState>> {
        let mut tables: Vec<_> = read(&self.tables).values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    /// Returns whether `holds` is true for some table. Calls it under the lock of the map.
    pub(crate) fn any(&self, holds: impl FnMut(&Arc<TableState>) -> bool) -> bool {
        read(&self.tables).values().any(holds)
    }

    /// Returns whether an engine has work for an idle time.
    pub(crate) fn has_idle_work(&self) -> bool {
        let mut all = self.all().into_iter();
        all.any(|table| table.is_live() && table.engine.pending_work() == PendingWork::Later)
    }

    /// Returns the first LSN that some table still needs the log for, at most `up_to`.
    pub(crate) fn needed_from(&self, up_to: Lsn) -> Lsn {
        let needed = |table: &Arc<TableState>| {
            if table.is_dirty() { table.persisted().min(up_to) } else { up_to }
        };
        read(&self.tables).values().map(needed).min().unwrap_or(up_to)
    }

    /// Returns whether `path` leads through a mount.
    pub(crate) fn resolve(&self, path: &str) -> ResolvedPath {
        self.catalog.with_tree(|tree| tree.resolve(path))
    }

    /// Makes earlier commits durable before an edit of the catalog. After a power loss, names and
    /// contents are then one prefix of the history.
    pub(crate) fn prepare_edit(&self) -> Result<()> {
        self.check_writable()?;
        self.log.sync().map(drop)
    }

    /// Reports the number of durable catalog edits to the log, after an edit.
    pub(crate) fn report_edits(&self) {
        self.log.record_catalog_edit(self.catalog.edits());
    }

    /// Creates a table.
    pub(crate) fn create(&self, path: &str, options: &TableOptions) -> Result<Arc<TableState>> {
        self.prepare_edit()?;
        check_table_options(options)?;
        let record = TableDefinition::new(options, new_seed(&*self.loader.env));
        let types = options.table_types().cloned();
        let node = TableNode { record: record.clone(), complete: Lsn(0), types: types.clone() };
        let mut state = None;
        let prepare = |id| self.open_new(id, &node, &mut state);
        let outcome = self.catalog.create_table(path, record, types, prepare);
        self.end_creation(outcome, state)
    }

    /// Creates the table of the expiry index.
    pub(crate) fn create_expiry_index(&self, options: &TableOptions) -> Result<Arc<TableState>> {
        self.prepare_edit()?;
        let record = TableDefinition::new(options, new_seed(&*self.loader.env));
        let node = TableNode { record: record.clone(), complete: Lsn(0), types: None };
        let mut state = None;
        let prepare = |id| self.open_new(id, &node, &mut state);
        let outcome = self.catalog.create_expiry_index(record, prepare);
        self.end_creation(outcome, state)
    }

    /// Opens the engine of a new table before its catalog edit.
    fn open_new(
        &self,
        id: u64,
        node: &TableNode,
        state: &mut Option<Arc<TableState>>,
    ) -> Result<()> {
        self.make_directory(id)?;
        let table = Arc::new(self.loader.load(id, node)?);
        write(&self.tables).insert(id, Arc::clone(&table));
        *state = Some(table);
        Ok(())
    }

    /// Completes or undoes the creation of a table after its catalog edit.
    fn end_creation(
        &self,
        outcome: Result<u64>,
        state: Option<Arc<TableState>>,
    ) -> Result<Arc<TableState>> {
        if let (Err(_), Some(state)) = (&outcome, &state) {
            // The directory stays: the next table with this number, or the next open, removes it.
            write(&self.tables).remove(&state.id);
        }
        outcome?;
        self.report_edits();
        state.ok_or(Error::Closed)
    }

    /// Creates the directory of a new table, empty and durable.
    fn make_directory(&self, id: u64) -> Result<()> {
        let io_error = |error| Error::io(format!("make tables/{id}"), error);
        let tables_dir = &self.loader.tables_dir;
        // A failed attempt may have left files under this number.
        remove_directory(tables_dir, &id.to_string()).map_err(io_error)?;
        tables_dir.open_dir(&id.to_string(), true).map_err(io_error)?;
        tables_dir.sync().map_err(io_error)
    }

    /// Drops the table at `path`, or (unless `table_only`) the directory with all its tables.
    /// Returns whether a dropped table may have entries in the expiry index.
    pub(crate) fn drop_path(&self, path: &str, table_only: bool) -> Result<bool> {
        self.prepare_edit()?;
        let removed = self.catalog.remove(path, table_only)?;
        self.report_edits();
        let mut may_expire = false;
        for (name, id) in removed {
            if let Some(table) = write(&self.tables).remove(&id) {
                let _ = table.dropped_name.set(name);
                table.advance_status(TableStatus::Dropped);
                may_expire |= table.may_expire.load(Ordering::Acquire);
                lock(&self.pending_removals).push(table);
            }
        }
        Ok(may_expire)
    }

    /// Removes the files of dropped tables. The next open removes what a failure leaves. The caller
    /// holds the checkpoint round, and the lock of the database's directory is held.
    pub(crate) fn remove_pending(&self) {
        let removals = std::mem::take(&mut *lock(&self.pending_removals));
        for table in &removals {
            let _maintenance = lock(&table.maintenance);
            let _ = remove_directory(&self.loader.tables_dir, &table.id.to_string());
        }
    }

    /// Removes directories that no table owns: those of dropped tables and interrupted creations.
    pub(crate) fn remove_unowned(&self) -> io::Result<()> {
        let tables_dir = &self.loader.tables_dir;
        let mut removed = false;
        for entry in tables_dir.list()?.iter().filter(|entry| entry.is_dir) {
            let id = entry.name.parse().ok().filter(|id: &u64| entry.name == id.to_string());
            if id.and_then(|id| self.find(id)).is_none() {
                remove_directory(tables_dir, &entry.name)?;
                removed = true;
            }
        }
        // A table that is created with the same number must find an empty directory, also after a
        // power loss.
        if removed { tables_dir.sync() } else { Ok(()) }
    }
}

/// Removes a directory with its content, if it exists.
fn remove_directory(dir: &Arc<dyn Dir>, name: &str) -> io::Result<()> {
    let below = match dir.open_dir(name, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        below => below?,
    };
    for entry in below.list()? {
        if entry.is_dir {
            remove_directory(&below, &entry.name)?;
        } else {
            below.remove(&entry.name)?;
        }
    }
    dir.remove_dir(name)
}

/// Returns a random seed for a new table's hash.
fn new_seed(env: &dyn Env) -> [u64; 2] {
    let mut bytes = [0; 16];
    env.random(&mut bytes);
    let mut decoder = Decoder::new(&bytes);
    [decoder.u64().unwrap_or_default(), decoder.u64().unwrap_or_default()]
}
