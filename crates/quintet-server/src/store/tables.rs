//! The tables of the databases, and the numbers that name collections.
//!
//! Database `n` has two tables, created at its first write:
//!
//! | table | engine | key | value |
//! |---|---|---|---|
//! | `redis/n/keys` | `hashlog` | the key | its head |
//! | `redis/n/elements` | `btree` | version (8 bytes, big-endian), name | an element |
//! | | | 0 (8 bytes), expiry (8 bytes), key | empty: the key expires then |
//! | | | 1 (8 bytes), version (8 bytes) | empty: the version is dead |
//! | | | 2 (8 bytes), expiry (8 bytes), key | empty: the first field of the hash expires then |
//!
//! `redis/meta` (`btree`) has the number of starts (`starts`), and the `n` of each database after
//! `SWAPDB` or a flush (`order`, one byte each). While a dump is loaded it has its name
//! (`loading`): the keys are then a part of it. A replica has its master (`master`) and its
//! position in the master's commands (`position`). A version is the number of the start in the
//! upper and a counter in the lower 32 bits, so no version is used twice.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering},
    },
};

use quintet::{Batch, Database, EngineKind, Error, Table, TableOptions};

use crate::failure::{Done, Fail};

/// Number of databases that `SELECT` reaches.
pub(crate) const DATABASES: u8 = 16;
/// Prefix of entries that list keys by expiry.
pub(crate) const EXPIRIES: [u8; 8] = 0_u64.to_be_bytes();
/// Prefix of entries that list dead versions.
pub(crate) const DEAD_VERSIONS: [u8; 8] = 1_u64.to_be_bytes();
/// Prefix of entries that list hashes by the earliest expiry of a field.
pub(crate) const FIELD_EXPIRIES: [u8; 8] = 2_u64.to_be_bytes();

/// Numbers of tables: each database has one, and one commit can give another to each.
const NUMBERS: u8 = 2 * DATABASES;

const META_TABLE: &str = "redis/meta";
const STARTS_KEY: &str = "starts";
const ORDER_KEY: &str = "order";
const LOADING_KEY: &str = "loading";
const MASTER_KEY: &str = "master";
const POSITION_KEY: &str = "position";

/// Engines of the tables of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Engines {
    /// The engine of heads, any.
    pub(crate) keys: EngineKind,
    /// The engine of elements, an ordered one.
    pub(crate) elements: EngineKind,
}

/// The tables of one database.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Heads by key.
    pub(crate) keys: Table,
    /// Elements of large collections, expiries and dead versions.
    pub(crate) elements: Table,
    /// Number of heads. Expired keys count until they are swept.
    pub(crate) count: AtomicI64,
}

/// Empty tables that a database gets with a commit, in place of its old tables.
#[derive(Debug)]
pub(crate) struct Replacement {
    /// The database.
    pub(super) database: u8,
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
    /// The `n` of each database.
    order: RwLock<[u8; DATABASES as usize]>,
    tables: Vec<RwLock<Option<Arc<Tables>>>>,
    version: AtomicU64,
    /// Number of times that tables were replaced.
    epoch: AtomicU64,
    /// The `n` that was given to a database last. The others are used first, so that a reader that
    /// holds no stripe meets no tables of another database.
    last_number: AtomicU8,
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Databases").field("engines", &self.engines).finish_non_exhaustive()
    }
}

fn path(number: u8, table: &str) -> String {
    format!("redis/{number}/{table}")
}

impl Tables {
    fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.count.load(Ordering::Acquire) == 0 && self.elements.is_empty()?)
    }

    /// Removes all entries. A crash between the two tables keeps elements without heads. No head
    /// refers to them, and the next start removes them.
    fn clear(&self) -> Result<(), Error> {
        if self.is_empty()? {
            return Ok(());
        }
        self.keys.clear()?;
        self.elements.clear()
    }

    /// An estimate of the number of keys that expire.
    pub(crate) fn expiring(&self) -> u64 {
        let range = EXPIRIES.to_vec()..DEAD_VERSIONS.to_vec();
        self.elements.estimate_count(range).unwrap_or(0)
    }

    /// An estimate of the number of hashes whose fields expire.
    pub(crate) fn hashes_with_expiries(&self) -> u64 {
        let range = FIELD_EXPIRIES.to_vec()..3_u64.to_be_bytes().to_vec();
        self.elements.estimate_count(range).unwrap_or(0)
    }

    /// Whether a field of some hash expires.
    pub(crate) fn has_field_expiries(&self) -> Done<bool> {
        let mut is_found = false;
        let end = 3_u64.to_be_bytes().to_vec();
        self.elements.visit(FIELD_EXPIRIES.to_vec()..end, |_, _| {
            is_found = true;
            std::ops::ControlFlow::Break(())
        })?;
        Ok(is_found)
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
        let mut order = std::array::from_fn(|index| u8::try_from(index).unwrap_or(0));
        if let Some(stored) = meta.get(ORDER_KEY)? {
            order.iter_mut().zip(stored.as_ref()).for_each(|(to, from)| *to = *from);
        }
        let databases = Self {
            database,
            engines,
            meta,
            order: RwLock::new(order),
            tables: (0..DATABASES).map(|_| RwLock::new(None)).collect(),
            version: AtomicU64::new(start << 32),
            epoch: AtomicU64::new(0),
            last_number: AtomicU8::new(DATABASES - 1),
        };
        for index in 0..DATABASES {
            match databases.load(index, false) {
                Err(Error::NoSuchTable { .. }) => {}
                loaded => databases.install(index, loaded?),
            }
        }
        for number in (0..NUMBERS).filter(|number| !order.contains(number)) {
            // A crash behind the commit of a flush leaves the old tables.
            match databases.load_number(number, false) {
                Err(Error::NoSuchTable { .. }) => {}
                loaded => loaded?.clear()?,
            }
        }
        Ok(databases)
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

    /// Notes that a dump is loaded from now on. The note is on disk before the first of its keys.
    pub(crate) fn begin_loading(&self, name: &str) -> Done {
        let mut batch = self.database.batch();
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

    /// Number of keys of all databases.
    pub(crate) fn key_count(&self) -> u64 {
        let count =
            |index| self.get(index).map_or(0, |tables| tables.count.load(Ordering::Acquire));
        (0..DATABASES).map(|index| u64::try_from(count(index)).unwrap_or(0)).sum()
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
    pub(crate) fn get(&self, index: u8) -> Option<Arc<Tables>> {
        let slot = self.tables.get(usize::from(index))?;
        slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tables of a database. Creates them, which takes some milliseconds.
    pub(crate) fn get_or_create(&self, index: u8) -> Done<Arc<Tables>> {
        if let Some(tables) = self.get(index) {
            return Ok(tables);
        }
        let slot = self.tables.get(usize::from(index));
        let slot = slot.ok_or(Fail::new("ERR DB index is out of range"))?;
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = &*slot {
            return Ok(tables.clone());
        }
        let tables = Arc::new(self.load(index, true)?);
        *slot = Some(tables.clone());
        Ok(tables)
    }

    /// Removes all keys of a database in constant time, at once. The caller must hold all stripes.
    pub(crate) fn clear(&self, index: u8) -> Done {
        let Some(tables) = self.get(index) else { return Ok(()) };
        if tables.is_empty()? {
            return Ok(());
        }
        tables.clear()?;
        // Handles that are older than a clear keep the memory of the old tables.
        self.install(index, self.load(index, false)?);
        Ok(())
    }

    /// Empty tables for a database beside those that are `taken`, or `None` if it is empty. The
    /// caller must hold all stripes, and gives them to the database with
    /// [`Self::put_replacements`] and [`Self::adopt`], or drops them.
    pub(super) fn replacement(
        &self,
        database: u8,
        taken: &[Replacement],
    ) -> Done<Option<Replacement>> {
        match self.get(database) {
            Some(tables) if !tables.is_empty()? => {}
            _ => return Ok(None),
        }
        let last = self.last_number.load(Ordering::Relaxed);
        let is_taken = |number: u8| taken.iter().any(|other| other.number == number);
        let order = *self.order.read().unwrap_or_else(PoisonError::into_inner);
        let number = (1..=NUMBERS)
            .map(|step| (last + step) % NUMBERS)
            .find(|number| !order.contains(number) && !is_taken(*number))
            .ok_or(Fail::new("ERR the database has no tables for a flush"))?;
        let mut tables = self.load_number(number, true)?;
        if !tables.is_empty()? {
            // They were not cleared behind an earlier flush.
            tables.clear()?;
            tables = self.load_number(number, false)?;
        }
        self.last_number.store(number, Ordering::Relaxed);
        Ok(Some(Replacement { database, number, tables: Arc::new(tables) }))
    }

    fn order_with(&self, replacements: &[Replacement]) -> [u8; DATABASES as usize] {
        let mut order = *self.order.read().unwrap_or_else(PoisonError::into_inner);
        for own in replacements {
            if let Some(number) = order.get_mut(usize::from(own.database)) {
                *number = own.number;
            }
        }
        order
    }

    /// Adds to a batch that databases have other tables.
    pub(super) fn put_replacements(&self, batch: &mut Batch, replacements: &[Replacement]) {
        if !replacements.is_empty() {
            batch.put(&self.meta, ORDER_KEY, self.order_with(replacements));
        }
    }

    /// Gives databases their new tables after the commit of [`Self::put_replacements`], and clears
    /// the old ones. The caller must hold all stripes since [`Self::replacement`].
    pub(super) fn adopt(&self, replacements: Vec<Replacement>) {
        let order = self.order_with(&replacements);
        *self.order.write().unwrap_or_else(PoisonError::into_inner) = order;
        for Replacement { database, tables, .. } in replacements {
            let old = self.get(database);
            self.replace(database, Some(tables));
            // A clear syncs the log first, so the commit is durable before the old keys go.
            if let Some(Err(error)) = old.map(|old| old.clear()) {
                tracing::error!(%error, database, "the space of flushed keys is not free yet");
            }
        }
    }

    /// Exchanges two databases, also after a restart, and stores the position of a replica with it.
    /// The caller must hold all stripes.
    pub(crate) fn swap(&self, one: u8, other: u8, position: Option<Vec<u8>>) -> Done {
        let mut order = self.order.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = *order;
        changed.swap(usize::from(one), usize::from(other));
        let mut batch = self.database.batch();
        batch.put(&self.meta, ORDER_KEY, changed);
        if let Some(position) = position {
            self.put_position(&mut batch, &position);
        }
        batch.commit()?;
        *order = changed;
        let (a, b) = (self.get(one), self.get(other));
        self.replace(one, b);
        self.replace(other, a);
        Ok(())
    }

    fn install(&self, index: u8, tables: Tables) {
        self.replace(index, Some(Arc::new(tables)));
    }

    fn replace(&self, index: u8, tables: Option<Arc<Tables>>) {
        if let Some(slot) = self.tables.get(usize::from(index)) {
            *slot.write().unwrap_or_else(PoisonError::into_inner) = tables;
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Opens the tables of a database, or creates them.
    fn load(&self, index: u8, create: bool) -> Result<Tables, Error> {
        let order = *self.order.read().unwrap_or_else(PoisonError::into_inner);
        self.load_number(order.get(usize::from(index)).copied().unwrap_or(index), create)
    }

    /// Opens the tables of a number, or creates them.
    fn load_number(&self, number: u8, create: bool) -> Result<Tables, Error> {
        let open = |name: &str, kind: EngineKind| {
            let path = path(number, name);
            if create {
                self.database.open_or_create_table(&path, TableOptions::new(kind))
            } else {
                self.database.table(&path)
            }
        };
        let keys = open("keys", self.engines.keys)?;
        // A crash between the creation of the two tables leaves the first alone.
        let elements_path = path(number, "elements");
        let options = TableOptions::new(self.engines.elements);
        let mut elements = self.database.open_or_create_table(&elements_path, &options)?;
        let count = keys.stats()?.keys;
        if count == 0 && !elements.is_empty()? {
            elements.clear()?;
            elements = self.database.table(&elements_path)?;
        }
        let count = AtomicI64::new(i64::try_from(count).unwrap_or(i64::MAX));
        Ok(Tables { keys, elements, count })
    }
}
