//! The timestamps of a transaction, and its batch with the commit timestamp.

use quintet::Transaction;
use quintet_compat::{
    operations::{Action, Operations, Record},
    status::Status,
};

use crate::core::Core;

/// The timestamps of a transaction. A rollback keeps them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionTimestamps {
    /// That of the reads that are validated.
    pub read: Option<u64>,
    /// That of the writes.
    commit: Option<u64>,
}

/// Returns a timestamp of the program. RocksDB's greatest one is none.
fn set(timestamp: u64) -> Option<u64> {
    Some(timestamp).filter(|timestamp| *timestamp != u64::MAX)
}

impl TransactionTimestamps {
    /// Sets the read timestamp. A lesser one than before has no effect.
    pub fn set_read(&mut self, timestamp: u64) {
        if self.read.is_none_or(|read| timestamp >= read) {
            self.read = set(timestamp);
        }
    }

    /// Sets the commit timestamp. One that is not above the read timestamp has no effect.
    pub fn set_commit(&mut self, timestamp: u64) {
        if self.read.is_none_or(|read| timestamp > read) {
            self.commit = set(timestamp);
        }
    }

    /// Returns the batch of a transaction with its commit timestamp. `None`: it needs none.
    pub fn stamped(self, core: &Core, batch: &Operations) -> Result<Option<Operations>, Status> {
        if !batch.lacks_timestamps() {
            return Ok(None);
        }
        let none = || Status::invalid("Must assign a commit timestamp");
        let commit = self.commit.ok_or_else(none)?;
        let mut stamped = Operations::default();
        for record in batch.records() {
            let record = record?;
            let family = core.family(record.family)?;
            match &family.history {
                Some(history) if record.action != Action::LogData => {
                    let key = [record.key, &history.order.bytes(commit)].concat();
                    stamped.add(Record { key: &key, ..record });
                }
                _ => stamped.add(record),
            }
        }
        stamped.check()?;
        Ok(Some(stamped))
    }
}

/// Applies the records of a stamped batch that are of families with timestamps: all or none.
pub fn apply_versions(
    core: &Core,
    transaction: &mut Transaction,
    stamped: &Operations,
) -> Result<(), Status> {
    let before = transaction.savepoint();
    let applied = stamped.records().try_for_each(|record| {
        let record = record?;
        if record.action == Action::LogData {
            return Ok(());
        }
        let family = core.family(record.family)?;
        if family.history.is_none() {
            return Ok(());
        }
        family.target().apply(transaction, &record)
    });
    if applied.is_err() {
        // Another commit of the transaction may have another timestamp.
        transaction.rollback_to(before)?;
    }
    applied
}
