//! Renaming a key with its elements in constant time (`RENAME`): only the head moves.

use super::Unit;
use crate::{
    failure::Done,
    store::{database_id::DatabaseId, elements::Pending, head::Head, notifications::event},
};

/// A key on its way to another place.
#[derive(Debug)]
pub(crate) struct TakenKey {
    /// Its head.
    pub(crate) head: Head,
    pending: Pending,
}

impl Unit<'_> {
    /// Takes a key with its elements out of its place, to give it to [`Unit::put_taken`]. Only
    /// within a database.
    pub(crate) fn take(&mut self, database: DatabaseId, key: &[u8]) -> Done<Option<TakenKey>> {
        let index = self.slot(database, key)?;
        let Some(slot) = self.slots.get_mut(index) else { return Ok(None) };
        let Some(head) = slot.head.take() else { return Ok(None) };
        let pending = std::mem::take(&mut slot.pending);
        self.touch(index);
        Ok(Some(TakenKey { head, pending }))
    }

    /// Puts a key that was taken into another place.
    pub(crate) fn put_taken(&mut self, database: DatabaseId, key: &[u8], taken: TakenKey) -> Done {
        let was_present = self.exists(database, key)?;
        self.replace(database, key, Some(taken.head))?;
        if was_present {
            // Redis removes the old key and adds a new one.
            self.notify(event::NEW, "new", database, key);
        }
        let index = self.slot(database, key)?;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.pending = taken.pending;
        }
        Ok(())
    }
}
