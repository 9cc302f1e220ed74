//! Opening a database: from the files to a state that is a prefix of the commits.
//!
//! Steps:
//! 1. Lock the directory.
//! 2. Read the catalog, or create a database.
//! 3. Verify that the directory of each table exists.
//! 4. Replay the log ([`replay`]). It opens the tables that the catalog does not record as
//!    complete. The others are opened when they are first used. If the disk is full, steps 2 to 4
//!    are repeated, and replay frees the log as it goes on ([`replay_rounds`]).
//! 5. Remove files without an owner.
//!
//! The caller starts the jobs ([`Session::open`]).
//!
//! Invariants:
//! - A directory without a catalog becomes a database only if it has nothing but the remains of an
//!   interrupted creation. Losing the catalog never produces an empty database.
//! - A table whose files are complete to less than the catalog records is refused as damaged.
//! - Opening any number of times, interrupted anywhere, produces the same state.
//!
//! [`Session::open`]: crate::db::api::session::Session::open

mod mutants;
pub(crate) mod options;
mod replay;
mod replay_rounds;
mod replay_writes;
mod target;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{io, path::Path, sync::Arc};

use options::Options;
use replay_rounds::{ReplayPace, ReplayRounds, STEPS_BYTES, explain_full_disk};
use target::ReplayTarget;

use super::{
    catalog::{self, Catalog, edit::Progress, tree::CatalogTree},
    checkpoint::{
        CheckpointScheduler,
        space_reserve::{self, SpaceReserve},
    },
    core::{Core, key_locks::KeyLocks, log_jobs::LogJobs},
    expiry::ExpiryIndex,
    tables::{
        host::DatabaseHost,
        loader::{DirectorySync, TableLoader},
        registry::TableRegistry,
    },
    versions::{VersionStore, remove_versions},
};
use crate::{
    Error, Result,
    io::{Dir, Env, LockGuard, process},
    util::{
        budget::Budget,
        codec::Lsn,
        sync::{CachePadded, Mutex, Ordering, lock},
    },
    wal::Anchor,
};

const LOCK_NAME: &str = "LOCK";
const LOG_NAME: &str = "log";
const TABLES_NAME: &str = "tables";

/// Opens the database at `path`. `options` are valid. Starts no jobs.
pub(crate) fn open(env: &Arc<dyn Env>, path: &Path, options: &Options) -> Result<Core> {
    process::register().map_err(|error| Error::io("register the handler of fork", error))?;
    let may_create = options.create && !options.read_only;
    let dir = env.open_dir(path, may_create).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            not_a_database(path, "there is no such directory")
        }
        _ => Error::io(format!("open {}", path.display()), error),
    })?;
    if !may_create && !has_catalog(&dir)? {
        return Err(not_a_database(path, "it has no catalog"));
    }
    let guard = lock_dir(&dir, options.read_only)?;
    let catalog = match Catalog::open(&dir, options.read_only)? {
        Some(catalog) => catalog,
        None if may_create => create(&**env, &dir)?,
        None => return Err(not_a_database(path, "it has no catalog")),
    };
    let core = load_within_space(env, &dir, catalog, options)?;
    *lock(&core.lock) = Some(guard);
    if !options.read_only {
        remove_unowned(&core)?;
        record_new_log(&core)?;
    }
    Ok(core)
}

fn not_a_database(path: &Path, what: &str) -> Error {
    Error::NotADatabase { path: path.to_owned(), what: what.to_owned() }
}

fn has_catalog(dir: &Arc<dyn Dir>) -> Result<bool> {
    let entries = dir.list().map_err(|error| Error::io("list the directory", error))?;
    Ok(entries.iter().any(|entry| entry.name == catalog::NAME))
}

fn lock_dir(dir: &Arc<dyn Dir>, shared: bool) -> Result<Box<dyn LockGuard>> {
    dir.lock(LOCK_NAME, !shared).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let holder = dir.lock_holder(LOCK_NAME);
            Error::Locked { path: dir.path().to_owned(), holder }
        }
        _ => Error::io(format!("lock {LOCK_NAME}"), error),
    })
}

/// Creates a database in a directory that has at most the remains of an interrupted creation.
fn create(env: &dyn Env, dir: &Arc<dyn Dir>) -> Result<Catalog> {
    let expected = [LOCK_NAME, LOG_NAME, TABLES_NAME, catalog::UNFINISHED_NAME];
    let entries = dir.list().map_err(|error| Error::io("list the directory", error))?;
    for entry in &entries {
        let mut remains = expected.contains(&entry.name.as_str());
        if remains && entry.is_dir {
            let below = open_dir(dir, &entry.name, false)?;
            remains = below.list().is_ok_and(|entries| entries.is_empty());
        }
        if !remains {
            let what = format!("it has no catalog, and is not empty: it holds {:?}", entry.name);
            return Err(not_a_database(dir.path(), &what));
        }
    }
    open_dir(dir, LOG_NAME, true)?;
    open_dir(dir, TABLES_NAME, true)?;
    dir.sync().map_err(|error| Error::io("sync the directory", error))?;
    let mut id = [0; 16];
    env.random(&mut id);
    Catalog::create(dir, id)
}

fn open_dir(dir: &Arc<dyn Dir>, name: &str, create: bool) -> Result<Arc<dyn Dir>> {
    dir.open_dir(name, create).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::corruption(name, 0, "the directory is missing"),
        _ => Error::io(format!("open {name}"), error),
    })
}

/// Loads the tables and replays the log. If the disk lacks the space, does so again without the log
/// that stays for change feeds, then with the reserve released, then in steps that free the log.
fn load_within_space(
    env: &Arc<dyn Env>,
    dir: &Arc<dyn Dir>,
    catalog: Catalog,
    options: &Options,
) -> Result<Core> {
    let mut outcome = load_and_replay(env, dir, catalog, options, ReplayPace::ByMemory);
    let is_full = |outcome: &Result<Core>| {
        !options.read_only && matches!(outcome, Err(Error::DiskFull { .. }))
    };
    // First without what stays in the log for change feeds only.
    let retention = options.log_retention;
    let options = &options.clone().log_retention(0);
    let releases: [&dyn Fn() -> bool; 2] = [&|| retention > 0, &|| space_reserve::release_in(dir)];
    for release in releases {
        if is_full(&outcome)
            && release()
            && let Some(catalog) = Catalog::open(dir, false)?
        {
            outcome = load_and_replay(env, dir, catalog, options, ReplayPace::ByMemory);
        }
    }
    for bytes in STEPS_BYTES {
        if !is_full(&outcome) {
            break;
        }
        let Some(catalog) = Catalog::open(dir, false)? else { break };
        outcome = load_and_replay(env, dir, catalog, options, ReplayPace::Steps(bytes));
    }
    if let Ok(core) = &outcome {
        core.log.set_retention(retention);
    }
    outcome.map_err(|error| match error {
        Error::DiskFull { doing } => {
            let doing = format!("{doing}; nothing is lost, and read_only opens without space");
            Error::DiskFull { doing }
        }
        error => error,
    })
}

/// Loads the tables, replays the log, and builds the core. The caller adds the lock.
fn load_and_replay(
    env: &Arc<dyn Env>,
    dir: &Arc<dyn Dir>,
    catalog: Catalog,
    options: &Options,
    pace: ReplayPace,
) -> Result<Core> {
    let budget = Arc::new(Budget::new(options.budget_on(&**env)));
    let segment_bytes = options.segment_bytes_within(budget.limit());
    // The log's tail and the segment after it.
    budget.reserve_unchecked(2 * segment_bytes);
    let host = Arc::new(DatabaseHost::new(Arc::clone(env)));
    let log_dir = open_dir(dir, LOG_NAME, false)?;
    let tables_dir = open_dir(dir, TABLES_NAME, false)?;
    let created = is_being_created(&catalog, &tables_dir)?;
    let loader = TableLoader {
        env: Arc::clone(env),
        tables_dir,
        database_id: catalog.database_id(),
        budget: Arc::clone(&budget),
        host: Arc::clone(&host),
        read_only: options.read_only,
        merge_operators: options.merge_operators.clone(),
        directories: DirectorySync::default(),
    };
    loader.check_directories(&catalog)?;
    let (log_start, log_durable) = catalog.with_tree(CatalogTree::log_bounds);
    let target = ReplayTarget::new(&catalog, &loader)?;
    let anchor = Anchor {
        database_id: catalog.database_id(),
        start: log_start,
        durable: log_durable,
        created,
        catalog: catalog.edits(),
    };
    let log_options = options.log_options(segment_bytes);
    let (log, stopped_at) =
        replay::open_log(env, &log_dir, &log_options, &anchor, (&target, &budget), pace)?;
    let log = Arc::new(log);
    let _ = host.log.set(Arc::clone(&log));
    if let Some(lsn) = stopped_at {
        let rounds = ReplayRounds::new((&target, &loader), &catalog, (&log, lsn), pace);
        replay_writes::replay_as_writes(&target, &budget, (&log, lsn), rounds)
            .map_err(|error| explain_full_disk(error, (&catalog, &log)))?;
    }
    let (tables, index) = target.into_open_tables();
    for table in tables.values().filter(|_| index.is_some()) {
        table.may_expire.store(true, Ordering::Release);
    }
    let log_start = catalog.with_tree(CatalogTree::log_bounds).0.max(log.stats().start);
    let (index_log, index_host) = (Arc::clone(&log), Arc::clone(&host));
    let space = SpaceReserve::open(dir, options.space_reserve, options.read_only)?;
    let of_rounds = (Arc::clone(&log), Arc::clone(&host), space);
    let limits = options.checkpoint_limits();
    Ok(Core {
        env: Arc::clone(env),
        dir: Arc::clone(dir),
        durability: options.durability,
        sync_interval: options.sync_interval,
        expiry: ExpiryIndex::new(index, index_log, index_host),
        checkpoints: CheckpointScheduler::new(Arc::clone(env), of_rounds, limits, log_start),
        versions: VersionStore::new(
            (env, dir),
            &log,
            &host,
            &budget,
            options.snapshot_limits(&budget),
        ),
        tables: TableRegistry::new(loader, catalog, tables, Arc::clone(&log)),
        budget,
        log,
        host,
        key_locks: KeyLocks::default(),
        log_jobs: LogJobs::default(),
        counters: CachePadded::default(),
        background_failure: Mutex::new(None),
        lock: Mutex::new(None),
    })
}

/// Returns whether the creation was interrupted: until the log's start is recorded, the database is
/// empty. Fails if the catalog says so although there are tables or commits.
fn is_being_created(catalog: &Catalog, tables_dir: &Arc<dyn Dir>) -> Result<bool> {
    let (log_start, log_durable) = catalog.with_tree(CatalogTree::log_bounds);
    if log_start > Lsn(0) {
        return Ok(false);
    }
    let entries = tables_dir.list().map_err(|error| Error::io("list tables", error))?;
    if log_durable > Lsn(0) || catalog.with_tree(CatalogTree::had_nodes) || !entries.is_empty() {
        let what = "there were tables, or commits, but it does not say where the log starts";
        return Err(Error::corruption(catalog::NAME, 0, what));
    }
    Ok(true)
}

/// Removes directories that no table owns, files of versions, and an unfinished catalog.
fn remove_unowned(core: &Core) -> Result<()> {
    let io_error = |error| Error::io("remove files without an owner", error);
    core.tables.remove_unowned().map_err(io_error)?;
    remove_versions(&core.dir).map_err(io_error)?;
    match core.dir.remove(catalog::UNFINISHED_NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(error)),
        _ => Ok(()),
    }
}

/// Records where the log of a new database starts, so that missing log files are detected.
fn record_new_log(core: &Core) -> Result<()> {
    let (recorded, _) = core.tables.catalog.with_tree(CatalogTree::log_bounds);
    if recorded > Lsn(0) {
        return Ok(());
    }
    // Nothing has been appended: the first record will start at the end.
    let log_start = core.log.end();
    core.tables.catalog.progress(Progress {
        log_start,
        log_durable: log_start,
        tables: Vec::new(),
    })?;
    core.tables.report_edits();
    Ok(())
}
