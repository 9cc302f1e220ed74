//! An open database and its column families. The objects of all kinds of databases share it.
//!
//! How: the list of families is replaced as a whole when one is created, so a batch reads one list.
//! Merge operators are callbacks of the program, and a table knows only one operator by name. So
//! each operand begins with the number of its family, and that operator finds the callback.
//!
//! Locks: `families` and `operators` are held only for a lookup or a replacement.

mod history;
mod named;
mod secondary;
mod versions;

use std::{
    ops::Deref,
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
    time::Duration,
};

use quintet::{DatabaseStats, Durability, Key, KeyRange, Snapshot, Table, Value};
use quintet_compat::{
    boundary::Text,
    comparator::ComparatorCalls,
    copy::copy,
    engines::{MERGE_OPERATOR, TableRequest},
    iterator::{Bounds, EntryValue},
    keys,
    operations::{Operations, Target},
    status::Status,
    store::{FamilyRules, OpenRequest, Store},
};

use history::History;
pub use named::NamedObject;
use named::NamedTransactions;
pub use secondary::Access;
use secondary::Moment;

use crate::{
    callbacks::{MergeOperator, PrefixExtractor},
    environment::Environment,
    filters::FilterSource,
    objects::OpenDatabase,
    options::{database::DatabaseOptions, reads::ReadOptions, writes::WriteOptions},
    perf::Stopwatch,
};

/// Bytes of the number of a family before an operand.
const NUMBER_BYTES: usize = 4;

/// A value that a read returned.
#[derive(Debug)]
pub struct ReadValue {
    stored: EntryValue,
    /// Its size. The stored form of a version is longer.
    bytes: usize,
}

impl From<Value> for ReadValue {
    #[inline]
    fn from(stored: Value) -> Self {
        let bytes = stored.len();
        Self { stored: EntryValue::Stored(stored), bytes }
    }
}

impl From<Vec<u8>> for ReadValue {
    fn from(own: Vec<u8>) -> Self {
        let bytes = own.len();
        Self { stored: EntryValue::Own(own), bytes }
    }
}

impl Deref for ReadValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.stored.get(..self.bytes).unwrap_or_default()
    }
}

/// A column family.
#[derive(Debug)]
pub struct Family {
    /// Its number in this process. The default family has 0.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: Table,
    /// What reads show, in a secondary instance of a database that this process writes.
    moment: Option<Arc<Moment>>,
    /// Its comparator, unless that is the default one.
    pub comparator: Option<ComparatorCalls>,
    /// Its history. `None`: its keys have no timestamps.
    pub history: Option<History>,
    /// Its prefix extractor.
    pub prefix: Option<Arc<PrefixExtractor>>,
    /// Its merge operator.
    pub operator: Option<Arc<MergeOperator>>,
    /// Its compaction filter.
    pub filter: Option<FilterSource>,
    /// How long values are kept. `None`: until they are deleted.
    pub ttl: Option<Duration>,
    /// Whether files may be ingested behind the entries.
    pub allows_ingest_behind: bool,
    /// What its table was asked for.
    pub request: TableRequest,
}

/// Memory of a column family in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FamilyMemory {
    /// Memtables.
    pub memtables: u64,
    /// Indexes.
    pub indexes: u64,
    /// Blocks and pages of files.
    pub caches: u64,
}

/// A column family that is opened or created.
#[derive(Clone, Debug)]
pub struct NewFamily<'a> {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: &'a DatabaseOptions,
    /// How long values are kept. `None`: until they are deleted.
    pub ttl: Option<Duration>,
}

impl Family {
    /// Returns the table for a commit.
    pub fn target(&self) -> Target<'_> {
        let operator = self.operator.as_ref().map(|_| self.id);
        let timestamps = self.history.as_ref().map(|history| history.order);
        Target { table: &self.table, operator, ttl: self.ttl, timestamps }
    }

    /// Returns the memory of the table. A family that was dropped uses none.
    pub fn memory(&self) -> FamilyMemory {
        let Ok(stats) = self.table.stats() else { return FamilyMemory::default() };
        let memtables = stats.details.iter().find(|(name, _)| *name == "memtable_bytes");
        let memtables = memtables.map_or(0, |(_, bytes)| *bytes);
        let indexes = stats.index_bytes;
        let others = memtables.saturating_add(indexes);
        FamilyMemory { memtables, indexes, caches: stats.memory_bytes.saturating_sub(others) }
    }

    /// Returns the value of a key.
    // Inline, since a small value is moved with the result.
    #[inline]
    pub fn get(
        &self,
        options: Option<&ReadOptions>,
        key: &[u8],
    ) -> Result<Option<ReadValue>, Status> {
        if self.history.is_some() {
            return Ok(self.get_version(options, key)?.map(|(value, _)| value));
        }
        self.check_reads_plain(options)?;
        let key = keys::stored(key);
        let value = match snapshot_of(options)? {
            Some(snapshot) => snapshot.get(&self.table, key)?,
            None => match &self.moment {
                Some(moment) => moment.snapshot().get(&self.table, key)?,
                None => self.table.get(key)?,
            },
        };
        Ok(value.map(ReadValue::from))
    }

    /// Returns the first entry of a range of stored forms.
    fn first_in(
        &self,
        options: Option<&ReadOptions>,
        range: KeyRange,
    ) -> Result<Option<(Key, Value)>, Status> {
        let mut entries = match (snapshot_of(options)?, &self.moment) {
            (Some(snapshot), _) => snapshot.range(&self.table, range)?,
            (None, Some(moment)) => moment.snapshot().range(&self.table, range)?,
            (None, None) => self.table.range(range)?,
        };
        Ok(entries.next().transpose()?)
    }

    /// Fails in a secondary instance.
    pub fn check_writable(&self) -> Result<(), Status> {
        secondary::check_writable(self.moment.as_ref())
    }
}

/// The families of a database, by number.
pub type Families = Arc<Vec<Arc<Family>>>;

/// The merge operators of a database, by the numbers of families.
type Operators = Arc<RwLock<Vec<Option<Arc<MergeOperator>>>>>;

/// An open database.
#[derive(Debug)]
pub struct Core {
    /// The tables.
    pub store: Store,
    families: RwLock<Families>,
    /// The default family, which operations find without a lock.
    default_family: OnceLock<Arc<Family>>,
    operators: Operators,
    /// Whether the database was opened as a secondary instance.
    is_secondary: bool,
    /// What reads show, in a secondary instance of a database that this process writes.
    moment: Option<Arc<Moment>>,
    /// The transactions that have a name.
    pub named: NamedTransactions,
    /// Where the files are. After the tables, so that they are closed before files are removed.
    pub environment: Environment,
}

/// `rocksdb_t`, `rocksdb_transactiondb_t` and `rocksdb_optimistictransactiondb_t`.
#[derive(Debug)]
pub struct Db {
    /// The database.
    pub core: Arc<Core>,
    /// Longest wait of a transaction for a lock.
    pub lock_timeout: Duration,
    /// Whether the object closes the database when it is freed.
    pub is_owner: bool,
}

impl Db {
    /// Makes the object of an open database.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core, lock_timeout: Duration::ZERO, is_owner: true }
    }

    /// Closes the database, unless the object is of its base, or a secondary instance in the
    /// process of the primary one.
    pub fn close(&self) {
        if self.is_owner && self.core.moment.is_none() {
            // The interface has no way to report a failure. Writes that returned are in the log.
            let _ = self.core.store.close();
        }
    }
}

fn merge(
    operators: &Operators,
    key: &[u8],
    existing: Option<&[u8]>,
    operand: &[u8],
) -> Result<Vec<u8>, String> {
    let (number, operand) = operand.split_at_checked(NUMBER_BYTES).ok_or("the operand is short")?;
    let number = number.try_into().map(u32::from_le_bytes).map_err(|_| "no number")?;
    let index = usize::try_from(number).map_err(|_| "no index")?;
    let operator = {
        let operators = operators.read().unwrap_or_else(PoisonError::into_inner);
        operators.get(index).cloned().flatten()
    };
    // The callback runs without a lock.
    let operator = operator.ok_or("the column family has no merge operator")?;
    let watch = Stopwatch::start();
    let merged = operator.merge(keys::key(key), existing, &[operand]);
    watch.stop(|counters, time| counters.merge_time += time);
    merged
}

impl Core {
    /// Opens a database with the named families, each with its options. Returns the families in
    /// that order.
    pub fn open(
        name: Text,
        options: &DatabaseOptions,
        families: &[NewFamily<'_>],
        access: Access,
    ) -> Result<(Arc<Self>, Vec<Arc<Family>>), Status> {
        let operators = Operators::default();
        let of_tables = operators.clone();
        let merge = move |key: &[u8], existing: Option<&[u8]>, operand: &[u8]| {
            merge(&of_tables, key, existing, operand)
        };
        let is_read_only = access != Access::Write;
        families.iter().try_for_each(NewFamily::check)?;
        let request = OpenRequest {
            create_if_missing: options.creates_missing() && !is_read_only,
            error_if_exists: options.refuses_existing() && !is_read_only,
            family_rules: FamilyRules {
                creates_missing: options.creates_missing_families() && !is_read_only,
                wants_all: !is_read_only,
            },
            options: options
                .options()
                .read_only(is_read_only)
                .merge_operator(MERGE_OPERATOR, merge),
            families: families.iter().map(|new| new.options.family(new.name.clone())).collect(),
        };
        let (store, tables, moment) =
            secondary::open(&options.environment().path(name)?, &request, access)?;
        let default_family = OnceLock::new();
        let core = Self {
            store,
            families: RwLock::default(),
            default_family,
            operators,
            is_secondary: access == Access::Secondary,
            moment,
            named: NamedTransactions::default(),
            environment: options.environment().clone(),
        };
        // The default family has number 0, whatever its place among the names is.
        let mut order: Vec<_> = families.iter().zip(tables).enumerate().collect();
        order.sort_by_key(|(_, (new, _))| new.name != quintet_compat::store::DEFAULT_FAMILY);
        let mut opened = Vec::new();
        for (place, (new, table)) in order {
            opened.push((place, core.add(new, table)?));
        }
        opened.sort_by_key(|(place, _)| *place);
        let core = Arc::new(core);
        if let Some(cache) = options.cache() {
            let user: Weak<Self> = Arc::downgrade(&core);
            cache.add_user(user);
        }
        if let Some(statistics) = options.statistics() {
            let database: Weak<Self> = Arc::downgrade(&core);
            statistics.add(database);
        }
        Ok((core, opened.into_iter().map(|(_, family)| family).collect()))
    }

    /// Adds the table of a family.
    fn add(&self, new: &NewFamily<'_>, table: Table) -> Result<Arc<Family>, Status> {
        let options = new.options;
        let request = options.family(new.name.clone());
        // Before the lock: this calls the comparator.
        let history = match request.timestamp_order()? {
            Some(order) => Some(History::new(order, self.store.history_low(&new.name)?)),
            None => None,
        };
        let mut families = self.families.write().unwrap_or_else(PoisonError::into_inner);
        let id = u32::try_from(families.len());
        let id = id.map_err(|_| Status::invalid("there are too many column families"))?;
        let family = Arc::new(Family {
            history,
            id,
            name: request.name,
            table,
            moment: self.moment.clone(),
            comparator: request.comparator,
            prefix: options.prefix().cloned(),
            operator: options.merge().cloned(),
            filter: options.filter().cloned(),
            ttl: new.ttl,
            allows_ingest_behind: options.allows_ingest_behind(),
            request: request.table,
        });
        let mut operators = self.operators.write().unwrap_or_else(PoisonError::into_inner);
        operators.push(options.merge().cloned());
        Arc::make_mut(&mut families).push(family.clone());
        // The first family is the default one.
        self.default_family.get_or_init(|| family.clone());
        Ok(family)
    }

    /// Creates a column family.
    pub fn create_family(&self, new: &NewFamily<'_>) -> Result<Arc<Family>, Status> {
        self.check_writable()?;
        new.check()?;
        let table = self.store.create_family(&new.options.family(new.name.clone()))?;
        self.add(new, table)
    }

    /// Copies the present state to a directory that does not exist.
    pub fn copy(&self, target: &Path) -> Result<(), Status> {
        let families = self.families();
        copy(&self.store, target, |name| {
            // A family that was dropped and created again is there twice.
            let family = families.iter().rev().find(|family| family.name == name);
            family.map_or_else(TableRequest::default, |family| family.request.clone())
        })
    }

    /// Fails in a secondary instance.
    pub fn check_writable(&self) -> Result<(), Status> {
        secondary::check_writable(self.moment.as_ref())
    }

    /// Returns what reads without a snapshot show.
    pub fn present(&self) -> Result<Snapshot, Status> {
        match &self.moment {
            Some(moment) => Ok(moment.snapshot()),
            None => Ok(self.store.database.snapshot()?),
        }
    }

    /// Moves what a secondary instance reads forward to the present state.
    pub fn catch_up(&self) -> Result<(), Status> {
        if !self.is_secondary {
            return Err(Status::unsupported("Supported only by secondary instance"));
        }
        // No process writes a database that is open for reading.
        let Some(moment) = &self.moment else { return Ok(()) };
        let snapshot = self.store.database.snapshot()?;
        // Read after the snapshot, and used before it: what the snapshot lacks is not asked for.
        for family in self.families().iter() {
            if let Some(history) = &family.history {
                history.follow(self.store.history_low(&family.name)?.unwrap_or_default());
            }
        }
        moment.replace(snapshot);
        Ok(())
    }

    /// Returns the families.
    pub fn families(&self) -> Families {
        self.families.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the family that a record of a batch names.
    pub fn family(&self, id: u32) -> Result<Arc<Family>, Status> {
        numbered(&self.families(), id).cloned()
    }

    /// Returns the default family.
    pub fn default_family(&self) -> Result<&Arc<Family>, Status> {
        let none = || Status::corruption("the database has no default column family");
        self.default_family.get().ok_or_else(none)
    }

    /// Writes a batch: all of it or nothing.
    pub fn write(&self, options: &WriteOptions, batch: &Operations) -> Result<(), Status> {
        self.write_with(options.durability(), batch)
    }

    /// Writes a batch with a durability.
    pub fn write_with(&self, durability: Durability, batch: &Operations) -> Result<(), Status> {
        self.write_and_delete(durability, batch, None)
    }

    /// Writes a batch with a durability, and deletes a key of another table with it.
    pub fn write_and_delete(
        &self,
        durability: Durability,
        batch: &Operations,
        deleted: Option<(&Table, &[u8])>,
    ) -> Result<(), Status> {
        self.check_writable()?;
        let families = self.families();
        let target = |id: u32| Ok(numbered(&families, id)?.target());
        let watch = Stopwatch::start();
        let committed = batch.commit_and_delete(&self.store.database, durability, target, deleted);
        watch.stop(|counters, time| counters.write_time += time);
        committed
    }

    /// Returns the snapshot that an iterator reads.
    pub fn snapshot(&self, options: Option<&ReadOptions>) -> Result<Snapshot, Status> {
        Ok(match snapshot_of(options)? {
            Some(snapshot) => (*snapshot).clone(),
            None => self.present()?,
        })
    }
}

impl OpenDatabase for Core {
    fn cache_bytes(&self) -> u64 {
        self.families().iter().map(|family| family.memory().caches).sum()
    }

    fn stats(&self) -> DatabaseStats {
        self.store.database.stats()
    }
}

/// Returns the family that a record of a batch names.
pub fn numbered(families: &Families, id: u32) -> Result<&Arc<Family>, Status> {
    let family = usize::try_from(id).ok().and_then(|id| families.get(id));
    family.ok_or_else(|| Status::invalid("Invalid column family specified in write batch"))
}

fn snapshot_of(options: Option<&ReadOptions>) -> Result<Option<Arc<Snapshot>>, Status> {
    Ok(options.map(|options| options.snapshot.get()).transpose()?.flatten())
}

/// Returns the bounds of iterators.
pub fn bounds(options: Option<&ReadOptions>) -> Bounds {
    options.map_or_else(Bounds::default, |options| Bounds {
        lower: options.lower.clone(),
        upper: options.upper.clone(),
    })
}
