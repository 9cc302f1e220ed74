//! Transactions of a store: the traits [`TransactionalStore`] and [`StoreTransaction`].
//!
//! A store runs the body of a transaction until it commits. The body sees two tables: the one of
//! [`super::Store`], and a second one that only transactions use. The workloads check the sums over
//! both tables afterwards, so a store that loses an update fails its run.

use serde::{Deserialize, Serialize};

use super::callbacks::EachEntry;
use crate::failure::Outcome;

/// Guarantee of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransactionMode {
    /// Serializable, by the store's usual way to read what it writes afterwards.
    #[default]
    Serializable,
    /// Snapshot isolation: only writes conflict.
    Snapshot,
    /// Serializable, and each read locks its key until the transaction ends.
    Locked,
}

/// Table of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreTable {
    /// The table of [`super::Store`].
    First,
    /// The second table.
    Second,
}

/// A feature that not every store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFeature {
    /// Transactions in [`TransactionMode::Serializable`].
    Transactions,
    /// Transactions in [`TransactionMode::Snapshot`].
    SnapshotTransactions,
    /// Transactions in [`TransactionMode::Locked`].
    LockingTransactions,
    /// [`super::Store::atomic_update`].
    AtomicUpdate,
}

impl StoreFeature {
    /// Returns the feature that transactions of a mode need.
    pub const fn of(mode: TransactionMode) -> Self {
        match mode {
            TransactionMode::Serializable => Self::Transactions,
            TransactionMode::Snapshot => Self::SnapshotTransactions,
            TransactionMode::Locked => Self::LockingTransactions,
        }
    }

    /// Returns the name in messages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::SnapshotTransactions => "choice of snapshot isolation for transactions",
            Self::LockingTransactions => "reads of transactions that lock their key",
            Self::AtomicUpdate => "atomic update of a key by a function",
        }
    }
}

/// A running transaction.
///
/// If an operation fails because of a conflict, the body must return that failure. The store then
/// runs the body again.
pub trait StoreTransaction {
    /// Replaces the content of `value` by the value of `key`; returns false if the key is absent.
    fn get_into(&mut self, table: StoreTable, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool>;
    /// Sets the value of a key, at commit.
    fn put(&mut self, table: StoreTable, key: &[u8], value: &[u8]) -> Outcome;
}

/// Body of a transaction. It has no effect besides that of the transaction.
pub type TransactionBody<'a> = dyn FnMut(&mut dyn StoreTransaction) -> Outcome + 'a;

/// The transactions of a store.
pub trait TransactionalStore: Sync {
    /// Runs `body` as a transaction until it commits. Returns how many runs ended with a conflict
    /// before that. A failure of the body that is no conflict rolls back and is returned.
    fn transact(&self, mode: TransactionMode, body: &mut TransactionBody<'_>) -> Outcome<u64>;
    /// Opens the second table if needed, and sets values in it as one atomic write.
    fn batch_second(&self, entries: &[(Vec<u8>, Vec<u8>)]) -> Outcome;
    /// Visits all entries of the second table and returns their count.
    fn scan_second(&self, each: &mut EachEntry<'_>) -> Outcome<u64>;
}
