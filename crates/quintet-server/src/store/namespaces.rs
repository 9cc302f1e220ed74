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
//! namespaces that nobody uses have no open tables.
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
    database_id::{DatabaseId, NAMESPACE_IDS},
    tables::{DATABASES, Databases, Tables},
};
use crate::failure::{Done, Fail};

/// The namespace that always exists.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";
/// Most namespaces beside `default`. Each that was made costs an entry of the catalogue in memory.
pub(crate) const NAMESPACES_MAX: usize = 1000;
/// Longest name of a namespace in bytes.
pub(crate) const NAMESPACE_BYTES_MAX: usize = 64;

/// Sweeps without a connection after which the handles of tables are dropped: some minute.
const IDLE_SWEEPS_MAX: u32 = 600;

const NAMES: &str = "namespace/";
const LAST_ID_KEY: &str = "namespaces";
const DROPPED: &str = "dropped/";

/// The id of what is no namespace. It is never given.
const NO_ID: u32 = NAMESPACE_IDS - 1;

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
    is_dropped: AtomicBool,
    /// Whether `order` and `tables` are those of the disk.
    is_loaded: Mutex<bool>,
    /// Sweeps that have found no connection in here, since one was.
    idle_sweeps: AtomicU32,
    /// The `n` of each database.
    pub(super) order: RwLock<PerDatabase<u8>>,
    pub(super) tables: PerDatabase<RwLock<Option<Arc<Tables>>>>,
    /// The `n` that was given to a database last. The others are used first, so that a reader that
    /// holds no stripe meets no tables of another database.
    pub(super) last_number: AtomicU8,
}

impl Namespace {
    fn new(id: u32, name: &str) -> Self {
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

fn directory(id: u32) -> String {
    format!("redis/namespaces/{id}")
}

/// The namespaces beside `default`.
#[derive(Debug, Default)]
struct Catalogue {
    ids: BTreeMap<String, u32>,
    namespaces: HashMap<u32, Arc<Namespace>>,
}

/// All namespaces.
#[derive(Debug)]
pub(super) struct Namespaces {
    pub(super) default: Arc<Namespace>,
    catalogue: RwLock<Catalogue>,
    /// The last id that was given. Held while the catalogue changes.
    changing: Mutex<u32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entries of a table whose keys begin with `prefix`, without the prefix.
fn entries(meta: &Table, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, Error> {
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

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Catalogue> {
        self.catalogue.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Databases {
    /// The namespace `default`.
    pub(crate) fn default_namespace(&self) -> Arc<Namespace> {
        self.namespaces.default.clone()
    }

    /// The names of all namespaces, `default` first.
    pub(crate) fn namespace_names(&self) -> Vec<String> {
        let catalogue = self.namespaces.read();
        let own = catalogue.ids.keys().cloned();
        std::iter::once(DEFAULT_NAMESPACE.to_owned()).chain(own).collect()
    }

    /// A namespace by its name, with its tables open. `None` if there is none.
    ///
    /// Cost: the first call opens the tables of the namespace, up to 32. Fails with the failure of
    /// the store.
    pub(crate) fn enter(&self, name: &str) -> Done<Option<Arc<Namespace>>> {
        if name == DEFAULT_NAMESPACE {
            return Ok(Some(self.default_namespace()));
        }
        let found = {
            let catalogue = self.namespaces.read();
            catalogue.ids.get(name).and_then(|id| catalogue.namespaces.get(id)).cloned()
        };
        let Some(found) = found else { return Ok(None) };
        match self.load_namespace(&found) {
            // It was removed meanwhile, with its tables.
            Err(_) if found.is_dropped() => Ok(None),
            loaded => loaded.map(|()| Some(found)).map_err(Fail::from),
        }
    }

    /// Adds a namespace. It is on disk afterwards. Creates no table.
    pub(crate) fn add_namespace(&self, name: &str) -> Done {
        if !is_namespace_name(name.as_bytes()) {
            return Err(Fail::BAD_NAMESPACE);
        }
        let mut last = lock(&self.namespaces.changing);
        {
            let catalogue = self.namespaces.read();
            if name == DEFAULT_NAMESPACE || catalogue.ids.contains_key(name) {
                return Err(Fail::new("ERR the namespace exists already"));
            }
            if catalogue.ids.len() >= NAMESPACES_MAX {
                return Err(Fail::with(format!(
                    "ERR there are {NAMESPACES_MAX} namespaces, which is the limit; remove one \
                     with NAMESPACE DEL"
                )));
            }
        }
        let id = Some(*last + 1).filter(|id| *id < NO_ID);
        let id = id.ok_or(Fail::new("ERR all ids of namespaces have been used"))?;
        let mut batch = self.database().batch();
        batch.put(self.meta(), format!("{NAMES}{name}"), id.to_le_bytes());
        batch.put(self.meta(), LAST_ID_KEY, id.to_le_bytes());
        batch.commit()?;
        // After a failed sync the store takes no writes, so the id is not given twice.
        *last = id;
        self.database().sync()?;
        let mut catalogue = self.namespaces.write();
        catalogue.namespaces.insert(id, Arc::new(Namespace::new(id, name)));
        catalogue.ids.insert(name.to_owned(), id);
        Ok(())
    }

    /// Removes a namespace with all its keys. Returns its id, or `None` if there is none. The
    /// removal is on disk afterwards. The caller must hold all stripes.
    ///
    /// Cost: independent of the number of keys. The tables are dropped after the removal; the next
    /// start drops them if that fails or the process ends before.
    pub(crate) fn remove_namespace(&self, name: &str) -> Done<Option<u32>> {
        let _last = lock(&self.namespaces.changing);
        let Some(id) = self.namespaces.read().ids.get(name).copied() else { return Ok(None) };
        let mut batch = self.database().batch();
        batch.delete(self.meta(), format!("{NAMES}{name}"));
        batch.delete(self.meta(), format!("order/{id}"));
        batch.put(self.meta(), format!("{DROPPED}{id}"), "");
        batch.commit()?;
        self.database().sync()?;
        let removed = {
            let mut catalogue = self.namespaces.write();
            catalogue.ids.remove(name);
            catalogue.namespaces.remove(&id)
        };
        if let Some(removed) = removed {
            removed.is_dropped.store(true, Ordering::Release);
            for index in DatabaseId::all_of(0).map(DatabaseId::index) {
                self.replace(&removed, index, None);
            }
        }
        if let Err(error) = self.drop_tables(id) {
            tracing::error!(%error, name, "the space of the namespace is not free before the next start");
        }
        Ok(Some(id))
    }

    fn drop_tables(&self, id: u32) -> Result<(), Error> {
        match self.database().drop_tree(&directory(id)) {
            Ok(()) | Err(Error::NoSuchTable { .. }) => {}
            Err(error) => return Err(error),
        }
        self.meta().delete(format!("{DROPPED}{id}"))?;
        Ok(())
    }

    /// Drops the tables of namespaces whose removal did not end.
    pub(super) fn end_removals(&self) -> Result<(), Error> {
        for (id, _) in entries(self.meta(), DROPPED)? {
            if let Ok(id) = id.parse() {
                self.drop_tables(id)?;
            }
        }
        Ok(())
    }

    /// Opens the tables of a namespace that exist, unless they are open.
    pub(super) fn load_namespace(&self, namespace: &Namespace) -> Result<(), Error> {
        let mut is_loaded = lock(&namespace.is_loaded);
        if !*is_loaded {
            self.open_tables(namespace)?;
            *is_loaded = true;
        }
        Ok(())
    }

    /// Number of namespaces beside `default`, and of those that are in use.
    pub(crate) fn namespace_counts(&self) -> (usize, usize) {
        let catalogue = self.namespaces.read();
        let is_used = |own: &&Arc<Namespace>| Arc::strong_count(own) > 1;
        (catalogue.ids.len(), catalogue.namespaces.values().filter(is_used).count())
    }

    /// The ids of the namespaces whose tables are open, `default` first. Waits for none that opens.
    pub(crate) fn loaded_namespaces(&self) -> Vec<u32> {
        let catalogue = self.namespaces.read();
        let is_loaded =
            |own: &&Arc<Namespace>| own.is_loaded.try_lock().is_ok_and(|is_loaded| *is_loaded);
        let mut ids: Vec<u32> =
            catalogue.namespaces.values().filter(is_loaded).map(|own| own.id).collect();
        ids.sort_unstable();
        ids.insert(0, 0);
        ids
    }

    /// Counts a sweep of the namespaces that no connection is in. Returns whether
    /// [`Self::unload_namespaces`] has something to do.
    pub(crate) fn count_idle_sweep(&self) -> bool {
        let catalogue = self.namespaces.read();
        let mut is_due = false;
        for own in catalogue.namespaces.values() {
            let is_loaded = own.is_loaded.try_lock().is_ok_and(|is_loaded| *is_loaded);
            if Arc::strong_count(own) == 1 && is_loaded {
                is_due |= own.idle_sweeps.fetch_add(1, Ordering::Relaxed) >= IDLE_SWEEPS_MAX;
            } else {
                own.idle_sweeps.store(0, Ordering::Relaxed);
            }
        }
        is_due
    }

    /// Drops the handles of tables of namespaces that no connection has been in for a while. The
    /// caller must hold all stripes.
    pub(crate) fn unload_namespaces(&self) {
        // Nobody enters one meanwhile: that needs the lock to find it.
        let catalogue = self.namespaces.write();
        for own in catalogue.namespaces.values().filter(|own| Arc::strong_count(own) == 1) {
            let mut is_loaded = lock(&own.is_loaded);
            if *is_loaded && own.idle_sweeps.load(Ordering::Relaxed) >= IDLE_SWEEPS_MAX {
                *is_loaded = false;
                own.idle_sweeps.store(0, Ordering::Relaxed);
                for index in DatabaseId::all_of(0).map(DatabaseId::index) {
                    self.replace(own, index, None);
                }
            }
        }
    }
}
