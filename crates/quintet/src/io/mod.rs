//! The operating system behind traits: files, clocks, randomness, background jobs.
//!
//! Problem: the database must run unchanged on the real system, on a simulated disk with faults and
//! crashes, and under a recorder.
//! How: [`Env`], [`Dir`] and [`File`] are the traits. A [`Queue`] runs many reads and writes at
//! once. A [`Job`] is background work. [`os`] implements them on Linux, `sim` in memory, and
//! `recorder` wraps another `Env` and keeps a trace that replays on the simulator.
//!
//! Invariants:
//! - No other module opens files, reads clocks, draws random numbers or starts threads.
//! - Each method says what is durable when it returns. A write is durable after a later `sync_data`
//!   or `sync_all` of that file returned `Ok`. A new name, a rename or a removal is durable after a
//!   later `sync` of its directory returned `Ok`. Nothing else is guaranteed.
//! - A failed sync is final for everything written before it. No caller retries it.
//! - The caller chooses names of one path component. Symbolic links are never followed.
//!
//! Threads: any number of threads may share a trait object, except a [`Queue`], which one thread
//! uses at a time.
//!
//! Start reading at [`File`]; `contract_tests` checks each implementation.

pub mod array;
mod block;
pub mod buffer;
#[cfg(test)]
mod contract_tests;
mod env;
mod file;
pub mod map;
pub mod memory;
pub mod os;
pub mod persistence;
pub(crate) mod process;
pub mod queue;
#[cfg(feature = "testing")]
pub mod recorder;
mod request;
#[cfg(feature = "testing")]
pub mod sim;
mod thread_counters;
pub mod write_throttle;

pub use array::Array;
pub use block::{BLOCK_BYTES, SECTOR_BYTES};
pub use buffer::AlignedBuffer;
pub use env::{Env, Job, JobControl, JobHandle, NextRun};
pub use file::{Dir, DirEntry, File, LockGuard, Open, read_exact_at, read_up_to, write_all_at};
pub use map::Mapping;
pub use memory::{Region, prefetch, reservation, store};
pub use queue::{DEPTH as QUEUE_DEPTH, Flow, Pending, Queues};
pub use request::{Completion, Queue, Request};
pub(crate) use thread_counters::Stopwatch;
pub use thread_counters::{ThreadCounters, ThreadDetail};
