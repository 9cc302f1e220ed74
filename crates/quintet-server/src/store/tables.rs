//! The tables of the databases, and the numbers that name collections.
//!
//! Database `n` of the namespace `default` has two tables, created at its first write:
//!
//! | table | engine | key | value |
//! |---|---|---|---|
//! | `redis/n/keys` | `hashlog` | the key | its head |
//! | `redis/n/elements` | `btree` | version (8 bytes, big-endian), name | an element |
//! | | | 0 (8 bytes), expiry (8 bytes), key | empty: the key expires then |
//! | | | 1 (8 bytes), version (8 bytes) | empty: the version is dead |
//! | | | 2 (8 bytes), expiry (8 bytes), key | empty: the first field of the hash expires then |
//!
//! Databases of other namespaces have such tables elsewhere (`namespaces.rs`).
//!
//! `redis/meta` (`btree`) has the number of starts (`starts`), and the `n` of each database after
//! `SWAPDB` or a flush (`order`, one byte each). While a dump is loaded it has its name
//! (`loading`): the keys are then a part of it. If they are not those of `default`, it has the id
//! of their namespace (`loading-namespace`). A replica has its master (`master`) and its
//! position in the master's commands (`position`). A version is the number of the start in the
//! upper and a counter in the lower 32 bits, so no version is used twice.

use std::{
    fmt,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use quintet::{Batch, Database, EngineKind, Error, Table, TableOptions};

use super::{
    database_id::{DATABASES, DatabaseId},
    database_tables::Tables,
    namespaces::{Namespace, Namespaces, PerDatabase},
};
use crate::failure::{Done, Fail};

/// Numbers of tables: each database has one, and one commit can give another to each.
const NUMBERS: u8 = 2 * DATABASES;

const META_TABLE: &str = "redis/meta";
const STARTS_KEY: &str = "starts";
const LOADING_KEY: &str = "loading";
const LOADING_NAMESPACE_KEY: &str = "loading-namespace";
const MASTER_KEY: &str = "master";
const POSITION_KEY: &str = "position";

/// Engines of the tables of a database, with their options. Tables that exist keep theirs.
#[derive(Clone, Debug)]
pub(crate) struct Engines {
    /// The engine of heads, any.
    pub(crate) keys: TableOptions,
    /// The engine of elements, an ordered one.
    pub(crate) elements: TableOptions,
}

impl Default for Engines {
    fn default() -> Self {
        Self {
            keys: TableOptions::new(EngineKind::HashLog),
            elements: TableOptions::new(EngineKind::BTree),
        }
    }
}

/// Tables that a database gets with a commit in place of its old ones: empty tables (a flush), or
/// those of another database (`SWAPDB`).
#[derive(Debug)]
pub(crate) struct Replacement {
    /// The database.
    pub(super) database: DatabaseId,
    /// Its namespace.
    namespace: Arc<Namespace>,
    /// The `n` of the tables.
    number: u8,
    /// The tables.
    pub(super) tables: Arc<Tables>,
}

/// All databases.
pub(crate) struct Databases {
    database: Database,
    engines: Engines,
    meta: Table,
    pub(super) namespaces: Namespaces,
    version: AtomicU64,
    /// Number of times that tables were replaced.
    epoch: AtomicU64,
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Databases").field("engines", &self.engines).finish_non_exhaustive()
    }
}

impl Databases {
    /// Opens the tables that exist and counts this start.
    pub(crate) fn open(database: Database, engines: Engines) -> Result<Self, Error> {
        let meta =
            database.open_or_create_table(META_TABLE, TableOptions::new(EngineKind::BTree))?;
        let starts = match meta.get(STARTS_KEY)? {
            Some(value) => {
                value.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
            }
            None => 0,
        };
        let start = starts + 1;
        meta.put(STARTS_KEY, start.to_le_bytes())?;
        database.sync()?;
        let namespaces = Namespaces::open(&meta)?;
        let databases = Self {
            database,
            engines,
            meta,
            namespaces,
            version: AtomicU64::new(start << 32),
            epoch: AtomicU64::new(0),
        };
        databases.load_namespace(&databases.namespaces.default)?;
        databases.end_removals()?;
        Ok(databases)
    }

    /// Opens the tables of a namespace that exist, and clears those that no database has.
    pub(super) fn open_tables(&self, namespace: &Namespace) -> Result<(), Error> {
        if let Some(stored) = self.meta.get(namespace.order_key())? {
            let mut order = namespace.order.write().unwrap_or_else(PoisonError::into_inner);
            order.iter_mut().zip(stored.as_ref()).for_each(|(to, from)| *to = *from);
        }
        for index in 0..DATABASES {
            match self.load(namespace, index, false) {
                Err(Error::NoSuchTable { .. }) => {}
                loaded => self.install(namespace, index, loaded?),
            }
        }
        let order = namespace.order();
        for number in (0..NUMBERS).filter(|number| !order.contains(number)) {
            // A crash behind the commit of a flush leaves the old tables.
            match self.load_number(namespace, number, false) {
                Err(Error::NoSuchTable { .. }) => {}
                loaded => loaded?.clear()?,
            }
        }
        Ok(())
    }

    pub(super) fn meta(&self) -> &Table {
        &self.meta
    }

    /// The store below.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The name of a dump that is loaded, or whose loading did not end before a crash.
    pub(crate) fn loading(&self) -> Done<Option<String>> {
        let name = self.meta.get(LOADING_KEY)?;
        Ok(name.map(|name| String::from_utf8_lossy(name.as_ref()).into_owned()))
    }

    /// The id of the namespace of that dump; 0, the one of `default`, if there is none.
    pub(crate) fn loading_namespace(&self) -> Done<u32> {
        let id = self.meta.get(LOADING_NAMESPACE_KEY)?;
        let id = id.and_then(|id| Some(u32::from_le_bytes(*id.as_ref().first_chunk()?)));
        Ok(id.unwrap_or(0))
    }

    /// Notes that a dump is loaded into a namespace from now on. The note is on disk before the
    /// first of its keys.
    pub(crate) fn begin_loading(&self, name: &str, namespace: u32) -> Done {
        let mut batch = self.database.batch();
        if namespace == 0 {
            batch.delete(&self.meta, LOADING_NAMESPACE_KEY);
        } else {
            batch.put(&self.meta, LOADING_NAMESPACE_KEY, namespace.to_le_bytes());
        }
        batch.put(&self.meta, LOADING_KEY, name.as_bytes());
        batch.delete(&self.meta, POSITION_KEY);
        batch.commit()?;
        Ok(self.database.sync()?)
    }

    /// Notes that a dump has been loaded, and the position of a replica behind it. It is on disk
    /// afterwards.
    pub(crate) fn end_loading(&self, position: Option<Vec<u8>>) -> Done {
        let mut batch = self.database.batch();
        batch.delete(&self.meta, LOADING_KEY);
        batch.delete(&self.meta, LOADING_NAMESPACE_KEY);
        if let Some(position) = position {
            batch.put(&self.meta, POSITION_KEY, position);
        }
        batch.commit()?;
        Ok(self.database.sync()?)
    }

    /// The master of a replica.
    pub(crate) fn master(&self) -> Done<Option<Vec<u8>>> {
        Ok(self.meta.get(MASTER_KEY)?.map(|value| value.as_ref().to_vec()))
    }

    /// Changes the master. Without one there is no position either. It is on disk afterwards.
    pub(crate) fn set_master(&self, master: Option<Vec<u8>>) -> Done {
        let mut batch = self.database.batch();
        if let Some(master) = master {
            batch.put(&self.meta, MASTER_KEY, master);
        } else {
            batch.delete(&self.meta, MASTER_KEY);
            batch.delete(&self.meta, POSITION_KEY);
        }
        batch.commit()?;
        Ok(self.database.sync()?)
    }

    /// The position of a replica.
    pub(crate) fn position(&self) -> Done<Option<Vec<u8>>> {
        Ok(self.meta.get(POSITION_KEY)?.map(|value| value.as_ref().to_vec()))
    }

    /// Adds the position of a replica to a batch.
    pub(super) fn put_position(&self, batch: &mut Batch, position: &[u8]) {
        batch.put(&self.meta, POSITION_KEY, position);
    }

    /// Number of keys of the databases of a namespace that is open.
    pub(crate) fn key_count(&self, namespace: u32) -> u64 {
        let count = |own| self.get(own).map_or(0, |tables| tables.count.load(Ordering::Acquire));
        DatabaseId::all_of(namespace).map(|own| u64::try_from(count(own)).unwrap_or(0)).sum()
    }

    /// Number of times that tables were replaced. The caller must hold a stripe.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// A number that no collection has had.
    pub(crate) fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed)
    }

    /// The tables of a database, or `None` before its first write.
    pub(crate) fn get(&self, database: DatabaseId) -> Option<Arc<Tables>> {
        if database.namespace() == 0 {
            return self.namespaces.default.get(database.index());
        }
        self.namespaces.tables(database)
    }

    fn namespace(&self, database: DatabaseId) -> Done<Arc<Namespace>> {
        self.namespaces.by_id(database.namespace()).ok_or(Fail::NO_NAMESPACE)
    }

    /// The tables of a database. Creates them, which takes some milliseconds.
    pub(crate) fn get_or_create(&self, database: DatabaseId) -> Done<Arc<Tables>> {
        if let Some(tables) = self.get(database) {
            return Ok(tables);
        }
        let (namespace, index) = (self.namespace(database)?, database.index());
        self.load_namespace(&namespace)?;
        let slot = namespace.tables.get(usize::from(index)).ok_or(Fail::OUT_OF_RANGE)?;
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = &*slot {
            return Ok(tables.clone());
        }
        let tables = Arc::new(self.load(&namespace, index, true)?);
        *slot = Some(tables.clone());
        Ok(tables)
    }

    /// Removes all keys of a database in constant time, at once. The caller must hold all stripes.
    pub(crate) fn clear(&self, database: DatabaseId) -> Done {
        let Some(tables) = self.get(database) else { return Ok(()) };
        if tables.is_empty()? {
            return Ok(());
        }
        tables.clear()?;
        // Handles that are older than a clear keep the memory of the old tables.
        let (namespace, index) = (self.namespace(database)?, database.index());
        self.install(&namespace, index, self.load(&namespace, index, false)?);
        Ok(())
    }

    /// Empty tables for a database, whose tables may be in `taken`, or `None` if it is empty. The
    /// caller must hold all stripes, and gives them to the database with
    /// [`Self::put_replacements`] and [`Self::adopt`], or drops them.
    pub(super) fn replacement(
        &self,
        database: DatabaseId,
        taken: &[Replacement],
    ) -> Done<Option<Replacement>> {
        let taken_tables = of_database(taken, database).map(|own| own.tables.clone());
        match taken_tables.or_else(|| self.get(database)) {
            Some(tables) if !tables.is_empty()? => {}
            _ => return Ok(None),
        }
        let namespace = self.namespace(database)?;
        let last = namespace.last_number.load(Ordering::Relaxed);
        let is_taken = |number: u8| {
            taken.iter().any(|other| {
                other.number == number && other.database.namespace() == database.namespace()
            })
        };
        let order = namespace.order();
        let number = (1..=NUMBERS)
            .map(|step| (last + step) % NUMBERS)
            .find(|number| !order.contains(number) && !is_taken(*number))
            .ok_or(Fail::new("ERR the database has no tables for a flush"))?;
        let mut tables = self.load_number(&namespace, number, true)?;
        if !tables.is_empty()? {
            // They were not cleared behind an earlier flush.
            tables.clear()?;
            tables = self.load_number(&namespace, number, false)?;
        }
        namespace.last_number.store(number, Ordering::Relaxed);
        Ok(Some(Replacement { database, namespace, number, tables: Arc::new(tables) }))
    }

    /// The tables of two databases of a namespace, each for the other one. They may be in `taken`.
    /// Returns `None` if neither has tables. Otherwise as [`Self::replacement`].
    pub(super) fn exchange(
        &self,
        one: DatabaseId,
        other: DatabaseId,
        taken: &[Replacement],
    ) -> Done<Option<[Replacement; 2]>> {
        let has_tables = |own| of_database(taken, own).is_some() || self.get(own).is_some();
        if !has_tables(one) && !has_tables(other) {
            return Ok(None);
        }
        let of = |from: DatabaseId, database: DatabaseId| -> Done<Replacement> {
            let namespace = self.namespace(from)?;
            if let Some(own) = of_database(taken, from) {
                let (number, tables) = (own.number, own.tables.clone());
                return Ok(Replacement { database, namespace, number, tables });
            }
            let tables = self.get_or_create(from)?;
            let number = namespace.order().get(usize::from(from.index())).copied();
            let number = number.ok_or(Fail::OUT_OF_RANGE)?;
            Ok(Replacement { database, namespace, number, tables })
        };
        Ok(Some([of(other, one)?, of(one, other)?]))
    }

    /// Adds to a batch that databases have other tables.
    pub(super) fn put_replacements(&self, batch: &mut Batch, replacements: &[Replacement]) {
        for own in replacements {
            // The last one of a namespace wins, and each has all of them.
            let order = order_with(&own.namespace, replacements);
            batch.put(&self.meta, own.namespace.order_key(), order);
        }
    }

    /// Gives databases their new tables after the commit of [`Self::put_replacements`], and clears
    /// those that no database has any more. The caller must hold all stripes since
    /// [`Self::replacement`] and [`Self::exchange`].
    pub(super) fn adopt(&self, replacements: &[Replacement]) {
        let old_number = |own: &Replacement| {
            own.namespace.order().get(usize::from(own.database.index())).copied()
        };
        let is_used = |own: &Replacement| {
            let number = old_number(own);
            replacements
                .iter()
                .any(|new| new.namespace.id() == own.namespace.id() && Some(new.number) == number)
        };
        let unused = replacements
            .iter()
            .filter(|own| !is_used(own))
            .filter_map(|own| Some((own.database.index(), self.get(own.database)?)));
        let unused: Vec<(u8, Arc<Tables>)> = unused.collect();
        for own in replacements {
            let order = order_with(&own.namespace, replacements);
            *own.namespace.order.write().unwrap_or_else(PoisonError::into_inner) = order;
        }
        for Replacement { database, namespace, tables, .. } in replacements {
            self.replace(namespace, database.index(), Some(tables.clone()));
        }
        for (database, old) in unused {
            // A clear syncs the log first, so the commit is durable before the old keys go.
            if let Err(error) = old.clear() {
                tracing::error!(%error, database, "the space of flushed keys is not free yet");
            }
        }
    }

    fn install(&self, namespace: &Namespace, index: u8, tables: Tables) {
        self.replace(namespace, index, Some(Arc::new(tables)));
    }

    pub(super) fn replace(&self, namespace: &Namespace, index: u8, tables: Option<Arc<Tables>>) {
        if let Some(slot) = namespace.tables.get(usize::from(index)) {
            *slot.write().unwrap_or_else(PoisonError::into_inner) = tables;
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Opens the tables of a database, or creates them.
    fn load(&self, namespace: &Namespace, index: u8, create: bool) -> Result<Tables, Error> {
        let order = namespace.order();
        let number = order.get(usize::from(index)).copied().unwrap_or(index);
        self.load_number(namespace, number, create)
    }

    /// Opens the tables of a number, or creates them.
    fn load_number(
        &self,
        namespace: &Namespace,
        number: u8,
        create: bool,
    ) -> Result<Tables, Error> {
        let directory = namespace.directory();
        let path = |table: &str| format!("{directory}/{number}/{table}");
        let keys = if create {
            self.database.open_or_create_table(&path("keys"), &self.engines.keys)?
        } else {
            self.database.table(&path("keys"))?
        };
        // A crash between the creation of the two tables leaves the first alone.
        let elements_path = path("elements");
        let options = &self.engines.elements;
        let mut elements = self.database.open_or_create_table(&elements_path, options)?;
        let count = keys.stats()?.keys;
        if count == 0 && !elements.is_empty()? {
            elements.clear()?;
            elements = self.database.table(&elements_path)?;
        }
        let count = AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX));
        Ok(Tables { keys, elements, count })
    }
}

/// What a database gets, if it gets tables.
fn of_database(replacements: &[Replacement], database: DatabaseId) -> Option<&Replacement> {
    replacements.iter().find(|own| own.database == database)
}

/// The order of a namespace whose databases have replacements.
fn order_with(namespace: &Namespace, replacements: &[Replacement]) -> PerDatabase<u8> {
    let mut order = namespace.order();
    for own in replacements.iter().filter(|own| own.namespace.id() == namespace.id()) {
        if let Some(number) = order.get_mut(usize::from(own.database.index())) {
            *number = own.number;
        }
    }
    order
}
