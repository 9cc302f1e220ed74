//! The database handle, and the life of its tables: creation, rename, removal, close.

use std::{borrow::Borrow, path::Path, sync::Arc};

use crate::{
    Error, Result,
    contract::{EngineKind, Host, TableOptions},
    db::{
        Batch, CheckLevel, DatabaseStats, Options, Table,
        catalog::{
            edit::{Progress, TableRecord},
            paths::{MountPlace, Place},
            tree::{TableNode, Tree, check_path},
        },
        core::{Core, JobKind, Status, TableState},
        recovery::{Loader, new_seed},
    },
    util::{
        codec::Lsn,
        report::Report,
        sync::{Ordering, lock, read, write},
        types::TableTypes,
    },
};

/// An open database: a directory of tables that share a log, atomic batches and a memory budget.
///
/// Clones are cheap; any thread may use them. [`Database::close`] closes it. Otherwise the last
/// handle (`Database`, [`Table`] or [`Batch`]) closes it on drop; errors of that close are lost,
/// acknowledged writes are not.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) session: Arc<Session>,
}

/// Shared by all handles; closes the database when the last handle drops it. Jobs and engines do
/// not hold it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) core: Arc<Core>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.core.close();
    }
}

/// The name, engine and types of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// The table's path.
    pub name: String,
    /// The engine.
    pub kind: EngineKind,
    /// The types of keys and values, if they are fixed.
    pub types: Option<TableTypes>,
}

impl Database {
    /// Opens the database in the directory `path` with the default [`Options`], and creates it if
    /// it is missing. Fails as [`Options::open`] does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Creates a table. `path` has 1 to 32 components separated by `/`; each has 1 to 64 characters
    /// of `A-Z a-z 0-9 _ . -` and does not begin with a dot. Missing directories are created. The
    /// table, and everything committed before, is durable when the call returns.
    ///
    /// Fails with [`Error::TableExists`] if the path is a table or a directory, or a prefix of it
    /// is a table; [`Error::Limit`] for an invalid path; [`Error::InvalidOption`];
    /// [`Error::UnknownEngine`]; [`Error::ReadOnly`].
    pub fn create_table(&self, path: &str, options: impl Borrow<TableOptions>) -> Result<Table> {
        if let Place::Mount(place) = self.session.core.place(path) {
            let target = self.session.core.open_mount(&place)?;
            return target.create_table(&place.target_path(), options);
        }
        let state = self.session.core.create_table(path, options.borrow())?;
        Ok(Table { session: Arc::clone(&self.session), state })
    }

    /// Opens a table. Fails with [`Error::NoSuchTable`], and as [`Database::mounted`] does for a
    /// path behind a mount that cannot be opened.
    pub fn table(&self, path: &str) -> Result<Table> {
        let core = &self.session.core;
        core.check_open()?;
        if let Place::Mount(place) = core.place(path) {
            return core.open_mount(&place)?.table(&place.target_path());
        }
        let id = core.catalog.look(|tree| tree.find_table(path));
        let state = id.and_then(|id| core.table_by_id(id));
        let state = state.ok_or_else(|| Error::NoSuchTable { name: path.to_owned() })?;
        Ok(Table { session: Arc::clone(&self.session), state })
    }

    /// Opens a table, or creates it. Ignores `options` if the table exists. Otherwise as
    /// [`Database::table`] and [`Database::create_table`].
    pub fn open_or_create_table(
        &self,
        path: &str,
        options: impl Borrow<TableOptions>,
    ) -> Result<Table> {
        loop {
            match self.table(path) {
                Err(Error::NoSuchTable { .. }) => {}
                other => return other,
            }
            match self.create_table(path, options.borrow()) {
                // Another thread created the table first. A path that is a directory stays an
                // error.
                Err(Error::TableExists { .. }) if self.table(path).is_ok() => {}
                other => return other,
            }
        }
    }

    /// Returns all tables by path, without those behind mounts ([`Database::walk`] includes them).
    pub fn tables(&self) -> Vec<TableInfo> {
        let core = &self.session.core;
        core.infos(core.catalog.look(Tree::tables))
    }

    /// Returns the table at `path`, or all tables below the directory `path`, without those behind
    /// mounts. Fails with [`Error::NoSuchTable`].
    pub fn tables_in(&self, path: &str) -> Result<Vec<TableInfo>> {
        let core = &self.session.core;
        core.check_open()?;
        let found =
            core.catalog.look(|tree| tree.find_existing(path).map(|id| tree.tables_below(id)))?;
        Ok(core.infos(found))
    }

    /// Moves a table or a directory to another path, atomically and in constant time. Open
    /// [`Table`]s stay valid. The rename, and everything committed before, is durable when the call
    /// returns. A rename to the same path does nothing.
    ///
    /// Fails with [`Error::NoSuchTable`], [`Error::TableExists`], [`Error::Limit`], and
    /// [`Error::Mount`] if it would cross a mount.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let core = &self.session.core;
        core.before_edit()?;
        check_path(to)?;
        match (core.place(from), core.place(to)) {
            (Place::Mount(from), Place::Mount(to)) if from.id == to.id && !from.rest.is_empty() => {
                let target = core.open_mount(&from)?;
                return target.rename(&from.target_path(), &to.target_path());
            }
            (Place::Mount(mount), _) if !mount.rest.is_empty() => return Err(crosses(&mount)),
            (_, Place::Mount(mount)) => return Err(crosses(&mount)),
            // A mount itself moves as a table does.
            (_, Place::Here) => {}
        }
        core.catalog.rename(from, to)?;
        core.note_catalog();
        Ok(())
    }

    /// Drops a table. The removal, and everything committed before, is durable when the call
    /// returns. A background job removes the files. Fails with [`Error::NoSuchTable`] if the path
    /// is missing or a directory.
    pub fn drop_table(&self, path: &str) -> Result<()> {
        self.remove(path, true)
    }

    /// Drops a table, or a directory with all its tables, atomically. Mounts in it are removed; the
    /// databases that they show are not changed. Otherwise as [`Database::drop_table`].
    pub fn drop_tree(&self, path: &str) -> Result<()> {
        self.remove(path, false)
    }

    fn remove(&self, path: &str, table_only: bool) -> Result<()> {
        let core = &self.session.core;
        let Place::Mount(place) = core.place(path) else { return core.remove(path, table_only) };
        if place.rest.is_empty() {
            let what = "it shows another database; unmount removes it from here".to_owned();
            return Err(Error::Mount { path: place.path, what });
        }
        core.open_mount(&place)?.remove(&place.target_path(), table_only)
    }

    /// Returns an empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.session))
    }

    /// Checkpoints every table, then removes the log that no table needs. Waits for a checkpoint
    /// under way. Writes all bytes that are not yet in the tables' files.
    pub fn persist(&self) -> Result<()> {
        let core = &self.session.core;
        core.check_writable()?;
        core.bury();
        core.persist_all()
    }

    /// Makes every earlier commit durable with a sync of the log, as
    /// [`Durability::Sync`](crate::db::Durability::Sync) does for one write. Cheaper than
    /// [`Database::persist`].
    pub fn sync(&self) -> Result<()> {
        let core = &self.session.core;
        core.check_writable()?;
        core.log.sync().map(drop)
    }

    /// Verifies the catalog, the log, every file and every entry. Reads everything; writes nothing.
    /// The report lists damage. An error means that the check could not run.
    pub fn check(&self) -> Result<Report> {
        self.check_with(CheckLevel::Deep)
    }

    /// Same as [`Database::check`], restricted to `level`.
    pub fn check_with(&self, level: CheckLevel) -> Result<Report> {
        self.session.core.check(level)
    }

    /// Returns counters and sizes of the database.
    pub fn stats(&self) -> DatabaseStats {
        self.session.core.stats()
    }

    /// Returns whether the database was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.session.core.read_only
    }

    /// Waits for background work, makes every commit durable, and releases the lock of the
    /// directory. Later operations on every handle fail with [`Error::Closed`]. A second close does
    /// nothing.
    pub fn close(&self) -> Result<()> {
        let mounted = self.session.core.mounts.close();
        self.session.core.close().and(mounted)
    }
}

/// Builds the error of a rename that would cross `mount`.
fn crosses(mount: &MountPlace) -> Error {
    let what = "tables do not move from one database to another".to_owned();
    Error::Mount { path: mount.path.clone(), what }
}

impl Core {
    pub(crate) fn table_by_id(&self, id: u64) -> Option<Arc<TableState>> {
        read(&self.tables).get(&id).cloned()
    }

    fn infos(&self, tables: Vec<(String, u64)>) -> Vec<TableInfo> {
        let info = |(name, id)| {
            let table = self.table_by_id(id)?;
            Some(TableInfo { name, kind: table.kind, types: table.types().cloned() })
        };
        tables.into_iter().filter_map(info).collect()
    }

    /// Makes earlier commits durable before an edit of the catalog. After a power loss, names and
    /// contents are then one prefix of the history.
    pub(crate) fn before_edit(&self) -> Result<()> {
        self.check_writable()?;
        self.log.sync().map(drop)
    }

    fn create_table(&self, path: &str, options: &TableOptions) -> Result<Arc<TableState>> {
        self.before_edit()?;
        options.check()?;
        let record = TableRecord::new(options, new_seed(&*self.env));
        let types = options.table_types().cloned();
        let node = TableNode { record: record.clone(), complete: Lsn(0), types: types.clone() };
        let mut state = None;
        let prepare = |id| self.start_table(id, &node, &mut state);
        let outcome = self.catalog.create_table(path, record, types, prepare);
        self.end_creation(outcome, state)
    }

    /// Creates the table of the expiry index.
    pub(crate) fn create_expiry_index(&self, options: &TableOptions) -> Result<Arc<TableState>> {
        self.before_edit()?;
        let record = TableRecord::new(options, new_seed(&*self.env));
        let node = TableNode { record: record.clone(), complete: Lsn(0), types: None };
        let mut state = None;
        let prepare = |id| self.start_table(id, &node, &mut state);
        let outcome = self.catalog.create_expiry_index(record, prepare);
        self.end_creation(outcome, state)
    }

    /// Opens the engine of a new table before its catalog edit.
    fn start_table(
        &self,
        id: u64,
        node: &TableNode,
        state: &mut Option<Arc<TableState>>,
    ) -> Result<()> {
        self.make_directory(id)?;
        let loader = Loader {
            env: &self.env,
            tables_dir: &self.tables_dir,
            database_id: self.catalog.database_id(),
            budget: &self.budget,
            host: Arc::clone(&self.shared) as Arc<dyn Host>,
            read_only: false,
        };
        let table = Arc::new(loader.load(id, node)?);
        // Inserted before the catalog has the name: a thread that finds the name finds the table.
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
        self.note_catalog();
        state.ok_or(Error::Closed)
    }

    /// Creates the directory of a new table, empty and durable.
    fn make_directory(&self, id: u64) -> Result<()> {
        let io_error = |error| Error::io(format!("make tables/{id}"), error);
        // A failed attempt may have left files under this number.
        crate::db::recovery::remove_tree(&self.tables_dir, &id.to_string()).map_err(io_error)?;
        self.tables_dir.open_dir(&id.to_string(), true).map_err(io_error)?;
        self.tables_dir.sync().map_err(io_error)
    }

    fn remove(&self, path: &str, table_only: bool) -> Result<()> {
        self.before_edit()?;
        let removed = self.catalog.remove(path, table_only)?;
        self.note_catalog();
        for (name, id) in removed {
            if let Some(table) = write(&self.tables).remove(&id) {
                let _ = table.dropped_name.set(name);
                table.end(Status::Dropped);
                if table.may_expire.load(Ordering::Acquire) {
                    self.expiries.purge_wanted.store(true, Ordering::Release);
                    self.shared.jobs.wake(JobKind::Expire);
                }
                lock(&self.doomed).push(table);
            }
        }
        self.shared.jobs.wake(JobKind::Persist);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        if self.read_only {
            self.closed.store(true, Ordering::Release);
            self.all_tables().iter().for_each(|table| table.end(Status::Closed));
            lock(&self.lock).take();
            return Ok(());
        }
        self.shared.jobs.stop();
        let _round = self.round.lock();
        {
            // Nothing is between its look at `closed` and its record in the log.
            let _every = self.stripes.hold_every();
            if self.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            self.all_tables().iter().for_each(|table| table.end(Status::Closed));
        }
        // A load that is under way writes to files that may be another process's soon.
        self.all_tables().iter().for_each(|table| drop(lock(&table.load).take()));
        self.bury_alone();
        let outcome = self.leave_durable();
        lock(&self.lock).take();
        outcome
    }

    fn leave_durable(&self) -> Result<()> {
        self.log.close()?;
        self.catalog.progress(Progress {
            log_start: Lsn(self.log_start.load(Ordering::Relaxed)),
            log_durable: self.log.durable(),
            tables: Vec::new(),
        })?;
        self.note_catalog();
        self.catalog.close()
    }
}
