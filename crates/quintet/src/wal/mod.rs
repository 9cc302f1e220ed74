//! The write-ahead log (WAL): one logical log that all tables of a database share.
//!
//! Why: the log alone makes a batch over several tables atomic, and any table can be rebuilt from
//! it. A record in the shared mapping survives the death of the process without a system call.
//!
//! How: a commit is one record. Its LSN is its byte offset in the log. A writer reserves space in
//! the current segment by one atomic add. It copies its record into the shared mapping of that
//! preallocated file, in parallel with other writers (Aether, VLDB 2010). Writers that need
//! durability share syncs ([`group`]).
//!
//! Invariants:
//! - An acknowledged synced commit is durable together with everything before it: a sync waits
//!   until every record below its end is copied ([`inflight`]).
//! - A segment is durable under its name, with all its space, before its first record.
//! - After a failed sync the log takes no record and acknowledges none. It never retries a sync.
//! - A segment is removed only when no table needs it ([`Log::prune`]). It may stay for readers
//!   ([`retention`], [`LogReader`]).
//! - An idle log can move to a small segment ([`Log::move_to_small_segment`]). It covers the rest
//!   of the full-size one with a filler, as it does when a record does not fit.
//!
//! Files: `log/<number>.log`. [`segment`] has the layout of the head, [`record`] that of records,
//! [`recovery`] the rules that tell a torn tail from damage.
//!
//! Threads: any. No lock is held while a record is copied. Lock order: `rotation`, then `sealed`,
//! then the retained segments.
//! No thread holds group commit's lock together with either.
//!
//! Start reading at [`append`] (a writer's path), then `sync` (durability) and [`recovery`].

mod append;
mod check;
mod group;
mod inflight;
mod log;
mod log_reader;
#[cfg(all(test, model))]
mod models;
mod mutants;
mod options;
mod prune;
mod reader;
mod record;
mod recovery;
mod reread;
mod retention;
mod rotation;
mod segment;
mod sync;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

#[cfg(feature = "testing")]
pub use append::BODY_BYTES_MAX;
pub use append::{Appended, Ticket};
pub use log::Log;
pub use log_reader::{LogReader, LoggedCommit};
#[cfg(feature = "testing")]
pub use options::SEGMENT_BYTES_MIN;
pub use options::{Anchor, LogOptions, LogStats};
pub use reader::{RecordInfo, SegmentReader};
pub use record::RecordKind;
#[cfg(feature = "testing")]
pub use segment::SegmentHead;
