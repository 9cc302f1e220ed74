//! Mounts: a directory of another database under a name of this one. See
//! [`session`](crate::db::api::session).

use std::path::PathBuf;

use super::{database::Database, session::refuse};
use crate::{
    Error, Result,
    db::catalog::{edit::MountRecord, paths::ResolvedPath, tree::check_path},
    util::error::system_message,
};

/// The target of a mount: see [`Database::mount`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    target: PathBuf,
    subtree: String,
    read_only: bool,
}

impl MountOptions {
    /// Mounts the whole database in the directory `target`, for reading and writing.
    pub fn new(target: impl Into<PathBuf>) -> Self {
        Self { target: target.into(), subtree: String::new(), read_only: false }
    }

    /// Mounts only the tables below this path of the target (default: all). The path need not exist
    /// yet.
    #[must_use]
    pub fn subtree(mut self, path: impl Into<String>) -> Self {
        self.subtree = path.into();
        self
    }

    /// Refuses writes through the mount (default `false`). The target is then opened read-only, so
    /// that other read-only handles may open it at the same time.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The path in this database.
    pub name: String,
    /// The directory of the other database.
    pub target: PathBuf,
    /// The mounted path of the target; empty: all of it.
    pub subtree: String,
    /// Whether writes through the mount are refused.
    pub read_only: bool,
}

impl Database {
    /// Shows another database, or a directory of it, at `path`: its tables are then found below.
    /// Durable when the call returns. Batches and renames do not cross a mount, and `check`,
    /// `stats` and `persist` do not include it.
    ///
    /// The other database is opened at the first access below the mount, and is locked from then
    /// on. Its memory budget is an eighth of this database's, and reserved from it.
    ///
    /// Fails with [`Error::Mount`] if the target is no database or leads back here through its own
    /// mounts, and with [`Error::TableExists`] if the path is in use.
    pub fn mount(&self, path: &str, options: MountOptions) -> Result<()> {
        let core = &self.session.core;
        core.tables.prepare_edit()?;
        check_path(path)?;
        if !options.subtree.is_empty() {
            check_path(&options.subtree)?;
        }
        if let ResolvedPath::Mount(mount) = core.tables.resolve(path) {
            return Err(refuse(&mount.path, "mounts do not hold mounts; mount it in the target"));
        }
        let target = core.env.canonical(&options.target).map_err(|error| {
            let reason = system_message(&error);
            refuse(path, format!("{} cannot be found: {reason}", options.target.display()))
        })?;
        self.session.check_no_cycle(path, &target)?;
        let text = target.to_str().ok_or_else(|| {
            refuse(path, format!("{} is not UTF-8: rename it first", target.display()))
        })?;
        let record = MountRecord {
            target: text.to_owned(),
            subtree: options.subtree,
            read_only: options.read_only,
        };
        core.tables.catalog.mount(path, record)?;
        core.tables.report_edits();
        Ok(())
    }

    /// Removes a mount; the other database is not changed. Tables that were opened through it stay
    /// usable until their handles are dropped. Fails with [`Error::NoSuchTable`].
    pub fn unmount(&self, path: &str) -> Result<()> {
        let core = &self.session.core;
        core.tables.prepare_edit()?;
        let id = core.tables.catalog.unmount(path)?;
        core.tables.report_edits();
        self.session.forget_mount(id);
        Ok(())
    }

    /// Returns all mounts, by path. Returns none in a forked child.
    pub fn mounts(&self) -> Vec<MountInfo> {
        if self.session.core.tables.is_forked() {
            return Vec::new();
        }
        let mounts = self.session.core.tables.catalog.with_tree(|tree| tree.mounts_below(""));
        let info = |(name, record): (String, MountRecord)| MountInfo {
            name,
            target: record.target.into(),
            subtree: record.subtree,
            read_only: record.read_only,
        };
        mounts.into_iter().map(info).collect()
    }

    /// Returns the database that is mounted at or above `path`, for batches within it.
    ///
    /// Fails with [`Error::NoSuchTable`] if the path leads through no mount, and with
    /// [`Error::Mount`] if the target cannot be opened.
    pub fn mounted(&self, path: &str) -> Result<Self> {
        self.session.core.tables.check_process()?;
        match self.session.core.tables.resolve(path) {
            ResolvedPath::Mount(mount) => self.open_mount(&mount),
            ResolvedPath::Local => Err(Error::NoSuchTable { name: path.to_owned() }),
        }
    }
}
