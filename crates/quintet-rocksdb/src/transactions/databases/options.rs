//! Options of transactions.

use std::time::Duration;

use quintet_compat::export;

use crate::kept::{OptionNumbers, kept};

/// Longest time that a transaction waits for a lock in milliseconds, as RocksDB has it.
const LOCK_TIMEOUT_MS: i64 = 1000;
/// A wait without a limit: an hour, which is longer than a transaction lives.
const FOREVER: Duration = Duration::from_hours(1);

fn duration(milliseconds: i64) -> Duration {
    u64::try_from(milliseconds).map_or(FOREVER, Duration::from_millis).min(FOREVER)
}

impl TransactionDbOptions {
    /// Returns how long a transaction waits for a lock.
    pub fn lock_timeout(&self) -> Duration {
        let kept = self.kept.get("rocksdb_transactiondb_options_set_transaction_lock_timeout");
        duration(kept.unwrap_or(LOCK_TIMEOUT_MS))
    }
}

impl TransactionOptionsObject {
    /// Returns how long the transaction waits for a lock, if it was set.
    pub fn lock_timeout(&self) -> Option<Duration> {
        let kept = self.kept.get::<i64>("rocksdb_transaction_options_set_lock_timeout");
        kept.filter(|milliseconds| *milliseconds >= 0).map(duration)
    }

    /// Returns whether the transaction reads the moment of its begin.
    pub fn sets_snapshot(&self) -> bool {
        self.kept.get("rocksdb_transaction_options_set_set_snapshot").is_some_and(|v: u8| v != 0)
    }
}

impl OptimisticOptions {
    /// Returns whether the transaction reads the moment of its begin.
    pub fn sets_snapshot(&self) -> bool {
        let kept = self.kept.get("rocksdb_optimistictransaction_options_set_set_snapshot");
        kept.is_some_and(|v: u8| v != 0)
    }
}

/// `rocksdb_transactiondb_options_t`.
#[derive(Clone, Debug, Default)]
pub struct TransactionDbOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes options of a database with transactions with the defaults of RocksDB.
    pub fn rocksdb_transactiondb_options_create() -> Option<Box<TransactionDbOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of a database with transactions.
    pub fn rocksdb_transactiondb_options_destroy(options: Option<Box<TransactionDbOptions>>) {
        drop(options);
    }
}

kept! { TransactionDbOptions {
    rocksdb_transactiondb_options_set_max_num_locks(i64);
    rocksdb_transactiondb_options_set_num_stripes(usize);
    rocksdb_transactiondb_options_set_transaction_lock_timeout(i64);
    rocksdb_transactiondb_options_set_default_lock_timeout(i64);
} }

/// `rocksdb_transaction_options_t`.
#[derive(Clone, Debug, Default)]
pub struct TransactionOptionsObject {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes options of a transaction with the defaults of RocksDB.
    pub fn rocksdb_transaction_options_create() -> Option<Box<TransactionOptionsObject>>, None, {
        Some(Box::default())
    }

    /// Frees options of a transaction.
    pub fn rocksdb_transaction_options_destroy(options: Option<Box<TransactionOptionsObject>>) {
        drop(options);
    }
}

kept! { TransactionOptionsObject {
    rocksdb_transaction_options_set_set_snapshot(u8);
    rocksdb_transaction_options_set_deadlock_detect(u8);
    rocksdb_transaction_options_set_lock_timeout(i64);
    rocksdb_transaction_options_set_expiration(i64);
    rocksdb_transaction_options_set_deadlock_detect_depth(i64);
    rocksdb_transaction_options_set_max_write_batch_size(usize);
    rocksdb_transaction_options_set_skip_prepare(u8);
} }

/// `rocksdb_optimistictransaction_options_t`.
#[derive(Clone, Debug, Default)]
pub struct OptimisticOptions {
    pub(crate) kept: OptionNumbers,
}

export! {
    /// Makes options of an optimistic transaction with the defaults of RocksDB.
    pub fn rocksdb_optimistictransaction_options_create() -> Option<Box<OptimisticOptions>>, None, {
        Some(Box::default())
    }

    /// Frees options of an optimistic transaction.
    pub fn rocksdb_optimistictransaction_options_destroy(options: Option<Box<OptimisticOptions>>) {
        drop(options);
    }
}

kept! { OptimisticOptions {
    rocksdb_optimistictransaction_options_set_set_snapshot(u8);
} }
