//! Mounts: a directory of another database under a name of this one.
//!
//! The catalog records the target of a mount. The other database is opened at the first access
//! below the mount, and stays open until this one is closed or the mount is removed. It is not
//! opened earlier, because a database must open although a target is unavailable (an unplugged
//! disk, a network share); only an access to the missing part fails.
//!
//! Invariants:
//! - No chain of mounts leads back to a database in it. A cycle is refused when the mount is
//!   created, and again at access, because the other database may have changed.
//! - A directory is opened once, however many mounts lead to it ([`Registry`]).
//! - A database is held by the databases that mount it and by its users, never by a database that
//!   it mounts.
//!
//! Threads: any. The registry's lock is held while a database is opened, so a second thread waits.
//! Lock order: `ARCHITECTURE.md`.
//!
//! From: ckvs (its README: "could be partially mounted to some virtual store"), which names mounts
//! and does not describe them.

pub(crate) mod jobs;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use super::{
    Database, Options,
    catalog::{Catalog, edit::MountRecord},
    core::Core,
};
use crate::{
    Error, Result,
    db::{
        api::database::Session,
        catalog::paths::{MountPlace, Place},
    },
    io::Env,
    util::{
        budget::Budget,
        sync::{Mutex, lock},
    },
};

/// Maximum number of databases in a chain of mounts.
const CHAIN_MAX: usize = 16;
/// A mounted database gets one part in this many of the memory budget of the database that mounts
/// it.
const BUDGET_SHARE: u64 = 8;

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

/// The databases that are open through mounts, by directory. All databases of a chain share it.
pub(crate) type Registry = Mutex<HashMap<PathBuf, Weak<Session>>>;

/// A database's part in mounts.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    registry: Arc<Registry>,
    /// The directories from the first database of the chain to this one.
    chain: Vec<PathBuf>,
    /// The databases opened through this database's own mounts, by the mount's number.
    opened: Mutex<HashMap<u64, Opened>>,
}

#[derive(Debug)]
struct Opened {
    database: Database,
    /// Releases the reserved memory on drop.
    _memory: Option<Share>,
}

/// Memory reserved for a mounted database.
#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

impl Mounts {
    /// Creates the state of a database at `path`, opened directly or through a mount of `parent`.
    pub(crate) fn new(env: &dyn Env, path: &Path, parent: Option<&Self>) -> Self {
        let own = env.canonical(path).unwrap_or_else(|_| path.to_owned());
        let mut chain = parent.map(|parent| parent.chain.clone()).unwrap_or_default();
        chain.push(own);
        let registry = parent.map(|parent| Arc::clone(&parent.registry)).unwrap_or_default();
        Self { registry, chain, opened: Mutex::default() }
    }

    /// Closes the databases that were opened through mounts.
    pub(crate) fn close(&self) -> Result<()> {
        let opened = std::mem::take(&mut *lock(&self.opened));
        let close = |opened: Opened| opened.database.close();
        // All are closed; the first error is returned.
        opened.into_values().map(close).fold(Ok(()), Result::and)
    }
}

fn refuse(path: &str, what: impl Into<String>) -> Error {
    Error::Mount { path: path.to_owned(), what: what.into() }
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
        core.before_edit()?;
        super::catalog::tree::check_path(path)?;
        if !options.subtree.is_empty() {
            super::catalog::tree::check_path(&options.subtree)?;
        }
        if let Place::Mount(place) = core.place(path) {
            return Err(refuse(&place.path, "mounts do not hold mounts; mount it in the target"));
        }
        let target = core.env.canonical(&options.target).map_err(|error| {
            refuse(path, format!("{} cannot be found: {error}", options.target.display()))
        })?;
        core.refuse_cycle(path, &target)?;
        let text = target.to_str().ok_or_else(|| {
            refuse(path, format!("{} is not UTF-8: rename it first", target.display()))
        })?;
        let record = MountRecord {
            target: text.to_owned(),
            subtree: options.subtree,
            read_only: options.read_only,
        };
        core.catalog.mount(path, record)?;
        core.note_catalog();
        Ok(())
    }

    /// Removes a mount; the other database is not changed. Tables that were opened through it stay
    /// usable until their handles are dropped. Fails with [`Error::NoSuchTable`].
    pub fn unmount(&self, path: &str) -> Result<()> {
        let core = &self.session.core;
        core.before_edit()?;
        let id = core.catalog.unmount(path)?;
        core.note_catalog();
        let gone = lock(&core.mounts.opened).remove(&id);
        drop(gone);
        Ok(())
    }

    /// Returns all mounts, by path.
    pub fn mounts(&self) -> Vec<MountInfo> {
        let mounts = self.session.core.catalog.look(|tree| tree.mounts_below(""));
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
        match self.session.core.place(path) {
            Place::Mount(place) => self.session.core.open_mount(&place),
            Place::Here => Err(Error::NoSuchTable { name: path.to_owned() }),
        }
    }
}

impl MountPlace {
    /// Returns the path in the mounted database.
    pub(crate) fn target_path(&self) -> String {
        join(&self.record.subtree, &self.rest)
    }

    /// Converts a path of the mounted database to a path of the database that mounts it.
    pub(crate) fn shown_path(&self, path: &str) -> String {
        let below = path.strip_prefix(&self.record.subtree).unwrap_or(path);
        join(&self.path, below.trim_start_matches('/'))
    }
}

fn join(above: &str, below: &str) -> String {
    match (above.is_empty(), below.is_empty()) {
        (true, _) => below.to_owned(),
        (_, true) => above.to_owned(),
        (false, false) => format!("{above}/{below}"),
    }
}

impl Core {
    /// Returns whether `path` leads through a mount.
    pub(crate) fn place(&self, path: &str) -> Place {
        self.catalog.look(|tree| tree.place(path))
    }

    /// Returns the database behind a mount, and opens it if necessary.
    pub(crate) fn open_mount(&self, place: &MountPlace) -> Result<Database> {
        self.check_open()?;
        if let Some(opened) = lock(&self.mounts.opened).get(&place.id) {
            return Ok(opened.database.clone());
        }
        let read_only = place.record.read_only || self.read_only;
        let given = Path::new(&place.record.target);
        let explain = |what: String| refuse(&place.path, format!("{}: {what}", given.display()));
        let target = self.env.canonical(given).map_err(|error| explain(error.to_string()))?;
        if self.mounts.chain.contains(&target) || self.mounts.chain.len() >= CHAIN_MAX {
            return Err(explain("the mounts lead back to where they started".to_owned()));
        }
        let mut registry = lock(&*self.mounts.registry);
        let shared = registry.get(&target).and_then(Weak::upgrade);
        let opened = match shared {
            Some(session) if session.core.check_open().is_ok() => {
                if session.core.read_only != read_only {
                    let how = if read_only { "writing" } else { "reading only" };
                    return Err(explain(format!("another mount has it open for {how}")));
                }
                Opened { database: Database { session }, _memory: None }
            }
            _ => {
                let opened = self.open_target(&target, read_only, &explain)?;
                registry.insert(target, Arc::downgrade(&opened.database.session));
                opened
            }
        };
        drop(registry);
        let mut all = lock(&self.mounts.opened);
        Ok(all.entry(place.id).or_insert(opened).database.clone())
    }

    fn open_target(
        &self,
        target: &Path,
        read_only: bool,
        explain: &dyn Fn(String) -> Error,
    ) -> Result<Opened> {
        let bytes = self.budget.limit() / BUDGET_SHARE;
        self.budget.reserve(bytes)?;
        let memory = Share { budget: Arc::clone(&self.budget), bytes };
        let options = Options::new()
            .create(false)
            .read_only(read_only)
            .durability(self.durability)
            .sync_interval(self.sync_interval)
            .recovery_budget(self.recovery_budget)
            .memory_budget(bytes.max(crate::db::api::options::MEMORY_BUDGET_MIN));
        let opened = Database::recover(&self.env, target, &options, Some(&self.mounts));
        match opened {
            Ok(database) => Ok(Opened { database, _memory: Some(memory) }),
            // Damage is damage, wherever it lies.
            Err(error @ (Error::Corruption { .. } | Error::NewerFormat { .. })) => Err(error),
            Err(error) => Err(explain(error.to_string())),
        }
    }

    /// Fails if mounts lead from the target to this database, or if the target is no database.
    fn refuse_cycle(&self, path: &str, target: &Path) -> Result<()> {
        let mut left = vec![target.to_owned()];
        let mut seen: Vec<PathBuf> = Vec::new();
        while let Some(next) = left.pop() {
            if self.mounts.chain.contains(&next) {
                let what = format!("{} leads back to this database", target.display());
                return Err(refuse(path, what));
            }
            if seen.contains(&next) {
                continue;
            }
            match self.mounts_of(&next) {
                Ok(mounts) => {
                    let targets = mounts.iter().map(|record| Path::new(&record.target));
                    // An unavailable target is skipped; it is checked again at access.
                    left.extend(targets.filter_map(|target| self.env.canonical(target).ok()));
                }
                Err(error) if next == target => {
                    return Err(refuse(path, format!("{}: {error}", target.display())));
                }
                Err(_) => {}
            }
            seen.push(next);
        }
        Ok(())
    }

    /// Returns the mounts of the database in a directory. Reads only its catalog.
    fn mounts_of(&self, target: &Path) -> Result<Vec<MountRecord>> {
        let dir = self.env.open_dir(target, false).map_err(|error| Error::io("open it", error))?;
        let catalog = Catalog::open(&dir, true)?.ok_or_else(|| Error::NotADatabase {
            path: target.to_owned(),
            what: "it has no catalog".to_owned(),
        })?;
        let mounts = catalog.look(|tree| tree.mounts_below(""));
        Ok(mounts.into_iter().map(|(_, record)| record).collect())
    }
}
