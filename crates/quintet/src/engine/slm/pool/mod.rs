//! The pool of persistent memory of a table: SLM-DB's own design, as a mode.
//!
//! What: one file for each table ([`crate::pmem`]) with the index ([`index`]), the memtables
//! ([`crate::lsm::memtable::pool_memtables`]), or both (the options `medium`, `index`,
//! `memtable`).
//!
//! Problem: a pool outlives the process and changes word by word, while the shared log makes
//! batches over tables atomic. After a crash the pool may be ahead of the log's durable end, and
//! behind it too.
//! How:
//! - The pool records the LSN to which the table is complete (`complete`), after the log is synced
//!   and every operation below is in the pool or in a run. The log is replayed from there, and
//!   opening removes the entries of memtables from there on. So a checkpoint of the table is one
//!   word, and the replay is at most what was written since the last one.
//! - Flushes sync the log before they change the index, so the index has nothing that the log may
//!   lack. It may have more than `complete` says; replay repeats that.
//!
//! Roots of the pool:
//!
//! | root | meaning |
//! |---|---|
//! | 0 | `QNTSLM`, then a byte of what is in the pool (1 memtables, 2 index), then the format 1; 0 until the pool is made |
//! | 1 | the LSN to which the table is complete |
//! | 2 | link to the tree ([`crate::pmem::fast_fair`]) |
//! | 3 | link to the list of runs ([`run_records`]) |
//! | 4 | link to the log of index updates ([`update_log`]) |
//! | 5 | link to the directory of memtables |
//! | 6 | 1: the index in pages has had a checkpoint |
//!
//! Invariants:
//! - `complete` never falls, and never passes the durable end of the log.
//! - A table that the catalog records as complete is refused if its pool is missing or lost. A
//!   table without a checkpoint is made again, and the log has all of it.
//!
//! Threads: see [`index`]. `complete` is written by checkpoints, which take turns.

pub(super) mod index;
mod run_records;
mod sweep;
mod update_log;

pub(super) use self::update_log::UpdateBatch;

use std::{path::Path, sync::Arc};

use self::{index::PoolIndex, sweep::SweepState};
use super::options::PoolSettings;
use crate::{
    Error, Result,
    contract::Context,
    io::{Dir, persistence::Slowness},
    journal::redo::Owner,
    lsm::memtable::pool_memtables::PoolMemtables,
    pmem::{Pool, PoolMode, Sizes},
    util::{
        codec::Lsn,
        sync::{AtomicU64, Mutex, Ordering},
    },
};

/// Name of the pool's file in the table's own directory.
const NAME: &str = "pool";
/// Root word 0 without the byte of what is in the pool.
const MAGIC: u64 = u64::from_le_bytes(*b"QNTSLM\0\x01");
/// Shift of that byte.
const PARTS_SHIFT: u32 = 48;
const HAS_MEMTABLES: u64 = 1;
const HAS_INDEX: u64 = 2;

const STATE: u64 = 0;
const COMPLETE: u64 = 1;
const TREE: u64 = 2;
const RUNS: u64 = 3;
const UPDATES: u64 = 4;
const MEMTABLES: u64 = 5;
const HAS_PAGES: u64 = 6;

/// Initial bytes of a pool. It grows by doubling.
const FIRST_BYTES: u64 = 64 << 20;

/// The pool of a table. See the module head.
#[derive(Debug)]
pub(super) struct SlmPool {
    pub(super) pool: Arc<Pool>,
    /// Whether an ordinary file takes the place of persistent memory.
    pub(super) is_emulated: bool,
    /// The index, if it is in the pool.
    pub(super) index: Option<PoolIndex>,
    /// The memtables, if they are in the pool.
    pub(super) memtables: Option<Arc<PoolMemtables>>,
    complete: AtomicU64,
    sweep: Mutex<SweepState>,
}

/// Where the file of a pool is.
struct Place {
    owner: Owner,
    name: String,
}

impl Place {
    fn new(settings: &PoolSettings, context: &Context) -> Result<Self> {
        let (dir, name): (Arc<dyn Dir>, String) = match &settings.path {
            None => (Arc::clone(&context.dir), NAME.to_owned()),
            Some(path) => {
                let dir = context.env.open_dir(Path::new(path), !context.read_only);
                let dir = dir.map_err(|error| Error::io(format!("open {path}"), error))?;
                let id = u128::from_be_bytes(context.database_id);
                (dir, format!("{id:032x}-{}.pool", context.table_id))
            }
        };
        let (database_id, table_id) = (context.database_id, context.table_id);
        Ok(Self { owner: Owner { dir, database_id, table_id }, name })
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
            return Ok(open(PoolMode::Copy)?.map(|pool| (pool, true)));
        }
        match open(PoolMode::Persistent) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::Unsupported => {
                let Slowness { .. } = settings.slowness;
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
    pub(super) fn open(settings: &PoolSettings, context: &Context) -> Result<Self> {
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
                made.ok_or_else(|| Error::io("make a pool", std::io::ErrorKind::NotFound.into()))?
            }
        };
        Self::start(Arc::new(pool), is_emulated, settings, context)
    }

    fn start(
        pool: Arc<Pool>,
        is_emulated: bool,
        settings: &PoolSettings,
        context: &Context,
    ) -> Result<Self> {
        let parts = u64::from(settings.has_memtables) * HAS_MEMTABLES
            | u64::from(settings.has_index) * HAS_INDEX;
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
        let sweep = Mutex::new(SweepState::new(&pool));
        Ok(Self { pool, is_emulated, index, memtables: None, complete, sweep })
    }

    /// Opens the directory of memtables, which are frozen at `list_bytes`.
    pub(super) fn open_memtables(&mut self, list_bytes: u64) -> Result<Arc<PoolMemtables>> {
        let opened = PoolMemtables::open(&self.pool, MEMTABLES, list_bytes, self.is_emulated)?;
        self.memtables = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Whether the index in pages has had a checkpoint: its files must exist.
    pub(super) fn has_pages(&self) -> bool {
        self.pool.root(HAS_PAGES) == 1
    }

    /// Records that the index in pages has had a checkpoint.
    pub(super) fn note_pages(&self) {
        if !self.has_pages() {
            self.pool.replace(Pool::root_at(HAS_PAGES), 1);
        }
    }

    /// Returns the LSN to which the table is complete.
    pub(super) fn complete(&self) -> Lsn {
        Lsn(self.complete.load(Ordering::Acquire))
    }

    /// Records that the table is complete to an LSN: everything below is in the pool or in a run,
    /// and the log is durable to there. Returns the LSN to which it is complete.
    pub(super) fn set_complete(&self, lsn: Lsn) -> Lsn {
        let before = self.complete.fetch_max(lsn.0, Ordering::AcqRel);
        if lsn.0 > before {
            self.pool.replace(Pool::root_at(COMPLETE), lsn.0);
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
