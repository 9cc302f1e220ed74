//! A shared library with RocksDB's C interface (`rocksdb/c.h`, version 7.8) on Quintet.
//!
//! Why: a program that is linked with `librocksdb` runs on Quintet without a change.
//!
//! How: each function is written inside `quintet_compat::export`, which gives it the C calling
//! convention and a guard that no panic passes. An object of the interface is a box. A column
//! family is a table. `functions.txt` lists the functions, and whether each has an effect; a
//! function that is not there is not exported, so linking tells. `docs/rocksdb.md` has what differs
//! from RocksDB.
//!
//! Start at `core`.
#![deny(unsafe_code)]

mod backup;
mod batch;
mod callbacks;
mod checkpoint;
mod core;
mod database;
mod families;
mod files;
mod filters;
mod indexed;
mod iterator;
mod kept;
mod memory;
mod objects;
mod open;
mod options;
mod properties;
mod reads;
mod sst;
mod transactions;
