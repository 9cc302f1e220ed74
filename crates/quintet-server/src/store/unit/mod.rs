//! Units: the writes that commit together, with reads that see them.
//!
//! A unit loads the head of each key that it needs once, under the stripe of the key, and keeps it
//! in a *slot*. Commands change slots. [`Unit::commit`] encodes the changed slots into one batch.
//! So sixteen pushes to one list in a pipeline write its head once.

mod commit;
mod expired;
mod field_expiry_index;
mod flush;
mod noted;
mod slot_buffers;
mod taken;

use std::sync::Arc;

use hashbrown::HashTable;

use field_expiry_index::remove_expired_fields;
use slot_buffers::SlotBuffers;

use super::{
    call_limits::CallLimits,
    collection::Collection,
    database_id::{DATABASES, DatabaseId},
    database_tables::Tables,
    elements::{Elements, Kind, Pending},
    events::KeyName,
    head::{Body, Head, split},
    keyspace::Store,
    notifications::{KeyEvent, event},
    position::Position,
    slot::{Slot, Stored},
    stripes::{StripeGuard, Stripes},
    tables::Replacement,
};
use crate::failure::{Done, Fail};

/// Bytes of changed values after which a pipeline commits.
const UNIT_BYTES_MAX: usize = 1 << 20;
/// Changed keys after which a pipeline commits.
const UNIT_KEYS_MAX: usize = 512;

/// Writes that commit together.
#[derive(Debug)]
pub(crate) struct Unit<'s> {
    store: &'s Store,
    /// Milliseconds since 1970, the same for all commands of the unit.
    pub(crate) now: u64,
    /// The client whose commands it has, or 0.
    pub(crate) client: u64,
    guards: Vec<(usize, StripeGuard<'s>)>,
    /// Tables of the databases of one namespace.
    tables: [Option<Arc<Tables>>; 16],
    /// The id of that namespace.
    namespace: u32,
    /// Tables that databases get with the commit.
    replacements: Vec<Replacement>,
    /// Names of keys that were changed before a flush or an exchange of databases.
    announced: Vec<KeyName>,
    /// Names of watched keys that a flush or an exchange of databases concerns.
    broken_watches: Vec<KeyName>,
    /// Databases that were flushed or exchanged, also those without stored keys.
    replaced: Vec<DatabaseId>,
    slots: Vec<Slot>,
    index: HashTable<(u64, usize)>,
    /// Bytes of values that the slots hold.
    bytes: usize,
    /// Collections that the running command has opened.
    touched: Vec<usize>,
    has_changes: bool,
    /// Events of keys, which the commit publishes.
    events: Vec<KeyEvent>,
    /// Where those of the running command begin.
    command_events: usize,
    /// The number of exchanges of tables that `tables` is of.
    epoch: u64,
    scratch: Vec<u8>,
    /// Whether expired keys are visible, because a master decides when they end.
    keeps_expired: bool,
    /// Most expired fields that the load of a hash removes. Only the background has a limit.
    expired_fields_max: usize,
    /// Limits of the running command.
    pub(crate) limits: CallLimits,
    /// Reads that have found their key, and that have not, since they were last counted.
    pub(crate) lookups: (usize, usize),
    /// Position of a replica behind the commands of this unit, which the commit stores.
    position: Option<Vec<u8>>,
    /// Position behind the running command.
    next_position: Option<Position>,
}

impl<'s> Unit<'s> {
    /// An empty unit.
    pub(crate) fn new(store: &'s Store, now: u64) -> Self {
        let SlotBuffers { slots, index, scratch } = SlotBuffers::take();
        Self {
            store,
            now,
            client: 0,
            guards: Vec::new(),
            tables: [const { None }; 16],
            namespace: 0,
            replacements: Vec::new(),
            announced: Vec::new(),
            broken_watches: Vec::new(),
            replaced: Vec::new(),
            slots,
            index,
            bytes: 0,
            touched: Vec::new(),
            has_changes: false,
            events: Vec::new(),
            command_events: 0,
            epoch: store.databases.epoch(),
            scratch,
            keeps_expired: false,
            expired_fields_max: usize::MAX,
            limits: CallLimits::none(),
            lookups: (0, 0),
            position: None,
            next_position: None,
        }
    }

    /// An empty unit for the commands of a master.
    pub(crate) fn of_link(store: &'s Store, now: u64) -> Self {
        let mut unit = Self::new(store, now);
        unit.keeps_expired = true;
        unit
    }

    /// Whether a key with this expiry has ended.
    pub(crate) fn is_past(&self, expiry: u64) -> bool {
        !self.keeps_expired && expiry <= self.now
    }

    /// Whether the unit has something to commit.
    pub(crate) fn is_changed(&self) -> bool {
        self.has_changes
    }

    /// Whether the unit is large enough to commit. One with replacements holds all stripes.
    pub(crate) fn is_full(&self) -> bool {
        !self.replacements.is_empty()
            || self.bytes.max(self.limits.loaded()) > UNIT_BYTES_MAX
            || self.slots.len() >= UNIT_KEYS_MAX
    }

    /// Takes the stripes of keys. Returns `false` if another unit has one of them: then the caller
    /// must commit and call again with an empty unit, which waits.
    pub(crate) fn lock<'k>(
        &mut self,
        database: DatabaseId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let stripes = keys.map(|key| Stripes::stripe_of(self.store.stripes.hash(database, key)));
        self.lock_stripes(stripes)
    }

    /// Takes the stripe of one key. Otherwise as [`Unit::lock`].
    pub(crate) fn lock_one(&mut self, database: DatabaseId, key: &[u8]) -> bool {
        let stripe = Stripes::stripe_of(self.store.stripes.hash(database, key));
        self.lock_stripe(stripe, self.guards.is_empty())
    }

    /// Takes all stripes. Otherwise as [`Unit::lock`].
    pub(crate) fn lock_all(&mut self) -> bool {
        self.lock_stripes(0..self.store.stripes.count())
    }

    fn lock_stripes(&mut self, stripes: impl Iterator<Item = usize>) -> bool {
        let may_wait = self.guards.is_empty();
        let mut stripes: Vec<usize> = stripes.collect();
        if stripes.len() > 1 {
            stripes.sort_unstable();
            stripes.dedup();
        }
        stripes.into_iter().all(|stripe| self.lock_stripe(stripe, may_wait))
    }

    fn lock_stripe(&mut self, stripe: usize, may_wait: bool) -> bool {
        // After `lock_all` there is nothing to search. A unit that may wait held none before the
        // command, whose stripes differ.
        let holds_all = self.guards.len() == self.store.stripes.count();
        if holds_all || !may_wait && self.guards.iter().any(|(held, _)| *held == stripe) {
            return true;
        }
        let stripes = &self.store.stripes;
        let guard = if may_wait { stripes.lock(stripe) } else { stripes.try_lock(stripe) };
        let is_held = guard.is_some();
        self.guards.extend(guard.map(|guard| (stripe, guard)));
        is_held
    }

    /// The tables of a database, or `None` before its first write.
    pub(crate) fn tables(&mut self, database: DatabaseId) -> Option<Arc<Tables>> {
        self.cached(database).clone()
    }

    /// The tables of a database as [`Self::tables`] returns them.
    fn cached(&mut self, database: DatabaseId) -> &mut Option<Arc<Tables>> {
        self.check_epoch();
        if self.namespace != database.namespace() {
            self.namespace = database.namespace();
            self.forget_tables();
        }
        // `index` is below the number of databases.
        let cached = &mut self.tables[usize::from(database.index() % DATABASES)];
        if cached.is_none() {
            *cached = self.store.databases.get(database);
        }
        cached
    }

    /// Prefetches what reads of these keys will need.
    pub(crate) fn prefetch(&mut self, database: DatabaseId, keys: &[&[u8]]) {
        if let Some(tables) = self.cached(database) {
            // It fails as the reads will, which report it.
            let _ = tables.keys.prefetch(keys);
        }
    }

    /// Notes whether a read has found its key.
    pub(crate) fn note_lookup(&mut self, is_found: bool) {
        let (hits, misses) = &mut self.lookups;
        *(if is_found { hits } else { misses }) += 1;
    }

    /// Calls `each` with the string at a key, or with `None`. Copies nothing into a slot.
    pub(crate) fn with_string<T>(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        each: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Done<T> {
        if let Some(index) = self.find(database, key) {
            return match self.slots.get(index).and_then(|slot| slot.head.as_ref()) {
                None => Ok(each(None)),
                Some(Head { body: Body::Str(value), .. }) => Ok(each(Some(value))),
                Some(_) => Err(Fail::WRONG_TYPE),
            };
        }
        if key.is_empty() {
            return Ok(each(None));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let found = match self.cached(database) {
            Some(tables) => tables.keys.get_into(key, &mut scratch),
            None => Ok(false),
        };
        self.scratch = scratch;
        if !found? {
            return Ok(each(None));
        }
        match split(&self.scratch).ok_or_else(|| damaged(key))? {
            (_, Some(expiry), ..) if !self.keeps_expired && expiry <= self.now => Ok(each(None)),
            (Kind::String, _, _, value) => Ok(each(Some(value))),
            // A hash may have no field that has not expired.
            _ if self.exists(database, key)? => Err(Fail::WRONG_TYPE),
            _ => Ok(each(None)),
        }
    }

    /// The head of a key, or `None` if the key is absent or expired.
    pub(crate) fn head(&mut self, database: DatabaseId, key: &[u8]) -> Done<Option<&Head>> {
        let slot = self.slot(database, key)?;
        Ok(self.slots.get(slot).and_then(|slot| slot.head.as_ref()))
    }

    /// Whether a key exists.
    pub(crate) fn exists(&mut self, database: DatabaseId, key: &[u8]) -> Done<bool> {
        Ok(self.head(database, key)?.is_some())
    }

    /// The string at a key to change it, or `None`. The caller must change it, or leave it equal.
    pub(crate) fn string_mut(
        &mut self,
        database: DatabaseId,
        key: &[u8],
    ) -> Done<Option<&mut Vec<u8>>> {
        let index = self.slot(database, key)?;
        if self.slots.get(index).is_some_and(|slot| slot.head.is_some()) {
            self.touch(index);
        }
        match self.slots.get_mut(index).and_then(|slot| slot.head.as_mut()) {
            None => Ok(None),
            Some(Head { body: Body::Str(value), .. }) => Ok(Some(value)),
            Some(_) => Err(Fail::WRONG_TYPE),
        }
    }

    /// Replaces whatever is at a key by a string.
    pub(crate) fn set_string(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        value: Vec<u8>,
        expiry: Option<u64>,
    ) -> Done {
        self.bytes += value.len() + key.len();
        if self.limits.load(value.len()).is_break() {
            self.limits.check()?;
        }
        self.replace(database, key, Some(Head::new(expiry, Body::Str(value))))
    }

    /// Sets the expiry of an existing key.
    pub(crate) fn set_expiry(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        expiry: Option<u64>,
    ) -> Done {
        let index = self.slot(database, key)?;
        self.touch(index);
        if let Some(head) = self.slots.get_mut(index).and_then(|slot| slot.head.as_mut()) {
            head.expiry = expiry;
        }
        Ok(())
    }

    /// Removes a key in constant time. Returns whether it existed.
    pub(crate) fn remove(&mut self, database: DatabaseId, key: &[u8]) -> Done<bool> {
        let is_present = self.exists(database, key)?;
        if is_present {
            self.replace(database, key, None)?;
        }
        Ok(is_present)
    }

    /// Opens the collection at a key. Fails with `WRONGTYPE` for another type.
    pub(crate) fn open(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        kind: Kind,
    ) -> Done<Option<Collection<'_>>> {
        let index = self.slot(database, key)?;
        match self.slots.get(index).and_then(|slot| slot.head.as_ref()) {
            None => return Ok(None),
            Some(head) if head.kind() != kind => return Err(Fail::WRONG_TYPE),
            Some(_) => {}
        }
        self.collection(database, index).map(Some)
    }

    /// Opens the collection at a key, or makes an empty one.
    pub(crate) fn open_or_create(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        kind: Kind,
    ) -> Done<Collection<'_>> {
        let index = self.slot(database, key)?;
        match self.slots.get(index).and_then(|slot| slot.head.as_ref()) {
            Some(head) if head.kind() != kind => return Err(Fail::WRONG_TYPE),
            Some(_) => {}
            None => {
                let elements = Elements {
                    kind,
                    version: self.store.databases.next_version(),
                    count: 0,
                    extra: Vec::new(),
                    inline: Some(Vec::new()),
                };
                let head = Head::new(None, Body::Elements(elements));
                self.replace(database, key, Some(head))?;
            }
        }
        self.collection(database, index)
    }

    fn collection(&mut self, database: DatabaseId, index: usize) -> Done<Collection<'_>> {
        let tables = self.tables(database);
        self.touched.push(index);
        self.bytes += 64;
        let slot = self.slots.get_mut(index).ok_or(Fail::NO_SUCH_KEY)?;
        Collection::new(slot, tables, (&self.store.databases, &self.limits)).ok_or(Fail::WRONG_TYPE)
    }

    /// Ends a command: a collection that has lost its last element ceases to exist.
    pub(crate) fn end_command(&mut self) {
        for index in std::mem::take(&mut self.touched) {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            self.has_changes |= slot.is_changed;
            let is_empty = match slot.head.as_ref().map(|head| &head.body) {
                Some(Body::Elements(elements)) => {
                    elements.count == 0 && elements.kind != Kind::Stream
                }
                _ => false,
            };
            if is_empty {
                slot.head = None;
                slot.pending.clear();
                let (database, key) = (slot.database, std::mem::take(&mut slot.key));
                self.note_emptied(database, &key);
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.key = key;
                }
            }
        }
        self.limits.end_command();
        self.command_events = self.events.len();
    }

    /// The keys of a database that the unit has changed, and whether they exist.
    pub(crate) fn changed_keys(
        &self,
        database: DatabaseId,
    ) -> impl Iterator<Item = (&[u8], Option<&Head>)> {
        let slots = self.slots.iter();
        slots
            .filter(move |slot| slot.is_written() && slot.database == database)
            .map(|slot| (slot.key.as_slice(), slot.head.as_ref()))
    }

    /// How many keys the unit adds to a database.
    pub(crate) fn added_keys(&self, database: DatabaseId) -> i64 {
        let own = self.slots.iter().filter(|slot| slot.database == database && slot.is_written());
        own.map(Slot::added).sum()
    }

    /// Forgets the tables if another unit has replaced some.
    fn check_epoch(&mut self) {
        let epoch = self.store.databases.epoch();
        if self.epoch != epoch {
            self.epoch = epoch;
            self.forget_tables();
        }
    }

    fn replace(&mut self, database: DatabaseId, key: &[u8], head: Option<Head>) -> Done {
        let index = self.slot_with(database, key, Head::decode_to_replace)?;
        let mut is_new = false;
        if let Some(slot) = self.slots.get_mut(index) {
            is_new = slot.head.is_none() && head.is_some();
            slot.head = head;
            slot.pending.clear();
        }
        if is_new {
            self.notify(event::NEW, "new", database, key);
        }
        self.touch(index);
        Ok(())
    }

    fn touch(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            slot.is_changed = true;
            self.has_changes = true;
        }
    }

    fn find(&self, database: DatabaseId, key: &[u8]) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let hash = self.store.stripes.hash(database, key);
        self.find_hash(hash, database, key)
    }

    fn find_hash(&self, hash: u64, database: DatabaseId, key: &[u8]) -> Option<usize> {
        let is_equal = |(_, index): &(u64, usize)| {
            let slot = self.slots.get(*index);
            slot.is_some_and(|slot| slot.database == database && slot.key == key)
        };
        self.index.find(hash, is_equal).map(|(_, index)| *index)
    }

    /// The slot of a key. Loads its head if the unit has none.
    fn slot(&mut self, database: DatabaseId, key: &[u8]) -> Done<usize> {
        self.slot_with(database, key, Head::decode)
    }

    /// As [`Self::slot`], with the function that decodes a head.
    fn slot_with(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Option<Head>,
    ) -> Done<usize> {
        let hash = self.store.stripes.hash(database, key);
        if let Some(index) = self.find_hash(hash, database, key) {
            return Ok(index);
        }
        if key.is_empty() {
            return Err(Fail::new("ERR the empty key is not supported"));
        }
        let (mut stored, mut head) = (None, None);
        let (mut pending, mut expired_fields) = (Pending::new(), 0);
        if let Some(tables) = self.tables(database)
            && tables.keys.get_into(key, &mut self.scratch)?
        {
            let mut loaded = decode(&self.scratch).ok_or_else(|| damaged(key))?;
            stored = Some(Stored::of(&loaded));
            self.bytes += self.scratch.len();
            if self.limits.load(self.scratch.len()).is_break() {
                self.limits.check()?;
            }
            let is_expired = loaded.expiry.is_some_and(|expiry| self.is_past(expiry));
            if is_expired {
                // Published if the unit changes the key. Otherwise the sweep removes it.
                self.notify(event::EXPIRED, "expired", database, key);
            }
            let mut is_live = !is_expired;
            if is_live && loaded.first_field_expiry().is_some_and(|first| self.is_past(first)) {
                let limits = (self.now, self.expired_fields_max);
                expired_fields =
                    remove_expired_fields(&mut loaded, &mut pending, Some(&tables), limits)?;
                is_live = !loaded.is_empty();
                self.note_expired_fields(database, key, !is_live);
            }
            head = is_live.then_some(loaded);
        }
        let index = self.slots.len();
        self.slots.push(Slot {
            database,
            key: key.to_vec(),
            stored,
            head,
            is_changed: false,
            is_announced: false,
            pending,
            expired_fields,
        });
        self.index.insert_unique(hash, (hash, index), |(hash, _)| *hash);
        Ok(index)
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        let [slots, scratch] = [self.slots.capacity(), self.scratch.capacity()];
        if slots > 0 || scratch > 0 {
            let slots = std::mem::take(&mut self.slots);
            let index = std::mem::take(&mut self.index);
            SlotBuffers { slots, index, scratch: std::mem::take(&mut self.scratch) }.put_back();
        }
    }
}

fn damaged(key: &[u8]) -> Fail {
    Fail::with(format!(
        "ERR the head of the key {:?} is damaged; run `quintet check` on the directory",
        String::from_utf8_lossy(key)
    ))
}
