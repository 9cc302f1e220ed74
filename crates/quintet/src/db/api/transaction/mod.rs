//! Transactions: reads of one moment and writes, committed atomically.
//!
//! A transaction keeps its writes in memory until it commits. Its reads show one moment and its own
//! writes. At commit it is validated and logged as one record; [`crate::db::transaction`] has the
//! method. `docs/transactions.md` describes isolation, costs and conflicts.
//!
//! Key locks ([`Transaction::get_for_update`]) are held until the transaction ends. They bind
//! only transactions that lock.
//!
//! Threads: a transaction belongs to one thread at a time. Any number run concurrently.

mod handle;
mod mutants;
mod options;
mod ranges;
mod retry;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod typed;

pub use self::{
    handle::{Savepoint, Transaction},
    options::{Isolation, TransactionOptions},
    ranges::TransactionEntries,
    typed::{TransactionTable, TypedTransactionEntries},
};
