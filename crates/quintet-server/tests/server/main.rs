//! A running server: its replies beside those of Redis, its limits, and what survives a kill.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod against_redis;
mod arguments;
mod blocking;
mod call_limits;
mod chromium;
mod client;
mod connection_limits;
mod console;
mod dump;
mod dump_files;
mod durability;
mod exposition;
mod flush;
mod fuzz_corpus;
mod generator;
mod hash_expiries;
mod http;
mod introspection;
mod latency;
mod limits;
mod load;
mod logs;
mod memory;
mod namespaces;
mod notifications;
mod pause;
mod pipelines;
mod replication;
mod running;
mod same;
mod shard_channels;
mod soak;
mod swap;
mod tls;
mod users;
