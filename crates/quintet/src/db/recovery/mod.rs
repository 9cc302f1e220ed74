//! Opening a database: from the files to a state that is a prefix of the commits.
//!
//! Steps: lock the directory; read the catalog (or create a database); each engine loads its files
//! and returns the LSN that they are complete to; the log is replayed past it; files without an
//! owner are removed; the jobs start.
//!
//! Invariants:
//! - A directory without a catalog becomes a database only if it has nothing but the remains of an
//!   interrupted creation. Losing the catalog never produces an empty database.
//! - A table whose files are complete to less than the catalog records is refused as damaged.
//! - Opening any number of times, interrupted anywhere, produces the same state.

pub(crate) mod replay;

use std::{collections::HashMap, io, path::Path, sync::Arc};

use super::{
    Database, Options,
    catalog::{
        self, Catalog,
        edit::Progress,
        tree::{TableNode, Tree},
    },
    core::{Core, Shared, TableState, Tables},
    expiry::{Clock, Expiries},
};
use crate::{
    Error, Result,
    contract::{Context, Engine as _, Host},
    db::{
        api::database::Session,
        core::stripes::Stripes,
        recovery::replay::Replayed,
        session::{Mounts, jobs},
    },
    engine::AnyEngine,
    io::{Dir, Env, LockGuard},
    util::{
        budget::Budget,
        codec::{Decoder, KeyHash, Lsn},
        sync::{
            AtomicBool, AtomicU64, CachePadded, Mutex, OnceLock, Ordering, RwLock,
            fair_mutex::FairMutex,
        },
    },
    wal::{Anchor, LogOptions},
};

const LOCK_NAME: &str = "LOCK";
const LOG_NAME: &str = "log";
const TABLES_NAME: &str = "tables";

impl Database {
    /// Opens the database at `path`, directly or through a mount. `options` are valid.
    pub(crate) fn recover(
        env: &Arc<dyn Env>,
        path: &Path,
        options: &Options,
        mounted_by: Option<&Mounts>,
    ) -> Result<Self> {
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
        let lock = take_lock(&dir, options.read_only)?;
        let catalog = match Catalog::open(&dir, options.read_only)? {
            Some(catalog) => catalog,
            None if may_create => create(&**env, &dir)?,
            None => return Err(not_a_database(path, "it has no catalog")),
        };
        let mounts = Mounts::new(&**env, path, mounted_by);
        let core = assemble(env, &dir, catalog, lock, mounts, options)?;
        let core = Arc::new(core);
        if !options.read_only {
            remove_strays(&core)?;
            note_new_log(&core)?;
            jobs::start(&core);
        }
        Ok(Self { session: Arc::new(Session { core }) })
    }
}

fn not_a_database(path: &Path, what: &str) -> Error {
    Error::NotADatabase { path: path.to_owned(), what: what.to_owned() }
}

fn has_catalog(dir: &Arc<dyn Dir>) -> Result<bool> {
    let entries = dir.list().map_err(|error| Error::io("list the directory", error))?;
    Ok(entries.iter().any(|entry| entry.name == catalog::NAME))
}

fn take_lock(dir: &Arc<dyn Dir>, shared: bool) -> Result<Box<dyn LockGuard>> {
    dir.lock(LOCK_NAME, !shared).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: dir.path().to_owned() },
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

/// Loads the tables, replays the log, and builds the core.
fn assemble(
    env: &Arc<dyn Env>,
    dir: &Arc<dyn Dir>,
    catalog: Catalog,
    lock: Box<dyn LockGuard>,
    mounts: Mounts,
    options: &Options,
) -> Result<Core> {
    let budget = Arc::new(Budget::new(options.budget_on(&**env)));
    let segment_bytes = options.segment_bytes_within(budget.limit());
    // The log's tail and the segment after it.
    budget.reserve_unchecked(2 * segment_bytes);
    let shared = Arc::new(Shared {
        clock: Clock::new(Arc::clone(env)),
        log: OnceLock::new(),
        jobs: super::core::Jobs::default(),
        round_due: AtomicBool::new(false),
    });
    let log_dir = open_dir(dir, LOG_NAME, false)?;
    let tables_dir = open_dir(dir, TABLES_NAME, false)?;
    let loader = Loader {
        env,
        tables_dir: &tables_dir,
        database_id: catalog.database_id(),
        budget: &budget,
        host: Arc::clone(&shared) as Arc<dyn Host>,
        read_only: options.read_only,
    };
    let created = is_being_created(&catalog, &tables_dir)?;
    let tables = loader.load_all(&catalog)?;
    let (log_start, log_durable) = catalog.look(Tree::log_bounds);
    let index = catalog.look(Tree::expiry_index).and_then(|id| tables.get(&id)).cloned();
    let replayed =
        Replayed { tables: &tables, next_id: catalog.look(Tree::next_id), index: index.as_deref() };
    let anchor = Anchor {
        database_id: catalog.database_id(),
        start: log_start,
        durable: log_durable,
        created,
        catalog: catalog.edits(),
    };
    let log_options = LogOptions { segment_bytes, read_only: options.read_only };
    let log = replay::open_log(env, &log_dir, &log_options, &anchor, (&replayed, &budget))?;
    let log = Arc::new(log);
    let _ = shared.log.set(Arc::clone(&log));
    if index.as_ref().is_some_and(|index| index.engine.stats().keys > 0) {
        for table in tables.values() {
            table.may_expire.store(true, Ordering::Release);
        }
    }
    Ok(Core {
        env: Arc::clone(env),
        dir: Arc::clone(dir),
        tables_dir,
        read_only: options.read_only,
        durability: options.durability,
        sync_interval: options.sync_interval,
        recovery_budget: options.recovery_budget,
        budget,
        catalog,
        mounts,
        expiries: Expiries::new(index),
        tables: Tables::from(RwLock::new(tables)),
        shared,
        log_start: AtomicU64::new(log_start.0.max(log.stats().start.0)),
        log,
        round_end: AtomicU64::new(0),
        stripes: Stripes::default(),
        round: FairMutex::default(),
        doomed: Mutex::new(Vec::new()),
        closed: AtomicBool::new(false),
        sync_armed: AtomicBool::new(false),
        prepare_armed: AtomicBool::new(false),
        counters: CachePadded::default(),
        background_failure: Mutex::new(None),
        lock: Mutex::new(Some(lock)),
    })
}

/// Returns whether the creation was interrupted: until the log's start is recorded, the database is
/// empty. Fails if the catalog says so although there are tables or commits.
fn is_being_created(catalog: &Catalog, tables_dir: &Arc<dyn Dir>) -> Result<bool> {
    let (log_start, log_durable) = catalog.look(Tree::log_bounds);
    if log_start > Lsn(0) {
        return Ok(false);
    }
    let entries = tables_dir.list().map_err(|error| Error::io("list tables", error))?;
    if log_durable > Lsn(0) || catalog.look(Tree::had_nodes) || !entries.is_empty() {
        let what = "there were tables, or commits, but it does not say where the log starts";
        return Err(Error::corruption(catalog::NAME, 0, what));
    }
    Ok(true)
}

/// Opens the engines of tables.
pub(crate) struct Loader<'a> {
    pub(crate) env: &'a Arc<dyn Env>,
    pub(crate) tables_dir: &'a Arc<dyn Dir>,
    pub(crate) database_id: [u8; 16],
    pub(crate) budget: &'a Arc<Budget>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) read_only: bool,
}

impl Loader<'_> {
    fn load_all(&self, catalog: &Catalog) -> Result<HashMap<u64, Arc<TableState>>> {
        let mut tables = HashMap::new();
        for (id, node) in catalog.look(Tree::open_tables) {
            let state = self.load(id, &node)?;
            if state.persisted() < node.complete {
                let what = format!(
                    "the files are complete to LSN {}, the catalog says {}: missing or older",
                    state.persisted(),
                    node.complete
                );
                return Err(Error::corruption(format!("{TABLES_NAME}/{id}"), 0, what));
            }
            tables.insert(id, Arc::new(state));
        }
        Ok(tables)
    }

    /// Opens a table's engine in the directory of its number.
    pub(crate) fn load(&self, id: u64, node: &TableNode) -> Result<TableState> {
        let name = id.to_string();
        let dir = self.tables_dir.open_dir(&name, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::corruption(format!("{TABLES_NAME}/{name}"), 0, "the directory is missing")
            }
            _ => Error::io(format!("open {TABLES_NAME}/{name}"), error),
        })?;
        let options = node.record.options()?;
        let hash = KeyHash::new(node.record.seed);
        let context = Context {
            env: Arc::clone(self.env),
            dir,
            database_id: self.database_id,
            table_id: id,
            hash,
            budget: Arc::clone(self.budget),
            host: Arc::clone(&self.host),
            read_only: self.read_only,
            complete: node.complete,
        };
        let (engine, lsn) = AnyEngine::open(&options, context)?;
        Ok(TableState::new(id, options.kind(), hash, engine, lsn, node.types.clone()))
    }
}

/// Removes directories that no table owns (dropped tables, interrupted creations), and an
/// unfinished catalog.
fn remove_strays(core: &Core) -> Result<()> {
    let io_error = |error| Error::io("remove strays", error);
    let entries = core.tables_dir.list().map_err(io_error)?;
    let mut removed = false;
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        let known = entry
            .name
            .parse()
            .is_ok_and(|id: u64| entry.name == id.to_string() && core.table_by_id(id).is_some());
        if !known {
            remove_tree(&core.tables_dir, &entry.name).map_err(io_error)?;
            removed = true;
        }
    }
    if removed {
        // The number may be given again, and must find nothing.
        core.tables_dir.sync().map_err(io_error)?;
    }
    match core.dir.remove(catalog::UNFINISHED_NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(error)),
        _ => Ok(()),
    }
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove_tree(dir: &Arc<dyn Dir>, name: &str) -> io::Result<()> {
    let below = match dir.open_dir(name, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        below => below?,
    };
    for entry in below.list()? {
        if entry.is_dir {
            remove_tree(&below, &entry.name)?;
        } else {
            below.remove(&entry.name)?;
        }
    }
    dir.remove_dir(name)
}

/// Records where the log of a new database starts, so that missing log files are detected.
fn note_new_log(core: &Core) -> Result<()> {
    let (recorded, _) = core.catalog.look(Tree::log_bounds);
    if recorded > Lsn(0) {
        return Ok(());
    }
    // Nothing has been appended: the end is the place of the first record.
    let log_start = core.log.end();
    core.catalog.progress(Progress { log_start, log_durable: log_start, tables: Vec::new() })?;
    core.note_catalog();
    Ok(())
}

/// Returns a random seed for a new table's hash.
pub(crate) fn new_seed(env: &dyn Env) -> [u64; 2] {
    let mut bytes = [0; 16];
    env.random(&mut bytes);
    let mut decoder = Decoder::new(&bytes);
    [decoder.u64().unwrap_or_default(), decoder.u64().unwrap_or_default()]
}
