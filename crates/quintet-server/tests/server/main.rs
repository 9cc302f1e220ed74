//! A running server: its replies beside those of Redis, its limits, and what survives a kill.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod against_redis;
mod arguments;
mod blocking;
mod chromium;
mod client;
mod console;
mod durability;
mod exposition;
mod generator;
mod http;
mod latency;
mod limits;
mod logs;
mod pipelines;
mod running;
