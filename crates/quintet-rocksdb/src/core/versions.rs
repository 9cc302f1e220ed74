//! Column families whose keys have timestamps: the versions of a key, and the history that is kept.
//!
//! How: [`quintet_compat::timestamps`] has the stored form of a version. A read names the newest
//! timestamp that it wants to see. A compaction removes versions that no read may ask for: those
//! that a newer version below the low timestamp replaces.
//!
//! Invariant: a function without a timestamp fails in such a family, and a function with one fails
//! in any other, so no entry has the wrong form.

use quintet::{KeyRange, PutOptions};
use quintet_compat::{
    iterator::EntryValue,
    status::Status,
    timestamps::{self, TIMESTAMP_BYTES, stored_value},
    versions::VersionRange,
};

use super::{Core, Family, NewFamily, ReadValue, history::History};
use crate::options::{reads::ReadOptions, writes::WriteOptions};

/// Returns a timestamp as messages of RocksDB have it.
fn hex(timestamp: [u8; TIMESTAMP_BYTES]) -> String {
    format!("{:016X}", u64::from_be_bytes(timestamp))
}

impl NewFamily<'_> {
    /// Fails if the options do not allow timestamps and the comparator has them.
    pub fn check(&self) -> Result<(), Status> {
        let options = self.options;
        if !options.comparator().is_some_and(|comparator| comparator.has_timestamps()) {
            return Ok(());
        }
        let other = if self.ttl.is_some() {
            "a TTL"
        } else if options.filter().is_some() {
            "a compaction filter"
        } else {
            return Ok(());
        };
        let name = &self.name;
        let message = format!("column family {name} cannot have both timestamps and {other}");
        Err(Status::unsupported(message))
    }
}

impl Family {
    /// Fails if keys have timestamps.
    pub fn check_plain(&self) -> Result<(), Status> {
        if self.history.is_none() {
            return Ok(());
        }
        let name = &self.name;
        Err(Status::invalid(format!(
            "cannot call this method on column family {name} that enables timestamp"
        )))
    }

    /// Returns the history. Fails if keys have no timestamps.
    pub fn history(&self) -> Result<&History, Status> {
        self.history.as_ref().ok_or_else(|| {
            let name = &self.name;
            Status::invalid(format!(
                "cannot call this method on column family {name} that does not enable timestamp"
            ))
        })
    }

    /// Fails if keys have timestamps, or the options name one.
    pub fn check_reads_plain(&self, options: Option<&ReadOptions>) -> Result<(), Status> {
        if options.is_some_and(|options| options.timestamp.is_some()) {
            self.history()?;
        }
        self.check_plain()
    }

    /// Returns the versions that a read shows.
    pub fn versions(&self, options: Option<&ReadOptions>) -> Result<VersionRange, Status> {
        let history = self.history()?;
        let (low, order) = (history.low(), history.order);
        let Some(newest) = options.and_then(|options| options.timestamp.as_ref()) else {
            self.check_plain()?;
            return Err(Status::invalid("the read options have no timestamp"));
        };
        let newest = order.number(newest)?;
        if newest < low {
            return Err(Status::invalid(format!(
                "Read timestamp: {} is smaller than full_history_ts_low: {}",
                hex(order.bytes(newest)),
                hex(order.bytes(low))
            )));
        }
        let oldest = options.and_then(|options| options.oldest.as_ref());
        let oldest = oldest.map(|bytes| order.number(bytes)).transpose()?;
        Ok(VersionRange { newest, oldest, order })
    }

    /// Returns the value of a key at the timestamp of the options, and the value's own timestamp.
    pub fn get_version(
        &self,
        options: Option<&ReadOptions>,
        key: &[u8],
    ) -> Result<Option<(ReadValue, [u8; TIMESTAMP_BYTES])>, Status> {
        let VersionRange { newest, order, .. } = self.versions(options)?;
        let start = Some(timestamps::stored(key, newest));
        let range = KeyRange { start, end: Some(timestamps::end(key)) };
        let found = self.first_in(options, range)?;
        // A compaction beside this read may have removed what it asked for.
        self.versions(options)?;
        let Some((stored, value)) = found else { return Ok(None) };
        let Some(bytes) = timestamps::value(&value)?.map(<[u8]>::len) else { return Ok(None) };
        let timestamp = order.bytes(timestamps::version(&stored)?.timestamp);
        Ok(Some((ReadValue { stored: EntryValue::Stored(value), bytes }, timestamp)))
    }

    /// Stores a version of a key. `None`: a delete.
    pub fn put_version(
        &self,
        options: &WriteOptions,
        (key, timestamp): (&[u8], &[u8]),
        value: Option<&[u8]>,
    ) -> Result<(), Status> {
        let order = self.history()?.order;
        self.check_writable()?;
        let stored = timestamps::stored(key, order.number(timestamp)?);
        let options = PutOptions::new().durability(options.durability());
        self.table.put_with(stored, stored_value(value), options)?;
        Ok(())
    }

    /// Removes the versions in a range of stored forms that no read may ask for.
    pub fn trim(&self, range: KeyRange) -> Result<(), Status> {
        let low = self.history()?.low();
        if low == 0 {
            return Ok(());
        }
        // The key of the last entry, and the versions of it to remove.
        let (mut key, mut removed) = (Vec::new(), Vec::new());
        let mut is_replaced = false;
        for entry in self.table.range(range)? {
            let (stored, value) = entry?;
            let version = timestamps::version(&stored)?;
            if version.key != key {
                self.remove(&mut removed)?;
                key.clone_from(&version.key);
                is_replaced = false;
            }
            if version.timestamp >= low {
                continue;
            }
            // A delete below the low timestamp hides nothing once the older versions are gone.
            if is_replaced || timestamps::value(&value)?.is_none() {
                removed.push(stored);
            }
            is_replaced = true;
        }
        self.remove(&mut removed)
    }

    /// Removes the versions that are newer than a timestamp, and compacts the table.
    pub fn trim_newer(&self, newest: &[u8]) -> Result<(), Status> {
        let newest = self.history()?.order.number(newest)?;
        for entry in self.table.range(..)? {
            let (stored, _) = entry?;
            if timestamps::version(&stored)?.timestamp > newest {
                self.table.delete(stored)?;
            }
        }
        Ok(self.table.compact()?)
    }

    /// Removes versions of a key, the oldest first: at no time does an older one show.
    fn remove(&self, versions: &mut Vec<Vec<u8>>) -> Result<(), Status> {
        for stored in versions.drain(..).rev() {
            self.table.delete(stored)?;
        }
        Ok(())
    }
}

impl Core {
    /// Raises the low timestamp of a family.
    pub fn raise_history_low(&self, family: &Family, low: &[u8]) -> Result<(), Status> {
        let history = family.history()?;
        family.check_writable()?;
        let mismatch = |_| Status::invalid("ts_low size mismatch");
        let low = history.order.number(low).map_err(mismatch)?;
        history.raise(low, || {
            // Another family may have the name of one that was dropped.
            let families = self.families();
            let newest = families.iter().rev().find(|other| other.name == family.name);
            let is_there = newest.is_some_and(|newest| newest.id == family.id);
            if !is_there || self.store.find(&family.name)?.is_none() {
                return Err(Status::invalid("the column family was dropped"));
            }
            self.store.set_history_low(&family.name, low)
        })
    }
}
