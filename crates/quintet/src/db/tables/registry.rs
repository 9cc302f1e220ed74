//! The registry of the tables: the catalog, and the state of each open table by number.
//!
//! A table is created, renamed and dropped by an edit of the catalog. The log is synced before each
//! edit, so that after a power loss names and contents are one prefix of the history.
//!
//! The first handle of a table opens it. It stays open while there is a handle, and afterwards
//! until its memory and its files are needed ([`TableRegistry::close_unused`]). So a database may
//! have more tables than fit in memory, and opening it reads none of them.
//!
//! Invariants:
//! - An open table is in the catalog, except for a moment a table whose edit is about to become
//!   durable.
//! - A table is closed only if nothing but the registry refers to its state, and its files are
//!   complete. So a closed table needs nothing from the log.
//! - A table is opened and closed under its transition lock: no two engines use its files.
//!
//! Locks: the transition lock of a table is taken before its `maintenance`; a thread that holds one
//! only tries another. The map of tables and the pending removals are leaves; see
//! `ARCHITECTURE.md`.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
};

use super::{
    host::DatabaseHost,
    loader::TableLoader,
    state::{TableState, TableStatus},
    stripes::Stripes,
};
use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind, PendingWork, TableOptions},
    db::{
        catalog::{
            Catalog,
            edit::TableDefinition,
            paths::ResolvedPath,
            tree::{CatalogTree, TableNode},
        },
        merge::MergeOperators,
    },
    engine::check_table_options,
    io::{Dir, Env, process::ProcessState},
    util::{
        codec::{Decoder, Lsn, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, RwLock, lock, read, write},
    },
    wal::Log,
};

/// The status of a closed registry.
const CLOSED: u8 = 1;
/// Memory that one open table is expected to need, in bytes: tables without a handle stay open
/// within half of the budget.
const OPEN_TABLE_BYTES: u64 = 2 << 20;
/// Minimum number of tables that may be open at once.
const OPEN_TABLES_MIN: usize = 4;
/// Of the files that the process may open, one part in this many is left to others.
const FILES_LEFT_SHARE: u64 = 4;
/// Number of transition locks. Tables share them by number.
const TRANSITIONS: usize = 64;
/// Number of dropped tables whose files are removed in one step.
const REMOVALS_STEP: usize = 64;

/// The tables of a database.
#[derive(Debug)]
pub(crate) struct TableRegistry {
    loader: TableLoader,
    pub(crate) catalog: Catalog,
    /// The open tables, by number.
    pub(super) tables: RwLock<HashMap<u64, Arc<TableState>>>,
    /// Held while a table is opened or closed.
    transitions: [Mutex<()>; TRANSITIONS],
    /// Number of handles given out so far.
    handles_total: AtomicU64,
    /// Maximum number of open tables, unless more have handles.
    open_max: usize,
    /// Dropped tables whose files are still to be removed, and their state if they are open.
    pub(super) pending_removals: Mutex<Vec<(u64, Option<Arc<TableState>>)>>,
    pub(crate) stripes: Stripes,
    pub(super) host: Arc<DatabaseHost>,
    pub(super) log: Arc<Log>,
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
        let open_max = to_usize(loader.budget.limit() / 2 / OPEN_TABLE_BYTES);
        Self {
            stripes: Stripes::default(),
            host: Arc::clone(&loader.host),
            loader,
            catalog,
            tables: RwLock::new(tables),
            transitions: std::array::from_fn(|_| Mutex::new(())),
            handles_total: AtomicU64::new(0),
            open_max: open_max.max(OPEN_TABLES_MIN),
            pending_removals: Mutex::new(Vec::new()),
            log,
            status: ProcessState::new(0),
        }
    }

    /// Returns whether the database was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.loader.read_only
    }

    pub(crate) fn merge_operators(&self) -> &MergeOperators {
        &self.loader.merge_operators
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

    /// Returns the error for an operation that needs key order.
    pub(crate) fn unordered(&self, table: &TableState) -> Error {
        Error::Unordered { table: self.name_of(table), engine: table.kind.name() }
    }

    /// Returns the error for an operation on a table with this status.
    #[cold]
    pub(super) fn unusable(&self, table: &TableState, status: TableStatus) -> Error {
        if status == TableStatus::Forked {
            return Error::Forked;
        }
        let name = self.name_of(table);
        match status {
            TableStatus::Failed => Error::TableFailed {
                table: name,
                reason: table.failure().unwrap_or_default().to_owned(),
            },
            // Only a transaction and a batch do not refer to the successor.
            TableStatus::Dropped if table.next().is_some() => {
                Error::Conflict { table: name, key: Vec::new() }
            }
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
        if let Some(successor) = table.successor() {
            return self.name_of(&successor);
        }
        let name = self.catalog.with_tree(|tree| tree.path(table.id));
        name.or_else(|| table.dropped_name.get().cloned()).unwrap_or_default()
    }

    /// Returns the table with a number, if it is open.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<TableState>> {
        let table = read(&self.tables).get(&id).cloned()?;
        let order = self.handles_total.fetch_add(1, Ordering::Relaxed);
        table.last_opened.store(order, Ordering::Relaxed);
        Some(table)
    }

    /// Returns the numbers of all tables, open or not, with the expiry index.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.catalog.with_tree(CatalogTree::table_ids)
    }

    /// Returns whether the catalog has a table with a number.
    pub(crate) fn exists(&self, id: u64) -> bool {
        self.catalog.with_tree(|tree| tree.table(id).is_some())
    }

    /// Returns the engine of the table with a number.
    pub(crate) fn kind_of(&self, id: u64) -> Option<EngineKind> {
        let options = |tree: &CatalogTree| tree.table(id)?.record.options().ok();
        self.catalog.with_tree(options).map(|options| options.kind())
    }

    /// Returns the table with a number, and opens it if necessary. `None`: there is none. Fails as
    /// [`TableLoader::load`] does.
    pub(crate) fn open(&self, id: u64) -> Result<Option<Arc<TableState>>> {
        let _transition = lock(self.transition_of(id));
        if let Some(table) = self.find(id) {
            return Ok(Some(table));
        }
        self.check_open()?;
        let Some(node) = self.catalog.with_tree(|tree| tree.table(id).cloned()) else {
            return Ok(None);
        };
        let table = match self.loader.load(id, &node) {
            // Another thread dropped it, and its files may be gone.
            Err(_) if !self.exists(id) => return Ok(None),
            loaded => loaded?,
        };
        let may_expire = self.catalog.with_tree(|tree| tree.expiry_index().is_some());
        table.may_expire.store(may_expire, Ordering::Release);
        write(&self.tables).insert(id, Arc::clone(&table));
        // A drop, or a close of the database, that came before the insertion has missed the table.
        if !self.exists(id) {
            write(&self.tables).remove(&id);
            return Ok(None);
        }
        if self.is_closed() {
            table.advance_status(TableStatus::Closed);
            return Err(Error::Closed);
        }
        Ok(self.find(id))
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
    fn transition_of(&self, id: u64) -> &Mutex<()> {
        &self.transitions[to_usize(id) % TRANSITIONS]
    }

    /// Returns whether another table may be opened without closing one.
    pub(crate) fn has_room(&self) -> bool {
        let (files, files_max) = self.loader.env.open_files();
        read(&self.tables).len() < self.open_max && files < files_max - files_max / FILES_LEFT_SHARE
    }

    /// Returns the numbers of the open tables without a handle, the least recently used first.
    pub(crate) fn unused(&self) -> Vec<u64> {
        let unused = |table: &&Arc<TableState>| {
            Arc::strong_count(table) == 1 && table.status() == TableStatus::Open
        };
        let mut unused: Vec<_> = read(&self.tables)
            .values()
            .filter(unused)
            .map(|table| (table.last_opened.load(Ordering::Relaxed), table.id))
            .collect();
        unused.sort_unstable();
        unused.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns those of the tables that are open and need a checkpoint.
    pub(crate) fn unsaved(&self, ids: &[u64]) -> Vec<Arc<TableState>> {
        let tables = read(&self.tables);
        let open = ids.iter().filter_map(|id| tables.get(id));
        open.filter(|table| table.needs_checkpoint()).cloned().collect()
    }

    /// Closes those of the tables that have no handle and whose files are complete. Returns how
    /// many.
    pub(crate) fn close_unused(&self, ids: &[u64]) -> usize {
        let mut closed = 0;
        for id in ids {
            // Held by a thread that opens a table, perhaps this one.
            let Ok(_transition) = self.transition_of(*id).try_lock() else { continue };
            let mut tables = write(&self.tables);
            let is_closable = tables.get(id).is_some_and(|table| {
                // The map is locked, so no user can get a new reference. The budget may have one
                // for a moment, and only releases memory with it.
                let is_saved = mutant!(ClosesUnsavedTables: true, else !table.needs_checkpoint());
                Arc::strong_count(table) == 1 && table.status() == TableStatus::Open && is_saved
            });
            let table = if is_closable { tables.remove(id) } else { None };
            drop(tables);
            closed += usize::from(table.is_some());
            // Its files are closed before the transition ends.
            drop(table);
        }
        closed
    }

    /// Returns the number of open tables.
    pub(crate) fn open_count(&self) -> usize {
        read(&self.tables).len()
    }

    /// Returns the open tables, by number.
    pub(crate) fn all(&self) -> Vec<Arc<TableState>> {
        let mut tables: Vec<_> = read(&self.tables).values().cloned().collect();
        tables.sort_by_key(|table| table.id);
        tables
    }

    /// Returns whether `holds` is true for some table. Calls it under the lock of the map.
    pub(crate) fn any(&self, holds: impl FnMut(&Arc<TableState>) -> bool) -> bool {
        read(&self.tables).values().any(holds)
    }

    /// Returns what `each` returns for the tables. Calls it under the lock of the map.
    pub(crate) fn filter_map<T>(&self, each: impl Fn(&TableState) -> Option<T>) -> Vec<T> {
        read(&self.tables).values().filter_map(|table| each(table)).collect()
    }

    /// Returns whether an engine has work for an idle time.
    pub(crate) fn has_idle_work(&self) -> bool {
        let mut all = self.all().into_iter();
        all.any(|table| table.is_live() && table.engine.pending_work() == PendingWork::Later)
    }

    /// Returns the first LSN that some table still needs the log for, at most `up_to`. `complete`
    /// has tables that are complete to more than a checkpoint has recorded.
    pub(crate) fn needed_from(&self, up_to: Lsn, complete: &BTreeMap<u64, Lsn>) -> Lsn {
        let needed = |table: &Arc<TableState>| {
            let complete = complete.get(&table.id).copied().unwrap_or_default();
            table.needed_from(up_to).max(complete.min(up_to))
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
        self.check_new_merge_operator(path, options)?;
        let record = TableDefinition::new(options, new_seed(&*self.loader.env));
        let types = options.table_types().cloned();
        let node = TableNode { record: record.clone(), complete: Lsn(0), types: types.clone() };
        let mut state = None;
        let prepare = |id| {
            self.log_begin(id)?;
            self.open_new(id, &node, &mut state)
        };
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
    pub(super) fn open_new(
        &self,
        id: u64,
        node: &TableNode,
        state: &mut Option<Arc<TableState>>,
    ) -> Result<()> {
        self.make_directory(id)?;
        let table = self.loader.load(id, node)?;
        write(&self.tables).insert(id, Arc::clone(&table));
        *state = Some(table);
        Ok(())
    }

    /// Completes or undoes the creation of a table after its catalog edit.
    pub(super) fn end_creation(
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

    /// Creates the directory of a new table, empty. Its name is durable before the catalog counts
    /// the table's files: see [`DirectorySync`](super::loader::DirectorySync).
    fn make_directory(&self, id: u64) -> Result<()> {
        let io_error = |error| Error::io(format!("make tables/{id}"), error);
        let tables_dir = &self.loader.tables_dir;
        // A failed attempt may have left files under this number.
        remove_directory(tables_dir, &id.to_string()).map_err(io_error)?;
        self.loader.create_directory(&id.to_string()).map(drop).map_err(io_error)
    }

    /// Makes the names of all tables' directories durable. After a failed sync the database takes
    /// no more writes.
    pub(crate) fn sync_directories(&self) -> Result<()> {
        let synced = self.loader.sync_directories();
        if let Err(error) = &synced {
            self.catalog.fail(error);
        }
        synced
    }

    /// Drops the table at `path`, or (unless `table_only`) the directory with all its tables.
    /// Returns whether a dropped table may have entries in the expiry index. `number` returns when
    /// the tables are dropped, in the numbers of snapshots.
    pub(crate) fn drop_path(
        &self,
        path: &str,
        table_only: bool,
        number: impl FnOnce() -> u64,
    ) -> Result<bool> {
        self.prepare_edit()?;
        let removed = self.catalog.remove(path, table_only)?;
        self.report_edits();
        if !self.log.is_retained() {
            // The name may be given again without a record.
            self.log.note_unlogged();
        }
        // What a closed table has in the expiry index is unknown.
        let index = self.catalog.with_tree(|tree| tree.expiry_index().is_some());
        let mut may_expire = false;
        let mut tables = write(&self.tables);
        let mut removals = lock(&self.pending_removals);
        let number = number();
        for (name, id) in removed {
            let table = tables.remove(&id);
            if let Some(table) = &table {
                let _ = table.dropped_name.set(name);
                table.mark_dropped(number);
            }
            may_expire |=
                table.as_ref().map_or(index, |table| table.may_expire.load(Ordering::Acquire));
            removals.push((id, table));
        }
        Ok(may_expire)
    }

    /// Removes the files of some dropped tables, except those for which `is_kept` returns true.
    /// Returns whether there are more to remove. The next open removes what a failure leaves. The
    /// caller holds the checkpoint round, and the lock of the database's directory is held.
    pub(crate) fn remove_pending(&self, is_kept: impl Fn(&TableState) -> bool) -> bool {
        let pending = std::mem::take(&mut *lock(&self.pending_removals));
        let is_kept = |table: &Option<Arc<TableState>>| table.as_deref().is_some_and(&is_kept);
        let (kept, mut removals): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|(_, table)| is_kept(table));
        let rest = removals.split_off(removals.len().min(REMOVALS_STEP));
        let is_rest = !rest.is_empty();
        lock(&self.pending_removals).extend(kept.into_iter().chain(rest));
        for (id, table) in &removals {
            let _transition = lock(self.transition_of(*id));
            let _maintenance = table.as_ref().map(|table| lock(&table.maintenance));
            let _ = remove_directory(&self.loader.tables_dir, &id.to_string());
        }
        is_rest
    }

    /// Removes directories that no table owns: those of dropped tables and interrupted creations.
    pub(crate) fn remove_unowned(&self) -> io::Result<()> {
        let tables_dir = &self.loader.tables_dir;
        let mut removed = false;
        for entry in tables_dir.list()?.iter().filter(|entry| entry.is_dir) {
            if !self.exists_directory(&entry.name) {
                remove_directory(tables_dir, &entry.name)?;
                removed = true;
            }
        }
        // A table that is created with the same number must find an empty directory, also after a
        // power loss.
        if removed { tables_dir.sync() } else { Ok(()) }
    }

    /// Returns whether a table owns the directory `name`.
    fn exists_directory(&self, name: &str) -> bool {
        let id = name.parse().ok().filter(|id: &u64| name == id.to_string());
        id.is_some_and(|id| self.exists(id))
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
