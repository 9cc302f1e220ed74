//! A server that speaks the protocol of Redis over the tables of Quintet: `quintet serve`.
//!
//! A connection is a task of tokio ([`network`](crate)). It parses requests (`resp`), and the
//! dispatcher (`dispatch`) runs their commands (`command`, one table of all). Commands read and
//! change keys through a unit (`store`), which commits as one atomic batch. `state` is what
//! connections share. Start reading at `dispatch.rs` and `store/mod.rs`.
//!
//! API Boundary: this crate sees only the public surface of the `quintet` crate.
#![forbid(unsafe_code)]

mod acl;
mod command;
mod config;
mod dispatch;
mod failure;
mod glob;
mod network;
mod notice;
mod number;
mod resp;
mod run;
mod spec;
mod state;
mod store;
mod sweeper;
mod tls;

pub use config::{Config, ServeArgs, StartFailure};
pub use run::serve;
pub use state::AppendFsync;
pub use tls::TlsAuthClients;
