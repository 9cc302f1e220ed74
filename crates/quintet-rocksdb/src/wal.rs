//! The iterator over the log: the batches that were written, in their order.
//!
//! Why: a program copies a database to another one, or follows it, without reading it again.
//!
//! How: the iterator is a change feed of Quintet. A commit becomes a batch with the numbers of the
//! column families of this process. Changes of other tables are left out.
//!
//! Sequence numbers are positions in the log, plus one. A batch takes all numbers of its bytes: it
//! has the first one, and `rocksdb_get_latest_sequence_number` returns the last one. The iterator
//! begins at the first batch whose number is the requested one or greater. So the latest number at
//! some moment leads to what was written later. The number of a batch, plus one or plus its number
//! of operations, leads to the next batch: a batch has more bytes than operations.

use std::{collections::BTreeMap, sync::Arc};

use quintet::{
    Change, ChangeFeed, ChangeFeedOptions, CommittedChanges, KEY_BYTES_MAX, Lsn, TableChange,
};
use quintet_compat::{
    boundary::{Out, give, required},
    export, export_fallible, keys,
    operations::{Action, Operations, Record},
    status::{Code, Status},
    store::table_name,
    timestamps::{self, TimestampOrder},
};

use crate::{
    core::{Core, Db},
    kept::{OptionNumbers, kept},
};

/// `rocksdb_wal_readoptions_t`. They are kept and not used: checksums are always verified.
#[derive(Debug, Default)]
pub struct WalReadOptions {
    pub(crate) kept: OptionNumbers,
}

/// `rocksdb_wal_iterator_t`.
#[derive(Debug)]
pub struct WalIterator {
    core: Arc<Core>,
    feed: ChangeFeed,
    families: FamilyNumbers,
    current: Option<CommittedChanges>,
    failure: Option<Status>,
}

/// The number of a column family, and the byte order of its timestamps.
#[derive(Clone, Copy, Debug)]
struct FamilyNumber {
    id: u32,
    order: Option<TimestampOrder>,
}

/// The numbers of column families, by the paths of their tables.
#[derive(Debug, Default)]
struct FamilyNumbers {
    numbers: BTreeMap<String, FamilyNumber>,
    /// Families that were looked at. New ones are appended to the list of the database.
    known: usize,
}

impl FamilyNumbers {
    /// Adds the families that were created since the last call.
    fn update(&mut self, core: &Core) {
        let families = core.families();
        for family in families.iter().skip(self.known) {
            // One that was dropped and created again has the later number.
            let order = family.history.as_ref().map(|history| history.order);
            let number = FamilyNumber { id: family.id, order };
            self.numbers.insert(table_name(&family.name), number);
        }
        self.known = families.len();
    }

    /// Returns the family of a change that a batch can show.
    fn of(&self, change: &Change<'_>) -> Option<FamilyNumber> {
        let is_begin = matches!(change.change, TableChange::Begin);
        self.numbers.get(change.table).copied().filter(|_| !is_begin)
    }
}

/// Returns where a feed begins that shows the batches from a sequence number on.
fn position_of(sequence: u64, start: u64) -> u64 {
    // No batch has the number of the start: it would begin before the start, and end behind it.
    if sequence == 0 || sequence == start { start } else { sequence - 1 }
}

impl WalIterator {
    /// Makes an iterator at the first batch whose number is `sequence` or greater.
    fn new(core: &Arc<Core>, sequence: u64) -> Result<Self, Status> {
        // A secondary instance reads a moment, which a feed has not.
        core.check_writable()?;
        if sequence > core.present()?.lsn().0 {
            let message = "Requested sequence not yet written in the db";
            return Err(Status::new(Code::NotFound, message));
        }
        let database = &core.store.database;
        let position = position_of(sequence, database.log_range().start.0);
        // RocksDB shows writes that are not synced.
        let options = ChangeFeedOptions::new().unsynced(true);
        let mut iterator = Self {
            core: Arc::clone(core),
            feed: database.changes(Lsn(position), options)?,
            families: FamilyNumbers::default(),
            current: None,
            failure: None,
        };
        iterator.advance();
        Ok(iterator)
    }

    /// Moves to the next batch. At the end, a later call finds what was written meanwhile.
    fn advance(&mut self) {
        self.current = None;
        self.failure = None;
        match self.next_commit() {
            Ok(commit) => self.current = commit,
            Err(status) => self.failure = Some(status),
        }
    }

    /// Returns the next commit that changes a column family.
    fn next_commit(&mut self) -> Result<Option<CommittedChanges>, Status> {
        while let Some(commit) = self.feed.next_commit()? {
            self.families.update(&self.core);
            if commit.iter().any(|change| self.families.of(&change).is_some()) {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// Returns the present batch and its sequence number.
    fn batch(&self) -> Option<(u64, Operations)> {
        let commit = self.current.as_ref()?;
        let sequence = commit.lsn().0.saturating_add(1);
        let mut batch = Operations::default();
        batch.set_sequence(sequence);
        for change in commit.iter() {
            if let Some(family) = self.families.of(&change) {
                match family.order {
                    Some(order) => add_version(&mut batch, (family.id, order), change.change),
                    None => add(&mut batch, family.id, change.change),
                }
            }
        }
        Some((sequence, batch))
    }
}

/// Adds a change to a batch.
fn add(batch: &mut Operations, family: u32, change: TableChange<'_>) {
    let mut record = |action, key, value| batch.add(Record { action, family, key, value });
    match change {
        TableChange::Put { key, value, .. } => record(Action::Put, keys::key(key), value),
        TableChange::Delete { key } => record(Action::Delete, keys::key(key), &[]),
        TableChange::DeleteRange { start, end: [] } => {
            // The greatest key.
            let last = vec![0xFF; KEY_BYTES_MAX];
            record(Action::DeleteRange, keys::key(start), &last);
            record(Action::Delete, &last, &[]);
        }
        TableChange::DeleteRange { start, end } => {
            record(Action::DeleteRange, keys::key(start), keys::key(end));
        }
        TableChange::Begin => {}
        other => batch.refuse(Status::unsupported(format!("the change {other:?}"))),
    }
}

/// Adds a version to a batch. The removal of an old one is not shown.
fn add_version(
    batch: &mut Operations,
    (family, order): (u32, TimestampOrder),
    change: TableChange<'_>,
) {
    let TableChange::Put { key, value, .. } = change else { return };
    match (timestamps::version(key), timestamps::value(value)) {
        (Ok(version), Ok(value)) => {
            let action = if value.is_some() { Action::Put } else { Action::Delete };
            let (key, value) = (order.joined(&version), value.unwrap_or_default());
            batch.add(Record { action, family, key: &key, value });
        }
        (Err(status), _) | (_, Err(status)) => batch.refuse(status),
    }
}

export_fallible! {
    /// Makes an iterator at the first batch whose sequence number is `sequence` or greater. Fails
    /// with `NotFound` if the number is above the latest one, or the log is not kept any more.
    pub fn rocksdb_get_updates_since(
        db: Option<&Db>, sequence: u64, _options: Option<&WalReadOptions>,
    ) -> Option<Box<WalIterator>>, None, {
        Ok(Some(Box::new(WalIterator::new(&required(db, "the database")?.core, sequence)?)))
    }

    /// Stores why the last movement failed, if it did. The end of the log is no failure.
    pub fn rocksdb_wal_iter_status(iterator: Option<&WalIterator>) {
        required(iterator, "the iterator")?.failure.clone().map_or(Ok(()), Err)
    }
}

export! {
    /// Moves to the next batch. At the end, a later call finds what was written meanwhile.
    pub fn rocksdb_wal_iter_next(iterator: Option<&mut WalIterator>) {
        if let Some(iterator) = iterator {
            iterator.advance();
        }
    }

    /// Returns 1 if the iterator is at a batch.
    pub fn rocksdb_wal_iter_valid(iterator: Option<&WalIterator>) -> u8, 0, {
        iterator.is_some_and(|iterator| iterator.current.is_some()).into()
    }

    /// Returns the batch, which the caller frees, and stores its sequence number. Null at no batch.
    pub fn rocksdb_wal_iter_get_batch(
        iterator: Option<&WalIterator>, sequence: Out<'_, u64>,
    ) -> Option<Box<Operations>>, None, {
        let (number, batch) = iterator.and_then(WalIterator::batch).unzip();
        give(sequence, number.unwrap_or(0));
        batch.map(Box::new)
    }

    /// Frees an iterator.
    pub fn rocksdb_wal_iter_destroy(iterator: Option<Box<WalIterator>>) {
        drop(iterator);
    }

    /// Makes options of an iterator. Later versions of RocksDB than 7.8 have this function.
    pub fn rocksdb_wal_readoptions_create() -> Option<Box<WalReadOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of an iterator.
    pub fn rocksdb_wal_readoptions_destroy(options: Option<Box<WalReadOptions>>) {
        drop(options);
    }
}

kept! { WalReadOptions {
    rocksdb_wal_readoptions_set_verify_checksums(u8)
        => rocksdb_wal_readoptions_get_verify_checksums -> u8 = 1;
} }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_the_batches_that_begin_there_or_later() {
        for (sequence, start, position) in
            [(0, 0, 0), (0, 500, 500), (1, 0, 0), (9, 0, 8), (500, 500, 500), (501, 500, 500)]
        {
            assert_eq!(position_of(sequence, start), position, "{sequence} of {start}");
        }
        assert!(position_of(499, 500) < 500, "the log there was removed");
    }

    #[test]
    fn range_without_an_end_deletes_the_greatest_key_too() {
        let mut batch = Operations::default();
        add(&mut batch, 3, TableChange::DeleteRange { start: b"k", end: b"" });
        let greatest = vec![0xFF; KEY_BYTES_MAX];
        let records: Vec<_> = batch.records().map(|record| record.expect("a record")).collect();
        let [range, delete] = &records[..] else { panic!("{} records", records.len()) };
        assert_eq!((range.action, range.family), (Action::DeleteRange, 3));
        assert_eq!((range.key, range.value), (&b"k"[..], &greatest[..]));
        assert_eq!((delete.action, delete.family), (Action::Delete, 3));
        assert_eq!(delete.key, greatest);
    }
}
