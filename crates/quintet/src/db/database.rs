//! What the user opens.

use std::{borrow::Borrow, path::Path, sync::Arc};

use super::{
    Batch, CheckLevel, DatabaseStats, Options, Table,
    catalog::{
        edit::{Progress, TableRecord},
        places::{MountPlace, Place},
        tree::{TableNode, Tree, check_path},
    },
    core::{Core, JobKind, Status, TableState},
    recovery::{Loader, new_seed},
};
use crate::{
    Error, Result,
    contract::{EngineKind, Host, TableOptions},
    util::{
        codec::Lsn,
        report::Report,
        sync::{Ordering, lock, read, write},
        types::TableTypes,
    },
};

/// An open database: one directory of tables that share a log, atomic batches and a memory budget.
///
/// Cheap to clone; usable from any number of threads. It is closed by [`Database::close`], or when
/// the last handle (a `Database`, [`Table`] or [`Batch`]) goes; then errors of closing are lost,
/// but nothing that was acknowledged.
#[derive(Clone, Debug)]
pub struct Database {
    pub(super) session: Arc<Session>,
}

/// What handles share: closes the database when the last of them goes. Jobs and engines do not
/// hold it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) core: Arc<Core>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.core.close();
    }
}

/// A table's name and engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its path.
    pub name: String,
    /// Its engine.
    pub kind: EngineKind,
    /// The types of its keys and values, where they are fixed.
    pub types: Option<TableTypes>,
}

impl Database {
    /// Opens the database in the directory `path`, making it where there is none, with the default
    /// [`Options`]. Fails as [`Options::open`] does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Makes a table. `path` is one to 32 names with `/` between them; each has 1 to 64 of the
    /// characters `A-Z a-z 0-9 _ . -` and does not start with a dot. Directories above it come and
    /// go by themselves. Durable when this returns, as is everything committed before.
    ///
    /// Fails with [`Error::TableExists`] where the path, or a part of it, is a table, or the path
    /// is a directory of tables; with [`Error::Limit`] for its names, [`Error::InvalidOption`] and
    /// [`Error::UnknownEngine`].
    pub fn create_table(&self, path: &str, options: impl Borrow<TableOptions>) -> Result<Table> {
        if let Place::Mount(place) = self.session.core.place(path) {
            let target = self.session.core.open_mount(&place)?;
            return target.create_table(&place.target_path(), options);
        }
        let state = self.session.core.create_table(path, options.borrow())?;
        Ok(Table { session: Arc::clone(&self.session), state })
    }

    /// Opens a table. Fails with [`Error::NoSuchTable`].
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

    /// Opens a table, making it where there is none. The options of a table that exists stay as
    /// they are.
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
                // Another thread was first; or the path is a directory, and stays one.
                Err(Error::TableExists { .. }) if self.table(path).is_ok() => {}
                other => return other,
            }
        }
    }

    /// All tables, by path; those behind mounts are left out ([`Database::walk`] has them).
    pub fn tables(&self) -> Vec<TableInfo> {
        let core = &self.session.core;
        core.infos(core.catalog.look(Tree::tables))
    }

    /// The table at `path`, or all tables below the directory `path`, mounts left out. Fails with
    /// [`Error::NoSuchTable`].
    pub fn tables_in(&self, path: &str) -> Result<Vec<TableInfo>> {
        let core = &self.session.core;
        core.check_open()?;
        let found =
            core.catalog.look(|tree| tree.find_existing(path).map(|id| tree.tables_below(id)))?;
        Ok(core.infos(found))
    }

    /// Gives a table, or a directory with all its tables, another path, in constant time and all
    /// at once. Open [`Table`]s stay valid. Durable when this returns, as is everything
    /// committed before. To the name that it has is no change, and no error.
    ///
    /// Fails with [`Error::NoSuchTable`], [`Error::TableExists`] and [`Error::Limit`].
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

    /// Removes a table. Its files go in the background. Durable when this returns, as is
    /// everything committed before. Fails with [`Error::NoSuchTable`], also for a directory.
    pub fn drop_table(&self, path: &str) -> Result<()> {
        self.remove(path, true)
    }

    /// Removes a table, or a directory with all its tables, in one edit of the catalog. Mounts in
    /// it go; what they showed stays. Otherwise
    /// as [`Database::drop_table`].
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

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.session))
    }

    /// Makes everything committed so far durable in the tables' own files, and lets go of the log
    /// that they no longer need.
    pub fn persist(&self) -> Result<()> {
        let core = &self.session.core;
        core.check_writable()?;
        core.bury();
        core.persist_all()
    }

    /// Makes every commit so far durable: what [`Durability::Sync`](super::Durability::Sync) does,
    /// for all that was `Buffered`.
    pub fn sync(&self) -> Result<()> {
        let core = &self.session.core;
        core.check_writable()?;
        core.log.sync().map(drop)
    }

    /// Verifies everything: the catalog, the log, every file of every table, every entry. Writes
    /// nothing. An error means that the check could not be done; damage is in the report.
    pub fn check(&self) -> Result<Report> {
        self.check_with(CheckLevel::Deep)
    }

    /// Verifies as much as `level` says. Otherwise as [`Database::check`].
    pub fn check_with(&self, level: CheckLevel) -> Result<Report> {
        self.session.core.check(level)
    }

    /// Figures.
    pub fn stats(&self) -> DatabaseStats {
        self.session.core.stats()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.session.core.read_only
    }

    /// Closes: waits for background work, makes every commit durable, and lets other processes in.
    /// Further operations on any handle fail with [`Error::Closed`]. Closing again does nothing.
    pub fn close(&self) -> Result<()> {
        let mounted = self.session.core.mounts.close();
        self.session.core.close().and(mounted)
    }
}

fn crosses(mount: &MountPlace) -> Error {
    let what = "tables do not move from one database to another".to_owned();
    Error::Mount { path: mount.path.clone(), what }
}

impl Core {
    pub(super) fn table_by_id(&self, id: u64) -> Option<Arc<TableState>> {
        read(&self.tables).get(&id).cloned()
    }

    fn infos(&self, tables: Vec<(String, u64)>) -> Vec<TableInfo> {
        let info = |(name, id)| {
            let table = self.table_by_id(id)?;
            Some(TableInfo { name, kind: table.kind, types: table.types().cloned() })
        };
        tables.into_iter().filter_map(info).collect()
    }

    /// Before an edit of the catalog: what was committed is durable, so that after a power loss
    /// names and contents together are one prefix of what was done.
    pub(super) fn before_edit(&self) -> Result<()> {
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

    /// Makes the table of what will expire.
    pub(super) fn create_expiry_index(&self, options: &TableOptions) -> Result<Arc<TableState>> {
        self.before_edit()?;
        let record = TableRecord::new(options, new_seed(&*self.env));
        let node = TableNode { record: record.clone(), complete: Lsn(0), types: None };
        let mut state = None;
        let prepare = |id| self.start_table(id, &node, &mut state);
        let outcome = self.catalog.create_expiry_index(record, prepare);
        self.end_creation(outcome, state)
    }

    /// Starts the engine of a new table whose catalog edit comes next.
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
        // In place before its name is, so that whoever finds the name finds the table.
        write(&self.tables).insert(id, Arc::clone(&table));
        *state = Some(table);
        Ok(())
    }

    fn end_creation(
        &self,
        outcome: Result<u64>,
        state: Option<Arc<TableState>>,
    ) -> Result<Arc<TableState>> {
        if let (Err(_), Some(state)) = (&outcome, &state) {
            write(&self.tables).remove(&state.id);
            // Its directory stays behind: the next table with this number, or the next open,
            // clears it.
        }
        outcome?;
        self.note_catalog();
        state.ok_or(Error::Closed)
    }

    /// Makes the directory of a new table, durably and empty.
    fn make_directory(&self, id: u64) -> Result<()> {
        let io_error = |error| Error::io(format!("make tables/{id}"), error);
        // A try that failed may have left something under this number.
        super::recovery::remove_tree(&self.tables_dir, &id.to_string()).map_err(io_error)?;
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
