//! Tests of the public API. One binary: each one more would link the library again.
//!
//! One file: `cargo test -p quintet --test database queues`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arbitration;
mod atomic;
mod basics;
mod bounds;
mod callbacks;
mod changes;
mod extremes;
mod hierarchy;
#[path = "../common/lanes.rs"]
mod lanes;
mod options;
mod own_types;
mod periodic_checkpoints;
mod queues;
#[path = "../common/random.rs"]
mod random;
mod record;
#[path = "../common/scratch.rs"]
mod scratch;
mod snapshot_costs;
mod snapshots;
mod transactions;
mod typed;
mod whole_tables;
