//! A shared library with LevelDB's C interface (`leveldb/c.h`, version 1.23) on Quintet.
//!
//! Why: a program that is linked with `libleveldb` runs on Quintet without a change.
//!
//! How: each function is written inside `quintet_compat::export`, which gives it the C calling
//! convention and a guard that no panic passes. An object of the interface is a box.
//! `docs/rocksdb.md` has what differs from LevelDB.
//!
//! Start at `database`.
#![deny(unsafe_code)]

mod batch;
mod database;
mod iterator;
mod objects;
mod options;
