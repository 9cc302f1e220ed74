//! An open database and its column families. The objects of all kinds of databases share it.
//!
//! How: the list of families is replaced as a whole when one is created, so a batch reads one list.
//! Merge operators are callbacks of the program, and a table knows only one operator by name. So
//! each operand begins with the number of its family, and that operator finds the callback.
//!
//! Locks: `families` and `operators` are held only for a lookup or a replacement.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use quintet::{Snapshot, Table, Value};
use quintet_compat::{
    boundary::Text,
    comparator::ComparatorCalls,
    engines::MERGE_OPERATOR,
    iterator::Bounds,
    keys,
    operations::{Operations, Target},
    status::Status,
    store::{FamilyRules, OpenRequest, Store},
};

use crate::{
    callbacks::{MergeOperator, PrefixExtractor},
    options::{database::DatabaseOptions, reads::ReadOptions, writes::WriteOptions},
};

/// Bytes of the number of a family before an operand.
const NUMBER_BYTES: usize = 4;

/// A column family.
#[derive(Debug)]
pub struct Family {
    /// Its number in this process. The default family has 0.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its table.
    pub table: Table,
    /// Its comparator, unless that is the default one.
    pub comparator: Option<ComparatorCalls>,
    /// Its prefix extractor.
    pub prefix: Option<Arc<PrefixExtractor>>,
    has_operator: bool,
}

impl Family {
    /// Returns the table for a commit.
    pub fn target(&self) -> Target<'_> {
        Target { table: &self.table, operator: self.has_operator.then_some(self.id) }
    }

    /// Returns the value of a key.
    pub fn get(&self, options: Option<&ReadOptions>, key: &[u8]) -> Result<Option<Value>, Status> {
        let key = keys::stored(key);
        Ok(match snapshot_of(options)? {
            Some(snapshot) => snapshot.get(&self.table, key)?,
            None => self.table.get(key)?,
        })
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
    operators: Operators,
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

    /// Closes the database, unless the object is of its base.
    pub fn close(&self) {
        if self.is_owner {
            // The interface has no way to report a failure. Writes that returned are in the log.
            let _ = self.core.store.database.close();
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
    operator.merge(keys::key(key), existing, &[operand])
}

impl Core {
    /// Opens a database with the named families, each with its options. Returns the families in
    /// that order.
    pub fn open(
        path: &Path,
        options: &DatabaseOptions,
        families: &[(String, &DatabaseOptions)],
        is_read_only: bool,
    ) -> Result<(Arc<Self>, Vec<Arc<Family>>), Status> {
        let operators = Operators::default();
        let of_tables = operators.clone();
        let merge = move |key: &[u8], existing: Option<&[u8]>, operand: &[u8]| {
            merge(&of_tables, key, existing, operand)
        };
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
            families: families.iter().map(|(name, o)| o.family(name.clone())).collect(),
        };
        let (store, tables) = Store::open(path, &request)?;
        let core = Self { store, families: RwLock::default(), operators };
        // The default family has number 0, whatever its place among the names is.
        let mut order: Vec<_> = families.iter().zip(tables).enumerate().collect();
        order.sort_by_key(|(_, ((name, _), _))| name != quintet_compat::store::DEFAULT_FAMILY);
        let mut opened = Vec::new();
        for (place, ((name, options), table)) in order {
            opened.push((place, core.add(name.clone(), table, options)?));
        }
        opened.sort_by_key(|(place, _)| *place);
        Ok((Arc::new(core), opened.into_iter().map(|(_, family)| family).collect()))
    }

    /// Adds the table of a family.
    fn add(
        &self,
        name: String,
        table: Table,
        options: &DatabaseOptions,
    ) -> Result<Arc<Family>, Status> {
        let mut families = self.families.write().unwrap_or_else(PoisonError::into_inner);
        let id = u32::try_from(families.len());
        let id = id.map_err(|_| Status::invalid("there are too many column families"))?;
        let family = Arc::new(Family {
            id,
            name: name.clone(),
            table,
            comparator: options.family(name).comparator,
            prefix: options.prefix().cloned(),
            has_operator: options.merge().is_some(),
        });
        let mut operators = self.operators.write().unwrap_or_else(PoisonError::into_inner);
        operators.push(options.merge().cloned());
        Arc::make_mut(&mut families).push(family.clone());
        Ok(family)
    }

    /// Creates a column family.
    pub fn create_family(
        &self,
        name: &str,
        options: &DatabaseOptions,
    ) -> Result<Arc<Family>, Status> {
        let table = self.store.create_family(&options.family(name.to_owned()))?;
        self.add(name.to_owned(), table, options)
    }

    /// Returns the families.
    pub fn families(&self) -> Families {
        self.families.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the default family.
    pub fn default_family(&self) -> Result<Arc<Family>, Status> {
        let none = || Status::corruption("the database has no default column family");
        self.families().first().cloned().ok_or_else(none)
    }

    /// Writes a batch: all of it or nothing.
    pub fn write(&self, options: &WriteOptions, batch: &Operations) -> Result<(), Status> {
        let families = self.families();
        batch.commit(&self.store.database, options.durability(), |id| {
            let family = usize::try_from(id).ok().and_then(|id| families.get(id));
            let none = || Status::invalid("Invalid column family specified in write batch");
            Ok(family.ok_or_else(none)?.target())
        })
    }

    /// Returns the snapshot that an iterator reads.
    pub fn snapshot(&self, options: Option<&ReadOptions>) -> Result<Snapshot, Status> {
        Ok(match snapshot_of(options)? {
            Some(snapshot) => (*snapshot).clone(),
            None => self.store.database.snapshot()?,
        })
    }
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

/// Returns the path that a text names.
pub fn path(name: &Text) -> Result<&Path, Status> {
    Ok(Path::new(OsStr::from_bytes(name.bytes()?)))
}
