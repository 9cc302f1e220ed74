//! The recorder: keeps a real run as a trace that replays elsewhere.
//!
//! Problem: a run with real threads, real timing and a real file system must be crashed at each of
//! its events, on the simulated disk.
//! How: [`RecordEnv`] wraps any [`Env`], passes every call on, and keeps a [`TraceEvent`] of each
//! that changed something. [`replay`] repeats the trace on another `Env`, up to any event.
//!
//! Invariants:
//! - The trace is in the order in which the calls took effect: changing calls exclude one another.
//! - A failed call is not in the trace. (A failed sync made nothing durable that a crash may not
//!   lose. A write that failed half-way may leave bytes that the trace lacks; such a trace shows a
//!   possible disk, not this one.)
//! - Stores into mappings are found by comparing, at each call, every live mapping with its content
//!   at the previous call. They precede that call in the trace, so a sync covers all stores before
//!   it, and none during it. Stores between two calls are one event.
//! - Files return no descriptor, so queues use `read_at` and `write_at`, which the recorder sees.
//!
//! The comparison reads all mapped bytes at each call: record with small log segments.
//!
//! Threads: one lock, held during each changing call (no lower layer takes it).

mod env;
mod replay;
#[cfg(test)]
mod tests;
mod trace;

pub use env::RecordEnv;
pub use replay::{TraceReplay, replay};
pub use trace::TraceEvent;
