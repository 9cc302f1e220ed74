//! Loads a whole dump into an empty store: imports and full synchronizations.
//!
//! Keys are committed in batches of some hundred, and large values in steps. So a load is not one
//! commit. A note in the store marks it instead: [`Loader::begin`] sets it before the first key and
//! [`Loader::load`] removes it behind the last. A server does not start on a store with the note
//! of an import, and removes the keys of an unfinished synchronization.

use std::io::Read;

use quintet::Durability;

use crate::{
    command::transfer::Building,
    failure::Done,
    rdb::{Failure, FileSink, Item, Parsed, Sink, Summary, read_file},
    store::{DATABASES, DatabaseId, NAME_BYTES_MAX, Store, Unit, now_millis},
};

/// Bytes of values after which keys are committed.
const STEP_BYTES: usize = 1 << 20;
/// Longest key in bytes.
const KEY_BYTES_MAX: usize = 65_535;

/// What was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// What the dump had.
    pub(crate) summary: Summary,
    /// Keys that had expired and were skipped.
    pub(crate) expired: u64,
}

/// Receives the keys of a dump.
#[derive(Debug)]
pub(crate) struct Loader<'s> {
    store: &'s Store,
    namespace: u32,
    unit: Unit<'s>,
    building: Option<Building>,
    expiry: Option<u64>,
    bytes: usize,
    loaded: Loaded,
}

impl<'s> Loader<'s> {
    /// Removes all keys of a namespace that is open and notes that `name` is loaded into it. No
    /// other thread may use its keys until the end of [`Loader::load`].
    pub(crate) fn begin(store: &'s Store, name: &str, namespace: u32) -> Done<Self> {
        store.databases.begin_loading(name, namespace)?;
        let mut unit = Unit::new(store, now_millis());
        unit.lock_all();
        for database in DatabaseId::all_of(namespace) {
            store.databases.clear(database)?;
            unit.forget(database);
            store.changes.changed_all(database);
        }
        store.changes.invalidations.report_flush(namespace);
        unit.discard();
        let (building, expiry, loaded) = (None, None, Loaded::default());
        Ok(Self { store, namespace, unit, building, expiry, bytes: 0, loaded })
    }

    /// Loads the whole of a dump. The position of a replica behind it is stored with its end.
    /// After a failure the note stays.
    pub(crate) fn load(mut self, source: impl Read, position: Option<Vec<u8>>) -> Parsed<Loaded> {
        let summary = read_file(source, &mut self)?;
        self.unit.commit(Durability::Buffered)?;
        self.loaded.summary = summary;
        self.store.databases.end_loading(position)?;
        Ok(self.loaded)
    }
}

/// The index of the database of a key, if the store can hold both.
fn check_key(database: u64, key: &[u8]) -> Parsed<u8> {
    let database = u8::try_from(database).ok().filter(|database| *database < DATABASES);
    let database = database.ok_or(Failure::Content("a database above 15"))?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Failure::Content("a key that is empty or longer than 65,535 bytes"));
    }
    Ok(database)
}

/// Reads a dump without loading it: checks the format, the checksum, and the limits of the store.
#[derive(Debug)]
pub(crate) struct Check;

impl Sink for Check {
    fn item(&mut self, item: Item<'_>) -> Parsed {
        let (Item::Member(name) | Item::Scored(name, _) | Item::Field(name, ..)) = item else {
            return Ok(());
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(Failure::Content("an element that is longer than 65,000 bytes"));
        }
        Ok(())
    }
}

impl FileSink for Check {
    fn begin(&mut self, database: u64, key: Vec<u8>, _: Option<u64>) -> Parsed<bool> {
        check_key(database, &key).map(|_| true)
    }

    fn end(&mut self) -> Parsed {
        Ok(())
    }

    fn aux(&mut self, _: &[u8], _: &[u8]) -> Parsed {
        Ok(())
    }
}

impl Sink for Loader<'_> {
    fn item(&mut self, item: Item<'_>) -> Parsed {
        match &mut self.building {
            Some(building) => building.put(&mut self.unit, item),
            None => Ok(()),
        }
    }
}

impl FileSink for Loader<'_> {
    fn begin(&mut self, database: u64, key: Vec<u8>, expiry: Option<u64>) -> Parsed<bool> {
        let database = DatabaseId::of(self.namespace, check_key(database, &key)?);
        if expiry.is_some_and(|expiry| expiry <= self.unit.now) {
            self.loaded.expired += 1;
            return Ok(false);
        }
        if !self.unit.lock_one(database, &key) {
            self.unit.commit(Durability::Buffered)?;
            self.unit.lock_one(database, &key);
        }
        if self.unit.exists(database, &key)? {
            return Err(Failure::Content("a key that was there before"));
        }
        self.expiry = expiry;
        self.building = Some(Building::in_steps(database, key));
        Ok(true)
    }

    fn end(&mut self) -> Parsed {
        let Some(building) = self.building.take() else { return Ok(()) };
        let (database, key) = building.key();
        if self.expiry.is_some() && self.unit.exists(database, key)? {
            self.unit.set_expiry(database, key, self.expiry)?;
        }
        self.unit.end_command();
        self.bytes += building.bytes;
        if self.bytes > STEP_BYTES || self.unit.is_full() {
            self.unit.commit(Durability::Buffered)?;
            self.bytes = 0;
        }
        Ok(())
    }

    fn aux(&mut self, _: &[u8], _: &[u8]) -> Parsed {
        Ok(())
    }
}
