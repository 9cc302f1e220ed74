//! The session of an open database: its core, its jobs, and the databases that it mounts.
//!
//! All handles of a database share one session; the last of them closes it. Opening a session
//! recovers the database and starts its jobs.
//!
//! A *mount* shows a directory of another database under a name of this one. The catalog records
//! its target. The other database is opened at the first access below the mount, and stays open
//! until this one is closed or the mount is removed. It is not opened earlier, because a database
//! must open although a target is unavailable (an unplugged disk, a network share); only an access
//! to the missing part fails.
//!
//! Invariants:
//! - Jobs and engines do not hold the session.
//! - No chain of mounts leads back to a database in it. A cycle is refused when the mount is
//!   created, and again at access, because the other database may have changed.
//! - A directory is opened once, even if several mounts lead to it ([`Mounts::registry`]).
//! - A session is held by the databases that mount it and by its users, never by a database that it
//!   mounts.
//!
//! Threads: any. The registry's lock is held while a mounted database is opened, so a second thread
//! waits. Lock order: `ARCHITECTURE.md`.
//!
//! From: ckvs (its README: "could be partially mounted to some virtual store"), which names mounts
//! and does not describe them.

pub(crate) mod jobs;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use crate::db::{
    catalog::{Catalog, edit::MountRecord, paths::MountedPath},
    core::Core,
    recovery::{
        self,
        options::{MEMORY_BUDGET_MIN, Options},
    },
};
use crate::{
    Error, Result,
    io::Env,
    util::{
        budget::Budget,
        error::system_message,
        sync::{Mutex, lock},
    },
};

/// Maximum number of databases in a chain of mounts.
const CHAIN_MAX: usize = 16;
/// A mounted database gets one part in this many of the memory budget of the database that mounts
/// it.
const BUDGET_SHARE: u64 = 8;

/// Shared by all handles of a database; closes it when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) core: Arc<Core>,
    mounts: Mounts,
}

/// The databases that are open through mounts, by directory.
type SessionsByPath = Mutex<HashMap<PathBuf, Weak<Session>>>;

/// The mounts of one database, and its position in a chain of mounts.
#[derive(Debug)]
struct Mounts {
    /// Shared by all databases of a chain.
    registry: Arc<SessionsByPath>,
    /// The directories from the first database of the chain to this one.
    chain: Vec<PathBuf>,
    /// The databases that were opened through this database's own mounts, by the mount's number.
    opened: Mutex<HashMap<u64, MountedSession>>,
}

/// A database that was opened through a mount.
#[derive(Debug)]
struct MountedSession {
    session: Arc<Session>,
    /// Releases the memory on drop; `None` if another mount reserved it.
    _memory: Option<MountMemory>,
}

/// Memory reserved for a mounted database.
#[derive(Debug)]
struct MountMemory {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for MountMemory {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

impl Mounts {
    /// Creates the state of a database at `path`, opened directly or through a mount of `parent`.
    fn new(env: &dyn Env, path: &Path, parent: Option<&Self>) -> Self {
        let own = env.canonical(path).unwrap_or_else(|_| path.to_owned());
        let mut chain = parent.map(|parent| parent.chain.clone()).unwrap_or_default();
        chain.push(own);
        let registry = parent.map(|parent| Arc::clone(&parent.registry)).unwrap_or_default();
        Self { registry, chain, opened: Mutex::default() }
    }

    /// Closes the databases that were opened through mounts.
    fn close(&self) -> Result<()> {
        let opened = std::mem::take(&mut *lock(&self.opened));
        // All are closed; the first error is returned.
        opened.into_values().map(|mounted| mounted.session.close()).fold(Ok(()), Result::and)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.core.close();
    }
}

impl Session {
    /// Opens the database at `path`. `options` are valid.
    pub(crate) fn open(env: &Arc<dyn Env>, path: &Path, options: &Options) -> Result<Arc<Self>> {
        Self::open_below(env, path, options, None)
    }

    /// Opens the database at `path`, directly or through a mount of `parent`.
    fn open_below(
        env: &Arc<dyn Env>,
        path: &Path,
        options: &Options,
        parent: Option<&Mounts>,
    ) -> Result<Arc<Self>> {
        let core = Arc::new(recovery::open(env, path, options)?);
        let mounts = Mounts::new(&**env, path, parent);
        if !options.read_only {
            jobs::start(&core);
        }
        Ok(Arc::new(Self { core, mounts }))
    }

    /// Closes the database, and those that it has opened through mounts.
    pub(crate) fn close(&self) -> Result<()> {
        self.core.tables.check_process()?;
        let mounted = self.mounts.close();
        self.core.close().and(mounted)
    }

    /// Returns the database behind a mount, and opens it if necessary.
    pub(crate) fn open_mount(&self, path: &MountedPath) -> Result<Arc<Self>> {
        self.core.tables.check_open()?;
        if let Some(mounted) = lock(&self.mounts.opened).get(&path.id) {
            return Ok(Arc::clone(&mounted.session));
        }
        let read_only = path.record.read_only || self.core.tables.is_read_only();
        let recorded = Path::new(&path.record.target);
        let explain = |what: String| refuse(&path.path, format!("{}: {what}", recorded.display()));
        let target =
            self.core.env.canonical(recorded).map_err(|error| explain(system_message(&error)))?;
        if self.mounts.chain.contains(&target) || self.mounts.chain.len() >= CHAIN_MAX {
            return Err(explain("the mounts lead back to where they started".to_owned()));
        }
        let mut registry = lock(&*self.mounts.registry);
        let shared = registry.get(&target).and_then(Weak::upgrade);
        let mounted = match shared {
            Some(session) if !session.core.tables.is_closed() => {
                if session.core.tables.is_read_only() != read_only {
                    let how = if read_only { "writing" } else { "reading only" };
                    return Err(explain(format!("another mount has it open for {how}")));
                }
                MountedSession { session, _memory: None }
            }
            _ => {
                let mounted = self.open_target(&target, read_only, &explain)?;
                registry.insert(target, Arc::downgrade(&mounted.session));
                mounted
            }
        };
        drop(registry);
        let mut opened = lock(&self.mounts.opened);
        Ok(Arc::clone(&opened.entry(path.id).or_insert(mounted).session))
    }

    fn open_target(
        &self,
        target: &Path,
        read_only: bool,
        explain: &dyn Fn(String) -> Error,
    ) -> Result<MountedSession> {
        let core = &self.core;
        let bytes = core.budget.limit() / BUDGET_SHARE;
        core.budget.reserve(bytes)?;
        let memory = MountMemory { budget: Arc::clone(&core.budget), bytes };
        let mut options = Options::new()
            .create(false)
            .read_only(read_only)
            .durability(core.durability)
            .sync_interval(core.sync_interval)
            .recovery_budget(core.checkpoints.recovery_budget())
            .checkpoint_interval(core.checkpoints.interval())
            .space_reserve(core.checkpoints.space.bytes_max())
            .snapshot_max_age(core.versions.limits.age)
            .memory_budget(bytes.max(MEMORY_BUDGET_MIN));
        options.merge_operators = core.tables.merge_operators().clone();
        match Self::open_below(&core.env, target, &options, Some(&self.mounts)) {
            Ok(session) => Ok(MountedSession { session, _memory: Some(memory) }),
            // A caller handles damage of a mounted database as damage of its own.
            Err(error @ (Error::Corruption { .. } | Error::NewerFormat { .. })) => Err(error),
            Err(error) => Err(explain(error.to_string())),
        }
    }

    /// Drops the database that was opened through a mount. It is closed when its last handle is
    /// dropped.
    pub(crate) fn forget_mount(&self, id: u64) {
        let mounted = lock(&self.mounts.opened).remove(&id);
        // Dropped without the lock: closing a database takes time.
        drop(mounted);
    }

    /// Fails if mounts lead from the target to this database, or if the target is no database.
    pub(crate) fn check_no_cycle(&self, path: &str, target: &Path) -> Result<()> {
        let mut pending = vec![target.to_owned()];
        let mut visited: Vec<PathBuf> = Vec::new();
        while let Some(next) = pending.pop() {
            if self.mounts.chain.contains(&next) {
                let what = format!("{} leads back to this database", target.display());
                return Err(refuse(path, what));
            }
            if visited.contains(&next) {
                continue;
            }
            match mounts_of(&*self.core.env, &next) {
                Ok(mounts) => {
                    let targets = mounts.iter().map(|record| Path::new(&record.target));
                    // An unavailable target is skipped; it is checked again at access.
                    pending
                        .extend(targets.filter_map(|target| self.core.env.canonical(target).ok()));
                }
                Err(error) if next == target => {
                    return Err(refuse(path, format!("{}: {error}", target.display())));
                }
                Err(_) => {}
            }
            visited.push(next);
        }
        Ok(())
    }
}

/// Returns the mounts of the database in a directory. Reads only its catalog.
fn mounts_of(env: &dyn Env, target: &Path) -> Result<Vec<MountRecord>> {
    let dir = env.open_dir(target, false).map_err(|error| Error::io("open it", error))?;
    let catalog = Catalog::open(&dir, true)?.ok_or_else(|| Error::NotADatabase {
        path: target.to_owned(),
        what: "it has no catalog".to_owned(),
    })?;
    let mounts = catalog.with_tree(|tree| tree.mounts_below(""));
    Ok(mounts.into_iter().map(|(_, record)| record).collect())
}

/// Builds the error of an operation on a mount.
pub(crate) fn refuse(path: &str, what: impl Into<String>) -> Error {
    Error::Mount { path: path.to_owned(), what: what.into() }
}
