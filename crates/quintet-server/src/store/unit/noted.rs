//! What a unit notes beside its changes: events of keys, and the position of a replica.

use std::sync::atomic::Ordering;

use super::{
    super::{
        database_id::DatabaseId,
        invalidations::ChangedKeys,
        notifications::{KeyEvent, event},
        position::Position,
        slot::Slot,
    },
    Unit,
};

impl Unit<'_> {
    /// Notes an event of a key, if clients receive its class.
    pub(crate) fn notify(
        &mut self,
        class: u32,
        name: &'static str,
        database: DatabaseId,
        key: &[u8],
    ) {
        if self.store.changes.notifications.wants(class) {
            let expired_in = (class == event::EXPIRED).then_some(database);
            self.events.push(KeyEvent { class, name, database, key: key.to_vec(), expired_in });
        }
    }

    /// Notes that fields of a hash had expired when it was loaded, and the key with the last one.
    pub(super) fn note_expired_fields(&mut self, database: DatabaseId, key: &[u8], is_last: bool) {
        let events = [(event::HASH, "hexpired", true), (event::GENERIC, "del", is_last)];
        for (class, name, is_due) in events {
            if is_due && self.store.changes.notifications.wants(class) {
                let (key, expired_in) = (key.to_vec(), Some(database));
                self.events.push(KeyEvent { class, name, database, key, expired_in });
            }
        }
    }

    /// Takes back the event of a new key: the running command has replaced an old one.
    pub(crate) fn cancel_new(&mut self, database: DatabaseId, key: &[u8]) {
        let start = self.command_events;
        let own = self.events.get(start..).unwrap_or(&[]);
        let is_new =
            |own: &KeyEvent| own.class == event::NEW && own.database == database && own.key == key;
        if let Some(at) = own.iter().rposition(is_new) {
            self.events.remove(start + at);
        }
    }

    /// Notes that a collection has lost its last element. One that the same command has made, was
    /// never there.
    pub(super) fn note_emptied(&mut self, database: DatabaseId, key: &[u8]) {
        let own = self.events.get(self.command_events..).unwrap_or(&[]);
        let is_told = own.iter().any(|own| {
            own.class != event::NEW
                && own.expired_in.is_none()
                && own.database == database
                && own.key == key
        });
        self.cancel_new(database, key);
        if is_told {
            self.notify(event::GENERIC, "del", database, key);
        }
    }

    /// Tells the clients that watch the changed keys, or wait for them, and counts the keys. The
    /// caller holds the stripes.
    pub(super) fn publish(&mut self) {
        self.invalidate();
        let broken = std::mem::take(&mut self.broken_watches);
        for (database, key) in std::mem::take(&mut self.announced).into_iter().chain(broken) {
            self.store.changes.changed(database, &key);
        }
        let slots = std::mem::take(&mut self.slots);
        for slot in slots.iter().filter(|slot| slot.is_written()) {
            if slot.is_changed {
                self.store.changes.changed(slot.database, &slot.key);
            }
            let added = slot.added();
            if added != 0
                && let Some(tables) = self.cached(slot.database)
            {
                tables.count.fetch_add(added, Ordering::AcqRel);
            }
        }
        self.slots = slots;
        for database in std::mem::take(&mut self.replaced) {
            self.store.changes.wake_all(database);
        }
    }

    /// Tells the clients that cache what was committed. One load if there are none. The caller
    /// holds the stripes.
    pub(super) fn invalidate(&self) {
        let invalidations = &self.store.changes.invalidations;
        if !invalidations.is_wanted() {
            return;
        }
        let announced = self.announced.iter().map(|(database, key)| (database, key));
        let slots = self.slots.iter().filter(|slot| slot.is_changed);
        let changed = announced.chain(slots.map(|slot| (&slot.database, &slot.key)));
        let keys: Vec<(u32, &[u8])> =
            changed.map(|(database, key)| (database.namespace(), key.as_slice())).collect();
        let mut flushed: Vec<u32> = self.replaced.iter().map(|own| own.namespace()).collect();
        flushed.dedup();
        if !flushed.is_empty() || !keys.is_empty() {
            let (client, flushed, keys) = (self.client, flushed.as_slice(), keys.as_slice());
            invalidations.report(&ChangedKeys { client, flushed, keys });
        }
    }

    /// Publishes the events of what was committed. The caller holds the stripes.
    pub(super) fn send_events(&mut self) {
        for noted in std::mem::take(&mut self.events) {
            let KeyEvent { class, name, database, key, expired_in } = noted;
            let is_unchanged = |place| {
                let slot = self.find(place, &key).and_then(|index| self.slots.get(index));
                !slot.is_some_and(Slot::is_written)
            };
            if expired_in.is_some_and(is_unchanged) {
                continue;
            }
            self.store.changes.notifications.send(class, name, database, &key);
        }
    }

    /// Notes the position behind the command that runs next.
    pub(crate) fn expect_position(&mut self, position: Position) {
        self.next_position = Some(position);
    }

    /// The position behind the running command, which leaves `database` selected.
    fn next_position(&self, database: DatabaseId) -> Option<Vec<u8>> {
        let next = self.next_position.clone()?;
        Some(Position { database: database.index(), ..next }.encode())
    }

    /// Makes the position behind the running command that of the unit.
    pub(crate) fn advance(&mut self, database: DatabaseId) {
        if let Some(position) = self.next_position(database) {
            self.position = Some(position);
            self.next_position = None;
        }
    }
}
