//! Transactions, pessimistic and optimistic.
//!
//! How: both are transactions of the library with snapshot isolation. A pessimistic one locks each
//! key before it writes it, and so do the writes of its database outside transactions. An
//! optimistic one reads the key, so that its commit fails if another commit has changed it.
//!
//! A transaction keeps its operations as a batch too. Preparing it stores that batch durably in a
//! table of its own, and the commit removes it from there. A database that is opened applies the
//! batches again, with their locks.
//!
//! Start at [`handle`].

mod databases;
mod handle;
mod operations;
mod prepared;
