//! A running server: its replies beside those of Redis, its limits, and what survives a kill.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod against_redis;
mod arguments;
mod blocking;
mod client;
mod dump;
mod dump_files;
mod durability;
mod fuzz_corpus;
mod generator;
mod limits;
mod notifications;
mod pipelines;
mod replication;
mod running;
mod same;
