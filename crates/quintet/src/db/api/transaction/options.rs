//! The options of a transaction.

use std::time::Duration;

use crate::db::{core::durability::Durability, transaction::ReadMode};

/// Default of [`TransactionOptions::lock_timeout`]: far longer than a transaction takes, short
/// enough that an application notices a lock that is never released.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Default of [`TransactionOptions::retries`]: with the pauses between them, about 0.1 s.
const RETRIES: u32 = 64;

/// What concurrent commits may do to a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The outcome is that of some order in which the transactions ran one after the other. The
    /// commit validates everything that was read: keys, present or absent, and ranges.
    #[default]
    Serializable,
    /// Reads are of one moment, and of two transactions that write the same key one fails. The
    /// commit validates only the keys that are written, and those read for update. Write skew and
    /// phantoms are possible. Cheaper for transactions that read much.
    Snapshot,
}

/// Options of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TransactionOptions {
    isolation: Isolation,
    pub(super) durability: Option<Durability>,
    pub(super) lock_timeout: Duration,
    pub(super) retries: u32,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            durability: None,
            lock_timeout: LOCK_TIMEOUT,
            retries: RETRIES,
        }
    }
}

impl TransactionOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the isolation. Default: [`Isolation::Serializable`].
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Overrides the database's durability for the commit.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Sets how long [`Transaction::get_for_update`](super::Transaction::get_for_update) waits for
    /// a lock. Default: 1 s.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets the number of times that
    /// [`Database::transaction_with`](crate::db::Database::transaction_with) runs its closure again
    /// after a conflict or a deadlock. Default: 64.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Returns how a transaction reads that cannot be run again.
    pub(super) fn mode(&self) -> ReadMode {
        match self.isolation {
            Isolation::Serializable => ReadMode::Snapshot,
            Isolation::Snapshot => ReadMode::WritesOnly,
        }
    }

    /// Returns how an attempt of a transaction reads. The first one does without a snapshot, unless
    /// it is the only one.
    pub(super) fn mode_of_attempt(&self, attempt: u32) -> ReadMode {
        match self.mode() {
            ReadMode::Snapshot if attempt == 0 && self.retries > 0 => ReadMode::Versions,
            mode => mode,
        }
    }
}
