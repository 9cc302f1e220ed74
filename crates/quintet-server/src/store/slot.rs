//! A key as a unit sees it, and how its changes become operations of a batch.

use std::collections::BTreeMap;

use quintet::Batch;

use super::{
    head::Head,
    tables::{DEAD_VERSIONS, EXPIRIES, Tables},
};

/// Elements that a unit has changed: the new value, or `None` if it has removed the element.
pub(super) type Pending = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A key as a unit sees it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) database: u8,
    pub(super) key: Vec<u8>,
    /// What the table has: expiry and version of elements.
    pub(super) stored: Option<(Option<u64>, Option<u64>)>,
    pub(super) head: Option<Head>,
    pub(super) is_changed: bool,
    /// Changed elements in the ordered table.
    pub(super) pending: Pending,
}

impl Slot {
    /// How many keys the slot adds to its database: -1, 0 or 1.
    pub(super) fn added(&self) -> i64 {
        i64::from(self.head.is_some()) - i64::from(self.stored.is_some())
    }

    /// Adds the changes of this key to a batch.
    pub(super) fn write(
        &self,
        tables: &Tables,
        kept: &[u64],
        batch: &mut Batch,
        encoded: &mut Vec<u8>,
    ) {
        let (old_expiry, old_version) = self.stored.unwrap_or((None, None));
        let expiry = self.head.as_ref().and_then(|head| head.expiry);
        if old_expiry != expiry {
            if let Some(old) = old_expiry {
                batch.delete(&tables.elements, expiry_entry(old, &self.key));
            }
            if let Some(new) = expiry {
                batch.put(&tables.elements, expiry_entry(new, &self.key), []);
            }
        }
        if let Some(version) = old_version.filter(|version| !kept.contains(version)) {
            batch.put(&tables.elements, dead_entry(version), []);
        }
        let Some(head) = &self.head else {
            if self.stored.is_some() {
                batch.delete(&tables.keys, &self.key);
            }
            return;
        };
        encoded.clear();
        head.encode(encoded);
        batch.put(&tables.keys, &self.key, &encoded);
        let Some(version) = head.spilled_version() else { return };
        for (name, value) in &self.pending {
            encoded.clear();
            encoded.extend_from_slice(&version.to_be_bytes());
            encoded.extend_from_slice(name);
            match value {
                Some(value) => batch.put(&tables.elements, &encoded, value),
                None => batch.delete(&tables.elements, &encoded),
            };
        }
    }
}

/// The entry of the ordered table that lists a key by its expiry.
pub(crate) fn expiry_entry(expiry: u64, key: &[u8]) -> Vec<u8> {
    [EXPIRIES.as_slice(), &expiry.to_be_bytes(), key].concat()
}

/// The entry of the ordered table that lists a dead version.
fn dead_entry(version: u64) -> Vec<u8> {
    [DEAD_VERSIONS.as_slice(), &version.to_be_bytes()].concat()
}
