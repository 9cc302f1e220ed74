//! What the libraries that are compatible with LevelDB and RocksDB share.
//!
//! Why: a program that is linked with one of these stores runs on Quintet without a change.
//!
//! How: [`boundary`] has the memory of the C program and the macros that export functions.
//! [`store`] opens a database in which each column family is a table. [`operations`] is a write
//! batch in LevelDB's format. [`iterator`] moves both ways over a snapshot. Objects of the C
//! interface are boxes, so a call costs no lookup; the caller keeps the promises of the original
//! interface.
//!
//! Start at [`store`], and at `docs/rocksdb.md` for what differs from the originals.
#![deny(unsafe_code)]

pub mod boundary;
pub mod comparator;
pub mod copy;
pub mod destroy;
pub mod engines;
pub mod files;
pub mod iterator;
pub mod keys;
pub mod operations;
#[cfg(test)]
mod random;
pub mod sizes;
pub mod snapshot;
pub mod status;
pub mod store;
pub mod timestamps;
pub mod versions;
