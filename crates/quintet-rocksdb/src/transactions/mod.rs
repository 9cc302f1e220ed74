//! Transactions, pessimistic and optimistic.
//!
//! How: both are transactions of the library with snapshot isolation. A pessimistic one locks each
//! key before it writes it, and so do the writes of its database outside transactions. An
//! optimistic one reads the key, so that its commit fails if another commit has changed it.
//!
//! Start at [`handle`].

mod databases;
mod handle;
mod operations;
