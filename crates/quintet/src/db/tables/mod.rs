//! The open tables: their registry and state, reads, and the host that their engines call.
//!
//! Start reading at [`registry`] and [`state`].

mod clear;
pub(crate) mod host;
pub(crate) mod job_handles;
pub(crate) mod loader;
mod log_notes;
mod merge;
mod reads;
pub(crate) mod registry;
pub(crate) mod state;
pub(crate) mod stripes;
mod types;
pub(crate) mod value;
