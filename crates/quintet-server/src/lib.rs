//! A server that speaks the protocol of Redis over the tables of Quintet: `quintet serve`.
//!
//! A connection is a task of tokio ([`network`](crate)). It parses requests (`resp`), and the
//! dispatcher (`dispatch`) runs their commands (`command`, one table of all). Commands read and
//! change keys through a unit (`store`), which commits as one atomic batch. `state` is what
//! connections share, with all counters. `http` shows them to operators. Start reading at
//! `dispatch.rs` and `store/mod.rs`.
//!
//! API Boundary: this crate sees only the public surface of the `quintet` crate.
#![forbid(unsafe_code)]

mod acl;
mod command;
mod config;
mod config_error;
mod connection_threads;
mod data_directory;
mod dispatch;
mod failure;
pub mod fuzzing;
mod glob;
mod http;
mod loading;
mod logging;
mod migrate;
mod network;
mod notify;
mod number;
mod rdb;
mod replication;
mod resp;
mod run;
mod sampler;
mod spec;
mod state;
mod store;
mod sweeper;
mod tls;
mod work;

pub use config::{Config, ServeArgs, StartFailure};
pub use http::Exposure;
pub use logging::{LogFormat, LogLevel, start_logging};
pub use migrate::{ExportSummary, ImportSummary, export_rdb, import_rdb};
pub use run::serve;
pub use state::AppendFsync;
pub use tls::TlsAuthClients;
