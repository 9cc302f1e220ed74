//! What the background removes: keys and fields of hashes that have expired.

use super::{
    super::{database_id::DatabaseId, head::Head},
    Unit,
};
use crate::failure::Done;

impl Unit<'_> {
    /// Removes a key that has expired from the table. Returns whether it had expired.
    pub(crate) fn remove_expired(&mut self, database: DatabaseId, key: &[u8]) -> Done<bool> {
        let index = self.slot(database, key)?;
        let Some(slot) = self.slots.get_mut(index) else { return Ok(false) };
        let is_expired = slot.head.is_none() && slot.stored.is_some();
        slot.is_changed |= is_expired;
        self.has_changes |= is_expired;
        Ok(is_expired)
    }

    /// Removes at most `limit` expired fields of a hash from the table. Returns their number. The
    /// unit must not have loaded the key.
    pub(crate) fn remove_expired_fields(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        limit: usize,
    ) -> Done<usize> {
        self.expired_fields_max = limit;
        let index = self.slot(database, key)?;
        let expired = self.slots.get(index).map_or(0, |slot| slot.expired_fields);
        if expired > 0 {
            self.touch(index);
        }
        Ok(expired)
    }

    /// Whether the earliest field of a hash expires at `time`.
    pub(crate) fn is_listed_by_field(
        &mut self,
        database: DatabaseId,
        key: &[u8],
        time: u64,
    ) -> Done<bool> {
        let head = self.head(database, key)?;
        Ok(head.and_then(Head::first_field_expiry) == Some(time))
    }
}
