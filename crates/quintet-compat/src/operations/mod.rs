//! A write batch of the program, in the format that LevelDB and RocksDB share.
//!
//! Why: programs read and store the bytes of a batch, and iterate over it after it was written.
//!
//! # Layout
//!
//! | offset | size | name |
//! |---|---|---|
//! | 0 | 8 | sequence number, little-endian; zero in a batch that was not read from the log |
//! | 8 | 4 | number of records, little-endian; log data is not counted |
//! | 12 | | records |
//!
//! A record is a tag, the column family as a varint if the tag names one, the key, and the value if
//! the tag has one. Key and value are a varint with the size, and the bytes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use quintet::{
    Database, Durability, Isolation, PutOptions, Table, Transaction, TransactionOptions,
};

use crate::{
    keys,
    status::{Code, Status},
    timestamps::{self, TimestampOrder},
};

/// Size of the header in bytes.
const HEADER: usize = 12;
/// Size of the sequence number.
const SEQUENCE: usize = 8;
/// Offset of the number of records.
const COUNT: usize = 8;
/// Added to the tag of a record of a family other than the default one, except for range deletes.
const FAMILY: u8 = 4;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const MERGE: u8 = 2;
const LOG_DATA: u8 = 3;
const SINGLE_DELETE: u8 = 7;
const SINGLE_DELETE_OF_FAMILY: u8 = 8;
const DELETE_RANGE_OF_FAMILY: u8 = 14;
const DELETE_RANGE: u8 = 15;

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stores a value.
    Put,
    /// Removes a key.
    Delete,
    /// Removes a key that was written once.
    SingleDelete,
    /// Merges an operand.
    Merge,
    /// Removes the keys from the key to the value, which is not included.
    DeleteRange,
    /// Bytes of the program that are not applied.
    LogData,
}

/// A record of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'b> {
    /// What it does.
    pub action: Action,
    /// The column family.
    pub family: u32,
    /// The key.
    pub key: &'b [u8],
    /// The value, the operand, or the end of a range. Empty for a delete.
    pub value: &'b [u8],
}

/// The stored forms of a key and a value.
pub type StoredEntry = (Vec<u8>, Vec<u8>);

/// The table of a column family, for a commit.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// The table.
    pub table: &'t Table,
    /// The number of the family's merge operator. [`Target::operand`] puts it before an operand.
    pub operator: Option<u32>,
    /// How long values are kept. `None`: until they are deleted.
    pub ttl: Option<Duration>,
    /// The byte order of the timestamps that the keys of records end in. `None`: they have none.
    pub timestamps: Option<TimestampOrder>,
}

impl Target<'_> {
    /// Returns the operand that the table merges. Fails if the family has no merge operator.
    pub fn operand(&self, operand: &[u8]) -> Result<Vec<u8>, Status> {
        let none = || Status::unsupported("Provide a merge_operator when opening DB");
        Ok([&self.operator.ok_or_else(none)?.to_le_bytes(), operand].concat())
    }

    /// Returns the options of a put.
    pub fn put_options(&self) -> PutOptions {
        self.ttl.map_or_else(PutOptions::new, |ttl| PutOptions::new().ttl(ttl))
    }

    /// Returns the stored form of a record's version. `None`: the family has no timestamps, or the
    /// record is not applied.
    pub fn version(&self, record: &Record<'_>) -> Result<Option<StoredEntry>, Status> {
        let Some(order) = self.timestamps else { return Ok(None) };
        let value = match record.action {
            Action::Put => Some(record.value),
            Action::Delete | Action::SingleDelete => None,
            Action::Merge | Action::DeleteRange => return Err(timestamps::without_timestamp()),
            Action::LogData => return Ok(None),
        };
        let (key, timestamp) = order.split(record.key)?;
        Ok(Some((timestamps::stored(key, timestamp), timestamps::stored_value(value))))
    }

    /// Applies a record to a transaction.
    pub fn apply(&self, transaction: &mut Transaction, record: &Record<'_>) -> Result<(), Status> {
        let (table, key) = (self.table, keys::stored(record.key));
        if let Some((key, value)) = self.version(record)? {
            transaction.put(table, key, value)?;
            return Ok(());
        }
        match record.action {
            Action::Put => {
                transaction.put_with(table, key, record.value, self.put_options())?;
            }
            Action::Delete | Action::SingleDelete => transaction.delete(table, key)?,
            Action::Merge => {
                transaction.merge(table, &key, self.operand(record.value)?)?;
                // A merge keeps the expiry of the value that it replaces.
                if self.ttl.is_some()
                    && let Some(merged) = transaction.get(table, &key)?
                {
                    transaction.put_with(table, key, merged, self.put_options())?;
                }
            }
            Action::DeleteRange => {
                transaction.delete_range(table, &*key..&*keys::stored(record.value))?;
            }
            Action::LogData => {}
        }
        Ok(())
    }
}

/// Which records were added without a timestamp.
#[derive(Clone, Copy, Debug, Default)]
struct WithoutTimestamp {
    /// Some of the default family, which may have timestamps.
    default: bool,
    /// Some of families that have timestamps.
    versions: bool,
}

/// A write batch.
#[derive(Clone, Debug)]
pub struct Operations {
    bytes: Vec<u8>,
    /// The size, the number of records, and `without_timestamp` at each save point.
    save_points: Vec<(usize, u32, WithoutTimestamp)>,
    /// Why the batch cannot be written.
    refused: Option<Status>,
    without_timestamp: WithoutTimestamp,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            bytes: vec![0; HEADER],
            save_points: Vec::new(),
            refused: None,
            without_timestamp: WithoutTimestamp::default(),
        }
    }
}

impl Operations {
    /// Returns the batch that `bytes` encode. The write of a malformed one fails.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut batch = Self::default();
        if bytes.len() < HEADER {
            batch.refuse(malformed());
            return batch;
        }
        batch.bytes = bytes.to_vec();
        let mut count = 0_u32;
        for record in batch.records() {
            match record {
                Ok(record) if record.action == Action::LogData => {}
                Ok(_) => count = count.saturating_add(1),
                Err(status) => {
                    batch.refuse(status);
                    return batch;
                }
            }
        }
        if count != batch.count() {
            batch.refuse(Status::corruption("WriteBatch has wrong count"));
        }
        batch
    }

    /// Returns the encoded batch.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of records.
    pub fn count(&self) -> u32 {
        let count = self.bytes.get(COUNT..HEADER).and_then(|bytes| bytes.try_into().ok());
        count.map_or(0, u32::from_le_bytes)
    }

    fn set_count(&mut self, count: u32) {
        if let Some(bytes) = self.bytes.get_mut(COUNT..HEADER) {
            bytes.copy_from_slice(&count.to_le_bytes());
        }
    }

    /// Sets the sequence number.
    pub fn set_sequence(&mut self, sequence: u64) {
        if let Some(bytes) = self.bytes.get_mut(..SEQUENCE) {
            bytes.copy_from_slice(&sequence.to_le_bytes());
        }
    }

    /// Removes all records and save points.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Makes the write of the batch fail, unless an earlier call did.
    pub fn refuse(&mut self, status: Status) {
        self.refused.get_or_insert(status);
    }

    /// Adds a record of the default family whose key has no timestamp. The write of the batch fails
    /// if the family has timestamps.
    pub fn add_plain(&mut self, record: Record<'_>) {
        self.without_timestamp.default |= record.action != Action::LogData;
        self.add(record);
    }

    /// Adds a record of a family with timestamps whose key has none yet. The write of the batch
    /// fails.
    pub fn add_without_timestamp(&mut self, record: Record<'_>) {
        self.without_timestamp.versions = true;
        self.add(record);
    }

    /// Returns whether records of families with timestamps have none.
    pub fn lacks_timestamps(&self) -> bool {
        self.without_timestamp.versions
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record<'_>) {
        let room = record.key.len().saturating_add(record.value.len()).saturating_add(32);
        if self.bytes.try_reserve(room).is_err() {
            let message = "there is no memory for the batch";
            return self.refuse(Status::new(Code::TryAgain, message));
        }
        let is_default = record.family == 0;
        let tag = match (record.action, is_default) {
            (Action::Put, _) => PUT,
            (Action::Delete, _) => DELETE,
            (Action::Merge, _) => MERGE,
            (Action::LogData, _) => LOG_DATA,
            (Action::SingleDelete, true) => SINGLE_DELETE,
            (Action::SingleDelete, false) => SINGLE_DELETE_OF_FAMILY,
            (Action::DeleteRange, true) => DELETE_RANGE,
            (Action::DeleteRange, false) => DELETE_RANGE_OF_FAMILY,
        };
        let has_plain_tag = is_default || tag > FAMILY || record.action == Action::LogData;
        self.bytes.push(if has_plain_tag { tag } else { tag + FAMILY });
        if !is_default && record.action != Action::LogData {
            put_varint(&mut self.bytes, u64::from(record.family));
        }
        put_bytes(&mut self.bytes, record.key);
        if has_value(record.action) {
            put_bytes(&mut self.bytes, record.value);
        }
        if record.action != Action::LogData {
            self.set_count(self.count().saturating_add(1));
        }
    }

    /// Adds the records of another batch.
    pub fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(other.bytes.get(HEADER..).unwrap_or_default());
        self.set_count(self.count().saturating_add(other.count()));
        self.without_timestamp.default |= other.without_timestamp.default;
        self.without_timestamp.versions |= other.without_timestamp.versions;
        if let Some(status) = &other.refused {
            self.refuse(status.clone());
        }
    }

    /// Remembers the present size.
    pub fn set_save_point(&mut self) {
        self.save_points.push((self.bytes.len(), self.count(), self.without_timestamp));
    }

    /// Removes the records since the last save point, and the save point.
    pub fn rollback_to_save_point(&mut self) -> Result<(), Status> {
        let (size, count, without_timestamp) = self.take_save_point()?;
        self.bytes.truncate(size);
        self.set_count(count);
        self.without_timestamp = without_timestamp;
        Ok(())
    }

    /// Removes the last save point.
    pub fn pop_save_point(&mut self) -> Result<(), Status> {
        self.take_save_point().map(drop)
    }

    fn take_save_point(&mut self) -> Result<(usize, u32, WithoutTimestamp), Status> {
        let none = || Status::new(Code::NotFound, "the batch has no save point");
        self.save_points.pop().ok_or_else(none)
    }

    /// Returns the records in order. Ends after a failure.
    pub fn records(&self) -> Records<'_> {
        self.records_from(HEADER)
    }

    /// Returns the records from an offset, which is that of a record, in order.
    pub fn records_from(&self, offset: usize) -> Records<'_> {
        Records(self.bytes.get(offset.max(HEADER)..).unwrap_or_default())
    }

    /// Fails if the batch cannot be written.
    pub fn check(&self) -> Result<(), Status> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// Commits the batch: all of it or nothing. `target` returns the table of a column family. A
    /// batch without records waits for earlier writes if `durability` is `Sync`.
    pub fn commit<'t>(
        &self,
        database: &Database,
        durability: Durability,
        target: impl Fn(u32) -> Result<Target<'t>, Status>,
    ) -> Result<(), Status> {
        self.commit_and_delete(database, durability, target, None)
    }

    /// Commits the batch, and deletes a key of another table with it.
    pub fn commit_and_delete<'t>(
        &self,
        database: &Database,
        durability: Durability,
        target: impl Fn(u32) -> Result<Target<'t>, Status>,
        deleted: Option<(&Table, &[u8])>,
    ) -> Result<(), Status> {
        self.check()?;
        let lacks_default = self.without_timestamp.default && target(0)?.timestamps.is_some();
        if lacks_default || self.lacks_timestamps() {
            return Err(timestamps::without_timestamp());
        }
        let mut batch = database.batch();
        if let Some((table, key)) = deleted {
            batch.delete(table, key);
        }
        for record in self.records() {
            let record = record?;
            if record.action == Action::LogData {
                continue;
            }
            let (of_record, key) = (target(record.family)?, keys::stored(record.key));
            if let Some((key, value)) = of_record.version(&record)? {
                batch.put(of_record.table, key, value);
                continue;
            }
            match record.action {
                Action::Put if self.count() == 1 && deleted.is_none() => {
                    let options = of_record.put_options().durability(durability);
                    of_record.table.put_with(key, record.value, options)?;
                    return Ok(());
                }
                Action::Put => {
                    batch.put_with(of_record.table, key, record.value, of_record.put_options());
                }
                Action::Delete | Action::SingleDelete => {
                    batch.delete(of_record.table, key);
                }
                Action::Merge => {
                    if of_record.ttl.is_some() {
                        return self.commit_in_transaction(database, durability, target, deleted);
                    }
                    batch.merge(of_record.table, key, of_record.operand(record.value)?);
                }
                Action::DeleteRange => {
                    return self.commit_in_transaction(database, durability, target, deleted);
                }
                Action::LogData => {}
            }
        }
        if batch.is_empty() && durability == Durability::Sync {
            return Ok(database.sync()?);
        }
        Ok(batch.commit_with(durability)?)
    }

    /// Commits a batch with operations that only a transaction has.
    fn commit_in_transaction<'t>(
        &self,
        database: &Database,
        durability: Durability,
        target: impl Fn(u32) -> Result<Target<'t>, Status>,
        deleted: Option<(&Table, &[u8])>,
    ) -> Result<(), Status> {
        let options =
            TransactionOptions::new().isolation(Isolation::Snapshot).durability(durability);
        database.transaction_with(options, |transaction| {
            for record in self.records() {
                let record = record?;
                if record.action != Action::LogData {
                    target(record.family)?.apply(transaction, &record)?;
                }
            }
            if let Some((table, key)) = deleted {
                transaction.delete(table, key)?;
            }
            Ok(())
        })
    }
}

/// The records of a batch.
#[derive(Clone, Debug)]
pub struct Records<'b>(&'b [u8]);

impl<'b> Records<'b> {
    fn record(&mut self) -> Option<Record<'b>> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        let (action, has_family) = match tag {
            DELETE | PUT | MERGE => (plain_action(tag), false),
            LOG_DATA => (Action::LogData, false),
            SINGLE_DELETE => (Action::SingleDelete, false),
            DELETE_RANGE => (Action::DeleteRange, false),
            SINGLE_DELETE_OF_FAMILY => (Action::SingleDelete, true),
            DELETE_RANGE_OF_FAMILY => (Action::DeleteRange, true),
            4..=6 => (plain_action(tag - FAMILY), true),
            _ => return None,
        };
        let family = if has_family { u32::try_from(self.varint()?).ok()? } else { 0 };
        let key = self.bytes()?;
        let value = if has_value(action) { self.bytes()? } else { &[] };
        Some(Record { action, family, key, value })
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let size = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(bytes)
    }
}

impl<'b> Iterator for Records<'b> {
    type Item = Result<Record<'b>, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.record().ok_or_else(malformed);
        if record.is_err() {
            self.0 = &[];
        }
        Some(record)
    }
}

fn plain_action(tag: u8) -> Action {
    match tag {
        PUT => Action::Put,
        MERGE => Action::Merge,
        _ => Action::Delete,
    }
}

fn has_value(action: Action) -> bool {
    matches!(action, Action::Put | Action::Merge | Action::DeleteRange)
}

fn malformed() -> Status {
    Status::corruption("malformed write batch")
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

fn put_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    // A size fits: a slice has at most `isize::MAX` bytes.
    put_varint(bytes, u64::try_from(content.len()).unwrap_or(u64::MAX));
    bytes.extend_from_slice(content);
}
