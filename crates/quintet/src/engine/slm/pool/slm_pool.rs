//! The pool of a table: its file, its opening, and the LSN to which the table is complete.

use std::{io, path::Path, sync::Arc};

use super::{
    index::PoolIndex,
    roots::{COMPLETE, HAS_PAGES, MEMTABLES, STATE},
    sweep_state::PoolSweep,
};
use crate::{
    Error, Result,
    contract::Context,
    engine::slm::options::PoolSettings,
    io::{Dir, LockGuard},
    journal::redo::Owner,
    lsm::memtable::pool_memtables::PoolMemtables,
    pmem::{Pool, PoolMode, Sizes},
    util::{
        codec::Lsn,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

/// Name of the pool's file in the table's own directory.
const NAME: &str = "pool";
/// Root word 0 without the byte of what is in the pool.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"QNTSLM\0\x01");
/// Shift of that byte.
pub(super) const PARTS_SHIFT: u32 = 48;
pub(super) const HAS_MEMTABLES: u64 = 1;
pub(super) const HAS_INDEX: u64 = 2;

/// Initial bytes of a pool. It grows by doubling.
const FIRST_BYTES: u64 = 64 << 20;

/// The pool of a table. See the module head.
#[derive(Debug)]
pub(in crate::engine::slm) struct SlmPool {
    pub(in crate::engine::slm) pool: Arc<Pool>,
    /// Whether an ordinary file takes the place of persistent memory.
    pub(in crate::engine::slm) is_emulated: bool,
    /// The index, if it is in the pool.
    pub(in crate::engine::slm) index: Option<PoolIndex>,
    /// The memtables, if they are in the pool.
    pub(in crate::engine::slm) memtables: Option<Arc<PoolMemtables>>,
    complete: AtomicU64,
    /// Held while `complete` changes in the pool: checkpoints and syncs of the log raise it.
    completing: Mutex<()>,
    /// See [`Place::lock`].
    _lock: Option<Box<dyn LockGuard>>,
    pub(super) sweep: Mutex<PoolSweep>,
}

/// Where the file of a pool is.
struct Place {
    owner: Owner,
    name: String,
    /// Held while a pool outside of the table's directory is open: a copy of the database would use
    /// the same file.
    lock: Option<Box<dyn LockGuard>>,
}

impl Place {
    fn new(settings: &PoolSettings, context: &Context) -> Result<Self> {
        let (database_id, table_id) = (context.database_id, context.table_id);
        let Some(path) = &settings.path else {
            let owner = Owner { dir: Arc::clone(&context.dir), database_id, table_id };
            return Ok(Self { owner, name: NAME.to_owned(), lock: None });
        };
        let io = |error| Error::io(format!("open the directory of pools {path}"), error);
        let dir = context.env.open_dir(Path::new(path), !context.read_only).map_err(io)?;
        let prefix = format!("{:032x}-", u128::from_be_bytes(database_id));
        let name = format!("{prefix}{table_id}.pool");
        let lock = dir.lock(&format!("{name}.lock"), !context.read_only);
        let in_use = |error| Error::io(format!("lock {path}/{name}: it is in use"), error);
        let lock = Some(lock.map_err(in_use)?);
        if !context.read_only {
            remove_dropped(&*dir, &prefix, context).map_err(io)?;
        }
        Ok(Self { owner: Owner { dir, database_id, table_id }, name, lock })
    }

    fn sizes(settings: &PoolSettings) -> Sizes {
        let most = 1 << settings.bytes.ilog2();
        Sizes { first: FIRST_BYTES.min(most), most }
    }

    fn exists(&self) -> Result<bool> {
        let listed = self.owner.dir.list();
        let listed = listed.map_err(|error| Error::io("list the directory of the pool", error))?;
        Ok(listed.iter().any(|entry| entry.name == self.name))
    }

    /// Opens the pool in persistent memory, or else emulated. Returns whether it is emulated.
    fn with_mode(
        settings: &PoolSettings,
        is_copy: bool,
        mut open: impl FnMut(PoolMode) -> Result<Option<Pool>>,
    ) -> Result<Option<(Pool, bool)>> {
        if is_copy {
            return Ok(open(PoolMode::Copy)?.map(|pool| {
                let is_emulated = pool.is_emulated();
                (pool, is_emulated)
            }));
        }
        match open(PoolMode::Persistent) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
                let pool = open(PoolMode::Emulated(settings.slowness))?;
                Ok(pool.map(|pool| (pool, true)))
            }
            opened => Ok(opened?.map(|pool| (pool, false))),
        }
    }
}

impl SlmPool {
    /// Opens the pool of a table, or creates it.
    ///
    /// Fails with `Corruption` if the pool is damaged, another table's, or missing although the
    /// table was complete, or if it was emulated and open when the system went down. Fails with
    /// `DiskFull` if it is too small.
    pub(in crate::engine::slm) fn open(settings: &PoolSettings, context: &Context) -> Result<Self> {
        let place = Place::new(settings, context)?;
        let (sizes, boot) = (Place::sizes(settings), context.env.boot_id());
        let opened = Place::with_mode(settings, context.read_only, |mode| {
            Pool::open(&place.owner, &place.name, sizes, mode, boot)
        });
        let opened = match opened {
            // The log has all of the table. Its creation may have been interrupted anywhere.
            Err(Error::Corruption { .. }) if context.complete == Lsn(0) => None,
            opened => opened?,
        };
        let is_made = opened.as_ref().is_some_and(|(pool, _)| pool.root(STATE) != 0);
        if !is_made && context.complete > Lsn(0) {
            return Err(lost(&place)?);
        }
        let (pool, is_emulated) = match opened.filter(|_| is_made) {
            Some(opened) => opened,
            None if context.read_only => return Err(lost(&place)?),
            None => {
                let made = Place::with_mode(settings, false, |mode| {
                    Pool::create(&place.owner, &place.name, sizes, mode, boot).map(Some)
                })?;
                made.ok_or_else(|| Error::io("make a pool", io::ErrorKind::NotFound.into()))?
            }
        };
        let pool = (Arc::new(pool), is_emulated, place.lock);
        Self::start(pool, settings, context)
    }

    fn start(
        (pool, is_emulated, lock): (Arc<Pool>, bool, Option<Box<dyn LockGuard>>),
        settings: &PoolSettings,
        context: &Context,
    ) -> Result<Self> {
        let memtables = if settings.has_memtables { HAS_MEMTABLES } else { 0 };
        let parts = memtables | if settings.has_index { HAS_INDEX } else { 0 };
        let state = MAGIC | parts << PARTS_SHIFT;
        let found = pool.root(STATE);
        if found != 0 && found != state {
            return Err(pool.damage(Pool::root_at(STATE), "it is no pool of this table's options"));
        }
        let index = settings.has_index.then(|| PoolIndex::open(&pool, found != 0)).transpose()?;
        if found == 0 && !context.read_only {
            pool.replace(Pool::root_at(COMPLETE), 0);
            pool.replace(Pool::root_at(STATE), state);
        }
        let complete = AtomicU64::new(pool.root(COMPLETE));
        let sweep = Mutex::new(PoolSweep::new(&pool));
        Ok(Self {
            pool,
            is_emulated,
            index,
            memtables: None,
            complete,
            completing: Mutex::default(),
            _lock: lock,
            sweep,
        })
    }

    /// Opens the directory of memtables, which are frozen at `list_bytes`.
    pub(in crate::engine::slm) fn open_memtables(
        &mut self,
        list_bytes: u64,
    ) -> Result<Arc<PoolMemtables>> {
        let opened = PoolMemtables::open(&self.pool, MEMTABLES, list_bytes, self.is_emulated)?;
        self.memtables = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Whether the index in pages has had a checkpoint: its files must exist.
    pub(in crate::engine::slm) fn has_pages(&self) -> bool {
        self.pool.root(HAS_PAGES) == 1
    }

    /// Records that the index in pages has had a checkpoint.
    pub(in crate::engine::slm) fn note_pages(&self) {
        if !self.has_pages() {
            self.pool.replace(Pool::root_at(HAS_PAGES), 1);
        }
    }

    /// Returns the LSN to which the table is complete.
    pub(in crate::engine::slm) fn complete(&self) -> Lsn {
        Lsn(self.complete.load(Ordering::Acquire))
    }

    /// Records that the table is complete to an LSN: everything below is in the pool or in a run,
    /// and the log is durable to there. Returns the LSN to which it is complete.
    pub(in crate::engine::slm) fn set_complete(&self, lsn: Lsn) -> Lsn {
        let _completing = lock(&self.completing);
        if lsn > self.complete() {
            self.pool.replace(Pool::root_at(COMPLETE), lsn.0);
            self.complete.store(lsn.0, Ordering::Release);
        }
        self.complete()
    }
}

impl Drop for SlmPool {
    /// Syncs an emulated pool, so that it survives a later power loss. If that fails, the next
    /// opening after one says so.
    fn drop(&mut self) {
        if self.is_emulated {
            let _ = self.pool.close();
        }
    }
}

/// Removes the pools of dropped tables of the database from a directory of pools.
fn remove_dropped(dir: &dyn Dir, prefix: &str, context: &Context) -> io::Result<()> {
    let Some(tables) = context.dir.path().parent() else { return Ok(()) };
    for entry in dir.list()? {
        let rest = entry.name.strip_prefix(prefix);
        let number = rest.and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
        let Some(number) = number.filter(|number| *number != context.table_id) else { continue };
        let table = context.env.open_dir(&tables.join(number.to_string()), false);
        if table.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            dir.remove(&entry.name)?;
        }
    }
    Ok(())
}

/// Returns the error of a table whose pool is gone.
fn lost(place: &Place) -> Result<Error> {
    let what = if place.exists()? {
        "the pool was emulated on an ordinary file and in use when the system went down, or its \
         creation was interrupted: its contents are lost. Restore the table from a backup, or drop \
         it"
    } else {
        "the pool of persistent memory is missing: mount it, restore it, or drop the table"
    };
    Ok(Error::corruption(place.owner.label(&place.name), 0, what))
}
