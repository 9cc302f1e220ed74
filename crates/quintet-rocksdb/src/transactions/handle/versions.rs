//! Transactions in column families with timestamps.
//!
//! How: puts and deletes have no timestamp until the commit, which gives all of them the commit
//! timestamp. Until then they are in the batch of the transaction only, and reads look there first.
//! A lock is one of the start of a key's stored forms: no entry has that key, and all versions
//! begin with it. So the lock is of all versions.
//!
//! Validation: a key that is written or read for update must have no version that is newer than the
//! read timestamp. If the transaction began with a snapshot, the newest version must be that of the
//! snapshot. Both are checked under the lock.
//!
//! An optimistic transaction has no locks, and fails in such a family.

use std::sync::Arc;

use quintet::{KEY_BYTES_MAX, KeyRange};
use quintet_compat::{
    iterator::Source,
    keys,
    operations::{Action, Record},
    status::{Code, Status},
    timestamps::{self, TIMESTAMP_BYTES},
};

use super::{Locking, TransactionObject};
use crate::{
    core::{Family, ReadValue},
    indexed::overlay::Overlay,
    iterator::IteratorObject,
    options::reads::ReadOptions,
};

/// Returns read options with another timestamp.
fn at(options: Option<&ReadOptions>, timestamp: [u8; TIMESTAMP_BYTES]) -> ReadOptions {
    let timestamp = Some(timestamp.to_vec());
    ReadOptions { timestamp, ..options.cloned().unwrap_or_default() }
}

impl TransactionObject {
    /// Returns the value of a key: what the transaction has written, or what the database has at
    /// the timestamp of the options.
    pub(super) fn get_version(
        &self,
        family: &Family,
        options: Option<&ReadOptions>,
        key: &[u8],
    ) -> Result<Option<ReadValue>, Status> {
        if options.is_none_or(|options| options.timestamp.is_none()) {
            return Err(Status::invalid("Must specify timestamp"));
        }
        let stored = keys::stored(key);
        match self.batch().lock().family(family.id)?.find(&stored) {
            Some(own) => Ok(own.value(None, &stored, None)?.map(ReadValue::from)),
            None => family.get(options, key),
        }
    }

    /// Returns the value of a key at the read timestamp, after locking the key.
    pub(super) fn get_version_for_update(
        &self,
        family: &Family,
        options: Option<&ReadOptions>,
        key: &[u8],
    ) -> Result<Option<ReadValue>, Status> {
        let given = options.and_then(|options| options.timestamp.as_ref());
        let order = family.history()?.order;
        let given = given.map(|bytes| order.number(bytes)).transpose()?;
        let none = || Status::invalid("read_timestamp must be set for validation");
        let read = self.timestamps(|timestamps| timestamps.read).ok_or_else(none)?;
        if given.is_some_and(|given| given != read) {
            return Err(Status::invalid("Must read from the same read_timestamp"));
        }
        self.lock_version(family, key)?;
        self.get_version(family, Some(&at(options, order.bytes(read))), key)
    }

    /// Adds a put or a delete, after locking the key.
    pub(super) fn write_version(&self, family: &Family, record: &Record<'_>) -> Result<(), Status> {
        match record.action {
            Action::Put | Action::Delete | Action::SingleDelete => {}
            Action::LogData => return Ok(()),
            Action::Merge | Action::DeleteRange => {
                let message = "Cannot call this method on column family enabling timestamp";
                return Err(Status::invalid(message));
            }
        }
        // The commit adds the timestamp, and must not fail then.
        let bytes = timestamps::stored(record.key, 0).len();
        if bytes > KEY_BYTES_MAX {
            let message = format!("the stored key has {bytes} bytes, and the most is");
            return Err(Status::invalid(format!("{message} {KEY_BYTES_MAX}")));
        }
        self.lock_version(family, record.key)?;
        self.batch().lock().edit(|batch| batch.add_without_timestamp(*record));
        Ok(())
    }

    /// Locks the versions of a key, and validates them.
    fn lock_version(&self, family: &Family, key: &[u8]) -> Result<(), Status> {
        if self.locking() == Locking::Optimistic {
            family.check_plain()?;
        }
        self.lock_key(family, &timestamps::start(key))?;
        let read = self.timestamps(|timestamps| timestamps.read);
        let snapshot = self.snapshot().get();
        if read.is_none() && snapshot.is_none() {
            return Ok(());
        }
        let range =
            KeyRange { start: Some(timestamps::start(key)), end: Some(timestamps::end(key)) };
        let newest = family.table.range(range.clone())?.next().transpose()?;
        let timestamp =
            newest.as_ref().map(|(stored, _)| timestamps::version(stored)).transpose()?;
        let is_newer = timestamp.zip(read).is_some_and(|(found, read)| found.timestamp > read);
        let is_changed = match snapshot {
            Some(snapshot) => {
                let before = snapshot.range(&family.table, range)?.next().transpose()?;
                let bytes = |entry: Option<(quintet::Key, quintet::Value)>| {
                    entry.map(|(stored, value)| (stored, value.to_vec()))
                };
                bytes(before) != bytes(newest)
            }
            None => false,
        };
        if is_newer || is_changed {
            return Err(Status::new(Code::Busy, "another commit has written a newer version"));
        }
        Ok(())
    }

    /// Makes an iterator over the versions at the timestamp of the options, and what the
    /// transaction has written. That has the timestamp of the options.
    pub fn version_iterator(
        &self,
        options: Option<&ReadOptions>,
        family: &Arc<Family>,
    ) -> Result<IteratorObject, Status> {
        self.shared.lock().get()?;
        let range = family.versions(options)?;
        if range.oldest.is_some() {
            let message = "an iterator of a transaction shows one version of a key";
            return Err(Status::unsupported(message));
        }
        let own = Arc::new(self.batch().lock().family(family.id)?.versions_at(range.newest));
        let below = IteratorObject::new(&self.core, options, family)?;
        Ok(below.map_source(|below: Source| Overlay::source(below, own, None)))
    }
}
