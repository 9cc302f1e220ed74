//! A key as a unit sees it, and how its changes become operations of a batch.

use quintet::Batch;

use super::{
    database_id::DatabaseId,
    database_tables::{DEAD_VERSIONS, EXPIRIES, FIELD_EXPIRIES, Tables},
    elements::Pending,
    head::Head,
};

/// The parts of a stored head that lists of the ordered table depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    expiry: Option<u64>,
    /// The earliest expiry of a field.
    first_field_expiry: Option<u64>,
    /// Versions of elements in the ordered table.
    versions: [Option<u64>; 2],
}

impl Stored {
    /// The listed parts of a head.
    pub(super) fn of(head: &Head) -> Self {
        Self {
            expiry: head.expiry,
            first_field_expiry: head.first_field_expiry(),
            versions: head.spilled_versions(),
        }
    }

    /// Whether some list has the key.
    fn is_listed(&self) -> bool {
        self.expiry.is_some()
            || self.first_field_expiry.is_some()
            || self.versions.iter().any(Option::is_some)
    }
}

/// A key as a unit sees it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) database: DatabaseId,
    pub(super) key: Vec<u8>,
    pub(super) stored: Option<Stored>,
    pub(super) head: Option<Head>,
    /// Whether it has changes under its present name.
    pub(super) is_changed: bool,
    /// Whether it has changes that were noted under an earlier name (`unit/flush.rs`).
    pub(super) is_announced: bool,
    /// Changed elements in the ordered table.
    pub(super) pending: Pending,
    /// Fields that had expired when the head was loaded, and are no longer in it.
    pub(super) expired_fields: usize,
}

impl Slot {
    /// Whether the commit writes it.
    pub(super) fn is_written(&self) -> bool {
        self.is_changed || self.is_announced
    }

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
        // Most keys are strings that do not expire: no list has them.
        let was_listed = self.stored.as_ref().is_some_and(Stored::is_listed);
        let is_listed = self.head.as_ref().is_some_and(Head::is_listed);
        if was_listed || is_listed {
            self.write_lists(tables, kept, batch);
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
        if is_listed {
            self.write_changed_elements(head, tables, batch, encoded);
        }
    }

    /// Adds the changes of the lists to a batch.
    fn write_lists(&self, tables: &Tables, kept: &[u64], batch: &mut Batch) {
        let old = self.stored.unwrap_or_default();
        let new = self.head.as_ref().map(Stored::of).unwrap_or_default();
        let mut relist = |old: Option<u64>, new: Option<u64>, entry: fn(u64, &[u8]) -> Vec<u8>| {
            if old != new {
                if let Some(old) = old {
                    batch.delete(&tables.elements, entry(old, &self.key));
                }
                if let Some(new) = new {
                    batch.put(&tables.elements, entry(new, &self.key), []);
                }
            }
        };
        relist(old.expiry, new.expiry, expiry_entry);
        relist(old.first_field_expiry, new.first_field_expiry, field_expiry_entry);
        for version in old.versions.into_iter().flatten() {
            if !kept.contains(&version) {
                batch.put(&tables.elements, dead_entry(version), []);
            }
        }
    }

    /// Adds the changed elements in the ordered table to a batch.
    fn write_changed_elements(
        &self,
        head: &Head,
        tables: &Tables,
        batch: &mut Batch,
        encoded: &mut Vec<u8>,
    ) {
        let [version, expiries_version] = head.spilled_versions();
        if let Some(version) = version {
            write_elements(version, &self.pending, tables, batch, encoded);
        }
        if let (Some(version), Some(expiries)) = (expiries_version, &head.field_expiries) {
            write_elements(version, &expiries.pending, tables, batch, encoded);
        }
    }
}

/// Adds the changed elements of a version to a batch.
fn write_elements(
    version: u64,
    pending: &Pending,
    tables: &Tables,
    batch: &mut Batch,
    encoded: &mut Vec<u8>,
) {
    for (name, value) in pending {
        encoded.clear();
        encoded.extend_from_slice(&version.to_be_bytes());
        encoded.extend_from_slice(name);
        match value {
            Some(value) => batch.put(&tables.elements, &encoded, value),
            None => batch.delete(&tables.elements, &encoded),
        };
    }
}

/// The entry of the ordered table that lists a key by its expiry.
pub(crate) fn expiry_entry(expiry: u64, key: &[u8]) -> Vec<u8> {
    [EXPIRIES.as_slice(), &expiry.to_be_bytes(), key].concat()
}

/// The entry of the ordered table that lists a hash by the earliest expiry of a field.
pub(crate) fn field_expiry_entry(expiry: u64, key: &[u8]) -> Vec<u8> {
    [FIELD_EXPIRIES.as_slice(), &expiry.to_be_bytes(), key].concat()
}

/// The entry of the ordered table that lists a dead version.
fn dead_entry(version: u64) -> Vec<u8> {
    [DEAD_VERSIONS.as_slice(), &version.to_be_bytes()].concat()
}
