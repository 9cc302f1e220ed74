//! Removal of all keys of a database, and the exchange of two databases, with the commit of a unit.
//!
//! A flushed database gets empty tables in place of its old ones, and two databases that are
//! exchanged get those of each other. Which tables a database has is stored by the batch that has
//! the other changes of the unit. So a flush or an exchange takes effect with them or not at all,
//! also after a crash. Tables that no database has any more are cleared behind the commit.
//!
//! Within the unit, commands see the effect at once: the slots of exchanged databases change their
//! database. Clients that watch a key learn of changes under the name that it had at each moment.
//! `announced` has the names that were changed before an exchange or a flush.

use super::{
    super::{database_id::DatabaseId, events::KeyName, tables::Replacement},
    Unit,
};
use crate::failure::{Done, Fail};

impl Unit<'_> {
    /// Removes all keys of a database with the commit. The commands of the unit see none of them
    /// from now on. The unit must hold all stripes.
    ///
    /// Cost: independent of the number of keys. Two tables are created or opened, and the commit
    /// clears two. It looks up each watched key of the database. Fails with the failure of the
    /// store; the unit is unchanged then.
    pub(crate) fn flush(&mut self, database: DatabaseId) -> Done {
        let watched = self.watched_in([database, database])?;
        if let Some(new) = self.store.databases.replacement(database, &self.replacements)? {
            self.put_replacements([new]);
        }
        self.note_replaced(&[database], watched);
        // Also the keys that earlier commands of the unit have made.
        self.announce_slots(|own| own == database);
        self.forget(database);
        Ok(())
    }

    /// Exchanges the keys of two databases of a namespace with the commit. The commands of the unit
    /// see them exchanged from now on. The unit must hold all stripes.
    ///
    /// Cost: independent of the number of keys. It looks up each watched key in both.
    /// Fails with the failure of the store; the unit is unchanged then.
    pub(crate) fn swap(&mut self, one: DatabaseId, other: DatabaseId) -> Done {
        if one == other {
            return Ok(());
        }
        let watched = self.watched_in([one, other])?;
        if let Some(new) = self.store.databases.exchange(one, other, &self.replacements)? {
            self.put_replacements(new);
        }
        self.note_replaced(&[one, other], watched);
        self.announce_slots(|own| own == one || own == other);
        let exchange = |database: &mut DatabaseId| {
            if *database == one {
                *database = other;
            } else if *database == other {
                *database = one;
            }
        };
        self.slots.iter_mut().for_each(|slot| exchange(&mut slot.database));
        self.events.iter_mut().filter_map(|own| own.expired_in.as_mut()).for_each(exchange);
        self.index_slots();
        self.forget_tables();
        Ok(())
    }

    /// Notes a flush or an exchange, with the watched keys that it concerns. Clients that cache
    /// must forget all keys of the namespace, also after an exchange. Redis sends nothing then.
    fn note_replaced(&mut self, databases: &[DatabaseId], watched: Vec<KeyName>) {
        self.broken_watches.extend(watched);
        for database in databases {
            if !self.replaced.contains(database) {
                self.replaced.push(*database);
            }
        }
    }

    fn put_replacements(&mut self, new: impl IntoIterator<Item = Replacement>) {
        for new in new {
            self.replacements.retain(|own| own.database != new.database);
            self.replacements.push(new);
        }
        self.has_changes = true;
    }

    /// The watched names of two databases whose key is in one of them.
    fn watched_in(&mut self, databases: [DatabaseId; 2]) -> Done<Vec<KeyName>> {
        let mut found = self.store.changes.watched_names(&databases);
        let mut failure = None;
        found.retain(|(_, key)| {
            let is_present = databases.iter().try_fold(false, |is_present, database| {
                Ok(is_present || self.has_key(*database, key)?)
            });
            is_present.unwrap_or_else(|fail| {
                failure = Some(fail);
                false
            })
        });
        failure.map_or(Ok(found), Err)
    }

    /// Whether a key exists. Copies nothing into a slot.
    fn has_key(&mut self, database: DatabaseId, key: &[u8]) -> Done<bool> {
        match self.with_string(database, key, |value| value.is_some()) {
            // It has another type, or its head is damaged.
            Err(Fail::Message(_)) => Ok(true),
            found => found,
        }
    }

    /// Notes the names of the changed keys of some databases. A later change of such a key has the
    /// name of that moment.
    fn announce_slots(&mut self, is_concerned: impl Fn(DatabaseId) -> bool) {
        for slot in self.slots.iter_mut().filter(|slot| is_concerned(slot.database)) {
            if std::mem::take(&mut slot.is_changed) {
                slot.is_announced = true;
                self.announced.push((slot.database, slot.key.clone()));
            }
        }
    }

    /// Forgets what the unit knows of a database, before all its keys are removed.
    pub(crate) fn forget(&mut self, database: DatabaseId) {
        self.slots.retain(|slot| slot.database != database);
        self.touched.clear();
        self.index_slots();
        self.forget_tables();
    }

    /// Finds the slots by their names again, after these or their positions have changed.
    fn index_slots(&mut self) {
        self.index.clear();
        for (index, slot) in self.slots.iter().enumerate() {
            let hash = self.store.stripes.hash(slot.database, &slot.key);
            self.index.insert_unique(hash, (hash, index), |(hash, _)| *hash);
        }
    }

    /// Forgets all tables but those that this unit gives to databases.
    pub(super) fn forget_tables(&mut self) {
        self.tables = [const { None }; 16];
        let namespace = self.namespace;
        let of_namespace = |own: &&Replacement| own.database.namespace() == namespace;
        for own in self.replacements.iter().filter(of_namespace) {
            if let Some(cached) = self.tables.get_mut(usize::from(own.database.index())) {
                *cached = Some(own.tables.clone());
            }
        }
    }

    /// Puts the flushes and exchanges into effect for all units, after the commit.
    pub(super) fn end_replacements(&mut self) {
        if !self.replacements.is_empty() {
            let new = std::mem::take(&mut self.replacements);
            self.store.databases.adopt(&new);
            self.forget_tables();
        }
    }

    /// Forgets the flushes and exchanges. New tables are still empty.
    pub(super) fn discard_replacements(&mut self) {
        self.announced.clear();
        self.broken_watches.clear();
        self.replaced.clear();
        if !self.replacements.is_empty() {
            self.replacements.clear();
            self.forget_tables();
        }
    }
}
