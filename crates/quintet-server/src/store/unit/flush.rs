//! Removal of all keys of a database with the commit of a unit.
//!
//! The database gets empty tables in place of its old tables. Which tables a database has is stored
//! by the batch that has the other changes of the unit. So a flush takes effect with them or not at
//! all, also after a crash. The old tables are cleared behind the commit.

use super::{
    super::{database_id::DatabaseId, tables::Replacement},
    Unit,
};
use crate::failure::Done;

impl Unit<'_> {
    /// Removes all keys of a database with the commit. The commands of the unit see none of them
    /// from now on. The unit must hold all stripes.
    ///
    /// Cost: independent of the number of keys. Two tables are created or opened, and the commit
    /// clears two. Fails with the failure of the store; the unit is unchanged then.
    pub(crate) fn flush(&mut self, database: DatabaseId) -> Done {
        if !self.replacements.iter().any(|own| own.database == database) {
            let new = self.store.databases.replacement(database, &self.replacements)?;
            self.has_changes |= new.is_some();
            self.replacements.extend(new);
        }
        // Also the keys that earlier commands of the unit have made.
        self.forget(database);
        Ok(())
    }

    /// Forgets what the unit knows of a database, before all its keys are removed.
    pub(crate) fn forget(&mut self, database: DatabaseId) {
        self.slots.retain(|slot| slot.database != database);
        self.touched.clear();
        self.index.clear();
        for (index, slot) in self.slots.iter().enumerate() {
            let hash = self.store.stripes.hash(slot.database, &slot.key);
            self.index.insert_unique(hash, (hash, index), |(hash, _)| *hash);
        }
        self.forget_tables();
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

    /// Puts the flushes into effect for all units, after the commit.
    pub(super) fn end_flushes(&mut self) {
        if self.replacements.is_empty() {
            return;
        }
        let new = std::mem::take(&mut self.replacements);
        let flushed: Vec<DatabaseId> =
            new.iter().map(|Replacement { database, .. }| *database).collect();
        self.store.databases.adopt(new);
        for database in flushed {
            self.store.changes.changed_all(database);
        }
    }

    /// Forgets the flushes. Their tables are still empty.
    pub(super) fn discard_flushes(&mut self) {
        if !self.replacements.is_empty() {
            self.replacements.clear();
            self.forget_tables();
        }
    }
}
