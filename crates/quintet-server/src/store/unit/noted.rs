//! What a unit notes beside its changes: events of keys, and the position of a replica.

use super::{
    super::{
        database_id::DatabaseId,
        notifications::{KeyEvent, event},
        position::Position,
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
            let (key, is_expiry) = (key.to_vec(), class == event::EXPIRED);
            self.events.push(KeyEvent { class, name, database, key, is_expiry });
        }
    }

    /// Notes that fields of a hash had expired when it was loaded, and the key with the last one.
    pub(super) fn note_expired_fields(&mut self, database: DatabaseId, key: &[u8], is_last: bool) {
        let events = [(event::HASH, "hexpired", true), (event::GENERIC, "del", is_last)];
        for (class, name, is_due) in events {
            if is_due && self.store.changes.notifications.wants(class) {
                let (key, is_expiry) = (key.to_vec(), true);
                self.events.push(KeyEvent { class, name, database, key, is_expiry });
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
            own.class != event::NEW && !own.is_expiry && own.database == database && own.key == key
        });
        self.cancel_new(database, key);
        if is_told {
            self.notify(event::GENERIC, "del", database, key);
        }
    }

    /// Publishes the events of what was committed. The caller holds the stripes.
    pub(super) fn send_events(&mut self) {
        for noted in std::mem::take(&mut self.events) {
            let KeyEvent { class, name, database, key, is_expiry } = noted;
            let is_unchanged = || {
                let slot = self.find(database, &key).and_then(|index| self.slots.get(index));
                !slot.is_some_and(|slot| slot.is_changed)
            };
            if is_expiry && is_unchanged() {
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
    pub(crate) fn next_position(&self, database: DatabaseId) -> Option<Vec<u8>> {
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
