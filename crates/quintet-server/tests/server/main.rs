//! A running server: its replies beside those of Redis, its limits, and what survives a kill.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod against_redis;
mod arguments;
mod blocking;
mod client;
mod durability;
mod generator;
mod limits;
mod pipelines;
mod running;
mod tls;
mod users;
