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

/// The objects that the interface lets threads share, and those that it lets them pass on.
const _: () = {
    use quintet_compat::{
        boundary::{assert_sent, assert_shared},
        comparator::Comparator,
        operations::Operations,
        snapshot::SnapshotObject,
    };

    assert_shared::<database::Db>();
    assert_shared::<SnapshotObject>();
    assert_shared::<Comparator>();
    assert_shared::<objects::Cache>();
    assert_shared::<objects::Env>();
    assert_shared::<objects::FilterPolicy>();
    assert_shared::<options::DatabaseOptions>();
    assert_shared::<options::ReadOptions>();
    assert_shared::<options::WriteOptions>();
    assert_shared::<Operations>();
    assert_sent::<iterator::IteratorObject>();
};
