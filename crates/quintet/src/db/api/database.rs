//! The database handle: it opens and closes a database, and creates, renames and drops its tables.

use std::{borrow::Borrow, path::Path, sync::Arc};

use super::{
    batch::Batch,
    check::CheckLevel,
    session::{Session, refuse},
    snapshot::Snapshot,
    stats::DatabaseStats,
    table::Table,
};
use crate::{
    Error, Result,
    contract::{EngineKind, TableOptions},
    db::{
        catalog::{
            paths::{MountedPath, ResolvedPath},
            tree::{CatalogTree, check_path},
        },
        core::Core,
        recovery::options::Options,
    },
    io::{Env, os::OsEnv, process::ProcessArc},
    util::{report::Report, types::TableTypes},
};

/// An open database: a directory of tables that share a log, atomic batches and a memory budget.
///
/// Clones are cheap; any thread may use them. [`Database::close`] closes it. Otherwise the last
/// handle (`Database`, [`Table`] or [`Batch`]) closes it on drop; errors of that close are lost,
/// acknowledged writes are not.
///
/// A handle belongs to the process that created it. In a child that inherits it through `fork`,
/// every call that returns a `Result` fails with [`Error::Forked`] and touches nothing. Dropping
/// the handle there does nothing. Calls without a `Result` return what the handle itself knows
/// ([`Table::kind`], [`Database::is_read_only`]), or nothing: an empty name or list, zeros.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) session: ProcessArc<Session>,
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

    /// Takes a snapshot of all tables at this moment. Neither copies anything nor waits for writers
    /// or the disk; see [`Snapshot`] for what it shows and costs. Fails with [`Error::Closed`] or
    /// [`Error::Forked`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(&self.session)
    }

    /// Creates a table. `path` has 1 to 32 components separated by `/`; each has 1 to 64 characters
    /// of `A-Z a-z 0-9 _ . -` and does not begin with a dot. Missing directories are created. The
    /// table, and everything committed before, is durable when the call returns.
    ///
    /// Fails with [`Error::TableExists`] if the path is a table or a directory, or a prefix of it
    /// is a table; [`Error::Limit`] for an invalid path; [`Error::InvalidOption`];
    /// [`Error::MergeOperatorMissing`]; [`Error::UnknownEngine`]; [`Error::ReadOnly`].
    pub fn create_table(&self, path: &str, options: impl Borrow<TableOptions>) -> Result<Table> {
        let core = &self.session.core;
        core.tables.check_process()?;
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            let target = self.open_mount(&mount)?;
            return target.create_table(&mount.target_path(), options);
        }
        let state = core.create_table(path, options.borrow())?;
        Ok(Table::new(self.session.clone(), state))
    }

    /// Opens a table. The first handle reads the table's index from its files, which takes some
    /// milliseconds, or longer for a large table. Later handles cost a lookup of the name.
    ///
    /// A table without a handle stays open until its memory or its files are needed. Then it is
    /// checkpointed and closed, the least recently used first. A write that lacks memory closes
    /// tables. So does an open when three quarters of the process's files are open, or when too
    /// many tables are. Too many is one for each 4 MiB of the memory budget, and at least 4.
    ///
    /// Fails with [`Error::NoSuchTable`], [`Error::Corruption`] if the table's files are damaged,
    /// [`Error::OutOfMemory`] and [`Error::Io`]. Fails with [`Error::MergeOperatorMissing`] if the
    /// options lack the merge operator of the table. Fails as [`Database::mounted`] does for a path
    /// behind a mount that cannot be opened.
    pub fn table(&self, path: &str) -> Result<Table> {
        let core = &self.session.core;
        core.tables.check_open()?;
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            return self.open_mount(&mount)?.table(&mount.target_path());
        }
        let id = core.tables.catalog.with_tree(|tree| tree.find_table(path));
        let state = id.map(|id| core.open_table(id)).transpose()?.flatten();
        let state = state.ok_or_else(|| Error::NoSuchTable { name: path.to_owned() })?;
        core.tables.check_merge_operator(&state)?;
        Ok(Table::new(self.session.clone(), state))
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
    /// Returns none in a forked child.
    pub fn tables(&self) -> Vec<TableInfo> {
        let core = &self.session.core;
        if core.tables.is_forked() {
            return Vec::new();
        }
        table_infos(core, core.tables.catalog.with_tree(CatalogTree::tables))
    }

    /// Returns the table at `path`, or all tables below the directory `path`, without those behind
    /// mounts. Fails with [`Error::NoSuchTable`].
    pub fn tables_in(&self, path: &str) -> Result<Vec<TableInfo>> {
        let core = &self.session.core;
        core.tables.check_open()?;
        let below = core
            .tables
            .catalog
            .with_tree(|tree| tree.find_existing(path).map(|id| tree.tables_below(id)))?;
        Ok(table_infos(core, below))
    }

    /// Moves a table or a directory to another path, atomically and in constant time. Open
    /// [`Table`]s stay valid. The rename, and everything committed before, is durable when the call
    /// returns. A rename to the same path does nothing.
    ///
    /// Fails with [`Error::NoSuchTable`], [`Error::TableExists`], [`Error::Limit`], and
    /// [`Error::Mount`] if it would cross a mount.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let core = &self.session.core;
        core.tables.prepare_edit()?;
        check_path(to)?;
        match (core.tables.resolve(from), core.tables.resolve(to)) {
            (ResolvedPath::Mount(from), ResolvedPath::Mount(to))
                if from.id == to.id && !from.remainder.is_empty() =>
            {
                let target = self.open_mount(&from)?;
                return target.rename(&from.target_path(), &to.target_path());
            }
            (ResolvedPath::Mount(mount), _) if !mount.remainder.is_empty() => {
                return Err(crosses(&mount));
            }
            (_, ResolvedPath::Mount(mount)) => return Err(crosses(&mount)),
            // A mount itself moves as a table does.
            (_, ResolvedPath::Local) => {}
        }
        core.tables.catalog.rename(from, to)?;
        core.tables.report_edits();
        Ok(())
    }

    /// Drops a table. The removal, and everything committed before, is durable when the call
    /// returns. A background job removes the files. Fails with [`Error::NoSuchTable`] if the path
    /// is missing or a directory.
    pub fn drop_table(&self, path: &str) -> Result<()> {
        self.drop_path(path, true)
    }

    /// Drops a table, or a directory with all its tables, atomically. Mounts in it are removed; the
    /// databases that they show are not changed. Otherwise as [`Database::drop_table`].
    pub fn drop_tree(&self, path: &str) -> Result<()> {
        self.drop_path(path, false)
    }

    fn drop_path(&self, path: &str, table_only: bool) -> Result<()> {
        let core = &self.session.core;
        core.tables.check_process()?;
        let ResolvedPath::Mount(mount) = core.tables.resolve(path) else {
            return core.drop_path(path, table_only);
        };
        if mount.remainder.is_empty() {
            return Err(refuse(
                &mount.path,
                "it shows another database; unmount removes it from here",
            ));
        }
        self.open_mount(&mount)?.drop_path(&mount.target_path(), table_only)
    }

    /// Returns an empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(self.session.clone())
    }

    /// Checkpoints every table, then removes the log that no table needs. Waits for a checkpoint
    /// under way. Writes all bytes that are not yet in the tables' files.
    pub fn persist(&self) -> Result<()> {
        let core = &self.session.core;
        core.tables.check_writable()?;
        core.remove_dropped();
        core.checkpoints.checkpoint_all(&core.tables)
    }

    /// Makes every earlier commit durable with a sync of the log, as
    /// [`Durability::Sync`](crate::Durability::Sync) does for one write. Cheaper than
    /// [`Database::persist`].
    pub fn sync(&self) -> Result<()> {
        let core = &self.session.core;
        core.tables.check_writable()?;
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

    /// Returns counters and sizes of the database and all its tables. Opens the tables that are not
    /// open, one after the other, which may take milliseconds each. [`Table::stats`] reads one.
    /// All are zero in a forked child.
    pub fn stats(&self) -> DatabaseStats {
        self.session.core.stats()
    }

    /// Returns the same as [`Database::stats`] without opening a table: `tables` has at most
    /// `limit` of the open tables, and `file_bytes` counts their files only. Reads no file, but for
    /// tables of `slm` and `tph` with up to 4,096 entries, whose keys it counts.
    pub fn stats_of_open_tables(&self, limit: usize) -> DatabaseStats {
        self.session.core.stats_of_open(limit)
    }

    /// Returns the number of tables, without those behind mounts. 0 in a forked child.
    pub fn table_count(&self) -> usize {
        let tables = &self.session.core.tables;
        if tables.is_forked() { 0 } else { tables.catalog.with_tree(CatalogTree::table_count) }
    }

    /// Returns why the database takes no writes until it is reopened: a sync of the log or of the
    /// catalog has failed. `None` while it works. Takes constant time.
    pub fn write_failure(&self) -> Option<String> {
        self.session.core.write_failure()
    }

    /// Returns whether the database was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.session.core.tables.is_read_only()
    }

    /// Waits for background work, makes every commit durable, and releases the lock of the
    /// directory. Later operations on every handle fail with [`Error::Closed`]. A second close does
    /// nothing.
    pub fn close(&self) -> Result<()> {
        self.session.close()
    }

    /// Opens the database behind a mount.
    pub(super) fn open_mount(&self, path: &MountedPath) -> Result<Self> {
        Ok(Self { session: ProcessArc::new(self.session.open_mount(path)?) })
    }
}

impl Options {
    /// Opens the database in the directory `path` and replays the log past the last checkpoint,
    /// about [`Options::recovery_budget`] bytes at most.
    ///
    /// Fails with [`Error::Locked`] if it is open elsewhere. Fails with [`Error::NotADatabase`] if
    /// it is missing and [`Options::create`] is off, or the directory has other files. Fails with
    /// [`Error::Corruption`] for damage, [`Error::NewerFormat`] for files of a newer release,
    /// [`Error::InvalidOption`] and [`Error::Io`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.validate()?;
        let env: Arc<dyn Env> = Arc::new(OsEnv::new().on(self.memory));
        Ok(Database { session: ProcessArc::new(Session::open(&env, path.as_ref(), self)?) })
    }

    /// Same as [`Options::open`], on the caller's [`Env`]. For tests.
    #[cfg(feature = "testing")]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand over a fresh clone")]
    pub fn open_in(&self, env: Arc<dyn Env>, path: impl AsRef<Path>) -> Result<Database> {
        self.validate()?;
        Ok(Database { session: ProcessArc::new(Session::open(&env, path.as_ref(), self)?) })
    }
}

/// Builds the error of a rename that would cross `mount`.
fn crosses(mount: &MountedPath) -> Error {
    refuse(&mount.path, "tables do not move from one database to another")
}

fn table_infos(core: &Core, tables: Vec<(String, u64)>) -> Vec<TableInfo> {
    core.tables.catalog.with_tree(|tree| {
        let info = |(name, id)| {
            let table = tree.table(id)?;
            let kind = table.record.options().ok()?.kind();
            Some(TableInfo { name, kind, types: table.types.clone() })
        };
        tables.into_iter().filter_map(info).collect()
    })
}
