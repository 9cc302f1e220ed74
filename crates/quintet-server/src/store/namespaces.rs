//! Namespaces: named sets of 16 databases, and the catalogue of their names.
//!
//! The namespace `default` has id 0 and always exists. Others have ids that are used once, so what
//! knows an id meets no keys of a later namespace. `redis/meta` has:
//!
//! | key | value |
//! |---|---|
//! | `namespace/NAME` | the id (4 bytes, little-endian) |
//! | `namespaces` | the last id that was given (4 bytes, little-endian) |
//! | `dropped/ID` | empty: the tables of the namespace are to be dropped |
//! | `order/ID` | the numbers of the tables, as `order` has them for `default` |
//!
//! The tables of a namespace are in the directory `redis/namespaces/ID`. They are opened when a
//! connection enters the namespace, and their handles are dropped after the last one has left, so
//! namespaces that no client uses have no open tables.
//!
//! Locks, in this order: the stripes, `changing`, `catalogue`, `is_loaded`, `order` and `tables`.

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
};

use quintet::{Error, Table};

use super::{
    database_id::{DATABASES, DatabaseId, NAMESPACE_IDS},
    database_tables::Tables,
};

/// The namespace that always exists.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";
/// Most namespaces beside `default`. Each that was made costs an entry of the catalogue in memory.
pub(crate) const NAMESPACES_MAX: usize = 1000;
/// Longest name of a namespace in bytes.
pub(crate) const NAMESPACE_BYTES_MAX: usize = 64;

/// Sweeps without a connection after which the handles of tables are dropped: some minute.
pub(super) const IDLE_SWEEPS_MAX: u32 = 600;

pub(super) const NAMES: &str = "namespace/";
pub(super) const LAST_ID_KEY: &str = "namespaces";
pub(super) const DROPPED: &str = "dropped/";

/// The id of what is no namespace. It is never given.
pub(super) const NO_ID: u32 = NAMESPACE_IDS - 1;

/// What each database of a namespace has.
pub(super) type PerDatabase<T> = [T; DATABASES as usize];

/// Whether a name can be that of a namespace.
pub(crate) fn is_namespace_name(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    (1..=NAMESPACE_BYTES_MAX).contains(&name.len()) && name.iter().all(is_letter)
}

/// A set of 16 databases.
#[derive(Debug)]
pub(crate) struct Namespace {
    id: u32,
    name: String,
    pub(super) is_dropped: AtomicBool,
    /// Whether `order` and `tables` are those of the disk.
    pub(super) is_loaded: Mutex<bool>,
    /// Sweeps that have found no connection in here, since one was.
    pub(super) idle_sweeps: AtomicU32,
    /// The `n` of each database.
    pub(super) order: RwLock<PerDatabase<u8>>,
    pub(super) tables: PerDatabase<RwLock<Option<Arc<Tables>>>>,
    /// The `n` that was given to a database last. The others are used first, so that a reader that
    /// holds no stripe meets no tables of another database.
    pub(super) last_number: AtomicU8,
}

impl Namespace {
    pub(super) fn new(id: u32, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            is_dropped: AtomicBool::new(false),
            is_loaded: Mutex::new(false),
            idle_sweeps: AtomicU32::new(0),
            order: RwLock::new(std::array::from_fn(|index| u8::try_from(index).unwrap_or(0))),
            tables: std::array::from_fn(|_| RwLock::new(None)),
            last_number: AtomicU8::new(DATABASES - 1),
        }
    }

    /// A namespace that does not exist: a place for connections of users that begin in one.
    pub(crate) fn missing(name: &str) -> Self {
        let missing = Self::new(NO_ID, name);
        missing.is_dropped.store(true, Ordering::Release);
        missing
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Whether it does not exist any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// The tables of a database, or `None` before its first write.
    pub(super) fn get(&self, index: u8) -> Option<Arc<Tables>> {
        let slot = self.tables.get(usize::from(index))?;
        slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The numbers of the tables.
    pub(super) fn order(&self) -> PerDatabase<u8> {
        *self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory of the tables.
    pub(super) fn directory(&self) -> String {
        if self.id == 0 { "redis".to_owned() } else { directory(self.id) }
    }

    /// The key of the order.
    pub(super) fn order_key(&self) -> String {
        if self.id == 0 { "order".to_owned() } else { format!("order/{}", self.id) }
    }
}

pub(super) fn directory(id: u32) -> String {
    format!("redis/namespaces/{id}")
}

/// The namespaces beside `default`.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) ids: BTreeMap<String, u32>,
    pub(super) namespaces: HashMap<u32, Arc<Namespace>>,
}

/// All namespaces.
#[derive(Debug)]
pub(super) struct Namespaces {
    pub(super) default: Arc<Namespace>,
    catalogue: RwLock<Catalogue>,
    /// The last id that was given. Held while the catalogue changes.
    pub(super) changing: Mutex<u32>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entries of a table whose keys begin with `prefix`, without the prefix.
pub(super) fn entries(meta: &Table, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut found = Vec::new();
    let mut end = prefix.as_bytes().to_vec();
    // Names are ASCII, so nothing with the prefix is at this end or behind it.
    end.push(0xff);
    meta.visit(prefix.as_bytes().to_vec()..end, |key, value| {
        let name = String::from_utf8_lossy(key.get(prefix.len()..).unwrap_or_default());
        found.push((name.into_owned(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn id_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*value.first_chunk()?)).filter(|id| (1..NO_ID).contains(id))
}

impl Namespaces {
    /// Reads the catalogue. Opens no table.
    pub(super) fn open(meta: &Table) -> Result<Self, Error> {
        let mut catalogue = Catalogue::default();
        let mut last = meta.get(LAST_ID_KEY)?.and_then(|id| id_of(id.as_ref())).unwrap_or(0);
        for (name, value) in entries(meta, NAMES)? {
            let Some(id) = id_of(&value) else {
                tracing::error!(name, "the catalogue has no id of a namespace: it is left out");
                continue;
            };
            last = last.max(id);
            catalogue.namespaces.insert(id, Arc::new(Namespace::new(id, &name)));
            catalogue.ids.insert(name, id);
        }
        Ok(Self {
            default: Arc::new(Namespace::new(0, DEFAULT_NAMESPACE)),
            catalogue: RwLock::new(catalogue),
            changing: Mutex::new(last),
        })
    }

    /// A namespace by its id.
    pub(super) fn by_id(&self, id: u32) -> Option<Arc<Namespace>> {
        if id == 0 {
            return Some(self.default.clone());
        }
        self.read().namespaces.get(&id).cloned()
    }

    /// The tables of a database of a namespace beside `default`.
    pub(super) fn tables(&self, database: DatabaseId) -> Option<Arc<Tables>> {
        self.read().namespaces.get(&database.namespace())?.get(database.index())
    }

    pub(super) fn read(&self) -> std::sync::RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> std::sync::RwLockWriteGuard<'_, Catalogue> {
        self.catalogue.write().unwrap_or_else(PoisonError::into_inner)
    }
}
